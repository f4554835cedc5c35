"""Targets that read single files: side files, logs by the reference readers and by the kernels."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kafkalog.errors import KafkaLogError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import align, find_batch, scan_batches
from kafkalog.log.batches.records import decode_records, resolve_batch
from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns import chunks, headers, side_files
from kafkalog.log.columns.header_table import batch_at
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Batch, Defect, Isolation, Level, Record
from kafkalog.node import scan as columnar
from kafkalog.node.reader import read_batches, read_records
from tests.builders import BASE_TIME, SEGMENT
from tests.soak import generated, real
from tests.soak.decoders import text
from tests.soak.mutations import mutated, number
from tests.soak.target import Place, Target, only
from tests.sweeps import FILE_READERS, covers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from random import Random

    from tests.soak.real import Files

UNPACKED_MAX = 1 << 20
SIDE_FILES = ("checkpoint", "partition.metadata", "quorum-state", "meta.properties", ".snapshot",
              ".txnindex")  # fmt: skip


def side_input(rng: Random) -> Files:
    """Return one small file: mutated, made, or with its checksum corrected."""
    kind = rng.choice(SIDE_FILES)
    if kind == ".snapshot":
        return {kind: generated.snapshot(rng)}
    data = text(rng) if rng.random() < 0.3 else rng.choice(real.files(kind))
    return {kind: mutated(data, rng, data) if rng.random() < 0.9 else data}


def check_side(files: Files, _rng: Random, place: Place) -> None:
    """Run each reader of small files on any kind of file: a value or one of our errors."""
    path = place.put_one("file.any", only(files))
    for reader in FILE_READERS:
        with suppress(KafkaLogError):
            reader(path)


def index_input(rng: Random) -> Files:
    """Return an index of any kind."""
    suffix = rng.choice(sorted(generated.INDEXES))
    return {suffix: generated.index(rng, suffix)}


def check_index(files: Files, rng: Random, place: Place) -> None:
    """Count and look up entries; each search ends."""
    [(suffix, data)] = files.items()
    path = place.put_one(f"{rng.choice((0, 7, 2**62)):020d}.{suffix}", data)
    if suffix == "txnindex":
        assert len(list(read_aborted_transactions(path))) == len(data) // 34
        return
    with (OffsetIndex if suffix == "index" else TimeIndex)(path) as index:
        entries = list(index.entries())
        assert len(entries) == index.entry_count <= index.slot_count
        assert len(list(index.entries(padding=True))) == index.slot_count
        for target in (-1, 5, number(rng), 2**63 - 1):
            probes: list[Any] = []
            found = index.lookup(target, probes)
            assert found is None or found in entries
            assert len(probes) <= 20


def log_input(rng: Random) -> Files:
    """Return one log."""
    return {"log": generated.log(rng)}


def _put(files: Files, place: Place) -> str:
    return place.put_one(f"{SEGMENT}.log", files["log"])


def check_framing(files: Files, rng: Random, place: Place) -> None:
    """Require that batches and defects cover every byte, and that searches stay in the log."""
    size = len(files["log"])
    with Source(_put(files, place)) as source:
        for check_crc in (True, False):
            assert covers(scan_batches(source, check_crc=check_crc), size)
        start, end = sorted(rng.randrange(size + 1) for _ in range(2))
        found = list(scan_batches(source, start, end, check_crc=True))
        assert sum(one.size_bytes or 0 for one in found) == end - start
        assert start <= find_batch(source, start, end) <= end
        assert start <= align(source, start) <= size


def check_records(files: Files, _rng: Random, place: Place) -> None:
    """Decode records until the end or one of our errors."""
    with Source(_put(files, place)) as source:
        for batch in scan_batches(source):
            if isinstance(batch, Batch):
                with suppress(KafkaLogError):
                    for row in decode_records(source, batch, size_max=UNPACKED_MAX):
                        assert isinstance(row, Record)
                with suppress(KafkaLogError):
                    resolve_batch(source, batch, size_max=UNPACKED_MAX)


def kernels(*, on: bool) -> AbstractContextManager[object]:
    """Read everything with the kernels, or nothing."""
    return patch.object(fast_path, "FAST_SIZE_MIN", 0 if on else 1 << 60)


def selection(rng: Random) -> Selection:
    """Return what to select: mostly everything."""
    if rng.random() < 0.6:
        return Selection()
    return Selection(
        from_offset=rng.choice((None, rng.randrange(30), number(rng))),
        to_offset=rng.choice((None, None, rng.randrange(60), number(rng))),
        from_time=rng.choice((None, None, BASE_TIME + 2)),
        to_time=rng.choice((None, None, BASE_TIME + 5)),
        from_position=rng.choice((None, None, rng.randrange(300))),
        limit=rng.choice((None, None, rng.randrange(6))),
        max_bytes=rng.choice((None, None, rng.randrange(900))),
        producer_id=rng.choice((None, None, None, 7)),
        key=rng.choice((None, None, None, b"")),
        header=rng.choice((None, None, None, (b"", None))),
        control=rng.random() < 0.1,
        isolation=Isolation.READ_COMMITTED if rng.random() < 0.2 else Isolation.LOG,
    )


def check_scan(files: Files, rng: Random, place: Place) -> None:
    """Require that the kernels give the reference decoder's records, as Arrow, and its defects."""
    from tests.kafkalog.log.columns.twins import row_of

    path, wanted = _put(files, place), selection(rng)
    options = {"batch_rows": rng.choice((1, 3, 1000)), "threads": rng.choice((1, 1, 2))}
    rows = _sorted_out(lambda: read_records(path, wanted))
    _check_twins(path, wanted, rows, row_of, rng.choice((200, 200, 1 << 16)), options)


def check_batches(files: Files, rng: Random, place: Place) -> None:
    """Require that batches as Arrow columns equal those of the reference reader."""
    from tests.kafkalog.log.columns.test_batch_twins import row_of

    path, wanted = _put(files, place), selection(rng)
    options = {"batches": True, "batch_rows": 3, "threads": 1}
    rows = _sorted_out(lambda: read_batches(path, wanted))
    _check_twins(path, wanted, rows, row_of, 200, options)


_Sorted = tuple[list[Any], list[Defect], str]


def _sorted_out(read: Callable[[], Iterable[Any]]) -> _Sorted:
    """Return rows, defects, and the error that ended the reading, if any."""
    rows, defects = [], []
    try:
        for found in read():
            (defects if isinstance(found, Defect) else rows).append(found)
    except KafkaLogError as error:
        return rows, defects, str(error)
    return rows, defects, ""


def _check_twins(
    path: str,
    wanted: Selection,
    by_reference: _Sorted,
    row_of: Callable[[Any], Any],
    chunk_size: int,
    options: dict[str, Any],
) -> None:
    told: list[Defect] = []
    with kernels(on=True), patch.object(chunks, "CHUNK_SIZE_MIN", chunk_size):
        tables = _sorted_out(
            lambda: columnar.scan(path, selection=wanted, defects=told.append, **options)
        )
    rows, defects, error = by_reference
    for table in tables[0]:
        table.validate(full=True)
    assert tables[2] == error
    assert told == defects
    assert [row for table in tables[0] for row in table.to_pylist()] == [*map(row_of, rows)]


def check_batch_columns(files: Files, rng: Random, place: Place) -> None:
    """Require that the kernels give the scanner's headers, markers and facts."""
    level = rng.choice(list(Level))
    with Source(_put(files, place)) as source:
        with kernels(on=False):
            wanted = list(_facts(source, level))
        with (
            kernels(on=True),
            patch.object(chunks, "CHUNK_SIZE_MIN", 200),
            patch.object(headers, "_BATCHES_AT_ONCE", 3),
            patch.object(side_files, "_ENTRIES_AT_ONCE", 2),
        ):
            assert list(_facts(source, level)) == wanted


def _facts(source: Source, level: Level) -> Any:
    """Yield each batch with the facts about it, and each defect."""
    for found in batch_columns(source, level, threads=1):
        if isinstance(found, Defect):
            yield found
            continue
        refusals = {ordinal: error.message for ordinal, error in found.refusals}
        for i, valid in enumerate(found.crc_valid.tolist()):
            facts = None if found.facts is None else found.facts[:, i].tolist()
            batch = batch_at(found.headers, i, source.path, valid)
            yield batch, found.markers[:, i].tolist(), facts, refusals.get(i)


def hash_input(rng: Random) -> Files:
    """Return concatenated keys of sizes that kernels handle differently."""
    keys = [rng.randbytes(rng.choice((0, 1, 7, 8, 9, 15, 16, 17, 40))) for _ in range(9)]
    return {"keys": b"".join(struct.pack(">h", len(key)) + key for key in keys)}


def check_hash(files: Files, rng: Random, _place: Place) -> None:
    """Require the hashes of the publication."""
    import numpy as np

    from kafkalog.log.columns.byte_kernels import hash_keys
    from tests.kafkalog.log.columns.test_hash_kernels import reference
    from tests.soak.guard import guarded

    data, keys, position = only(files), [], 0
    places = []
    while position < len(data):
        size = int.from_bytes(data[position : position + 2], "big")
        places.append((position + 2, size))
        keys.append(data[position + 2 : position + 2 + size])
        position += 2 + size
    arena = guarded(len(data), np.uint8)
    arena[:] = np.frombuffer(data, np.uint8)
    positions, sizes = (guarded(len(places), np.int64) for _ in range(2))
    positions[:], sizes[:] = zip(*places, strict=True)
    low, high = (guarded(len(places), np.int64) for _ in range(2))
    seed = rng.randbytes(16)
    hash_keys(arena, positions, sizes, *np.frombuffer(seed, "<i8").tolist(), low, high)
    got = [row.tobytes() for row in np.stack((low, high), 1)]
    assert got == [reference(key, seed) for key in keys]


TARGETS = (
    Target("side-files", 7_000, side_input, check_side),
    Target("indexes", 5_000, index_input, check_index),
    Target("framing", 5_000, log_input, check_framing),
    Target("records", 6_000, log_input, check_records),
    Target("scan", 3_000, log_input, check_scan),
    Target("batches", 1_500, log_input, check_batches),
    Target("columns", 4_000, log_input, check_batch_columns),
    Target("hashes", 1_500, hash_input, check_hash),
)
