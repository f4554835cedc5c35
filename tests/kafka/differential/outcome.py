"""The result of a case of the differential tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The differences between Kafka and us, and the events that occurred.

    Attributes:
        differences: descriptions, none if all is equal.
        seen: events, with their counts.
    """

    differences: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, ours: object, kafkas: object) -> None:
        """Note a difference unless the two are equal."""
        if ours != kafkas:
            self.differences.append(f"{what}: {ours} != Kafka's {kafkas}")
