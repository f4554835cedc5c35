"""A split is read from the planned files, or from what a running broker made of them."""

from __future__ import annotations

import json
import os
import shutil
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import ChangedSinceError, Listener, UnreadableError
from kafkalog.log.defects import Events
from kafkalog.model import Isolation
from kafkalog.node import claims
from kafkalog.tables import Request, Split, TableName, plan_splits, planning, read_split
from kafkalog.tables.moved import Losses, splits_now
from kafkalog.tables.reading import count_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, record, write_log
from tests.waiting import until_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import Result

IDS = "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
TOPIC_ID = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"
PER_SEGMENT = 20


def batches(first: int, count: int, epoch: int = 0) -> list[bytes]:
    """Return batches of three records, each with its offset as its value."""
    return [
        batch(start, [record(n, b"k%d" % n, b"%d" % (start + n)) for n in range(3)], epoch=epoch)
        for start in range(first, first + 3 * count, 3)
    ]


def make_log(log_dir: Path) -> Path:
    """Make a log directory with one partition of two segments."""
    partition = log_dir / "orders-0"
    for base in (0, 3 * PER_SEGMENT):
        some = batches(base, PER_SEGMENT)
        write_log(partition, *some, name=f"{base:020}")
        entries = [(3 * n + 2, sum(map(len, some[:n]))) for n in range(3, PER_SEGMENT, 3)]
        index = b"".join(struct.pack(">ii", *entry) for entry in entries)
        (partition / f"{base:020}.index").write_bytes(index)
    (log_dir / "meta.properties").write_text(IDS)
    (partition / "partition.metadata").write_text(TOPIC_ID)
    until_settled(log_dir)
    return partition


def offsets(splits: Sequence[Split], listener: Listener | None = None) -> list[int]:
    """Read splits as tasks do, each passed as JSON; return the offsets."""
    schema = table_schema(TableName.RECORDS, ["offset", "value"])
    rows: list[dict[str, Any]] = []
    for split in splits:
        split = Split.from_json(json.loads(json.dumps(split.as_json())))
        for one in read_split(split, schema, listener):
            rows += one.to_pylist()
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows]


def another_broker(log_dir: Path) -> None:
    (log_dir / "meta.properties").write_text(IDS.replace("node.id=1", "node.id=2"))


def another_directory(log_dir: Path) -> None:
    (log_dir / "meta.properties").write_text(IDS.replace("AQ\n", "BQ\n"))


def another_topic(log_dir: Path) -> None:
    (log_dir / "orders-0" / "partition.metadata").write_text(TOPIC_ID.replace("Ag", "Bg"))


def lagging(log_dir: Path) -> None:
    log = log_dir / "orders-0" / f"{3 * PER_SEGMENT:020}.log"
    log.write_bytes(b"".join(batches(3 * PER_SEGMENT, PER_SEGMENT - 1)))


def not_yet_rolled(log_dir: Path) -> None:
    (log_dir / "orders-0" / f"{3 * PER_SEGMENT:020}.log").unlink()


def filled_by_another_leader(log_dir: Path) -> None:
    log = log_dir / "orders-0" / f"{3 * PER_SEGMENT:020}.log"
    log.write_bytes(b"".join(batches(3 * PER_SEGMENT, PER_SEGMENT, epoch=1)))


def empty(log_dir: Path) -> None:
    shutil.rmtree(log_dir)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (another_broker, "node.id is 2 instead of 1"),
        (another_directory, "directory.id is AAAAAAAAAAAAAAAAAAAABQ instead of"),
        (another_topic, "topic id is AAAAAAAAAAAAAAAAAAAABg instead of"),
        (lagging, r"\.log has \d+ bytes instead of \d+"),
        (not_yet_rolled, f"{3 * PER_SEGMENT:020}.log is missing"),
        (filled_by_another_leader, "has other records"),
        (empty, "meta.properties is path-not-found"),
    ],
)
def test_other_files_at_the_same_path_are_refused(
    tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    """The worker's own disk has other data. The error names host, path and difference."""
    make_log(tmp_path / "driver" / "logs")
    shutil.copytree(tmp_path / "driver", tmp_path / "worker")
    change(tmp_path / "worker" / "logs")
    until_settled(tmp_path)
    here, there = tmp_path / "here", tmp_path / "driver"
    here.symlink_to(there)
    splits = plan_splits([str(here / "logs")], Request(split_bytes=300))
    assert len(splits) > 4
    assert offsets(splits) == [*range(6 * PER_SEGMENT)]
    here.unlink()
    here.symlink_to(tmp_path / "worker")
    whole = [one for one in splits if is_read(one)]
    if change is filled_by_another_leader:
        splits = [one for one in splits if one not in whole]  # closed segments are equal
        assert len(splits) >= 3
    else:
        assert not whole
    for split in splits:
        with pytest.raises(UnreadableError, match=words) as caught:
            offsets([split])
        assert "The worker on " in caught.value.message
        assert str(here) in str(caught.value)


def is_read(split: Split) -> bool:
    """Return whether a split is accepted and yields all of its rows."""
    try:
        found = offsets([split])
    except UnreadableError:
        return False
    first, last = split.first_offset, split.next_offset
    assert first is not None
    assert last is not None
    return found == [*range(first, last)]


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
@pytest.mark.parametrize("is_log", [True, False])
def test_a_name_that_no_file_can_have_is_missing(tmp_path: Path, name: str, is_log: bool) -> None:
    """A plan edited by hand is refused in the same way as another disk."""
    make_log(tmp_path)
    for split in plan_splits([str(tmp_path)], Request(split_bytes=300)):
        assert split.seen is not None
        assert split.seen.last_log is not None
        path = str(tmp_path / "orders-0" / name)
        of_log, of_part = replace(split.seen, last_log=(name, 0)), replace(split.seen, path=path)
        edited = replace(split, seen=of_log if is_log else of_part)
        with pytest.raises(UnreadableError, match="is missing"):
            offsets([edited])


def test_appending_and_rolling_changes_nothing(tmp_path: Path) -> None:
    """The log of a running broker grows while it is read."""
    partition = make_log(tmp_path)
    splits = plan_splits([str(tmp_path)], Request(split_bytes=300))
    last = partition / f"{3 * PER_SEGMENT:020}.log"
    last.write_bytes(last.read_bytes() + b"".join(batches(6 * PER_SEGMENT, 5)))
    write_log(partition, *batches(6 * PER_SEGMENT + 15, 2), name=f"{6 * PER_SEGMENT + 15:020}")
    assert offsets(splits)[: 6 * PER_SEGMENT] == [*range(6 * PER_SEGMENT)]


def test_a_compacted_log_is_listed_again(tmp_path: Path) -> None:
    """The offsets are in other files now; each remaining record is read once."""
    partition = make_log(tmp_path)
    splits = plan_splits([str(tmp_path)], Request(split_bytes=300))
    kept = batches(0, PER_SEGMENT)[::4] + batches(3 * PER_SEGMENT, PER_SEGMENT)[::4]
    for path in [*partition.glob("*.index"), partition / f"{3 * PER_SEGMENT:020}.log"]:
        path.unlink()
    new = partition / "new"
    new.write_bytes(b"".join(kept))
    new.rename(partition / f"{0:020}.log")
    write_log(partition, *batches(6 * PER_SEGMENT, 1), name=f"{6 * PER_SEGMENT:020}")
    found = offsets(splits)
    wanted = [n for n in range(6 * PER_SEGMENT) if n // 3 % 4 == 0]
    assert found[: len(wanted)] == wanted
    assert len(found) == len(set(found))


def test_a_partition_that_kafkalog_compacts_meanwhile(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """kafkalog compacts it between plan and tasks; the tasks read what a new plan would find."""
    partition = make_log(tmp_path)
    kafkalog("recover", tmp_path, "--apply", "--yes")
    until_settled(tmp_path)
    before = offsets(splits := plan_splits([str(tmp_path)], Request(split_bytes=300)))
    done = kafkalog(
        "compact", partition, "--apply", "--yes", "--config", "cleanup.policy=compact",
        "--high-watermark", "end", "--now", "1700000600000",
    )  # fmt: skip
    assert done.status == 0, done
    after = offsets(plan_splits([str(tmp_path)], Request(split_bytes=300)))
    assert len(after) < len(before)
    assert offsets(splits) == after


def test_deleted_and_cut_offsets_are_an_error(tmp_path: Path) -> None:
    """Fewer rows than planned are an error. A caller that accepts losses gets each lost range."""
    partition = make_log(tmp_path)
    bounded = Request(isolation=Isolation.LOG, split_bytes=300)
    splits = plan_splits([str(tmp_path)], bounded)
    (partition / f"{0:020}.log").unlink()
    with pytest.raises(ChangedSinceError, match="Its log starts at offset 60 now"):
        offsets(splits)
    told = Events()
    assert offsets(splits, told) == [*range(3 * PER_SEGMENT, 6 * PER_SEGMENT)]
    of_first = [one for one in splits if one.path.endswith(f"{0:020}.log")]
    assert len(of_first) > 1
    assert [(one.reference, one.offset, one.detail) for one in told.defects] == [
        ("deleted-while-reading", one.first_offset,
         (f"Offsets {one.first_offset} to {(one.next_offset or 0) - 1} of orders-0 were deleted "
         "after they were planned. Its log starts at offset 60 now."))
        for one in of_first
    ]  # fmt: skip
    (partition / f"{3 * PER_SEGMENT:020}.log").write_bytes(b"".join(batches(60, 5)))
    with pytest.raises(ChangedSinceError, match="Its log ends at offset 75 now"):
        offsets(splits[-1:])


@pytest.mark.parametrize("table", [TableName.RECORDS, TableName.BATCHES, TableName.DEFECTS])
def test_a_partition_that_is_deleted_meanwhile_is_a_loss(tmp_path: Path, table: TableName) -> None:
    """A broker renames its directory. The log directory stays, and the error says it changed."""
    partition = make_log(tmp_path)
    [split, _] = plan_splits([str(tmp_path)], Request(table, isolation=Isolation.LOG))
    partition.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    schema = table_schema(table)
    with pytest.raises(ChangedSinceError, match="The partition is not here any more"):
        list(read_split(split, schema))
    told = Events()
    assert sum(found.num_rows for found in read_split(split, schema, told)) == 0
    assert [one.detail for one in told.defects] == [
        (
            "Offsets 0 to 59 of orders-0 were deleted after they were planned. "
            "The partition is not here any more."
        )
    ]


def two_log_dirs(root: Path) -> tuple[Path, Path]:
    """Return a partition in one log directory of a node, and where it would be in the other."""
    for name in ("one", "other"):
        (root / name).mkdir()
    partition = make_log(root / "one")
    (root / "other" / "meta.properties").write_text(IDS)
    return partition, root / "other" / partition.name


@pytest.mark.parametrize("table", TableName)
def test_what_moves_to_another_given_log_directory_is_no_loss(
    tmp_path: Path, table: TableName
) -> None:
    """Before it is read; `sql` and exports plan all of it first."""
    partition, place = two_log_dirs(tmp_path)
    paths = [str(partition.parent), str(place.parent)]
    splits = plan_splits(paths, Request(table, isolation=Isolation.LOG, split_bytes=300))
    schema = table_schema(table)
    names = [name for name in schema.names if name not in ("path", "log_dir")]

    def rows() -> list[dict[str, Any]]:
        found = [one.to_pylist() for split in splits for one in read_split(split, schema)]
        return [{name: row[name] for name in names} for some in found for row in some]

    wanted = rows()
    shutil.move(partition, place)
    assert rows() == wanted


def test_a_log_that_was_cut_and_filled_again_is_another_one(tmp_path: Path) -> None:
    """It has all offsets, but from another leader: rows of both would be of no log."""
    partition = make_log(tmp_path)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    splits = plan_splits([str(tmp_path)], Request(isolation=Isolation.LOG, split_bytes=300))
    last = partition / f"{3 * PER_SEGMENT:020}.log"
    last.unlink()
    last.write_bytes(b"".join(batches(3 * PER_SEGMENT, PER_SEGMENT + 1, epoch=5)))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n5 {3 * PER_SEGMENT}\n")
    assert offsets(splits[:1])[0] == 0
    with pytest.raises(ChangedSinceError, match="has other records there now"):
        offsets(splits)


def test_a_last_batch_that_became_longer_hides_no_record(tmp_path: Path) -> None:
    """Up to the planned end its bytes are the same but for its header."""

    def of(first: int, count: int) -> bytes:
        return batch(first, [record(i, b"key", b"value-%d" % (first + i)) for i in range(count)])

    log = write_log(tmp_path / "orders-0", of(0, 10), of(10, 40))
    [split] = plan_splits([str(tmp_path)], Request(isolation=Isolation.LOG))
    write_log(tmp_path / "orders-0", of(0, 10), of(10, 60))
    with log.open("rb") as changed:
        assert os.pread(changed.fileno(), 64, split.end - 64) == of(10, 40)[-64:]
    words = "Its offsets from 10 are in a longer batch now"
    with pytest.raises(ChangedSinceError, match=words):
        offsets([split])
    with pytest.raises(ChangedSinceError, match=words):
        list(count_split(split))


def test_the_last_log_may_have_a_swap_after_it(tmp_path: Path) -> None:
    """The next start completes it: the log ends there, whatever the last one with its name is."""
    far = 1 << 31
    first, second = ([record(i, None, b"%d" % (at + i)) for i in range(10)] for at in (0, far))
    write_log(tmp_path / "orders-0", batch(0, first))
    swap = write_log(tmp_path / "orders-0", batch(far, second), name=f"{far:020}")
    swap.rename(f"{swap}.swap")
    splits = plan_splits([str(tmp_path)], Request(isolation=Isolation.LOG), Listener())
    assert offsets(splits) == [*range(10), *range(far, far + 10)]


def test_a_topic_that_is_made_again_meanwhile_is_a_loss(tmp_path: Path) -> None:
    """Its rows never stand in for the planned ones, even if the files look alike."""
    partition = make_log(tmp_path)
    splits = plan_splits([str(tmp_path)], Request(isolation=Isolation.LOG, split_bytes=300))
    shutil.copytree(partition, tmp_path / "new")
    partition.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    (tmp_path / "new").rename(partition)
    another_topic(tmp_path)
    with pytest.raises(ChangedSinceError, match="The topic was deleted and created again"):
        offsets(splits)
    told = Events()
    assert offsets(splits, told) == []
    assert len(told.heard) == len(splits)


def test_a_partition_that_is_deleted_while_its_ids_are_read_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker renames the directory right after the check that it exists."""
    partition = make_log(tmp_path)
    splits = plan_splits([str(tmp_path)], Request(TableName.RECORDS, isolation=Isolation.LOG))
    real = claims.ids_of

    def late(directory: str) -> tuple[tuple[str, str], ...]:
        if partition.exists():
            partition.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
        return real(directory)

    monkeypatch.setattr(claims, "ids_of", late)
    told = Events()
    assert offsets(splits[:1], told) == []
    assert [one.reference for one in told.defects] == ["deleted-while-reading"]


def test_what_is_deleted_in_mid_read_is_reported_once(tmp_path: Path) -> None:
    """The files go away twice after the first batches are read; each loss is reported once."""
    partition = make_log(tmp_path)
    split = plan_splits([str(partition)], Request(isolation=Isolation.LOG))[0]
    split = replace(split, first_offset=30, next_offset=6 * PER_SEGMENT)
    told = Events()
    losses = Losses(split, told)
    (partition / f"{0:020}.log").unlink()
    for _ in range(2):
        found = splits_now(split, losses)
        assert [one.first_offset for one in found] == [3 * PER_SEGMENT]
    write_log(partition, *batches(90, 10), name=f"{90:020}")
    (partition / f"{3 * PER_SEGMENT:020}.log").unlink()
    assert [one.first_offset for one in splits_now(split, losses)] == [90]
    assert [(one.offset, one.detail.partition(" of ")[0]) for one in told.defects] == [
        (30, "Offsets 30 to 59"), (60, "Offsets 60 to 89")
    ]  # fmt: skip


def test_what_is_deleted_while_the_rest_is_planned_again_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention takes the first segment, and a second one before the new plan has opened it."""
    partition = make_log(tmp_path)
    write_log(partition, *batches(120, 10), name=f"{120:020}")
    split = plan_splits([str(partition)], Request(isolation=Isolation.LOG))[0]
    split = replace(split, first_offset=30, next_offset=6 * PER_SEGMENT)
    (partition / f"{0:020}.log").unlink()
    real = planning.splits_of

    def late(*args: Any, **options: Any) -> Any:
        (partition / f"{3 * PER_SEGMENT:020}.log").unlink(missing_ok=True)
        return real(*args, **options)

    monkeypatch.setattr(planning, "splits_of", late)
    told = Events()
    assert splits_now(split, Losses(split, told)) == []
    assert [one.detail.partition(" of ")[0] for one in told.defects] == [
        "Offsets 30 to 59", "Offsets 60 to 119"
    ]  # fmt: skip


@pytest.mark.parametrize("table", [TableName.SEGMENTS, TableName.PRODUCERS, TableName.BATCHES])
def test_other_tables_refuse_another_disk(tmp_path: Path, table: TableName) -> None:
    make_log(tmp_path / "logs")
    splits = plan_splits([str(tmp_path / "logs")], Request(table))
    assert splits
    another_broker(tmp_path / "logs")
    with pytest.raises(UnreadableError, match=r"node\.id is 2 instead of 1"):
        [*read_split(splits[0], table_schema(table))]
