"""Starts of whole nodes: what Kafka 4.3 made of each state of a small one, see `tests.nodes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from formats.topic_names import CLUSTER_METADATA
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.node.recovery import (
    Consequence,
    NodeDir,
    NodeStart,
    is_passed_over,
    nodes_of,
    predict_start,
)
from tests.builders import batch, record
from tests.metadata_logs import value_of
from tests.nodes import (
    LAST,
    METADATA,
    QUORUM,
    STATES,
    Outcome,
    drawn_node,
    sizes_of,
    uuid,
    voters_of,
    write_node,
)

if TYPE_CHECKING:
    from tests.nodes import Log, State


def node_at(*log_dirs: Path) -> NodeStart:
    dirs = [open_path(str(path)) for path in log_dirs]
    [node] = nodes_of([NodeDir(one) for one in dirs if isinstance(one, LogDirListing)])
    return node


def errors(node: NodeStart, consequence: Consequence) -> set[str]:
    """Return the exceptions that reach so far: of the node, and of the logs of its directories."""
    found = [one.refusal for one in node.refusals]
    for one in node.dirs:
        for partition in one.log_dir.partitions:
            if is_passed_over(partition):
                continue
            refusal = predict_start(partition, hosting=node.hosting).refusal
            found += [refusal] if refusal is not None else []
    return {one.error for one in found if one.consequence == consequence}


def predicted(root: Path) -> Outcome:
    """Return what the start of a node is predicted to make of it."""
    log_dirs = sorted(path for path in root.iterdir() if path.is_dir())
    node = node_at(*log_dirs)
    partitions = [partition for one in node.dirs for partition in one.log_dir.partitions]
    logs: dict[str, Log] = {}
    for one in partitions:
        loaded = predict_start(one, hosting=node.hosting).loaded
        if loaded is not None and one.topic != CLUSTER_METADATA:
            name = str(Path(one.path).relative_to(root))
            if node.stray_reason(one):  # it is renamed, and by then has no leading zeros
                name = f"{Path(name).parent}/{one.topic}-{one.partition}"
            sizes = sizes_of(name, (part.size_bytes for part in loaded.segments))
            logs[name] = loaded.log_start_offset, loaded.log_end_offset, *sizes
    errors_of_all = errors(node, Consequence.BROKER_FAILS)
    offline = {
        Path(one.log_dir.path).name
        for one in node.refusals
        if one.refusal.consequence == Consequence.LOG_DIR_OFFLINE
    }
    for one in partitions:
        refusal = predict_start(one, hosting=node.hosting).refusal
        if refusal is not None and refusal.consequence == Consequence.LOG_DIR_OFFLINE:
            offline.add(Path(one.path).parent.name)
    strays = {f"{one.topic}-{one.partition}" for one in partitions if node.stray_reason(one)}
    return Outcome(
        tuple(sorted(errors_of_all)),
        tuple(sorted(offline)),
        None if node.hosting is None else tuple(sorted(strays)),
        None if node.hosting is None else tuple(sorted(one.name for one in node.absent)),
        logs,
    )


def test_only_voters_bring_back_what_a_start_cuts_off(tmp_path: Path) -> None:
    """A controller that only observes is registered like a voter."""
    observer = value_of(
        "RegisterControllerRecord", controllerId=2, incarnationId=uuid(23),
        zkMigrationReady=False, endPoints=[], features=[],
    )  # fmt: skip
    state = STATES["second last batch flipped, no snapshot"]
    found = {}
    for name, voters in ("observer", [1]), ("voter", [1, 2]):
        root = write_node(tmp_path / name)
        state.change(root)
        (root / QUORUM).write_text(
            '{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
            '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
        )
        with (root / LAST).open("ab") as log:
            log.write(voters_of(9, voters) + batch(10, [record(0, None, observer)], epoch=1))
        found[name] = predicted(root).strays
    assert found == {"observer": state.strays, "voter": ()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_node_starts_as_it_did(state: State, tmp_path: Path) -> None:
    """Refusals with their exception, strays, logs created, future copies promoted."""
    root = write_node(tmp_path / "node")
    state.change(root)
    node = node_at(root / "d1", root / "d2")
    found = errors(node, Consequence.BROKER_FAILS)
    assert found == ({state.error} if state.error else set()) or state.error in found
    offline = {
        one.log_dir.path
        for one in node.refusals
        if one.refusal.consequence == Consequence.LOG_DIR_OFFLINE
    }
    assert offline == ({str(root / state.offline)} if state.offline else set())
    assert bool(node.promoted) == state.promoted
    if state.error is None:
        partitions = [partition for one in node.dirs for partition in one.log_dir.partitions]
        strays = {f"{one.topic}-{one.partition}" for one in partitions if node.stray_reason(one)}
        assert strays == {*state.strays}
        assert [one.name for one in node.absent] == [*state.created]


def test_a_partition_that_a_broker_has_created_meanwhile_is_there(tmp_path: Path) -> None:
    """The metadata are read after the listing, and may name a topic that it lacks."""
    root = write_node(tmp_path / "node")
    (root / "d2" / "orders-1").rename(tmp_path / "kept")
    earlier, later = node_at(root / "d1", root / "d2"), node_at(root / "d1", root / "d2")
    assert [one.name for one in earlier.absent] == ["orders-1"]
    (tmp_path / "kept").rename(root / "d2" / "orders-1")
    assert later.absent == ()


RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("node_starts.ndjson").read_text().splitlines()
]
"""What brokers made of nodes that were drawn and damaged, by the seed; see `test_node_starts`."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("row", RECORDED, ids=lambda row: str(row["seed"]))
def test_a_damaged_node_starts_as_it_did(
    row: dict[str, Any], corpus_dir: Path, tmp_path: Path
) -> None:
    """Exceptions, directories offline, strays, logs created, and starts, ends and sizes of logs."""
    root = tmp_path / "node"
    about = drawn_node(root, corpus_dir / "recovery" / "intact" / "orders-0", row["seed"])
    assert about == row["about"], "other damage than was recorded"
    assert not predicted(root).differences(Outcome.of(dict(row["outcome"]))), about


@pytest.mark.sampled(4)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_verify_and_recover_tell_the_same_start(
    state: State, tmp_path: Path, kafkalog: Any
) -> None:
    """Each line of `verify` is one of `recover`; a check has a status if anything goes wrong."""
    root = write_node(tmp_path / "node")
    state.change(root)
    is_bad = bool(state.error or state.offline or state.strays or state.created)
    verified = kafkalog("verify", root / "d1", root / "d2", "--format", "ndjson")
    rows = [json.loads(line) for line in verified.stdout.splitlines()]
    starts = [row for row in rows if row["type"] == "next_start"]
    refused = {row["error"] for row in starts if row["consequence"] == "the broker does not start"}
    assert (state.error in refused) if state.error else not refused
    planned = kafkalog("recover", root, "--format", "ndjson")
    damaged = [row for row in rows if row["type"] == "defect" and row["severity"] == "damage"]
    is_damaged = any(f"{METADATA}." not in row["path"] for row in damaged)  # no start loads those
    if is_bad:
        assert kafkalog("recover", root, "--check").status in (1, 8)
        assert verified.status == 1
    found = {row["reference"] for row in rows if row["type"] == "defect"}
    assert ("partition-absent" in found) == bool(state.created)
    [*partitions, summary] = [json.loads(line) for line in planned.stdout.splitlines()]
    is_refused = any("refuse" in str(row["verdict"]) for row in partitions)
    fails = bool(is_refused or summary["node_refusals"])
    assert planned.status in ((0, 8) if is_damaged and not fails else (8 * fails,)), planned.stderr
    of_node = {row["detail"] for row in starts if row["topic"] is None and row["error"]}
    assert {*summary["node_refusals"]} == of_node
    worst = {row["path"]: row["verdict"] for row in partitions}
    for row in starts:
        if row["topic"] is not None and row["verdict"] in ("refuse", "stray", "truncate"):
            assert worst[row["path"]] == row["verdict"]
    assert summary["absent_partitions"] == len(state.created) * (state.error is None)


def test_an_empty_snapshot_is_named(tmp_path: Path, kafkalog: Any) -> None:
    """By whatever reads it: recovering the log, which torn batches call for, would not help."""
    root = write_node(tmp_path / "node")
    STATES["empty snapshot"].change(root)
    [snapshot] = (one for one in root.rglob("*.checkpoint") if not one.stat().st_size)
    for command, path, status in (
        ("verify", root / "d1", 1), ("verify", snapshot, 1), ("metadata", root / "d1", 8)
    ):  # fmt: skip
        done = kafkalog(command, path)
        said = done.stdout.decode() + done.stderr
        assert (done.status, "kraft-snapshot-empty" in said) == (status, True), done
        assert "torn-tail" not in said
        assert "start-refused" not in said  # the finding explains it
