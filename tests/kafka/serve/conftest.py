"""The gathered corpora, `kafkalog serve` on them, and a real broker on a copy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.kafka.serve import served
from tests.kafka.serve.gathered import Gathered, gather

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.serve.served import Bridge, Server

PEER_VARIABLE = "KAFKALOG_PEER"
WHOLE = ("--high-watermark", "end")
"""Serve to the log end, as a broker does that has started on the logs alone."""


@pytest.fixture(scope="module")
def gathered(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    return gather(corpus_dir, tmp_path_factory.mktemp("gathered") / "logs")


@pytest.fixture(scope="module")
def server(gathered: Gathered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`kafkalog serve` on the gathered logs; with KAFKALOG_PEER a real broker, which judges us."""
    place = tmp_path_factory.mktemp("server")
    if os.environ.get(PEER_VARIABLE):
        with served.running_broker(gathered.copied(place / "copy"), place / "cwd") as running:
            yield running
        return
    with served.running_serve(gathered.log_dirs, place, *WHOLE) as running:
        yield running


@pytest.fixture(scope="module")
def bridge(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:  # noqa: ARG001
    one = served.Bridge(tmp_path_factory.mktemp("bridge"))
    yield one
    one.close()
