"""A path may be the parent of log directories: it stands for all of them and for nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.answers.disk_usage import disk_usage
from kafkalog.errors import NotAKafkaFileError, Note, UnreadableError
from kafkalog.files import log_dir as log_dirs
from kafkalog.files import parents
from kafkalog.files.log_dir import LogDirListing, PartitionDir, open_path
from kafkalog.node import targets
from kafkalog.node.targets import open_targets, partitions_of
from tests.builders import batch, record, write_log
from tests.stores import running_store

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.errors import Event


def log_dir(path: Path, *partitions: str, marked: bool = True) -> Path:
    """A log directory with a record in each of its partitions."""
    for name in partitions:
        write_log(path / name, batch(0, [record()]))
    path.mkdir(parents=True, exist_ok=True)
    if marked:
        (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return path


def opened(path: Path) -> list[str]:
    """Return the log directories that a path stands for, relative to it."""
    found = open_targets([path])
    assert all(isinstance(one, LogDirListing) for one in found)
    return [os.path.relpath(one.path, path) for one in found]


@pytest.mark.parametrize("names", [
    ["a", "b"], ["broker-1", "broker-2"], ["broker-1/disk-0", "broker-1/disk-1", "broker-2/data"],
    ["broker-1/var/lib/kafka"],
])  # fmt: skip
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("parent", ["backup", "backup-7"])
def test_log_directories_are_found(tmp_path: Path, names: list[str], marked: bool, parent: str):
    """Broker folders have names like partitions; copies may lack the files at the top."""
    for name in names:
        log_dir(tmp_path / parent / name, "orders-0", "orders-1", marked=marked)
    (tmp_path / parent / "notes").mkdir()
    (tmp_path / parent / "README").touch()
    assert opened(tmp_path / parent) == sorted(names)
    with pytest.raises(NotAKafkaFileError, match="one path is needed") as stop:
        open_path(str(tmp_path / parent))
    assert ", ".join(sorted(names)) in (stop.value.hint or "")


def test_a_log_directory_is_no_parent(tmp_path: Path):
    """A directory with files of Kafka's is a log directory or partition, whatever else is in it."""
    for marked in (True, False):
        outer = log_dir(tmp_path / f"marked-{marked}", "orders-0", marked=marked)
        log_dir(outer / "backup", "orders-0")
        assert opened(outer) == ["."]
    partition = write_log(tmp_path / "t-0", batch(0, [record()])).parent
    log_dir(partition / "inner", "orders-0")
    [found] = open_targets([partition])
    assert isinstance(found, PartitionDir)


def test_deeper_ones_are_not_looked_for(tmp_path: Path):
    """The depth limit is documented; a path that holds none within it is refused as before."""
    log_dir(tmp_path / "1/2/3/4/5", "orders-0")
    with pytest.raises(NotAKafkaFileError, match="neither"):
        open_targets([tmp_path])
    assert opened(tmp_path / "1") == ["2/3/4/5"]


def test_the_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It ends with an error, never with part of the answer; links upwards end it, too."""
    for name in ("a", "b", "c"):
        log_dir(tmp_path / name, "orders-0")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to("..")
    (tmp_path / "current").symlink_to("b")
    assert opened(tmp_path) == ["a", "b", "c"]
    monkeypatch.setattr(parents, "_LISTINGS_MAX", 2)
    with pytest.raises(NotAKafkaFileError, match="there are more"):
        open_targets([tmp_path])


def test_what_cannot_be_listed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It may be a disk's log directory. lost+found, which only root may list, is not one."""
    for name in ("a", "b", "lost+found"):
        log_dir(tmp_path / name, "orders-0")
    real = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith(("/b", "lost+found")):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", refuse)
    events: list[Event] = []
    found = open_targets([tmp_path], hear=events.append)
    note, *errors = events
    assert [os.path.basename(one.path) for one in found] == ["a"]
    assert [(type(one), os.path.basename(getattr(one, "path", ""))) for one in errors] == [
        (UnreadableError, "b")
    ]
    assert note == Note(f"{tmp_path} holds 2 log directories: a, b")
    with pytest.raises(UnreadableError):
        open_targets([tmp_path])


def test_the_library_takes_parents(corpus_dir: Path):
    """A run over a broker's disks is a run over each of them."""
    parent = corpus_dir / "kafka-4.3" / "jbod-restarted"
    disks = sorted(path for path in parent.iterdir() if path.is_dir())
    assert len(disks) == 2
    assert list(kafkalog.verify(parent)) == list(kafkalog.verify(*disks))
    of_parent, of_disks = (
        [(one.partition.path, one.verdicts) for one in kafkalog.simulate_retention(*paths)]
        for paths in ([parent], disks)
    )
    assert of_parent == of_disks
    assert len(of_parent) > 3


def test_log_directories_in_a_store_are_found(tmp_path: Path):
    """They are found as on a disk."""
    for name in ("broker-1", "broker-2"):
        log_dir(tmp_path / name, "orders-0", "orders-1")
    with running_store() as store:
        store.upload(tmp_path, "backup")
        found = open_targets([store.uri("backup")])
        assert [one.path for one in found] == [
            "s3://logs/backup/broker-1", "s3://logs/backup/broker-2"
        ]  # fmt: skip
        assert [len(one.partitions) for one in found if isinstance(one, LogDirListing)] == [2, 2]
        total = disk_usage(store.uri("backup"), by="partition").total
        sizes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        assert (total.disk_bytes, total.size_bytes, total.copies) == (sizes, sizes, 4)


@pytest.mark.parametrize("names", [["a", "b"], ["b", "a"]])
def test_a_partition_that_moves_between_two_listings_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
):
    """It leaves the one for the other when the first of them has been listed."""
    log_dir(tmp_path / "a", "orders-0", "kept-0")
    log_dir(tmp_path / "b", "other-0")
    listings = iter(
        [lambda: None, lambda: (tmp_path / "a/orders-0").rename(tmp_path / "b/orders-0")]
    )

    def open_any(*args: Any) -> Any:
        next(listings, lambda: None)()
        return log_dirs.open_any(*args)

    monkeypatch.setattr(targets, "open_any", open_any)
    found = partitions_of(open_targets(tmp_path / name for name in names))
    assert sorted(one.path.removeprefix(f"{tmp_path}/") for one in found) == [
        "a/kept-0", "b/orders-0", "b/other-0"
    ]  # fmt: skip


def test_a_partition_that_is_in_two_places_for_a_moment_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A broker gives the new directory its name before it takes it from the old one."""
    paths = [log_dir(tmp_path / name, "orders-0") for name in ("a", "b")]
    assert len(list(partitions_of(open_targets(paths)))) == 2  # without a broker they stay
    monkeypatch.setattr(targets, "is_broker_running", lambda _: True)
    leaving = paths[0] / "orders-0"
    monkeypatch.setattr(targets, "pause", lambda: leaving.rename(f"{leaving}.{'0' * 32}-delete"))
    found = [one for one in partitions_of(open_targets(paths)) if one.is_served]
    assert [one.path for one in found] == [str(paths[1] / "orders-0")]
