"""Random requests about partitions that are there, and some that are not."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

    from tests.kafka.serve.served import Bridge

APIS: Final = {"Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetForLeaderEpoch": 23}
NO_ID: Final = "A" * 22
_NOBODY: Final = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
_LONG_MAX: Final = (1 << 63) - 1
_SIZES: Final = (1, 61, 500, 5_000, 100_000, 1 << 20, (1 << 31) - 1)
_SHARES: Final = {"Fetch": 6, "ListOffsets": 3, "Metadata": 1, "OffsetForLeaderEpoch": 2}


@dataclass(frozen=True)
class Known:
    """A partition as a broker tells of it.

    Attributes:
        topic: its name.
        topic_id: in Kafka's writing.
        number: of the partition.
        epoch: of its leader.
        start: the first offset.
        end: behind the last.
        stable: behind the last that is decided.
        newest: the largest timestamp.
    """

    topic: str
    topic_id: str
    number: int
    epoch: int
    start: int
    end: int
    stable: int
    newest: int


def versions(bridge: Bridge, port: int) -> dict[str, tuple[int, int]]:
    """Which versions of the APIs one speaks."""
    body = {"clientSoftwareName": "bridge", "clientSoftwareVersion": "1"}
    answer = bridge.ask(port, "ApiVersions", 3, body)
    told = {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}
    return {name: told[key] for name, key in APIS.items()}


def known_by(bridge: Bridge, port: int) -> list[Known]:
    """All partitions of a broker."""
    everything = {"topics": None, "allowAutoTopicCreation": False,
                  "includeTopicAuthorizedOperations": False}  # fmt: skip
    topics = bridge.ask(port, "Metadata", 13, everything)["topics"]
    wanted = [
        (one["name"], one["topicId"], part["partitionIndex"], part["leaderEpoch"])
        for one in topics
        for part in one["partitions"]
    ]
    found: dict[tuple[int, int], dict[tuple[str, int], dict[str, Any]]] = {}
    for isolation, time in ((0, -2), (0, -1), (1, -1), (0, -3)):
        asked = [_topic(name, id_, [_listed(number, -1, time)]) for name, id_, number, _ in wanted]
        body = {"replicaId": -1, "isolationLevel": isolation, "topics": asked, "timeoutMs": 60_000}
        answer = bridge.ask(port, "ListOffsets", 11, body)
        found[isolation, time] = {
            (one["name"], part["partitionIndex"]): part
            for one in answer["topics"]
            for part in one["partitions"]
        }
    return [
        Known(
            name, id_, number, epoch, found[0, -2][name, number]["offset"],
            found[0, -1][name, number]["offset"], found[1, -1][name, number]["offset"],
            found[0, -3][name, number]["timestamp"],
        )
        for name, id_, number, epoch in wanted
    ]  # fmt: skip


def _topic(name: str, id_: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"topic": name, "name": name, "topicId": id_, "partitions": partitions}


def _listed(number: int, epoch: int, time: int) -> dict[str, Any]:
    return {"partitionIndex": number, "currentLeaderEpoch": epoch, "timestamp": time}


class Requests:
    """Draws requests.

    Args:
        drawn: random numbers.
        known: what can be asked for.
        spoken: the versions of each API that both sides speak.
    """

    def __init__(
        self, drawn: random.Random, known: list[Known], spoken: dict[str, tuple[int, int]]
    ) -> None:
        self._drawn = drawn
        self._known = known
        self._spoken = spoken

    def draw(self) -> tuple[str, int, dict[str, Any]]:
        """An API, a version of it and a body."""
        [api] = self._drawn.choices(list(_SHARES), list(_SHARES.values()))
        version = self._drawn.randint(*self._spoken[api])
        if api == "Metadata":
            return api, version, self._metadata(version)
        body = {
            "Fetch": self._fetch,
            "ListOffsets": self._list_offsets,
            "OffsetForLeaderEpoch": self._epochs,
        }[api]()
        return api, version, body

    def _chance(self, one_in: int) -> bool:
        return self._drawn.randrange(one_in) == 0

    def _some(self) -> list[tuple[Known, str, str, int]]:
        """Partitions as a request names them: rightly, mostly."""
        some = self._drawn.sample(self._known, self._drawn.choice((1, 1, 1, 2, 3, 6)))
        named = []
        for one in some:
            name, id_, number = one.topic, one.topic_id, one.number
            if self._chance(25):
                name, id_ = self._drawn.choice(((f"{name}-not", _NOBODY), (name, NO_ID)))
            if self._chance(25):
                number = self._drawn.choice((99, -1, number + 1))
            named.append((one, name, id_, number))
        return named

    def _topics(self, parts: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Each topic once, as clients have them."""
        topics: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for name, id_, part in parts:
            topics.setdefault((name, id_), []).append(part)
        return [_topic(name, id_, some) for (name, id_), some in topics.items()]

    def _epoch(self, one: Known) -> int:
        """What a client thinks the leader's epoch to be: nothing or the truth, mostly."""
        odd = (one.epoch - 1, one.epoch + 1, 0)
        return self._drawn.choice((-1, -1, -1, one.epoch, one.epoch, self._drawn.choice(odd)))

    def _offset(self, one: Known) -> int:
        edges = (one.start, one.start - 1, one.end, one.end - 1, one.end + 1, one.stable,
                 one.stable - 1, 0, -1, _LONG_MAX)  # fmt: skip
        inside = self._drawn.randint(one.start, max(one.start, one.end))
        return self._drawn.choice((inside, inside, self._drawn.choice(edges)))

    def _fetch(self) -> dict[str, Any]:
        parts = []
        for one, name, id_, number in self._some():
            last = self._drawn.choice((-1, -1, -1, 0, one.epoch - 1, one.epoch, one.epoch + 1))
            parts.append((name, id_, {
                "partition": number, "currentLeaderEpoch": self._epoch(one),
                "fetchOffset": self._offset(one), "lastFetchedEpoch": last, "logStartOffset": -1,
                "partitionMaxBytes": self._drawn.choice(_SIZES),
            }))  # fmt: skip
        session = self._drawn.choice(((0, -1), (0, -1), (0, -1), (0, 0), (77, 5), (77, -1)))
        return {
            "replicaId": -1, "maxWaitMs": self._drawn.choice((0, 0, 1)),
            "minBytes": self._drawn.choice((0, 1, 1)), "maxBytes": self._drawn.choice(_SIZES),
            "isolationLevel": self._drawn.randrange(2), "sessionId": session[0],
            "sessionEpoch": session[1], "topics": self._topics(parts), "forgottenTopicsData": [],
            "rackId": "",
        }  # fmt: skip

    def _list_offsets(self) -> dict[str, Any]:
        parts = []
        for one, name, id_, number in self._some():
            around = one.newest + self._drawn.randint(-400_000, 1_000)
            time = self._drawn.choice(
                (-1, -2, -3, -4, -5, -6, 0, one.newest, one.newest + 1, around, around, _LONG_MAX)
            )
            parts.append((name, id_, _listed(number, self._epoch(one), time)))
        return {
            "replicaId": -1, "isolationLevel": self._drawn.randrange(2),
            "topics": self._topics(parts), "timeoutMs": 60_000,
        }  # fmt: skip

    def _metadata(self, version: int) -> dict[str, Any]:
        topics: list[dict[str, Any]] | None = [
            {"name": name, "topicId": NO_ID} for _, name, _, _ in self._some()
        ]
        if version >= 10 and self._chance(4):
            topics = [{"name": None, "topicId": id_} for _, _, id_, _ in self._some()]
        elif self._chance(10):
            topics = self._drawn.choice((None, [])) if version else []
        return {
            "topics": topics, "allowAutoTopicCreation": self._chance(2),
            "includeClusterAuthorizedOperations": False, "includeTopicAuthorizedOperations": False,
        }  # fmt: skip

    def _epochs(self) -> dict[str, Any]:
        parts = []
        for one, name, id_, number in self._some():
            epoch = self._drawn.choice((one.epoch, self._drawn.randint(-1, one.epoch + 2)))
            parts.append((name, id_, {
                "partition": number, "currentLeaderEpoch": self._epoch(one), "leaderEpoch": epoch,
            }))  # fmt: skip
        return {"replicaId": -1, "topics": self._topics(parts)}
