"""`kafka-dump-log`, compared with the recorded stdout of Kafka's own tools."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from formats.releases import newest
from tests.builders import batch, copy_tree, healthy, record, write_log
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

# The lookup scenarios that come with dumps.
DUMPED = ("compacted", "log_append_time", "old_formats", "plain", "transactions")

# The releases whose tools printed what the archives have, where they are not those of the brokers.
TOOLS = {"2.8": "4.3"}

# Where the real tool died: its stdout is what it had printed up to then, ours goes on.
DIED = "Exception in thread"


def check(kafkalog: Any, arguments: list[str], expected: bytes, died: bool) -> int:
    result = kafkalog("kafka-dump-log", *arguments)
    if died:
        # The last line may be half a line; what comes after it is ours alone.
        assert result.stdout.startswith(expected), arguments
        assert result.status in (0, 1, 6), arguments
    else:
        assert result.stdout == expected, (arguments, result.stderr)
    return result.status


@pytest.mark.sampled(30)
def test_recorded_calls_print_the_recorded_bytes(
    any_state: State, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shallow, deep and decoded logs, indexes, snapshots, checkpoints, KRaft snapshots."""
    monkeypatch.chdir(any_state.root)
    calls = 0
    broker = any_state.root.parent.name.removeprefix("kafka-")
    tool = ["--kafka", TOOLS.get(broker, broker)]
    for arguments, expected, died in recorded(any_state):
        status = check(kafkalog, [*tool, *arguments], expected, died)
        assert status == 0 or died or not healthy(any_state), arguments
        calls += 1
    assert calls > 10 or not any_state.expected.exists()  # a copy may have no dumps


def recorded(state: State) -> list[tuple[list[str], bytes, bool]]:
    dump = state.expected / "dump"
    calls = []
    if (dump / "exit-codes.json").exists():
        for name, run in json.loads((dump / "exit-codes.json").read_text()).items():
            died = DIED in run.get("stderr", "")
            calls.append((run["args"], (dump / name).read_bytes(), died))
        checks = json.loads((dump / "index-checks.json").read_text())
        for run in (run for ways in checks.values() for run in ways.values()):
            died = DIED in run.get("stderr", "")
            calls.append((run["args"], run["stdout"].encode(), died))
        return calls
    for path in sorted(dump.glob("*/*.txt")):
        calls += recorded_by_28(path)
    return calls


def recorded_by_28(path: Path) -> list[tuple[list[str], bytes, bool]]:
    """Return calls recorded by 2.8 archives: Kafka 4.3's output for logs, 2.8's where equal."""
    name = path.name.removesuffix(".txt")
    file = f"{path.parent.name}/{name.removesuffix('.kafka-4.3')}"
    stderr = path.with_name(f"{name}.stderr.txt")
    died = stderr.exists() and "EXCEPTION" in stderr.read_text(errors="replace")
    if name.endswith(".log.kafka-4.3"):
        arguments = ["--deep-iteration", "--print-data-log", "--files", file]
    elif name.endswith((".index", ".timeindex", ".snapshot", ".txnindex")):
        if path.with_name(f"{name}.kafka-4.3.txt").exists():
            return []
        arguments = ["--files", file]
    elif name.endswith((".index.kafka-4.3", ".timeindex.kafka-4.3", ".snapshot.kafka-4.3",
                        ".txnindex.kafka-4.3")):  # fmt: skip
        arguments = ["--files", file]
    else:
        return []  # 2.8's own text of logs differs from 4.3's
    return [(arguments, path.read_bytes(), died)]


@pytest.mark.parametrize("scenario", DUMPED)
def test_every_way_to_dump_prints_kafkas_bytes(
    scenario: str, corpus_dir: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shallow, deep, with data, without metadata, verify-only and sanity check."""
    folder = corpus_dir / "lookup" / scenario
    [partition] = folder.glob("**/orders-0")
    options = {
        "shallow": [],
        "deep": ["--deep-iteration"],
        "data": ["--deep-iteration", "--print-data-log"],
        "skipmeta": ["--deep-iteration", "--print-data-log", "--skip-record-metadata"],
        "verify": ["--verify-index-only"],
        "sanity": ["--index-sanity-check"],
    }
    monkeypatch.chdir(partition)
    calls = 0
    for path in sorted((folder / "dump").glob("0*.txt")):
        file, _, way = path.name.removesuffix(".txt").rpartition(".")
        if way not in options:
            file, way = f"{file}.{way}", "shallow"
        stderr = path.with_suffix(".err")
        died = stderr.exists() and DIED in stderr.read_text(errors="replace")
        expected = path.read_bytes()
        first = expected.split(b"\n", 1)[0].removeprefix(b"Dumping ").decode()
        check(kafkalog, [*options[way], "--files", relative(first, file)], expected, died)
        calls += 1
    assert calls > 5


def relative(recorded_path: str, file: str) -> str:
    assert os.path.basename(recorded_path) == file
    return recorded_path


def test_a_time_index_needs_no_offset_index(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """Kafka's tool creates an empty one and crashes; ours prints the entries and writes nothing."""
    partition = copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / "txn-0")
    times = min(path for path in partition.glob("*.timeindex") if path.stat().st_size > 12)
    wanted = kafkalog("kafka-dump-log", "--files", times)
    times.with_suffix(".index").unlink()
    assert kafkalog("kafka-dump-log", "--files", times) == wanted
    assert not times.with_suffix(".index").exists()


def test_padding_over_an_empty_log_is_no_damage(tmp_path: Path, kafkalog: Any) -> None:
    """A killed broker leaves such indexes; Kafka's tool prints the first slot, with status 0."""
    times = write_log(tmp_path / "empty-0").with_suffix(".timeindex")
    times.write_bytes(bytes(12 * 100))
    times.with_suffix(".index").write_bytes(bytes(8 * 100))
    result = kafkalog("kafka-dump-log", "--files", times)
    assert result.stdout == f"Dumping {times}\ntimestamp: 0 offset: 0\n".encode()
    assert result.status == 0


def test_indexes_of_an_empty_log_are_damage(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """Kafka's tool crashes at the first entry; ours prints all, with a status other than 0."""
    partition = copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / "txn-0")
    times = min(path for path in partition.glob("*.timeindex") if path.stat().st_size > 12)
    times.with_suffix(".log").write_bytes(b"")
    for path in (times, times.with_suffix(".index")):
        assert kafkalog("kafka-dump-log", "--files", path).status == 8, path


@pytest.mark.parametrize(
    ("words", "release"),
    [
        (["--version"], newest().name),
        (["--kafka", "4.3", "--version"], "4.3"),
        (["--version", "--kafka", "4.3"], "4.3"),
    ],
)
def test_version_is_that_of_the_tool_replaced(
    words: list[str], release: str, kafkalog: Any
) -> None:
    """Scripts ask Kafka's tools for their version."""
    result = kafkalog("kafka-dump-log", *words)
    assert result.status == 0
    assert result.stdout.decode().startswith(f"{release}.0 ")


def test_the_text_is_that_of_the_release(tmp_path: Path, kafkalog: Any) -> None:
    """4.3 does not know record 29; its tool says so, with status 0."""
    value = value_of("UnregisterControllerRecord", controllerId=2)
    log = write_log(tmp_path / "__cluster_metadata-0", batch(0, [record(0, None, value)]))
    texts = {}
    for release in ("4.3", newest().name):
        words = ["--kafka", release, "--cluster-metadata-decoder", "--skip-record-metadata"]
        result = kafkalog("kafka-dump-log", *words, "--files", log)
        assert result.status == 0
        texts[release] = result.stdout.decode().splitlines()[-1]
    assert texts == {
        "4.3": "| payload: Error at 0, skipping. org.apache.kafka.common.errors."
        "UnsupportedVersionException: Unknown metadata id 29",
        newest().name: '| payload: {"type":"UNREGISTER_CONTROLLER_RECORD","version":0,"data":'
        '{"controllerId":2}}',
    }


def test_only_releases_that_are_followed_can_be_chosen(kafkalog: Any) -> None:
    """Nothing says how the tool of another one prints."""
    result = kafkalog("kafka-dump-log", "--kafka", "4.2", "--version")
    assert result.status == 2
    assert "4.2" in result.stderr
