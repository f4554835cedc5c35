"""The benchmarks work: every part runs on very little data. Their measurements are not judged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from benchmarks.__main__ import command_line
from benchmarks.decoders import MEANINGS
from benchmarks.extremes import CODECS, extremes
from benchmarks.page import runs
from benchmarks.results import Record, loads
from benchmarks.row import WITHOUT_RATES
from benchmarks.rows import TRENDS, all_rows
from tests.builders import batch, record, write_log
from tests.checkout import ROOT
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
        record: their results.
    """

    rows: list[Row]
    record: Record


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """Measure some of the rows, all of them in `make test-all`."""
    rows = list(sampled([row for row in all_rows() if re.search(TRIED, row.title)], 13))
    only = "|".join(re.escape(title) for title in ("Decoders", *(row.title for row in rows)))
    home = tmp_path_factory.mktemp("benchmarks")
    into = home / "kafka.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--scale", "0.0005"]
    command += ["--only", f"^({only})$", "--data", str(home / "data"), "--into", str(into)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Rehearsal(rows, loads(into.read_text(encoding="utf-8")))


def test_every_row_is_measured(rehearsal: Rehearsal) -> None:
    """Each row has time, memory and rates, and both sides if it has two."""
    assert len(rehearsal.rows) >= 10
    for row in rehearsal.rows:
        result = rehearsal.record.results[row.name]
        figures = {"wall_s", "cpu_s", "peak_mb"}
        figures |= {"inside_s"} if row.tells_seconds else set()
        figures |= set() if row.table in WITHOUT_RATES else {"mb_per_s", "m_records_per_s"}
        sides = [result.ours, result.theirs] if row.theirs else [result.ours]
        for side in sides:
            assert side is not None, row.name
            assert figures <= set(side), row.name
            assert row.table == "More processors" or set(side) == figures, row.name
            assert min(side.values()) >= 0, row.name
        assert (result.times_faster is not None) == (row.theirs is not None)
        assert [one.wanted for one in result.bounds] == [one.text() for one in row.wanted]


def test_outputs_are_those_of_kafkas_tool(rehearsal: Rehearsal) -> None:
    """Byte for byte, over every codec, transactions and headers."""
    same = {row.name: rehearsal.record.results[row.name].same_bytes for row in rehearsal.rows}
    compared = {row.name for row in rehearsal.rows if row.compare}
    assert compared
    assert same == {name: True if name in compared else None for name in same}


def test_trends_and_decoders_are_recorded(rehearsal: Rehearsal) -> None:
    """If the decoders disagreed on the number of records, the run would have failed."""
    names = {row.name for row in rehearsal.rows}
    trends = {trend.name for trend in TRENDS if {trend.small, trend.large} <= names}
    assert set(rehearsal.record.results) == names | trends | set(MEANINGS)
    assert "so with other sizes than the rows say" in runs(rehearsal.record)


def test_both_sides_of_the_parquet_row_write_the_rows(tmp_path: Path) -> None:
    """The file that the command writes, and the same one out of memory."""
    [row] = [one for one in all_rows() if one.name.startswith("Parquet and pyarrow from memory")]
    partition = tmp_path / "orders-0"
    write_log(partition, batch(0, [record(0), record(1), record(2)]))
    places = {"partition": str(partition), "to": str(tmp_path / "to.out")}
    for words in (row.ours, row.theirs):
        command = command_line(words, places)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["seconds"] > 0
        assert pq.read_table(tmp_path / "to.out.parquet")["offset"].to_pylist() == [0, 1, 2]


def test_every_extreme_is_measured(tmp_path: Path) -> None:
    """Small bombs, a small huge value, few partitions: each command, with its status.

    The bombs use one codec, or all of them in `make test-all`.
    """
    codecs = list(sampled(sorted(CODECS), len(CODECS)))
    print(codecs)
    only = rf"^(?!bomb, (?!({'|'.join(codecs)})$))"
    logs = [one for one in extremes() if re.search(only, one.name)]
    assert len(logs) == len(extremes()) - len(CODECS) + len(codecs)
    into = tmp_path / "extremes.json"
    command = [sys.executable, "-m", "benchmarks.extremes", "--scale", "0.0002"]
    command += ["--into", str(into), "--only", only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = loads(into.read_text(encoding="utf-8")).results
    assert list(results) == [one.result_name(words) for one in logs for words in one.commands]
    assert {one.ours["status"] for one in results.values()} == {0, 1}
    for name, result in results.items():
        assert min(result.ours["wall_s"], result.ours["peak_mb"]) > 0
        assert (result.theirs is not None) == name.endswith(": kafka-dump-log")
        assert result.theirs is None or result.theirs["status"] == 0


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
