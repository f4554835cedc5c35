"""A log directory that three releases of Kafka have written, one after the other.

A broker of 3.9 began it and was killed; brokers of 4.3 and 4.4 went on, each after all feature
levels were raised. Each left records in all codecs, transactions, groups and a compacted topic.
What the last one answered to clients is the truth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.model import Special
from tests.conftest import State, state
from tests.kafka.booted import Told, findings, short
from tests.kafka.test_groups import as_told, read, transactions_on_disk
from tests.kafka.test_moments import metadata_on_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.model import Record
    from tests.conftest import Result

    Run = Callable[..., Result]

REMOVED = {
    "__consumer_offsets-0/34", "__consumer_offsets-1/16", "__share_group_state-0/5",
    "__transaction_state-0/27", "plain-0/100", "plain-1/100", "txn-0/31",
}  # fmt: skip
"""The snapshots that a broker of 4.4 removed when it started on a copy."""
SPECIAL = {"earliest": "earliest", "latest": "latest", "maxTimestamp": "max-timestamp"}


@pytest.fixture(scope="module")
def upgraded(corpus_dir: Path) -> State:
    return state(corpus_dir, "upgraded", "3.9-4.3-4.4")


@pytest.fixture(scope="module")
def answers(upgraded: State) -> Told:
    return Told(upgraded.expected)


def rows(kafkalog: Run, *words: object) -> list[dict[str, Any]]:
    result = kafkalog(*words, "--format", "ndjson")
    assert result.status == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def as_consumed(record: Record) -> dict[str, Any]:
    def text(value: bytes | None) -> Any:
        return None if value is None else short(value.hex())

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": str(record.timestamp_type),
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def test_no_data_are_damaged(upgraded: State, kafkalog: Run) -> None:
    """Nor are the indexes of the metadata log, which stay as they are when 4.4 closes it."""
    assert findings(kafkalog, upgraded.root) == set()


def test_records_and_offsets_are_those_that_clients_got(upgraded: State, answers: Told) -> None:
    """Of both isolations, with the answers for times before, in and after each release."""
    truths = answers.truths()
    assert len(truths) == 11
    for name, truth in truths.items():
        log = kafkalog.open(upgraded.root / name)
        data = log.records(data=True, from_offset=log.offsets.log_start_offset.value)
        assert [as_consumed(one) for one in data] == truth.records, name
        committed = log.records(data=True, isolation="read_committed")
        assert [one.offset for one in committed] == truth.committed, name
        for isolation, asked in truth.offsets.items():
            for question, answer in asked.items():
                time = Special(SPECIAL[question]) if question in SPECIAL else int(question)
                found = log.lookup(timestamp=time, isolation=isolation)
                ours = [-1 if one is None else one for one in (found.offset, found.timestamp)]
                assert ours == answer[:2], (name, isolation, question)


def test_groups_and_transactions_are_what_admin_answered(upgraded: State, answers: Told) -> None:
    groups = answers.report["groups"]
    assert {one["type"] for one in groups.values()} == {"Classic", "Consumer", "Share", "Streams"}
    assert as_told(read(upgraded.root), groups, upgraded.root) == groups
    found = transactions_on_disk(upgraded.root, 0)
    assert found["transactions"] == answers.report["transactions"]
    assert [where for where, *_ in found["open"]] == ["txn-0", "txn-0"]


def test_metadata_is_what_admin_answered(upgraded: State, answers: Told) -> None:
    """Among it a topic of an older one's name, and an access control entry for a network."""
    found = metadata_on_disk(upgraded.root)
    assert found["features"] == answers.report["features"]
    assert {name: topic_id for name, (topic_id, _) in found["topics"].items()} == {
        name: topic["id"] for name, topic in answers.report["topics"].items()
    }
    for name, topic in answers.report["topics"].items():
        assert found["configs"].get(f"TOPIC:{name}", {}) == topic["configs"], name
    hosts = {host for *_, host, _, _ in found["acls"]}
    assert len(answers.report["acls"]) == len(hosts)
    assert all(any(f"host={host}," in one for host in hosts) for one in answers.report["acls"])
    assert [f"{user} {kind} {count}" for user, kind, count in found["scram"]] == [
        f"{user} {one}" for user, kinds in answers.report["scram"].items() for one in kinds
    ]
    assert {str(entity).replace("'", "").replace(": ", "="): values
            for entity, values in found["quotas"]} == answers.report["quotas"]  # fmt: skip


def test_recover_predicts_what_a_start_removed(
    upgraded: State, answers: Told, kafkalog: Run
) -> None:
    """It keeps each log end, too, and the cleaner has nothing to do: it went over all."""
    *found, summary = rows(kafkalog, "recover", upgraded.root)
    ends = {f"{one['topic']}-{one['partition']}": one["log_end_offset"] for one in found}
    assert ends.pop("__cluster_metadata-0")
    assert ends == {name: truth.end for name, truth in answers.truths().items()}
    assert summary["lost_records"] == 0
    removed = {
        f"{one['topic']}-{one['partition']}/{int(file['name'].partition('.')[0])}"
        for one in found
        for file in one["file_changes"]
        if file["fate"] == "removed"
    }
    assert removed == REMOVED
    assert kafkalog("compact", upgraded.root, "--check").status == 0
