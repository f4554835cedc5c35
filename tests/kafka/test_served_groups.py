"""A real broker and `kafkalog serve` get the same group requests on the same files."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from kafkalog.log.producers import EXPIRATION_MS
from kafkalog.wire.server.model import Address
from tests.kafkalog.wire.server.protocol import SECONDS_MAX, serving
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.booted import Brokers
    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka

TOPIC = "codec-none"
OWN = 1
_GIVES_ID = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
METADATA = bytes.fromhex("0000000000010005") + b"topic" + b"\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def both(
    brokers: Brokers, broker: BrokerData, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Address, Address]]:
    """Kafka's address and ours; both have the groups of the log."""
    place = tmp_path_factory.mktemp("served-groups")
    log_dir = place / "log-dir"
    shutil.copytree(broker.log_dir("clean"), log_dir)
    with serving(broker.log_dir("clean")) as ours, brokers.on(log_dir) as kafka:
        address = Address("127.0.0.1", kafka.port)
        await_coordinator(address)
        await_coordinator(ours.address)
        yield address, ours.address


def await_coordinator(address: Address) -> None:
    """Wait until a broker has loaded its groups."""
    deadline = time.monotonic() + SECONDS_MAX
    with Wire(address) as wire:
        while any(one["errorCode"] for one in wire.tell(
            "DescribeGroups", 5, groups=["classic-group", "by-admin", "tx-group"],
        )["groups"]):  # fmt: skip
            assert time.monotonic() < deadline
            time.sleep(0.1)


class Scene:
    """Members of a group on one broker, and everything that the broker answered."""

    def __init__(self, address: Address, group: str, members: str) -> None:
        self._stack = ExitStack()
        self.group = group
        self.wires = {one: self._stack.enter_context(Wire(address, one)) for one in ("", *members)}
        self.ids: dict[str, str] = {"": ""}
        self.told: list[tuple[str, Any]] = []

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, who: str, api: str, version: int, **request: Any) -> dict[str, Any]:
        self.wires[who].request(api, version, **{"groupId": self.group} | request)
        return self.hear(who, f"{who}: {api} {version}")

    def hear(self, who: str, what: str = "") -> dict[str, Any]:
        answer = self.wires[who].answer()
        if answer.get("memberId") and answer["errorCode"] in _GIVES_ID:
            self.ids[who] = answer["memberId"]
        names = {self.ids[one]: f"<{one}>" for one in self.ids if one}
        self.told.append((what or f"{who} hears", _renamed(answer, names)))
        return answer

    def join(self, who: str, version: int, *, waits: bool = False, **more: Any) -> None:
        request = {
            "groupId": self.group, "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 30_000,
            "memberId": self.ids.get(who, ""), "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": METADATA + who.encode()}], **more,
        }  # fmt: skip
        self.wires[who].request("JoinGroup", version, **request)
        if not waits:
            self.hear(who, f"{who} joins, {version} {more}")

    def sync(
        self, who: str, generation: int, *assigned: str, version: int = 5, **more: Any
    ) -> None:
        given = [{"memberId": self.ids[one], "assignment": one.encode()} for one in assigned]
        named = {"protocolType": "consumer", "protocolName": "range"} if version >= 5 else {}
        self.wires[who].request(
            "SyncGroup", version, groupId=self.group, generationId=generation,
            memberId=self.ids[who], assignments=given, **named | more,
        )  # fmt: skip

    def beat(self, who: str, generation: int, version: int = 4, **more: Any) -> None:
        named = {"memberId": self.ids[who], "generationId": generation}
        self.ask(who, "Heartbeat", version, **named | more)

    def hears_of_rebalance(self, who: str, generation: int) -> None:
        """Send heartbeats until they report the rebalance that a waiting join has started."""
        deadline = time.monotonic() + SECONDS_MAX
        code = ErrorCode.NONE
        while code == ErrorCode.NONE:
            assert time.monotonic() < deadline
            self.beat(who, generation)
            code = self.told.pop()[1]["errorCode"]
        assert code == ErrorCode.REBALANCE_IN_PROGRESS

    def commit(self, who: str, generation: int, version: int, offset: int, **more: Any) -> None:
        one = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": f"at {offset}",
               "committedLeaderEpoch": 0}  # fmt: skip
        topics = [{"name": more.pop("topic", TOPIC), "partitions": [one | more]}]
        self.ask(who, "OffsetCommit", version, generationIdOrMemberEpoch=generation,
                 memberId=self.ids.get(who, ""), topics=topics)  # fmt: skip

    def describe(self, version: int = 6) -> None:
        self.ask("", "DescribeGroups", version, groups=[self.group])

    def forms(self, *who: str) -> None:
        """Require that every waiting member gets its answer about the new generation."""
        for one in who:
            self.hear(one)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        found = [_renamed(one, names) for one in value]
        return sorted(found, key=str)  # a broker has members in the order of hashes
    return names.get(value, value) if isinstance(value, str) else value


def play(address: Address) -> list[tuple[str, Any]]:
    """Play a group from its first member to its last one."""
    with Scene(address, f"scene-{time.time_ns()}", "abcd") as scene:
        one(scene)
        two(scene)
        static(scene)
        end(scene)
        return [(what, answer) for what, answer in _without_name(scene)]


def _without_name(scene: Scene) -> Iterator[tuple[str, Any]]:
    for what, answer in scene.told:
        yield (
            what,
            _renamed(answer, {scene.group: "<group>", f"Group {scene.group} not found.": "none"}),
        )


def one(scene: Scene) -> None:
    """Provoke errors without a group; then a member joins, is assigned, and commits."""
    scene.describe(5), scene.describe(6)
    for more in ({"sessionTimeoutMs": 1}, {"sessionTimeoutMs": 1_800_001}, {"groupId": ""},
                 {"memberId": "unknown"}, {"protocols": []}):  # fmt: skip
        scene.join("a", 9, **more)
    scene.beat("", 1), scene.beat("", 1, groupId="")
    scene.commit("", 1, 8, 5), scene.commit("", 1, 9, 5)
    for version in 2, 5:
        scene.ask("", "LeaveGroup", version, memberId="unknown", members=[{"memberId": "unknown"}])
    scene.join("a", 9)
    scene.join("a", 9, waits=True), scene.forms("a")
    scene.describe()
    scene.beat("a", 1)
    scene.commit("a", 1, 9, 1)  # before it is assigned
    scene.sync("a", 1, "a"), scene.forms("a")
    scene.describe(), scene.describe(3)
    scene.beat("a", 1), scene.beat("a", 2), scene.beat("a", 1, memberId="unknown")
    for version in range(2, 10):
        scene.commit("a", 1, version, version)
    scene.commit("a", 7, 9, 1), scene.commit("", -1, 9, 1), scene.commit("b", 1, 9, 1)
    scene.commit("a", 1, 9, 1, topic="none")
    scene.commit("a", 1, 9, 1, committedMetadata="x" * 4097)
    scene.commit("a", 1, 9, 1, committedMetadata=None)
    for version in range(1, 10):
        asked = {"topics": [{"name": name, "partitionIndexes": [0, 1]} for name in (TOPIC, "none")]}
        groups = [{"groupId": scene.group, **asked}]
        scene.ask("", "OffsetFetch", version, **asked, groups=groups)
        if version >= 2:
            groups = [{"groupId": scene.group, "topics": None}]
            scene.ask("", "OffsetFetch", version, topics=None, groups=groups)


def two(scene: Scene) -> None:
    """Add a second member with an older client; both are assigned again."""
    scene.join("b", 9, protocolType="connect"), scene.join("b", 9, protocols=[{"name": "other"}])
    scene.join("b", 5)
    scene.join("b", 5, waits=True)
    scene.hears_of_rebalance("a", 1)
    scene.sync("a", 1), scene.forms("a")
    scene.join("a", 9, waits=True), scene.forms("a", "b")
    scene.sync("a", 2, "a", "b", protocolName="other"), scene.forms("a")
    scene.sync("b", 2, version=3), scene.sync("a", 2, "a", "b"), scene.forms("a", "b")
    scene.sync("b", 2, version=3), scene.forms("b")
    scene.join("b", 9)  # a follower that asks again
    scene.describe()


def static(scene: Scene) -> None:
    """Add a static member that returns under its name, and fences its former self."""
    scene.join("c", 9, waits=True, groupInstanceId="c")
    scene.hears_of_rebalance("a", 2), scene.hears_of_rebalance("b", 2)
    scene.join("a", 9, waits=True), scene.join("b", 9, waits=True)
    scene.forms("c", "a", "b")
    scene.sync("a", 3, "a", "b", "c"), scene.forms("a")
    scene.sync("b", 3), scene.sync("c", 3, groupInstanceId="c"), scene.forms("b", "c")
    scene.beat("c", 3, groupInstanceId="c"), scene.beat("c", 3, groupInstanceId="d")
    scene.beat("a", 3, groupInstanceId="c")
    scene.join("d", 9, groupInstanceId="c")
    scene.beat("c", 3, groupInstanceId="c"), scene.beat("c", 3)
    scene.sync("d", 3, groupInstanceId="c"), scene.forms("d")
    scene.describe()


def end(scene: Scene) -> None:
    """Let all members leave, each in another way."""
    scene.ask("", "LeaveGroup", 5, members=[
        {"memberId": "", "groupInstanceId": "c"}, {"memberId": "", "groupInstanceId": "none"},
        {"memberId": scene.ids["b"], "groupInstanceId": "none"}, {"memberId": scene.ids["b"]},
    ])  # fmt: skip
    scene.beat("a", 3), scene.beat("b", 3)
    scene.join("a", 4, waits=True), scene.forms("a")
    scene.ask("a", "LeaveGroup", 1, memberId=scene.ids["a"])
    scene.describe(), scene.describe(0)
    scene.commit("", -1, 9, 77)
    scene.ask("", "OffsetFetch", 9, groups=[{"groupId": scene.group, "topics": None}])
    for states, types in (
        ([], []),
        (["EMPTY"], []),
        (["stable"], []),
        ([], ["classic"]),
        ([], ["x"]),
    ):
        answer = scene.wires[""].tell("ListGroups", 5, statesFilter=states, typesFilter=types)
        listed = [one for one in answer["groups"] if one["groupId"] == scene.group]
        scene.told.append((f"listed {states} {types}", [answer["errorCode"], *listed]))


def test_a_group_is_told_the_same_as_by_a_broker(both: tuple[Address, Address]) -> None:
    kafka, ours = map(play, both)
    assert len(kafka) > 90
    for expected, found in zip(kafka, ours, strict=True):
        assert found == expected


def test_the_offsets_of_the_log_are_those_of_a_broker(both: tuple[Address, Address]) -> None:
    """The test compares every group that the broker lists: offsets, and states without members."""
    told = []
    for address in both:
        with Wire(address) as wire:
            groups = wire.tell("ListGroups", 5)["groups"]
            names = sorted(one["groupId"] for one in groups if one["groupType"] != "share")
            fetched = wire.tell("OffsetFetch", 9, groups=[
                {"groupId": name, "topics": None} for name in names if "scene" not in name
            ])  # fmt: skip
            told.append(_renamed(fetched, {}))
    assert told[0] == told[1]
    offsets = [len(one["topics"]) for one in told[0]["groups"]]
    assert len(offsets) >= 3
    assert sum(offsets) >= 4


def test_all_groups_are_listed_with_the_types_that_a_broker_says(
    both: tuple[Address, Address],
) -> None:
    told = []
    for address in both:
        with Wire(address) as wire:
            groups = wire.tell("ListGroups", 5, statesFilter=[], typesFilter=[])["groups"]
            told.append(_renamed([one for one in groups if "scene" not in one["groupId"]], {}))
    assert told[0] == told[1]
    assert len({one["groupType"] for one in told[0]}) >= 2


def test_transactions_and_producers_are_those_of_a_broker(both: tuple[Address, Address]) -> None:
    """The test compares all that a broker says of them after a start on the same files.

    A start forgets producers that were idle for a day.
    """
    told = []
    for address in both:
        with Wire(address) as wire:
            listed = wire.tell("ListTransactions", 2, stateFilters=[], producerIdFilters=[])
            names = sorted(one["transactionalId"] for one in listed["transactionStates"])
            described = wire.tell("DescribeTransactions", 0, transactionalIds=names)
            topics = [
                {"name": one["name"], "partitionIndexes": [
                    partition["partitionIndex"] for partition in one["partitions"]
                ]}
                for one in wire.tell("Metadata", 12, topics=None)["topics"]
                if not one["isInternal"]
            ]  # fmt: skip
            producers = wire.tell("DescribeProducers", 0, topics=topics)
            for one in (one for topic in producers["topics"] for one in topic["partitions"]):
                one["activeProducers"] = [
                    producer for producer in one["activeProducers"] if not has_expired(producer)
                ]
            told.append(_renamed([listed, described, producers], {}))
    assert told[0] == told[1]
    text = str(told[0])
    assert "'transactionState': 'Ongoing'" in text
    assert text.count("'lastSequence'") >= 5


def has_expired(producer: dict[str, Any]) -> bool:
    idle_ms = time.time() * 1000 - producer["lastTimestamp"]
    return producer["currentTxnStartOffset"] < 0 and idle_ms > EXPIRATION_MS


def test_the_quorum_is_that_of_a_broker(both: tuple[Address, Address]) -> None:
    """A start begins the next epoch, and appends to the metadata; controllers get a new port."""
    told = []
    for address in both:
        with Wire(address) as wire:
            asked = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
            answer = wire.tell("DescribeQuorum", 2, topics=asked)
            [partition] = answer["topics"][0]["partitions"]
            voters = [
                (one["replicaId"], one["replicaDirectoryId"]) for one in partition["currentVoters"]
            ]
            nodes = [
                (one["nodeId"], [(at["name"], at["host"]) for at in one["listeners"]])
                for one in answer["nodes"]
            ]
            told.append((partition, [partition["leaderId"], voters, nodes]))
    (kafka, found), (ours, expected) = told
    assert found == expected
    assert kafka["leaderEpoch"] == ours["leaderEpoch"] + 1
    assert 0 < ours["highWatermark"] < kafka["highWatermark"]
    assert [one["logEndOffset"] for one in ours["currentVoters"]] == [ours["highWatermark"]]


def test_the_own_configs_of_topics_are_those_of_a_broker(both: tuple[Address, Address]) -> None:
    told = []
    for address in both:
        with Wire(address) as wire:
            topics = wire.tell("Metadata", 12, topics=None)["topics"]
            names = [one["name"] for one in topics if not one["isInternal"]]
            asked = [{"resourceType": 2, "resourceName": name, "configurationKeys": None}
                     for name in sorted(names)]  # fmt: skip
            told.append({
                (topic["resourceName"], one["name"], one["value"], one["configType"])
                for topic in wire.tell("DescribeConfigs", 4, resources=asked)["results"]
                for one in topic["configs"]
                if one["configSource"] == OWN
            })  # fmt: skip
    assert told[0] == told[1]
    assert len(told[0]) >= 10
