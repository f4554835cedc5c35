"""A topic that is deleted, and maybe created again, while it is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from tests.builders import batch, record
from tests.kafkalog.change.resurrection.test_resurrect import OTHER_ID, TOPIC_ID, make
from tests.kafkalog.wire.server.protocol import Connected, serving
from tests.kafkalog.wire.server.test_fetch import fetch

if TYPE_CHECKING:
    from pathlib import Path

BY_ID, BY_NAME = 13, 12
UNKNOWN = {BY_ID: ErrorCode.UNKNOWN_TOPIC_ID, BY_NAME: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def log(value: bytes) -> list[bytes]:
    return [batch(0, [record(value=value)])]


def id_of(client: Connected, name: str) -> str:
    """Ask for the id of a topic, as a client does first of all."""
    request = {
        "topics": [{"topicId": "A" * 22, "name": name}], "allowAutoTopicCreation": False,
        "includeTopicAuthorizedOperations": False,
    }  # fmt: skip
    [found] = client.ask("Metadata", 12, request)["topics"]
    return str(found["topicId"])


def delete(log_dir: Path) -> None:
    (log_dir / "t-0").rename(log_dir / f"t-0.{'ab' * 16}-delete")


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("place", ["a", "b"])
def test_the_old_id_is_unknown(tmp_path: Path, place: str, *, was_read: bool) -> None:
    """As a broker answers; the new topic may lie in another log directory."""
    for name in ("a", "b"):
        make(tmp_path / name, f"kept-{name}-0", log(b"kept"), topic_id=f"{name * 21}A")
    make(tmp_path / "a", "t-0", log(b"old"))
    with (
        serving(tmp_path / "a", tmp_path / "b", follow=True, high_watermark="end") as running,
        Connected(running.address) as client,
    ):
        assert id_of(client, "t") == TOPIC_ID
        if was_read:
            assert b"old" in fetch(client, TOPIC_ID, 0, 0, version=BY_ID)["records"]
        delete(tmp_path / "a")
        make(tmp_path / place, "t-0", log(b"new"), topic_id=OTHER_ID)
        for _ in range(2):
            found = fetch(client, TOPIC_ID, 0, 0, version=BY_ID, currentLeaderEpoch=7)
            assert found["errorCode"] in UNKNOWN.values()
            assert not found["records"]
        assert found["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID
        assert id_of(client, "t") == OTHER_ID
        assert b"new" in fetch(client, OTHER_ID, 0, 0, version=BY_ID)["records"]
        assert b"new" in fetch(client, "t", 0, 0, version=BY_NAME)["records"]
        assert b"kept" in fetch(client, f"{'b' * 21}A", 0, 0, version=BY_ID)["records"]


@pytest.mark.parametrize("version", UNKNOWN)
def test_a_deleted_topic_is_unknown(tmp_path: Path, version: int) -> None:
    make(tmp_path, "t-0", log(b"old"))
    make(tmp_path, "kept-0", log(b"kept"), topic_id=OTHER_ID)
    name: Any = TOPIC_ID if version == BY_ID else "t"
    with (
        serving(tmp_path, follow=True, high_watermark="end") as running,
        Connected(running.address) as client,
    ):
        assert b"old" in fetch(client, name, 0, 0, version=version)["records"]
        delete(tmp_path)
        answers = [fetch(client, name, 0, 0, version=version)["errorCode"] for _ in range(2)]
        assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN[version]]


def test_without_follow_no_record_of_the_new_topic_is_sent(tmp_path: Path) -> None:
    """What was there at the start is served, or nothing."""
    make(tmp_path, "t-0", log(b"old"))
    with serving(tmp_path, high_watermark="end") as running, Connected(running.address) as client:
        assert id_of(client, "t") == TOPIC_ID
        delete(tmp_path)
        make(tmp_path, "t-0", log(b"new"), topic_id=OTHER_ID)
        found = fetch(client, TOPIC_ID, 0, 0, version=BY_ID)
        assert (found["errorCode"], found["records"]) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("follow", [False, True])
def test_a_partition_that_moves_is_served_on(tmp_path: Path, *, was_read: bool, follow: bool):
    """From the other log directory, under the same id, with the leader epoch that it has."""
    make(tmp_path / "b", "kept-0", log(b"kept"), topic_id=OTHER_ID)
    make(tmp_path / "a", "t-0", log(b"old"), epochs="7 0")
    with (
        serving(tmp_path / "a", tmp_path / "b", follow=follow, high_watermark="end") as running,
        Connected(running.address) as client,
    ):
        assert id_of(client, "t") == TOPIC_ID
        if was_read:
            assert b"old" in fetch(client, TOPIC_ID, 0, 0, version=BY_ID)["records"]
        (tmp_path / "a" / "t-0").rename(tmp_path / "b" / "t-0")
        for _ in range(2):
            found = fetch(client, TOPIC_ID, 0, 0, version=BY_ID, currentLeaderEpoch=7)
            assert (found["errorCode"], b"old" in found["records"]) == (ErrorCode.NONE, True)
