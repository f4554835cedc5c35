"""A killed export continues; at its end exactly the planned files exist."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.lake import Export, ExportRequest, FileFormat, Writing
from kafkalog.errors import ChangedSinceError, CorruptDataError, DestinationExistsError, UsageError
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Replicas
from kafkalog.tables import Request, TableName
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.change.lake.exporting import export, files_of, table_of
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

SEED = new_seed()


def logs(root: Path, partitions: int = 3, segments: int = 10, batches: int = 3) -> Path:
    """Write segments with this number of batches of ten records."""
    for partition in range(partitions):
        for segment in range(segments):
            first = segment * batches
            some = [batch(n * 10, records(n)) for n in range(first, first + batches)]
            write_log(root / f"a-{partition}", *some, name=f"{first * 10:020d}")
    return root


def records(number: int) -> list[bytes]:
    return [record(i, b"%d" % (number * 10 + i), b"value" * 20) for i in range(10)]


@pytest.fixture
def source(tmp_path: Path) -> list[Path]:
    return sorted(logs(tmp_path / "logs").iterdir())


def test_killed_runs_leave_what_one_run_leaves(tmp_path: Path) -> None:
    """Runs are killed with `kill -9` at any moment until one completes."""
    source = sorted(logs(tmp_path / "logs", 16, 1, 400).iterdir())
    request = Request(split_bytes=1 << 19)
    print("seed", SEED)
    chance = random.Random(SEED)
    export(source, tmp_path / "whole", request)
    words = [sys.executable, "-m", "kafkalog_cli", "export", *source, "--set", "split-size=512KiB",
             "--to", tmp_path / "killed"]  # fmt: skip
    killed = 0
    for _ in range(4 if tries_everything() else 2):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        entries = tmp_path / "killed" / "_kafkalog" / "parts"
        wanted = chance.randrange(1, 4)
        while process.poll() is None:
            try:
                done = len(os.listdir(entries))
            except FileNotFoundError:
                done = 0
            if done >= wanted * (killed + 1):
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed, "none was fast enough to end first"
    export(source, tmp_path / "killed", request)
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")
    directories = {path.name for path in (tmp_path / "killed" / "_kafkalog").iterdir()}
    assert directories == {"manifest.json"}


class EngineStoppedError(Exception):
    """Stands for the end of the process."""


class StoppingEngine(LocalEngine):
    """Ends after this number of tasks, as if the process did."""

    def __init__(self, tasks: int) -> None:
        super().__init__(1)
        self.tasks = tasks

    def run(self, work: Any, tasks: Any, **options: Any) -> Any:
        for number, result in super().run(work, tasks, **options):
            if not self.tasks:
                raise EngineStoppedError
            self.tasks -= 1
            yield number, result


def interrupt(paths: list[Path], to: Path, tasks: int, **options: Any) -> None:
    with pytest.raises(EngineStoppedError):
        export(paths, to, engine=StoppingEngine(tasks), **options)


class SpeculatingEngine(LocalEngine):
    """Does each task twice at the same time; `late` does the first of them once more."""

    def run(self, work: Any, tasks: Any, **options: Any) -> Any:
        self.late = partial(work, tasks[0])
        twice = [task for task in tasks for _ in range(2)]
        for number, result in super().run(work, twice, **options):
            if number % 2:
                yield number // 2, result


def test_a_task_may_be_done_twice(tmp_path: Path) -> None:
    """As Spark does when it speculates; the slower attempt may even outlive the job."""
    source = sorted(logs(tmp_path / "logs", 8, 1, 400).iterdir())
    request, engine = Request(split_bytes=1 << 19), SpeculatingEngine(4)
    export(source, tmp_path / "once", request)
    export(source, tmp_path / "twice", request, engine=engine)
    wanted = files_of(tmp_path / "once")
    assert files_of(tmp_path / "twice") == wanted
    engine.late()
    found = files_of(tmp_path / "twice")
    assert {name: found[name] for name in wanted} == wanted
    assert {name.rpartition("/")[0] for name in found.keys() - wanted} == {"_kafkalog/parts"}
    assert export(source, tmp_path / "twice", request).was_complete
    assert files_of(tmp_path / "twice") == wanted


def test_what_was_written_is_not_written_again(tmp_path: Path) -> None:
    """A file that has changed since is written again."""
    source = sorted(logs(tmp_path / "logs", 8, 1, 400).iterdir())
    request = Request(split_bytes=1 << 19)
    interrupt(source, tmp_path / "to", 0, request=request)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*.parquet")}
    assert before
    spoilt = min(before)
    spoilt.write_bytes(flip(spoilt.read_bytes(), 800))
    summary = export(source, tmp_path / "to", request)
    assert 0 < summary.written_files < len(summary.parts)
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*.parquet")}
    assert [path for path in before if now[path] != before[path]] == [spoilt]
    export(source, tmp_path / "once", request)
    assert files_of(tmp_path / "to") == files_of(tmp_path / "once")


def test_a_second_run_does_nothing(tmp_path: Path, source: list[Path]) -> None:
    """It reports that, and starts no engine."""
    first = export(source, tmp_path / "to")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*")}
    asked = ExportRequest(tuple(map(str, source)))
    with Export(asked, str(tmp_path / "to")) as again:
        again.run(None)
        summary = again.summary()
    assert (summary.was_complete, summary.written_files, summary.parts) == (True, 0, first.parts)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*")}


def test_a_file_that_was_taken_away_is_written_again(tmp_path: Path, source: list[Path]) -> None:
    """The export was already finished."""
    export(source, tmp_path / "to")
    before = files_of(tmp_path / "to")
    next((tmp_path / "to").rglob("*.parquet")).unlink()
    assert export(source, tmp_path / "to").written_files == 1
    assert files_of(tmp_path / "to") == before


def test_an_interrupted_export_ends_where_it_was_to(tmp_path: Path, source: list[Path]) -> None:
    """Logs that grow meanwhile make no difference: the plan fixes where they end."""
    export(source, tmp_path / "whole", Request(split_bytes=1))
    interrupt(source, tmp_path / "to", 0, request=Request(split_bytes=1))
    with max(source[2].glob("*.log")).open("ab") as log:
        log.write(batch(300, [record(0)]))
    write_log(source[2], batch(301, [record(0)]), name=f"{301:020d}")
    export(source, tmp_path / "to", Request(split_bytes=1))
    assert files_of(tmp_path / "to") == files_of(tmp_path / "whole")
    with pytest.raises(ChangedSinceError, match="have changed since this export was made"):
        export(source, tmp_path / "to", Request(split_bytes=1))


def test_logs_that_lost_bytes_are_refused(tmp_path: Path, source: list[Path]) -> None:
    """They were cut or removed: what remains does not match the plan."""
    interrupt(source, tmp_path / "to", 0)
    log = next(source[0].glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data[:-1])
    with pytest.raises(ChangedSinceError, match=f"had {len(data)} bytes"):
        export(source, tmp_path / "to")


def test_another_export_is_refused(tmp_path: Path, source: list[Path]) -> None:
    """Whether the other one is finished or not, nothing is changed."""
    interrupt(source, tmp_path / "begun", 0)
    export(source, tmp_path / "done")
    for name in ("begun", "done"):
        before = files_of(tmp_path / name)
        with pytest.raises(DestinationExistsError, match="with other table"):
            export(source, tmp_path / name, Request(TableName.BATCHES))
        with pytest.raises(DestinationExistsError, match="with other writing"):
            export(source, tmp_path / name, writing=Writing(FileFormat.CSV))
        with pytest.raises(DestinationExistsError, match="other paths"):
            export(source[:1], tmp_path / name)
        assert files_of(tmp_path / name) == before


def test_something_else_is_refused(tmp_path: Path, source: list[Path]) -> None:
    """A directory with a foreign file, a file, a directory in the source."""
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").write_text("mine")
    with pytest.raises(DestinationExistsError, match="not an export"):
        export(source, tmp_path / "to")
    assert files_of(tmp_path / "to") == {"mine": b"mine"}
    with pytest.raises(UsageError, match="inside"):
        export([tmp_path / "logs"], tmp_path / "logs" / "to")
    with pytest.raises(UsageError, match="given twice"):
        export([source[0], source[0]], tmp_path / "twice", Request(replicas=Replicas.ALL))


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path, source: list[Path]) -> None:
    """The first run still holds the destination."""
    asked = ExportRequest(tuple(map(str, source)))
    with (
        Export(asked, str(tmp_path / "to")),
        pytest.raises(DestinationExistsError, match="Another run"),
    ):
        export(source, tmp_path / "to")


def test_damage_is_passed_over_and_told(tmp_path: Path, source: list[Path]) -> None:
    """With `fail_fast` it ends the export, which can continue without that option."""
    log = next(source[1].glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 8 * 2000))
    with pytest.raises(CorruptDataError) as raised:
        export(source, tmp_path / "to", fail_fast=True)
    assert raised.value.path == str(log)
    assert not (tmp_path / "to" / "_SUCCESS").exists()
    summary = export(source, tmp_path / "to")
    assert (summary.defect_count, summary.rows) == (1, 890)
    [defect] = [defect for part in summary.parts for defect in part.defects]
    assert (defect.reference, defect.path) == (raised.value.reference, str(log))
    manifest = json.loads((tmp_path / "to" / "_kafkalog" / "manifest.json").read_text())
    assert (manifest["defects"], manifest["rows"]) == (1, 890)
    assert len(table_of(tmp_path / "to")) == 890
    with pytest.raises(CorruptDataError):
        export(source, tmp_path / "to", fail_fast=True)
