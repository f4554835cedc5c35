"""Tiers that Aiven's plugin itself has uploaded, from a broker of Kafka 4.3.

`tests/foreign/record_tiers.py` has recorded them, with what the clients of that broker got.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from kafkalog.check import remote_segments
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import PartitionDir, list_partition
from kafkalog.io.paths import chunked, object_store
from kafkalog.io.paths.tier_keys import use_keys
from kafkalog.model import Isolation, Special
from kafkalog.node.lookup import Lookup, lookup_offset, lookup_special, lookup_timestamp
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import open_targets, partitions_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show
from tests.builders import seconds
from tests.counted_store import counted_store
from tests.kafka.tiered import (
    PARTITIONS,
    Tiered,
    as_told,
    findings,
    plain,
    rows,
    segment_changes,
    segments_told,
)
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.tiered import Run

PACKINGS = ("plain", "zstd", "sealed")


@dataclass(frozen=True)
class PluginTier(Tiered):
    """What a broker with the plugin left, and told."""

    @property
    def tier(self) -> Path:
        return self.root / "bucket" / "of" / "cluster"

    def remote(self, partition: str) -> Path:
        topic, _, number = partition.rpartition("-")
        [found] = self.tier.glob(f"{topic}-*/{number}")
        return found

    @property
    def options(self) -> list[object]:
        """Return the options that reading needs."""
        return [word for key in self.root.glob("*.pem") for word in ("--tier-key", key)]


@pytest.fixture(params=PACKINGS)
def recorded(request: pytest.FixtureRequest, corpus_dir: Path) -> PluginTier:
    """Each packing; its key, if it has one, is in use."""
    found = PluginTier(corpus_dir / "aiven" / request.param)
    use_keys(map(str, found.options[1::2]))
    return found


def test_the_recordings_are_what_the_tests_are_about(corpus_dir: Path) -> None:
    """Chunks are cut, compressed and encrypted; logs have aborted transactions and two epochs."""
    for name in PACKINGS:
        tier = PluginTier(corpus_dir / "aiven" / name)
        for partition in PARTITIONS:
            assert len({row["leaderEpoch"] for row in tier.records(partition)}) == 2
            manifests = [path.read_text() for path in tier.remote(partition).glob("*.rsm-manifest")]
            assert len(manifests) > 10
            for text in manifests:
                assert ('"compression":true' in text) == (name != "plain")
                assert ('"encryption":{' in text) == (name == "sealed")
        aborted = {row["offset"] for row in tier.records("transactions-0")}
        assert aborted - {*tier.told["transactions-0"]["committed"]}


@pytest.mark.sampled(2)
def test_records_and_offsets_are_those_of_clients(recorded: PluginTier, kafkalog: Run) -> None:
    """Of the tier alone, and of the log that it is together with the log directory."""
    for name in PARTITIONS:
        told, remote = recorded.told[name], recorded.remote(name)
        for log, wanted in (
            (library.Log(remote), recorded.records(name)),
            (
                library.Log(recorded.log_dir / name, tier=[recorded.tier, recorded.log_dir]),
                recorded.all_records(name),
            ),
        ):
            assert [as_told(one) for one in log.records(data=True)] == [*map(plain, wanted)]
            committed = [one.offset for one in log.records(data=True, isolation="read_committed")]
            opened = log.offsets.last_stable_offset.value
            assert opened is not None
            assert committed == [one for one in told["committed"] if one < opened]
        for special in ("earliest", "latest", "latest-tiered"):
            [row] = rows(
                kafkalog, *recorded.options, "lookup-offset", recorded.log_dir, recorded.tier,
                "--topic", name.removesuffix("-0"), "--special", special,
            )  # fmt: skip
            assert row["offset"] == told["specials"][special]
        times = {time: offset for time, offset in told["times"].items() if offset >= 0}
        assert len(times) > 10
        words: list[Any] = [word for time in times for word in ("--timestamp", seconds(time))]
        paths = (recorded.log_dir / name, remote)
        found = rows(kafkalog, *recorded.options, "lookup-offset", *paths, *words)
        assert [row["offset"] for row in found] == [*times.values()]


@pytest.mark.sampled(2)
def test_nothing_is_wrong_with_what_the_plugin_uploads(recorded: PluginTier, kafkalog: Run) -> None:
    """With the metadata of the broker, whose segments are all there, and each batch read."""
    paths = (recorded.log_dir, recorded.tier)
    *found, summary = rows(kafkalog, *recorded.options, "verify", *paths, "--level", "deep")
    assert summary["type"] == "verify_summary"
    wrong = [row for row in found if row["type"] == "defect" and row["severity"] != "note"]
    assert not wrong


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_half", [False, True])
def test_an_upload_counts_as_under_way_for_an_hour(
    corpus_dir: Path,
    kafkalog: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_half: bool,
) -> None:
    """The broker was shut down during an upload: an hour later its files are orphans.

    Until then they are not, with or without a manifest; without metadata they are.
    """
    recorded = PluginTier(corpus_dir / "aiven" / "sealed")
    use_keys(map(str, recorded.options[1::2]))
    states = segments_told(recorded.log_dir, "transactions-0")
    [segment_id] = [one for one, state in states.items() if state == 0]
    [begun] = segment_changes(recorded.log_dir, segment_id)
    found = recorded.remote("transactions-0")
    remote = shutil.copytree(found, tmp_path / found.parent.name / found.name)
    [manifest] = remote.glob(f"*-{segment_id}.rsm-manifest")
    orphans = [str(manifest.with_suffix(".log"))]
    if is_half:
        manifest.unlink()
        orphans = [str(manifest.with_suffix(suffix)) for suffix in (".indexes", ".log")]
    metadata = recorded.log_dir / "__remote_log_metadata-0"
    hour = 60 * 60 * 1000

    def found_at(time: int, *paths: Path) -> list[str]:
        monkeypatch.setattr(remote_segments, "present_ms", lambda: time)
        told = findings(kafkalog, remote, *paths)
        return [row["path"] for row in told if row["reference"] == "remote-segment-orphan"]

    assert found_at(begun + hour - 1, metadata) == []
    assert found_at(begun + hour, metadata) == orphans
    assert found_at(begun + hour - 1) == (orphans if is_half else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("name", PARTITIONS)
def test_lookups_read_the_manifest_of_one_segment(
    corpus_dir: Path, kafkalog: Run, name: str, *, is_joined: bool
) -> None:
    """Its manifest, its indexes and a chunk of it; clients of the broker got the same answer.

    By time, metadata tell which segment it is; without them, manifests of earlier ones are read.
    """
    recorded = PluginTier(corpus_dir / "aiven" / "zstd")
    remote, told = recorded.remote(name), recorded.told[name]
    key = f"bucket/{remote.relative_to(recorded.tier)}"
    objects = {f"{key}/{path.name}": path.read_bytes() for path in remote.iterdir()}
    assert len([one for one in objects if one.endswith(".rsm-manifest")]) > 10
    records = recorded.records(name)
    end = told["specials"]["latest-tiered"] + 1
    with counted_store(objects) as store:
        paths: list[Any] = [store.uri(key)]
        if is_joined:
            paths = [recorded.log_dir, *paths, "--topic", name.removesuffix("-0")]

        def found(*question: object) -> dict[str, Any]:
            chunked._manifest.cache_clear()
            object_store.forget()
            store.forget()
            [row] = rows(kafkalog, "lookup-offset", *paths, *question)
            return row

        for record in records[:: len(records) // 7]:
            row = found(record["offset"])
            assert (row["offset"], row["timestamp"]) == (record["offset"], record["timestamp"])
            assert store.counts["GET"] <= 3, store.asked
        times = {time: offset for time, offset in told["times"].items() if 0 <= offset < end}
        for time in [*times][:: len(times) // 7]:
            assert found("--timestamp", seconds(time))["offset"] == times[time]
            earlier = [one for one in objects if one.endswith(".log")
                       and int(one.rpartition("/")[2][:20]) <= times[time]]  # fmt: skip
            assert store.counts["GET"] <= (3 if is_joined else 4 * len(earlier)), store.asked
        for special in ("earliest", "latest", "latest-tiered", "earliest-pending-upload"):
            wanted = {"latest": end, "earliest-pending-upload": end} if not is_joined else {}
            row = found("--special", special)
            assert row["offset"] == wanted.get(special, told["specials"][special])
            assert store.counts["GET"] <= 3, store.asked


def test_dumps_of_some_offsets_read_the_manifests_of_their_segments(
    corpus_dir: Path, kafkalog: Run
) -> None:
    """By the names: of the segments with these offsets, and of the one behind them."""
    recorded = PluginTier(corpus_dir / "aiven" / "zstd")
    name = PARTITIONS[0]
    remote = recorded.remote(name)
    key = f"bucket/{remote.relative_to(recorded.tier)}"
    objects = {f"{key}/{path.name}": path.read_bytes() for path in remote.iterdir()}
    bases = sorted(int(one.name[:20]) for one in remote.glob("*.rsm-manifest"))
    end = recorded.told[name]["specials"]["latest-tiered"] + 1
    wanted = [one for one in recorded.records(name) if one["offset"] < end]
    with counted_store(objects) as store:
        for first, last in ((bases[-1] + 1, end), (bases[5], bases[5] + 1), (bases[4] - 1, end)):
            chunked._manifest.cache_clear()
            object_store.forget()
            store.forget()
            span = ("--from-offset", first, "--to-offset", last)
            found = rows(kafkalog, "dump-segment", store.uri(key), *span)
            expected = [one["offset"] for one in wanted if first <= one["offset"] < last]
            assert [one["offset"] for one in found] == expected
            read = len({one for _, one in store.asked if one.endswith(".rsm-manifest")})
            needed = [one for one in bases if first < one < last]
            assert len(needed) < read <= len(needed) + 2, (read, needed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("harm", ["none", "manifest", "gap"])
def test_dumps_of_some_offsets_are_those_of_the_whole_log(
    corpus_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """Also if a manifest is no manifest, or a segment is lost."""
    found = PluginTier(corpus_dir / "aiven" / "zstd").remote(PARTITIONS[0])
    remote = shutil.copytree(found, tmp_path / found.parent.name / found.name)
    manifests = sorted(remote.glob("*.rsm-manifest"))
    if harm == "manifest":
        manifests[4].write_bytes(bytes(20))
    elif harm == "gap":
        for one in remote.glob(f"{manifests[4].name[:20]}-*"):
            one.unlink()
    bases = [int(one.name[:20]) for one in manifests]
    spans = [
        ("--from-offset", bases[n] + by) for n in (0, 3, 4, 5, len(bases) - 1) for by in (-1, 0, 1)
    ]
    spans += [("--to-offset", bases[4] + by) for by in (-1, 0, 1)]
    spans += [("--from-offset", bases[3] + 1, "--to-offset", bases[5] - 1)]
    forms = [("ndjson", span) for span in spans[1:]] + [("kafka", span) for span in spans[6:8]]
    for form, span in sampled(forms, 3):
        words = ("dump-segment", remote, "--format", form, *span)
        some = kafkalog(*words)
        with monkeypatch.context() as patched:
            patched.setattr(PartitionDir, "between", lambda self, *_: self)
            assert kafkalog(*words) == some, span


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("recorded", "harm"),
    [*((packing, "none") for packing in PACKINGS), ("sealed", "manifest"), ("sealed", "log")],
    indirect=["recorded"],
)
def test_lookups_by_names_are_those_in_the_whole_log(
    recorded: PluginTier, tmp_path: Path, harm: str
) -> None:
    """Also if a manifest is no manifest, so that the log lacks its segment, or chunks are damaged.

    Of a tier alone and with a log directory, where segments are cut off.
    """
    for name in PARTITIONS:
        found = recorded.remote(name)
        remote = shutil.copytree(found, tmp_path / found.parent.name / found.name)
        if harm != "none":
            suffix = "rsm-manifest" if harm == "manifest" else "log"
            [*_, meant, _] = sorted(remote.glob(f"*.{suffix}"))
            meant.write_bytes(bytes(20))
        end = recorded.told[name]["specials"]["latest-tiered"] + 1
        times = [int(one) for one in recorded.told[name]["times"]]
        questions: list[Callable[[UnifiedLog], Lookup]] = [
            partial(lookup_offset, offset=one)
            for one in (*sampled(range(0, end, 47), 4), end - 1, end, end + 1)
        ]
        questions += [partial(lookup_timestamp, timestamp=one) for one in sampled(times[::15], 4)]
        questions += [partial(lookup_special, special=one) for one in Special]
        targets = open_targets([recorded.log_dir, remote])
        [joined_log] = [
            one for one in partitions_of(joined(targets)) if f"{one.topic}-{one.partition}" == name
        ]
        for partition in (list_partition(str(remote)), show(joined_log).partition):
            assert partition.sketch is not None
            for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
                for question in questions:
                    answers = [
                        answer_of(partial(question, isolation=isolation), UnifiedLog(one))
                        for one in (partition, replace(partition, sketch=None))
                    ]
                    assert answers[0] == answers[1]


def answer_of(question: Callable[[UnifiedLog], Lookup], log: UnifiedLog) -> object:
    """Return an answer without how it was found, or the error."""
    try:
        return replace(question(log), steps=(), read_bytes=0)
    except KafkaLogError as error:
        return error.message
