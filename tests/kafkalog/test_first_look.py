"""The view of a log that nobody closed, scanned no further than its reader goes."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.search.lookups import look_up
from kafkalog.errors import DataError
from kafkalog.files.log_dir import open_partition
from kafkalog.log.batches.selection import Selection, planned_batches, planned_records
from kafkalog.log.columns.pipeline import Restored, read_contents
from kafkalog.model import Defect, LogView, Record, Special
from kafkalog.node import frontier
from kafkalog.node.lookup import Lookup, lookup_offset, lookup_special, lookup_timestamp
from kafkalog.node.reader import plan_reading
from kafkalog.node.recovery import segment_recovery
from kafkalog.node.view import show
from tests.builders import batch, frames, message, record
from tests.sampling import drawn_for, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.node.outcome import View
    from tests.conftest import State

    Damage = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _nothing_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "_LITTLE", -1)


def values(shown: View, selection: Selection, *, bulk: bool, batches: bool) -> list[Any]:
    """Return what a reader yields."""
    plan = plan_reading(shown, selection)
    if not bulk:
        return list((planned_batches if batches else planned_records)(plan))
    found: list[Any] = []
    for content in read_contents(plan, Restored(), None, batches=batches):
        found += content if isinstance(content, list) else [content]
    return found


def rows_of(found: list[Any]) -> list[Any]:
    return [
        (one.offset, one.timestamp, one.key, one.value) if isinstance(one, Record) else one
        for one in found
        if not isinstance(one, Defect)
    ]


def is_thrown_away(shown: View) -> bool:
    """Return whether nothing stays of a segment that begins with sound batches."""
    return any(one.log.end == 0 for one in shown.segments)


def assert_same_rows(path: Path, selection: Selection, *, bulk: bool, batches: bool) -> None:
    """Both views show the same and differ from the files in the same way, or the lazy one says."""
    whole = show(open_partition(str(path)))
    lazy = show(open_partition(str(path)), lazily=True)
    wanted = values(whole, selection, bulk=bulk, batches=batches)
    found = values(lazy, selection, bulk=bulk, batches=batches)
    told = lazy.difference_so_far
    if told is not None and told.logs_in_doubt:  # too late
        assert told.hidden_bytes
        assert rows_of(found)[: len(rows_of(wanted))] == rows_of(wanted)
        return
    if told is not None and told.unscanned_bytes and is_thrown_away(whole):
        assert rows_of(found)[: len(rows_of(wanted))] == rows_of(wanted)
        return
    assert found == wanted
    if told is None or not told.unscanned_bytes:
        assert told == whole.difference
    else:
        assert selection != Selection()  # a reader of everything scans everything


def selections(ends: int) -> list[Selection]:
    some = drawn_for("where reading begins").sample(range(ends), 3)
    return [
        Selection(),
        Selection(limit=1),
        Selection(limit=some[0]),
        Selection(from_offset=some[1]),
        Selection(from_offset=min(some), to_offset=max(some)),
        Selection(from_time=1_700_000_000_000 + 10 * some[2]),
    ]


LAST = 600
SEGMENTS = (0, 200, 400)


def killed(directory: Path, **rest: Any) -> Path:
    """Write three segments of a partition that nobody closed."""
    path = directory / "t-0"
    path.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=1\nnode.id=1\n")
    for base in SEGMENTS:
        data = b"".join(
            batch(
                at,
                [record(i, b"%d" % (at + i), bytes(150), time_delta=10 * i) for i in range(5)],
                base_time=1_700_000_000_000 + 10 * at,
                max_time=1_700_000_000_040 + 10 * at,
                **rest,
            )
            for at in range(base, base + 200, 5)
        )
        (path / f"{base:020}.log").write_bytes(data)
        for kind in ("index", "timeindex"):
            (path / f"{base:020}.{kind}").touch()
    return path


def log(path: Path, number: int) -> Path:
    return path / f"{SEGMENTS[number]:020}.log"


def patched(path: Path, number: int, ordinal: int, at: int, data: bytes) -> None:
    """Overwrite bytes of a batch, counted from its begin."""
    content = bytearray(log(path, number).read_bytes())
    position = frames(bytes(content))[ordinal][0] + at
    content[position : position + len(data)] = data
    log(path, number).write_bytes(content)


def cut(path: Path, number: int, size: int) -> None:
    data = log(path, number).read_bytes()
    log(path, number).write_bytes(data[:size])


def appended(path: Path, data: bytes) -> None:
    with log(path, 2).open("ab") as file:
        file.write(data)


def swapped(path: Path) -> None:
    """The cleaner was killed between two renames: the first two segments become one."""
    data = log(path, 0).read_bytes()[: frames(log(path, 0).read_bytes())[7][0]]
    for kind, content in (("log", data), ("index", b""), ("timeindex", b"")):
        (path / f"{0:020}.{kind}.swap").write_bytes(content)


def recovery_point(path: Path, offset: int) -> None:
    text = f"0\n1\nt 0 {offset}\n"
    path.with_name("recovery-point-offset-checkpoint").write_text(text)


def log_start(path: Path, offset: int) -> None:
    path.with_name("log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")


def base_offset(path: Path, number: int, ordinal: int, offset: int) -> None:
    patched(path, number, ordinal, 0, struct.pack(">q", offset))


DAMAGES: dict[str, Damage] = {
    "none": lambda _: None,
    "flip in the first batch": lambda path: patched(path, 0, 0, 70, b"\xff"),
    "flip within": lambda path: patched(path, 1, 17, 90, b"\xff\xff"),
    "flip in the last batch": lambda path: patched(path, 2, 39, 61, b"\xff"),
    "torn tail": lambda path: cut(path, 2, 20_000),
    "torn in the middle": lambda path: cut(path, 0, 9_999),
    "torn in a header": lambda path: cut(path, 2, frames(log(path, 2).read_bytes())[9][0] + 11),
    "empty at the end": lambda path: cut(path, 2, 0),
    "zeros at the end": lambda path: appended(path, bytes(5000)),
    "length too large": lambda path: patched(path, 1, 3, 8, struct.pack(">i", 1 << 20)),
    "length too small": lambda path: patched(path, 1, 3, 8, struct.pack(">i", 7)),
    "length negative": lambda path: patched(path, 2, 20, 8, struct.pack(">i", -1)),
    "magic unknown": lambda path: patched(path, 1, 5, 16, b"\x07"),
    "magic old": lambda path: patched(path, 1, 5, 16, b"\x01"),
    "epoch": lambda path: patched(path, 1, 5, 12, struct.pack(">i", 77)),
    "offset too high": lambda path: base_offset(path, 0, 30, 170),
    "offset too low": lambda path: base_offset(path, 2, 30, 405),
    "offset back below the index": lambda path: base_offset(path, 2, 32, 401),
    "offset back in a middle segment": lambda path: base_offset(path, 1, 35, 202),
    "offset below the base": lambda path: base_offset(path, 1, 9, 3),
    "offset overflows": lambda path: base_offset(path, 1, 20, 200 + (1 << 33)),
    "offset negative": lambda path: base_offset(path, 1, 9, -5),
    "last offset overflows": lambda path: appended(path, batch(1 << 33, [record()])),
    "index lost": lambda path: (path / f"{200:020}.index").unlink(),
    "index of the end lost": lambda path: (path / f"{400:020}.index").unlink(),
    "index of strange bytes": lambda path: (path / f"{200:020}.index").write_bytes(
        bytes(range(80))
    ),
    "segment lost": lambda path: log(path, 1).unlink(),
    "swap": swapped,
    "swap not ready": lambda path: (path / f"{0:020}.log.cleaned").write_bytes(b"x"),
    "log start within": lambda path: log_start(path, 333),
    "log start behind the end": lambda path: log_start(path, 700),
    "snapshot of no number": lambda path: (path / "x.snapshot").touch(),
    "epochs of a stranger": lambda path: (path / "leader-epoch-checkpoint").write_text("x"),
    "no topic id": lambda path: (path / "partition.metadata").write_text("version: 1\n"),
    "old message": lambda path: appended(path, message(600, b"k", b"v")),
}


def damaged(directory: Path, names: list[str], point: int | None) -> Path:
    path = killed(directory)
    for name in names:
        DAMAGES[name](path)
    if point is not None:
        recovery_point(path, point)
    return path


CASES = [
    (name, point, step) for name in DAMAGES for point in (None, 200, 405) for step in (1, 1 << 15)
]


@pytest.mark.sampled(12, each_value=True)
@pytest.mark.parametrize(("damage", "point", "step"), CASES, ids=str)
@pytest.mark.parametrize("bulk", [False, True])
def test_readers_get_the_same_of_both_views(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
    point: int | None,
    step: int,
    *,
    bulk: bool,
) -> None:
    """Whatever a start cuts off, deletes, splits, completes or refuses."""
    monkeypatch.setattr(segment_recovery, "_STEP_MIN", step)
    path = damaged(tmp_path, [damage], point)
    for selection in sampled(selections(LAST), 2):
        for batches in (False, True):
            assert_same_rows(path, selection, bulk=bulk, batches=batches)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("number", range(64))
def test_readers_get_the_same_after_two_kinds_of_damage(tmp_path: Path, number: int) -> None:
    """And after a flip anywhere."""
    drawn = drawn_for(f"damage {number}")
    names = drawn.sample([name for name in DAMAGES if "lost" not in name], 2)
    path = damaged(tmp_path, names, drawn.choice([None, 200, 405]))
    for place in sorted(path.glob("*.log")):
        content = bytearray(place.read_bytes())
        if content and drawn.random() < 0.3:
            content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
            place.write_bytes(content)
    assert_same_rows(path, Selection(), bulk=number % 2 == 0, batches=False)


@pytest.mark.sampled(10)
def test_readers_get_the_same_of_the_corpus(any_state: State) -> None:
    """Of what brokers left behind, most of it not closed."""
    for path in sampled(any_state.partitions(), 3):
        for bulk in (False, True):
            assert_same_rows(path, Selection(), bulk=bulk, batches=False)
        assert_same_answers(path, [lookup_offset], [0, 1, 7, 100, 1000])


def test_of_a_segment_that_is_thrown_away_it_is_said_that_rows_were_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets go back where an index entry is due: nobody can know before the scan is there."""
    monkeypatch.setattr(segment_recovery, "_STEP_MIN", 1)
    path = damaged(tmp_path, ["offset too low"], None)
    lazy = show(open_partition(str(path)), lazily=True)
    found = rows_of(values(lazy, Selection(), bulk=False, batches=False))
    kept = values(show(open_partition(str(path))), Selection(), bulk=False, batches=False)
    assert len(kept) == 400 < len(found)
    assert found[:400] == rows_of(kept)
    assert lazy.difference_so_far is not None
    assert lazy.difference_so_far.logs_in_doubt == (log(path, 2).name,)
    assert (
        f"records of {log(path, 2).name} may have been shown before"
        in lazy.difference_so_far.detail
    )


def answers(path: Path, questions: list[Any], *, lazily: bool) -> list[Any]:
    """Return what lookups answer, without the steps that led there, and what they tell."""
    partition = open_partition(str(path))
    if not lazily:
        partition = show(partition).partition
    view = LogView.RECOVERED if lazily else LogView.AS_IS
    found: list[Any] = []
    try:
        found += [
            (replace(one.lookup, steps=(), read_bytes=0), one.reset_to)
            for one in look_up([partition], questions, view=view)
        ]
    except DataError as error:
        found.append(error.reference)
    return found


def assert_same_answers(path: Path, asks: list[Any], targets: list[int]) -> None:
    for ask in asks:
        for target in targets:
            [name] = {lookup_offset: "offset", lookup_timestamp: "timestamp"}[ask].split()
            questions = [partial(ask, **{name: target})]
            wanted = answers(path, questions, lazily=False)
            assert answers(path, questions, lazily=True) == wanted, (name, target)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("damage", "point", "step"), CASES, ids=str)
def test_lookups_answer_the_same_of_both_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, point: int | None, step: int
) -> None:
    """However much was scanned for the answer before."""
    if damage.startswith("offset back") or damage == "offset too low":
        return  # nothing of a segment stays, which an answer does not wait for
    monkeypatch.setattr(segment_recovery, "_STEP_MIN", step)
    path = damaged(tmp_path, [damage], point)
    assert_same_answers(path, [lookup_offset], [0, 1, 199, 200, 233, 399, 404, 599, 600])
    times = [1_700_000_000_000 + 10 * one for one in (-5, 0, 201, 333, 599, 700)]
    assert_same_answers(path, [lookup_timestamp], times)


def test_questions_about_the_end_are_asked_of_the_whole_log(tmp_path: Path) -> None:
    """Nothing less than that knows where it ends."""
    path = damaged(tmp_path, ["flip within"], None)
    for special in (Special.EARLIEST, Special.LATEST, Special.MAX_TIMESTAMP):
        questions = [partial(lookup_special, special=special)]
        found: list[Any] = answers(path, questions, lazily=True)
        assert found == answers(path, questions, lazily=False)
        assert isinstance(found[0][0], Lookup)
        if special == Special.LATEST:
            assert found[0][0].offset == 285
