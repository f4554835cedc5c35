"""Copies of partitions, compared; plain code over their records gives the expectation."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalog as library
from kafkalog.check.comparison import walk
from kafkalog.check.comparison.model import Comparison, Verdict
from kafkalog.check.comparison.run import Comparer, pairs_of
from kafkalog.errors import Listener, UsageError
from kafkalog.io.jit import fast_path
from kafkalog.log.defects import Events
from kafkalog.node.targets import open_targets
from tests.builders import BASE_TIME, batch, flip, record
from tests.conftest import state
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence


Row = tuple[int, bytes, bytes | None]  # time, key, value
LOG_DIR = Path("examples/log-dir")


@dataclass(frozen=True)
class Made:
    """A batch that a test has built: its bytes, and what plain code knows about it."""

    base: int
    last: int
    epoch: int
    rows: dict[int, Row]
    data: bytes = field(repr=False)


def made(
    base: int, epoch: int, rows: dict[int, Row], last: int | None = None, late: int = 0
) -> Made:
    last = max(rows) if last is None else last
    records = [
        record(offset - base, key, value, time_delta=time) for offset, (time, key, value)
        in sorted(rows.items())
    ]  # fmt: skip
    times = [BASE_TIME + time for time, _, _ in rows.values()]
    data = batch(base, records, last_delta=last - base, epoch=epoch,
                 max_time=max(times) + late)  # fmt: skip
    return Made(base, last, epoch, rows, data)


def a_log(chance: random.Random, base: int, epoch: int, count: int) -> list[Made]:
    """Draw batches with some keys, tombstones, and sometimes a later epoch."""
    log = []
    for _ in range(count):
        rows = {
            base + i: (chance.randrange(1000), b"k%d" % chance.randrange(12),
                       None if chance.random() < 0.2 else b"value %d" % chance.randrange(10**9))
            for i in range(chance.randint(1, 5))
        }  # fmt: skip
        log.append(made(base, epoch, rows))
        base = log[-1].last + 1
        epoch += chance.random() < 0.15
    return log


def write(place: Path, log: Sequence[Made], chance: random.Random) -> None:
    """Write segments cut anywhere, and the checkpoint of the leader epochs."""
    place.mkdir(parents=True)
    cuts = {0, *(i for i in range(len(log)) if chance.random() < 0.15)}
    data = b""
    for i in reversed(range(len(log))):
        data = log[i].data + data
        if i in cuts:
            (place / f"{log[i].base:020d}.log").write_bytes(data)
            data = b""
    epochs = {}
    for one in log:
        epochs.setdefault(one.epoch, one.base)
    lines = [f"{epoch} {start}" for epoch, start in sorted(epochs.items())]
    (place / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def rows_of(log: Sequence[Made]) -> dict[int, Row]:
    return {offset: row for one in log for offset, row in one.rows.items()}


def compacted(log: Sequence[Made], dirty: int) -> list[Made]:
    """Keep only the last record of each key below an offset."""
    last = {key: offset for offset, (_, key, _) in sorted(rows_of(log).items())}
    found = []
    for one in log:
        rows = {o: row for o, row in one.rows.items() if one.base >= dirty or last[row[1]] == o}
        if rows:
            found.append(one if rows == one.rows else made(one.base, one.epoch, rows, one.last))
    return found


def is_explained(left: dict[int, Row], right: dict[int, Row], ends: tuple[int, int]) -> bool:
    """Check that what one log lacks below both ends is superseded in it, or a tombstone."""
    for mine, theirs in ((left, right), (right, left)):
        for offset, (_, key, value) in mine.items():
            if offset in theirs or offset >= min(ends):
                continue
            is_superseded = any(o > offset and row[1] == key for o, row in theirs.items())
            is_tombstone = value is None
            later = [o for o, row in mine.items() if o > offset and row[1] == key]
            if not (is_superseded or is_tombstone or any(o < min(ends) for o in later)):
                return False
    return True


def lost_once(log: Sequence[Made]) -> bool:
    """Check for one gap between whole batches: a cleaner leaves more traces."""
    gaps = sum(b.base > a.last + 1 for a, b in pairwise(log))
    return gaps == 1 and all(len(one.rows) == one.last - one.base + 1 for one in log)


def epoch_ends(log: Sequence[Made]) -> dict[int, int]:
    """Return the offset after the last record of each epoch, batch by batch."""
    return {one.epoch: one.last + 1 for one in log}


def truncation(leader: Sequence[Made], follower: Sequence[Made]) -> int:
    """Apply KIP-279 step by step to the batches themselves: ask, cut, ask again."""
    log = list(follower)
    while log:
        asked = log[-1].epoch
        known = [one for one in leader if one.epoch <= asked]
        if not known:
            return min(leader[0].base, log[-1].last + 1)
        answer, end = known[-1].epoch, known[-1].last + 1
        mine = [one for one in log if one.epoch <= answer]
        own_end = mine[-1].last + 1 if mine else log[0].base
        if mine and mine[-1].epoch != answer:
            log = mine
            continue
        return min(own_end, end)
    return 0


KINDS = ("same", "behind", "diverged", "flipped", "compacted", "lost", "changed")


def mutated(kind: str, log: list[Made], chance: random.Random) -> list[Made]:
    at = chance.randrange(1, len(log))
    if kind == "behind":
        return log[:at]
    if kind == "diverged":
        epoch = log[at - 1].epoch + chance.randint(0, 2)
        return log[:at] + a_log(chance, log[at].base, epoch, chance.randint(1, 8))
    if kind == "flipped":
        rows = {o: row for o, row in log[at].rows.items() if row[2] is not None}
        if not rows:
            return log
        offset, (time, key, value) = chance.choice(sorted(rows.items()))
        assert value is not None
        place = log[at].data.index(value)
        data = flip(log[at].data, 8 * place)
        wrong = bytes([value[0] ^ 1]) + value[1:]
        hurt = {**log[at].rows, offset: (time, key, wrong)}
        return [*log[:at], replace(log[at], data=data, rows=hurt), *log[at + 1 :]]
    if kind == "compacted":
        return compacted(log, log[at].base)
    if kind == "lost":
        rows = dict(log[at].rows)
        rows.pop(chance.choice(sorted(rows)))
        kept = [made(log[at].base, log[at].epoch, rows, log[at].last)] if rows else []
        return [*log[:at], *kept, *log[at + 1 :]]
    if kind == "changed":
        other = made(log[at].base, log[at].epoch, log[at].rows, late=1)
        return [*log[:at], other, *log[at + 1 :]]
    return list(log)


def test_copies_relate_as_their_records_do(tmp_path: Path) -> None:
    """Logs are cut, refilled under other leaders, flipped and compacted, or lose batches."""
    for seed in sampled(range(1400), 20):
        print(f"seed {seed}")
        judge(tmp_path / str(seed), seed)


def judge(tmp_path: Path, seed: int) -> None:
    """Make a pair of logs, compare them, and compare the result with plain code."""
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    left = a_log(chance, chance.randrange(3), 0, chance.randint(3, 30))
    right = mutated(kind, left, chance)
    if chance.random() < 0.5:
        left, right = right, left
    write(tmp_path / "a" / "t-0", left, chance)
    write(tmp_path / "b" / "t-0", right, chance)
    [found] = library.diff(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", on_event=Listener().hear)

    start = max(left[0].base, right[0].base)
    mine = [one for one in left if one.last >= start]
    theirs = [one for one in right if one.last >= start]
    same = 0
    while same < min(len(mine), len(theirs)) and mine[same].data == theirs[same].data:
        same += 1
    up_to = mine[same - 1].last + 1 if same else start
    assert found.identical_up_to == up_to
    one, other = (
        {o: row for o, row in rows_of(log).items() if o >= up_to} for log in (left, right)
    )
    assert found.left_only_records == len(one.keys() - other.keys())
    assert found.right_only_records == len(other.keys() - one.keys())
    assert found.differing == sum(one[o] != other[o] for o in one.keys() & other.keys())
    ends = left[-1].last + 1, right[-1].last + 1
    assert found.verdict == expected(mine[same:], theirs[same:], left, right, found, ends)
    assert found.left is not None
    assert found.right is not None
    epochs = [max(one.epoch for one in log) for log in (left, right)]
    is_left = (epochs[0], ends[0]) >= (epochs[1], ends[1])
    leader, follower = (left, right) if is_left else (right, left)
    cut = truncation(leader, follower)
    common = epoch_ends(left).keys() & epoch_ends(right).keys()
    assert found.truncation is not None
    assert found.truncation.leader == ("left" if is_left else "right")
    assert found.truncation.last_common_leader_epoch == max(common, default=None)
    assert found.truncation.offset == (cut if cut < follower[-1].last + 1 else None)


def expected(
    mine: Sequence[Made], theirs: Sequence[Made], left: Sequence[Made], right: Sequence[Made],
    found: Comparison, ends: tuple[int, int],
) -> Verdict:  # fmt: skip
    if not mine and not theirs:
        return Verdict.IDENTICAL
    if not mine or not theirs:
        return Verdict.BEHIND
    heads = {one.base: one for one in theirs}
    pairs = [(one, heads[one.base]) for one in mine if one.base in heads]
    fits = all(
        (a.last, a.epoch) == (b.last, b.epoch) and (len(a.rows) != len(b.rows) or a.data == b.data)
        for a, b in pairs
    )
    if found.differing or not fits or not is_explained(rows_of(left), rows_of(right), ends):
        return Verdict.DIFFERENT
    if lost_once(left) or lost_once(right):
        return Verdict.DIFFERENT
    return Verdict.COMPACTED


def test_the_first_difference_is_named_field_by_field(tmp_path: Path) -> None:
    """Headers of the batch come first, then the first record that differs, with its places."""
    chance = random.Random(1)
    one = made(0, 3, {0: (0, b"a", b"1"), 1: (5, b"b", b"2")})
    two = made(2, 3, {2: (1, b"c", b"3"), 3: (2, b"d", None)})
    other = made(2, 4, {2: (1, b"c", b"3"), 3: (2, b"d", b"null")})
    write(tmp_path / "a" / "t-0", [one, two], chance)
    write(tmp_path / "b" / "t-0", [one, other], chance)
    [found] = library.diff(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    assert found.first is not None
    fields = {(item.level, item.name): (item.left, item.right) for item in found.first.fields}
    assert fields.pop(("batch", "crc"))
    assert fields == {
        ("batch", "leader_epoch"): (3, 4),
        ("batch", "size_bytes"): (len(two.data), len(other.data)),
        ("record", "value"): (None, b"null"),
    }
    assert (found.first.offset, found.identical_up_to) == (2, 2)
    assert found.first.left_position in (0, len(one.data))


@pytest.mark.parametrize("by_kernels", [True, False])
def test_a_displaced_batch_is_the_first_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_kernels: bool
) -> None:
    """Also below the start of both logs, and where batches are read one by one."""
    monkeypatch.setattr(walk, "kernels_work", lambda: by_kernels and fast_path.kernels_work())
    chance = random.Random(4)
    log = [made(i, 0, {i: (i, b"k", b"%d" % i)}) for i in range(4)]
    displaced = replace(log[2], data=(-7).to_bytes(8, signed=True) + log[2].data[8:])
    write(tmp_path / "a" / "t-0", log, chance)
    write(tmp_path / "b" / "t-0", [*log[:2], displaced, log[3]], chance)
    comparer = Comparer(listener=Listener())
    [pair] = pairs_of([open_targets([tmp_path / name / "t-0"]) for name in "ab"])
    first = comparer.compare(pair).first
    assert first is not None
    assert first.right_path is not None
    assert (first.offset, first.right_position) == (-7, sum(len(one.data) for one in log[:2]))


def test_records_that_one_side_has_are_named_with_the_high_watermark(tmp_path: Path) -> None:
    chance = random.Random(2)
    log = [made(i, 0, {i: (i, b"k", b"%d" % i)}) for i in range(4)]
    write(tmp_path / "a" / "t-0", log, chance)
    write(tmp_path / "b" / "t-0", log[:2], chance)
    (tmp_path / "a" / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    comparer = Comparer()
    [pair] = pairs_of([open_targets([tmp_path / name / "t-0"]) for name in "ab"])
    found = comparer.compare(pair)
    rows = list(comparer.records(pair, found))
    assert [(row.offset, row.right, row.is_above_high_watermark) for row in rows] == [
        (2, None, False), (3, None, True),
    ]  # fmt: skip
    assert rows[0].left is not None
    assert (rows[0].left["key"], rows[0].left["value"]) == (b"k", b"2")


def test_a_compaction_of_a_broker_is_none_of_its_differences(corpus_dir: Path) -> None:
    """Logs before and after passes of Kafka's own cleaner, and after its recovery."""
    for before, after in (
        ("compact-0-before", "compact-1-first-pass"),
        ("compact-1-first-pass", "compact-2-later-passes"),
        ("interrupted-1-swap", "interrupted-2-swap-recovered"),
    ):
        roots = [state(corpus_dir, "kafka-4.3", name).root for name in (before, after)]
        verdicts = {
            f"{one.topic}-{one.partition}": one.verdict
            for one in library.diff(*roots)
            if not one.topic.startswith("__")
        }
        allowed = {Verdict.IDENTICAL, Verdict.COMPACTED}
        if after == "compact-2-later-passes":
            assert verdicts.pop("compact-delete-0") == Verdict.BEHIND
        assert {*verdicts.values()} <= allowed, (before, verdicts)
    torn, whole = (state(corpus_dir, "kafka-4.3", name).root
                   for name in ("crash-1-torn", "crash-2-recovered"))  # fmt: skip
    found = {f"{one.topic}-{one.partition}": one.verdict for one in library.diff(torn, whole)
             if not one.topic.startswith("__")}  # fmt: skip
    assert {*found.values()} == {Verdict.IDENTICAL}


@pytest.mark.parametrize("lost", [(500,), (250, 500)])
def test_lost_segments_are_no_compaction(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Every key has a later record; but the metadata log says that no cleaner comes here."""
    copy = shutil.copytree(LOG_DIR, tmp_path / "copy")
    for base in lost:
        (copy / "orders-0" / f"{base:020}.log").unlink()
    [found] = library.diff(LOG_DIR, copy, topics=["orders"])
    assert (found.verdict, found.left_only_records) == (Verdict.DIFFERENT, 250 * len(lost))


def test_sides_are_matched_by_partition(tmp_path: Path) -> None:
    """One side lacks a partition or has a new topic; two single partitions always match."""
    chance = random.Random(3)
    log = [made(0, 0, {0: (0, b"k", b"v")})]
    for name in ("a/x-0", "a/y-0", "b/x-0", "b/z-0", "copy"):
        write(tmp_path / name, log, chance)
    for name in "ab":
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\n")
        (tmp_path / name / "x-0" / "partition.metadata").write_text(
            f"version: 0\ntopic_id: NkTRaEcKTPyRrQqHI1qwh{'AQ'[name == 'b']}"
        )
    found = {one.topic: one.verdict for one in library.diff(tmp_path / "a", tmp_path / "b")}
    assert found == {
        "x": Verdict.OTHER_TOPIC, "y": Verdict.MISSING, "z": Verdict.MISSING,
    }  # fmt: skip
    [one] = library.diff(tmp_path / "a" / "y-0", tmp_path / "copy")
    assert one.verdict == Verdict.IDENTICAL
    with pytest.raises(UsageError, match="at least two"):
        list(library.diff(tmp_path / "a"))
    with pytest.raises(UsageError, match="Files are not compared"):
        list(library.diff(tmp_path / "a", next((tmp_path / "copy").glob("*.log"))))


def test_damage_in_one_copy_is_reported_and_the_rest_compared(tmp_path: Path) -> None:
    """Bytes that are no batch, a torn end, zeros of a preallocated segment: the run continues."""
    chance = random.Random(4)
    log = [made(i, 0, {i: (i, b"k%d" % i, b"%d" % i)}) for i in range(6)]
    whole = b"".join(one.data for one in log)
    write(tmp_path / "a" / "t-0", log, chance)
    copies = {
        "hole": (whole[: len(log[0].data)] + b"\xff" * 50 + whole[len(log[0].data) :], 1),
        "torn": (whole + log[0].data[:40], 6),
        "zeros": (whole + bytes(4096), 6),
        "short": (whole[:-10], 5),
        "empty": (b"", 0),
    }
    for name, (data, up_to) in copies.items():
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020d}.log").write_bytes(data)
        heard = Events()
        [found] = library.diff(tmp_path / "a" / "t-0", tmp_path / name / "t-0", on_event=heard.hear)
        if name in ("torn", "zeros"):
            assert found.verdict == Verdict.IDENTICAL
        elif name == "hole":
            assert (found.verdict, found.left_only_records) == (Verdict.DIFFERENT, 0)
            assert heard.defects
        else:
            assert (found.verdict, found.left_only_records) == (Verdict.BEHIND, 6 - up_to)
        assert found.identical_up_to == (up_to or None)


@pytest.mark.parametrize("size_min", [0, 1 << 60], ids=["kernels", "one by one"])
def test_defects_of_the_left_copy_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_min: int
) -> None:
    """Wherever they are: how far one log is read before the other is up to the decoder."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    chance = random.Random(4)
    log = [made(i, 0, {i: (i, b"k", b"%d" % i)}) for i in range(6)]
    for name, place in (("a", 4), ("b", 1)):
        damaged = [*log]
        damaged[place] = replace(log[place], data=(99).to_bytes(8) + log[place].data[8:])
        write(tmp_path / name / "t-0", damaged, chance)
    heard = Events()
    list(library.diff(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", on_event=heard.hear))
    assert [one.path[len(str(tmp_path)) + 1 :][:1] for one in heard.defects] == ["a", "b"]


@pytest.mark.parametrize("size_min", [0, 1 << 60], ids=["kernels", "one by one"])
@pytest.mark.parametrize(
    ("offset", "value", "found"),
    [(33, b"50", 0), (1 << 40, b"50", 1), (1 << 40, b"51", 1)],
    ids=["low", "high", "high with a wrong checksum"],
)
def test_a_misplaced_batch_is_all_that_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size_min: int,
    offset: int,
    value: bytes,
    found: int,
) -> None:
    """Between gaps nobody knows where it belongs; the records after it are compared, too.

    Offsets below the first difference are not.
    """
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    chance = random.Random(4)
    log = [made(base, 0, {base: (base, b"k", b"%d" % base)}) for base in range(0, 120, 10)]
    misplaced = [*log]
    misplaced[5] = replace(log[5], data=offset.to_bytes(8) + log[5].data[8:].replace(b"50", value))
    changed = [*misplaced]
    changed[2] = made(20, 0, {20: (20, b"k", b"other")})
    for name, copy in (("sound", log), ("misplaced", misplaced), ("changed", changed)):
        write(tmp_path / name / "t-0", copy, chance)

    def counts(left: str, right: str) -> tuple[int, int, int]:
        sides = (tmp_path / name / "t-0" for name in (left, right))
        [one] = library.diff(*sides, view="as-is", on_event=Events().hear)
        return one.left_only_records, one.right_only_records, one.differing

    assert counts("sound", "misplaced") == (1, found, 0)
    assert counts("changed", "sound") == (1, 1, 1)
    assert counts("changed", "misplaced") == (0, 0, 1)
