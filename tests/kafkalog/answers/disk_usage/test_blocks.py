"""The sums of `du` are those of coreutils' du on the same directories."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from kafkalog.answers.disk_usage import disk_usage
from kafkalog.answers.disk_usage.model import SplitBy
from kafkalog.errors import Event, KafkaLogError, Listener, UnreadableError
from tests.builders import batch, copy_tree, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.answers.disk_usage.model import Report
    from tests.conftest import State


def du(*paths: Path) -> int:
    """Return what coreutils reports for all paths together."""
    command = ["du", "--summarize", "--total", "--block-size=1", *map(str, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1].split()[0])


def blocks(report: Report) -> int:
    """Return the sum of the parts, and require that it is the total."""
    total = sum(share.usage.disk_bytes for share in report.shares)
    assert total == report.total.disk_bytes
    return total


@pytest.mark.sampled(10)
def test_every_corpus_directory_takes_what_du_says(any_state: State):
    """This holds however the sum is split."""
    wanted = du(*any_state.log_dirs)
    for by in SplitBy:
        assert blocks(disk_usage(*any_state.log_dirs, by=by)) == wanted
    partitions = disk_usage(*any_state.log_dirs, by="partition").shares
    assert {
        os.path.join(one.log_dir or "", one.name or ""): one.usage.disk_bytes
        for one in partitions
        if one.topic is not None
    } == {str(path): du(path) for path in any_state.partitions()}


@pytest.fixture
def odd(disk_path: Path) -> Path:
    """Sparse and preallocated indexes, hard links, symbolic links, leftovers, foreign files."""
    log_dir = disk_path / "broker-1"
    for number in range(3):
        log = write_log(log_dir / f"orders-{number}", batch(0, [record(value=b"x" * 9000)]))
        with log.with_suffix(".index").open("wb") as sparse:
            sparse.truncate(10 << 20)
        with log.with_suffix(".timeindex").open("wb") as preallocated:
            os.posix_fallocate(preallocated.fileno(), 0, 1 << 20)
    first = next((log_dir / "orders-0").glob("*.log"))
    os.link(first, log_dir / "orders-1" / "00000000000000000009.log.deleted")
    os.link(first, log_dir / "orders-2" / "copy")
    (log_dir / "orders-0" / "link").symlink_to(first)
    (log_dir / "notes" / "deep").mkdir(parents=True)
    (log_dir / "notes" / "deep" / "text").write_bytes(b"x" * 50000)
    (log_dir / "elsewhere-0").symlink_to(log_dir / "orders-0")
    write_log(log_dir / f"gone-0.{'a' * 32}-delete", batch(0, [record()]))
    (log_dir / "meta.properties").write_text("version=1\n")
    return log_dir


def test_odd_files_count_as_in_du(odd: Path):
    """Holes take no space, preallocated space counts; several names of a file count once."""
    for by in SplitBy:
        report = disk_usage(odd, by=by)
        assert blocks(report) == du(odd)
        assert report.links == 2
    shares = {one.name: one.usage for one in disk_usage(odd).shares}
    assert shares["orders"].size_bytes > 33 << 20 > shares["orders"].disk_bytes > 3 << 20
    assert shares["orders"].copies == 3
    kinds = {one.name: one.usage for one in disk_usage(odd, by="kind").shares}
    assert kinds["index"].disk_bytes < 64 << 10 < 30 << 20 == kinds["index"].size_bytes
    assert kinds["timeindex"].disk_bytes >= 3 << 20
    assert kinds["delete"].leftover_bytes == kinds["delete"].disk_bytes > 0
    assert kinds["unknown"].disk_bytes >= 50000
    twice = disk_usage(odd, odd / "orders-0", odd)
    assert blocks(twice) == du(odd)


def test_several_log_directories_are_summed_per_topic(odd: Path):
    """A topic of all brokers is one row, a replica is one directory."""
    other = copy_tree(odd, odd.parent / "broker-2")
    report = disk_usage(odd.parent)
    assert blocks(report) == du(odd, other)
    [orders] = [one for one in report.shares if one.topic == "orders"]
    assert orders.usage.copies == 6
    names = {(one.log_dir, one.name) for one in disk_usage(odd.parent, by="partition").shares}
    assert {(str(odd), "orders-1"), (str(other), "orders-1")} <= names


def test_a_partition_or_a_file_is_a_place_of_its_own(odd: Path):
    """Like du, it takes any path."""
    assert blocks(disk_usage(odd / "orders-2")) == du(odd / "orders-2")
    log = next((odd / "orders-2").glob("*.log"))
    assert blocks(disk_usage(log)) == du(log)


def test_what_cannot_be_listed_is_reported(odd: Path, monkeypatch: pytest.MonkeyPatch):
    """The rest is counted; the test fakes the refusal, since root may list everything."""
    real = os.scandir

    def refuse(path: str):
        if str(path).endswith("orders-1"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    errors: list[KafkaLogError] = []

    class Heard(Listener):
        def hear(self, event: Event) -> None:
            if isinstance(event, KafkaLogError):
                errors.append(event)

    report = disk_usage(odd, listener=Heard())
    assert [type(error) for error in errors] == [UnreadableError]
    assert 0 < blocks(report) < du(odd)
    with pytest.raises(UnreadableError):
        disk_usage(odd)
