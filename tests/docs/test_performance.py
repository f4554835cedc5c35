"""The record covers the benchmarks that exist, and the pages show what is recorded."""

from __future__ import annotations

import gzip
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import names
from benchmarks.cores import payloads, seconds_held, seconds_on
from benchmarks.datasets import datasets
from benchmarks.decoders import MEANINGS
from benchmarks.extremes import extremes
from benchmarks.extremes import names as extreme_names
from benchmarks.page import BLOCKS, SHOWN, beside_kafka, missed, number, runs
from benchmarks.processes import Figures, Pair
from benchmarks.results import RESULTS, Bound, Record, Result, dumps, load, loads, merged
from benchmarks.row import WITHOUT_RATES, Row, Wanted, beside_codec, on_processors
from benchmarks.rows import DECODERS_DATASET, REHEARSAL_DATASET, TRENDS, all_rows
from docgen.pages import DOCS, ROOT, blocks_in, with_blocks

TABLES = set(re.findall(r"^- \*\*(.+?)\*\*: ", (RESULTS / "README.md").read_text(), re.MULTILINE))


def test_record_has_every_row() -> None:
    """After adding, renaming or dropping a benchmark, run `make bench` again."""
    record = load("kafka")
    assert list(record.results) == names(), "run `make bench`"
    for row in all_rows():
        result = record.results[row.name]
        assert result.table == row.table
        assert [bound.wanted for bound in result.bounds] == [one.text() for one in row.wanted]
        assert (result.theirs is None) == (row.theirs is None), row.name
        assert (result.same_bytes is None) == (not row.compare), row.name
        rates = set() if row.table in WITHOUT_RATES else {"mb_per_s", "m_records_per_s"}
        inside = {"inside_s"} if row.tells_seconds else set()
        for side in (result.ours, result.theirs or result.ours):
            assert {"wall_s", "peak_mb"} | rates | inside <= set(side), row.name
            assert min(side.values()) > 0, row.name
    for trend in TRENDS:
        assert [one.wanted for one in record.results[trend.name].bounds] == [
            f"≤ {trend.at_most:g} times"
        ]
    for name in MEANINGS:
        assert record.results[name].ours["m_records_per_s"] > 0


def test_verdicts_of_the_record_are_right() -> None:
    """A bound is met where the recorded figure says so."""
    bounds = [bound for area in ("kafka", "spark") for one in load(area).results.values()
              for bound in one.bounds]  # fmt: skip
    assert len(bounds) > 140
    for bound in bounds:
        sign, wanted = bound.wanted.split()[:2]
        near = 0.005 * float(wanted)  # as much as rounding moved it
        if abs(bound.measured - float(wanted)) > near:
            assert bound.met == ((bound.measured > float(wanted)) == (sign == "≥")), bound


def test_record_of_extremes_has_every_row() -> None:
    """The record of the full-size run names each log and its commands."""
    record = load("extremes")
    assert list(record.results) == extreme_names()
    assert {about["effort"] for about in record.runs.values()} == {"--scale 1"}
    text = (DOCS / "design" / "extremes.md").read_text(encoding="utf-8")
    assert "decompresses to 256 MiB of" in text
    for one in extremes():
        assert text.count(f"| {one.name}: ") == len(one.commands)


def test_each_result_has_its_run() -> None:
    """Machine and commit of every figure are known, and no run is left without a result."""
    for area in ("kafka", "spark", "extremes"):
        record = load(area)
        assert {one.run for one in record.results.values()} == set(record.runs)
        assert dumps(record) == (RESULTS / f"{area}.json").read_text(encoding="utf-8")


MADE_OF_RECORDS = ("performance.md", "design/spark-performance.md", "design/extremes.md")


@pytest.mark.parametrize("name", MADE_OF_RECORDS)
def test_pages_are_made_from_the_record(name: str) -> None:
    """Byte for byte; `make docs` was run after the last `make bench`."""
    text = (DOCS / name).read_text(encoding="utf-8")
    assert with_blocks(text) == text, "run `make docs`"
    made = [f"<!-- generated: {one} -->\n\n{BLOCKS[one]().strip()}\n\n<!-- end: {one} -->"
            for one in blocks_in(text)]  # fmt: skip
    assert made
    assert [one for one in made if text.count(one) != 1] == []


def test_page_states_what_spark_gains() -> None:
    """The two figures of the sentence are those of the record."""
    found = load("spark").results
    export, count = (
        found[f"{what}, against Spark's Kafka source"].bounds[0].measured
        for what in ("export to Parquet", "count")
    )
    text = (DOCS / "performance.md").read_text().replace("\n", " ")
    assert f"export is {export:.1f} times and counting {count:.1f} times as fast as" in text


def test_page_shows_the_rows_that_count() -> None:
    """Twenty-five, each with Kafka's side, slower ones among them; every missed bound counts."""
    record = load("kafka")
    assert len(set(SHOWN)) == 25
    lines = {line.split(" | ")[0]: line.split(" | ")[1:] for line in
             beside_kafka(record).splitlines()[2:]}  # fmt: skip
    assert list(lines) == [f"| {name}" for name in SHOWN]
    assert "-" not in {cell for cells in lines.values() for cell in cells}
    assert any(record.results[name].times_faster < 1 for name in SHOWN)  # type: ignore[operator]
    bounds = [bound for one in record.results.values() for bound in one.bounds]
    text = missed(record)
    assert text.startswith(f"{sum(one.met for one in bounds)} of {len(bounds)} targets are met; ")
    compared = sum(row.compare for row in all_rows())
    assert f"{compared} of {compared} outputs" in text
    assert all(f"- {one.wanted}: " in text for one in bounds if not one.met)


def test_missed_bounds_name_the_farthest_row() -> None:
    """Two rows are both named; of three, the worst: the smallest where much is wanted."""

    def result(name: str, wanted: str, measured: float) -> Result:
        return Result("T", name, "r", bounds=(Bound(wanted, measured, False),))

    few = {name: result(name, "≥ 2 times", 1.0) for name in ("a", "b")}
    many = {name: result(name, "≥ 3 times", at) for name, at in (("c", 2.0), ("d", 1.5), ("e", 2))}
    slow = {name: result(name, "≤ 3 s", at) for name, at in (("f", 4.0), ("g", 5.0), ("h", 4))}
    text = missed(Record(results=few | many | slow))
    assert "- ≥ 2 times: a (1.00); b (1.00)\n" in text
    assert "- ≥ 3 times: 3 rows, at worst d (1.50)\n" in text
    assert "- ≤ 3 s: 3 rows, at worst g (5.00)\n" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0321, "0.032"), (0.5, "0.50"), (9.994, "9.99"), (12.34, "12.3"),
     (123.4, "123"), (1234.5, "1,234"), (0, "0"), (75, "75")],
)  # fmt: skip
def test_figures_have_the_digits_that_count(value: float | None, text: str) -> None:
    """Two to four, and of what was counted all."""
    assert number(value) == text


def test_make_bench_is_the_command() -> None:
    """What the page says is what the Makefile does."""
    text = (DOCS / "performance.md").read_text().replace("\n", " ")
    make = (ROOT / "Makefile").read_text()
    command = "python -m benchmarks --into benchmarks/results/kafka.json"
    assert f"`{command}`" in text
    assert f"\t$(BIN)/{command}\n\t$(BIN)/python -m docgen\n" in make


def test_rows_are_told_apart() -> None:
    """Each name is unique, its data exists, and its table has a note."""
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    used = {row.dataset for row in rows} | {DECODERS_DATASET, REHEARSAL_DATASET}
    assert used == set(datasets())
    assert {row.table for row in rows} | {"Trends", "Decoders"} == TABLES
    names = {row.name for row in rows}
    assert {name for trend in TRENDS for name in (trend.small, trend.large)} <= names


def test_results_measured_later_replace_those_of_a_record() -> None:
    """By name, with all bounds, in the order of the names; what no longer exists goes."""
    first, second = (
        Result("T", "a", "1", {"wall_s": 1.0}, bounds=(Bound("≤ 1 s", 1.0, True),)),
        Result("T", "gone", "0", {"wall_s": 2.0}),
    )
    old = Record({"0": {"Python": "3.11"}, "1": {"Python": "3.12"}}, {"a": first, "gone": second})
    later = {
        "c": Result("T", "c", "2", {"wall_s": 9.0}, {"wall_s": 18.123456}, 2.0, True),
        "b": Result("T", "b", "2", {"wall_s": 9.0}),
    }
    new = Record({"2": {"Python": "3.13"}}, later)
    both = merged(old, new, ["a", "b", "c"])
    assert list(both.results.items()) == [("a", first), ("b", later["b"]), ("c", later["c"])]
    assert set(both.runs) == {"1", "2"}
    assert merged(both, new, ["a", "b", "c"]) == both
    read = loads(dumps(both))
    assert read.runs == both.runs
    assert read.results["a"] == first
    assert read.results["c"].theirs == {"wall_s": 18.123}
    assert read.results["c"].same_bytes is True
    assert runs(read) == "- 1 (results: 1): Python: 3.12\n- 2 (results: 2): Python: 3.13\n"
    again = Record({"3": {}}, {"a": Result("T", "a", "3", {"wall_s": 0.5})})
    assert merged(both, again, ["a"]) == again


def test_a_row_is_recorded_with_its_rates() -> None:
    """Of 2 s against 8 s for 4 GB and a million records; the figures that a process told count."""
    pair = Pair(Figures(2, 3, 100, inside_s=1.0), Figures(8, 9, 200, inside_s=5.0), True)
    wanted = (Wanted("times Kafka's", at_least=5), Wanted("MB", at_most=100))
    row = Row("T", "a", "data", ("x",), ("y",), wanted=wanted)
    result = row.result(pair, 1_000_000, 4_000_000_000, "r")
    assert result.ours == {"wall_s": 2, "cpu_s": 3, "peak_mb": 100, "inside_s": 1.0,
                           "mb_per_s": 2000, "m_records_per_s": 0.5}  # fmt: skip
    assert result.theirs is not None
    assert result.theirs["mb_per_s"] == 500
    assert (result.times_faster, result.same_bytes) == (4, True)
    assert result.bounds == (Bound("≥ 5 times Kafka's", 4, False), Bound("≤ 100 MB", 100, True))
    inside = Row("T", "a", "data", ("x",), ("y",), tells_seconds=True)
    assert inside.result(pair, 1, 1, "r").times_faster == 5


@pytest.mark.parametrize(
    ("one_s", "two_s", "gil_s", "processors", "expected_s"),
    [
        (10.0, 5.0, 0.0, 16, 0.625),  # all of it is shared
        (10.0, 10.0, 0.0, 16, 10.0),  # none of it
        (10.0, 6.0, 0.0, 16, 2.5),  # 2 s of one thread, 8 s shared
        (10.0, 6.0, 3.0, 16, 3.0),  # threads hold the GIL for longer
        (10.0, 6.0, 3.0, 2, 6.0),  # what was measured
        (10.0, 6.0, 0.0, 1, 10.0),
        (10.0, 4.0, 0.0, 16, 0.625),  # more than twice as fast: nothing but chance
        (10.0, 11.0, 0.0, 16, 10.0),  # slower: so is that
    ],
)
def test_model_of_more_processors(
    one_s: float, two_s: float, gil_s: float, processors: int, expected_s: float
) -> None:
    """Amdahl's law through two points, computed by hand."""
    assert seconds_on(processors, one_s, two_s, gil_s) == pytest.approx(expected_s)


def test_time_with_the_gil_is_counted() -> None:
    """Three stacks were seen, one could not be read: 11 looks, 500 a second."""
    stacks = "main (a.py:1);read (b.py:2) 7\nwait (c d.py:3) 2\nmain (a.py:1) 1\n"
    assert seconds_held(stacks, 1, 500) == 11 / 500
    assert seconds_held("", 0, 500) == 0


def test_bounds_on_more_processors() -> None:
    """Of 4 s on one processor and 2.5 s on two, of which the GIL was held for a fifth."""
    figures = Figures(2.5, 4.5, 100, alone_wall_s=4.0, alone_cpu_s=3.9, gil_share=0.2)
    pair = Pair(figures, None, None)
    assert Wanted("times as fast on 2 processors").value(pair, 1, 1) == pytest.approx(1.6)
    assert Wanted("% of the time with the GIL").value(pair, 1, 1) == pytest.approx(20)
    assert on_processors(figures, 4) == pytest.approx(1.75)  # 1 s of one thread, 3 s shared
    plain = Figures(1, 1, 100, alone_wall_s=2.0, alone_cpu_s=1.8)
    packed = Figures(2, 2, 100, alone_wall_s=4.0, alone_cpu_s=3.9, codec_cpu_s=1.2)
    assert beside_codec(plain, packed) == pytest.approx(1.3)


def test_work_in_process_is_compared_with_the_other() -> None:
    """Of 2 s against 1.5 s, whatever the processes around it took."""
    pair = Pair(Figures(9, 9, 100, inside_s=2.0), Figures(3, 3, 100, inside_s=1.5), None)
    wanted = Wanted("times as fast as the other in process", at_least=0.7)
    assert wanted.value(pair, 1, 1) == pytest.approx(0.75)
    assert wanted.text() == "≥ 0.7 times as fast as the other in process"


def test_payloads_of_batches_are_found(tmp_path: Path) -> None:
    """Two batches by hand: a length at byte 8 counts from byte 12 on, attributes end at byte 23."""
    packed = gzip.compress(b"records")
    batches = b""
    for codec, payload in ((1, packed), (0, b"plain")):
        head = bytearray(61)
        head[8:12] = (49 + len(payload)).to_bytes(4)
        head[22] = codec | 0x10  # transactional
        batches += head + payload
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batches)
    assert list(payloads(str(path))) == [(1, packed), (0, b"plain")]


def test_gil_of_a_process_is_seen() -> None:
    """A process that only sleeps holds no lock of Python's; one that only counts always does."""
    from benchmarks.cores import Spy

    counting, sleeping = "while time.process_time() < end: pass", "time.sleep(0.5)"
    held = {}
    for work in (counting, sleeping):
        program = "import sys, time\nfor _ in sys.stdin:\n    end = time.process_time() + 0.5\n"
        with subprocess.Popen(
            [sys.executable, "-c", f"{program}    {work}\n    print(flush=True)"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            with Spy(process.pid) as spy:
                process.stdin.write(b"\n")
                process.stdin.flush()
                process.stdout.readline()
            process.stdin.close()
        held[work] = spy.held_s
    assert held[counting] > 2 * held[sleeping]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_ended_ends_what_it_measures(
    number: signal.Signals, tmp_path: Path
) -> None:
    """And what that has started: a broker or a server would disturb all later ones."""
    told = tmp_path / "process"
    measured = ["sh", "-c", f"sleep 600 & echo $! > {told}.new && mv {told}.new {told} && wait"]
    program = "import sys; from benchmarks import processes; processes.exit_on_signals(); "
    program += "processes.run(sys.argv[1:], 1)"
    with subprocess.Popen([sys.executable, "-c", program, *measured], cwd=ROOT) as benchmark:
        while not told.exists():
            assert benchmark.poll() is None
            time.sleep(0.01)
        benchmark.send_signal(number)
    assert benchmark.returncode == 128 + number
    state = Path("/proc") / told.read_text().strip() / "stat"
    while state.exists() and ") Z " not in state.read_text():  # killed, it is gone at once
        time.sleep(0.01)
