"""Selections over columns: which batches can hold wanted records, and which rows are wanted.

The twins of `ReadPlan.wants`, `ReadPlan.is_behind` and `record_matches` of `kafkalog.reader`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.reader import EVERYTHING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Rows
    from kafkalog.reader import ReadPlan, Selection


def first_behind(headers: NDArray[np.int64], plan: ReadPlan) -> int:
    """Ordinal of the first batch behind all wanted offsets, the number of batches without one."""
    if plan.selection.to_offset is None:
        return int(headers.shape[1])
    is_wrapper = (headers[k.MAGIC] < 2) & (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK != 0)
    behind = (headers[k.BASE_OFFSET] >= plan.selection.to_offset) & ~is_wrapper
    return int(behind.argmax()) if behind.any() else int(headers.shape[1])


def wanted_batches(headers: NDArray[np.int64], plan: ReadPlan) -> NDArray[np.bool_]:
    """Which batches can hold wanted records, by what their headers say."""
    selection = plan.selection
    wanted = np.ones(headers.shape[1], np.bool_)
    if selection.from_offset is not None:
        wanted &= headers[k.LAST_OFFSET] >= selection.from_offset
    if selection.from_time is not None:
        wanted &= headers[k.MAX_TIMESTAMP] >= selection.from_time
    if selection.producer_id is not None:
        wanted &= headers[k.PRODUCER_ID] == selection.producer_id
    if selection.leader_epoch is not None:
        wanted &= headers[k.EPOCH] == selection.leader_epoch
    modern = headers[k.MAGIC] >= 2
    control = modern & (headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0)
    if selection.control:
        wanted &= control
    elif selection.data:
        wanted &= ~control
    if selection.read_committed:
        hidden = control & (not selection.control)
        for producer_id, transactions in plan.aborted.items():
            of_producer = ~control & (headers[k.PRODUCER_ID] == producer_id)
            if not of_producer.any():
                continue
            for transaction in transactions:
                hidden |= (
                    of_producer
                    & (headers[k.BASE_OFFSET] >= transaction.first_offset)
                    & (headers[k.BASE_OFFSET] <= transaction.last_offset)
                )
        wanted &= ~(hidden & modern & (headers[k.ATTRIBUTES] & c.TRANSACTIONAL_MASK != 0))
    return wanted


def wanted_rows(rows: Rows, selection: Selection) -> Rows:
    """The rows that are wanted; failures move along."""
    if selection is EVERYTHING:
        return rows
    table = rows.table
    chosen = np.ones(table.shape[1], np.bool_)
    if selection.from_offset is not None:
        chosen &= table[k.OFFSET] >= selection.from_offset
    if selection.to_offset is not None:
        chosen &= table[k.OFFSET] < selection.to_offset
    if selection.from_time is not None:
        chosen &= table[k.TIMESTAMP] >= selection.from_time
    if selection.to_time is not None:
        chosen &= table[k.TIMESTAMP] < selection.to_time
    if selection.key is not None:
        equal = np.empty(len(chosen), np.bool_)
        k.equal_bytes(
            rows.arena, table[k.KEY_POSITION], table[k.KEY_SIZE], _array(selection.key), equal
        )
        chosen &= equal
    for pattern, field in (
        (selection.key_regex, k.KEY_POSITION),
        (selection.value_regex, k.VALUE_POSITION),
    ):
        if pattern is not None:
            view = rows.arena.data
            chosen &= table[field + 1] > 0
            for i in np.flatnonzero(chosen).tolist():
                at = int(table[field, i])
                chosen[i] = bool(pattern.search(view[at : at + int(table[field + 1, i])]))
    if selection.header is not None:
        chosen &= _with_header(rows, chosen, *selection.header)
    if chosen.all():
        return rows
    before = np.concatenate(([0], np.cumsum(chosen)))
    failures = tuple(failure._replace(row=int(before[failure.row])) for failure in rows.failures)
    return replace(rows, table=np.ascontiguousarray(table[:, chosen]), failures=failures)


def _with_header(
    rows: Rows, candidates: NDArray[np.bool_], name: bytes, value: bytes | None
) -> NDArray[np.bool_]:
    """Which of the candidates have a header of this name and, where not None, this value."""
    found = np.zeros(len(candidates), np.bool_)
    counts = np.where(candidates, rows.table[k.HEADERS_COUNT], 0)
    total = int(counts.sum())
    fields = np.empty((4, total), np.int64)
    k.expand_headers(rows.arena, rows.table[k.HEADERS_POSITION], counts, fields)
    equal = np.empty(total, np.bool_)
    k.equal_bytes(rows.arena, fields[0], fields[1], _array(name), equal)
    if value is not None:
        same_value = np.empty(total, np.bool_)
        k.equal_bytes(rows.arena, fields[2], fields[3], _array(value), same_value)
        equal &= same_value
    found[np.repeat(np.arange(len(counts)), counts)[equal]] = True
    return found


def _array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8)
