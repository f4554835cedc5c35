"""`kafkalog replay`: a plan until --apply, checked against a cluster where one is named."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kafkalog.errors import RefusedError
from kafkalog.wire.producing import cluster
from kafkalog.wire.producing.run import Replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXAMPLE = "examples/log-dir"
TARGET = ("--bootstrap", "127.0.0.1:1")


class FakeCluster:
    """A cluster that answers nothing by itself."""

    def __init__(self, bootstrap: str, properties: dict[str, str]) -> None:
        self.place = bootstrap, properties


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What replays do with the cluster."""
    found: list[str] = []

    def performed(replay: Replay, _cluster: Any, progress: str) -> Any:
        found.append(f"performed {progress}")
        return replay.count()

    monkeypatch.setattr(cluster, "Cluster", FakeCluster)
    monkeypatch.setattr(Replay, "check", lambda *_: found.append("checked"))
    monkeypatch.setattr(Replay, "perform", performed)
    return found


def test_a_plan_says_what_would_be_produced(kafkalog: Callable[..., Any], done: list[str]) -> None:
    """Its status is 0, with --check 1 if there is something; a named cluster is asked."""
    plan = kafkalog("replay", EXAMPLE)
    assert (plan.status, done) == (0, [])
    assert b"1096 records, 74.2K, would be produced. Plan only: --apply does it" in plan.stdout
    assert kafkalog("replay", EXAMPLE, *TARGET, "--dry-run", "--apply").status == 0
    assert done == ["checked"]
    assert kafkalog("replay", EXAMPLE, "--check").status == 1
    assert kafkalog("replay", EXAMPLE, "--check", "-n", 0).status == 0


def test_a_plan_that_the_cluster_refuses_ends_so(
    kafkalog: Callable[..., Any], done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise RefusedError("The cluster has no topic orders.")

    monkeypatch.setattr(Replay, "check", refuses)
    plan = kafkalog("replay", EXAMPLE, *TARGET)
    assert (plan.status, plan.stdout, done) == (4, b"", [])


@pytest.mark.parametrize(
    "words", [("--apply",), ("--apply", *TARGET), ("--yes",), ("--apply", "--check", *TARGET)]
)
def test_options_that_make_no_sense(
    kafkalog: Callable[..., Any], done: list[str], words: tuple[str, ...]
) -> None:
    result = kafkalog("replay", EXAMPLE, *words)
    assert (result.status, result.stdout, done) == (2, b"", [])


@pytest.mark.parametrize("consents", [True, False])
def test_somebody_at_a_terminal_is_asked_once(
    kafkalog: Callable[..., Any],
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    consents: bool,
) -> None:
    """After the plan; -y and a pipe do not ask."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return consents

    monkeypatch.setattr(typer, "confirm", confirm)
    words = ("replay", EXAMPLE, "-t", "orders", *TARGET, "--progress", tmp_path / "run", "--apply")
    performed = f"performed {tmp_path / 'run'}"
    assert kafkalog(*words).status == 0
    assert (asked, done) == ([], [performed])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert kafkalog(*words, "-y").status == 0
    assert (asked, done) == ([], [performed] * 2)
    result = kafkalog(*words)
    assert (result.status, asked) == (0, ["Produce 1000 records into 127.0.0.1:1?"])
    assert done[2:] == (["checked", performed] if consents else ["checked"])
    assert result.stdout.count(b"would be produced") == 1
    rows = kafkalog(*words, "-o", "ndjson").stdout.splitlines()
    log, summary = map(json.loads, rows)
    assert (log["performed"], summary["changed"]) == (consents, int(consents))
