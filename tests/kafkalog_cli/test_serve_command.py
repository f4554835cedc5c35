"""`kafkalog serve`: options and files that make no sense, and data that outlive the server."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kafkalog.wire.server.model import Address
from tests.checkout import ROOT
from tests.kafkalog.wire.server.certificates import write_certificate
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

EXAMPLE = ROOT / "examples" / "log-dir"


@contextmanager
def served(*arguments: str) -> Iterator[Address]:
    """Serve the example in a process of its own, until SIGTERM ends it with status 0."""
    command = [sys.executable, "-m", "kafkalog_cli", "serve", str(EXAMPLE), *arguments]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name, port = process.stdout.readline().strip().rsplit(":", 1)
            assert name == "bootstrap.servers=127.0.0.1"
            yield Address("127.0.0.1", int(port))
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("options", [
    ["--tls-cert", "cert.pem"], ["--tls-key", "key.pem"], ["--commits", "f", "--read-only-commits"],
    ["--metrics-listen", "9100"], ["--commits", str(EXAMPLE / "offsets")],
])  # fmt: skip
def test_options_that_make_no_sense(kafkalog: Callable[..., Result], options: list[str]) -> None:
    result = kafkalog("serve", EXAMPLE, "--listen", "127.0.0.1:0", *options)
    assert result.status == 2
    assert result.stderr.startswith("error: ")
    assert result.stdout == b""


def test_files_that_are_none(kafkalog: Callable[..., Result], tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    (tmp_path / "other").write_text("no such file\n")
    for status, options in (
        (2, ["--sasl-plain", str(tmp_path / "none")]),
        (2, ["--sasl-plain", str(tmp_path / "other")]),
        (2, ["--tls-cert", str(key), "--tls-key", str(certificate)]),
        (6, ["--commits", str(tmp_path / "other")]),
        (4, ["--commits", str(tmp_path / "none" / "offsets")]),
    ):
        result = kafkalog("serve", EXAMPLE, "--listen", "127.0.0.1:0", *options)
        assert (result.status, result.stdout) == (status, b""), options
        assert "Traceback" not in result.stderr


def test_offsets_outlive_the_server(tmp_path: Path) -> None:
    path = tmp_path / "offsets.ndjson"
    for offset in 411, 412:
        with served("--commits", str(path)) as address, Wire(address) as wire:
            asked = [{"groupId": "billing", "topics": None}]
            topics = wire.tell("OffsetFetch", 9, groups=asked)["groups"][0]["topics"]
            assert topics[0]["partitions"][0]["committedOffset"] == (400 if offset == 411 else 411)
            partitions = [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}]
            answer = wire.tell(
                "OffsetCommit", 9, groupId="billing",
                topics=[{"name": "orders", "partitions": partitions}],
            )  # fmt: skip
            assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["offsets"][0]["offset"] for line in lines] == [411, 412]
