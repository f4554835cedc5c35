"""Options of `verify` for a whole run: samples, states, limits, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.builders import batch, copy_tree, flip, record, write_log
from tests.waiting import HANG_S, until

LIMIT, RATE = "--rate-limit", 16 << 10


def summary(kafkalog: Any, *line: object) -> dict[str, Any]:
    found = json.loads(kafkalog("verify", *line, "--format", "ndjson").stdout.splitlines()[-1])
    assert found["type"] == "verify_summary"
    assert isinstance(found, dict)
    return found


def test_a_sample_is_reported(corpus_dir: Path, kafkalog: Any):
    """The report has its size and the seed that repeats it; the default seed is the day's."""
    root = corpus_dir / "kafka-4.3" / "txn"
    segments = len(list(root.glob("*/*.log")))
    found = summary(kafkalog, root, "--level", "deep", "--sample", "10%", "--seed", "7")
    chosen = -(-segments // 10)
    assert found["sample"] == {"share": 0.1, "seed": 7, "segments": chosen, "of": segments}
    assert found["levels"] == ["quick", "deep"]
    days = {int(time.strftime("%Y%m%d", time.gmtime()))}
    seed = summary(kafkalog, root, "--sample", "0.5%")["sample"]["seed"]
    assert seed in days | {int(time.strftime("%Y%m%d", time.gmtime()))}
    assert summary(kafkalog, root)["sample"] is None


def test_topics_are_checked_alone(tmp_path: Path, kafkalog: Any):
    """As if their partitions were named; damage of others is not read, and a typo is an error."""
    for name in ("a-0", "a-1", "b-0"):
        write_log(tmp_path / name, batch(0, [record()]))
    log = tmp_path / "b-0" / f"{0:020}.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 63))
    (tmp_path / "meta.properties").write_text("version=7")
    for options, files, damage in (
        (("--topic", "a"), 2, 0),
        (("--topic", "!b"), 2, 0),
        (("--topic", "b"), 1, 1),
        (("--topic", "a", "--topic", "b", "--topic", "!a"), 1, 1),
    ):
        found = summary(kafkalog, tmp_path, *options)
        assert (found["files"], found["defects"]["damage"]) == (files, damage), options
    for option in ("--topic",):
        done = kafkalog("verify", tmp_path, option, "c")
        assert (done.status, "No partition of the topic c" in done.stderr) == (1, True)


def test_a_state_goes_on_from_run_to_run(corpus_dir: Path, tmp_path: Path, kafkalog: Any):
    """Each run with no time at all checks one more segment, until all are checked."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    state = tmp_path / "state"
    segments = {str(path) for path in root.glob("*/*.log")}
    for _ in range(len(segments) + 1):
        result = kafkalog("verify", root, "--state", state, "--max-duration", "0s")
        assert result.status == 0
    written = json.loads(state.read_text())
    assert set(written["files"]) == segments
    assert all("standard" in when for _, _, when in written["files"].values())
    assert os.listdir(tmp_path) == ["state", "txn"] or set(os.listdir(tmp_path)) == {"state", "txn"}


def test_a_state_is_found_from_any_directory(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """Relative and absolute paths mean the same segment."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    state = tmp_path / "state"
    kafkalog("verify", root, "--state", state)
    first = set(json.loads(state.read_text())["files"])
    monkeypatch.chdir(tmp_path)
    kafkalog("verify", "txn", "--state", "state")
    assert set(json.loads(state.read_text())["files"]) == first


@pytest.mark.parametrize("place", ["state", "txn-0/state", "../link/state"])
def test_a_state_never_lies_in_what_is_read(
    place: str, corpus_dir: Path, tmp_path: Path, kafkalog: Any
):
    """Whichever way its path is written."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    (tmp_path / "link").symlink_to(root)
    before = sorted(root.rglob("*"))
    result = kafkalog("verify", root, "--state", root / place)
    assert result.status == 2
    assert sorted(root.rglob("*")) == before


def test_a_malformed_state_is_left_alone(tmp_path: Path, kafkalog: Any):
    """It may be a valuable file with the wrong name."""
    state = tmp_path / "notes"
    state.write_text("my notes")
    result = kafkalog("verify", "examples/log-dir", "--state", state)
    assert result.status == 3
    assert result.stderr.startswith("error: not-a-kafka-file\n")
    assert state.read_text() == "my notes"


@pytest.mark.parametrize(
    "line",
    [("--threads", "1"), ("--threads", "3"), ("--no-cache",), (LIMIT, "1GiB/s"),
     ("--no-cache", LIMIT, "10g", "--threads", "2", "--level", "deep")],
)  # fmt: skip
def test_how_it_is_read_changes_nothing(line: tuple[str, ...], tmp_path: Path, kafkalog: Any):
    """The findings and counts are the same, for a log large enough for threads."""
    rows = [record(i, b"k", os.urandom(900)) for i in range(50)]
    data = bytearray(b"".join(batch(50 * i, rows) for i in range(60)))
    for at in range(100_000, len(data), 500_000):
        data[at] ^= 4
    path = write_log(tmp_path / "t-0", bytes(data))
    level = line[-1] if "--level" in line else "standard"
    plain = kafkalog("verify", path.parent, "--level", level, "--format", "ndjson")
    assert plain.status == 1
    assert kafkalog("verify", path.parent, *line, "--format", "ndjson").stdout == plain.stdout


@pytest.mark.parametrize("option", [("--threads", "0"), ("--sample", "101%"), (LIMIT, "fast"),
                                    ("--sample", "5"), ("--max-duration", "-1m")])  # fmt: skip
def test_values_that_make_no_sense_are_refused(option: tuple[str, str], kafkalog: Any):
    """They are refused before anything is read."""
    result = kafkalog("verify", "examples/log-dir", *option)
    assert (result.status, result.stdout) == (2, b"")


def slow_run(root: Path, *options: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "kafkalog_cli", "verify", LIMIT, str(RATE), *options, str(root)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """Small damaged segments, and one that takes longer than any wait at the rate of the tests."""
    rows = [record(0, b"k", os.urandom(10_000))]
    for base in (0, 1):
        write_log(tmp_path / "t-0", flip(batch(base, rows), 80_000), name=f"{base:020d}")
    size = int(2 * HANG_S) * RATE
    write_log(tmp_path / "t-0", batch(2, [record(0, b"k", bytes(size))]), name=f"{2:020d}")
    return tmp_path / "t-0"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["table", "ndjson", "json"])
def test_an_interrupted_run_ends_with_130_and_keeps_its_state(
    form: str, long_log: Path, tmp_path: Path
):
    """Findings appear as they come, without a traceback; checked segments are not checked again."""
    state = tmp_path / "state"
    process = slow_run(long_log, "--state", str(state), "--format", form)
    assert process.stdout is not None
    while b"batch-crc-mismatch" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, err) == (130, b""), out
    files = json.loads(state.read_text())["files"]
    assert len(files) < 3
    if form == "table":
        assert files, "of a segment everything is told together"


def test_an_interrupted_report_is_not_half_written(long_log: Path):
    """The report for Prometheus is written completely or not at all."""
    process = slow_run(long_log, "--format", "prometheus")
    last = str(max(long_log.iterdir()))
    until(lambda: last in open_files(process.pid), lambda: process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out, err) == (130, b"", b"")


def open_files(pid: int) -> list[str]:
    """Return the paths of the files that a process has open."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(descriptor))
    return found


def test_a_reader_that_goes_away_ends_the_run_silently(tmp_path: Path):
    """It ends by SIGPIPE, as any Unix filter does."""
    path = write_log(tmp_path / "t-0", *[batch(5, [record()]) for _ in range(20_000)])
    line = [sys.executable, "-m", "kafkalog_cli", "verify", "--format", "ndjson", str(path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(HANG_S) == -signal.SIGPIPE
