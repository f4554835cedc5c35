"""`docs/schemas/1`: a JSON Schema per type of row, which all rows obey; tables have their names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from docgen.output import OBJECT_TYPES, schema_files
from docgen.pages import pages, sessions
from kafkalog.log.columns.arrow import BATCH_SCHEMA, SCHEMA
from kafkalog.tables.datasets.model import StateTable
from kafkalog.tables.datasets.schemas import STATE_SCHEMAS
from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import SCHEMAS as TABLES
from tests.checkout import ROOT
from tests.schemas import SCHEMAS, mistakes, validator

ROWS_OF = {
    TableName.BATCHES: "batch",
    TableName.OFFSET_INDEX: "offset_index_entry",
    TableName.TIME_INDEX: "time_index_entry",
    TableName.TRANSACTIONS: "aborted_transaction",
    TableName.SEGMENTS: "segment",
    TableName.PRODUCERS: "producer_state",
    TableName.DEFECTS: "defect",
    StateTable.GROUPS: "group",
    StateTable.COMMITS: "group_offset",
    StateTable.TOPICS: "metadata_partition",
    StateTable.CONFIGS: "metadata_config",
}
# What rows of a file do not have: its place, and what only its name says.
OF_PLACES = {
    "topic",
    "partition",
    "path",
    "log_dir",
    "state",
    "segment_base_offset",
    "snapshot_offset",
}
# A row names the resource in one word, and its file names the topic of a config.
OF_TABLES = {StateTable.CONFIGS: {"resource_type", "resource_name", "source"},
             StateTable.TOPICS: {"topic_id"}}  # fmt: skip


def test_the_files_are_those_of_the_declarations() -> None:
    """`make docs` writes them; nothing else is there."""
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    assert found == schema_files()


@pytest.mark.parametrize("name", OBJECT_TYPES)
def test_a_schema_is_one_and_refuses_other_rows(name: str) -> None:
    """A field may be added, none may be missing, and `type` names the row."""
    schema = validator(name).schema
    assert schema["$id"] == f"urn:kafkalog:1:{name}"
    [sample] = samples(name)
    assert mistakes(sample) == []
    assert mistakes(sample | {"added_later": 1}) == []
    needed = schema["required"][-1]
    without = {key: value for key, value in sample.items() if key != needed}
    assert validator(name).is_valid(without) is False
    assert validator(name).is_valid(sample | {"type": "another"}) is False


def samples(name: str) -> list[dict[str, Any]]:
    text = (ROOT / "docs" / "output.md").read_text(encoding="utf-8")
    found = [json.loads(one) for one in re.findall(r"^```json\n(.*)\n```$", text, re.MULTILINE)]
    return [row for row in found if row["type"] == name]


def test_console_blocks_show_rows_that_obey_their_schemas() -> None:
    """Whoever copies a row from a page finds it described."""
    seen = set()
    for page in pages():
        for session in sessions(page.read_text(encoding="utf-8")):
            for command in (one for block in session.blocks for one in block):
                for line in command.printed.splitlines():
                    if line.startswith('{"type":'):
                        row = json.loads(line)
                        seen.add(row["type"])
                        assert mistakes(row) == [], command.line
    assert seen


@pytest.mark.parametrize("table", ROWS_OF)
def test_columns_of_a_table_have_the_names_of_rows(table: Any) -> None:
    """SQL, the files of `export` and NDJSON name one thing alike."""
    schema = TABLES[table] if isinstance(table, TableName) else STATE_SCHEMAS[table]
    allowed = OF_PLACES | OF_TABLES.get(table, set())
    fields = OBJECT_TYPES[ROWS_OF[table]].fields
    # Members of a group are rows of their own, and a list in the table.
    assert set(schema.names) - allowed <= set(fields)


def test_columns_of_records_have_the_names_of_rows() -> None:
    """The table keeps the names of Spark's source, whose time is no number, and raw bytes."""
    spark = {"timestampType", "timestamp_ms", "key_bytes", "value_bytes"}
    assert set(TABLES[TableName.RECORDS].names) - spark <= set(OBJECT_TYPES["record"].fields) | {
        "log_dir"
    }
    assert set(SCHEMA.names) <= set(OBJECT_TYPES["record"].fields)
    assert set(BATCH_SCHEMA.names) <= set(OBJECT_TYPES["batch"].fields)
