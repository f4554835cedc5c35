"""What functions list: rows that are objects, tables, and cells of a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.check.comparison.model import Comparison
from kafkalog.io import rows as home
from kafkalog.io.rows import Rows, columns_of
from kafkalog.log.columns.arrow import BATCH_SCHEMA, SCHEMA
from kafkalog.model import Defect, Severity
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORDERS = "examples/log-dir/orders-0"
DEFECTS = [Defect("torn-tail", Severity.DAMAGE, f"t-{at}", "cut", position=at) for at in range(60)]


def test_rows_are_a_sequence() -> None:
    """With a length, slices that are rows again, and the equality of lists."""
    rows = Rows(DEFECTS, Defect)
    assert len(rows) == 60
    assert rows[-1] == DEFECTS[-1]
    assert isinstance(rows[2:4], Rows)
    assert rows[2:4] == DEFECTS[2:4]
    assert DEFECTS[7] in rows
    assert Rows([], Defect) == []
    assert not Rows([], Defect)
    assert repr(rows).startswith("Rows(Defect, 60 rows, reference severity path")


def test_rows_that_are_read_on_demand_say_so() -> None:
    """Each iteration reads them again, no further than it gets, so they have no length."""
    reads: list[int] = []

    def read() -> Iterator[Defect]:
        for at, one in enumerate(DEFECTS):
            reads.append(at)
            yield one

    rows = Rows(read, Defect)
    assert rows[1] == DEFECTS[1]
    assert reads == [0, 1]
    assert bool(rows)
    assert [*rows[3:5]] == DEFECTS[3:5]
    assert [*rows] == [*rows] == DEFECTS
    assert rows[-1] == DEFECTS[-1]
    with pytest.raises(TypeError, match="on demand"):
        len(rows)
    with pytest.raises(IndexError):
        rows[60]
    assert "read on demand" in repr(rows)


def test_each_form_of_a_table_is_the_same() -> None:
    """Dictionaries, Arrow, pandas, Polars, and what reads Arrow's streams."""
    rows = Rows(DEFECTS, Defect)
    dicts = rows.to_dicts()
    assert dicts[1] == {
        "reference": "torn-tail", "severity": "damage", "path": "t-1", "detail": "cut",
        "position": 1, "offset": None, "hint": None, "size_bytes": None,
    }  # fmt: skip
    table = rows.to_arrow()
    assert table.to_pylist() == dicts
    assert rows.to_polars().to_dicts() == dicts
    assert list(rows.to_pandas()["position"]) == list(range(60))
    assert duckdb.sql("select sum(position) from rows").fetchall() == [(sum(range(60)),)]
    types = {one.name: one.type for one in table.schema}
    assert (types["offset"], types["hint"]) == (pa.int64(), pa.string())
    empty = Rows([], Defect).to_arrow()
    assert (empty.num_rows, empty.schema.names) == (0, rows.columns)


def test_records_become_columns_at_once(tmp_path: Path) -> None:
    """By the kernels, with the values that the objects have."""
    log = kafkalog.Log(write_log(tmp_path / "t-0", batch(0, [record(), record(1, None)])).parent)
    for found, schema in ((log.records(), SCHEMA), (log.batches(), BATCH_SCHEMA)):
        assert found.columns == schema.names
        plain = [tuple(row.values()) for row in found.to_dicts()]
        assert [tuple(row.values()) for row in found.to_arrow().to_pylist()] == plain
    assert kafkalog.Log(ORDERS).records().to_arrow().num_rows == 1000


def test_a_notebook_shows_what_says_something(tmp_path: Path) -> None:
    """At most 50 rows, escaped, without columns in which there is nothing."""
    shown = Rows(DEFECTS, Defect)._repr_html_()
    assert shown.count("<tr>") == 51
    assert "the first 50 of 60" in shown
    assert "<th>hint</th>" not in shown
    hostile = batch(0, [record(0, b"<script>", b"a\x1b[31m&" + b"x" * 900)])
    log = kafkalog.Log(write_log(tmp_path / "t-0", hostile).parent)
    cells = log.records()._repr_html_()
    assert "&lt;script&gt;" in cells
    assert "<script>" not in cells
    assert "\x1b" not in cells
    assert len(cells) < 2000


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that installs it."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(home, "import_module", missing)
    with pytest.raises(kafkalog.KafkaLogError, match="pandas is not installed") as caught:
        Rows(DEFECTS, Defect).to_pandas()
    assert (caught.value.hint, caught.value.exit_code) == ("pip install pandas", 5)


def test_each_function_that_lists_returns_rows() -> None:
    """Which become a table, whatever is in them."""
    log = kafkalog.Log(ORDERS)
    listed = (
        log.segments, log.records(limit=2), log.batches(limit=2),
        kafkalog.find(log, key="user-6", limit=1), kafkalog.diff(log, log), kafkalog.profile(log),
        kafkalog.verify("examples/damaged"), kafkalog.simulate_retention(log),
        kafkalog.simulate_roll(log), kafkalog.audit_compaction("examples/log-dir"),
        kafkalog.recover("examples/damaged"), kafkalog.rebuild_index(log), kafkalog.retention(log),
        kafkalog.compact(log, configs={"cleanup.policy": "compact"}), kafkalog.replay(log),
        kafkalog.salvage("examples/damaged", to="nowhere"),
        kafkalog.resurrect("examples/log-dir", to="nowhere"), kafkalog.export(log, to="nowhere"),
    )  # fmt: skip
    for rows in listed:
        assert isinstance(rows, Rows)
        table = rows.to_arrow()
        assert table.schema.names == rows.columns
        assert table.num_rows == len([*rows])
        assert rows._repr_html_().startswith("<table>")
        assert len(repr(rows)) <= 100
    assert columns_of(Comparison)["verdict"] == "verdict"
