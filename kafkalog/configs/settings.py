"""What a metadata log says of configs, as values: settings by topic and broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalog.model import Defect

TOPIC: Final = 2
BROKER: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """A config's text and the record that set it: `offset 15`, or the name of a snapshot."""

    text: str
    source: str


@dataclass
class MetadataConfigs:
    """What the metadata log says, latest value last.

    Attributes:
        settings: (resource type, resource name) to config name to setting. Resource types are
            `TOPIC` and `BROKER`; the broker of name "" stands for all brokers.
        topics: topic id to name of every topic that exists.
        defects: damage met on the way; what is behind it may be missing.
        unknown: how many records could not be read: versions newer than this program.
    """

    settings: dict[tuple[int, str], dict[str, Setting]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    unknown: int = 0

    def of_topic(self, topic: str) -> dict[str, Setting]:
        """The topic's own configs."""
        return self.settings.get((TOPIC, topic), {})

    def of_broker(self, node_id: int | None) -> dict[str, Setting]:
        """Dynamic configs of a broker, above those of all brokers."""
        own = {} if node_id is None else self.settings.get((BROKER, str(node_id)), {})
        return self.settings.get((BROKER, ""), {}) | own
