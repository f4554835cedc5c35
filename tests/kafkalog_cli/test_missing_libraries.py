"""Without the libraries of the extras: what needs one says which extra has it, with status 5."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalog_cli import main
from tests.sweeps import command_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "log-dir"
OPTIONAL = ("pyarrow", "duckdb", "numba", "pyspark", "pyiceberg", "deltalake", "confluent_kafka",
            "fastavro", "prometheus_client", "datasketches", "prompt_toolkit", "itables",
            "vl_convert", "pandas")  # fmt: skip
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
    ("numba.core", 5, "pip install 'kafkalog[dev]'"),
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


NEEDY = [
    ["sql", "-c", "select 1", EXAMPLE],
    ["sql", "--spark", "local[*]", "-c", "select 1", EXAMPLE],
    ["profile", EXAMPLE],
    ["verify", "--spark", "local[*]", EXAMPLE],
    ["replay", EXAMPLE, "--bootstrap", "127.0.0.1:1"],
    ["serve", EXAMPLE, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"],
    ["dump-segment", EXAMPLE / "orders-0", "--to", "a.parquet"],
    ["ls", "s3://bucket/log"],
    ["report", EXAMPLE, "--to", "a.html", "--records", "10"],
]


def test_no_command_calls_it_a_bug(tmp_path: Path) -> None:
    """Status 70 asks for a report: a library that is not there is none."""
    lines = [[str(word) for word in words] for words in [*NEEDY, *command_lines(EXAMPLE, [])]]
    found = outcomes(lines, tmp_path)
    assert [one for one in found if one[1] not in {0, 1, 2, 5}] == []
    without = [said for _, status, said in found if status == 5]
    assert len(without) > 5
    assert [said for said in without if "pip install" not in said] == []
    assert (tmp_path / "out").exists()
