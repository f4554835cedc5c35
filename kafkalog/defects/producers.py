"""What can be wrong with producers, transactions and producer snapshots."""

from __future__ import annotations

from typing import Final

from kafkalog.defects.reference import Reference
from kafkalog.model import Severity

_I = Severity.INDEX

REFERENCES: Final = (
    Reference("producer-snapshot-corrupt", _I, "Version, checksum or layout of a producer "
              "snapshot are wrong.", "It is discarded and an older one is used.",
              arises="The machine stopped before the snapshot was written; bits that flipped."),
)  # fmt: skip
