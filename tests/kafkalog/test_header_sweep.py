"""Each bit of a header that no checksum covers, flipped under every reader.

Base offset, length, leader epoch, magic and the checksum itself are not in the checksum. Whichever
bit of them is wrong: the records are those of the sound log, or a finding names the batch.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from formats.constants import NO_EPOCH
from kafkalog.answers.search.run import Search
from kafkalog.change.rescue import CopiedRange, LostRange, salvage
from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError, Listener
from kafkalog.files.log_dir import open_partition
from kafkalog.log.batches.selection import Selection, planned_records
from kafkalog.log.columns.pipeline import Restored, read_contents
from kafkalog.log.defects import Events
from kafkalog.model import Defect, Isolation, Level, Record, Replicas, Severity
from kafkalog.node.lookup import lookup_offset
from kafkalog.node.reader import plan_reading
from kafkalog.node.state.latest import LatestLog, LatestRecords
from kafkalog.node.targets import open_targets
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.tables import Bounds, Request, plan_splits, read_split
from kafkalog.tables.reading import count_split
from kafkalog.tables.schemas import table_schema
from kafkalog.wire.producing.lanes import Lanes
from kafkalog.wire.producing.model import Position, ReplayListener
from kafkalog.wire.producing.model import Request as Replay
from kafkalog.wire.producing.routes import routes_of
from kafkalog.wire.server.model import OnDamage, ServeListener, ServeOptions, Watermark
from kafkalog.wire.server.open_files import OpenFiles
from kafkalog.wire.server.served_log import OutOfRangeError, ServedLog
from tests.builders import batch, flip, frames, message, record, write_log
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from kafkalog.errors import Event
    from tests.conftest import Result

BITS: Final = 17 * 8
BITS_OF_OFFSET: Final = 64
SHARE: Final = 2401
"""`make test` tries one case in this many, `make test-all` all of them."""
SEGMENTS: Final = 3
BATCHES: Final = 7  # of a segment
EPOCH: Final = 5
GZIP: Final = 1
COUNTS: Final = (1, 4, 2, 9, 1, 1, 6)


@dataclass(frozen=True)
class Part:
    """A batch: its first and last offset, its segment, its ordinal there, and its bytes."""

    first: int
    last: int
    segment: int
    ordinal: int
    data: bytes


def modern(base: int, count: int, attributes: int = 0) -> bytes:
    producer = (7, 0, base) if attributes else (-1, -1, -1)
    records = [record(n, b"k%d" % (base + n)) for n in range(count)]
    return batch(base, records, attributes=attributes, producer=producer, epoch=EPOCH)


def legacy(magic: int) -> Callable[[int, int], bytes]:
    return lambda base, _: message(base, b"k%d" % base, magic=magic)


def wrapped(magic: int) -> Callable[[int, int], bytes]:
    """Compressed messages: headers have the last offset; those inside of magic 1 count from 0."""

    def made(base: int, count: int) -> bytes:
        first = 0 if magic else base
        inner = b"".join(message(first + n, b"k%d" % (base + n), magic=magic) for n in range(count))
        data = gzip.compress(inner, mtime=0)
        return message(base + count - 1, None, data, magic=magic, attributes=GZIP)

    return made


def log_of(
    made: Callable[[int, int], bytes], gap: int = 0, counts: Sequence[int] = COUNTS
) -> list[Part]:
    """Return the batches of a log, with a gap after each third one."""
    parts, base = [], 0
    for segment in range(SEGMENTS):
        for ordinal in range(BATCHES):
            count = counts[(ordinal + segment) % len(counts)]
            parts.append(Part(base, base + count - 1, segment, ordinal, made(base, count)))
            base += count + (gap if ordinal % 3 == 2 else 0)
    return parts


LOGS: Final = {
    "uncompacted": log_of(modern),
    "transactional": log_of(lambda base, count: modern(base, count, 0x10)),
    "compacted": log_of(modern, gap=11),
    "magic 0": log_of(legacy(0), counts=(1,)),
    "magic 1": log_of(legacy(1), counts=(1,)),
    "magic 0 wrapped": log_of(wrapped(0), gap=11),
    "magic 1 wrapped": log_of(wrapped(1), gap=11),
}


def write(directory: Path, parts: list[Part], changed: Part | None = None, bit: int = 0) -> None:
    """Write the segments with an entry in the offset index for every second batch."""
    directory.mkdir(parents=True)
    epochs = "0\n0\n" if parts[0].data[16] < 2 else f"0\n1\n{EPOCH} 0\n"
    (directory / "leader-epoch-checkpoint").write_text(epochs, encoding="ascii")
    for segment in range(SEGMENTS):
        own = [one for one in parts if one.segment == segment]
        name = f"{own[0].first:020}"
        datas = [flip(one.data, bit) if one is changed else one.data for one in own]
        write_log(directory, *datas, name=name)
        entries = [
            (one.last - own[0].first, sum(len(before.data) for before in own[:n]))
            for n, one in enumerate(own)
            if n and n % 2 == 0
        ]
        index = b"".join(struct.pack(">ii", *entry) for entry in entries)
        (directory / f"{name}.index").write_bytes(index)


Row = tuple[int, int | None]
"""The offset of a record and its leader epoch; None for readers that do not give it."""
Answer = tuple[list[Row], list[Any]]
"""What a reader has, and what it says is wrong."""


def gathered(found: Iterable[Record | Defect]) -> Answer:
    rows: list[Row] = []
    defects: list[Defect] = []
    for one in found:
        if isinstance(one, Defect):
            defects.append(one)
        else:
            rows.append((one.offset, one.batch.leader_epoch))
    return rows, defects


def by_reference(directory: Path, selection: Selection) -> Answer:
    return gathered(planned_records(plan_reading(str(directory), selection)))


def by_columns(directory: Path, selection: Selection) -> Answer:
    def flat() -> Iterable[Record | Defect]:
        plan = plan_reading(str(directory), selection)
        for one in read_contents(plan, Restored(), None, batches=False):
            if isinstance(one, Defect):
                yield one
            else:
                yield from one

    return gathered(flat())


def by_splits(directory: Path, selection: Selection, *copies: Path) -> Answer:
    """Read tables split by split, and check that counting gives the same number."""
    bounds = Bounds(from_offset=selection.from_offset, to_offset=selection.to_offset)
    request = Request(
        bounds=bounds, isolation=Isolation.LOG, split_bytes=300, replicas=Replicas.BEST
    )
    rows: list[Row] = []
    heard = Events()
    count = 0
    for split in plan_splits([str(one) for one in copies or (directory,)], request):
        names = ["offset", "leader_epoch"]
        schema = table_schema(split.table, names)
        for one in read_split(split, schema, heard):
            rows += zip(*(one.column(name).to_pylist() for name in names), strict=True)
        count += sum(count_split(split, Listener()))
    assert count == len(rows)
    return rows, [one for one in heard.defects if one.reference != "read-from-copy"]


def by_search(directory: Path, selection: Selection, *copies: Path) -> Answer:
    targets = open_targets([str(one) for one in copies or (directory,)])
    found = list(Search(targets, selection).found())
    rows = [one.record for one in found if not isinstance(one, Defect)]
    return gathered([*rows, *(one for one in found if isinstance(one, Defect) and is_bad(one))])


def by_replay(directory: Path, selection: Selection, *copies: Path) -> Answer:
    rows: list[Row] = []
    heard: list[Any] = []

    class Hearer(ReplayListener):
        def hear(self, event: Event) -> None:
            heard.extend([event] if not isinstance(event, Defect) or is_bad(event) else [])

    targets = open_targets([str(one) for one in copies or (directory,)])
    request = Replay(selection=selection)
    routes, _ = routes_of(targets, request, Hearer())
    lanes = Lanes(routes, request, Position(0, 0, {}), Hearer(), ignored)
    for lane, piece in lanes.pieces():
        rows += [(offset, None) for offset, *_ in piece.messages]
        lanes.count(lane, piece, 0)
    return rows, heard


def by_fetches(directory: Path, selection: Selection, *copies: Path) -> Answer:
    """Fetch as a client does, each time from the offset after the last one."""
    heard: list[Any] = []

    class Listener(ServeListener):
        def hear(self, event: Event) -> None:
            heard.append(event)

    options = ServeOptions(high_watermark=Watermark.END, on_damage=OnDamage.SKIP)
    lenders = [str(one) for one in copies if one != directory]
    log = ServedLog(open_partition(str(directory)), options, Listener(), OpenFiles(), lenders)
    rows: list[Row] = []
    offset, end = selection.from_offset or 0, selection.to_offset or 1 << 40
    while offset < end:
        try:
            records = log.read(offset, 400, Isolation.READ_UNCOMMITTED).records
        except OutOfRangeError:  # the log ends before it
            break
        if not isinstance(records, bytes):
            records = records.source.read(records.position, len(records))
        if not records:
            break
        for position, size in frames(records):
            if position + size > len(records):
                break  # only a part of it is here
            base, epoch, delta = struct.unpack_from(">q4xi7xi", records, position)
            rows += [(one, epoch) for one in range(base, base + delta + 1) if offset <= one < end]
            offset = base + delta + 1
    return rows, heard


def by_lookups(directory: Path, selection: Selection) -> Answer:
    """Look up each offset after the one that was found before."""
    log = UnifiedLog(open_partition(str(directory)))
    rows: list[Row] = []
    offset, end = selection.from_offset or 0, selection.to_offset or 1 << 40
    with suppress(CorruptDataError):
        while (found := lookup_offset(log, offset)).record and found.record.offset < end:
            epoch = NO_EPOCH if found.leader_epoch is None else found.leader_epoch
            rows.append((found.record.offset, epoch))
            offset = found.record.offset + 1
        return rows, list(log.damage.values())
    return rows, ["refused"]


def by_state(directory: Path, selection: Selection) -> Answer:
    """Take the latest record of each key, and those of open transactions; no key is there twice."""
    defects: list[Any] = []
    log = LatestLog(0, open_partition(str(directory)), None, defects.append, None, LatestRecords)
    offsets = [one.offset for _, one in log.records.latest()]
    offsets += [one.offset for some in log.records.pending.values() for one in some.values()]
    end = selection.to_offset or 1 << 40
    return [(one, None) for one in sorted(offsets) if (selection.from_offset or 0) <= one < end], (
        defects
    )


def by_salvage(directory: Path, selection: Selection, *copies: Path) -> Answer:
    """Read what a salvage has written, which must be sound."""
    made = directory.parent.parent / f"salvaged-{directory.parent.name}-{len(copies)}"
    told: list[Any] = []
    others = [one for one in copies if one != directory]
    shutil.rmtree(made, ignore_errors=True)
    salvage(str(directory), str(made), tell=told.append, copies=[str(one) for one in others])
    rows, defects = by_columns(made / "log" / "orders-0", selection)
    assert not defects
    lost = [one for one in told if isinstance(one, LostRange) and not one.in_copies]
    return rows, lost + [one for one in told if isinstance(one, CopiedRange) and one.corrected]


def ignored(_: object) -> None:
    """Take what is not looked at."""


def is_bad(defect: Defect) -> bool:
    return defect.severity != Severity.NOTE


READERS: Final = (
    by_reference, by_columns, by_splits, by_search, by_replay, by_fetches, by_lookups, by_state,
    by_salvage,
)  # fmt: skip
OF_COPIES: Final = (by_splits, by_search, by_replay, by_fetches, by_salvage)
SLOW: Final = (by_splits, by_lookups, by_salvage)
"""In a run of everything these try one case of five, which hits each bit."""
WITHOUT_EPOCHS: Final = (by_replay, by_state)
NOT_OF_PARTS: Final = (by_state, by_salvage)
"""Readers that always read whole logs."""


def contradicts(parts: list[Part], changed: Part, bit: int) -> bool:
    """Return whether a flipped base offset leaves the gap between the neighbours.

    A batch that only moves within a gap that the cleaner left contradicts nobody. Nor does the last
    one of a log that moves up, as far as the indexes of its segment reach. Nobody needs the offset
    in the header of a compressed message of magic 0: those inside have their own. If it says that a
    compressed message ends in the gap before it, who reads from there on does not look inside.
    """
    if bit >= BITS_OF_OFFSET:
        return True
    (offset,) = struct.unpack_from(">q", flip(changed.data, bit))
    number = parts.index(changed)
    start = parts[number - changed.ordinal].first
    is_last = number + 1 == len(parts)
    after = start + (1 << 31)
    if not is_last:
        following = parts[number + 1]
        after = following.last if is_wrapper(following, 0) else following.first
    low = max(parts[number - 1].last + 1 if number else 0, start)
    length = 1 if is_wrapper(changed, 0) else changed.last - changed.first + 1
    first = offset - length + 1 if is_wrapper(changed, 1) else offset
    hides = is_wrapper(changed) and low <= offset < changed.first
    return not (hides or low <= first <= after - length)


def is_wrapper(part: Part, *magics: int) -> bool:
    return part.data[16] in (magics or (0, 1)) and part.data[17] == GZIP


Case = tuple[str, int, int]


def cases_for(reader: Any) -> Sequence[Case]:
    return sampled(cases()[:: 5 if reader in SLOW else 1], SHARE // (5 if reader in SLOW else 1))


def cases() -> list[Case]:
    return [
        (name, number, bit)
        for name, parts in LOGS.items()
        for number in range(len(parts))
        for bit in range(BITS)
        if contradicts(parts, parts[number], bit)
    ]


def wanted_of(case: Case, reader: Any, low: int | None, high: int | None) -> list[Row]:
    name, *_ = case
    epoch: int | None = NO_EPOCH if name.startswith("magic") else EPOCH
    if reader in WITHOUT_EPOCHS:
        epoch = None
    offsets = [one for part in LOGS[name] for one in range(part.first, part.last + 1)]
    return [(one, epoch) for one in offsets if (low or 0) <= one and (high is None or one < high)]


def selections(part: Part, reader: Any) -> Iterator[Selection]:
    yield Selection()
    if reader not in NOT_OF_PARTS:
        yield Selection(from_offset=part.first)
        yield Selection(to_offset=part.last + 1)


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_every_bit_that_no_checksum_covers(
    reader: Callable[[Path, Selection], Answer], tmp_path: Path
) -> None:
    """From the beginning, from the middle, and up to the middle."""
    silent, tried = [], 0
    for case in cases_for(reader):
        name, number, bit = case
        part = LOGS[name][number]
        directory = tmp_path / f"{name}-{number}-{bit}" / "orders-0"
        write(directory, LOGS[name], part, bit)
        for selection in selections(part, reader):
            low, high = selection.from_offset, selection.to_offset
            rows, defects = reader(directory, selection)
            wanted = wanted_of(case, reader, low, high)
            tried += 1
            if rows != wanted and not defects:
                silent.append((*case, low, high, len(rows), len(wanted)))
        shutil.rmtree(directory.parent)
    assert not silent, f"{len(silent)} of {tried}: {silent[:10]}"
    assert tried > len(LOGS) * (1 if reader in NOT_OF_PARTS else 3)


@pytest.mark.parametrize("reader", OF_COPIES, ids=lambda one: one.__name__)
def test_a_batch_is_read_from_the_copy_that_has_it(
    reader: Callable[..., Answer], tmp_path: Path
) -> None:
    """One copy has a wrong header, the other one damaged records in the batch after it.

    Of the last two batches of a log nothing in it says which one is out of place.
    """
    wrong = []
    for case in cases_for(reader):
        name, number, bit = case
        parts = LOGS[name]
        other = parts[number + 1 if number + 1 < len(parts) else number - 1]
        copies = [tmp_path / f"{name}-{number}-{bit}-{one}" / "orders-0" for one in (1, 2)]
        write(copies[0], parts, parts[number], bit)
        write(copies[1], parts, other, 8 * len(other.data) - 1)
        for given in (copies, copies[::-1]):
            rows, defects = reader(given[0], Selection(), *given)
            # Nor does anything say where a compressed old message was.
            is_last = number >= len(parts) - 2 or is_wrapper(parts[number])
            is_known = bool(defects) and is_last
            if rows != wanted_of(case, reader, None, None) and not is_known:
                wrong.append((*case, given[0].parent.name[-1], len(rows)))
        for one in copies:
            shutil.rmtree(one.parent)
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


OF_ORDER: Final = (
    "batch-offset-displaced", "batch-offset-not-increasing", "batch-below-base-offset",
)  # fmt: skip


def test_verify_blames_the_batch_that_readers_blame(tmp_path: Path) -> None:
    """Not all those after it; the last one of a segment may also be one of too long a segment."""
    wrong, tried = [], 0
    for case in sampled(cases()[::11], SHARE // 11):
        name, number, bit = case
        parts = LOGS[name]
        if bit >= BITS_OF_OFFSET or parts[number].ordinal == BATCHES - 1 or "wrapped" in name:
            continue
        directory = tmp_path / f"{name}-{number}-{bit}" / "orders-0"
        write(directory, parts, parts[number], bit)
        found = Verification(Level.STANDARD).verify(str(directory))
        _, defects = by_reference(directory, Selection())
        blamed = [
            {(one.path, one.position) for one in some if one.reference in OF_ORDER}
            for some in (found, defects)
        ]
        tried += 1
        if blamed[0] != blamed[1]:
            wrong.append((*case, *blamed))
    assert not wrong, f"{len(wrong)} of {tried}: {wrong[:5]}"
    assert tried


LINES: Final = (
    ("dump-segment", "PATH", "--format", "ndjson"),
    ("dump-segment", "PATH", "--format", "kafka"),
    ("dump-segment", "PATH", "--batches", "--format", "ndjson"),
    ("find", "PATH", "--value-regex", ".", "--format", "ndjson"),
    ("sql", "-c", 'select count(*), sum("offset"), max("offset") from records', "PATH"),
    ("profile", "PATH", "--format", "json"),
    ("lookup-offset", "PATH", "--special", "latest", "--format", "ndjson"),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_command_shows_what_the_sound_log_has_or_fails(
    line: Sequence[str], tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """All of its output is compared."""
    silent = []
    directory = tmp_path / "log" / "orders-0"
    for name, number, bit in sampled(cases()[::97], SHARE // 97):
        parts = LOGS[name]
        answers = []
        for changed in (None, parts[number]):
            write(directory, parts, changed, bit)
            answers.append(kafkalog(*(directory if one == "PATH" else one for one in line)))
            shutil.rmtree(directory)
        sound, hurt = answers
        if hurt.status == 0 and hurt.stdout != sound.stdout:
            silent.append((name, number, bit))
    assert not silent


COMMANDS: Final = {
    "dump-segment": ("PATH", "--format", "ndjson"),
    "find": ("PATH", "--value-regex", ".", "--format", "ndjson"),
    "export": ("PATH", "--to", "OUT"),
    "sql": ("-c", 'select count(*), sum("offset") from records', "PATH"),
    "profile": ("PATH", "--format", "json"),
    "lookup-offset": ("PATH", "OFFSET"),
    "replay": ("PATH", "--dry-run", "--format", "ndjson"),
    "simulate-roll": ("PATH", "--config", "segment.bytes=300", "--format", "ndjson"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_all_records_and_says_which_batch_is_displaced(
    command: str, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """A batch in the middle claims an offset far above the end: nothing after it is lost."""
    parts = LOGS["uncompacted"]
    changed = parts[len(parts) // 2]
    write(tmp_path / "sound" / "orders-0", parts)
    write(tmp_path / "hurt" / "orders-0", parts, changed, bit=4)  # of the highest byte
    answers = []
    for name in ("sound", "hurt"):
        values = {
            "PATH": tmp_path / name / "orders-0", "OUT": tmp_path / name / "out",
            "OFFSET": changed.last,
        }  # fmt: skip
        answers.append(kafkalog(command, *(values.get(one, one) for one in COMMANDS[command])))
    sound, hurt = answers
    assert (sound.status, hurt.status) == (0, 8), (sound, hurt)
    said = hurt.stdout.decode() + hurt.stderr
    assert "batch-offset-displaced" in said or (command == "profile" and "1 defect" in said)
    if command == "export":
        files = [tmp_path / name / "out" for name in ("sound", "hurt")]
        rows = [
            pq.read_table(next(one.rglob("*.parquet")), columns=["offset"])["offset"].to_pylist()
            for one in files
        ]
        assert rows[0] == rows[1] == [n for one in parts for n in range(one.first, one.last + 1)]
    elif command in ("sql", "lookup-offset"):
        assert hurt.stdout == sound.stdout
    elif command in ("dump-segment", "find", "simulate-roll"):
        field = "base_offset" if command == "simulate-roll" else "offset"
        numbers = [
            [row[field] for row in map(json.loads, answer.stdout.splitlines())
             if row.get("type") != "defect" and field in row and "reference" not in row]
            for answer in answers
        ]  # fmt: skip
        assert numbers[0] == numbers[1] != []
