"""A failure of kafkalog itself has its own status, and no output reads like a verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.io.jit import fast_path, library
from kafkalog.io.paths import file_system, source
from kafkalog.log.columns import kernels, record_facts
from tests.builders import copy_tree
from tests.sweeps import command_lines, small_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]


def fails(kind: type[Exception], *words: str) -> Callable[..., Any]:
    """Return a function that raises, in the place of one with a bug."""

    def fail(*_: object, **__: object) -> object:
        raise kind(*words)

    return fail


@pytest.mark.parametrize(
    "failure", [RecursionError, AssertionError, KeyError, OverflowError, SystemError]
)
def test_whatever_is_raised_is_an_internal_error(
    failure: type[Exception], kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is reported on one line, even if the exception has several."""
    monkeypatch.setattr(file_system, "stat", fails(failure, "two\nlines"))
    result = kafkalog("ls", tmp_path)
    assert (result.status, result.stdout) == (70, b"")
    assert result.stderr.startswith("error: internal-error\n× internal error: ")
    names = [line.split(" ")[0] for line in result.stderr.splitlines()]
    assert names in (["error:", "×", "note:", "hint:"], ["error:", "×", "╰─>", "note:", "hint:"])


def test_a_lack_of_memory_is_told(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither a failure of ours nor damage."""
    monkeypatch.setattr(file_system, "stat", fails(MemoryError))
    result = kafkalog("ls", tmp_path)
    assert (result.status, result.stdout) == (7, b"")
    assert result.stderr.startswith("error: limit-exceeded\n× Memory ran out.\n")
    assert "no damage" in result.stderr


@pytest.mark.parametrize("failure", [IndexError, EOFError])
def test_each_command_ends_with_the_status_of_an_internal_error(
    failure: type[Exception],
    kafkalog: Run,
    corpus_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Status 1 would mean that defects were found; tracebacks are for `--debug`.

    Typer treats an `EOFError` as Ctrl-D, and would end silently.
    """
    partition = small_log(corpus_dir, tmp_path)
    lines = command_lines(partition, sorted(partition.glob("*.log"))[:1])
    lines += [["salvage", partition, "--to", tmp_path / "new"], ["recover", tmp_path],
              ["rebuild-index", partition], ["compact", partition],
              ["profile", partition],
              ["verify", "--compaction", partition],
              ["export", partition, "--to", tmp_path / "out"],
              ["retention", partition]]  # fmt: skip
    monkeypatch.setattr(file_system, "stat", fails(failure))
    monkeypatch.setattr(source.Source, "_open", fails(failure))
    for line in lines:
        result = kafkalog(*line)
        assert result.status == 70, (line, result)
        assert result.stderr.startswith("error: internal-error\n× internal error: "), line
        assert "Traceback" not in result.stderr, line
        assert b"nothing" not in result.stdout, line


@pytest.fixture
def broken_check(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a bug into a thread of the checks."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    monkeypatch.setattr(record_facts, "markers_of_chunk", fails(IndexError, "out of range"))
    return


@pytest.mark.usefixtures("broken_check")
def test_no_report_of_verify_claims_success(kafkalog: Run, corpus_dir: Path, tmp_path: Path):
    """A reader of the report alone learns of the failure, even if it was in a thread."""
    partition = small_log(corpus_dir, tmp_path)
    results = {
        form: kafkalog("verify", partition, "--format", form)
        for form in ("table", "ndjson", "json", "csv", "prometheus")
    }
    assert {result.status for result in results.values()} == {70}
    assert all("internal-error" in result.stderr for result in results.values())
    assert not any("Traceback" in result.stderr for result in results.values())
    for form, result in results.items():
        assert form == "prometheus" or b"check-failed" in result.stdout, (form, result)
    assert b"\nnothing wrong" not in results["table"].stdout
    assert b"kafkalog_verify_exit_status 70\n" in results["prometheus"].stdout
    assert b"kafkalog_verify_errors 1\n" in results["prometheus"].stdout


@pytest.mark.usefixtures("broken_check")
def test_other_targets_are_still_checked(kafkalog: Run, corpus_dir: Path, tmp_path: Path):
    """The failure costs its own target."""
    partition = small_log(corpus_dir, tmp_path)
    other = copy_tree(partition, tmp_path / "orders-1")
    for log in other.glob("*.log"):
        log.rename(log.with_suffix(".log.deleted"))
    result = kafkalog("verify", partition, other)
    assert result.status == 70
    assert b"leftover-file" in result.stdout


@pytest.mark.usefixtures("broken_check")
def test_debug_shows_where_it_was_raised(kafkalog: Run, corpus_dir: Path, tmp_path: Path):
    """The status is the same, though the failure is contained."""
    partition = small_log(corpus_dir, tmp_path)
    result = kafkalog("--debug", "verify", partition)
    assert result.status == 70
    assert "IndexError: out of range" in result.stderr
    assert 'headers.py", line' in result.stderr
    result = kafkalog("--debug", "verify", partition, "--format", "prometheus")
    assert b"kafkalog_verify_errors 1\n" in result.stdout
    assert "IndexError: out of range" in result.stderr


def test_debug_shows_what_ended_the_work(
    kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The status is the same; an expected error keeps its own."""
    with monkeypatch.context() as patched:
        patched.setattr(file_system, "stat", fails(IndexError, "out of range"))
        result = kafkalog("--debug", "ls", tmp_path)
    assert result.status == 70
    assert "IndexError: out of range" in result.stderr
    assert 'log_dir.py", line' in result.stderr
    result = kafkalog("--debug", "ls", tmp_path / "missing")
    assert result.status == 2
    assert "NotFoundError" in result.stderr


def test_an_array_that_was_not_finished_is_no_json(
    kafkalog: Run, corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A closing bracket would claim that the array is complete."""
    partition = small_log(corpus_dir, tmp_path)
    monkeypatch.setattr("kafkalog_cli.output.dump.read_records", fails(KeyError, "x"))
    result = kafkalog("dump-segment", partition, "--format", "json", "--limit", "3")
    assert result.status == 70
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.stdout)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Pretend that no library fits this processor; return the warnings about it."""
    said: list[str] = []
    monkeypatch.setattr(library, "LEVELS", {})
    monkeypatch.setattr(kernels.binary_offsets, "_native", None)
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    monkeypatch.setattr(fast_path, "on_unusable", [said.append])
    library.loaded.cache_clear()
    fast_path.kernels_work.cache_clear()
    yield said
    library.loaded.cache_clear()
    fast_path.kernels_work.cache_clear()


def test_without_kernels_the_answers_are_the_same(
    kafkalog: Run, corpus_dir: Path, tmp_path: Path, request: pytest.FixtureRequest
):
    """The reference decoder reads logs of any size, and one warning says why it is slow."""
    partition = small_log(corpus_dir, tmp_path)
    log = min(partition.glob("*.log"))
    lines: list[list[object]] = [
        ["verify", "--level", "deep", partition], ["compact", partition, "--now", "0"],
        ["dump-segment", partition, "--format", "ndjson"],
        ["kafka-dump-log", "--print-data-log", "--files", log],
        ["verify", "--compaction", partition, "--cleaner-offset", "20"],
        ["simulate-roll", partition, "--config", "segment.bytes=1000"],
        ["lookup-offset", partition, "--timestamp", "1700000000000"],
        ["profile", partition, "--format", "ndjson"],
    ]  # fmt: skip
    wanted = [kafkalog(*line) for line in lines]
    said = request.getfixturevalue("without_kernels")
    for line, before in zip(lines, wanted, strict=True):
        assert kafkalog(*line) == before, line
    assert len(said) == 1
    assert "no kernels were built for this processor" in said[0]
