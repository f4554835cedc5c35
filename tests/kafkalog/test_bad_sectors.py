"""A bad sector costs only the batches on it: it becomes a finding, and reading continues."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import open_partition
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.selection import EVERYTHING
from kafkalog.model import Batch, Defect, Level
from kafkalog.node.reader import read_records
from tests.bad_disk import SECTOR, BadDisk
from tests.builders import repeated
from tests.checkout import ROOT
from tests.sampling import new_seed
from tests.sweeps import covers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

TRIES = 4
NAME = f"{0:020d}.log"
by_kernels = pytest.mark.parametrize("size_min", [0, 1 << 60], ids=["kernels", "reference"])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of several hundred sectors: a broker's batches, repeated."""
    origin = ROOT / "examples" / "log-dir" / "orders-0"
    target = tmp_path / "orders-0"
    shutil.copytree(origin, target)
    for path in target.iterdir():
        if path.name != NAME:
            path.unlink()
    data = (target / NAME).read_bytes()
    (target / NAME).write_bytes(repeated(data, 1 + 250_000 // len(data)))
    return target / NAME


@pytest.fixture(params=[True, False], ids=["short", "whole"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    return BadDisk(monkeypatch, is_short=request.param)


def batches_of(path: Path) -> list[Batch]:
    with Source(str(path)) as source:
        return [found for found in scan_batches(source, check_crc=True) if isinstance(found, Batch)]


def spoiled(rng: random.Random, size: int) -> list[int]:
    """Choose bad sectors, single and in a row, sometimes the first or the last."""
    sectors = -(-size // SECTOR)
    starts = rng.sample(range(sectors), rng.randint(1, 4))
    return sorted({s for start in starts for s in range(start, start + rng.choice((1, 1, 2, 12)))
                   if s < sectors})  # fmt: skip


def is_hit(batch: Batch, bad: list[int]) -> bool:
    return any(batch.position < (s + 1) * SECTOR and s * SECTOR < batch.end_position for s in bad)


@pytest.mark.sampled(2)
@by_kernels
def test_every_batch_beside_bad_sectors_is_read(
    size_min: int, log: Path, disk: BadDisk, monkeypatch: pytest.MonkeyPatch,
    tell: Callable[[str], None],
):  # fmt: skip
    """Every other batch is checked and counted; each bad byte is part of a finding."""
    seed = new_seed()
    rng = random.Random(seed)
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    whole = batches_of(log)
    for number in range(TRIES):
        bad = spoiled(rng, log.stat().st_size)
        good = [batch for batch in whole if not is_hit(batch, bad)]
        disk.spoil(log, bad)
        with Source(str(log)) as source:
            found = list(scan_batches(source, check_crc=True))
            assert covers(found, source.size_bytes)
        assert [one for one in found if isinstance(one, Batch)] == good, (seed, number)
        for level in (Level.STANDARD, Level.DEEP):
            run = Verification(level)
            told = [one for one in run.verify(log.parent) if one.reference == "bytes-unreadable"]
            assert run.summary.batches == len(good), (seed, number, level)
            missing = run.summary.expected_bytes - run.summary.checked_bytes
            assert missing == sum(one.size_bytes or 0 for one in told), (seed, number, level)
            for sector in bad:
                assert any(covered(one, sector, log) for one in told), (seed, number, sector)
        rows = list(read_records(open_partition(str(log.parent)), EVERYTHING))
        counted = sum(not isinstance(one, Defect) for one in rows)
        assert counted == sum(batch.records for batch in good), (seed, number)
        assert {one.reference for one in rows if isinstance(one, Defect)} == {"bytes-unreadable"}
    tell(f"{TRIES} logs with bad sectors, seed {seed}, {disk.failed} reads failed")
    assert disk.failed > TRIES


def covered(defect: Defect, sector: int, log: Path) -> bool:
    """Return whether the defect's range overlaps the part of the file in a sector."""
    end = min((sector + 1) * SECTOR, log.stat().st_size)
    start = defect.position or 0
    return start < end and sector * SECTOR < start + (defect.size_bytes or 0)


def test_few_reads_fail_however_much_of_a_disk_is_gone(log: Path, disk: BadDisk):
    """Each failed read can take a drive half a minute: no bad sector is read twice, and most never.

    If the read of a window fails, single reads find the bad sector.
    """
    disk.spoil(log, [20, 60])
    with Source(str(log)) as source:
        list(scan_batches(source, check_crc=True))
    assert disk.failed == 2 if disk.is_short else disk.failed <= 2 * 2
    log.write_bytes(log.read_bytes() * 40)
    sectors = log.stat().st_size // SECTOR
    disk.spoil(log, range(3, sectors - 3))
    with Source(str(log)) as source:
        found = list(scan_batches(source, check_crc=True))
    assert [type(one) for one in found].count(Defect) == 1
    assert isinstance(found[-1], Batch)
    assert disk.failed < 100


@pytest.mark.sampled(2, each_value=True)
@by_kernels
@pytest.mark.parametrize("form", ["ndjson", "csv", "kafka", "table"])
def test_a_dump_goes_on_after_a_bad_sector(
    size_min: int, form: str, log: Path, disk: BadDisk, kafkalog: Run,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """All rows of the sound batches, the finding, and status 8."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    whole = batches_of(log)
    bad = [7, 30]
    good = [batch for batch in whole if not is_hit(batch, bad)]
    disk.spoil(log, bad)
    done = kafkalog("dump-segment", log, "--batches", "--format", form)
    assert done.status == 8
    assert "bytes-unreadable" in done.stdout.decode() + done.stderr
    if form == "kafka":
        assert done.stdout.count(b"baseOffset: ") == len(good)
    if form == "csv":
        assert done.stdout.count(b"\n") == 1 + len(good)
    if form == "ndjson":
        assert done.stdout.count(b'"type":"batch"') == len(good)


def test_salvage_copies_around_a_bad_sector(
    log: Path, disk: BadDisk, kafkalog: Run, tmp_path: Path
):
    """Sound batches are copied byte for byte; in lost+found, zeros replace the bad sector."""
    log.write_bytes((ROOT / "examples/log-dir/orders-0" / NAME).read_bytes())
    data, whole = log.read_bytes(), batches_of(log)
    bad = [1]
    good = [batch for batch in whole if not is_hit(batch, bad)]
    assert good
    disk.spoil(log, bad)
    to = tmp_path / "to"
    done = kafkalog("salvage", log.parent, "--to", to, "--format", "ndjson")
    assert done.status == 8, done
    kept = b"".join(data[batch.position : batch.end_position] for batch in good)
    assert (to / "log" / "orders-0" / NAME).read_bytes() == kept
    [lost] = (to / "lost+found").rglob("*.bin")
    start, size = map(int, lost.stem.split("-")[-2:])
    wanted = bytearray(data)
    wanted[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    assert lost.read_bytes() == wanted[start : start + size]
    assert b'"crc32c":null' in done.stdout


@pytest.mark.parametrize("form", ["table", "ndjson", "prometheus"])
def test_verify_reports_a_bad_sector_in_each_format(
    form: str, log: Path, disk: BadDisk, kafkalog: Run
):
    """Each report is complete and gives the position of the bad sector."""
    disk.spoil(log, [3])
    done = kafkalog("verify", "--level", "deep", log, "--format", form)
    assert done.status == 8
    assert "internal-error" not in done.stderr
    if form == "prometheus":
        assert b"kafkalog_verify_exit_status 8\n" in done.stdout
    else:
        assert b"bytes-unreadable" in done.stdout
    if form == "ndjson":
        assert b'"type":"verify_summary","status":8,' in done.stdout


def test_a_compaction_does_not_begin_on_a_bad_sector(log: Path, disk: BadDisk, kafkalog: Run):
    """Compacting would lose the batches that cannot be read."""
    before = log.read_bytes()
    (log.parent / f"{10**9:020d}.log").touch()
    disk.spoil(log, [3])
    options = (
        "--config",
        "cleanup.policy=compact",
        "--high-watermark",
        "end",
        "--apply",
        "--yes",
    )
    done = kafkalog("compact", log.parent, *options)
    assert done.status == 3, done
    assert "bytes-unreadable" in done.stderr
    disk.spoil(log, [])
    assert log.read_bytes() == before
