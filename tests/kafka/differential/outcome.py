"""What a case of the differential tests comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What differs between Kafka and us, and what was seen.

    Attributes:
        differences: in words, none where all is equal.
        seen: how often what happened.
    """

    differences: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, ours: object, kafkas: object) -> None:
        """The two should be equal."""
        if ours != kafkas:
            self.differences.append(f"{what}: {ours} != Kafka's {kafkas}")
