"""Each bit of a header that no checksum covers, flipped under every reader.

Base offset, length, leader epoch, magic and the checksum itself are not in the checksum. Whichever
bit of them is wrong: the records are those of the sound log, or a finding names the batch.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

from formats.constants import NO_EPOCH
from kafkalog.batches.reader import plan_reading
from kafkalog.batches.selection import Selection, planned_records
from kafkalog.columns.pipeline import Restored, read_contents
from kafkalog.log_dir import open_partition
from kafkalog.model import Defect, Isolation, Record
from kafkalog.server.model import ServeListener, ServeOptions, Watermark
from kafkalog.server.open_files import OpenFiles
from kafkalog.server.served_log import ServedLog
from kafkalog.tables import Bounds, Request, plan_splits, read_split
from kafkalog.tables.reading import count_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, flip, frames, message, record, write_log
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from kafkalog.errors import Event
    from tests.conftest import Result

BITS: Final = 17 * 8
BITS_OF_OFFSET: Final = 64
SEGMENTS: Final = 3
BATCHES: Final = 7  # of a segment
EPOCH: Final = 5
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


Row = tuple[int, int]
"""The offset of a record and its leader epoch."""
Answer = tuple[list[Row], list[Defect]]


def gathered(found: Iterable[Record | Defect]) -> Answer:
    rows: list[Row] = []
    defects: list[Defect] = []
    for one in found:
        if isinstance(one, Defect):
            defects.append(one)
        else:
            rows.append((one.offset, one.batch.partition_leader_epoch))
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


def by_splits(directory: Path, selection: Selection) -> Answer:
    """Read tables split by split, and check that counting gives the same number."""
    bounds = Bounds(from_offset=selection.from_offset, to_offset=selection.to_offset)
    request = Request(bounds=bounds, isolation=Isolation.LOG, split_bytes=300)
    rows: list[Row] = []
    defects: list[Defect] = []
    count = 0
    for split in plan_splits([str(directory)], request):
        names = ["offset", "leader_epoch"]
        for one in read_split(split, table_schema(split.table, names), defects=defects.append):
            rows += zip(*(one.column(name).to_pylist() for name in names), strict=True)
        count += sum(count_split(split, defects=lambda _: None))
    assert count == len(rows)
    return rows, defects


READERS: Final = (by_reference, by_columns, by_splits)


def contradicts(parts: list[Part], changed: Part, bit: int) -> bool:
    """Return whether a flipped base offset leaves the gap between the neighbours.

    A batch that only moves within a gap that the cleaner left contradicts nobody. Nor does the last
    one of a log that moves up.
    """
    if bit >= BITS_OF_OFFSET:
        return True
    (base,) = struct.unpack_from(">q", flip(changed.data, bit))
    number = parts.index(changed)
    after = parts[number + 1].first if number + 1 < len(parts) else 1 << 63
    before = parts[number - 1].last if number else -1
    low = max(before + 1, parts[number - changed.ordinal].first)
    return not low <= base <= after - (changed.last - changed.first + 1)


def cases() -> list[tuple[str, int, int]]:
    return [
        (name, number, bit)
        for name, parts in LOGS.items()
        for number in range(len(parts))
        for bit in range(BITS)
        if contradicts(parts, parts[number], bit)
    ]


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_every_bit_that_no_checksum_covers(
    reader: Callable[[Path, Selection], Answer], tmp_path: Path
) -> None:
    """From the beginning, from the middle, and up to the middle."""
    silent, tried = [], 0
    for name, number, bit in sampled(cases(), 211):
        parts = LOGS[name]
        changed = parts[number]
        epoch = NO_EPOCH if name.startswith("magic") else EPOCH
        truth = [offset for one in parts for offset in range(one.first, one.last + 1)]
        directory = tmp_path / f"{name}-{number}-{bit}" / "orders-0"
        write(directory, parts, changed, bit)
        for low, high in ((None, None), (changed.first, None), (None, changed.last + 1)):
            rows, defects = reader(directory, Selection(from_offset=low, to_offset=high))
            end = truth[-1] + 1 if high is None else high
            wanted = [(one, epoch) for one in truth if (low or 0) <= one < end]
            tried += 1
            if rows != wanted and not defects:
                silent.append((name, number, bit, low, high, len(rows), len(wanted)))
    assert not silent, f"{len(silent)} of {tried}: {silent[:10]}"
    assert tried > len(LOGS) * 3


COMMANDS: Final = {
    "dump-segment": ("PATH", "--format", "ndjson"),
    "find": ("PATH", "--value-regex", ".", "--format", "ndjson"),
    "export": ("PATH", "--to", "OUT"),
    "sql": ('select count(*), sum("offset") from records', "PATH"),
    "profile": ("PATH", "--format", "json"),
    "lookup-offset": ("PATH", "OFFSET"),
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
    assert (sound.status, hurt.status) == (0, 1), (sound, hurt)
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
    elif command in ("dump-segment", "find"):
        numbers = [
            [row["offset"] for row in map(json.loads, answer.stdout.splitlines())
             if row.get("type") != "defect" and "offset" in row and "reference" not in row]
            for answer in answers
        ]  # fmt: skip
        assert numbers[0] == numbers[1] != []


def served(directory: Path) -> tuple[bytes, list[Defect]]:
    """Fetch everything as a client does, each time from the offset after the last one."""
    told: list[Defect] = []

    class Listener(ServeListener):
        def hear(self, event: Event) -> None:
            assert isinstance(event, Defect)
            told.append(event)

    options = ServeOptions(high_watermark=Watermark.END)
    log = ServedLog(open_partition(str(directory)), options, Listener(), OpenFiles())
    offset, data = 0, b""
    while records := log.read(offset, 400, Isolation.READ_UNCOMMITTED).records:
        if not isinstance(records, bytes):
            records = records.source.read(records.position, len(records))
        position = 0
        for position, size in frames(records):
            if position + size > len(records):
                break  # only a part of it is here
            base, delta = struct.unpack_from(">q15xi", records, position)
            offset, end = base + delta + 1, position + size
        data += records[:end]
    return data, told


def test_every_displaced_batch_is_served_at_its_offset(tmp_path: Path) -> None:
    """The bytes are those of the sound log, and the damage is reported once."""
    parts = LOGS["uncompacted"]
    # Of the last batch nothing after it says where it belongs.
    mine = [(number, bit) for number in range(len(parts) - 1) for bit in range(BITS_OF_OFFSET)]
    for number, bit in sampled(mine, 29):
        print(number, bit)
        directory = tmp_path / f"{number}-{bit}" / "orders-0"
        write(directory, parts, parts[number], bit)
        data, told = served(directory)
        assert data == b"".join(one.data for one in parts)
        assert [one.reference for one in told] == ["batch-offset-displaced"]
