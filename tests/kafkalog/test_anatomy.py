"""`anatomy`: every byte belongs to one field, and values equal those of the readers."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from formats.constants import RECORD_BATCH_HEADER
from formats.file_names import FileKind, parse_file_name
from kafkalog.answers.anatomy.dissect import dissect, place_of
from kafkalog.answers.anatomy.meanings import BATCH, MESSAGE, RECORD
from kafkalog.answers.anatomy.model import Field, Structure
from kafkalog.answers.anatomy.writes import extent_count, writes_of
from kafkalog.errors import KafkaLogError, NotFoundError, NothingFoundError, UsageError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.files.log_dir import open_partition
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import payload_kind_at
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.tier_keys import use_keys
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import Batch
from tests import builders
from tests.sampling import new_seed, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.answers.anatomy.model import Item

ALL = 1 << 40
ORDERS = "examples/log-dir/orders-0"
DAMAGED = "examples/damaged/orders-0/00000000000000000250.log"


@dataclass
class Tiled:
    """The fields of one file, checked to cover it without gaps."""

    fields: list[Field] = field(default_factory=list)
    structures: list[Structure] = field(default_factory=list)

    def named(self, name: str) -> list[Field]:
        return [one for one in self.fields if one.name == name]

    def values(self, name: str) -> list[object]:
        return [one.value for one in self.named(name)]

    @property
    def damage(self) -> set[str]:
        return {one.damage for one in (*self.fields, *self.structures) if one.damage}


def tiled(items: Iterable[Item], size: int) -> Tiled:
    """Collect the fields, and check that those of each level leave no gap and do not overlap."""
    found, ends = Tiled(), [0, 0]
    for item in items:
        if isinstance(item, Structure):
            found.structures.append(item)
            continue
        if item.level == 0 or item.position == 0:
            ends[1] = 0
        assert item.size_bytes > 0, item
        assert item.position == ends[item.level], item
        assert len(item.raw) == min(item.size_bytes, 256) or item.damage == "bytes-unreadable", item
        ends[item.level] += item.size_bytes
        found.fields.append(item)
    assert ends[0] == size
    return found


def of_file(path: str | Path, limit: int = ALL) -> Tiled:
    manifest = Path(path).with_suffix(".rsm-manifest")
    size = os.path.getsize(path)
    if str(path).endswith(".log") and manifest.exists():  # Aiven's plugin packed it
        size = json.loads(manifest.read_text())["chunkIndex"]["originalFileSize"]
    return tiled(dissect(*place_of(str(path)), limit), size)


def kafka_files(root: Path) -> list[Path]:
    found = sorted(path for path in root.rglob("*") if path.is_file())
    known = [one for one in found if parse_file_name(one.name).kind != FileKind.UNKNOWN]
    return [one for one in known if ".expected" not in str(one)]


def test_fields_tile_every_file_of_the_corpus(
    corpus_dir: Path, tell: Callable[[str], None]
) -> None:
    """With and without a limit, also for files that a broker left unfinished."""
    files = kafka_files(corpus_dir)
    use_keys(map(str, corpus_dir.rglob("*.pem")))
    chosen = sampled(files, 360)
    fields = 0
    for path in chosen:
        fields += len(of_file(path).fields)
        of_file(path, 1)
    tell(f"anatomy: {fields} fields of {len(chosen)} of {len(files)} files")


def test_fields_tile_damaged_copies(
    corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Files with flipped, removed or added bytes: every byte still belongs to one field."""
    seed = new_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    files = [one for one in kafka_files(corpus_dir) if 0 < one.stat().st_size < 1 << 16]
    tried = 20_000 if tries_everything() else 300
    for _ in range(tried):
        original = rng.choice(files)
        path = tmp_path / original.parent.name / original.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damaged(original.read_bytes(), rng))
        of_file(path, rng.choice((1, 3, ALL)))
    tell(f"anatomy: {tried} damaged files")


def damaged(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    place = rng.randrange(len(changed))
    match rng.randrange(4):
        case 0:
            for _ in range(rng.choice((1, 3, 20))):
                changed[rng.randrange(len(changed))] ^= rng.randrange(1, 256)
        case 1:
            del changed[place:]
        case 2:
            changed += bytes(rng.randrange(1, 100))
        case _:
            del changed[place : place + rng.randrange(1, 20)]
    return bytes(changed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["codecs", "txn", "timestamps", "internal-topics"])
def test_values_of_logs_are_those_of_the_reference_reader(corpus_dir: Path, name: str) -> None:
    """Batch headers, and the keys, values, offsets and times of records."""
    logs = sorted((corpus_dir / "kafka-4.3" / name).rglob("*.log"))
    for path in sampled(logs, 24):
        found = of_file(path)
        with Source(str(path)) as source:
            batches = [one for one in scan_batches(source) if isinstance(one, Batch)]
            records = [one for batch in batches for one in decode_records(source, batch)]
        for header, attribute in (
            ("base_offset", "base_offset"), ("crc", "crc"), ("attributes", "attributes"),
            ("max_timestamp", "max_timestamp"), ("producer_id", "producer_id"),
            ("base_sequence", "base_sequence"), ("records_count", "records"),
        ):  # fmt: skip
            wanted = [getattr(one, attribute) for one in batches]
            assert found.values(f"batch.{header}") == wanted
        offsets = [f"offset {one.offset}" for one in records]
        titles = [one for one in found.structures if one.name.endswith("]") and "headers" not in
                  one.name and one.name.startswith("batch.records[") and one.meaning]  # fmt: skip
        assert [one.meaning for one in titles] == offsets
        if not path.parent.name.startswith("__"):
            keys = [one.value for one in found.fields if one.name.endswith("].key")
                    and "headers" not in one.name]  # fmt: skip
            assert keys == [one.key for one in records if one.key and not one.batch.is_control]


def test_kafkas_own_topics_are_opened(corpus_dir: Path) -> None:
    """Keys, values, markers and group member metadata: the same as the payload decoder returns."""
    root = corpus_dir / "kafka-4.3" / "internal-topics"
    fields: dict[str, set[object]] = {}
    for path in root.rglob("__*/*.log"):
        found = of_file(path)
        assert "record-malformed" not in found.damage
        for one in found.fields:
            fields.setdefault(one.name.rpartition(".")[2], set()).add(one.value)
        closed = re.compile(r"records\[\d+\]\.(key|value)$|\.message$")
        assert not [one for one in found.fields if closed.search(one.name)]
    assert "COMMIT" in {one.meaning for one in found_types(root)}
    decoded = set()
    for path in root.rglob("__consumer_offsets-*/*.log"):
        kind = payload_kind_at(str(path), is_file=True)
        assert kind is not None
        with Source(str(path)) as source:
            for batch in scan_batches(source):
                assert isinstance(batch, Batch)
                for record in decode_records(source, batch):
                    read = None if batch.is_control else decode(kind, record.key, record.value)
                    if read is not None and read.key is not None:
                        decoded.add(read.key["data"]["group" if "group" in read.key["data"]
                                                     else "groupId"])  # fmt: skip
    assert decoded - {""} <= fields["group"] | fields["groupId"]


def found_types(root: Path) -> Iterable[Field]:
    for path in root.rglob("__transaction_state-*/*.log"):
        yield from (one for one in of_file(path).fields if one.name.endswith("key.type"))
    for path in root.rglob("__consumer_offsets-*/*.log"):
        yield from (one for one in of_file(path).fields if one.name.endswith("key.type"))


def test_subscriptions_of_members_are_opened(tmp_path: Path) -> None:
    """Subscriptions of classic consumer groups are decoded; those of other protocols stay bytes."""
    for protocol in ("consumer", "connect"):
        name = protocol.encode()
        subscription = bytes.fromhex("0000 00000001 0001 74 ffffffff")
        value = (
            struct.pack(">hh", 3, len(name)) + name + struct.pack(">ihhqi", 1, -1, -1, 0, 1)
            + struct.pack(">h1shh1sh1s", 1, b"m", -1, 1, b"c", 1, b"h") + struct.pack(">ii", 1, 1)
            + struct.pack(">i", len(subscription)) + subscription + struct.pack(">i", 0)
        )  # fmt: skip
        key = struct.pack(">hh1s", 2, 1, b"g")
        path = builders.write_log(
            tmp_path / protocol / "__consumer_offsets-0",
            builders.batch(0, [builders.record(0, key, value)]),
        )
        found = of_file(path)
        names = [one.name.partition(".value.")[2] for one in found.fields]
        assert ("members[0].subscription.topics[0]" in names) == (protocol == "consumer")
        assert ("members[0].subscription" in names) == (protocol != "consumer")


def test_values_of_old_logs_are_those_of_the_reference_reader(corpus_dir: Path) -> None:
    """Messages of magic 0 and 1, wrapped ones included: every key and value, in order."""
    logs = sorted(path for name in ("v0", "v1") for path in
                  (corpus_dir / "kafka-2.8" / name).rglob("*.log"))  # fmt: skip
    for path in sampled(logs, 18):
        found = of_file(path)
        with Source(str(path)) as source:
            batches = [one for one in scan_batches(source) if isinstance(one, Batch)]
            records = [one for batch in batches for one in decode_records(source, batch)]
        keys = [one.value for one in found.fields if one.name.endswith(".key")]
        assert keys == [one.key for one in records if one.key]


def test_values_of_indexes_and_snapshots_are_those_of_their_readers(corpus_dir: Path) -> None:
    """Compares them entry by entry."""
    root = corpus_dir / "kafka-4.3"
    for path in sampled(sorted(root.rglob("*.index")), 20):
        with OffsetIndex(str(path)) as index:
            wanted = [one.position for one in index.entries()]
        found = of_file(path)
        assert [one.value for one in found.fields if one.name.endswith("].position")] == wanted
    for path in sampled(sorted(root.rglob("*.timeindex")), 20):
        with TimeIndex(str(path)) as times:
            wanted = [one.timestamp for one in times.entries()]
        found = of_file(path)
        assert [one.value for one in found.fields if one.name.endswith(".timestamp")] == wanted
    for path in sorted(root.rglob("txn*/**/*.txnindex")):
        wanted = [one.last_offset for one in read_aborted_transactions(str(path))]
        found = of_file(path)
        assert [one.value for one in found.fields if one.name.endswith(".last_offset")] == wanted
    for path in sampled(sorted(root.rglob("*.snapshot")), 20):
        states = read_producer_snapshot(str(path))
        found = of_file(path)
        assert [one.value for one in found.fields if one.name.endswith("producer_id")] == [
            one.producer_id for one in states
        ]
        assert "it holds" in found.named("crc")[0].meaning


def test_every_field_of_the_layouts_has_a_meaning() -> None:
    """Every name in a schema has an explanation, so a new field needs one, too."""
    assert set(RECORD_BATCH_HEADER.fields) == {*BATCH, "crc", "attributes"}
    found = of_file("examples/log-dir/payments-0/00000000000000000000.log")
    for one in found.fields:
        assert one.meaning, one.name
    assert {"offset", "size", "magic", "timestamp", "rest"} == set(MESSAGE)
    assert "offset_delta" in RECORD


def test_the_first_record_byte_by_byte(tmp_path: Path) -> None:
    """The documented example of a batch: deltas are resolved, varints split into their groups."""
    path = builders.write_log(
        tmp_path / "t-0",
        builders.batch(100, [builders.record(0, b"k", time_delta=0),
                             builders.record(300, b"k2", time_delta=1000)],
                       last_delta=300, producer=(7, 0, 5)),
    )  # fmt: skip
    found = of_file(path)
    [delta] = found.named("batch.records[1].offset_delta")
    assert delta.raw == bytes.fromhex("d804")
    assert delta.meaning == "offset 100 + 300 = 400, sequence 305"
    groups = "groups of 7 bits, the last byte first: 0000100 1011000 = 600; zigzag: 300"
    assert delta.details == (groups,)
    [moment] = found.named("batch.records[1].timestamp_delta")
    assert moment.meaning.endswith("= 1700000001000, 2023-11-14T22:13:21.000Z")
    [bits] = found.named("batch.attributes")
    assert bits.details[-1] == "bits 2–0: 000 compression: not compressed"


@pytest.mark.parametrize(
    ("change", "damage", "name"),
    [
        (lambda data: builders.flip(data, 8 * 70), "batch-crc-mismatch", "batch.crc"),
        (lambda data: data[:-3], "torn-tail", "damage.bytes"),
        (lambda data: data + bytes(50), "zero-tail", "damage.zeros"),
        (lambda data: data[:8] + b"\x7f" + data[9:], "batch-length-invalid", "damage.batch_length"),
        (lambda data: data[:16] + b"\xff" + data[17:], "magic-unknown", "damage.magic"),
        (lambda data: data + b"\1\2\3", "torn-tail", "damage.bytes"),
    ],
)
def test_damage_is_marked_where_it_lies(
    change: Callable[[bytes], bytes], damage: str, name: str, tmp_path: Path
) -> None:
    """A damaged batch after a sound one is marked; the sound one is not."""
    first = builders.batch(0, [builders.record()])
    data = change(builders.batch(1, [builders.record(0, b"key", b"some value")] * 1))
    second = builders.batch(2, [builders.record()]) if damage == "batch-length-invalid" else b""
    path = builders.write_log(tmp_path / "t-0", first, data, second)
    found = of_file(path)
    marked = [one for one in found.fields if one.damage]
    assert name in [one.name for one in marked]
    assert {one.damage for one in marked} <= {damage, "record-malformed", "records-left-over"}
    assert min(one.position for one in marked) >= len(first)


@pytest.mark.parametrize(("count", "attributes"), [(-3, 0), (-3, 4), (2, 0), (2, 4), (0, 0)])
def test_a_header_alone_is_a_whole_batch(count: int, attributes: int, tmp_path: Path) -> None:
    """A batch without records has no empty field; a count without records is damage."""
    data = builders.batch(0, (), count=count, last_delta=2, attributes=attributes)
    found = of_file(builders.write_log(tmp_path / "t-0", data))
    assert found.damage == ({"records-count-invalid"} if count else set())


def test_an_index_that_points_nowhere_says_so(tmp_path: Path) -> None:
    """An entry inside a batch, one after the end of the log, and an incomplete entry."""
    builders.write_log(tmp_path / "t-0", builders.batch(0, [builders.record()]))
    path = tmp_path / "t-0" / f"{builders.SEGMENT}.index"
    path.write_bytes(struct.pack(">iiii", 1, 5, 2, 5000) + b"\0\0\1")
    found = of_file(path)
    marked = [one for one in found.fields if one.damage]
    assert [one.damage for one in marked] == [
        "index-entry-misses-batch", "index-entry-misses-batch", "index-size-not-multiple",
    ]  # fmt: skip


def test_a_place_is_a_position_or_an_offset() -> None:
    """A position inside a batch selects that batch; all bytes before it are one field."""
    path = f"{ORDERS}/00000000000000000250.log"
    [first, second, third] = [start for start, _ in builders.frames(Path(path).read_bytes())][:3]
    for place in (second, second + 1, third - 1):
        found = tiled(dissect(*place_of(f"{path}@{place}"), 1), os.path.getsize(path))
        assert found.fields[0].is_left_out
        assert [one.position for one in found.named("batch.base_offset")] == [second]
    assert first == 0
    found = Tiled()
    for item in dissect(*place_of(f"{ORDERS}@471"), 1):
        (found.fields if isinstance(item, Field) else found.structures).append(item)  # type: ignore[arg-type]
    assert found.values("batch.base_offset") == [470]
    assert [one.name for one in found.structures][:2] == ["batch", "batch.records[1]"]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("examples/log-dir", UsageError),
        (ORDERS, UsageError),
        (f"{ORDERS}@99999", NothingFoundError),
        (f"{ORDERS}/00000000000000000000.log@99999999", NothingFoundError),
        (f"{ORDERS}/partition.metadata@3", UsageError),
        ("README.md", KafkaLogError),
        ("examples/nowhere@3", NotFoundError),
    ],
)
def test_what_cannot_be_shown_is_an_error(what: str, error: type[KafkaLogError]) -> None:
    """Never a traceback, never an empty answer."""
    with pytest.raises(error):
        list(dissect(*place_of(what), 1))


def test_a_limit_bounds_what_is_kept(tmp_path: Path) -> None:
    """With many records of many headers the answer stays small, and still covers the file."""
    headers = [(b"h", b"v")] * 5000
    many = [builders.record(n, b"k", headers=headers if n == 1 else ()) for n in range(3000)]
    path = builders.write_log(tmp_path / "t-0", *[builders.batch(3000 * n, many) for n in range(9)])
    found = of_file(path, 3)
    assert len(found.fields) < 1500
    assert found.fields[-1].meaning == "6 batches left out"
    assert found.named("batch.left_out")[0].meaning == "2997 records left out"
    assert found.named("batch.records[1].left_out")[0].meaning == "more than 100 headers"


def test_a_name_with_an_at_sign_is_a_file(tmp_path: Path) -> None:
    """A path that exists is taken as it is."""
    directory = tmp_path / "a@7"
    shutil.copytree(ORDERS, directory)
    assert of_file(directory / "00000000000000000000.log", 1).values("batch.base_offset") == [0]


def test_how_a_log_was_written(tmp_path: Path) -> None:
    """Order of offsets and times, bytes outside of batches, and the extents on disk."""
    batches = [
        builders.batch(n, [builders.record()], base_time=time, max_time=time)
        for n, time in enumerate((1000, 3000, 2000, 2000, 4000))
    ]
    path = builders.write_log(tmp_path / "t-0", *batches, bytes(100))
    [found] = writes_of(open_partition(str(path.parent)))
    assert (found.batches, found.batches_in_order, found.batches_in_time) == (5, 5, 4)
    assert (found.unframed_bytes, found.damage) == (100, "zero-tail")
    builders.write_log(tmp_path / "t-1", *reversed(batches))
    [found] = writes_of(open_partition(str(tmp_path / "t-1")))
    assert (found.batches, found.batches_in_order, found.batches_in_time) == (5, 1, 3)


def test_extents_are_counted_where_the_system_counts_them(disk_path: Path) -> None:
    """A hole splits a file in two; without support by the file system the count is None."""
    path = disk_path / "file"
    with path.open("wb") as file:
        file.write(b"x" * 65536)
        file.seek(1 << 20)
        file.write(b"x" * 65536)
        file.flush()
        os.fsync(file.fileno())
    found = extent_count(str(path))
    assert found is None or found >= 2
    assert extent_count("s3://bucket/file") is None
    assert extent_count(str(disk_path / "missing")) is None


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    """Empty are the lock of a log directory, and a transaction index that was never needed."""
    for name in (".lock", f"{builders.SEGMENT}.txnindex", f"{builders.SEGMENT}.log"):
        (tmp_path / name).touch()
        [found] = dissect(*place_of(str(tmp_path / name)), 1)
        assert (found.size_bytes, found.meaning) == (0, "it is empty")


def test_a_text_of_millions_of_lines_costs_little(tmp_path: Path) -> None:
    """Only the lines shown are parsed; a line without an end is left out as a whole."""
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(b"0\n1000000\n" + b"t 0 1\n" * 1_000_000)
    tracemalloc.start()
    found = of_file(path, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "1000000 lines follow" in found.named("lines[1].count")[0].meaning
    assert found.fields[-1].is_left_out
    assert len(found.structures) == 5
    assert peak < 1 << 25
    path.write_bytes(b"x" * 1_000_000)
    assert [one.name for one in of_file(path, 3).fields] == ["left_out"]
