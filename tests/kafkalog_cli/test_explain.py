"""`explain`: every reference is complete, and its example reads like a finding."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kafkalog.check.verify import Verification
from kafkalog.log.defects import logs
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Level, Severity
from kafkalog_cli.app import all_commands
from kafkalog_cli.output import explanations
from tests.builders import copy_tree
from tests.kafkalog.check.test_checks import DAMAGE, LOG, UNDECODABLE, change

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", REFERENCES)
def test_every_reference_says_all(name: str, kafkalog: Any):
    """What it means, where it comes from, what a broker does: whole sentences, not repeated."""
    known = REFERENCES[name]
    for text in (known.meaning, known.arises, known.broker, known.hint or "."):
        assert text.endswith(".")
        assert "  " not in text
    result = kafkalog("explain", name)
    assert result.status == 0
    text = result.stdout.decode()
    assert text.startswith(f"{name}: severity {known.severity}")
    for part in (known.meaning, known.arises, known.broker, known.hint or ""):
        assert part in text


def test_all_are_listed_by_severity(kafkalog: Any):
    """The gravest come first, errors last; objects and table list the same."""
    lines = kafkalog("explain", "--format", "ndjson").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["reference"] for row in rows} >= set(REFERENCES) | {"path-not-found", "usage"}
    order = [*Severity, None]
    places = [order.index(row["severity"]) for row in rows]
    assert places == sorted(places)
    table = kafkalog("explain").stdout.decode().splitlines()
    assert [line.split()[-1] for line in table[:1]] == ["MEANING"]
    assert len(table) == len(rows) + 1


def test_hints_name_commands_that_exist():
    """Their options exist; damage to a log or an index always has a hint."""
    for known in REFERENCES.values():
        for name, words in re.findall(r"`kafkalog ([a-z-]+)([^`]*)`", known.hint or ""):
            parameters = all_commands()[name].params
            options = {text for one in parameters for text in (*one.opts, *one.secondary_opts)}
            assert set(re.findall(r"--[a-z-]+", words)) <= options, known.name
    for known in (*logs.BATCHES, *logs.INDEXES):
        if known.severity in (Severity.DAMAGE, Severity.INDEX):
            assert "`kafkalog " in (known.hint or ""), known.name


def test_commands_are_as_they_are_run(kafkalog: Any):
    """Each belongs to a reference that exists, and the command takes its options.

    Damage to a log or an index has one, unless it needs another replica's data or an editor.
    """
    for command in {one.command for one in REFERENCES.values() if one.command}:
        _, name, *words = command.split()
        parameters = all_commands()[name].params
        options = {text for one in parameters for text in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= options, command
    for known in (*logs.BATCHES, *logs.INDEXES):
        if known.severity in (Severity.DAMAGE, Severity.INDEX):
            assert known.command or known.name in NOT_REPAIRED, known.name
    text = kafkalog("explain", "torn-tail").stdout.decode()
    assert text.splitlines()[-1].split() == [
        "run",
        *(REFERENCES["torn-tail"].command or "").split(),
    ]


NOT_REPAIRED = {"producer-snapshot-corrupt"}
"""A broker removes it at its next start."""


def test_references_are_completed():
    """The beginning of a name is enough."""
    (argument,) = [one for one in all_commands()["explain"].params
                   if one.name == "references"]  # fmt: skip
    context = typer.Context(all_commands()["explain"])
    found = [one.value for one in argument.shell_complete(context, "batch-")]
    assert set(found) == {name for name in REFERENCES if name.startswith("batch-")}


def test_errors_are_explained_too(kafkalog: Any):
    """The explanation includes their exit status."""
    row = json.loads(kafkalog("explain", "path-not-found", "--format", "ndjson").stdout)
    assert (row["exit_code"], row["severity"]) == (3, None)
    assert b"exit status 3" in kafkalog("explain", "path-not-found").stdout
    row = json.loads(kafkalog("explain", "limit-exceeded", "--format", "ndjson").stdout)
    assert (row["exit_code"], row["severity"]) == (7, "warning")


@pytest.mark.parametrize(
    ("name", "near"),
    [("torn-tial", "`torn-tail`"), ("crc-mismatch", "`batch-crc-mismatch`"), ("?", "lists them")],
)
def test_a_misspelt_name_gives_those_that_are_near(name: str, near: str, kafkalog: Any):
    """A usage error with a hint and no stdout, even if other names were right."""
    result = kafkalog("explain", "torn-tail", name)
    assert result.status == 2
    assert result.stdout == b""
    assert near in result.stderr


@pytest.mark.parametrize("columns", [30, 40, 80])
def test_text_fits_the_terminal(columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch):
    """Lines wrap between words, and no word is lost."""
    names = list(REFERENCES)
    wide = kafkalog("explain", *names).stdout.decode()
    monkeypatch.setattr(explanations, "terminal_width", lambda: columns)
    narrow = kafkalog("explain", *names).stdout.decode()
    bodies = [line for line in narrow.splitlines() if line.startswith(" ")]
    assert max(map(len, bodies)) <= columns
    assert "".join(narrow.split()) == "".join(wide.split())


def shape(detail: str) -> str:
    """Replace the numbers of a detail, so that its words remain."""
    return re.sub(r"0x[0-9a-f]+|-?[0-9]+", "N", detail)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*DAMAGE, *UNDECODABLE])
def test_examples_read_as_findings_do(name: str, corpus_dir: Path, tmp_path: Path):
    """Each example is compared with a finding on a log that was damaged accordingly."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    if name in DAMAGE:
        DAMAGE[name][0](root)
    else:
        change(root / LOG, UNDECODABLE[name])
    run = Verification(Level.DEEP)
    details = {shape(d.detail) for d in run.verify(str(root)) if d.reference == name}
    assert shape(REFERENCES[name].example or "") in details
