"""Which partition directory, or which other file, a finding belongs to."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.log_dir import FileEntry, LogDir, PartitionDir
from kafkalog.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.model import Defect, Severity

    Target = LogDir | PartitionDir | FileEntry


@dataclass
class Place:
    """A partition directory, or a file outside of partitions, and what was found there.

    Attributes:
        path: as it was given or found.
        target: path of the target it belongs to.
        partition: the directory; None for another file.
        defects: the first findings of each kind.
        counts: of all findings, by severity and reference.
    """

    path: str
    target: str
    partition: PartitionDir | None = None
    defects: list[Defect] = field(default_factory=list)
    counts: Counter[tuple[Severity, str]] = field(default_factory=Counter)


class Places:
    """All places of some targets, in their order.

    Memory grows with the number of partitions, not with that of findings: of each place only
    `alike_max` findings of a kind are kept, the others are counted.
    """

    def __init__(self, targets: Sequence[Target], alike_max: int) -> None:
        self._targets = targets
        self._alike_max = alike_max
        self._places: dict[str, Place] = {}
        for target in targets:
            if isinstance(target, LogDir):
                for entry in target.files:
                    self._add(Place(entry.path, target.path))
                for partition in target.partitions:
                    self._add(Place(partition.path, target.path, partition))
            elif isinstance(target, PartitionDir):
                self._add(Place(target.path, target.path, target))
            else:
                self._add(Place(target.path, target.path))

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def add(self, defect: Defect) -> None:
        """A finding was made."""
        path = file_system.absolute(defect.path)
        place = self._places.get(path) or self._places.get(os.path.dirname(path))
        if place is None:
            place = self._add(Place(defect.path, self._target_of(path)))
        kind = (defect.severity, defect.reference)
        place.counts[kind] += 1
        if place.counts[kind] <= self._alike_max:
            place.defects.append(defect)

    def _target_of(self, path: str) -> str:
        """The target above a path; the last one for what concerns the whole run."""
        for target in self._targets:
            if path.startswith(os.path.join(file_system.absolute(target.path), "")):
                return target.path
        return self._targets[-1].path

    def _add(self, place: Place) -> Place:
        return self._places.setdefault(file_system.absolute(place.path), place)
