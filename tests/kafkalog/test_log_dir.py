"""Paths are recognised by name and content; odd entries never stop a listing."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from formats.file_names import DirectoryState, FileKind
from kafkalog.errors import KafkaLogError, NotAKafkaFileError, NotFoundError, UnreadableError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_partition, open_path
from kafkalog.model import LogView
from kafkalog.node.inventory import list_files, list_log_dirs, list_partitions, list_segments
from tests.builders import SEGMENT, batch, record, write_log

if TYPE_CHECKING:
    from tests.conftest import State

UID = "0123456789abcdef0123456789abcdef"


@pytest.mark.sampled(3)
def test_every_corpus_directory_is_what_it_is(any_state: State):
    """All log directories, partitions in any state, and all their files."""
    for log_dir in any_state.log_dirs:
        found = open_path(str(log_dir))
        assert isinstance(found, LogDirListing)
        directories = sorted(path.name for path in log_dir.iterdir() if path.is_dir())
        assert [os.path.basename(p.path) for p in found.partitions] == directories
        assert found.errors == {}
        files = sum(len(p.files) for p in found.partitions) + len(found.files)
        assert files == sum(path.is_file() for path in log_dir.rglob("*"))
        for partition in found.partitions:
            logs = sorted(Path(partition.path).glob("*.log"))
            assert [s.log.path for s in partition.segments] == [str(path) for path in logs]
            bases = [int(path.stem) for path in logs]
            assert [s.next_base_offset for s in partition.segments] == [*bases[1:], None][
                : len(bases)
            ]
            assert sum(s.is_active for s in partition.segments) == min(1, len(bases))


def used_bytes(path: Path) -> int:
    """Return the file's size; for an index at most what it occupies, as brokers preallocate."""
    status = path.stat()
    if not {".index", ".timeindex"}.intersection(path.suffixes):
        return status.st_size
    return min(status.st_size, 512 * status.st_blocks)


@pytest.mark.sampled(3)
def test_listings_have_a_row_for_each(any_state: State):
    """Sizes are those of the files; a log end is the end of the last batch."""
    targets = [open_path(str(log_dir)) for log_dir in any_state.log_dirs]
    assert [row.path for row in list_log_dirs(targets)] == [str(p) for p in any_state.log_dirs]
    rows = list(list_partitions(targets))
    assert [row.path for row in rows] == [str(p) for p in any_state.partitions()]
    for row in rows:
        assert row.size_bytes == sum(map(used_bytes, Path(row.path).iterdir()))
    segments = list(list_segments(targets, LogView.AS_IS))
    logs = [path for partition in any_state.partitions() for path in partition.glob("*.log")]
    assert sorted(row.path for row in segments) == sorted(map(str, logs))
    files = list(list_files(targets))
    wanted = [p for log_dir in any_state.log_dirs for p in log_dir.rglob("*") if p.is_file()]
    assert sorted(row.path for row in files) == sorted(map(str, wanted))


def test_a_file_is_told_by_its_name(tmp_path: Path):
    """The content does not matter; other names are refused."""
    path = write_log(tmp_path, b"")
    found = open_path(str(path))
    assert isinstance(found, FileEntry)
    assert found.name.kind == FileKind.LOG
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotAKafkaFileError):
        open_path(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("name", ["t-0", f"t-0.{UID}-delete", f"t-0.{UID}-future", "copy"])
def test_a_directory_with_segments_is_a_partition(tmp_path: Path, name: str):
    """A copy with another name is one, too."""
    write_log(tmp_path / name, batch(0, [record()]))
    found = open_path(str(tmp_path / name))
    assert isinstance(found, PartitionDir)
    assert found.topic == ("copy" if name == "copy" else "t")
    assert found.partition == (None if name == "copy" else 0)
    assert found.state in DirectoryState
    assert len(found.segments) == 1


def test_an_empty_partition_is_a_partition(tmp_path: Path):
    """A broker died between mkdir and writing the first segment."""
    (tmp_path / "t-0").mkdir()
    found = open_path(str(tmp_path / "t-0"))
    assert isinstance(found, PartitionDir)
    assert found.segments == ()
    [row] = list_partitions([found])
    assert (row.segments, row.size_bytes, row.log_end_offset) == (0, 0, None)
    assert list(list_segments([found])) == list(list_files([found])) == []


def test_a_directory_of_nothing_is_refused(tmp_path: Path):
    """It has neither partitions nor segments nor checkpoints."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "README").touch()
    for path in (tmp_path, tmp_path / "sub"):
        with pytest.raises(NotAKafkaFileError):
            open_path(str(path))


def test_a_log_directory_needs_no_meta_properties(tmp_path: Path):
    """Partitions are enough; other entries are listed as unknown."""
    write_log(tmp_path / "t-0", b"")
    (tmp_path / "lost+found").mkdir()
    found = open_path(str(tmp_path))
    assert isinstance(found, LogDirListing)
    assert found.others == ("lost+found",)


def test_paths_that_lead_nowhere(tmp_path: Path):
    """Missing, dangling, looping, too long, with a NUL, or below a file."""
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name in ("none", "dangling", "file/below", "", "nul\0"):
        with pytest.raises(NotFoundError):
            open_path(os.path.join(tmp_path, name) if name else "")
    for name in ("loop", "x" * 300, "x/" * 3000):
        with pytest.raises(KafkaLogError):
            open_path(os.path.join(tmp_path, name))


def test_links_to_directories_are_followed(tmp_path: Path):
    """`log.dirs` may contain links."""
    write_log(tmp_path / "real" / "t-0", batch(0, [record()]))
    (tmp_path / "link").symlink_to("real")
    assert isinstance(open_path(str(tmp_path / "link")), LogDirListing)
    assert len(open_partition(str(tmp_path / "link" / "t-0")).segments) == 1


def test_odd_entries_do_not_stop_a_listing(tmp_path: Path):
    """They are listed with a note of what is wrong."""
    write_log(tmp_path / "t-0", batch(0, [record()]))
    inside = tmp_path / "t-0"
    os.mkfifo(inside / "00000000000000000001.log")
    (inside / "00000000000000000002.log").mkdir()
    (inside / "00000000000000000003.log").symlink_to("nowhere")
    (inside / "00000000000000000004.log").symlink_to("00000000000000000004.log")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(inside / f"{SEGMENT}.index"))
    found = open_partition(str(inside))
    assert [entry.error is None for entry in found.files] == [False, True, *[False] * 4]
    assert len(found.segments) == 5
    assert len(list(list_segments([found]))) == 5
    [row] = list_partitions([found])
    assert row.odd_files == {"unknown": 5}


def test_a_directory_that_cannot_be_listed_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other directories are listed. The refusal is mocked, as root may read everything."""
    for name in ("t-0", "t-1"):
        write_log(tmp_path / name, batch(0, [record()]))
    real = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("t-0"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", refuse)
    found = open_path(str(tmp_path))
    assert isinstance(found, LogDirListing)
    assert [os.path.basename(p.path) for p in found.partitions] == ["t-1"]
    assert [type(error) for error in found.errors.values()] == [UnreadableError]
    with pytest.raises(UnreadableError):
        open_path(str(tmp_path / "t-0"))


def test_names_that_are_no_text_are_kept(tmp_path: Path):
    """Bytes that are not UTF-8 become surrogates and are written back unchanged."""
    directory = os.fsencode(tmp_path) + b"/t-0"
    os.mkdir(directory)
    for name in (b"\xff\xfe.log", b"a\nb", b"\x1b[31m", "\u202egpj.log".encode()):
        with open(directory + b"/" + name, "wb"):
            pass
    found = open_partition(os.fsdecode(directory))
    assert sorted(os.fsencode(entry.name.name) for entry in found.files) == sorted(
        os.listdir(directory)
    )
    assert {entry.name.kind for entry in found.files} == {FileKind.UNKNOWN}


def test_the_parent_of_log_directories_names_them(corpus_dir: Path):
    """Several disks of a broker often lie below one directory."""
    with pytest.raises(NotAKafkaFileError) as stop:
        open_path(str(corpus_dir / "kafka-4.3" / "jbod-live"))
    assert "logs-a, logs-b" in (stop.value.hint or "")


def test_names_alone_make_no_partitions(tmp_path: Path):
    """`/etc` has directories such as dbus-1; an empty partition directory still counts."""
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    (tmp_path / "polkit-1").mkdir()
    (tmp_path / "polkit-1" / "rules.d").mkdir()
    (tmp_path / "cron.d").mkdir()
    with pytest.raises(NotAKafkaFileError):
        open_path(str(tmp_path))
    (tmp_path / "orders-0").mkdir()
    found = open_path(str(tmp_path))
    assert isinstance(found, LogDirListing)
