"""A cluster as a target: its topics, their partitions and configs, by librdkafka.

librdkafka is loaded when a cluster is used; without it there is a `UnsupportedError`.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.errors import ClusterError, RefusedError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

ANSWER_S: Final = 10.0
"""How long a cluster may take to answer for the first time."""
REQUEST_S: Final = 60.0
"""How long it may take to do what it is asked."""


def require_client() -> None:
    """Raise `UnsupportedError` if confluent-kafka is missing."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise UnsupportedError(
            "Talking to a cluster needs confluent-kafka.", hint="pip install 'kafkalog[kafka]'"
        )


class _Words(logging.Handler):
    """Keeps the last line that librdkafka logged."""

    def __init__(self) -> None:
        super().__init__()
        self.last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the words, without the name of the client and its threads."""
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage().rpartition("]: ")[2]


class Cluster:
    """A cluster.

    Attributes:
        id: identity of the cluster.

    Raises:
        UnsupportedError: confluent-kafka is missing.
        UsageError: librdkafka does not take a property.
        ClusterError: the cluster does not answer.
    """

    def __init__(self, bootstrap: str, config: Mapping[str, str] | None = None) -> None:
        require_client()
        self.bootstrap = bootstrap
        self._words = _Words()
        logger = logging.Logger("kafkalog.wire.producing")  # noqa: LOG001 # nobody else's, and silent
        logger.addHandler(self._words)
        self.config: dict[str, Any] = {
            **(config or {}),
            "bootstrap.servers": bootstrap,
            "logger": logger,
        }
        self._admin = self._client()
        with asked(f"{bootstrap} does not answer", note=self._last_words):
            metadata = self._admin.list_topics(timeout=ANSWER_S)
        self.id = str(metadata.cluster_id or "")

    @property
    def compresses(self) -> bool:
        """Whether the user's properties ask for compressed batches."""
        names = ("compression.type", "compression.codec")
        return any(self.config.get(name, "none") != "none" for name in names)

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        with configured():
            return AdminClient(self.config)

    def _last_words(self) -> str | None:
        self._admin.poll(0)  # librdkafka hands over its log lines when it is polled
        return self._words.last

    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        with asked("The topics cannot be listed"):
            metadata = self._admin.list_topics(timeout=ANSWER_S)
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None
        }

    def require_access(self, topic: str) -> None:
        """Raise `ClusterError` if the cluster does not let us see a topic that is there."""
        with asked("The topics cannot be listed"):
            found = self._admin.list_topics(topic, timeout=ANSWER_S).topics.get(topic)
        if found is not None and found.error is not None and "AUTHORIZATION" in found.error.name():
            raise failed(f"The topic {topic} is closed to this user", found.error)

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the configs of topics; of those that may not be seen, none.

        A broker may not know yet that a topic was created.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            ConfigResource,
            ResourceType,
        )

        found: dict[str, dict[str, str]] = {}

        def ask() -> None:
            names = [name for name in topics if name not in found]
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
            answers = self._admin.describe_configs(resources, request_timeout=REQUEST_S)
            unknown = None
            for resource, answer in answers.items():
                try:
                    entries = answer.result(REQUEST_S)
                except KafkaException as error:
                    if error.args[0].name() in _PASSING:
                        unknown = error
                    else:
                        found[resource.name] = {}  # they only serve warnings and sizes
                else:
                    found[resource.name] = {name: one.value for name, one in entries.items()}
            if unknown is not None:
                raise unknown

        with suppress(KafkaException):  # they only serve warnings and sizes
            patiently(ask)
        return {name: found.get(name, {}) for name in topics}

    def create_topics(self, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        """Create topics, each with its number of partitions and its configs.

        Raises:
            ClusterError: the cluster refuses.
        """
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        new = [
            # -1: the broker's default.
            NewTopic(name, num_partitions=count, replication_factor=-1, config=dict(configs))
            for name, (count, configs) in topics.items()
        ]
        made = self._admin.create_topics(new, request_timeout=ANSWER_S, operation_timeout=ANSWER_S)
        for name, answer in made.items():
            with asked(f"The topic {name} cannot be created"):
                answer.result(REQUEST_S)

    def active_groups(self, groups: Sequence[str]) -> list[str]:
        """Return those of some groups that have members."""
        if not groups:
            return []
        found = []
        for name in groups:
            with asked(f"The group {name} cannot be described", passes=("GROUP_ID_NOT_FOUND",)):
                if patiently(partial(self._members, name)):
                    found.append(name)
        return sorted(found)

    def _members(self, group: str) -> Sequence[object]:
        answers = self._admin.describe_consumer_groups([group], request_timeout=REQUEST_S)
        members: Sequence[object] = answers[group].result(REQUEST_S).members
        return members

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a group without members.

        Raises:
            RefusedError: it has members.
            ClusterError: the cluster refuses.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        # Again: members may have come since the run began.
        if self.active_groups([group]):
            raise active(group)
        wanted = [TopicPartition(*name, offset) for name, offset in offsets.items()]

        def alter() -> None:
            answers = self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=REQUEST_S
            )
            for one in answers[group].result(REQUEST_S).topic_partitions:
                if one.error is not None:
                    raise KafkaException(one.error)

        with asked(f"Offsets of the group {group} cannot be committed"):
            patiently(alter)


def active(*groups: str) -> RefusedError:
    """Return the error for groups whose members would not see offsets that are committed now."""
    what = "The group" if len(groups) == 1 else "The groups"
    return RefusedError(
        f"{what} {', '.join(groups)} {'is' if len(groups) == 1 else 'are'} active in the cluster.",
        note="Members go on from where they are, and would replace what is committed for them.",
        hint="Stop the consumers, and give the command again.",
    )


@contextmanager
def configured() -> Iterator[None]:
    """Report what librdkafka does not take as a property in the block."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        words = error.args[0].str()
        raise UsageError(
            f"librdkafka refuses a property: {words}.",
            hint="--producer-config takes librdkafka's properties: security.protocol=SASL_SSL.",
        ) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"librdkafka refuses a property: {error}.") from error


_TIMES: Final = (
    "If their timestamps are too old or too new, set message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms of the topic, or replay with --new-timestamps."
)
_HINTS: Final = {
    "INVALID_RECORD": f"A compacted topic takes no record without a key. {_TIMES}",
    "INVALID_TIMESTAMP": _TIMES,
    "MSG_SIZE_TOO_LARGE": "Set max.message.bytes of the topic.",
    "TOPIC_AUTHORIZATION_FAILED": "The user needs Write, Read and Describe on the topics.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The user needs Write on the transactional ids "
    "kafkalog-replay-…, or --no-transactions.",
    "GROUP_AUTHORIZATION_FAILED": "The user needs Read on the groups kafkalog-replay-….",
    "_FENCED": "Another kafkalog has taken the run over; let that one go on.",
    "INVALID_PRODUCER_EPOCH": "Repeat the command: it continues where it stopped.",
    "UNSUPPORTED_VERSION": "A cluster without transactions takes --no-transactions.",
}


def failed(what: str, error: KafkaError, note: str | None = None) -> ClusterError:
    words = error.str().rstrip(".") or error.name()
    hint = _HINTS.get(error.name()) or ("Is it the address of a broker?" if note else None)
    if "AUTHENTICATION" in error.name():
        hint = "--producer-config takes sasl.mechanism, sasl.username and the like."
    return ClusterError(f"{what}: {words}.", note=note, hint=hint)


@contextmanager
def asked(what: str, *, passes: Sequence[str] = (), note: Any = None) -> Iterator[None]:
    """Report what a cluster does not do in the block.

    Args:
        what: what it does not do.
        passes: names of errors that mean nothing.
        note: returns what else is known.
    """
    from concurrent.futures import TimeoutError as NoAnswerError

    from confluent_kafka import KafkaException

    try:
        yield
    except NoAnswerError as error:
        raise ClusterError(f"{what}: no answer within {REQUEST_S:.0f} seconds.") from error
    except KafkaException as error:
        if error.args[0].name() not in passes:
            raise failed(what, error.args[0], note() if note else None) from error


_PASSING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
                   "UNSTABLE_OFFSET_COMMIT", "CONCURRENT_TRANSACTIONS",
                   "UNKNOWN_TOPIC_OR_PART")  # fmt: skip
"""Errors of a cluster that has just started, or has just been asked for something else."""
_PAUSE_S: Final = 0.2


def patiently(call: Callable[[], T]) -> T:
    """Call until it succeeds, fails for good, or as long as a request may take."""
    from confluent_kafka import KafkaException

    over = time.monotonic() + REQUEST_S
    while True:
        try:
            return call()
        except KafkaException as error:
            found = error.args[0]
            if not (found.retriable() or found.name() in _PASSING) or time.monotonic() > over:
                raise
            time.sleep(_PAUSE_S)
