"""Indexes in Kafka's text, by columns and by the reference: the same text, reports, status."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.io.jit import fast_path
from kafkalog.log.batches import index_matches
from kafkalog.log.columns import chunks, side_files
from kafkalog_cli.main import run
from tests.builders import BASE_TIME, batch, copy_tree, flip, frames, message, record, write_log
from tests.kafkalog.log.columns.test_twins import logs
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import State

Capture = pytest.CaptureFixture[bytes]
GENERATED = settings(max_examples=examples(100))
# Larger than any log here, so that no batch is ordinary.
NEVER = struct.Struct(">qi4xb6xi100000000x")


def output(capture: Capture, *argv: object) -> tuple[int, bytes, bytes]:
    capture.readouterr()
    status = run(["kafka-dump-log", *map(str, argv)])
    return (status, *capture.readouterr())


def assert_same(capture: Capture, *argv: object, small: bool = False) -> tuple[int, bytes, bytes]:
    """Compare both ways; `small` blocks and chunks make little data fill several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 1 << 40)
        patch.setattr(index_matches, "_ORDINARY", NEVER)
        wanted = output(capture, *argv)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 0)
        if small:
            patch.setattr(side_files, "_ENTRIES_AT_ONCE", 4)
            patch.setattr(side_files, "_JUMP", 100)
            patch.setattr(side_files, "_OFFSET_ENTRIES_MAX", 5)
            patch.setattr(side_files, "_ROWS", 3)
            patch.setattr(chunks, "CHUNK_SIZE_MIN", 200)
            patch.setattr(chunks, "_BATCHES_MAX", 2)
        assert output(capture, *argv) == wanted
    return wanted


def indexes(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.suffix in (".index", ".timeindex")]


@pytest.mark.sampled(3)
def test_the_corpus_reads_the_same(any_state: State, capfdbinary: Capture):
    """Indexes of every broker: sound, padded, torn."""
    paths = [path for partition in any_state.partitions() for path in indexes(partition)]
    for i, path in enumerate(random.Random(5).sample(paths, min(10, len(paths)))):
        options = ("--max-message-size", "100") if path.suffix == ".index" else ()
        assert_same(capfdbinary, *options, "--files", path, small=i % 2 == 0)


def swapped(data: bytes, size: int, rng: random.Random) -> bytes:
    """Exchange two entries."""
    entries = [data[at : at + size] for at in range(0, len(data), size)]
    one, two = rng.randrange(len(entries)), rng.randrange(len(entries))
    entries[one], entries[two] = entries[two], entries[one]
    return b"".join(entries)


def hurt(data: bytes, size: int, rng: random.Random) -> dict[str, bytes]:
    return {
        "flip": flip(data, rng.randrange(8 * len(data))),
        "flips": flip(flip(data, rng.randrange(8 * len(data))), rng.randrange(8 * len(data))),
        "cut": data[: rng.randrange(len(data))],
        "swap": swapped(data, size, rng),
        "hole": data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    }


@pytest.mark.sampled(18)
def test_the_damaged_corpus_reads_the_same(any_state: State, tmp_path: Path, capfdbinary: Capture):
    """Damages the log, the offset index or the time index, while the other two stay sound."""
    rng = random.Random(any_state.name)
    bases = [
        path.with_suffix("")
        for partition in any_state.partitions()
        for path in sorted(partition.glob("*.timeindex"))
        if 0 < path.stat().st_size < 1200
    ]
    for base in rng.sample(bases, min(2, len(bases))):
        base = copy_tree(base.parent, tmp_path / base.parent.name) / base.name
        files = f"{base}.index,{base}.timeindex"
        for suffix, size in ((".index", 8), (".timeindex", 12), (".log", 61)):
            path = base.with_suffix(suffix)
            data = path.read_bytes() if path.exists() and path.stat().st_size < 1 << 18 else b""
            for kind, changed in hurt(data, size, rng).items() if data else ():
                path.write_bytes(changed)
                assert_same(capfdbinary, "--files", files, small=kind != "flips")
                path.write_bytes(data)


def near(values: list[int], spread: int) -> st.SearchStrategy[int]:
    """Draw one of the values, a number close to one, or any number."""
    some = st.sampled_from(values) if values else st.just(0)
    return st.one_of(
        some, some, some, st.builds(int.__add__, some, st.integers(-spread, spread)),
        st.integers(-(2**31), 2**31 - 1),
    )  # fmt: skip


def write_indexes(draw: Any, path: Path, data: bytes) -> None:
    """Write entries that often match the batches, mostly in order."""
    try:
        places = frames(data)
    except IndexError:
        places = []
    positions = [position for position, _ in places]
    offsets = []
    for position in positions:
        base, delta = struct.unpack_from(">q15xi", data.ljust(position + 61, b"\0"), position)
        offsets += [number for number in (base, base + delta) if abs(number) < 1 << 31]
    entry = st.tuples(near(offsets, 2), near(positions, 3))
    wild = draw(st.booleans())

    def some(values: st.SearchStrategy[Any]) -> list[Any]:
        found = draw(st.lists(values, max_size=12))
        return found if wild else sorted(found)

    path.with_suffix(".index").unlink(missing_ok=True)
    if draw(st.integers(0, 4)):
        packed = [struct.pack(">ii", *clamped(pair)) for pair in some(entry)]
        path.with_suffix(".index").write_bytes(b"".join(packed))
    times = [
        struct.pack(">qi", BASE_TIME + time, clamped((offset,))[0])
        for offset, time in some(st.tuples(near(offsets, 2), st.integers(-1, 12)))
    ]
    path.with_suffix(".timeindex").write_bytes(b"".join(times))


def clamped(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(-(2**31), min(2**31 - 1, number)) for number in numbers)


@st.composite
def rising_logs(draw: st.DrawFn) -> bytes:
    """Draw mostly sound batches with rising offsets and every codec, and magic 1 in between."""
    offset, found = 0, []
    for _ in range(draw(st.integers(0, 12))):
        count = draw(st.integers(1, 3))
        times = draw(st.lists(st.integers(-3, 9), min_size=count, max_size=count))
        records = [record(i, None, time_delta=time) for i, time in enumerate(times)]
        if draw(st.integers(0, 9)) == 0:
            found.append(message(offset, magic=draw(st.integers(0, 1))))
            count = 1
        else:
            found.append(
                batch(
                    offset,
                    records,
                    attributes=draw(st.sampled_from((0, 0, 0, 8))),
                    max_time=BASE_TIME + max(times),
                    last_delta=count - 1 + draw(st.sampled_from((0, 0, 2))),
                    magic=draw(st.sampled_from((2,) * 9 + (3,))),
                    count=draw(st.sampled_from((count,) * 9 + (0, count + 1))),
                )
            )
        offset += count + draw(st.sampled_from((0, 0, 1, 5)))
    if found and draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(found) - 1))
        found[at] = flip(found[at], draw(st.integers(0, 8 * len(found[at]) - 1)))
    return b"".join(found)


@GENERATED
@given(data=st.one_of(rising_logs(), rising_logs(), logs()), more=st.data(), small=st.booleans())
def test_generated_logs_and_indexes_read_the_same(
    tmp_path: Path, capfdbinary: Capture, data: bytes, more: st.DataObject, small: bool
):
    """Log and indexes may contradict each other in any way."""
    path = write_log(tmp_path, data)
    write_indexes(more.draw, path, data)
    for suffix in (".index", ".timeindex"):
        assert_same(capfdbinary, "--files", path.with_suffix(suffix), small=small)


# Offset index, offsets of time index entries, which batch is damaged, and what is reported. Batch
# i of the log has offset i, time i and lies at position i, in units of a batch.
LEAD_ASTRAY = {
    "an entry that begins behind its batch": (
        [(1, 3)], [0, 1, 5], None, [(1, 3)],
    ),
    "an entry that begins before damage, between others behind it": (
        [(2, 5), (7, 0)], [1, 5, 6, 8], 3, [(8, -1)],
    ),
    "an entry that begins in the middle of a batch": (
        [(1, 1.5), (3, 3)], [0, 2, 4], None, [(2, -1)],
    ),
    "an entry that begins behind the log": (
        [(2, 10), (5, 99)], [1, 2, 5], None, [(2, -1), (5, -1)],
    ),
    "no index, and damage": ([], [0, 2, 3, 7], 3, [(3, -1), (7, -1)]),
    "an entry beyond the log, before others": ([(0, 0)], [50, 0, 9], None, [(50, -1)]),
    "an offset in a gap": ([(0, 0)], [4, 104, 8], None, [(104, -1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAD_ASTRAY)
def test_an_index_that_leads_astray_is_followed_as_kafka_does(
    tmp_path: Path, capfdbinary: Capture, name: str
):
    """The search begins where the offset index points, and ends at damage."""
    places, targets, damaged, reported = LEAD_ASTRAY[name]
    log = [batch(i, [record()], base_time=i, max_time=i) for i in range(10)]
    size = len(log[0])
    if damaged is not None:
        log[damaged] = log[damaged][:8] + bytes(4) + log[damaged][12:]
    path = write_log(tmp_path, *log)
    path.with_suffix(".index").write_bytes(
        b"".join(struct.pack(">ii", offset, int(place * size)) for offset, place in places)
    )
    times = path.with_suffix(".timeindex")
    times.write_bytes(b"".join(struct.pack(">qi", target, target) for target in targets))
    for small in (True, False):
        _, _, stderr = assert_same(capfdbinary, "--files", times, small=small)
        lines = [line for line in stderr.decode().splitlines() if line.startswith("Indexed")]
        assert lines == [
            f"Indexed offset: {entry}, found log offset: {found}" for entry, found in reported
        ]


def test_the_largest_time_is_sought_in_the_whole_batch(tmp_path: Path, capfdbinary: Capture):
    """A batch has more records than a table has rows, the latest anywhere; -1 if it is empty."""
    log, expected = b"", []
    for i in range(8):
        records = [record(n, None, time_delta=9 - (n - i) ** 2) for n in range(8)]
        log += batch(8 * i, records, base_time=1000 * i, count=8)
        expected.append((1000 * i + 9, 8 * i + 7))
    path = write_log(tmp_path, log, batch(64, [], count=0, last_delta=3))
    times = path.with_suffix(".timeindex")
    times.write_bytes(b"".join(struct.pack(">qi", *pair) for pair in expected))
    for small in (True, False):
        assert assert_same(capfdbinary, "--files", times, small=small)[2] == b""
    edited(times, lambda data: data + struct.pack(">qi", 9000, 67))
    for small in (True, False):
        lines = assert_same(capfdbinary, "--files", times, small=small)[2].decode().splitlines()
        assert lines[1:] == ["  Index timestamp: 9000, log timestamp: -1"]


def edited(path: Path, edit: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit(path.read_bytes()))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A log of several megabytes whose indexes have an entry for each batch, by Kafka's rules."""
    batches, offsets, times, position = [], b"", b"", 0
    for i in range(2500):
        deltas = [(i * 7 + n * n) % 11 for n in range(8)]
        time = BASE_TIME + 20 * i
        records = [record(n, None, bytes(100), time_delta=delta) for n, delta in enumerate(deltas)]
        data = batch(8 * i, records, base_time=time, max_time=time + max(deltas))
        offsets += struct.pack(">ii", 8 * i + 7, position)
        times += struct.pack(">qi", time + max(deltas), 8 * i + 7)
        batches.append(data)
        position += len(data)
    path = write_log(tmp_path / "t-0", *batches)
    path.with_suffix(".index").write_bytes(offsets)
    path.with_suffix(".timeindex").write_bytes(times)
    return path


def test_sound_indexes_of_a_large_log_give_no_report(large: Path, capfdbinary: Capture):
    """Each line is as Kafka writes it, and stderr is empty."""
    index, times = large.with_suffix(".index"), large.with_suffix(".timeindex")
    pairs = list(struct.iter_unpack(">ii", index.read_bytes()))
    lines = [f"offset: {offset} position: {position}" for offset, position in pairs]
    assert output(capfdbinary, "--files", index) == (
        0, "\n".join([f"Dumping {index}", *lines, ""]).encode(), b"",
    )  # fmt: skip
    pairs = list(struct.iter_unpack(">qi", times.read_bytes()))
    lines = [f"timestamp: {timestamp} offset: {offset}" for timestamp, offset in pairs]
    assert output(capfdbinary, "--files", times) == (
        0, "\n".join([f"Dumping {times}", *lines, ""]).encode(), b"",
    )  # fmt: skip


def test_one_wrong_entry_spoils_no_other(large: Path, capfdbinary: Capture):
    """Each wrong offset or time is reported once, in the order of the index."""
    times = large.with_suffix(".timeindex")
    edited(times, lambda data: (
        data[:12 * 5] + struct.pack(">qi", 1, 2**31 - 1)
        + data[12 * 6:12 * 900] + struct.pack(">qi", BASE_TIME, 3) + data[12 * 901:]
    ))  # fmt: skip
    status, _, stderr = output(capfdbinary, "--verify-index-only", "--files", times)
    assert status == 8
    assert stderr.decode().splitlines() == [
        f"The following indexed offsets are not found in :{times}",
        f"Indexed offset: {2**31 - 1}, found log offset: -1",
        "Indexed offset: 3, found log offset: 7",
    ]
    edited(times, lambda data: data[: 12 * 7] + struct.pack(">q", 5) + data[12 * 7 + 8 :])
    lines = output(capfdbinary, "--files", times)[2].decode().splitlines()
    assert lines[1] == f"  Index timestamp: 5, log timestamp: {BASE_TIME + 20 * 7 + 10}"
    for suffix, size in ((".index", 8), (".log", 61)):
        rng = random.Random(suffix)
        for changed in hurt(large.with_suffix(suffix).read_bytes(), size, rng).values():
            large.with_suffix(suffix).write_bytes(changed)
            edited(times, lambda data: data[: 12 * 60] + data[-12 * 60 :])
            assert_same(capfdbinary, "--files", times)
