"""Every decoder on random bytes and on mutated real ones: values, defects, or our own errors."""

from __future__ import annotations

import itertools
import shutil
import tarfile
import tempfile
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c as wheel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import KafkaLogError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import find_batch, scan_batches
from kafkalog.log.batches.records import decode_records, resolve_batch
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Batch, Defect, Isolation, Record
from kafkalog.node.reader import read_batches, read_records
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import SEGMENT, batch, message, record
from tests.conftest import CORPUS
from tests.sampling import examples
from tests.sweeps import FILE_READERS, covers, read_file_in_every_way

if TYPE_CHECKING:
    from collections.abc import Callable

FUZZ = settings(max_examples=examples(150))
PLACE = Path(tempfile.mkdtemp(prefix="kafkalog-fuzz-"))


@pytest.fixture(scope="module", autouse=True)
def _clean_up():
    yield
    shutil.rmtree(PLACE)


@cache
def real_files(suffix: str) -> list[bytes]:
    """Return small files of the corpus, straight from its archives."""
    found = []
    for archive in ("kafka-4.3/txn", "kafka-2.8/v0", "kafka-2.8/v1", "kafka-4.3/internal-topics"):
        with tarfile.open(CORPUS / f"{archive}.tar.gz") as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if name.endswith(suffix) and 0 < member.size < 7000:
                    content = tar.extractfile(member)
                    assert content is not None
                    found.append(content.read())
    assert len(found) >= 2, suffix
    return found[:40]


@st.composite
def mutated(draw: st.DrawFn, suffix: str) -> bytes:
    """Return a real file with some bytes flipped, inserted, deleted, duplicated or overwritten."""
    data = bytearray(draw(st.sampled_from(real_files(suffix))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        end = at + draw(st.integers(0, 80))
        kind = draw(st.sampled_from(["flip", "insert", "delete", "double", "number", "cut"]))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=30))
        elif kind == "delete":
            del data[at:end]
        elif kind == "double":
            data[at:at] = data[at:end]
        elif kind == "number":
            number = draw(st.sampled_from([0, -1, 1, 2**31 - 1, -(2**31), 0x01010101]))
            data[at : at + 4] = number.to_bytes(4, "big", signed=True)
        else:
            del data[at:]
    return bytes(data)


def put(name: str, data: bytes) -> Path:
    path = PLACE / name
    path.write_bytes(data)
    return path


def read_all(data: bytes) -> None:
    """Scan the batches, check that they cover the data, then decode every record."""
    path = put(f"{SEGMENT}.log", data)
    with Source(str(path)) as source:
        for check_crc in (True, False):
            found = list(scan_batches(source, check_crc=check_crc))
            assert covers(found, len(data))
        for item in found:
            assert isinstance(item, Batch | Defect)
            assert item.path == str(path)
            if isinstance(item, Batch):
                with suppress(KafkaLogError):
                    for row in decode_records(source, item, size_max=1 << 20):
                        assert isinstance(row, Record)
                with suppress(KafkaLogError):
                    resolve_batch(source, item, size_max=1 << 20)
    for selection in (Selection(), Selection(from_position=3, limit=2), Selection(to_offset=50)):
        for row in itertools.chain(read_records(path, selection), read_batches(path, selection)):
            assert isinstance(row, Record | Batch | Defect)


@FUZZ
@given(st.binary(max_size=300))
def test_random_bytes_as_a_log(data: bytes):
    """No batch is found by chance, and no byte is lost."""
    read_all(data)


@FUZZ
@given(mutated(".log"))
def test_mutated_logs(data: bytes):
    """Magic 0, 1 and 2, plain and compressed, data and markers."""
    read_all(data)


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(bytes, st.integers(0, 100)),
    st.builds(lambda o, n: batch(o, [record()] * n), st.integers(0, 9), st.integers(0, 3)),
    st.builds(lambda o, m: message(o, b"k", magic=m), st.integers(0, 9), st.integers(0, 1)),
)  # fmt: skip


@FUZZ
@given(st.lists(PIECES, max_size=8), st.integers(0, 200), st.integers(0, 400))
def test_sound_batches_between_garbage(pieces: list[bytes], start: int, end: int):
    """Scans over any range cover exactly that range; a search finds what a scan finds."""
    data = b"".join(pieces)
    path = put(f"{SEGMENT}.log", data)
    with Source(str(path)) as source:
        stop = min(end, len(data))
        found = list(scan_batches(source, start, end, check_crc=True))
        assert sum(item.size_bytes or 0 for item in found) == max(stop - start, 0)
        position = start
        for item in found:
            assert item.position == position
            position += item.size_bytes or 0
        sound = find_batch(source, start, stop)
        assert min(start, stop) <= sound <= stop
        whole = [item for item in found if isinstance(item, Batch) and item.crc_valid]
        if whole and whole[0].magic == 2:
            assert sound <= whole[0].position


@FUZZ
@given(st.binary(max_size=200), st.integers(0, 7), st.integers(-1, 5), st.integers(0, 127))
def test_random_payloads_behind_a_right_checksum(
    payload: bytes, codec: int, count: int, attributes: int
):
    """The decoder alone: anything that a producer may have sent."""
    read_all(batch(0, payload=payload, count=count, attributes=attributes & ~7 | codec))
    read_all(message(3, None, payload, attributes=codec, magic=count & 1))


@FUZZ
@given(
    st.lists(
        st.builds(
            lambda d, k, v, t, h: record(d, k, v, time_delta=t, headers=h),
            st.integers(-(2**31), 2**31 - 1),
            st.none() | st.binary(max_size=20),
            st.none() | st.binary(max_size=20),
            st.integers(-(2**63), 2**63 - 1),
            st.lists(
                st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
            ),
        ),
        max_size=4,
    ),
    st.data(),
)
def test_mutated_records_behind_a_right_checksum(records: list[bytes], data: st.DataObject):
    """Sound records with one byte changed or one slice removed."""
    payload = bytearray(b"".join(records))
    if payload:
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
        del payload[data.draw(st.integers(0, len(payload))) : data.draw(st.integers(0, 300))]
    read_all(batch(0, payload=bytes(payload), count=len(records)))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_indexes(suffix: str):
    """Entries in any order and of any size; each lookup ends."""

    @FUZZ
    @given(st.binary(max_size=200) | mutated(suffix))
    def check(data: bytes) -> None:
        path = str(put(f"{SEGMENT}{suffix}", data))
        if suffix == ".txnindex":
            assert len(list(read_aborted_transactions(path))) == len(data) // 34
            return
        with (OffsetIndex if suffix == ".index" else TimeIndex)(path) as index:
            entries = list(index.entries())
            assert len(entries) == index.entry_count <= index.slot_count
            assert len(list(index.entries(padding=True))) == index.slot_count
            for target in (-(2**63), -1, 0, 5, 2**40):
                probes: list[object] = []
                found = index.lookup(target, probes)  # type: ignore[arg-type] # any list will do
                assert found is None or found in entries
                assert len(probes) <= 10

    check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(len(FILE_READERS)))
def test_readers_of_small_files(number: int):
    """Each reader on random bytes, on text and on every small file of the corpus, mutated."""
    reader: Callable[[str], object] = FILE_READERS[number]
    small = ["checkpoint", "partition.metadata", "quorum-state", "meta.properties", ".snapshot"]

    @settings(FUZZ, max_examples=examples(60))
    @given(
        st.binary(max_size=100)
        | st.text(alphabet='01 \n\r\t{}[]":,=\\u\ud7ffé-', max_size=60).map(str.encode)
        | st.sampled_from(small).flatmap(mutated)
    )
    def check(data: bytes) -> None:
        with suppress(KafkaLogError):
            reader(str(put("file.any", data)))

    check()


@FUZZ
@given(st.binary(max_size=150))
def test_producer_snapshots_behind_a_right_checksum(rest: bytes):
    """Any count and any entries."""
    data = b"\0\1" + wheel.crc32c(rest).to_bytes(4, "big") + rest
    read_file_in_every_way(put("00000000000000000007.snapshot", data))


@settings(FUZZ, max_examples=examples(60))
@given(mutated(".log"), st.binary(max_size=40), mutated(".snapshot"), st.binary(max_size=60))
def test_a_log_of_mutated_files(log: bytes, index: bytes, snapshot: bytes, epochs: bytes):
    """All files of one partition at once, as a broker's start reads them."""
    directory = PLACE / "t-0"
    directory.mkdir(exist_ok=True)
    (directory / f"{SEGMENT}.log").write_bytes(log)
    (directory / f"{SEGMENT}.index").write_bytes(index)
    (directory / f"{SEGMENT}.timeindex").write_bytes(index)
    (directory / f"{SEGMENT}.txnindex").write_bytes(index * 2)
    (directory / f"{SEGMENT}.snapshot").write_bytes(snapshot)
    (directory / "leader-epoch-checkpoint").write_bytes(epochs)
    opened = UnifiedLog(str(directory))
    for question in ("log_start_offset", "log_end_offset", "high_watermark", "leader_epochs",
                     "last_stable_offset"):  # fmt: skip
        with suppress(KafkaLogError):
            getattr(opened, question)
    with suppress(KafkaLogError):
        committed = Selection(isolation=Isolation.READ_COMMITTED, from_offset=4)
        for row in read_records(directory, committed):
            assert isinstance(row, Record | Defect)


def test_the_corpus_behind_the_mutations_is_not_empty():
    """The unmutated corpus gives no findings."""
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint"):
        assert all(BytesIO(data).read(1) for data in real_files(suffix))
