"""The life of a key: values before and after, what superseded them, and what remains of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.answers.search.history import history, wanted_for_history
from kafkalog.answers.search.run import Search
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Defect
from kafkalog.node.targets import open_targets
from tests.builders import SEGMENT, batch, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.answers.search.scanning import Occurrence

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"
MARKER_VALUE = b"\0\0\0\0\0\0"


def life(path: Path, key: bytes) -> list[Occurrence]:
    selection = wanted_for_history(Selection(key=key))
    found = list(history(Search(open_targets([path]), selection)))
    assert not [one for one in found if isinstance(one, Defect)]
    return [one for one in found if not isinstance(one, Defect)]


def told(one: Occurrence) -> tuple[object, ...]:
    before = one.before
    return (
        one.found.record.offset, before and (before.offset, before.value),
        one.found.record.value, one.superseded_by, one.is_live, one.transaction,
    )  # fmt: skip


def test_each_value_has_the_one_before_and_the_one_after(tmp_path: Path) -> None:
    """A tombstone counts as a value; records of other keys are skipped."""
    write_log(
        tmp_path / "users-0",
        batch(0, [record(0, b"k", b"1"), record(1, b"x", b"2"), record(2, b"k", None)]),
        batch(3, [record(0, b"k", b"null"), record(1, b"", b"4")]),
    )
    assert [told(one) for one in life(tmp_path / "users-0", b"k")] == [
        (0, None, b"1", 2, True, None),
        (2, (0, b"1"), None, 3, True, None),
        (3, (2, None), b"null", None, True, None),
    ]


def test_what_a_transaction_aborted_never_counted(tmp_path: Path) -> None:
    """It supersedes nothing, and neither does an open transaction."""

    def marker(offset: int, kind: bytes, producer: int) -> bytes:
        return batch(offset, [record(0, kind, MARKER_VALUE)], attributes=0x30,
                     producer=(producer, 0, -1))  # fmt: skip

    def data(offset: int, value: bytes, producer: int) -> bytes:
        return batch(offset, [record(0, b"k", value)], attributes=0x10,
                     producer=(producer, 0, 0))  # fmt: skip

    write_log(
        tmp_path / "users-0",
        batch(0, [record(0, b"k", b"0")]),
        data(1, b"1", 7), marker(2, ABORT, 7),
        data(3, b"3", 8), marker(4, COMMIT, 8),
        data(5, b"5", 9),
    )  # fmt: skip
    assert [told(one) for one in life(tmp_path / "users-0", b"k")] == [
        (0, None, b"0", 3, True, None),
        (1, (0, b"0"), b"1", None, True, "aborted"),
        (3, (0, b"0"), b"3", None, True, "committed"),
        (5, (3, b"3"), b"5", None, True, "open"),
    ]


def test_leftovers_show_what_the_log_has_no_more(tmp_path: Path) -> None:
    """A deleted segment before compaction, and a replaced one: each occurrence once, by offset."""
    original = [batch(i, [record(0, b"k", b"%d" % i)]) for i in range(6)]
    place = tmp_path / "users-0"
    write_log(place, original[3], *original[5:])
    write_log(place, *original).rename(place / f"{SEGMENT}.log.deleted")
    write_log(place, original[3], *original[5:])
    write_log(place, *original[2:4]).rename(place / f"{2:020d}.log.cleaned")
    write_log(place, original[3], *original[5:])
    assert [told(one) for one in life(place, b"k")] == [
        (i, (i - 1, b"%d" % (i - 1)) if i else None, b"%d" % i, i + 1 if i < 5 else None,
         i in (3, 5), None)
        for i in range(6)
    ]  # fmt: skip


def test_records_that_the_next_start_drops_are_not_live(corpus_dir: Path) -> None:
    """The broker was killed during a swap: replaced files and their replacements are both there."""
    corpus = state(corpus_dir, "kafka-4.3", "interrupted-1-swap")
    recovered = state(corpus_dir, "kafka-4.3", "interrupted-2-swap-recovered")
    [log_dir] = corpus.log_dirs
    selection = wanted_for_history(Selection(data=True))
    seen = list(history(Search(open_targets([log_dir]), selection, ["compact-interrupted"])))
    found = [one for one in seen if not isinstance(one, Defect)]
    for place in sorted((recovered.expected / "records").glob("compact-interrupted-*.ndjson")):
        number = int(place.stem.rpartition("-")[2])
        live = [one for one in found if one.is_live and one.found.partition == number]
        offsets = {one.found.record.offset for one in live}
        assert len(offsets) == len(live) == len(place.read_text().splitlines())
    assert not all(one.is_live for one in found)
