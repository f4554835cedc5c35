"""Protobuf by columns, compared with Google's library value by value: the same rows and reasons."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.log.typed import Framing, TypedColumn, TypedForm, protobuf
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS
from tests.kafkalog.log.typed.protos import (
    BASE,
    class_of,
    compiled,
    filled,
    other_writer,
    random_schema,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections import Counter

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

SCHEMAS = 1500 if tries_everything() else 40
VALUES = 60


def damaged(data: bytes, rng: Random) -> bytes:
    """Return the message with bytes that are changed, added, lost, or at its end."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        some = rng.choice((rng.randbytes(rng.randrange(3)), b"\x80\0", b"\xff" * 9 + b"\1"))
        found[place : place + rng.randrange(2)] = some
    return bytes(found[: rng.randint(0, len(found))] if rng.random() < 0.2 else found)


def messages(files: FileDescriptorSet, rng: Random) -> list[bytes | None]:
    """Return messages of two writers; some are joined, some damaged, some have odd parts."""
    reader = class_of(files, "p.M0")
    writers = [reader, reader, class_of(other_writer(files), "p.M0")]
    found: list[bytes | None] = []
    for _ in range(VALUES):
        parts = [
            BASE.SerializePartialToString(filled(rng.choice(writers)(), rng))
            for _ in range(rng.choice([1, 1, 1, 2]))
        ]
        data = b"".join(parts)
        found.append(damaged(data, rng) if rng.random() < 0.2 else data)
    return [*found, b"", None]


def both(column: TypedColumn, array: Any) -> tuple[Any, Any, int]:
    """Return what both ways say: values, reasons, losses; and how many are read by columns."""
    decoder, slow = column.decoder(), column.decoder()
    slow.by_columns = lambda *_: None  # type: ignore[attr-defined]
    found, wanted = (typed_column(column, one, array) for one in (decoder, slow))
    found.array.validate(full=True)
    fast = decoder.by_columns(None)  # type: ignore[attr-defined]
    rows = 0
    if fast is not None and column.framing == Framing.NONE:
        data = np.frombuffer(b"\0" + b"".join(one or b"" for one in array.to_pylist()), np.uint8)
        sizes = np.array([len(one or b"") for one in array.to_pylist()])
        ends = 1 + sizes.cumsum()
        rows = int(fast.decode(data, ends - sizes, ends)[1].sum())
    return said(found), said(wanted), rows


def said(found: Any) -> tuple[str, list[Any], Counter[str]]:
    """Return a column in a form in which values are equal only if all their bits are."""
    # As text: a NaN is not equal to itself, and -0.0 is to 0.0.
    rows = found.array.cast(found.array.type).to_pylist()
    return repr(rows), sorted(found.failures, key=lambda one: one.row), found.losses


def test_both_ways_say_the_same() -> None:
    """Values, rejects with their reasons and losses, for drawn schemas and messages."""
    seed = new_seed()
    by_columns = 0
    counts = dict.fromkeys(("rejects", UNKNOWN_FIELDS, LOST_DIGITS), 0)
    for number in range(SCHEMAS):
        rng = Random(f"{seed} {number}")
        text = random_schema(rng)
        files = compiled(text)
        column = TypedColumn("value", TypedForm.PROTOBUF, files.SerializeToString(), "p.M0")
        array = pa.array([b"before", *messages(files, rng)], pa.binary())[1:]
        found, wanted, rows = both(column, array)
        assert found == wanted, f"seed {seed} {number}\n{text}"
        by_columns += rows
        counts["rejects"] += len(found[1])
        for name, one in found[2].items():
            counts[name] += one
    print(by_columns, counts)
    assert by_columns > SCHEMAS * VALUES // 4
    assert all(one > SCHEMAS for one in counts.values()), counts
