"""Invariants of a batch by its own header, checksum and marker, without any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check.batch_checks import SegmentCheck
from kafkalog.columnar import header_table as h
from kafkalog.columnar import record_facts as f
from kafkalog.defects import make_defect
from kafkalog.model import Level
from kafkalog.reader import crc_defects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.model import Defect

_KNOWN_ATTRIBUTES: Final = 0x7F
_ZSTD: Final = 4
_COMMIT: Final = 1
_KRAFT_VOTERS: Final = 6


class ChecksumsMatch(SegmentCheck):
    """The bytes of every batch match its checksum."""

    level = Level.STANDARD

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        for i in np.flatnonzero(~stretch.crc_valid).tolist():
            batch = h.batch_at(stretch.headers, i, self.log.path, crc_valid=False)
            for defect in crc_defects(batch):
                yield i, defect


class MagicIsKnown(SegmentCheck):
    """No batch that is framed as magic 2 says it is of a later one."""

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        for i in np.flatnonzero(headers[h.MAGIC] > 2).tolist():
            detail = f"Magic {headers[h.MAGIC, i]} is unknown."
            yield i, defect_at(self.log.path, stretch, i, "magic-unknown", detail)


class AttributesAreKnown(SegmentCheck):
    """Every batch names a codec that its version has, and no attribute that no version has."""

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        attributes = headers[h.ATTRIBUTES]
        codec = attributes & c.COMPRESSION_MASK
        no_codec = codec > np.where(headers[h.MAGIC] < 2, _ZSTD - 1, _ZSTD)
        more = attributes & ~_KNOWN_ATTRIBUTES
        for i in np.flatnonzero((no_codec | (more != 0)) & stretch.crc_valid).tolist():
            if no_codec[i]:
                detail = f"Codec {codec[i]} is unknown to magic {headers[h.MAGIC, i]}."
                yield i, defect_at(self.log.path, stretch, i, "unknown-codec", detail)
            if more[i]:
                detail = f"Bits {more[i] & 0xFFFF:#06x} of the attributes have no meaning."
                yield i, defect_at(self.log.path, stretch, i, "attributes-unknown", detail)


class HeaderFieldsAgree(SegmentCheck):
    """Count, producer, flags and marker of a batch of magic 2 do not contradict each other.

    What a client is free to send is not judged: without a producer id, epoch and sequence may be
    anything (-1 by Java clients, 0 by some others and by Kafka's own coordinators).
    """

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        found = [(wrong & _judged(stretch), detail) for wrong, detail in _contradictions(stretch)]
        for i in np.flatnonzero(np.any([wrong for wrong, _ in found], axis=0)).tolist():
            details = [detail for wrong, detail in found if wrong[i]]
            detail = f"{'; '.join(details)}."
            detail = detail[0].upper() + detail[1:]
            yield i, defect_at(self.log.path, stretch, i, "batch-header-contradictory", detail)


def _judged(stretch: Stretch) -> NDArray[np.bool_]:
    judged: NDArray[np.bool_] = stretch.crc_valid & (stretch.headers[h.MAGIC] == 2)
    return judged


def _contradictions(stretch: Stretch) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Where each of them is, and its words."""
    headers, marker = stretch.headers, stretch.markers[f.MARKER_TYPE]
    attributes, count = headers[h.ATTRIBUTES], headers[h.COUNT]
    delta = headers[h.LAST_OFFSET] - headers[h.BASE_OFFSET]
    producer_id, sequence = headers[h.PRODUCER_ID], headers[h.BASE_SEQUENCE]
    has_producer = producer_id >= 0
    is_transactional = attributes & c.TRANSACTIONAL_MASK != 0
    is_control = attributes & c.CONTROL_MASK != 0
    ends_transaction = (marker >= 0) & (marker <= _COMMIT)
    yield (delta >= 0) & (count > delta + 1), "more records than offsets"
    yield producer_id < -1, "the producer id is below -1"
    yield has_producer & (headers[h.PRODUCER_EPOCH] < 0), "a producer has no epoch"
    yield has_producer & ~is_control & (sequence < 0), "records of a producer have no sequence"
    yield is_transactional & ~has_producer, "a transaction has no producer id"
    yield is_control & (attributes & c.COMPRESSION_MASK != 0), "control records are compressed"
    yield ends_transaction & ~is_transactional, "a transaction's marker is not transactional"
    yield ends_transaction & (count != 1), "a transaction's marker is not alone in its batch"
    of_kraft = (marker > _COMMIT) & (marker <= _KRAFT_VOTERS)
    yield of_kraft & is_transactional, "a control record of KRaft is transactional"
    yield of_kraft & has_producer, "a control record of KRaft has a producer"
    has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
    yield has_horizon & (count == 0), "a batch without records has a delete horizon"


class ControlRecordsAreReadable(SegmentCheck):
    """The first record of every control batch has a key that says what it is."""

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        unreadable = (stretch.markers[f.MARKER_TYPE] == f.UNREADABLE) & _judged(stretch)
        refused = {ordinal for ordinal, _ in stretch.refusals}
        for i in np.flatnonzero(unreadable).tolist():
            if i not in refused:
                detail = "The control record of the batch cannot be read."
                yield i, defect_at(self.log.path, stretch, i, "control-record-malformed", detail)


def defect_at(path: str, stretch: Stretch, ordinal: int, reference: str, detail: str) -> Defect:
    """A defect of one batch of a stretch."""
    headers = stretch.headers
    return make_defect(
        reference,
        path,
        detail,
        position=int(headers[h.POSITION, ordinal]),
        offset=int(headers[h.BASE_OFFSET, ordinal]),
        size_bytes=int(headers[h.SIZE, ordinal]),
    )
