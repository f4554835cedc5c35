"""`docs/output.md`: the objects of NDJSON and JSON, each with a row that a command printed."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from docgen.fields import explained, field_lines
from kafkalog.change.rescue import FailedPartition, manifest_object
from kafkalog.change.resurrection import LeftOutDirectory
from kafkalog.change.resurrection import manifest_object as resurrected_object
from kafkalog.node.quorum.consequences import Consequences, OfflinePartition, StrayPartition
from kafkalog.node.quorum.model import Voter
from kafkalog.node.quorum.quorum import QuorumRecord
from kafkalog.node.quorum.rescue import RescueStep
from kafkalog.node.state.model import Member
from kafkalog.node.state.transactions import OpenData
from kafkalog.node.unified_log import OpenTransaction
from kafkalog.wire.producing.model import TranslatedOffset
from kafkalog_cli.main import run
from kafkalog_cli.output import groups, quorums, replayed
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.schemas import object_types, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
LOG_DIR = "examples/log-dir"
COMMANDS = (
    f"ls {LOG_DIR}",
    f"ls --segments {LOG_DIR}/orders-0 {LOG_DIR}/payments-0",
    f"ls --files {LOG_DIR}/payments-0",
    f"dump-segment --batches {LOG_DIR}/orders-0 --limit 1",
    f"dump-segment {LOG_DIR}/orders-0 --limit 1",
    f"dump-segment {LOG_DIR}/payments-0 --control --limit 1",
    f"dump-segment {LOG_DIR}/__consumer_offsets-1 --limit 1",
    f"dump-segment {LOG_DIR}/orders-0/00000000000000000000.index --limit 1",
    f"dump-segment {LOG_DIR}/orders-0/00000000000000000000.timeindex --limit 1",
    f"dump-segment {LOG_DIR}/payments-0/00000000000000000000.txnindex --limit 1",
    f"dump-segment {LOG_DIR}/payments-0/00000000000000000048.snapshot",
    f"dump-segment {LOG_DIR}/replication-offset-checkpoint --limit 1",
    f"dump-segment {LOG_DIR}/orders-0/leader-epoch-checkpoint",
    f"dump-segment {LOG_DIR}/meta.properties {LOG_DIR}/__cluster_metadata-0/quorum-state",
    f"anatomy {LOG_DIR}/orders-0@260 --limit 1",
    f"anatomy {LOG_DIR}/orders-0",
    f"lookup-offset {LOG_DIR}/orders-0 260 --steps",
    f"lookup-offset {LOG_DIR}/orders-0 99999 --special latest",
    "verify examples/damaged",
    "salvage examples/damaged/orders-0 --to rescued --dry-run",
    f"salvage {LOG_DIR} --to rescued --dry-run",
    "recover examples/damaged/orders-0 --now 2024-01-01T00:08:00Z",
    f"rebuild-index {LOG_DIR}/payments-0",
    "explain torn-tail",
    f"retention {LOG_DIR}/orders-0 --config retention.ms=1000 --now 2024-01-01T00:08:00Z",
    f"retention {LOG_DIR}/orders-0 --config retention.ms=1 --now 1704067500000 --checks",
    f"retention {LOG_DIR}/orders-0 --config retention.ms=240000 --now 2024-01-01T00:12:30Z",
    f"verify --compaction {LOG_DIR}/customers-0 --cleaner-offset 60 --now 2024-01-01T00:20:00Z",
    f"simulate-roll {LOG_DIR}/orders-0 --config segment.bytes=16KiB",
    f"compact {LOG_DIR}/orders-0 --config cleanup.policy=compact --now 2024-01-01T00:08:00Z",
    f"du {LOG_DIR}/orders-0 --forecast --now 2024-01-01T01:00:00Z --config retention.bytes=20000",
    f"groups {LOG_DIR}",
    f"groups {LOG_DIR} --since 0",
    f"groups {LOG_DIR} --group billing",
    f"transactions {LOG_DIR} --transactional-id transfer-2",
    f"metadata {LOG_DIR}",
    f"metadata {LOG_DIR} --topic orders",
    f"metadata {LOG_DIR} --match orders",
    f"metadata {LOG_DIR} --since 0@44",
    f"quorum {LOG_DIR}",
    f"transactions {LOG_DIR}",
    f"find {LOG_DIR} --key order-7",
    f"diff {LOG_DIR}/orders-0 examples/damaged/orders-0 --records",
    f"find {LOG_DIR} --key user-8 --topic customers --history --limit 2",
    f"replay {LOG_DIR}/orders-0",
    f"profile {LOG_DIR}/customers-0 --hot-keys 2",
)
OBJECT_TYPES = object_types()
"""Every object type that the commands print, by name."""
# Fixed in the examples: these depend on when, where and how fast the commands run.
_FIXED = {"modified_timestamp": 1704067449000, "extents": 1, "disk_bytes": 65536,
          "used_bytes": 131072, "free_bytes": 1073610752, "full_timestamp": 1792846800000,
          "own_bytes": 57344}  # fmt: skip
_JSON_TYPES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
}


def run_command(line: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit status and stdout."""
    stdout, buffer = sys.stdout, io.BytesIO()
    sys.stdout = io.TextIOWrapper(buffer, encoding="utf-8")
    try:
        status = run(line.split())
        sys.stdout.flush()
        return status, buffer.getvalue().decode()
    finally:
        sys.stdout = stdout


def rows_of(line: str) -> list[dict[str, Any]]:
    """Return the objects that a command prints."""
    _, text = run_command(f"{line} --format ndjson")
    return [json.loads(row) for row in text.splitlines()]


def _undo_rows() -> dict[str, dict[str, Any]]:
    """Return what `undo` prints about a retention run on a copy of the examples."""
    with TemporaryDirectory() as place:
        log_dir, backup = os.path.join(place, "kafka"), os.path.join(place, "backup")
        shutil.copytree(LOG_DIR, log_dir)
        run_command(
            f"retention {log_dir}/orders-0 --config retention.ms=240000 "
            f"--now 2024-01-01T00:12:30Z --apply --backup {backup}"
        )
        row, summary = rows_of(f"undo {backup}")
        [run] = rows_of(f"undo --list {backup}")
    if problems := [*mistakes(row), *mistakes(summary), *mistakes(run)]:
        raise AssertionError("; ".join(problems))
    known = {
        "backup": "/backups/retention",
        "log_dir": "/var/lib/kafka",
        "start_timestamp": 1704067950000,
    }
    return {
        "undo": row | {"path": "/var/lib/kafka/orders-0"},
        "undo_summary": summary,
        "recorded_run": run | known,
    }


def _export_rows() -> list[dict[str, Any]]:
    """Return what `export` prints about an example log."""
    with TemporaryDirectory() as place:
        rows = rows_of(f"export {LOG_DIR}/orders-0")
        rows += rows_of(f"export {LOG_DIR}/orders-0 --to {place}/lake")
        shutil.copytree(f"{LOG_DIR}/orders-0", f"{place}/log/orders-0")
        append = f"export {place}/log --to {place}/table --append --accept gaps"
        rows_of(append)
        shutil.rmtree(f"{place}/log/orders-0")
        shutil.copytree(f"{LOG_DIR}/payments-0", f"{place}/log/payments-0")
        rows += [row for row in rows_of(append) if row["type"] == "export_gap"]
    known = {"log_dir": "/var/lib/kafka", "destination": "lake"}
    for row in rows:
        if problems := mistakes(row):
            raise AssertionError("; ".join(problems))
    return [row | {name: known[name] for name in known if name in row} for row in rows]


def _resurrect_rows() -> list[dict[str, Any]]:
    """Return what `resurrect` prints about the examples, and a directory that is left out."""
    rows = rows_of(f"resurrect {LOG_DIR} examples/damaged/orders-0 --to revived --dry-run")
    rows.append(resurrected_object(LeftOutDirectory(
        "/var/lib/kafka/old-0.2a96b1d1d0c64b6d8a4f6a4f3c1f2b7e-delete",
        "its name ends in -delete; --undelete takes it",
    )))  # fmt: skip
    known = {
        "log_dir": "/var/lib/revived/log",
        "destination": "/var/lib/revived",
        "start_command": "kafka-server-start.sh /var/lib/revived/server.properties",
        "cluster_id": "VzQ4pGm1T9eTMcCkBqbR3w",
        "directory_id": "7yHqGd0mQ2yPqVQ8m6cZ8g",
    }
    for row in rows:
        if problems := mistakes(row):
            raise AssertionError("; ".join(problems))
    return [row | {name: known[name] for name in known if name in row} for row in rows]


def _failed_partition() -> dict[str, Any]:
    """Return a manifest's entry about a failed partition, which no example has."""
    row = manifest_object(
        FailedPartition("/var/lib/kafka/orders-0", "unreadable", "Input/output error")
    )
    if problems := mistakes(row):
        raise AssertionError("; ".join(problems))
    return row


def _report_row() -> dict[str, Any]:
    """Return what `report` prints about the examples."""
    with TemporaryDirectory() as place:
        [row] = rows_of(f"report {LOG_DIR} --to {place}/page.html --now 2026-11-22T00:00:00Z")
    if problems := mistakes(row):
        raise AssertionError("; ".join(problems))
    return row | {"path": "report.html", "size_bytes": 1_700_000}  # it depends on the libraries


def _group_member() -> dict[str, Any]:
    """Return a member of a group, which no example has."""
    member = Member("billing-7-5c0d1a9e", None, "billing-7", "/10.0.0.7", 12, ("orders-0",))
    row = groups.MEMBER.row(groups.ShownMember("billing", member))
    if problems := mistakes(row):
        raise AssertionError("; ".join(problems))
    return row


def _translated_offset() -> dict[str, Any]:
    """Return what a committed offset became in a cluster, which no example has."""
    offset = TranslatedOffset("billing", "orders", 0, 400, "orders", 400)
    row = replayed.TRANSLATED.row(offset)
    if problems := mistakes(row):
        raise AssertionError("; ".join(problems))
    return row


def _open_transaction() -> dict[str, Any]:
    """Return an open transaction, which no example has."""
    hanging = "no transactional id has this producer"
    path = "/var/lib/kafka/orders-0"
    opened = OpenTransaction(4711, 1830, 3, 1704067205000, -1)
    row = groups.OPEN_TRANSACTION.row(OpenData("orders", 0, path, opened, None, hanging))
    if problems := mistakes(row):
        raise AssertionError("; ".join(problems))
    return row


def _quorum_rows() -> Iterator[dict[str, Any]]:
    """Yield rows of a quorum that has lost its majority, which no example has."""
    source = SimpleNamespace(path="/mnt/controller1/__cluster_metadata-0")
    voter = Voter(1, None, (("CONTROLLER", "controller1", 9093),))
    words = "append 176 bytes at offset 519: epoch 2 begins, led by 1, the only voter"
    plan: Any = SimpleNamespace(
        node_id=1, voters=[voter], source=source, end_offset=519, leader_epoch=2, lost_offsets=0,
        not_proven_offsets=29,
    )  # fmt: skip
    why = "the cluster's metadata has no topic with id 9cLwJ1xXQ2unQvIrCXzcnw"
    path = "/mnt/broker11/orders-2"
    then = Consequences(
        (StrayPartition(11, "orders", 2, path, 52_428_800, why),),
        (OfflinePartition("payments", 0, (12,), (11,)),),
    )
    yield quorums.RECORD.row(QuorumRecord(490, 1795683843122, 1, "TOPIC_RECORD", "name=orders"))
    yield quorums.STEP.row(RescueStep(5, "append", None, None, words))
    yield quorums.RESCUE.row(quorums.Rescued(plan, then, "/mnt/new-controller1", 5, 0))
    yield quorums.STRAY.row(then.strays[0])
    yield quorums.OFFLINE.row(then.offline[0])


def mistakes(row: dict[str, Any]) -> list[str]:
    """List how a printed row differs from its documentation."""
    names = list(row)
    if names[:1] != ["type"] or row["type"] not in OBJECT_TYPES:
        return [f"undocumented object {row}"]
    documented = OBJECT_TYPES[row["type"]]
    fields = documented.fields.values()
    expected = [one.name for one in fields if one.name in row or one.only_if is None]
    if names[1:] != expected:
        return [f"{row['type']} has the fields {names[1:]}, documented are {expected}"]
    found = []
    for name, value in row.items():
        if name == "type" or documented.fields[name].kind == k.ANY:
            continue
        kinds = documented.fields[name].kind.name.replace(" or ", ", ").split(", ")
        kind = "null" if value is None else _JSON_TYPES[type(value)]
        if kind not in kinds:
            found.append(f"{row['type']}.{name} is {kind}, documented is {', '.join(kinds)}")
    return found


def write_schemas(place: Path) -> None:
    """Write a JSON Schema per type of row, and remove those of types that are gone."""
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.json"):
        if old.stem not in OBJECT_TYPES:
            old.unlink()
    for name, text in schema_files().items():
        (place / name).write_text(text, encoding="utf-8")


def schema_files() -> dict[str, str]:
    """Return the files of `docs/schemas/1`, by name."""
    return {
        f"{name}.json": json.dumps(schema_of(one), ensure_ascii=False, indent=1) + "\n"
        for name, one in OBJECT_TYPES.items()
    }


def object_sections() -> str:
    """Write a section per object, with a row that a command printed."""
    os.chdir(ROOT)
    samples: dict[str, dict[str, Any]] = {}
    for command in COMMANDS:
        for row in rows_of(command):
            if problems := mistakes(row):
                raise AssertionError("; ".join(problems))
            samples.setdefault(row["type"], row)
    samples |= _undo_rows()
    samples["failed_partition"] = _failed_partition()
    samples["report"] = _report_row()
    samples["group_member"] = _group_member()
    samples |= {row["type"]: row for row in _quorum_rows()}
    samples["translated_offset"] = _translated_offset()
    samples["open_transaction"] = _open_transaction()
    samples |= {row["type"]: row for row in _export_rows()}
    for row in _resurrect_rows():
        samples.setdefault(row["type"], row)
    parts = []
    explanations_of = explained(OBJECT_TYPES.values())
    for name, documented in OBJECT_TYPES.items():
        sample = samples[name] | {key: _FIXED[key] for key in _FIXED if key in samples[name]}
        parts.append(f"\n## `{name}`\n\n{documented.meaning} Printed by {documented.printed_by}.\n")
        parts.append(f"\n{field_lines(explanations_of[name])}")
        text = json.dumps(sample, ensure_ascii=False, separators=(",", ":"))
        parts.append(f"\n```json\n{text}\n```\n")
    return "".join(parts)
