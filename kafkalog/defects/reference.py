"""What is said about one kind of defect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.model import Severity


@dataclass(frozen=True, slots=True)
class Reference:
    """One kind of defect.

    Attributes:
        name: kebab-case, fixed.
        severity: how bad it is.
        meaning: what was found.
        broker: what Kafka makes of it.
        hint: what to do.
        arises: what it comes from.
    """

    name: str
    severity: Severity
    meaning: str
    broker: str
    hint: str | None = None
    arises: str = field(kw_only=True)
