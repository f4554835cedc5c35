"""Records end at the high watermark noted for a log, and the report says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog.errors import UnreadableError
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Isolation
from kafkalog.tables import Request
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.change.lake.exporting import export, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result


def make_logs(log_dir: Path) -> None:
    """Make three partitions of thirty records: one noted up to 20, one whole, one without note."""
    for number in range(3):
        batches = [batch(n, [record(i, b"k", b"v") for i in range(3)]) for n in range(0, 30, 3)]
        write_log(log_dir / f"orders-{number}", *batches)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    noted = "0\n2\norders 0 20\norders 1 30\n"
    (log_dir / "replication-offset-checkpoint").write_text(noted)


def test_rows_end_at_the_high_watermark(tmp_path: Path) -> None:
    """It may be in the middle of a batch: a consumer gets no record above it."""
    make_logs(tmp_path / "logs")
    summary = export([tmp_path / "logs"], tmp_path / "lake", Request())
    found = table_of(tmp_path / "lake").to_pylist()
    offsets = {n: sorted(row["offset"] for row in found if row["partition"] == n) for n in range(3)}
    assert offsets == {0: [*range(20)], 1: [*range(30)], 2: [*range(30)]}
    assert dict(summary.left_out.above_watermark) == {"orders-0": 20}
    assert summary.left_out.without_watermark == ("orders-2",)
    manifest = json.loads((tmp_path / "lake" / "_kafkalog" / "manifest.json").read_text())
    assert manifest["above_watermark"] == {"orders-0": 20}
    whole = export([tmp_path / "logs"], tmp_path / "whole", Request(isolation=Isolation.LOG))
    assert whole.rows == 90
    assert not whole.left_out.above_watermark
    assert not whole.left_out.without_watermark


def test_the_report_names_what_is_left_out(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """The export must not leave out rows silently."""
    make_logs(tmp_path / "logs")
    words: list[Any] = ["export", tmp_path / "logs", "--to"]
    report = kafkalog(*words, tmp_path / "lake").stdout.decode()
    left_out = "records above the high watermark left out (--isolation log includes them)"
    assert f"{left_out}: orders-0 from 20" in report
    assert "no high watermark is known, so records end at the log end: orders-2" in report
    lifted = kafkalog(*words, tmp_path / "whole", "--isolation", "log").stdout.decode()
    assert "90 rows" in lifted
    assert "watermark" not in lifted


def test_a_log_that_lacks_its_end_is_named(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """A checkpoint knows of more; and so does a table, until the log has caught up."""
    make_logs(tmp_path / "logs")
    words: list[Any] = ["export", tmp_path / "logs", "--to", tmp_path / "lake", "--append"]
    assert kafkalog(*words).status == 0
    log = tmp_path / "logs" / "orders-1" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[: len(log.read_bytes()) // 2])
    result = kafkalog(*words)
    missing = "the log ends before its high watermark, so records are missing: orders-1 up to 30"
    assert missing in result.stdout.decode()
    assert "orders-1: It can be read up to 15, and the table has it up to 30" in result.stderr
    assert result.status == 8
    (tmp_path / "logs" / "replication-offset-checkpoint").unlink()
    result = kafkalog(*words)
    assert (result.status, b"before its high watermark" in result.stdout) == (8, False)


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--dry-run"),
        ("export", "--to", "lake"),
        ("sql", "-c", "SELECT count(*) FROM records"),
        ("profile",),
        ("find", "-k", "k"),
        ("find", "-k", "none"),
        ("replay",),
        ("lookup-offset", "--special", "latest"),
    ],
)
def test_a_log_without_its_end_is_no_complete_answer(
    tmp_path: Path, kafkalog: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """A backup that was cut lacks records that consumers have read."""
    make_logs(tmp_path / "logs")

    def done(lake: str) -> Result:
        command, *options = [tmp_path / lake if word == "lake" else word for word in words]
        return kafkalog(command, tmp_path / "logs" / "orders-1", *options)

    assert done("whole").status == ("none" in words)
    (tmp_path / "logs" / "replication-offset-checkpoint").write_text("0\n1\norders 1 40\n")
    cut = done("cut")
    missing = "the log ends before its high watermark, so records are missing: orders-1 up to 40"
    assert cut.status == 8
    assert missing in cut.stdout.decode() + cut.stderr


def test_an_export_and_a_profile_say_the_same_of_what_they_leave_out(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """Records above the high watermark, of an open transaction, below the log start offset."""
    make_logs(tmp_path / "logs")
    transaction = batch(30, [record(0, b"k", b"v")], producer=(7, 0, 0), attributes=16)
    log = tmp_path / "logs" / "orders-1" / f"{0:020}.log"
    log.write_bytes(log.read_bytes() + transaction)
    noted = "0\n2\norders 0 20\norders 1 31\n"
    (tmp_path / "logs" / "replication-offset-checkpoint").write_text(noted)
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\norders 2 9\n")
    told = {
        (
            "records above the high watermark left out (--isolation log includes them): "
            "orders-0 from 20, 10 records; the checkpoint counts: no metadata log in PATH says "
            "which copies are in sync"
        ),
        "records of open transactions and after them left out (read_committed): orders-1 from 30",
        "records below the log start offset left out: orders-2 up to 9",
    }
    words: list[Any] = [tmp_path / "logs"]
    exported = kafkalog(
        "export", *words, "--isolation", "read_committed", "--to", tmp_path / "lake"
    )
    assert told <= set(exported.stdout.decode().splitlines())
    profiled = kafkalog("profile", *words, "--isolation", "read_committed")
    assert {f"note: {line}" for line in told} == set(profiled.stderr.splitlines())
    manifest = json.loads((tmp_path / "lake" / "_kafkalog" / "manifest.json").read_text())
    assert manifest["above_last_stable"] == {"orders-1": 30}
    assert manifest["below_log_start"] == {"orders-2": 9}
    lifted = kafkalog("profile", *words, "--isolation", "log")
    assert lifted.stderr == "note: records below the log start offset left out: orders-2 up to 9\n"


def test_a_file_that_is_not_there_is_found_before_success(tmp_path: Path) -> None:
    """Tasks may have written to local directories of other machines: no _SUCCESS, and an error."""
    make_logs(tmp_path / "logs")
    to = tmp_path / "lake"
    with pytest.raises(UnreadableError, match="it is missing"):
        export([tmp_path / "logs"], to, engine=Elsewhere(lambda path: path.unlink()))
    assert not (to / "_SUCCESS").exists()
    flipped = Elsewhere(lambda path: path.write_bytes(flip(path.read_bytes(), 80)))
    with pytest.raises(UnreadableError, match="its CRC-32C is 0x"):
        export([tmp_path / "logs"], tmp_path / "other", engine=flipped)
    assert not (tmp_path / "other" / "_SUCCESS").exists()


class Elsewhere(LocalEngine):
    """Changes a file after the tasks have written it."""

    def __init__(self, change: Callable[[Path], object]) -> None:
        super().__init__(1)
        self._change = change

    def run(self, work: Any, tasks: Any, **options: Any) -> Any:
        yield from super().run(work, tasks, **options)
        self._change(next(Path(tasks[0]["to"]).glob("topic=*/*/*")))


def test_a_table_that_grows_has_the_records_of_its_isolation_level(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """Appended to or written at once, it has no aborted record."""
    argv = ("export", "examples/log-dir", "--isolation", "read_committed")
    assert kafkalog(*argv, "--to", tmp_path / "once").status == 0
    assert kafkalog(*argv, "--append", "--to", tmp_path / "grown").status == 0
    once, grown = (
        sum(pq.read_metadata(path).num_rows for path in (tmp_path / name).rglob("*.parquet"))
        for name in ("once", "grown")
    )
    assert once == grown == 1087
