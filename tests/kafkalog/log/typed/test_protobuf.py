"""Columns of Protobuf against what Google's library parses, for schemas and messages at random."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, message

from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.lake_types import LOST_DIGITS, UNKNOWN_FIELDS
from kafkalog.log.typed.protobuf import ProtobufDecoder
from tests.kafkalog.log.typed.protos import (
    BASE,
    RejectedError,
    Wanted,
    class_of,
    compiled,
    difference,
    filled,
    other_writer,
    random_schema,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMAS = 1500 if tries_everything() else 60
VALUES = 12


def decoded(
    files: descriptor_pb2.FileDescriptorSet, name: str, values: Sequence[bytes]
) -> tuple[Any, ProtobufDecoder, dict[int, str]]:
    """Return the column, its decoder, and the reasons of rejects by row."""
    column = TypedColumn("value", TypedForm.PROTOBUF, files.SerializeToString(), name)
    decoder = column.decoder()
    assert isinstance(decoder, ProtobufDecoder)
    array, failures = typed_column(column, decoder, pa.array(values, pa.binary()))
    array.validate(full=True)
    return array, decoder, {one.row: one.reason for one in failures}


def damaged(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        found[place : place + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    return bytes(found[: rng.randint(0, len(found))] if rng.random() < 0.2 else found)


def test_columns_have_what_google_parses() -> None:
    """Also of messages joined, of another writer, and damaged; so do verdicts and losses."""
    seed = new_seed()
    print(f"seed {seed}")
    counts = dict.fromkeys(("values", "rejects", "unknown", "lost"), 0)
    for number in range(SCHEMAS):
        rng = Random(f"{seed} {number}")
        text = random_schema(rng)
        files = compiled(text)
        reader = class_of(files, "p.M0")
        writers = [reader, class_of(other_writer(files), "p.M0")]
        values = []
        for _ in range(VALUES):
            writer = rng.choice(writers)
            parts = [
                BASE.SerializePartialToString(filled(writer(), rng))
                for _ in range(rng.choice([1, 1, 2]))
            ]
            data = b"".join(parts)
            values.append(damaged(data, rng) if rng.random() < 0.25 else data)
        array, decoder, rejects = decoded(files, "p.M0", values)
        found = array.to_pylist()
        losses = dict.fromkeys((UNKNOWN_FIELDS, LOST_DIGITS), 0)
        for row, data in enumerate(values):
            where = f"seed {seed} {number}, row {row}: {data.hex()}\n{text}"
            wanted = Wanted(reader.DESCRIPTOR.file.pool)
            try:
                parsed = reader.FromString(data)
                if not BASE.IsInitialized(parsed):
                    raise RejectedError
                value = wanted.value(parsed)
            except (message.DecodeError, RejectedError):
                assert row in rejects, where
                continue
            assert row not in rejects, f"{rejects[row]} {where}"
            assert not (odd := difference(found[row], value)), f"{odd}\n{where}"
            size = BASE.ByteSize(parsed)
            BASE.DiscardUnknownFields(parsed)
            is_unknown = BASE.ByteSize(parsed) != size
            losses[UNKNOWN_FIELDS] += is_unknown
            losses[LOST_DIGITS] += wanted.has_lost_digits
        assert dict(decoder.losses) == {name: one for name, one in losses.items() if one}, text
        counts["values"] += len(values)
        counts["rejects"] += len(rejects)
        counts["unknown"] += losses[UNKNOWN_FIELDS]
        counts["lost"] += losses[LOST_DIGITS]
    print(counts)
    # The proof is empty if what it is about does not occur.
    assert all(one > SCHEMAS // 8 for one in counts.values()), counts
