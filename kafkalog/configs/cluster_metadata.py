"""The configs of topics and brokers in a log directory's `__cluster_metadata-0`.

Applies `TopicRecord`, `RemoveTopicRecord`, `ConfigRecord` and the transaction records of the
metadata log as `ConfigurationsImage`, `TopicsImage` and `MetadataBatchLoader` of Kafka 4.3 do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalog.batches.selection import Selection, plan_files, plan_size, planned_records
from kafkalog.cluster_image import MetadataTransactions
from kafkalog.errors import NotAKafkaFileError, NotFoundError
from kafkalog.jit import fast_path
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC, open_partition
from kafkalog.model import Defect, Record
from kafkalog.names import FileKind
from kafkalog.payloads.internal_topics import PayloadKind, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log_dir import FileEntry, PartitionDir


TOPIC: Final = 2
BROKER: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """A config's text, and the record that set it: `offset 15`, or the name of a snapshot."""

    text: str
    source: str


@dataclass
class MetadataConfigs:
    """The configs in the metadata log; the latest value counts.

    Attributes:
        settings: (resource type, resource name) to config name to setting. Resource types are
            `TOPIC` and `BROKER`; the broker with the name "" stands for all brokers.
        topics: topic id to name of every topic that exists.
        defects: damage on the way; anything after it may be missing.
        unknown: number of records that could not be read because this program is too old.
    """

    settings: dict[tuple[int, str], dict[str, Setting]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    unknown: int = 0

    def of_topic(self, topic: str) -> dict[str, Setting]:
        """Return the topic's own configs."""
        return self.settings.get((TOPIC, topic), {})

    def of_broker(self, node_id: int | None) -> dict[str, Setting]:
        """Return the dynamic configs of a broker, which override those of all brokers."""
        own = {} if node_id is None else self.settings.get((BROKER, str(node_id)), {})
        return self.settings.get((BROKER, ""), {}) | own


# Frame version 1, then the type: topic 2, config 4, remove topic 9, transactions 23 to 25.
_WANTED: Final = re.compile(rb"\A\x01[\x02\x04\x09\x17\x18\x19]")


def read_metadata_configs(log_dir: str) -> MetadataConfigs | None:
    """Return the configs in `__cluster_metadata-0` of a log directory, None if it has none.

    The newest readable snapshot is applied, then the records after it. Nothing offline says how far
    the quorum had committed, so everything in the log counts.

    Cost:
        Memory for the configs and the names of topics; the log is read in chunks.

    Raises:
        UnreadableError: the directory cannot be listed.
    """
    try:
        directory = open_partition(os.path.join(log_dir, f"{CLUSTER_METADATA_TOPIC}-0"))
    except (NotFoundError, NotAKafkaFileError):
        return None
    found, start = _newest_snapshot(directory)
    replay = _Replay(found)
    for record in _records(directory, Selection(from_offset=start, value_regex=_WANTED), found):
        replay.apply(record, f"offset {record.offset}")
    return found


def _newest_snapshot(directory: PartitionDir) -> tuple[MetadataConfigs, int]:
    """Return the content of the newest sound snapshot, and the offset where the log continues."""
    for snapshot in reversed(directory.live(FileKind.KRAFT_SNAPSHOT)):
        found = MetadataConfigs()
        replay = _Replay(found)
        for record in _records(snapshot, Selection(value_regex=_WANTED), found):
            replay.apply(record, snapshot.name.name)
        if not found.defects:
            return found, snapshot.name.offset or 0
    return MetadataConfigs(), 0


def _records(
    target: PartitionDir | FileEntry, selection: Selection, found: MetadataConfigs
) -> Iterator[Record]:
    """Yield the selected records; damage goes to the defects."""
    for item in _items(target, selection):
        if isinstance(item, Defect):
            found.defects.append(item)
        else:
            yield item


def _items(target: PartitionDir | FileEntry, selection: Selection) -> Iterator[Record | Defect]:
    plan = plan_files(target, selection)
    if not fast_path.is_worth_it(plan_size(plan)):
        yield from planned_records(plan)
        return
    from kafkalog.columns.pipeline import read_contents
    from kafkalog.columns.to_objects import Restored

    for content in read_contents(plan, Restored(), None, batches=False):
        if isinstance(content, Defect):
            yield content
        else:
            yield from content


class _Replay:
    """Applies records; those of a transaction when it ends, or never if it is aborted."""

    def __init__(self, found: MetadataConfigs) -> None:
        self._found = found
        self._transactions = MetadataTransactions[tuple[str, dict[str, Any], str]]()

    def apply(self, record: Record, source: str) -> None:
        """Apply one record; `source` names it as the source of a setting."""
        value = decode(PayloadKind.CLUSTER_METADATA, record.key, record.value).value
        if value is None:
            self._found.unknown += 1
            return
        kind = value["type"]
        for change in self._transactions.take(kind, (kind, value["data"], source)):
            self._change(*change)

    def _change(self, kind: str, data: dict[str, Any], source: str) -> None:
        found = self._found
        if kind == "TOPIC_RECORD":
            found.topics[data["topicId"]] = data["name"]
        elif kind == "REMOVE_TOPIC_RECORD":
            name = found.topics.pop(data["topicId"], None)
            if name is not None:
                found.settings.pop((TOPIC, name), None)
        elif kind == "CONFIG_RECORD":
            resource = (data["resourceType"], data["resourceName"])
            settings = found.settings.setdefault(resource, {})
            if data["value"] is None:
                settings.pop(data["name"], None)
            else:
                settings[data["name"]] = Setting(data["value"], source)
