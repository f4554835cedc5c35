"""Avro's resolution, compared with that of Java: random schemas, and damaged values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.log.typed import avro_columns
from kafkalog.log.typed.avro import AvroDecoder
from tests.kafkalog.log.typed.avro_triples import (
    Changes,
    Schemas,
    damaged,
    data_of,
    definitions,
    dressed,
    is_whole,
    shown,
)
from tests.sampling import drawn_for, tries_everything
from tests.waiting import HANG_S

PROGRAM = Path(__file__).with_name("ResolvedValues.java")
# Java makes room for as many items and bytes as a value claims to have.
LIMITS = [
    f"-Dorg.apache.avro.limits.{what}.maxLength=1000000"
    for what in ("collectionItems", "bytes", "string")
]
REJECTS = (
    "'utf-8' codec can't decode",  # Java reads it as U+FFFD
    "a number of more than ",  # Java drops the upper bits
    " is no boolean",  # Java takes it for false
    "a size of -",  # Java passes over no bytes
    "beyond the years 1 to 9999",  # which Python's and other calendars lack
    "a decimal of more than ",  # than its schema says
    "items has fewer bytes",  # of which a few bytes can claim any number
)
"""Reasons why a value that Java reads is a reject."""


@dataclass(frozen=True)
class Case:
    """Schemas of a writer and a reader, as drawn and as texts, and values."""

    writer: str
    tree: Any
    reader: str
    values: list[bytes]


def case_of(number: int) -> Case:
    rng = drawn_for(f"schemas of Avro, {number}")
    while True:
        schemas = Schemas(rng)
        tree = schemas.record(0) if rng.random() < 0.9 else schemas.type(1)
        reader = Changes(schemas).made(tree) if rng.random() < 0.8 else tree
        if is_whole(tree) and is_whole(reader):
            break
    names = definitions(tree)
    whole = [data_of(tree, names, rng) for _ in range(3)]
    values = [*whole, *(damaged(one, rng) for one in whole)]
    return Case(json.dumps(dressed(tree, rng)), reader, json.dumps(dressed(reader, rng)), values)


def answers(cases: list[Case]) -> list[str]:
    """Return what Java says of each value."""
    if shutil.which("java") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("not on this machine: java")
    import pyspark

    def encoded(data: bytes | str) -> str:
        return b64encode(data.encode() if isinstance(data, str) else data).decode()

    lines = ["\t".join(map(encoded, (one.writer, one.reader, *one.values))) for one in cases]
    jars = Path(pyspark.__file__).parent / "jars"
    done = subprocess.run(
        ["java", "-Xmx400m", "-XX:TieredStopAtLevel=1", *LIMITS, "-cp", str(jars / "*"),
         str(PROGRAM)],
        input="\n".join(lines), capture_output=True, text=True, encoding="utf-8",
        timeout=HANG_S * 5,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_values_are_what_java_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows and by columns: the same value, or both refuse it, but for `REJECTS`."""
    monkeypatch.setattr(avro_columns, "_ARRAYS_MIN", 1)
    cases = [case_of(number) for number in range(3000 if tries_everything() else 150)]
    found = iter(answers(cases))
    counts: Counter[str] = Counter()
    wrong = []
    for case in cases:
        decoder = AvroDecoder(case.reader.encode(), {1: [case.writer]})
        rows = [by_rows(decoder, one) for one in case.values]
        compare_columns(decoder, case, rows)
        for data, (value, reason) in zip(case.values, rows, strict=True):
            java = next(found)
            verdict = judged(java, value, reason, case.tree)
            counts[verdict] += 1
            if verdict not in ("equal", "both refuse", "reject"):
                wrong.append(f"{verdict}\n {case.writer}\n {case.reader}\n {data.hex()}\n {java}\n"
                             f" {reason or value}")  # fmt: skip
    assert next(found, None) is None
    print(counts)
    assert not wrong, f"{counts}\n" + "\n".join(wrong[:6])
    assert counts["equal"] > counts["both refuse"] > counts["reject"]


def by_rows(decoder: AvroDecoder, data: bytes) -> tuple[Any, str | None]:
    """Return an array of the value, or why it does not decode."""
    try:
        return pa.array([decoder.decode(data, 1)], decoder.type), None
    except ValueError as error:
        return None, str(error)


def compare_columns(decoder: AvroDecoder, case: Case, rows: list[tuple[Any, str | None]]) -> None:
    """Compare values by columns with those by rows: those that are right, and no value is lost."""
    columns = decoder.by_columns(1)
    data = np.frombuffer(b"".join(case.values) or b"\0", np.uint8)
    ends = np.cumsum([len(one) for one in case.values])
    if columns is None:
        assert all(reason for _, reason in rows)  # the schemas do not fit
        return
    array, is_right = columns.decode(data, ends - [len(one) for one in case.values], ends)
    array.validate(full=True)
    for number, (value, reason) in enumerate(rows):
        if is_right[number]:
            assert reason is None, (case.writer, case.reader, case.values[number].hex(), reason)
            assert array.slice(number, 1).equals(value) or "nan" in str(value), (
                case, number, array[number], value
            )  # fmt: skip


def judged(java: str, value: Any, reason: str | None, tree: Any) -> str:
    if reason is not None:
        if java.startswith("!"):
            return "both refuse"
        return "reject" if any(one in reason for one in REJECTS) else "Java reads it"
    if java.startswith("!"):
        return "Java refuses it"
    [one] = value.to_pylist()
    if pa.types.is_string(value.type) and is_top_json(tree):
        one = json.loads(one)
    return "equal" if shown(one, tree, definitions(tree)) == json.loads(java) else "wrong"


def is_top_json(tree: Any) -> bool:
    return tree in ("null", ["null"])
