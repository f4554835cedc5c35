"""The log directory of a cluster that exists, and what its metadata allow to be moved there.

Follows `LogManager` and `ReplicaManager` of Kafka: a start makes a stray of a partition with
another topic id, cuts a follower to its leader, and deletes what is older than the retention.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.releases import newest
from kafkalog.change.journal.log_dir_files import has_mark
from kafkalog.change.resurrection.choice import NEW
from kafkalog.change.resurrection.model import ResurrectOptions, Retention
from kafkalog.change.resurrection.records import REMOTE
from kafkalog.change.resurrection.sources import source_images
from kafkalog.errors import NotFoundError, RefusedError, UsageError
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.files.text_files import read_meta_properties
from kafkalog.model import present_ms
from kafkalog.node.cluster_image.model import TOPIC

if TYPE_CHECKING:
    from kafkalog.change.resurrection.choice import TopicChoice
    from kafkalog.change.resurrection.partition import Judged
    from kafkalog.change.resurrection.sources import SourceImage
    from kafkalog.node.cluster_image.model import Partition

_RESERVED: Final = tuple("A" * 21 + end for end in "AQg")
"""Ids of no directory: `MIGRATING`, `UNASSIGNED` and `LOST` of `DirectoryId`."""
_EXPIRATION_MS: Final = 86_400_000
"""Default of `producer.id.expiration.ms`: a start forgets producers whose last batch is older."""
_COMPACT: Final = "compact"


@dataclass(frozen=True, slots=True)
class Home:
    """The log directory that partitions are moved to, and the metadata of its cluster."""

    path: str
    node_id: int
    directory_id: str | None
    known: SourceImage

    @classmethod
    def of(cls, log_dir: str, options: ResurrectOptions) -> Home:
        """Read a log directory.

        Raises:
            UsageError: it is none.
            NotFoundError: there is no metadata log.
            RefusedError: the metadata are of another cluster.
            CorruptDataError, UnsupportedError: they are damaged, or of a later Kafka.
        """
        target = open_path(log_dir)
        if not isinstance(target, LogDirListing):
            raise UsageError("This is not a log directory.", path=log_dir,
                             hint="Give the log directory of a broker that is down.")  # fmt: skip
        path = os.path.join(log_dir, file_names.META_PROPERTIES)
        found = read_meta_properties(path)
        images = source_images([target], options.as_of_metadata, newest(), takes_damage=False)
        if not images or found.node_id is None:
            raise NotFoundError(
                "There is no metadata log here.",
                path=log_dir,
                hint="--as-of-metadata names the broker's log directory that has it.",
            )
        if images[0].cluster_id != found.cluster_id:
            raise RefusedError(
                f"The metadata log is of the cluster {images[0].cluster_id}, the log directory of "
                f"{found.cluster_id}.",
                path=images[0].path,
            )
        return cls(log_dir, found.node_id, found.directory_id, images[0])

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return what the metadata say of a partition."""
        return self.known.image.partition(self.known.image.topics.get(topic, ""), number)

    def require_topic(self, topic: TopicChoice, options: ResurrectOptions) -> None:
        """Raise `RefusedError` unless a topic's partitions belong here, and may stay."""
        image, name = self.known.image, topic.name
        topic_id = image.topics.get(name)
        if topic_id is None:
            raise RefusedError(
                f"The cluster's metadata has no topic {name}.",
                path=self.path,
                hint=f"Create it: kafka-topics.sh --create --topic {name} --partitions "
                f"{max(topic.partitions) + 1} --config retention.ms=-1; stop the broker, and run "
                "this again. Or make a directory with --to.",
            )
        given = options.topic_ids.get(name)
        stated = topic.partitions[min(topic.partitions)].copies[0].topic_id
        if given not in (None, NEW, topic_id, stated):
            raise RefusedError(
                f"The topic {name} has the id {topic_id} in the metadata, not {given}.",
                path=self.path,
            )
        # It is of another topic that had this name.
        if given not in (NEW, topic_id) and not topic.is_dead and stated not in (None, topic_id):
            raise RefusedError(
                f"The topic {name} has the id {topic_id} in the metadata; the directory is of a "
                f"topic with the id {stated}.",
                path=topic.partitions[min(topic.partitions)].copies[0].path,
                hint=f"If it shall become that topic: --topic-id {name}={topic_id}.",
            )
        # Remote segments are listed by leader epoch and offset, which another log does not share.
        if image.configs.get((TOPIC, name), {}).get(REMOTE) == "true":
            raise RefusedError(
                f"The topic {name} has remote storage there: what that has of it would not agree "
                "with another log.",
                path=self.path,
                hint="Move it to a topic without remote storage, or make a directory with --to.",
            )
        for number in topic.partitions:
            self._require_place(name, number)
        if options.retention == Retention.KEEP:
            self._require_retention(name)

    def _require_place(self, topic: str, number: int) -> None:
        known = self.partition(topic, number)
        if known is None:
            raise RefusedError(
                f"In the metadata the topic {topic} has no partition {number}.",
                path=self.path,
                hint=f"Add partitions: kafka-topics.sh --alter --topic {topic} --partitions "
                f"{number + 1}; stop the broker, and run this again.",
            )
        if self.node_id not in known.replicas:
            nodes = ", ".join(map(str, known.replicas))
            raise RefusedError(
                f"The metadata assign {topic}-{number} to {nodes}, not to this node, "
                f"{self.node_id}.",
                path=self.path,
                hint="A broker would take it for a stray. Use that node's log directory.",
            )
        # A follower truncates to its leader, whose log knows nothing of these records.
        if len(known.replicas) > 1:
            others = ", ".join(str(one) for one in known.replicas if one != self.node_id)
            raise RefusedError(
                f"{topic}-{number} has replicas on other nodes, too: {others}.",
                path=self.path,
                note="One of them could lead without these records; this one would be cut to it.",
                hint="Reassign it to this node alone first; add the others again afterwards.",
            )
        directory = known.directories[0] if known.directories else None
        if directory not in (None, self.directory_id, *_RESERVED):
            raise RefusedError(
                f"The metadata assign {topic}-{number} to the log directory {directory}, not to "
                f"this one, {self.directory_id}.",
                path=self.path,
                hint="Use the log directory whose meta.properties has that directory.id.",
            )

    def _require_retention(self, topic: str) -> None:
        configs = self.known.image.configs.get((TOPIC, topic), {})
        # A compacted topic has no retention by time or size.
        if configs.get("cleanup.policy") == _COMPACT:
            return
        if configs.get("retention.ms") == "-1" and configs.get("retention.bytes", "-1") == "-1":
            return
        raise RefusedError(
            f"The retention of the topic {topic} may delete old data minutes after the start.",
            path=self.path,
            hint=f"kafka-configs.sh --alter --topic {topic} --add-config "
            "retention.ms=-1,retention.bytes=-1 keeps them, before the broker is stopped; "
            "--retention original accepts it.",
        )

    def require_agreement(self, topic: str, number: int, path: str, judged: Judged) -> None:
        """Raise `RefusedError` if clients or new producers could not go on behind a log."""
        known = self.partition(topic, number)
        assert known is not None, "required before"
        # The leader's epoch comes from the metadata; batches with a lower one would follow higher
        # ones.
        if judged.leader_epoch > known.leader_epoch:
            raise RefusedError(
                f"The leader epoch of the log is {judged.leader_epoch}, that of {topic}-{number} "
                f"in the metadata {known.leader_epoch}: clients that are ahead would be fenced.",
                path=path,
                hint="Each start of the broker raises that of the metadata by one or two; start "
                "and stop it until they agree. Or make a directory with --to.",
            )
        following = self.known.image.next_producer_id
        is_known = (
            # Otherwise a start forgets the producer (ProducerStateManager.isProducerExpired).
            judged.last_timestamp > present_ms() - _EXPIRATION_MS
            or judged.first_unstable_offset is not None
            or not has_mark(self.path)
        )
        if judged.producer_id >= max(following, 0) and is_known:
            raise RefusedError(
                f"The log has producer ids up to {judged.producer_id}, the cluster gives new ones "
                f"from {max(following, 0)} on: what new producers send would be taken for "
                "repetitions.",
                path=path,
                hint="A start after a clean shutdown forgets those without an open transaction "
                "and with no batch for a day. Or make a directory with --to.",
            )
