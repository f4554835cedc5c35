"""The gathered corpora, and `kafkalog serve` on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.serve import served
from tests.kafka.serve.gathered import Gathered, gather

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.serve.served import Server

WHOLE = ("--high-watermark", "end")
"""Serve to the log end, as a broker does that has started on the logs alone."""


@pytest.fixture(scope="module")
def gathered(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    return gather(corpus_dir, tmp_path_factory.mktemp("gathered") / "logs")


@pytest.fixture(scope="module")
def server(gathered: Gathered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`kafkalog serve` on the gathered logs."""
    with served.running_serve(gathered.log_dirs, tmp_path_factory.mktemp("server"), *WHOLE) as one:
        yield one
