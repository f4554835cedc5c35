"""`docs/performance.md` covers the benchmarks that exist."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cores import payloads, seconds_held, seconds_on
from benchmarks.datasets import datasets
from benchmarks.decoders import MEANINGS
from benchmarks.extremes import extremes
from benchmarks.page import COMMAND, NOTES, merged
from benchmarks.processes import Figures, Pair
from benchmarks.row import Wanted, beside_codec, on_processors
from benchmarks.rows import DECODERS_DATASET, REHEARSAL_DATASET, TRENDS, all_rows
from docgen.pages import ROOT


def test_page_has_every_row() -> None:
    """After adding, renaming or dropping a benchmark, run `make bench` again."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"`{COMMAND}`" in text
    names = {row.name for row in all_rows()} | {trend.name for trend in TRENDS} | set(MEANINGS)
    assert [name for name in names if f"| {name} |" not in text] == []
    assert [title for title in NOTES if f"## {title}\n" not in text] == []
    for row in all_rows():
        for wanted in row.wanted:
            assert f"| {row.name} | {wanted.text()} |" in text, "run `make bench`"


def test_page_of_extremes_has_every_row() -> None:
    """The page of the full-size run names each log and its commands."""
    text = (ROOT / "docs" / "extremes.md").read_text(encoding="utf-8")
    assert "decompresses to 256 MiB of" in text
    for one in extremes():
        assert text.count(f"| {one.name} |") == len(one.commands)


def test_make_bench_is_the_command() -> None:
    """What the page says is what the Makefile does."""
    assert f"$(BIN)/{COMMAND}\n" in (ROOT / "Makefile").read_text()


def test_rows_are_told_apart() -> None:
    """Each name is unique, its data exists, and its table has a note."""
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    used = {row.dataset for row in rows} | {DECODERS_DATASET, REHEARSAL_DATASET}
    assert used == set(datasets())
    assert {row.table for row in rows} == set(NOTES)
    names = {row.name for row in rows}
    assert {name for trend in TRENDS for name in (trend.small, trend.large)} <= names


def test_rows_measured_later_replace_those_of_a_page() -> None:
    """A new row replaces the old one, with all its bounds; a missing table comes in its order."""
    head = "| what | wall s |\n| --- | ---: |\n"
    wanted = "## Wanted and measured\n\n| what | wanted | measured |\n| --- | --- | ---: |\n"
    old = f"# P\n\n{wanted}| a | 1 s | 2 |\n| a | 1 MB | 2 |\n\n## Groups\n\n{head}| a | 1 |\n"
    old += f"| b | 2 |\n\n## Keys\n\n{head}| c | 3 |\n"
    new = f"# P\n\n{wanted}| a | 1 MB | 9 |\n| d | 1 s | 9 |\n\n## Groups\n\n{head}| b | 9 |\n\n"
    new += f"## Disk usage\n\nNote.\n\n{head}| d | 9 |\n"
    expected = f"# P\n\n{wanted}| a | 1 MB | 9 |\n| d | 1 s | 9 |\n\n## Groups\n\n"
    expected += f"{head}| a | 1 |\n| b | 9 |\n\n## Disk usage\n\nNote.\n\n{head}| d | 9 |\n\n"
    expected += f"## Keys\n\n{head}| c | 3 |\n"
    assert merged(old, new) == expected
    assert merged(expected, new) == expected


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
