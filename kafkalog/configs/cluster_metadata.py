"""The configs of topics and brokers in a log directory's `__cluster_metadata-0`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.cluster_image import ImageReader
from kafkalog.cluster_image.model import BROKER, TOPIC
from kafkalog.errors import NotAKafkaFileError, NotFoundError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC, open_partition

if TYPE_CHECKING:
    from kafkalog.model import Defect


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
        defects: damage on the way; anything after it may be missing.
        unknown: number of records that could not be read because this program is too old.
    """

    settings: dict[tuple[int, str], dict[str, Setting]] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    unknown: int = 0

    def of_topic(self, topic: str) -> dict[str, Setting]:
        """Return the topic's own configs."""
        return self.settings.get((TOPIC, topic), {})

    def of_broker(self, node_id: int | None) -> dict[str, Setting]:
        """Return the dynamic configs of a broker, which override those of all brokers."""
        own = {} if node_id is None else self.settings.get((BROKER, str(node_id)), {})
        return self.settings.get((BROKER, ""), {}) | own


def read_metadata_configs(log_dir: str) -> MetadataConfigs | None:
    """Return the configs in `__cluster_metadata-0` of a log directory, None if it has none.

    The newest readable snapshot is applied, then the records after it. Nothing offline says how far
    the quorum had committed, so everything in the log counts.

    Cost:
        Memory for the metadata image; the log is read in chunks.

    Raises:
        UnreadableError: the directory cannot be listed.
    """
    try:
        directory = open_partition(os.path.join(log_dir, f"{CLUSTER_METADATA_TOPIC}-0"))
    except (NotFoundError, NotAKafkaFileError):
        return None
    reader = ImageReader(directory)
    reader.begin()
    reader.advance()
    image = reader.image
    settings = {
        resource: {
            name: Setting(text, str(image.sources["config", *resource, name]))
            for name, text in configs.items()
        }
        for resource, configs in image.configs.items()
    }
    return MetadataConfigs(settings, image.defects, image.unknown)
