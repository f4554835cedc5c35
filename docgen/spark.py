"""`docs/spark.md`: the data source, its options, and the columns of the tables."""

from __future__ import annotations

from typing import Final

from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import DEFAULT_RECORDS, SCHEMAS

_OPTIONS: Final = {
    "path": "log directory, partition directory or log; `load(PATH)` sets it",
    "paths": "several, as a JSON array",
    "table": "`records` (the default) or one of the tables below",
    "columns": "names, separated by commas; without it the columns of Spark's own Kafka source for "
    "records, all for other tables",
    "subscribe": "topics, separated by commas, which must exist; without it all but internal ones",
    "internal": "`true`: also internal topics (`false`)",
    "isolation": "`read_uncommitted` (the default) or `read_committed`, as of a consumer: nothing "
    "above the high watermark in `replication-offset-checkpoint`; `log`: up to the end of the log",
    "view": "`recovered` (the default): what the next start of a broker would show; `as-is`: what "
    "has a final name; `all`: also leftovers, by the column `state`",
    "decode": "`text`: keys and values are strings, `0x` and hexadecimal digits where they are not "
    "UTF-8 (`bytes`)",
    "mode": "`permissive` (the default, but of streams only with `failOnDataLoss=false`): damage "
    "is skipped; the table `defects` lists it; `failfast`: it ends the query",
    "replicas": "of several copies of a partition: `best` (the default for records): the one with "
    "the latest leader epoch, then the largest log end offset, and where that is damaged another; "
    "or `all` (the default for other tables)",
    "splitBytes": "about how much of a log a task reads (`128m`)",
    "filterPushdown": "`true`: Spark's filters decide what is read (`false`); needs a setting of "
    "Spark's, [see below](#filters)",
    "maxTimestampDisorderMs": "no record is older than the newest before it by more than this",
    "startingTimestamp": "milliseconds: begin where a consumer that seeks to this time does",
    "endingTimestamp": "of a batch: end where such a consumer would begin",
    "startingOffsets": "`earliest` (the default), of a stream also `latest`, or JSON with all "
    'partitions: `{"orders": {"0": 23, "1": -2}, "payments": "earliest"}`, -1 for latest, -2 for '
    "earliest",
    "endingOffsets": "of a batch: `latest` (the default), or JSON likewise",
    "startingOffsetsByTimestamp": "JSON with a timestamp in milliseconds for each partition",
    "endingOffsetsByTimestamp": "of a batch: likewise; without such a record the latest offset",
    "startingOffsetsByTimestampStrategy": "if no record is as late as a timestamp to start at: "
    "`error` (the default) or `latest`",
    "subscribePattern": "instead of `subscribe`: a regular expression for whole names of topics",
    "assign": 'instead of `subscribe`: JSON with partitions: `{"orders": [0, 1]}`',
    "includeHeaders": "`false`: without the column `headers` (`true`)",
    "minPartitions": "the least number of tasks, if there is an index, or at most 1 MiB to read",
    "maxRecordsPerPartition": "how many offsets a task covers at most; between entries of an index "
    "several tasks read the same bytes",
    "maxOffsetsPerTrigger": "of a stream: how many offsets a batch covers; without it all",
    "minOffsetsPerTrigger": "of a stream: how many new offsets a batch waits for",
    "maxTriggerDelay": "of a stream: how long it waits for them (`15m`)",
    "maxBytesPerTrigger": "of a stream: about how much of the logs a batch covers; without it all",
    "failOnDataLoss": "`false`: go on if records were deleted before they were read, or segments "
    "are lost (`true`)",
    "tierKey": "the file `ID.pem` with the private key of encrypted segments in a tier, or a JSON "
    "array of them; the driver reads it, and tasks get the key with their work",
}
"""Options of the data source; a test compares them with those that the code accepts."""

_TABLES: Final = {
    TableName.RECORDS: "What a consumer receives: no control records, nothing below the log start "
    "offset, no batches with wrong checksums. The first {usual} columns are those of Spark's own "
    "Kafka source, the others come if `columns` names them. `headers` is null for a record without "
    "headers; if `columns` names it, an empty list. `timestamp` is null if there is no such time; "
    "`timestamp_ms` is what is stored. `decoded` is JSON, of internal topics only.",
    TableName.BATCHES: "The headers of all batches, control batches among them.",
    TableName.OFFSET_INDEX: "The entries of offset indexes.",
    TableName.TIME_INDEX: "The entries of time indexes.",
    TableName.TRANSACTIONS: "The aborted transactions that transaction indexes list.",
    TableName.SEGMENTS: "The segments and the sizes of their files.",
    TableName.PRODUCERS: "The producers in producer snapshots.",
    TableName.DEFECTS: "Damage that reading shows; `verify` checks far more. References: "
    "[defects.md](defects.md).",
}

_IN_ALL_TABLES: Final = ("topic", "partition", "path", "log_dir")
"""The columns that the page states once, above the tables."""


def option_list() -> str:
    """Write a line per option of the data source."""
    return "".join(f"- `{name}`: {meaning}\n" for name, meaning in _OPTIONS.items())


def table_sections() -> str:
    """Write a section per table, with its columns."""
    return "\n".join(_table(table) for table in TableName)


def option_names() -> list[str]:
    """Return the options that the page lists."""
    return list(_OPTIONS)


def _table(table: TableName) -> str:
    words = _TABLES[table].format(usual=len(DEFAULT_RECORDS))
    columns = (
        f"`{one.name} {one.type}{'?' if one.nullable else ''}`"
        for one in SCHEMAS[table]
        if table is TableName.RECORDS or one.name not in _IN_ALL_TABLES
    )
    return f"### `{table}`\n\n{words}\n\n{', '.join(columns)}\n"
