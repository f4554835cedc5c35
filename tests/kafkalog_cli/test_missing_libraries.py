"""Without the libraries of the extras: what needs one says which extra has it, with status 5."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from docgen.commands import commands
from kafkalog_cli import main
from tests.checkout import ROOT
from tests.sweeps import command_lines

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "log-dir"
OPTIONAL = ("pyarrow", "duckdb", "numba", "pyspark", "pyiceberg", "deltalake", "confluent_kafka",
            "fastavro", "prometheus_client", "datasketches", "prompt_toolkit", "itables",
            "vl_convert", "pandas", "cel", "obstore")  # fmt: skip
SCRIPT = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_hidden = name.partition(".")[0] in {hidden}
        return None if is_hidden else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Without if one is PathFinder else one for one in sys.meta_path]
from kafkalog_cli.main import run
from tests.checkout import ROOT

for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), open("out", "w") as out, contextlib.redirect_stdout(out):
        status = run(words)
    sys.stderr.write(json.dumps([words, status, said.getvalue()]) + "\\n")
"""


def outcomes(lines: list[list[str]], place: Path) -> list[tuple[list[str], int, str]]:
    """Return each command line with its status and what it said, in a process without extras."""
    script = SCRIPT.replace("{hidden}", repr(OPTIONAL))
    done = subprocess.run([sys.executable, "-c", script], input=json.dumps(lines), text=True,
                          capture_output=True, cwd=place, check=True)  # fmt: skip
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(found) == len(lines)
    return found


@pytest.mark.parametrize(("words", "extra"), [
    ((), "data"),
    (("--file-format", "ndjson"), "data"),
    (("--append",), "data"),
    (("--append", "--as", "delta"), "lake"),
    (("--append", "--as", "iceberg", "--set", "warehouse=w"), "lake"),
    (("--value-format", "avro"), "schemas"),
    (("--append", "--as", "delta", "--value-format", "protobuf"), "lake,schemas"),
])  # fmt: skip
def test_an_export_names_its_extras(tmp_path: Path, words: tuple[str, ...], extra: str) -> None:
    """Nothing is written, and the hint names what to install."""
    [(_, status, said)] = outcomes([["export", str(EXAMPLE), "--to", "lake", *words]], tmp_path)
    assert (status, f"pip install 'kafkalog[{extra}]'" in said) == (5, True), said
    assert "dump-segment PATH -o ndjson" in said
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(("name", "status", "words"), [
    ("pandas.core", 5, "pip install 'kafkalog[spark]'"),
    ("confluent_kafka", 5, "pip install 'kafkalog[kafka]'"),
    ("numpy", 70, "Please report it"),
    ("kafkalog.nothing", 70, "Please report it"),
])  # fmt: skip
def test_an_import_that_nobody_guards(
    kafkalog: Any, monkeypatch: pytest.MonkeyPatch, name: str, status: int, words: str
) -> None:
    """What every installation has is missing by mistake."""

    def fail(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(main, "_run_command", fail)
    found = kafkalog("ls", EXAMPLE)
    assert (found.status, words in found.stderr) == (status, True), found.stderr


LOG = EXAMPLE / "orders-0"
NEEDY = [
    (["ls", "s3://bucket/log"], "data"),
    (["dump-segment", LOG, "--to", "a.parquet"], "data"),
    (["dump-segment", LOG, "--where", "value.cents > 300"], "data"),
    (["dump-segment", LOG, "--value-format", "json"], "schemas"),
    (["dump-segment", LOG, "--value-format", "connect"], "schemas"),
    (["lookup-offset", "s3://bucket/log", "0"], "data"),
    (["find", EXAMPLE, "-k", "user-48", "--to", "a.parquet"], "data"),
    (["find", EXAMPLE, "--value-format", "json", "--undecodable"], "schemas"),
    (["diff", EXAMPLE, EXAMPLE.parent / "damaged"], "data"),
    (["verify", EXAMPLE, "--spark", "local[*]"], "spark"),
    (["profile", EXAMPLE], "data"),
    (["sql", EXAMPLE], "data"),
    (["sql", EXAMPLE, "-c", "select 1"], "data"),
    (["sql", EXAMPLE, "--spark", "local[*]", "-c", "select 1"], "spark"),
    (["report", EXAMPLE, "--to", "a.html"], "data"),
    (["export", EXAMPLE], "data"),
    (["export", EXAMPLE, "--to", "lake"], "data"),
    (["replay", EXAMPLE, "--bootstrap", "127.0.0.1:1"], "kafka"),
    (["serve", EXAMPLE, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"], "data"),
]  # fmt: skip
FREE = [
    ["ls", EXAMPLE],
    ["dump-segment", LOG, "-n", "2"],
    ["anatomy", LOG / "00000000000000000000.log"],
    ["du", EXAMPLE],
    ["lookup-offset", LOG, "5"],
    ["find", EXAMPLE, "-k", "user-48"],
    ["verify", EXAMPLE],
    ["verify", EXAMPLE, "--compaction"],
    ["diff", EXAMPLE, EXAMPLE],
    ["explain", "batch-crc-mismatch"],
    ["groups", EXAMPLE],
    ["groups", EXAMPLE, "--at", "2024-01-01T00:00:00Z"],
    ["transactions", EXAMPLE],
    ["metadata", EXAMPLE],
    ["quorum", EXAMPLE],
    ["retention", EXAMPLE],
    ["simulate-roll", LOG, "--config", "segment.bytes=1000"],
    ["recover", EXAMPLE],
    ["salvage", EXAMPLE, "--to", "salvaged"],
    ["resurrect", EXAMPLE, "--to", "resurrected"],
    ["undo", "log-dir", "--list"],
    ["rebuild-index", EXAMPLE],
    ["compact", EXAMPLE, "--to", "compacted"],
    ["replay", EXAMPLE],
    ["kafka-dump-log", "--files", LOG / "00000000000000000000.log"],
]


def test_what_needs_a_library_says_which_extra_has_it(tmp_path: Path) -> None:
    """With status 5, and the line to paste: 70 would ask for a report."""
    found = outcomes([[str(word) for word in words] for words, _ in NEEDY], tmp_path)
    for (_, extra), (words, status, said) in zip(NEEDY, found, strict=True):
        assert (status, f"pip install 'kafkalog[{extra}]'" in said) == (5, True), (words, said)


def test_the_rest_works_without(tmp_path: Path) -> None:
    """Each command does, but those that are about tables."""
    assert {str(one[0]) for one in (*FREE, *(words for words, _ in NEEDY))} == commands().keys()
    (tmp_path / "log-dir").mkdir()
    found = outcomes([[str(word) for word in words] for words in FREE], tmp_path)
    assert [one for one in found if one[1] not in {0, 1}] == []


@pytest.mark.parametrize(("name", "state"), [("groups", "features-4.4"), ("transactions", "txn")])
def test_a_coordinator_is_read_alike_without_columns(
    kafkalog: Any, corpus_dir: Path, tmp_path: Path, name: str, state: str
) -> None:
    line = [name, str(corpus_dir / "kafka-4.4" / state), "--format", "ndjson"]
    [(_, status, _)] = outcomes([line], tmp_path)
    found = kafkalog(*line)
    assert (found.status, found.stdout) == (status, (tmp_path / "out").read_bytes())
    assert len(found.stdout.splitlines()) > 5


def test_no_command_calls_it_a_bug(tmp_path: Path) -> None:
    lines = [[str(word) for word in words] for words in command_lines(EXAMPLE, [])]
    found = outcomes(lines, tmp_path)
    assert [one for one in found if one[1] not in {0, 1, 2, 5}] == []
    without = [said for _, status, said in found if status == 5]
    assert [said for said in without if "pip install" not in said] == []
    assert (tmp_path / "out").exists()
