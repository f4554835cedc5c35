"""Messages are the records of the reference decoder, however they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.log.batches.selection import Selection
from kafkalog.model import Record
from kafkalog.node.reader import plan_reading, read_records
from kafkalog.wire.producing.messages import Piece, pieces_of
from tests.builders import batch, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


WANTED = Selection(data=True, sound=True)


def messages(path: Path, *, bulk: bool, selection: Selection = WANTED) -> Iterator[Any]:
    for piece in pieces_of(plan_reading(str(path), selection), None, bulk=bulk):
        if isinstance(piece, Piece):
            sizes = [
                len(key or b"") + len(value or b"")
                + sum(len(name.encode()) + len(one or b"") for name, one in headers or ())
                for _, value, key, _, headers in piece.messages
            ]  # fmt: skip
            assert piece.size_bytes == sum(sizes)
            yield from piece.messages


def expected(path: Path, selection: Selection = WANTED) -> Iterator[Any]:
    for one in read_records(str(path), selection):
        if isinstance(one, Record):
            headers = [(header.key.decode(), header.value) for header in one.headers]
            yield one.offset, one.value, one.key, one.timestamp, headers or None


STATES = [("kafka-4.3", name) for name in ("codecs", "txn", "timestamps", "crash-1-torn")]
STATES += [("kafka-2.8", name) for name in ("v0", "v1", "upgrade")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", STATES, ids="-".join)
def test_messages_are_the_records(name: tuple[str, str], corpus_dir: Path) -> None:
    """All codecs and formats, nulls, headers, aborted records, damage, and a limit."""
    for path in state(corpus_dir, *name).partitions():
        for selection in (WANTED, replace(WANTED, limit=7)):
            wanted = list(expected(path, selection))
            for bulk in (False, True):
                assert list(messages(path, bulk=bulk, selection=selection)) == wanted, path


@pytest.mark.parametrize("bulk", [False, True])
def test_a_header_without_a_text_as_name_is_left_out_and_told(tmp_path: Path, bulk: bool) -> None:
    """The binding of librdkafka would crash on it."""
    records = [
        record(0, b"a", headers=[(b"ok", None), (b"", b"")]),
        record(1, b"b", headers=[(b"ok", b"1"), (b"\xff", b"2")]),
        record(2, b"c"),
        record(3, b"", None, headers=[("ü".encode(), b"3")]),
    ]
    path = write_log(tmp_path / "orders-0", batch(5, records))
    [piece] = pieces_of(plan_reading(str(path), WANTED), None, bulk=bulk)
    assert isinstance(piece, Piece)
    assert piece.unsendable == [6]
    assert [(one[0], one[2], one[4]) for one in piece.messages] == [
        (5, b"a", [("ok", None), ("", b"")]),
        (7, b"c", None),
        (8, b"", [("ü", b"3")]),
    ]
