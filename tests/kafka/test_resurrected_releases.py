"""A broker starts on a resurrected directory of its own release, and of an older one.

Clients get the answers that a broker gave them from the source: records, offsets, groups of each
protocol, transactional ids, ACLs, SCRAM users, quotas, configs and levels of features.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from formats.releases import newest
from tests.kafka.booted import (
    Brokers,
    Life,
    life,
    read_records,
    require_growth,
    require_metadata,
    resurrect,
)
from tests.kafka.broker_data import HarnessError
from tests.kafka.conftest import run_group_moments
from tests.kafkalog.change.resurrection.test_resurrect import log_of, make

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Run
    from tests.kafka.conftest import GroupMoments

pytestmark = pytest.mark.kafka

NEWEST = newest().name
NOT_KEPT = ("eligible.leader.replicas.version", "kraft.version")
KINDS = ("acls", "groups", "quotas", "scram", "topics")


def require_same_answers(
    source: Brokers, target: Brokers, kafkalog: Run, written: Path, to: Path
) -> None:
    """Require that a broker answers from a resurrected directory as another did from its source.

    Args:
        source: runs a broker on a copy of the source.
        target: runs a broker on the new directory.
        written: what `GroupMoments` left: the log directory and the properties.
        to: an empty directory.
    """
    copy = to / "copy"
    shutil.copytree(written / "log", copy)
    properties, configs = written / "server.properties", {"log.dirs": str(copy)}
    with Life(source, properties, copy, to / "told-by-the-source", configs) as old:
        before = old.observe({})
    assert all(before.report[kind] for kind in KINDS)
    truths = {name: one for name, one in before.truths().items() if not name.startswith("__")}
    resurrect(kafkalog, to / "new", written / "log", release=target.release.name)
    with life(target, to / "new") as first:
        told = first.observe(truths)
        told.require(truths)
        require_metadata(told, before)
        assert first.go_on(truths) == {}
    with life(target, to / "new", 2) as second:
        require_growth(second.observe({}), truths)


def test_it_answers_as_the_source_did(
    brokers: Brokers, kafkalog: Run, group_moments: GroupMoments, tmp_path: Path
) -> None:
    require_same_answers(brokers, brokers, kafkalog, group_moments.root, tmp_path)


def test_what_only_the_newest_release_has_comes_along(
    newest_harness: str, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Groups with a dead letter queue, `share.version` 2, an ACL for a range of addresses."""
    recorded = corpus_dir / f"kafka-{NEWEST}" / f"features-{NEWEST}"
    expected = recorded.with_suffix(f"{recorded.suffix}.expected")
    admin = json.loads((expected / "admin.json").read_text())
    resurrect(kafkalog, tmp_path / "new", recorded, release=NEWEST)
    with Brokers(tmp_path, newest_harness) as brokers, life(brokers, tmp_path / "new") as first:
        told = first.observe({})
    report = told.report
    assert report["acls"] == sorted(admin["acls"])
    assert report["groups"].keys() == admin["groups"].keys()
    for name, group in admin["groups"].items():
        assert {one: report["groups"][name][one] for one in ("type", "state")} == {
            one: group[one] for one in ("type", "state")
        }
        if group["type"] != "Streams":  # BrokerReport asks for none
            offsets = report["groups"][name]["offsets"]
            committed = group.get("startOffsets") or group["committed"]
            assert {one: committed_numbers(text) for one, text in committed.items()} == {
                one: [number for number in numbers if isinstance(number, int) and number >= 0]
                for one, numbers in offsets.items()
            }
    assert report["features"] == {
        name: level for name, level in admin["features"].items() if name not in NOT_KEPT
    }
    assert {name: one["id"] for name, one in report["topics"].items()} == {
        name: one["topicId"] for name, one in admin["topics"].items()
    }
    for path in (expected / "records").glob("*.ndjson"):
        records = read_records(path)
        assert told.records(path.stem)[: len(records)] == records, path.stem


def committed_numbers(text: str) -> list[int]:
    """Return the numbers that `OffsetAndMetadata` or `SharePartitionOffsetInfo` prints."""
    return [int(number) for number in re.findall(r"(?:[oO]ffset|leaderEpoch|lag)=(\d+)", text)]


@pytest.mark.thorough("tests/kafka/test_resurrected_releases.py::test_it_answers_as_the_source_did")
def test_a_newer_release_answers_as_the_older_one_did(
    older_harness: str, newest_harness: str, kafkalog: Run, tmp_path: Path
) -> None:
    """Levels of features stay those of the older release."""
    written = run_group_moments(tmp_path / "written", older_harness).root
    (tmp_path / "to").mkdir()
    with Brokers(tmp_path, older_harness) as old, Brokers(tmp_path, newest_harness) as new:
        require_same_answers(old, new, kafkalog, written, tmp_path / "to")


@pytest.mark.thorough(
    "tests/kafkalog/change/resurrection/test_refused_resurrections.py::test_what_is_refused"
)
def test_an_older_release_refuses_what_was_made_for_the_newer_one(
    older_harness: str, kafkalog: Run, tmp_path: Path
) -> None:
    """It makes no partition a stray: the reason for `bootstrap.checkpoint` in either release."""
    make(tmp_path / "a", "t-0", log_of(5))
    resurrect(kafkalog, tmp_path / "new", tmp_path / "a", release=NEWEST)
    before = {path.name for path in (tmp_path / "new" / "log").iterdir() if path.is_dir()}
    level = f"level {newest().metadata_version}"
    with Brokers(tmp_path, older_harness) as old, pytest.raises(HarnessError, match=level):
        life(old, tmp_path / "new").__enter__()
    after = {path.name for path in (tmp_path / "new" / "log").iterdir() if path.is_dir()}
    assert after == before | {"__cluster_metadata-0"}
