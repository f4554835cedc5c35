"""Random chains of versions of a schema over appends: rows are what Avro's Java reads."""

from __future__ import annotations

import json
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafkalog.change.lake import ExportRequest
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG, REQUEST, add, iceberg
from tests.kafkalog.change.lake.schema_chains import (
    VERSIONS,
    Chain,
    Comparison,
    Java,
    data_of,
    names_of,
    value_of,
    wanted,
)
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake.model import TableFormat

CHAINS = 40
ROWS = 6


@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_rows_of_random_chains(tmp_path: Path, form: TableFormat) -> None:
    """After each append, all rows: of that one by its newest version, of earlier ones as they were.

    What came later is null in them. A value that the newest version cannot have is in the column of
    its own type.
    """
    java, chains = chains_with_rows()
    conflicts = refused = 0
    for number, (chain, some) in chains.items():
        print(f"chain {number}")
        compared = Comparison(java, names_of(chain.versions), has_null_lists=form != ICEBERG)
        run(chain, some, tmp_path / str(number), form, compared)
        shutil.rmtree(tmp_path / str(number))
        conflicts += len(compared.conflicts)
        refused += compared.refused
    print(conflicts, refused)
    if tries_everything():  # one chain may be without any
        assert min(conflicts, refused) > CHAINS


@cache
def chains_with_rows() -> tuple[Java, dict[int, tuple[Chain, list[list[tuple[bytes, Any]]]]]]:
    """Return all chains by their numbers, or one, with their rows; Java is asked once for all."""
    java = Java()
    first = drawn_for("chains").randrange(CHAINS)
    numbers = range(CHAINS) if tries_everything() else [first]
    chains = {number: Chain(drawn_for(f"chain {number} of versions")) for number in numbers}
    return java, {number: (chain, rows_of(chain, java)) for number, chain in chains.items()}


def rows_of(chain: Chain, java: Java) -> list[list[tuple[bytes, Any]]]:
    """Return the values of each append, with what is expected of them."""
    rng, versions = chain.rng, chain.versions
    found = []
    for newest in range(VERSIONS):
        some = []
        for _ in range(ROWS):
            version = newest if rng.random() < 0.4 else rng.randint(0, newest)
            value = value_of(versions[version], rng)
            data = b"\0" + version.to_bytes(4, "big") + data_of(versions[version], value)
            some.append((data, wanted(versions[version], versions[newest], value, java)))
        found.append(some)
    return found


def run(
    chain: Chain, rows: list[list[tuple[bytes, Any]]], place: Path, form: TableFormat,
    compared: Comparison,
) -> None:  # fmt: skip
    texts = [json.dumps(one) for one in chain.versions]
    log, to = place / "log", place / "lake"
    for newest, some in enumerate(rows):
        first = newest * ROWS
        records = [record(i, value=data) for i, (data, _) in enumerate(some)]
        write_log(log / "orders-0", batch(first, records), name=f"{first:020}")
        typed = TypedColumn(
            "value", TypedForm.AVRO, texts[newest].encode(), None, Framing.CONFLUENT,
            writers=tuple((n, (texts[n],)) for n in range(newest + 1)),
            versions=tuple(range(newest, -1, -1)),
        )  # fmt: skip
        asked = ExportRequest((str(log),), REQUEST, typed=(typed,), table_format=form, append=True)
        add(asked, to)
        table = table_of(to, form).sort_by("offset")
        values = table.column("value_decoded").to_pylist()
        expected = [want for part in rows[: newest + 1] for _, want in part]
        for value, want in zip(values, expected, strict=True):
            compared.fields(value, table.schema.field("value_decoded").type, want, "")


def table_of(to: Path, form: TableFormat) -> Any:
    if form == ICEBERG:
        return iceberg(to).scan().to_arrow()
    if form == DELTA:
        return DeltaTable(to).to_pyarrow_table()
    files = sorted(map(str, to.rglob("*.parquet")))
    return ds.dataset(files, schema=pq.read_schema(files[-1])).to_table()
