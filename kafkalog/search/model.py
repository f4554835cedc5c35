"""A record that was found, and an occurrence in the life of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.model import Record


@dataclass(frozen=True, slots=True)
class Found:
    """A record that was found.

    Attributes:
        topic: topic, from the name of the directory.
        partition: partition number; None if the directory's name has none.
        record: the record; `record.batch.path` is its file.
        transactional_id: who wrote it; None if it was not written in a transaction, or if no
            coordinator in the searched places knows its producer.
        reason: why its value does not decode; None if that was not asked for.
    """

    topic: str
    partition: int | None
    record: Record
    transactional_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a key in a partition.

    Attributes:
        found: the record.
        before: the record of the key that counted before it; None if the log has none.
        superseded_by: offset of the next record of the key that counts; None if there is none, or
            if this one never counted.
        is_live: whether a broker would serve it after its next start. The others are only in files
            that it removes: of a compaction or a deletion, an end that it cuts off, or below the
            log start offset.
        transaction: `committed`, `aborted` or `open`; None without a transaction. A record of an
            aborted or open transaction does not count.
    """

    found: Found
    before: Record | None
    superseded_by: int | None
    is_live: bool
    transaction: str | None

    @property
    def counts(self) -> bool:
        """Whether it changed the key's value for consumers of committed records."""
        return self.transaction in (None, "committed")
