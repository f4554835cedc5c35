"""`kafkalog export`: its report, its exit status, what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog.change.lake.model import MANIFEST
from kafkalog.errors import UnsupportedError
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.change.lake.exporting import files_of, table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

LOG_DIR = "examples/log-dir"
DAMAGED = "examples/damaged/orders-0"


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_report_of_machines_is_the_manifest(kafkalog: Run, tmp_path: Path) -> None:
    """One row per part, its defects after it, then a summary; the status is 8 with defects."""
    done = kafkalog("export", DAMAGED, "--to", tmp_path, "--format", "ndjson")
    found = rows(done)
    assert done.status == 8
    assert [row["type"] for row in found] == ["export_part", "defect", "defect", "export_summary"]
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    [part] = manifest["parts"]
    names = {"size": "size_bytes", "defects": "defect_count"}
    assert part["rejects"] is None
    part.update(rejects=0, rejects_file=None)
    for name, value in found[0].items():
        assert name == "type" or part[names.get(name, name)] == value
    assert [row["reference"] for row in found[1:3]] == [one["reference"] for one in part["defects"]]
    assert (found[-1]["rows"], found[-1]["defects"]) == (240, 2)


def test_a_table_that_grows_refuses_damage(kafkalog: Run, tmp_path: Path) -> None:
    """As it refuses a gap; what is agreed to is named once, and complete."""
    words = ("export", DAMAGED, "--view", "as-is", "--append", "--to", tmp_path, "-o", "ndjson")
    refused = kafkalog(*words, "--accept", "gaps")
    assert (refused.status, refused.stdout) == (4, b"")
    assert "orders-0, offsets 290 to 299: Batch at base offset 290" in refused.stderr
    assert "--accept damage" in refused.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    done = kafkalog(*words, "--accept", "damage")
    [gap] = [row for row in rows(done) if row["type"] == "export_gap"]
    assert (done.status, gap["first_offset"], gap["last_offset"]) == (0, 290, 299)
    assert (kafkalog(*words).status, rows(kafkalog(*words))[-1]["was_complete"]) == (0, True)


def test_table_has_a_row_a_partition(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has its offsets; a second run reports that there was nothing to do."""
    monkeypatch.setenv("COLUMNS", "80")
    words = ("export", LOG_DIR, "--to", tmp_path / "to")
    first, second = kafkalog(*words).stdout.decode(), kafkalog(*words).stdout.decode()
    lines = first.splitlines()
    assert lines[0].split() == ["PARTITION", "FILES", "ROWS", "SIZE", "OFFSETS", "DEFECTS"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["customers-0", "1", "60"], ["orders-0", "1", "1000"], ["payments-0", "1", "36"]
    ]  # fmt: skip
    assert max(map(len, lines[:4])) <= 80
    assert "1096 rows in 3 files" in lines[4]
    assert "nothing was done" in second.splitlines()[4]


def test_options_select(kafkalog: Run, tmp_path: Path) -> None:
    """Topics, partitions, offsets, times, columns, isolation."""
    words = ["--topic", "payments", "--partition", "0", "--isolation", "read_committed",
             "--from-offset", "10",
             "--to-time", "2024-01-01T00:00:20Z", "--columns", "offset, timestamp_ms"]  # fmt: skip
    assert kafkalog("export", LOG_DIR, "--to", tmp_path / "to", *words).status == 0
    shown = kafkalog(
        "dump-segment", f"{LOG_DIR}/payments-0", "--isolation", "read_committed",
        "--from-offset", 10,
        "--to-time", "2024-01-01T00:00:20Z", "--format", "ndjson",
    )  # fmt: skip
    expected = [{"offset": row["offset"], "timestamp_ms": row["timestamp"]} for row in rows(shown)]
    table = table_of(tmp_path / "to").select(["offset", "timestamp_ms"])
    assert table.to_pylist() == expected
    assert expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--columns", "nothing"], "no column"),
        (["--columns", "topic,partition"], "no columns"),
        (["--table", "segments", "--from-offset", "1"], "Offsets select"),
        (["--table", "batches", "--from-time", "1ms"], "Times select"),
        (["--file-format", "csv", "--set", "compression=snappy"], "not compressed with"),
        (["--value-format", "avro"], "needs a schema"),
        (["--value-schema", "x"], "has none"),
        (["--value-format", "avro", "--value-schema", "README.md"], "not an Avro schema"),
        (["--value-format", "json@x", "--value-schema", "examples/order.schema.json"],
         "not a framing"),
        (["--set", "row-group-size=0"], "at least one row"),
        (["--set", "split-size=0"], "at least one byte"),
    ],
)  # fmt: skip
def test_wrong_options_are_told(kafkalog: Run, tmp_path: Path, words: list[str], said: str) -> None:
    """The status is 2, and nothing is written."""
    done = kafkalog("export", f"{LOG_DIR}/orders-0", "--to", tmp_path / "to", *words)
    assert done.status == 2
    assert said in done.stderr
    assert not (tmp_path / "to").exists()


def test_fail_fast_ends_with_6(kafkalog: Run, tmp_path: Path) -> None:
    """A later run that skips damage takes over the files already written."""
    done = kafkalog("export", DAMAGED, "--to", tmp_path / "to", "--fail-fast")
    assert (done.status, done.stdout) == (6, b"")
    assert done.stderr.startswith("error: batch-crc-mismatch")
    assert kafkalog("export", DAMAGED, "--to", tmp_path / "to").status == 8
    kafkalog("export", DAMAGED, "--to", tmp_path / "once")
    assert files_of(tmp_path / "to") == files_of(tmp_path / "once")


def test_something_else_is_refused(kafkalog: Run, tmp_path: Path) -> None:
    """The status is 4."""
    (tmp_path / "mine").write_text("mine")
    done = kafkalog("export", f"{LOG_DIR}/orders-0", "--to", tmp_path)
    assert done.status == 4
    assert "destination-exists" in done.stderr


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", ["write", "fsync", "replace", "mkdir"])
def test_failures_of_the_disk_are_one_error(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    """Whichever step fails, the next run completes the export."""
    words = ("export", f"{LOG_DIR}/orders-0", "--to", tmp_path / "to")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        if name == "write":
            patched.setattr("kafkalog.change.lake.files.CountedFile.write", fail)
        else:
            patched.setattr(f"kafkalog.io.storage.directories.os.{name}", fail)
        done = kafkalog(*words)
    assert done.status == 4
    assert done.stderr.startswith("error: path-unwritable\n× The path cannot be written: ")
    assert "Traceback" not in done.stderr
    assert kafkalog(*words).status == 0
    kafkalog("export", f"{LOG_DIR}/orders-0", "--to", tmp_path / "other")
    assert files_of(tmp_path / "to") == files_of(tmp_path / "other")


def test_typed_values(kafkalog: Run, tmp_path: Path) -> None:
    """They are written next to the bytes; values that do not decode are rejected and reported."""
    values = [b'{"order":1,"cents":2}', b"no json", None]
    write_log(
        tmp_path / "a-0", batch(0, [record(i, b"k", value) for i, value in enumerate(values)])
    )
    words = ("export", tmp_path / "a-0", "--to", tmp_path / "to", "--value-format", "json",
             "--value-schema", "examples/order.schema.json")  # fmt: skip
    refused = kafkalog(*words)
    assert refused.status == 4
    assert "a-0: the value at 1: " in refused.stderr
    assert "--accept rejects=N" in refused.stderr
    done = kafkalog(*words, "--accept", "rejects=1")
    assert done.status == 0
    told = " ".join(done.stdout.decode().split())
    assert f"1 record not decoded: in {tmp_path}/to/_rejects" in told
    found = table_of(tmp_path / "to").to_pylist()
    assert [row["value"] for row in found] == [values[0], None]
    order = {"order": 1, "user": None, "item": None, "cents": 2}
    assert [row["value_decoded"] for row in found] == [order, None]
    schema = pq.read_schema(next((tmp_path / "to").rglob("*.parquet")))
    assert schema.names[-1] == "value_decoded"


def test_spark_starts_only_on_request(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts for its URL, however many partitions there are."""
    started = []

    def start(_: object) -> None:
        started.append(True)
        raise UnsupportedError("Spark is not started here.")

    monkeypatch.setattr("kafkalog_cli.engines.EngineChoice.start_spark", start)
    for words, is_spark in [
        ([LOG_DIR], False),
        ([f"{LOG_DIR}/orders-0", "--spark", "local[*]"], True),
        ([LOG_DIR, "--spark", "local[2]"], True),
    ]:
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        assert kafkalog("export", *words, "--to", tmp_path / "to").status == (5 if is_spark else 0)
    assert len(started) == 2
    # What is all there needs no Spark.
    assert kafkalog("export", LOG_DIR, "--to", tmp_path / "to").status == 0
    assert kafkalog("export", LOG_DIR, "--to", tmp_path / "to", "--spark", "local[*]").status == 0
    for conf in ("a=b", "kafkalog.x=1"):
        assert kafkalog("export", LOG_DIR, "--spark-conf", conf).status == 2


def test_damage_in_one_partition_leaves_the_others(kafkalog: Run, tmp_path: Path) -> None:
    """The table counts the damage in its own partition."""
    for name in ("a-0", "a-1"):
        write_log(tmp_path / "logs" / name, *(batch(n, [record(0)]) for n in range(9)))
    log = next((tmp_path / "logs" / "a-1").glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 8 * 100))
    sources = [tmp_path / "logs" / name for name in ("a-0", "a-1")]
    done = kafkalog("export", *sources, "--to", tmp_path / "to")
    assert done.status == 8
    lines = [line.split() for line in done.stdout.decode().splitlines()[1:3]]
    assert [(line[0], line[2], line[-1]) for line in lines] == [
        ("a-0", "9", "-"),
        ("a-1", "8", "1"),
    ]
