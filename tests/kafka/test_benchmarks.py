"""The benchmarks work: every part runs on very little data. Their measurements are not judged."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from benchmarks.decoders import MEANINGS
from benchmarks.extremes import CODECS, extremes
from benchmarks.page import WITHOUT_RATES, tells_seconds
from benchmarks.rows import TRENDS, all_rows
from docgen.pages import ROOT
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.row import Row

pytestmark = pytest.mark.usefixtures("harness")

# Of the axes two codecs: the others differ in nothing that concerns the runner.
TRIED = "^(?!Kafka's JMH axes: (lz4|gzip|snappy))"


@dataclass(frozen=True)
class Rehearsal:
    """What a run over a two-thousandth of the data wrote.

    Attributes:
        rows: the rows that were measured.
        page: the text.
    """

    rows: list[Row]
    page: str


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """Measure every ninth of the rows, all of them in `make test-all`."""
    rows = list(sampled([row for row in all_rows() if re.search(TRIED, row.title)], 27))
    only = "|".join(re.escape(title) for title in ("Decoders", *(row.title for row in rows)))
    home = tmp_path_factory.mktemp("benchmarks")
    page = home / "performance.md"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--scale", "0.0005"]
    command += ["--only", f"^({only})$", "--data", str(home / "data"), "--to", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Rehearsal(rows, page.read_text(encoding="utf-8"))


def lines_of(page: str) -> dict[str, list[str]]:
    """Map the first cell of each line of the tables to the other cells of each such line."""
    lines: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("| "):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            lines.setdefault(name, []).append(" | ".join(cells))
    return lines


def test_every_row_is_measured(rehearsal: Rehearsal) -> None:
    """Each row has time, memory and rates, and both sides if it has two."""
    lines = lines_of(rehearsal.page)
    assert len(rehearsal.rows) >= 10
    for row in rehearsal.rows:
        [measured] = [line for line in lines[row.name] if not line.startswith(("≥", "≤"))]
        figures = (3 if row.table in WITHOUT_RATES else 5) + tells_seconds(row.table)
        assert measured.count(" / ") == (figures if row.theirs else 0), row.name
        verdicts = [line for line in lines[row.name] if line.startswith(("≥", "≤"))]
        assert len(verdicts) == len(row.wanted)
        assert all(line.endswith(("met", "missed**")) for line in verdicts)


def test_outputs_are_those_of_kafkas_tool(rehearsal: Rehearsal) -> None:
    """Byte for byte, over every codec, transactions and headers."""
    [verdict] = lines_of(rehearsal.page)["output of Kafka's tool"]
    compared = sum(row.compare for row in rehearsal.rows)
    assert verdict == f"same bytes | {compared} of {compared} | met"
    assert "**no**" not in rehearsal.page


def test_trends_and_decoders_are_shown(rehearsal: Rehearsal) -> None:
    """If the decoders disagreed on the number of records, the run would have failed."""
    lines = lines_of(rehearsal.page)
    names = {row.name for row in rehearsal.rows}
    shown = {trend.name for trend in TRENDS if {trend.small, trend.large} <= names}
    assert shown == {trend.name for trend in TRENDS if trend.name in lines}
    assert [name for name in MEANINGS if name not in lines] == []


def test_every_extreme_is_measured(tmp_path: Path) -> None:
    """Small bombs, a small huge value, few partitions: each command, with its status.

    The bombs use one codec, or all of them in `make test-all`.
    """
    codecs = list(sampled(sorted(CODECS), len(CODECS)))
    print(codecs)
    only = rf"^(?!bomb, (?!({'|'.join(codecs)})$))"
    logs = [one for one in extremes() if re.search(only, one.name)]
    assert len(logs) == len(extremes()) - len(CODECS) + len(codecs)
    page = tmp_path / "extremes.md"
    command = [sys.executable, "-m", "benchmarks.extremes", "--scale", "0.0002", "--to", str(page)]
    command += ["--only", only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if "`" in line]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == 8]
    assert len(rows) == sum(len(one.commands) for one in logs)
    assert {row[4] for row in rows} == {"0", "1"}
    assert all(row[7] == "0" for row in rows if row[1] == "`kafka-dump-log`")


def test_data_is_the_same_each_time(tmp_path: Path) -> None:
    """Kafka's classes write the same bytes from the same seed, in logs and in indexes."""
    from benchmarks.datasets import axis_datasets, provide

    dataset = axis_datasets()["lz4, 10 per batch, 100 B, transactional"].scaled(0.002)
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        partition = provide([dataset], tmp_path / name)[dataset.name]
        files = sorted(partition.directory.iterdir())
        contents.append({file.name: file.read_bytes() for file in files})
        assert partition.end_offset > dataset.records, "markers have offsets, too"
    assert contents[0] == contents[1]
    assert any(name.endswith(".timeindex") for name in contents[0])
