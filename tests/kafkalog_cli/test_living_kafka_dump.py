"""Kafka's text of a partition whose files are replaced during printing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kafkalog.io.jit import fast_path
from kafkalog_cli.output import kafka_text
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

PER_SEGMENT = 10


@pytest.mark.parametrize("size_min", [0, 1 << 40])
@pytest.mark.parametrize("limit", [None, 24])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_files_that_go_away_are_listed_again(
    tmp_path: Path,
    kafkalog: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    size_min: int,
    limit: int | None,
    number: int,
) -> None:
    """The cleaner merges all segments just before one is read: each row is printed once."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    partition = tmp_path / "t-0"
    batches = [batch(n, [record(0, b"k", b"v")]) for n in range(3 * PER_SEGMENT)]
    for base in range(0, len(batches), PER_SEGMENT):
        write_log(partition, *batches[base : base + PER_SEGMENT], name=f"{base:020}")
    put_line = kafka_text.put_line

    def clean_before(text: str | bytes) -> None:
        put_line(text)
        line = text if isinstance(text, str) else text.decode()
        if line.startswith("Dumping") and f"{number * PER_SEGMENT:020}.log" in line:
            monkeypatch.setattr(kafka_text, "put_line", put_line)
            for log in partition.glob("*.log"):
                log.unlink()
            write_log(partition, *batches, name=f"{0:020}")

    monkeypatch.setattr(kafka_text, "put_line", clean_before)
    words = [] if limit is None else ["--limit", limit]
    found = kafkalog("dump-segment", partition, "--format", "kafka", *words)
    assert (found.status, found.stderr) == (0, "")
    offsets = re.findall(rb"^\| offset: (\d+) ", found.stdout, re.MULTILINE)
    assert [int(one) for one in offsets] == [*range(len(batches))][:limit]
