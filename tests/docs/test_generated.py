"""The generated pages are up to date, and what they are made of is complete."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from docgen import commands, output
from docgen.pages import BLOCKS, DOCS, ROOT, blocks_in, pages, with_blocks
from docgen.spark import option_names
from kafkalog.log.defects.table import REFERENCES
from kafkalog.spark.options import NAMES
from kafkalog_cli.app import command_group
from tests.kafkalog.test_tiers import uploaded

if TYPE_CHECKING:
    from pathlib import Path

# What stands for a real path in the examples of the help, longest first.
STAND_INS = {
    "/var/lib/kafka": "examples/log-dir",
    "/backups/kafka": "examples/log-dir",
    "__consumer_offsets-7": "examples/log-dir/__consumer_offsets-1",
    "__consumer_offsets-0": "examples/log-dir/__consumer_offsets-0",
    "customers-0": "examples/log-dir/customers-0",
    "orders-0": "examples/log-dir/orders-0",
    "events-0": "examples/typed/events-0",
    "/srv/registry": "examples/typed",
}
TIER = "/mnt/tier/kafka-tiered-storage"
BARE_FILE = re.compile(r"(?<![/\w])0{20}\.log")
RUN_TO_UNDO = (
    *("retention", "examples/log-dir/orders-0", "--config", "retention.ms=1000"),
    *("--apply", "--yes", "--backup", "before-compaction"),
)
VALUES = {
    "/backups/before-compaction": "before-compaction",
    "/backups": ".",
    "4711": "471",
    "orders-0@4711": "examples/log-dir/orders-0@471",
    "spark://host:7077": "local[2]",
    "2026-11-21T04:00:00Z": "2024-01-01T00:04:00Z",
    "order.json": "examples/order.schema.json",
    "payment.json": "tests/docs/payment.schema.json",  # orders are not payments
    "backup": "examples/log-dir/customers-0",
    "127.0.0.1:9100": "127.0.0.1:0",
    "/srv/lake": "warehouse",
}


TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages()}


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if blocks_in(text)])
def test_blocks_are_up_to_date(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` was run after the last change of what a page shows."""
    monkeypatch.chdir(ROOT)
    assert with_blocks(TEXTS[name]) == TEXTS[name], "run `make docs`"


def test_every_block_is_on_one_page() -> None:
    """A marker with a typo would never be replaced, and nobody would notice."""
    assert sorted(block for text in TEXTS.values() for block in blocks_in(text)) == sorted(BLOCKS)
    assert sum(text.count("<!-- generated:") for text in TEXTS.values()) == len(BLOCKS)


def test_every_command_is_documented() -> None:
    """A command has a section, a summary for the list of commands, and help for each option."""
    text = (DOCS / "commands.md").read_text()
    for name, command in commands.commands().items():
        assert f"## `kafkalog {name}`" in text
        assert command.short_help
        assert len(command.short_help) <= 60, "the list of commands is cut at 80 columns"
        for option, meaning, _ in commands.option_rows(name, command):
            assert meaning, (name, option)
        assert commands.example_lines(commands.help_of(command)), name


@pytest.mark.parametrize("name", commands.commands())
def test_every_option_is_on_the_page(name: str) -> None:
    """A section has a line for each option, or its name where the shared ones have the line."""
    text = (DOCS / "commands.md").read_text()
    _, _, shared, *_ = text.split("\n## ")
    [section] = [part for part in text.split("\n## ") if part.startswith(f"`kafkalog {name}`\n")]
    [links] = re.findall(r"^- \[Shared\]\(#shared-options\): (.*)", section, re.MULTILINE) or [""]
    count = 0
    for option, meaning, default in commands.option_rows(name, commands.commands()[name]):
        line = f"\n- `{option}`: {meaning.removesuffix('.')}"
        if default not in ("", "required"):
            line += f"; default `{default}`"
        line += ".\n" if meaning.endswith(".") else "\n"
        own = line in section
        assert own or line in shared, option
        words = option.replace(",", "").split()
        names = [word for word in words if word.startswith("--")]
        assert own or f"`{names[0] if names else option}`" in links.split(", "), option
        count += 1
    assert count == section.count("\n- `") + (len(links.split(", ")) if links else 0)


@pytest.mark.parametrize("name", ["", *commands.commands()])
def test_help_fits_a_terminal(name: str, kafkalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 80 columns the terminal breaks no line, examples included."""
    monkeypatch.setenv("COLUMNS", "80")
    help_text = kafkalog(*name.split(), "--help").stdout.splitlines()
    assert help_text
    assert [line for line in help_text if len(line.decode()) > 80] == []


ON_A_LOST_QUORUM = "kafkalog quorum "
"""Examples that `tests/kafkalog_cli/test_quorum.py` runs."""


def example_commands() -> list[str]:
    texts = [commands.help_of(command) for command in commands.commands().values()]
    texts.append(inspect.cleandoc(command_group().help).replace("\b\n", ""))
    lines = (line for text in texts for line in commands.example_lines(text))
    return [line for line in lines if not line.startswith(ON_A_LOST_QUORUM)]


def needs_spark(line: str) -> bool:
    """Return whether the example starts Spark."""
    return "--spark" in line


@pytest.mark.parametrize("line", [one for one in example_commands() if not needs_spark(one)])
def test_examples_of_the_help_run(
    line: str, kafkalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example does what it says, on the log directory in `examples/`."""
    run_example(line, kafkalog, tmp_path, monkeypatch)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("line", [one for one in example_commands() if needs_spark(one)])
def test_examples_with_spark_run(
    line: str, kafkalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the session of the tests, whatever master they name."""
    run_example(line, kafkalog, tmp_path, monkeypatch)


def run_example(line: str, kafkalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if "--apply" in line or "undo" in line:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
        monkeypatch.chdir(tmp_path)
    if "undo" in line:
        assert kafkalog(*RUN_TO_UNDO).status == 0
    words = [real_word(word) for word in shlex.split(line)[1:]]
    if TIER in words:
        uploaded(ROOT / "examples" / "log-dir" / "orders-0", tmp_path / "tier")
        words[words.index(TIER)] = str(tmp_path / "tier")
    if "--bootstrap" in words:  # no broker is here: without one, the command plans
        for option in {"--bootstrap", "--progress"} & set(words):
            at = words.index(option)
            del words[at : at + 2]
        words = [word for word in words if word != "--apply"]
    if "-2h" in words:
        words += ["--now", "2024-01-01T02:04:00Z"]
    words = [word.replace("warehouse=", f"warehouse={tmp_path}/") for word in words]
    places = {"--state", "--backup", "--commits", "--metrics-file"}
    if "iceberg" not in words:  # then --to names a table
        places.add("--to")
    for option in places & set(words):
        place = words.index(option) + 1
        words[place] = str(tmp_path / words[place])
    if words[0] == "serve":
        serve_until_told(words)
        return
    result = kafkalog(*words)
    assert result.status == 0, (words, result.stderr)
    assert not re.search("^error:", result.stderr, re.MULTILINE), words


def serve_until_told(words: list[str]) -> None:
    """Start a server on a free port, and end it as a service manager would."""
    command = [sys.executable, "-m", "kafkalog_cli", *words, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"bootstrap.servers=127.0.0.1:")
        process.terminate()
        assert b"error:" not in process.stderr.read()
    assert process.returncode == 0


def real_word(word: str) -> str:
    if word in VALUES:
        return VALUES[word]
    for name, real in STAND_INS.items():
        if word.startswith(name):
            return real + word.removeprefix(name)
    return BARE_FILE.sub("examples/log-dir/orders-0/\\g<0>", word)


def test_options_of_the_data_source_are_documented() -> None:
    """The page names each of them, and no others."""
    assert sorted(name.lower() for name in option_names()) == sorted(NAMES)


def test_real_rows_have_the_documented_fields(corpus_dir: Path, kafkalog: Any) -> None:
    """Rows of every kind over logs of several brokers, damaged ones among them."""
    states = corpus_dir / "kafka-4.3"
    internal = states / "internal-topics"
    seen = set()
    commands = [
        ("ls", internal),
        ("ls", "--segments", states / "txn"),
        ("ls", "--files", states / "interrupted-0-cleaned"),
        ("verify", states / "crash-1-torn"),
        ("verify", states / "txn", "--level", "deep", "--sample", "50%", "--seed", "1"),
        ("explain",),
        ("dump-segment", corpus_dir / "kafka-2.8" / "v0", "--limit", 50),
        *[
            ("dump-segment", path, "--limit", 50)
            for path in sorted([*internal.rglob("*-0"), *internal.rglob("*checkpoint*")])
        ],
    ]
    for command in commands:
        for line in kafkalog(*command, "--format", "ndjson").stdout.splitlines():
            row = json.loads(line)
            assert output.mistakes(row) == []
            seen.add(row["type"])
    assert {"log_dir", "partition", "segment", "file", "record", "defect", "verify_summary"} <= seen
    assert seen <= set(output.OBJECT_TYPES)


NAMES_DAMAGE = re.compile(r"\breference=|\b(make_defect|_damage|_corrupt)\(")


def test_every_reference_of_damage_is_explained() -> None:
    """A defect can only have a name that `docs/defects.md` explains."""
    used = set()
    for package in ("kafkalog", "kafkalog_cli"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if NAMES_DAMAGE.search(text) else ():
                if isinstance(node, ast.Call):
                    used |= set(references_in(node))
    assert used <= set(REFERENCES)
    assert len(used) > 20


@pytest.mark.parametrize("name", REFERENCES)
def test_a_section_tells_all_of_a_reference(name: str) -> None:
    """Each text of `kafkalog explain` is in the section, or in the one that the section names."""
    sections = {
        part.partition("`")[0]: part for part in (DOCS / "defects.md").read_text().split("\n### `")
    }
    known, section = REFERENCES[name], sections[name]
    assert known.meaning in section
    told = {"Arises": known.arises, "Broker": known.broker, "To do": known.hint,
            "Example": known.example}  # fmt: skip
    for title, text in told.items():
        line = re.search(rf"^\*\*{title}:\*\* (.*?)\\?$", section, re.MULTILINE)
        if line is None:
            assert not text, title
            continue
        other = re.fullmatch(r"see \[`(.*)`\]\(#\1\)", line[1])
        assert text is not None
        assert text in (sections[other[1]] if other else line[1]), title


def references_in(call: ast.Call) -> list[str]:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    values = [word.value for word in call.keywords if word.arg == "reference"]
    if name in ("make_defect", "_damage", "_corrupt"):
        values += call.args[:1]
    return [str(value.value) for value in values if isinstance(value, ast.Constant)]


@pytest.mark.parametrize(
    ("line", "status", "reference"),
    [
        ("ls examples/log-dir", 0, ""),
        ("verify examples/damaged", 1, ""),
        ("verify examples/damaged --fail-on damage", 1, ""),
        ("verify examples/damaged --sample 0%", 2, "usage"),
        ("verify examples/damaged --seed 7", 2, "usage"),
        ("verify examples/damaged --max-duration soon", 2, "usage"),
        ("verify examples/damaged --rate-limit 0", 2, "usage"),
        ("verify examples/damaged --state examples/damaged/state", 2, "usage"),
        ("verify examples/damaged --state README.md", 3, "not-a-kafka-file"),
        ("verify examples/damaged --state examples/nowhere/state", 4, "path-unwritable"),
        ("explain torn-tial", 2, "usage"),
        ("retention examples/log-dir --apply --check", 2, "usage"),
        ("compact examples/log-dir/__cluster_metadata-0", 4, "refused"),
        ("verify --compaction examples/log-dir/customers-0", 0, ""),
        ("verify --compaction examples/log-dir/customers-0 --cleaner-offset 60", 1, ""),
        ("lookup-offset examples/log-dir/orders-0 1000", 1, ""),
        ("lookup-offset examples/log-dir/orders-0", 2, "usage"),
        ("ls --sort colour examples/log-dir", 2, "usage"),
        ("kafka-dump-log --no-such-option --files 0.log", 2, "usage"),
        ("dump-segment examples/log-dir/orders-0 --from-time soon", 2, "usage"),
        ("ls examples/nowhere", 2, "path-not-found"),
        ("dump-segment README.md", 3, "not-a-kafka-file"),
        (
            "dump-segment examples/log-dir/orders-0 --to examples/order.schema.json",
            4,
            "destination-exists",
        ),
        ("kafka-dump-log --value-decoder-class my.Decoder --files 0.log", 5, "unsupported"),
        ("dump-segment {broken}", 6, "checkpoint-malformed"),
        ("ls examples/nowhere examples/log-dir {broken}", 8, "path-not-found"),
    ],
)
def test_statuses_are_those_listed(
    line: str, status: int, reference: str, kafkalog: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A test provokes each status of `docs/exit-codes.md` that a test can provoke."""
    monkeypatch.chdir(ROOT)
    broken = tmp_path / "replication-offset-checkpoint"
    broken.write_text("0\n2\norders 0 1000\n")
    result = kafkalog(*line.format(broken=broken).split())
    assert result.status == status, result.stderr
    if reference:
        assert result.stderr.startswith(f"error: {reference}\n")
    assert re.search(rf"^\| {status} \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)


def test_public_names_have_a_summary() -> None:
    """`docs/library.md` says of each name what it is."""
    for name in library.__all__:
        assert inspect.getdoc(getattr(library, name)), name


def test_cases_of_spark_have_tests() -> None:
    """`docs/design/spark-kafka-source.md` names all tests of these modules, and no others."""
    modules = (ROOT / "tests" / "kafka").glob("test_spark_kafka_*.py")
    code = "\n".join(path.read_text() for path in modules)
    there = set(re.findall(r"^def (test_\w+)", code, re.MULTILINE))
    lines = (DOCS / "design" / "spark-kafka-source.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.count(" | ") == 2]
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row[2])}
    assert named == there
    cases = [row for row in rows if row[1] not in ("---", "verdict")]
    assert len(cases) > 60
    for case in cases:
        assert case[1] in ("holds", "differs", "not applicable"), case
        assert case[1] == "not applicable" or "`test_" in case[2], case
