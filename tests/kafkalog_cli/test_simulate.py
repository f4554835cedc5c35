"""`retention` and `simulate-roll`: options, rows, messages and statuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from docgen import output
from kafkalog.files.log_dir import open_partition, open_path
from tests.checkout import ROOT
from tests.conftest import OF_KAFKA_4, Result, State, state
from tests.nodes import METADATA, write_node

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]
# Rewritten by the cleaner, or rolled under configs that were changed later, or with a part missing.
NOT_AS_WRITTEN = {
    "compact-1-first-pass", "compact-2-later-passes", "crash-1-torn", "crash-2-recovered",
    "interrupted-0-cleaned", "interrupted-1-swap", "interrupted-2-swap-recovered",
    "interrupted-3-cleaned-recovered", "codecs", "internal-topics",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def rows(result: Result) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    for row in found:
        assert output.mistakes(row) == []
    return found


def of_type(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in found if row["type"] == name]


def test_retention_of_a_real_broker(corpus_dir: Path, kafkalog: Run) -> None:
    """A broker deleted segments between two copies of its directory: by size, time and start."""
    before = state(corpus_dir, "kafka-4.3", "retention-0-before").root
    after = state(corpus_dir, "kafka-4.3", "retention-1-after-live")
    facts = json.loads((after.expected / "state.json").read_text())
    gone = set()
    for topic, described in facts["topics"].items():
        configs = [
            word
            for name, value in described["configs"].items()
            if name.startswith("retention")
            for word in ("--config", f"{name}={value}")
        ]
        if topic == "trimmed":
            configs += ["--log-start-offset", "221"]
        now = facts["retentionRanBetweenMs"]
        found = rows(
            kafkalog("retention", before / f"{topic}-0", *configs, "--now", now,
                     "--format", "ndjson")
        )  # fmt: skip
        left = open_partition(str(after.root / f"{topic}-0")).segments
        kept = [row for row in of_type(found, "retention") if row["verdict"] == "keep"]
        assert [row["base_offset"] for row in kept] == [one.base_offset for one in left], topic
        gone |= {row["reason"] for row in found if row.get("verdict") == "delete"}
        again = kafkalog("retention", after.root / f"{topic}-0", "--now", now,
                         "--format", "ndjson")  # fmt: skip
        assert rows(again)[-1]["deleted_segments"] == 0, topic
    assert gone == {"retention.bytes", "retention.ms", "log-start-offset"}


@pytest.mark.sampled(3)
def test_every_state_has_a_verdict_for_every_segment(any_state: State, kafkalog: Run) -> None:
    """Any log directory that a broker left is judged as a whole, without an error."""
    for log_dir in any_state.log_dirs:
        result = kafkalog("retention", log_dir, "--format", "ndjson")
        assert result.status == 0
        assert "error" not in result.stderr
        found = rows(result)
        logs = [
            segment.log.path
            for partition in open_path(str(log_dir)).partitions  # type: ignore[union-attr]
            for segment in partition.segments
        ]
        assert [row["segment"] for row in of_type(found, "retention")] == logs
        assert found[-1]["segments"] == len(logs)
        reasons = {row["reason"] for row in found if row.get("topic") == "__cluster_metadata"
                   and row["type"] == "retention"}  # fmt: skip
        assert reasons <= {"metadata-log"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("release", "name"),
    [one for one in OF_KAFKA_4 if one[1] not in NOT_AS_WRITTEN],
    ids=lambda word: word,
)
def test_a_replay_under_present_configs_gives_the_files(
    release: str, name: str, corpus_dir: Path, kafkalog: Run
) -> None:
    """A real broker rolled at the same offsets, and its closed indexes have the same size."""
    found = state(corpus_dir, release, name)
    compared = 0
    for log_dir in found.log_dirs:
        if not (log_dir / "__cluster_metadata-0").exists():
            continue
        for partition in open_path(str(log_dir)).partitions:  # type: ignore[union-attr]
            if not partition.segments or partition.state != "live":
                continue
            result = kafkalog("simulate-roll", partition.path, "--format", "ndjson")
            assert result.status == 0, partition.path
            *others, summary = rows(result)
            segments = of_type(others, "roll")
            assert [row["base_offset"] for row in segments] == [
                one.base_offset for one in partition.segments
            ], partition.path
            assert summary["segments_on_disk"] == summary["segments"]
            for row, one in zip(segments[:-1], partition.segments, strict=False):
                assert one.offset_index is not None
                assert one.time_index is not None
                assert row["index_bytes"] == one.offset_index.size_bytes
                assert row["timeindex_bytes"] == one.time_index.size_bytes
                compared += 1
    if name not in ("default-config-clean", "default-config-live"):
        assert compared


@pytest.mark.parametrize("form", ["table", "ndjson", "json", "csv"])
@pytest.mark.parametrize("command", ["retention", "simulate-roll"])
def test_every_form_has_every_segment(command: str, form: str, kafkalog: Run) -> None:
    """In each format, every segment appears once."""
    line = (command, "examples/log-dir/orders-0", "--config", "segment.bytes=12000")
    result = kafkalog(*line, "--format", form)
    text = result.stdout.decode()
    assert result.status == 0
    names = {"json": "base_offset", "ndjson": "base_offset", "csv": ",750,", "table": " 750 "}
    times = {"json": 4, "ndjson": 4, "csv": 1, "table": 1}[form]
    factor = 2 if command == "simulate-roll" else 1
    assert text.count(names[form]) >= times * factor
    if form == "json":
        assert isinstance(json.loads(text), list)


def test_the_properties_file_comes_after_the_topic(tmp_path: Path, kafkalog: Run) -> None:
    """A broker takes a topic's own configs first; only --config overrides them."""
    file = tmp_path / "server.properties"
    file.write_text("log.segment.bytes=2000000\n")
    line = ("simulate-roll", "examples/log-dir/orders-0", "--properties", file, "--format",
            "ndjson")  # fmt: skip
    assert rows(kafkalog(*line))[-1]["segments"] == 4
    given = kafkalog(*line, "--config", "segment.bytes=2000000")
    assert rows(given)[-1]["segments"] == 1


@pytest.mark.parametrize(
    ("words", "status", "word"),
    [
        (["--config", "retention.mss=1"], 2, "retention.ms"),
        (["--config", "retention.ms=soon"], 2, "retention.ms=soon"),
        (["--config", "retention.ms"], 2, "NAME=VALUE"),
        (["--high-watermark", "all"], 2, "high watermark"),
        (["--properties", "nowhere.properties"], 2, "nowhere.properties"),
        (["--until", "whenever"], 2, "whenever"),
    ],
)
def test_wrong_words_are_refused(words: list[str], status: int, word: str, kafkalog: Run) -> None:
    """The status is that of usage, and the error says what was meant."""
    result = kafkalog("retention", "examples/log-dir/orders-0", *words)
    assert (result.status, result.stdout) == (status, b"")
    assert word in result.stderr


def test_a_file_is_no_partition(kafkalog: Run) -> None:
    """Retention needs the segments of a whole partition."""
    path = "examples/log-dir/orders-0/00000000000000000000.log"
    assert kafkalog("retention", path).status == 2
    assert kafkalog("simulate-roll", path).status == 2


def test_sizes_may_have_units(kafkalog: Run) -> None:
    """Configs in bytes take powers of 1024."""
    line = ("retention", "examples/log-dir/orders-0", "--format", "ndjson")
    found = rows(kafkalog(*line, "--config", "retention.bytes=20KiB"))[0]
    assert {"name": "retention.bytes", "value": 20480, "source": "--config",
            "set_as": "retention.bytes"} in found["configs"]  # fmt: skip


def test_marks_are_shown_with_their_sources(kafkalog: Run) -> None:
    """From checkpoints, from the log, or from an option."""
    line = ("retention", "examples/log-dir/orders-0", "--format", "ndjson")
    assert rows(kafkalog(*line))[0]["marks"] == [
        {"name": "log start offset", "value": 0, "source": "log"},
        {"name": "high watermark", "value": 1000, "source": "checkpoint"},
    ]
    given = rows(kafkalog(*line, "--high-watermark", "300", "--log-start-offset", "7"))[0]
    assert given["marks"] == [
        {"name": "log start offset", "value": 7, "source": "given"},
        {"name": "high watermark", "value": 300, "source": "given"},
    ]


def test_a_partition_without_its_log_directory(tmp_path: Path, kafkalog: Run) -> None:
    """For a copy of the partition alone: defaults, the log end as high watermark, and a note."""
    shutil.copytree("examples/log-dir/orders-0", tmp_path / "orders-0")
    result = kafkalog("retention", tmp_path / "orders-0", "--format", "ndjson")
    assert result.status == 0
    assert "__cluster_metadata-0" in result.stderr
    partition, *_ = rows(result)
    assert {config["source"] for config in partition["configs"]} == {"default"}
    assert partition["marks"][1] == {
        "name": "high watermark", "value": 1000, "source": "log",
    }  # fmt: skip


def test_remote_storage_is_recognised(kafkalog: Run) -> None:
    """Nothing says what was uploaded, so such segments are kept, with the reason."""
    line = ["retention", "examples/log-dir/orders-0", "--format", "ndjson"]
    for setting in ("remote.storage.enable=true", "local.retention.ms=1", "retention.ms=-1"):
        line += ["--config", setting]
    found = rows(kafkalog(*line))
    assert {row["blocked_by"] for row in of_type(found, "retention")} == {"remote-storage"}
    copied = rows(kafkalog(*line, "--config", "remote.log.copy.disable=true"))
    assert {row["reason"] for row in of_type(copied, "retention")} == {"unlimited"}


def test_damage_is_told_and_passed_over(kafkalog: Run) -> None:
    """A replay continues after damage, and its status reflects it."""
    result = kafkalog("simulate-roll", "examples/damaged/orders-0", "--format", "ndjson")
    assert result.status == 8
    assert of_type(rows(result), "defect")
    assert of_type(rows(result), "roll")


def test_all_directories_of_a_node_have_its_configs(tmp_path: Path, kafkalog: Run) -> None:
    """The metadata are in one of them; of another node they say nothing."""
    node = write_node(tmp_path / "node")
    options = ("--now", "2100-01-01", "--format", "ndjson")

    def retention(*paths: Path) -> set[tuple[str, int]]:
        """Return where the retention of `orders` in the second directory is from."""
        found = rows(kafkalog("retention", *paths, *options))
        found = of_type(found, "retention_partition")
        [configs] = [one["configs"] for one in found if one["path"].endswith("d2/orders-1")]
        return {(one["source"], one["value"]) for one in configs if one["name"] == "retention.ms"}

    d1, d2 = node / "d1", node / "d2"
    set_there = {(f"{METADATA} offset 8", -1)}
    by_default = {("default", 7 * 86_400_000)}
    for paths in ((node,), (d1, d2), (d2, d1), (d2 / "orders-1", d1 / "orders-0")):
        assert retention(*paths) == set_there, paths
    assert retention(d2) == by_default
    [judged] = [
        one.retention
        for one in library.report(d1, d2).partitions
        if one.listed.path.endswith("d2/orders-1")
    ]
    assert judged is not None
    assert ("retention.ms", -1) in {(one.name, one.value) for one in judged.configs}
    properties = d2 / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    assert retention(d1, d2) == by_default


def test_configs_before_the_first_snapshot_are_not_known(tmp_path: Path, kafkalog: Run) -> None:
    """Where the metadata log begins late, defaults are no more than assumed."""
    d1 = write_node(tmp_path / "node") / "d1"
    for path in (d1 / METADATA).iterdir():
        if path.name.startswith(f"{0:020}.") or path.suffix == ".checkpoint":
            path.unlink()
    result = kafkalog("retention", d1, "--format", "ndjson")
    assert "has no snapshot of what was set before offset 8" in result.stderr
