"""`dump-segment`, compared with what real consumers read."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State


def long_form(text: str | None) -> object:
    """Convert a value above 1 KiB to size and digest, as the corpus of 4.3 keeps it."""
    if text is None or len(text) <= 2048:
        return text
    return {"len": len(text) // 2, "sha256": hashlib.sha256(bytes.fromhex(text)).hexdigest()}


def records(kafkalog: Any, *arguments: object) -> list[dict[str, Any]]:
    result = kafkalog(
        "dump-segment",
        *arguments,
        "--format",
        "ndjson",
        "--key-format",
        "hex",
        "--value-format",
        "hex",
    )
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [row for row in rows if row["type"] == "record"]


def consumed(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def headers_of(row: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        tuple(header) if isinstance(header, list) else (header["key"], header["value"])
        for header in row.get("headers", ())
    ]


def log_start(kafkalog: Any, partition: Path) -> int:
    """Return the log start, where the corpus consumer began; it may lie inside a batch."""
    result = kafkalog("lookup-offset", partition, "--special", "earliest", "--format", "ndjson")
    return int(json.loads(result.stdout)["offset"])


@pytest.mark.sampled(18)
def test_ndjson_holds_what_the_consumer_read(any_state: State, kafkalog: Any) -> None:
    """Every record of every partition: offset, timestamp, type, key, value, headers."""
    for partition in any_state.partitions():
        expected = any_state.expected / "records" / f"{partition.name}.ndjson"
        if not expected.exists():
            continue
        start = log_start(kafkalog, partition)
        wanted = consumed(expected)
        got = [
            row
            for row in records(kafkalog, partition)
            if not row["is_control"] and row["offset"] >= start
        ]
        assert len(got) == len(wanted), partition
        for row, record in zip(got, wanted, strict=True):
            assert row["offset"] == record["offset"], partition
            assert row["timestamp"] == record["timestamp"], (partition, row["offset"])
            assert row["timestamp_type"] == record["timestampType"], (partition, row["offset"])
            for name in ("key", "value"):
                assert record[name] in (row[name], long_form(row[name])), (partition, row["offset"])
            assert [
                (header["key"], long_form(header["value"])) for header in row["headers"]
            ] == headers_of(record), (partition, row["offset"])


@pytest.mark.sampled(10)
def test_read_committed_holds_what_the_consumer_read(any_state: State, kafkalog: Any) -> None:
    """Without aborted records, and nothing from the first open transaction on."""
    for partition in any_state.partitions():
        offsets = any_state.expected / "records-committed" / f"{partition.name}.offsets.json"
        committed = any_state.expected / "records" / f"{partition.name}.read_committed.ndjson"
        if offsets.exists():
            wanted = json.loads(offsets.read_text())
        elif committed.exists():
            wanted = [row["offset"] for row in consumed(committed)]
        else:
            continue
        start = log_start(kafkalog, partition)
        got = [
            row["offset"] for row in records(kafkalog, partition, "--isolation", "read_committed")
        ]
        assert [offset for offset in got if offset >= start] == wanted, partition


def test_batches_and_records_tell_the_same(corpus_dir: Path, kafkalog: Any) -> None:
    """In an uncompacted log, the batch headers count exactly the records in it."""
    partition = corpus_dir / "kafka-4.3" / "codecs" / "codec-zstd-0"
    result = kafkalog("dump-segment", "--batches", "--format", "ndjson", partition)
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    rows = records(kafkalog, partition)
    assert {batch["compression"] for batch in batches} == {"zstd"}
    assert all(batch["crc_valid"] for batch in batches)
    assert sum(batch["records"] for batch in batches) == len(rows) == 2000
    by_batch = {(batch["path"], batch["position"]): batch for batch in batches}
    for row in rows:
        batch = by_batch[row["path"], row["batch_position"]]
        assert batch["base_offset"] <= row["offset"] <= batch["last_offset"]


def test_json_and_csv_hold_the_rows_of_ndjson(corpus_dir: Path, kafkalog: Any) -> None:
    """The same content in three formats."""
    log = corpus_dir / "kafka-4.3" / "txn" / "txn-0" / "00000000000000000000.log"
    arguments = ("dump-segment", "--key-format", "hex", "--value-format", "hex", log, "--format")
    rows = [json.loads(line) for line in kafkalog(*arguments, "ndjson").stdout.splitlines()]
    assert json.loads(kafkalog(*arguments, "json").stdout) == rows
    table = list(csv.DictReader(io.StringIO(kafkalog(*arguments, "csv").stdout.decode())))
    assert [line["offset"] for line in table] == [str(row["offset"]) for row in rows]
    assert [line["is_control"] for line in table] == [
        "true" if row["is_control"] else "false" for row in rows
    ]


def test_damage_is_shown_in_place_and_reading_goes_on(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """A wrong length field is reported, and costs no batch: a checksum says what it was."""
    original = corpus_dir / "kafka-4.3" / "codecs" / "codec-none-0" / "00000000000000000000.log"
    batches = [
        json.loads(line)
        for line in kafkalog("dump-segment", "--batches", original, "--format", "ndjson")
        .stdout.splitlines()
    ]  # fmt: skip
    broken = bytearray(original.read_bytes())
    position = batches[3]["position"]
    broken[position + 8] ^= 0x40
    copy = tmp_path / original.name
    copy.write_bytes(broken)
    result = kafkalog("dump-segment", "--batches", copy, "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 8
    [defect] = [row for row in rows if row["type"] == "defect"]
    assert defect["reference"] == "batch-length-invalid"
    assert (defect["position"], defect["size_bytes"]) == (position, batches[3]["size_bytes"])
    names = ("position", "size_bytes", "base_offset", "last_offset", "records", "crc_valid")
    shown = [[row[name] for name in names] for row in rows if row["type"] == "batch"]
    assert shown == [[row[name] for name in names] for row in batches]


def test_times_without_a_zone_are_those_of_the_zone_asked_for(
    corpus_dir: Path, kafkalog: Any
) -> None:
    """Tables and bounds use the same zone; an offset in the text takes precedence."""
    partition = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    rows = records(kafkalog, partition)
    later = sorted({row["timestamp"] for row in rows})[len(rows) // 4]
    moment = datetime.fromtimestamp(later / 1000, ZoneInfo("Asia/Kolkata"))
    local = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    wanted = [row["offset"] for row in rows if row["timestamp"] >= later]
    for words in (
        (local, "--tz", "Asia/Kolkata"),
        (moment.isoformat(timespec="milliseconds"), "--tz", "America/New_York"),
        (moment.isoformat(timespec="milliseconds"),),
    ):
        found = records(kafkalog, partition, "--from-time", *words)
        assert [row["offset"] for row in found] == wanted
    below = records(kafkalog, partition, "--to-time", local, "--tz", "Asia/Kolkata")
    assert [row["offset"] for row in below] == [
        row["offset"] for row in rows if row["timestamp"] < later
    ]


def test_tables_of_several_logs_say_which(corpus_dir: Path, kafkalog: Any) -> None:
    """By name if the names differ, else by path; a single log needs no such column."""
    root = corpus_dir / "kafka-4.3"
    orders = [
        root / name / "compact-live-0" for name in ("compact-0-before", "compact-1-first-pass")
    ]
    for logs, labels in (
        ([root / "txn" / "txn-0", root / "txn" / "txn-1"], ["txn-0", "txn-1"]),
        (orders, [str(one) for one in orders]),
    ):
        lines = kafkalog("dump-segment", *logs).stdout.decode().splitlines()
        assert lines[0].startswith("LOG ")
        assert sorted({line.split()[0] for line in lines[1:]}) == labels
    alone = kafkalog("dump-segment", root / "txn" / "txn-0", "--limit", "1").stdout
    assert alone.startswith(b"OFFSET")
