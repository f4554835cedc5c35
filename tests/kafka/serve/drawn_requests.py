"""Random requests about logs, valid ones and some at the borders of what is valid.

Leader epochs are drawn relative to the last one in the log: a broker that starts on a copy of the
files leads in a later epoch, and gets requests about that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from formats.message_table import requests

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

APIS: Final = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch", "Metadata")
_SHARES: Final = (6, 5, 2, 1)
NO_ID: Final = "A" * 22
_UNKNOWN_ID: Final = "q83vEjRWeJCrze8SNFZ4kA"
_NAMES: Final = ("no-such-topic", "in valid", "", "..", "ü", "x" * 250)
_TIME_MAX: Final = (1 << 63) - 1
_SPECIAL_TIMES: Final = (-1, -2, -3, -4, -5, -6, -7, 0, 1, 1 << 62, _TIME_MAX, -_TIME_MAX - 1)
_SIZES: Final = (-1, 0, 1, 60, 200, 1000, 5000, 50_000, 1 << 20, (1 << 31) - 1)


@dataclass(frozen=True)
class Log:
    """The known facts about a partition.

    Attributes:
        topic, number, topic_id: its name, number and topic id.
        start, stable, end: its log start offset, last stable offset and log end offset.
        epoch: the last leader epoch in the log.
        has_epoch: whether that leader has appended something; if not, a start forgets the epoch.
        times: timestamps in it.
        bases: base offsets of its segments.
        is_old: whether it has messages of magic 0 or 1.
    """

    topic: str
    number: int
    topic_id: str
    start: int
    stable: int
    end: int
    epoch: int
    has_epoch: bool
    times: tuple[int, ...]
    bases: tuple[int, ...]
    is_old: bool


@dataclass(frozen=True)
class Epoch:
    """A leader epoch of a request.

    Attributes:
        log: the log that it belongs to.
        above: how far above the last one in the log.
        is_own: whether it counts from the log's last epoch, not from the broker's current one.
    """

    log: Log
    above: int
    is_own: bool

    def for_leader(self, epoch: int) -> int:
        """Return the number of the epoch in a request to a broker that leads in `epoch`."""
        if self.above < 0 or (self.above == 0 and self.is_own and self.log.has_epoch):
            return self.log.epoch + self.above
        return epoch + self.above


@dataclass(frozen=True)
class Request:
    """A request; `body` has leader epochs as `Epoch`."""

    api: str
    version: int
    body: dict[str, Any]

    def for_leader(self, epochs: Mapping[tuple[str, int], int]) -> dict[str, Any]:
        """Return the request to a broker with these leader epochs, by topic and partition."""

        def filled(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: filled(one) for name, one in value.items()}
            if isinstance(value, list):
                return [filled(one) for one in value]
            if isinstance(value, Epoch):
                return value.for_leader(epochs[value.log.topic, value.log.number])
            return value

        found: dict[str, Any] = filled(self.body)
        return found


class Drawer:
    """Draws requests.

    Args:
        logs: the logs that they ask about.
        rng: random numbers.
    """

    def __init__(self, logs: Sequence[Log], rng: random.Random) -> None:
        self._rng = rng
        self._topics: dict[str, list[Log]] = {}
        for log in logs:
            self._topics.setdefault(log.topic, []).append(log)
        self._old = [name for name, some in self._topics.items() if any(one.is_old for one in some)]
        self._new = [name for name in self._topics if name not in self._old]
        self._bodies: dict[str, Callable[[], dict[str, Any]]] = {
            "Fetch": self._fetch,
            "ListOffsets": self._list_offsets,
            "OffsetForLeaderEpoch": self._offset_for_leader_epoch,
        }

    def requests(self, count: int) -> Iterator[Request]:
        """Yield requests: each API in each version first, then drawn ones."""
        of_api = {api: requests()[f"{api}Request"].versions for api in APIS}
        for api, versions in of_api.items():
            for version in versions:
                yield self._request(api, version)
        for _ in range(count):
            [api] = self._rng.choices(APIS, _SHARES)
            yield self._request(api, self._rng.choice(of_api[api]))

    def _request(self, api: str, version: int) -> Request:
        if api == "Metadata":
            return Request(api, version, self._metadata(version))
        return Request(api, version, self._bodies[api]())

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _some_topics(self, *, one_of_old: bool = False) -> list[str]:
        if one_of_old and self._chance(len(self._old) / len(self._topics)):
            return [self._rng.choice(self._old)]
        known = self._new if one_of_old else [*self._topics]
        found = self._rng.sample(known, self._rng.choice((1, 1, 1, 2, 3, 5)))
        if self._chance(0.05):
            found.insert(self._rng.randrange(len(found) + 1), self._rng.choice(_NAMES))
        return found

    def _some_logs(self, topic: str) -> list[tuple[int, Log | None]]:
        """Draw partition numbers with what is known of them; some do not exist."""
        known = self._topics.get(topic, [])
        drawn = self._rng.sample(known, self._rng.randint(min(1, len(known)), min(3, len(known))))
        found: list[tuple[int, Log | None]] = [(log.number, log) for log in drawn]
        if not found or self._chance(0.05):
            found.append((self._rng.choice((7, 1000, -1, (1 << 31) - 1)), None))
        return found

    def _epoch(self, log: Log | None, *, none: float) -> int | Epoch:
        if log is None or self._chance(none):
            return -1
        above = self._rng.choice((-2, -1, 0, 0, 0, 0, 1, 2))
        if log.epoch + above < 0:
            return self._rng.choice((-1, -2))
        return Epoch(log, above, self._chance(0.5))

    def _offset(self, log: Log | None) -> int:
        if log is None:
            return self._rng.choice((-1, 0, 1, 1000))
        if self._chance(0.5):
            return self._rng.randint(log.start, log.end)
        near = self._rng.choice((log.start, log.stable, log.end, *log.bases))
        offset = near + self._rng.choice((-2, -1, 0, 0, 1, 2))
        return self._rng.choice((offset, offset, offset, offset, 0, -1, 1 << 62))

    def _fetch(self) -> dict[str, Any]:
        rng = self._rng
        topics = []
        for name in self._some_topics(one_of_old=True):
            of_topic = self._topics.get(name)
            named = {"topic": name, "topicId": of_topic[0].topic_id if of_topic else _UNKNOWN_ID}
            topics.append({**named, "partitions": [
                {"partition": number, "currentLeaderEpoch": self._leader(log),
                 "fetchOffset": self._offset(log),
                 "lastFetchedEpoch": self._epoch(log, none=0.7), "logStartOffset": -1,
                 "partitionMaxBytes": rng.choice(_SIZES)}
                for number, log in self._some_logs(name)
            ]})  # fmt: skip
        if self._chance(0.03):
            topics.append(rng.choice(topics))
        session = rng.choice(((0, -1), (0, -1), (0, -1), (0, 0), (77, -1), (77, 0), (77, 5)))
        return {
            "replicaId": -1, "maxWaitMs": rng.choice((0, 0, 1, 5)),
            "minBytes": rng.choice((0, 1, 1, 10_000)), "maxBytes": rng.choice(_SIZES),
            "isolationLevel": self._rng.randrange(2), "sessionId": session[0],
            "sessionEpoch": session[1], "topics": topics, "rackId": rng.choice(("", "rack")),
        }  # fmt: skip

    def _leader(self, log: Log | None) -> int | Epoch:
        """Draw the epoch that a client believes in; half of the cases are right."""
        epoch = self._epoch(log, none=0.5)
        if isinstance(epoch, int):
            return epoch
        return Epoch(epoch.log, 0 if self._chance(0.5) else epoch.above, is_own=False)

    def _time(self, log: Log | None) -> int:
        if log is None or not log.times or self._chance(0.4):
            return self._rng.choice(_SPECIAL_TIMES)
        if self._chance(0.3):
            return self._rng.randint(min(log.times), max(log.times))
        return min(self._rng.choice(log.times) + self._rng.choice((-1, 0, 0, 1)), _TIME_MAX)

    def _list_offsets(self) -> dict[str, Any]:
        topics = [
            {"name": name, "partitions": [
                {"partitionIndex": number, "currentLeaderEpoch": self._leader(log),
                 "timestamp": self._time(log)} for number, log in self._some_logs(name)
            ]} for name in self._some_topics()
        ]  # fmt: skip
        if self._chance(0.02):
            topics.append(self._rng.choice(topics))
        return {
            "replicaId": self._rng.choice((-1, -1, -2)), "isolationLevel": self._rng.randrange(2),
            "topics": topics, "timeoutMs": self._rng.choice((0, 1000, 30_000)),
        }  # fmt: skip

    def _metadata(self, version: int) -> dict[str, Any]:
        asked: list[dict[str, Any]] | None = [
            {"name": name, "topicId": NO_ID} for name in self._some_topics()
        ]
        if version >= 12 and self._chance(0.3):
            asked = [
                {"name": None, "topicId": self._topics[one["name"]][0].topic_id
                 if one["name"] in self._topics else _UNKNOWN_ID} for one in asked or ()
            ]  # fmt: skip
        if version >= 10 and asked and self._chance(0.1):
            asked[0] |= self._rng.choice(({"name": None}, {"topicId": _UNKNOWN_ID}))
        if self._chance(0.1):
            asked = []
        elif version >= 1 and self._chance(0.05):
            asked = None
        elif asked and self._chance(0.1):
            asked.append(self._rng.choice(asked))
        return {
            "topics": asked, "allowAutoTopicCreation": version < 4 or self._chance(0.5),
            "includeClusterAuthorizedOperations": self._chance(0.3),
            "includeTopicAuthorizedOperations": self._chance(0.3),
        }  # fmt: skip

    def _offset_for_leader_epoch(self) -> dict[str, Any]:
        return {"replicaId": self._rng.choice((-1, -2)), "topics": [
            {"topic": name, "partitions": [
                {"partition": number, "currentLeaderEpoch": self._leader(log),
                 "leaderEpoch": self._epoch(log, none=0.1)}
                for number, log in self._some_logs(name)
            ]} for name in self._some_topics()
        ]}  # fmt: skip
