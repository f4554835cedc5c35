"""A failure of kafkalog on one partition costs that one: the rest is done, with status 70."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import INTERNAL_ERROR
from tests.kafkalog_cli.test_maintenance import COMMANDS, IN_PLACE, log_dir, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

__all__ = ["log_dir"]

PLANNED = {
    "recover": "kafkalog.change.repair.run.plan_recovery",
    "rebuild-index": "kafkalog.change.repair.rebuild.compare_indexes",
    "compact": "kafkalog.change.compaction.log_dirs.find_candidate",
    "retention": "kafkalog.change.retention.run.plan_trim",
    "ls": "kafkalog.node.inventory._partition_row",
    "simulate-retention": "kafkalog.change.retention.simulation.judge_partition",
}
PERFORMED = {
    "recover": "kafkalog.change.repair.run.perform_recovery",
    "rebuild-index": "kafkalog.change.repair.rebuild.rebuild_indexes",
    "compact": "kafkalog.change.compaction.compact.compact_partition",
    "retention": "kafkalog.change.retention.run.perform_trim",
}
READ_ONLY = {"ls": (), "simulate-retention": COMMANDS["retention"]}


def names(value: Any, partition: str, depth: int = 4) -> bool:
    """Return whether a partition is in a value, or in what that has."""
    if isinstance(value, str):
        return partition in value
    inner = list(value)[:1] if isinstance(value, tuple | list) else ()
    if dataclasses.is_dataclass(value):
        inner = [getattr(value, one.name) for one in dataclasses.fields(value)]
    return depth > 0 and any(names(one, partition, depth - 1) for one in inner)


def fail_in(patch: pytest.MonkeyPatch, name: str, partition: str) -> None:
    """Give a function a bug that shows in one partition."""
    module, _, function = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[function]), function)

    def fails_in_one(*args: Any, **options: Any) -> Any:
        if any(names(one, partition) for one in args):
            raise ZeroDivisionError("a bug of ours")
        return real(*args, **options)

    patch.setattr(name, fails_in_one)


def assert_told(done: Result, partition: Path) -> None:
    """Require that the error names the partition."""
    assert done.status == INTERNAL_ERROR, done
    assert "internal-error" in done.stderr
    assert "ZeroDivisionError: a bug of ours" in done.stderr
    assert str(partition) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", sorted(PLANNED.keys() - {"retention"}))
def test_a_partition_that_cannot_be_planned_costs_itself(
    command: str, log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """The other rows equal those of a run without the failure."""
    options = {**COMMANDS, **READ_ONLY}[command]
    words = (command, log_dir, *options, "--format", "ndjson")
    whole = kafkalog(*words).stdout.splitlines()
    fail_in(monkeypatch, PLANNED[command], "orders-0")
    done = kafkalog(*words)
    assert_told(done, log_dir / "orders-0")
    wanted = [row for row in whole if b"/orders-1" in row]
    assert wanted
    assert [row for row in done.stdout.splitlines() if b"/orders-1" in row] == wanted


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("step", [PLANNED, PERFORMED], ids=["planned", "performed"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_partition_that_fails_leaves_the_others_to_be_changed(
    command: str, step: dict[str, str], log_dir: Path, kafkalog: Run,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """The others are as after a run without the failure; this partition is unchanged."""
    if command == "recover":  # there is something to do
        for index in log_dir.glob("orders-*/*.timeindex"):
            index.unlink()
    before = state(log_dir)
    name = step[command]
    if command == "rebuild-index":
        name = PERFORMED[command]  # one scan does both
    with monkeypatch.context() as patch:
        fail_in(patch, name, "orders-0")
        assert_told(kafkalog(command, log_dir, *COMMANDS[command], *IN_PLACE), log_dir / "orders-0")
    after = state(log_dir)
    of_it = {name: facts for name, facts in after.items() if name.startswith("orders-0/")}
    assert of_it == {name: facts for name, facts in before.items() if name in of_it}
    kafkalog(command, log_dir, *COMMANDS[command], *IN_PLACE)
    finally_ = state(log_dir)
    others = [name for name in finally_ if name.startswith("orders-1/")]
    assert any(after[name][-1] != before.get(name, [None])[-1] for name in others) or (
        {name for name in after if name.startswith("orders-1/")}
        != {name for name in before if name.startswith("orders-1/")}
    )
    assert {name: after[name][-1] for name in others} == {
        name: finally_[name][-1] for name in others
    }


def test_a_partition_that_cannot_be_counted_has_no_profile(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """Its topic has none either, as its counts would be incomplete; other rows are unchanged."""
    words = ("profile", log_dir, "--internal", "--format", "ndjson")
    whole = [json.loads(line) for line in kafkalog(*words).stdout.splitlines()]
    fail_in(monkeypatch, "kafkalog.tables.profiles.part.read_split", "orders-0/")
    done = kafkalog(*words)
    assert_told(done, log_dir / "orders-0")
    wanted = [row for row in whole if row["topic"] != "orders" or row["partition"] == 1]
    assert 0 < len(wanted) < len(whole)
    assert [json.loads(line) for line in done.stdout.splitlines()] == wanted


def test_an_export_goes_on_after_a_partition_that_fails(
    log_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """The export is incomplete and says so; given again, it writes the missing part."""
    words = ("export", log_dir, "--file-format", "ndjson", "--to")
    assert kafkalog(*words, tmp_path / "whole").status == 0
    with monkeypatch.context() as patch:
        fail_in(patch, "kafkalog.change.lake.part.read_split", "orders-0/")
        assert_told(kafkalog(*words, tmp_path / "to"), log_dir / "orders-0")
    files = {
        path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.ndjson")
    }
    there = {path for path in files if (tmp_path / "to" / path).exists()}
    assert there == {path for path in files if "topic=orders/partition=0" not in str(path)}
    assert not (tmp_path / "to" / "_SUCCESS").exists()
    assert kafkalog(*words, tmp_path / "to").status == 0
    for path in files:
        assert (tmp_path / "to" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()


def test_a_salvage_goes_on_after_a_partition_that_fails(
    log_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """The result has only a row for the failure; the other partitions are as without it."""
    words = ("salvage", log_dir, "--format", "ndjson", "--to")
    whole = kafkalog(*words, tmp_path / "whole")
    assert whole.status == 8
    with monkeypatch.context() as patch:
        # its logs are copied by then
        fail_in(patch, "kafkalog.change.rescue.partition.rebuild", "orders-0")
        done = kafkalog(*words, tmp_path / "to")
    assert_told(done, log_dir / "orders-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    [failed] = [row for row in rows if row["type"] == "failed_partition"]
    assert failed["path"] == str(log_dir / "orders-0")
    assert rows[-1]["failed_partitions"] == 1
    before = [json.loads(line) for line in whole.stdout.splitlines()]
    assert rows[-1]["partitions"] == before[-1]["partitions"] - 1

    def of_others(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            row for row in rows
            if not {"orders-0", "log"} & set(str(row.get("path")).split("/"))
            and row["type"] not in ("salvage_summary", "failed_partition")
            and row.get("fate") != "rebuilt"
        ]  # fmt: skip

    assert of_others(rows) == of_others(before)
    made = {path: path.read_bytes() for path in (tmp_path / "to").rglob("*") if path.is_file()}
    names = {path.relative_to(tmp_path / "to") for path in made}
    assert not [name for name in names if "orders-0" in name.parts]
    kept = {name for name in names if name.parts[0] == "log" and "orders-1" in name.parts}
    assert kept
    for name in kept:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "to" / name).read_bytes()


def test_a_salvage_of_which_each_partition_fails_leaves_nothing(
    log_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
):
    """There is no result, and nothing half-finished."""
    fail_in(monkeypatch, "kafkalog.change.rescue.partition.rebuild", "")
    done = kafkalog("salvage", log_dir, "--to", tmp_path / "to")
    assert_told(done, log_dir)
    assert not list(tmp_path.glob("to*"))
