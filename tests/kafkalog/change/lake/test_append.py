"""A table that grows: each record once, whatever happens to logs and runs; each gap is named."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafkalog
from kafkalog.change.lake import Accepted, Append, Export, ExportRequest
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    RefusedError,
    UsageError,
)
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Replicas
from kafkalog.tables import Request
from kafkalog.tables.tailing import Tail
from tests.builders import flip, frames, write_log
from tests.kafkalog.change.lake.appending import (
    DELTA,
    FILES,
    ICEBERG,
    REQUEST,
    Inline,
    add,
    append,
    asking,
    data_files,
    grow,
    rows,
    rows_of,
)
from tests.kafkalog.change.lake.exporting import export, files_of, table_of
from tests.kafkalog.tables.test_other_disks import IDS, TOPIC_ID, batches, make_log, two_log_dirs
from tests.kafkalog.tables.test_tailing import note_epochs
from tests.stores import running_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.change.lake.model import TableFormat
    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

COMMIT = "_kafkalog/commits/00000000.json"


@pytest.mark.parametrize("first", ["one", "other"])
def test_a_partition_that_moves_during_a_run_has_no_gap(tmp_path: Path, first: str) -> None:
    """It moves after the plan, and back before the next run."""
    partition, place = two_log_dirs(tmp_path)
    paths = sorted((partition.parent, place.parent), key=lambda path: path.name != first)

    class Moving(Inline):
        def run(self, function: Any, tasks: Any) -> Any:
            shutil.move(partition, place)
            return super().run(function, tasks)

    [done] = add(asking(*paths), str(tmp_path / "lake"), Moving())
    assert (done.rows, done.gaps) == (120, ())
    grow(place, 120, 4)
    shutil.move(place, partition)
    [done] = append(*paths, to=tmp_path / "lake")
    assert (done.rows, done.gaps) == (12, ())
    assert rows_of(tmp_path / "lake") == rows(0, 132)


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_each_run_adds_what_is_new(tmp_path: Path, form: TableFormat) -> None:
    """The partition may have moved; a run without news changes nothing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(IDS)
    partition, to = make_log(tmp_path / "a"), tmp_path / "lake"
    [first] = append(tmp_path / "a", to=to, form=form)
    assert (first.rows, first.gaps, first.was_complete) == (120, (), False)
    assert rows_of(to, form) == rows(0, 120)
    before = files_of(to)
    [none] = append(tmp_path / "a", to=to, form=form)
    assert none.was_complete
    assert files_of(to) == before
    grow(partition, 120, 4)
    shutil.move(partition, tmp_path / "b")
    grow(tmp_path / "b" / "orders-0", 132, 1)
    write_log(tmp_path / "b" / "plain-0", *batches(0, 1))  # a topic without id, too
    [third] = append(tmp_path / "a", tmp_path / "b", to=to, form=form)
    assert third.rows == 18
    assert rows_of(to, form) == sorted([*rows(0, 135), *rows(0, 3)])
    assert (to / "_SUCCESS").exists()
    if form == DELTA:
        table = DeltaTable(to)
        assert table.version() == 1
        assert table.transaction_version("kafkalog") == 1
        topic_id = TOPIC_ID.split()[-1]
        assert table.transaction_version(f"kafkalog orders-0@{topic_id}") == 135


def test_the_function(tmp_path: Path) -> None:
    """It works like the command; the default request takes each partition once."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    plan = kafkalog.export(tmp_path / "log", to=to, request=REQUEST, append=True)
    assert not to.exists()
    assert plan.apply().rows == 120
    grow(partition, 150, 1)
    (partition / f"{0:020}.log").unlink()
    (partition / f"{60:020}.log").unlink()
    with pytest.raises(RefusedError):
        plan.apply()
    again = kafkalog.export(tmp_path / "log", to=to, request=REQUEST, append=True, allow_gaps=True)
    done = again.apply()
    assert (done.rows, len(done.gaps)) == (3, 1)


def test_files_of_a_delta_table_may_be_merged(tmp_path: Path) -> None:
    """Delta's own tools merge them between two runs; the small files are removed then."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to, form=DELTA)
    grow(partition, 120, 4)
    append(tmp_path / "log", to=to, form=DELTA)
    merged = DeltaTable(to).optimize.compact()
    assert merged["numFilesAdded"] == 1
    DeltaTable(to).vacuum(0, dry_run=False, enforce_retention_duration=False)
    grow(partition, 132, 1)
    assert append(tmp_path / "log", to=to, form=DELTA)[0].rows == 3
    assert rows_of(to, DELTA) == rows(0, 135)


def test_a_log_that_grows_within_a_batch_range(tmp_path: Path) -> None:
    """The high watermark moves inside one file: positions are the same, offsets are not."""
    make_log(tmp_path / "log")
    to = tmp_path / "lake"
    for at in (70, 71, 71, 65, 95, 120):
        note = tmp_path / "log" / "replication-offset-checkpoint"
        note.write_text(f"0\n1\norders 0 {at}\n")
        append(tmp_path / "log", to=to)
        assert rows_of(to) == rows(0, max(at, 71 if at == 65 else 0))


def test_records_that_are_gone_end_the_run(tmp_path: Path) -> None:
    """Retention deleted records before any run: nothing is committed before a gap is allowed."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to)
    grow(partition, 120, 5)
    grow(partition, 135, 5)
    for path in (partition / f"{base:020}.log" for base in (0, 60, 120)):
        path.unlink()
    before = files_of(to)
    with pytest.raises(RefusedError, match="starts at offset 135, and 120 was to be read next"):
        append(tmp_path / "log", to=to)
    assert files_of(to) == before
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    [gap] = done.gaps
    assert (gap.topic, gap.partition, gap.topic_id) == ("orders", 0, TOPIC_ID.split()[-1])
    assert (gap.first_offset, gap.last_offset, gap.reason) == (120, 134, "deleted")
    assert rows_of(to) == [*rows(0, 120), *rows(135, 150)]
    assert append(tmp_path / "log", to=to)[0].was_complete


def test_a_lost_segment_is_a_gap(tmp_path: Path) -> None:
    """It is missing between two segments that exist."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to)
    for first in (120, 135, 150):
        grow(partition, first, 5)
    (partition / f"{135:020}.log").unlink()
    with pytest.raises(RefusedError, match="lacks the offsets 135 to 149"):
        append(tmp_path / "log", to=to)
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    assert [(one.first_offset, one.last_offset, one.reason) for one in done.gaps] == [
        (135, 149, "missing")
    ]
    assert rows_of(to) == [*rows(0, 135), *rows(150, 165)]


@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_what_damage_hides_is_refused_or_a_gap_of_the_commit(
    tmp_path: Path, form: TableFormat
) -> None:
    """A displaced batch loses nothing; what a damaged one hides comes from a sound copy, or never.

    Otherwise the next run would have nothing to add, and nobody would hear of these records again.
    """
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    log = partition / f"{60:020}.log"
    sound = log.read_bytes()
    places = frames(sound)
    data = flip(sound, 8 * places[2][0] + 3)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    log.write_bytes(data)
    append(tmp_path / "log", to=tmp_path / "displaced", form=form)
    damaged = flip(data, 8 * (sum(places[4]) - 1))
    log.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(RefusedError, match="orders-0, offsets 72 to 74: Batch at"):
            append(tmp_path / "log", to=to, form=form, accepted=Accepted(gaps=True))
        assert not data_files(to)
    append(tmp_path / "log", tmp_path / "copy", to=tmp_path / "both", form=form)
    assert rows_of(tmp_path / "both", form) == rows(0, 120)
    [done] = append(tmp_path / "log", to=to, form=form, accepted=Accepted(damage=True))
    assert [(one.first_offset, one.last_offset, one.reason) for one in done.gaps] == [
        (72, 74, "damaged")
    ]
    assert rows_of(to, form) == [*rows(0, 72), *rows(75, 120)]
    assert append(tmp_path / "log", to=to, form=form)[0].was_complete
    log.write_bytes(damaged + b"".join(batches(120, 1)))
    [then] = append(tmp_path / "log", to=to, form=form)
    assert (then.rows, then.gaps) == (3, ())
    if form != ICEBERG:
        increment = json.loads((to / COMMIT).read_text())["increment"]
        [gap] = increment["gaps"]
        assert (gap["first_offset"], gap["last_offset"]) == (72, 74)


def test_a_topic_that_was_made_again(tmp_path: Path) -> None:
    """The new topic begins at its start; what may be missing of the old one is named once."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to)
    shutil.rmtree(partition)
    (tmp_path / "log" / "other-0").mkdir()
    with pytest.raises(RefusedError, match="not here any more; 120 was to be read next"):
        append(tmp_path / "log", to=to)
    [gone] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    assert [(one.first_offset, one.last_offset, one.reason) for one in gone.gaps] == [
        (120, None, "gone")
    ]
    assert append(tmp_path / "log", to=to)[0].was_complete
    write_log(partition, *batches(0, 2))
    (partition / "partition.metadata").write_text(TOPIC_ID.replace("Ag", "Bg"))
    [done] = append(tmp_path / "log", to=to)
    assert (done.rows, done.gaps) == (6, ())
    assert rows_of(to) == sorted([*rows(0, 120), *rows(0, 6)])
    grow(partition, 6, 1)
    assert append(tmp_path / "log", to=to)[0].rows == 3


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_that_is_deleted_while_a_run_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """It is named once, from the first offset that no run has exported."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    write_log(tmp_path / "log" / "stays-0", *batches(0, 1))
    if is_known:
        append(tmp_path / "log", to=to)
        grow(partition, 120, 1)
    else:
        shutil.move(partition, tmp_path / "aside")
        append(tmp_path / "log", to=to)
        shutil.move(tmp_path / "aside", partition)
    ends = Tail.end

    def ending(tail: Tail, **options: Any) -> Any:
        found = ends(tail, **options)
        shutil.rmtree(partition)
        return found

    monkeypatch.setattr(Tail, "end", ending)
    grow(tmp_path / "log" / "stays-0", 3, 1)
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    first = 120 if is_known else 0
    assert [(one.topic, one.first_offset, one.reason) for one in done.gaps] == [
        ("orders", first, "gone")
    ]
    monkeypatch.undo()
    grow(tmp_path / "log" / "stays-0", 6, 1)
    [then] = append(tmp_path / "log", to=to)
    assert (then.rows, then.gaps) == (3, ())


def test_a_new_log_that_has_lost_its_beginning(tmp_path: Path) -> None:
    """A topic was created after the last run, and retention was faster than the next run."""
    make_log(tmp_path / "log")
    to = tmp_path / "lake"
    append(tmp_path / "log", to=to)
    write_log(tmp_path / "log" / "fast-0", *batches(30, 2), name=f"{30:020}")
    with pytest.raises(RefusedError, match="starts at offset 30, and 0 was to be read next"):
        append(tmp_path / "log", to=to)
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    assert [(one.topic, one.first_offset, one.last_offset) for one in done.gaps] == [
        ("fast", 0, 29)
    ]
    assert done.rows == 6


def test_a_log_that_was_cut_and_filled_again(tmp_path: Path) -> None:
    """Rows that the log no longer has stay; a gap names them, and their replacements follow."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    note_epochs(partition, (0, 0))
    append(tmp_path / "log", to=to)
    (partition / f"{60:020}.log").write_bytes(b"".join(batches(60, 10) + batches(90, 12, epoch=1)))
    (partition / f"{60:020}.index").unlink()
    note_epochs(partition, (0, 0), (1, 90))
    with pytest.raises(RefusedError, match="another one from offset 90 on"):
        append(tmp_path / "log", to=to)
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    [gap] = done.gaps
    assert (gap.first_offset, gap.last_offset, gap.reason) == (90, 119, "cut")
    assert rows_of(to) == sorted([*rows(0, 120), *rows(90, 126)])
    found = table_of(to).select(["offset", "leader_epoch"]).to_pylist()
    assert [row["leader_epoch"] for row in found if row["offset"] == 90] in ([0, 1], [1, 0])
    assert append(tmp_path / "log", to=to)[0].was_complete


def test_an_older_copy_adds_nothing(tmp_path: Path) -> None:
    """The disk of a replica that lags is no reason to export anything again."""
    partition, to = make_log(tmp_path / "new"), tmp_path / "lake"
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    grow(partition, 120, 5)
    append(tmp_path / "new", to=to)
    assert append(tmp_path / "old", to=to)[0].was_complete
    grow(partition, 135, 1)
    assert append(tmp_path / "new", to=to)[0].rows == 3
    assert rows_of(to) == rows(0, 138)


def test_what_is_deleted_during_a_run_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted between the plan and the read; the next run names the gap."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to)
    grow(partition, 120, 4)
    grow(partition, 132, 4)
    before = files_of(to)

    def deleting(_: Inline, *arguments: Any) -> Iterator[Any]:
        for base in (0, 60, 120):
            (partition / f"{base:020}.log").unlink(missing_ok=True)
        return LocalEngine(1).run(*arguments)

    monkeypatch.setattr(Inline, "run", deleting)
    with pytest.raises(RefusedError, match="Offsets 120 to 131 of orders-0 were deleted"):
        append(tmp_path / "log", to=to)
    assert files_of(to) == before
    with pytest.raises(RefusedError, match="starts at offset 132"):
        append(tmp_path / "log", to=to)
    [done] = append(tmp_path / "log", to=to, accepted=Accepted(gaps=True))
    assert [(one.first_offset, one.last_offset) for one in done.gaps] == [(120, 131)]
    assert rows_of(to) == [*rows(0, 120), *rows(132, 144)]


def test_other_kinds_of_exports_do_not_mix(tmp_path: Path) -> None:
    """Neither with a table that grows, nor with an export with other options."""
    make_log(tmp_path / "log")
    append(tmp_path / "log", to=tmp_path / "grows")
    export([tmp_path / "log"], tmp_path / "once")
    with pytest.raises(DestinationExistsError, match="without --append"):
        append(tmp_path / "log", to=tmp_path / "once")
    with pytest.raises(DestinationExistsError, match="grows run by run"):
        export([tmp_path / "log"], tmp_path / "grows")
    with pytest.raises(DestinationExistsError, match="other table_format"):
        append(tmp_path / "log", to=tmp_path / "grows", form=DELTA)


def _without_increment(commit: dict[str, Any]) -> None:
    del commit["increment"]


def _negative(commit: dict[str, Any]) -> None:
    commit["increment"]["end"] = {"orders-0": [-1, 0]}


def _list(commit: dict[str, Any]) -> None:
    commit["increment"]["end"] = {"orders-0": [5]}


@pytest.mark.parametrize("edit", [_without_increment, _negative, _list])
def test_an_edited_commit_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None]
) -> None:
    """Nothing is guessed from it."""
    make_log(tmp_path / "log")
    to = tmp_path / "lake"
    append(tmp_path / "log", to=to)
    commit = json.loads((to / COMMIT).read_text())
    edit(commit)
    (to / COMMIT).write_text(json.dumps(commit))
    with pytest.raises(CorruptDataError, match="not a commit of an export"):
        append(tmp_path / "log", to=to)


def test_a_missing_commit_is_noticed(tmp_path: Path) -> None:
    """It is one in the middle, or the last one of a Delta table."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    for first in (120, 132):
        append(tmp_path / "log", to=to, form=DELTA)
        grow(partition, first, 4)
    (to / "_kafkalog/commits/00000001.json").unlink()
    with pytest.raises(CorruptDataError, match=r"Delta table is 1, and that in \S+ is 0"):
        append(tmp_path / "log", to=to, form=DELTA)
    append(tmp_path / "log", to=tmp_path / "other")
    grow(partition, 144, 1)
    append(tmp_path / "log", to=tmp_path / "other")
    (tmp_path / "other" / COMMIT).unlink()
    with pytest.raises(CorruptDataError, match="Commits of the table are missing"):
        append(tmp_path / "log", to=tmp_path / "other")


def test_two_runs_at_once(tmp_path: Path) -> None:
    """The one that planned before the other committed is refused."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to)
    grow(partition, 120, 1)
    asked = ExportRequest((str(tmp_path / "log"),), REQUEST, append=True)
    late = Append(asked, str(to))
    plan = late._plan

    def planning() -> Any:
        planned = plan()
        append(tmp_path / "log", to=to)
        return planned

    late._plan = planning  # type: ignore[method-assign]
    with pytest.raises(ChangedSinceError, match="Another run has added"):
        late.__enter__()
    assert rows_of(to) == rows(0, 123)


def test_bounds_do_not_fit(tmp_path: Path) -> None:
    """Only the last commit decides what is exported."""
    make_log(tmp_path / "log")
    asked = ExportRequest((str(tmp_path / "log"),), Request(replicas=Replicas.ALL), append=True)
    with pytest.raises(UsageError, match="--replicas best"):
        Export(asked, str(tmp_path / "lake")).__enter__()


def test_objects(tmp_path: Path) -> None:
    """The export reads from a bucket and writes into a bucket."""
    partition = make_log(tmp_path / "log")
    with running_store() as store:
        store.upload(tmp_path / "log", "logs-now")
        to = store.uri("table")
        [first] = append(store.uri("logs-now"), to=to)
        assert first.rows == 120
        grow(partition, 120, 3)
        store.upload(tmp_path / "log", "logs-now")
        [second] = append(store.uri("logs-now"), to=to)
        assert (second.rows, second.parts[0].first_offset) == (9, 120)
        assert append(store.uri("logs-now"), to=to)[0].was_complete


def test_the_command(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """Commits in NDJSON; status 4 for a gap, 0 once it is allowed, and for nothing new."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    words = ("export", tmp_path / "log", "--to", to, "--append", "--format", "ndjson")
    result = kafkalog(*words)
    assert result.status == 0
    [*_, summary] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (summary["commit"], summary["rows"], summary["gaps"]) == (0, 120, 0)
    grow(partition, 150, 5)
    for path in partition.glob("*.log"):
        if path.name < f"{150:020}":
            path.unlink()
    refused = kafkalog(*words)
    assert refused.status == 4
    assert "starts at offset 150" in refused.stderr
    allowed = kafkalog(*words, "--accept", "gaps")
    assert allowed.status == 0
    found = [json.loads(line) for line in allowed.stdout.splitlines()]
    [gap] = [one for one in found if one["type"] == "export_gap"]
    assert (gap["topic"], gap["first_offset"], gap["last_offset"]) == ("orders", 120, 149)
    again = kafkalog(*words[:-2])
    assert again.status == 0
    assert "nothing is new" in f"{again.stdout!r}{again.stderr}"
    assert kafkalog("export", tmp_path / "log", "--to", to, "--every", "1s").status == 2
    assert "name the log directory that has it now" not in refused.stderr
    shutil.copytree(partition, tmp_path / "log" / "others-0")
    partition.rename(tmp_path / "elsewhere")
    moved = kafkalog(*words)
    assert moved.status == 4
    assert "name the log directory that has it now" in moved.stderr
