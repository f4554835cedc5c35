"""`docs/spark.md`: the data source, its options, and the columns of the tables."""

from __future__ import annotations

from typing import Final

from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import DEFAULT_RECORDS, SCHEMAS

_HEAD = """# Spark

`kafkalog[spark]` and Java 17 bring four things: the data source `kafkalog`, and the commands
`export`, `sql`, `profile` ([commands.md](commands.md)) and `--engine spark` of `verify` and
`compact`. In all of them Spark plans, schedules and retries; each task reads its part of a log with
the same code as without Spark, into Arrow columns. The commands `export`, `profile`, `verify` and
`compact` leave records in these tasks: the JVM sees only what a task reports. Rows of the data
source, and so of `sql`, do pass through the JVM: Spark takes them as Arrow record batches and reads
them row by row, as from any Python data source. To turn whole logs into files, `export` is faster.

## The data source

```python
from kafkalog.spark import KafkaLogDataSource

spark.dataSource.register(KafkaLogDataSource)
orders = spark.read.format("kafkalog").option("subscribe", "orders").option("columns", "offset")
orders.load("/var/lib/kafka").count()
```

This reads the directories of one topic, and of its records only the offsets. A filter such as
`.where("topic = 'orders'")` does so only with the option `filterPushdown`, as described below.

Where the package is installed for the driver and the workers, Spark finds the format also without
the registration (it looks for packages such as our `pyspark_kafkalog`), in SQL as well:

```sql
CREATE TEMP VIEW batches USING kafkalog OPTIONS (path '/var/lib/kafka', table 'batches');
SELECT topic, compression, sum(size) FROM batches GROUP BY ALL;
```

It needs Spark 4.2 or newer, on local[*], on a cluster or over Spark Connect. Every worker reads the
log directories itself, under the same paths as the driver. Relative paths are relative to the
working directory of the driver; over Spark Connect the driver is the server.

Spark's tasks run in a Python of their own, which needs kafkalog as well: `PYSPARK_PYTHON` or
`spark.pyspark.python` names it. Spark's default is the first `python3` on the `PATH`, which is not
that of a virtual environment unless this is activated:

```
PYSPARK_PYTHON=/opt/kafkalog/bin/python /opt/kafkalog/bin/pyspark
```

Sessions that kafkalog's own commands start on this machine take the Python that runs the command;
on a cluster of other machines `--spark-conf spark.pyspark.python=/opt/kafkalog/bin/python` names
theirs.

{options}
The API of Python data sources knows no pruning of columns: name those that are wanted in
`columns`, or by a schema of your own (`.schema("offset long, topic string")`). `kafkalog sql` does
so by itself.

Filters on `topic`, `partition`, `offset`, `timestamp` and `timestamp_ms` leave directories,
segments and parts of segments unread, as names and indexes tell, with the option `filterPushdown`
in a session that has `spark.sql.python.filterPushdown.enabled` set; Spark applies them to the rows
all the same. A record can be as old as its producer says, wherever it stands: for an upper bound of
`timestamp` all later records have to be read, unless `maxTimestampDisorderMs` says how disordered
timestamps are. `startingTimestamp` and `endingTimestamp` stand for what a consumer does that seeks
to a time: they read nothing outside of the two offsets.

## Streams

```python
query = (
    spark.readStream.format("kafkalog")
    .option("maxBytesPerTrigger", "256m")
    .load("/var/lib/kafka")
    .writeStream.format("parquet")
    .option("checkpointLocation", "checkpoint")
    .trigger(availableNow=True)
    .start("lake")
)
```

A stream follows logs that grow, those of topics that come later among them. For each topic id and
partition it notes the next offset and the leader epoch of the record before that, so that a query
which is started again goes on exactly there, whatever was written, rolled, compacted or moved to
another log directory meanwhile. With `replicas=all` each directory's copy is followed by itself. A
batch that is only half on disk comes when it is whole. With `read_committed` a stream ends at the
last stable offset, else at the high watermark, which a broker notes every five seconds.

These are losses, which end a stream unless `failOnDataLoss` is `false`: records were deleted
before they were read; a partition is gone; a topic was deleted and made again, whose new records
are then read from the first; or a replica was cut and filled again under another leader, so that
records were read which the log does not have any more. The leader epochs tell that, and where the
log is another one; there reading goes on with `failOnDataLoss=false`.

A worker reads only what the driver has planned: it compares the ids of cluster, node, directory and
topic, and the file's size, first and last bytes. A worker with another broker's disk at the same
path, or an older copy of it, refuses, and the error names the host. Logs of a living broker may
grow or be compacted meanwhile: the same offsets are then read from the new files.

A batch read gives what was there when it was planned. Where retention or the deletion of a topic
takes some of that away before a task has read it, the query ends, as with Spark's own Kafka source;
with `failOnDataLoss=false` it goes on with what is left, and a warning in the worker's log names
the partition and the offsets. What a compaction removes is no loss.

## Memory

A task holds some 20 MB, what a batch of records is decompressed, and a record batch of up to
65,536 rows. A record takes some three times its size in the worker and in the JVM: one of 512 MB
passes with `spark.driver.memory=3g`, which is what a local session of ours has, and with
`spark.executor.memory=3g` on a cluster. The driver holds some hundred bytes for each split, 128 MiB
of a log.

## Tables

"""
_OPTIONS: Final = {
    "path": "log directory, partition directory or log; `load(PATH)` sets it",
    "paths": "several of them, as a JSON array",
    "table": "`records` (the default) or one of the tables below",
    "columns": "names, separated by commas; without it the columns of Spark's own Kafka source for "
    "records, all for other tables",
    "subscribe": "topics, separated by commas, each of which has to be there; without it all but "
    "those of the brokers' own",
    "internal": "`true`: also topics that brokers keep for themselves (`false`)",
    "isolation": "`read_uncommitted` (the default) or `read_committed`, as of a consumer",
    "view": "`started` (the default): what the next start of a broker would show; `files`: what "
    "has a final name; `all`: also left-overs, marked in the column `state`",
    "end": "`watermark` (the default): records end at the high watermark that "
    "`replication-offset-checkpoint` notes, at the end of the log where it notes none; `log`: "
    "always at the end of the log",
    "decode": "`text`: keys and values are strings, what is no UTF-8 in them is U+FFFD (`bytes`)",
    "mode": "`permissive` (the default): damage is passed over, and told by the table `defects`; "
    "`failfast`: it ends the query",
    "replicas": "where several directories hold a partition: `best` (the default for records): the "
    "one with the latest leader epoch, then with the largest log end offset; or `all` (the default "
    "for other tables)",
    "splitBytes": "about how much of a log a task reads (`128m`)",
    "filterPushdown": "`true`: Spark's filters decide what is read (`false`)",
    "maxTimestampDisorderMs": "no record is older than the newest before it by more than this",
    "startingTimestamp": "milliseconds: begin where a consumer begins that seeks to this time",
    "endingTimestamp": "milliseconds, of a batch: end where such a consumer would begin",
    "startingOffsets": "of a stream: `earliest` (the default) or `latest`",
    "maxBytesPerTrigger": "of a stream: about how much of the logs a batch covers; without it all",
    "failOnDataLoss": "`false`: go on where records were deleted before they were read (`true`)",
}
"""Options of the data source; a test compares their names with those that it knows."""

_TABLES: Final = {
    TableName.RECORDS: "What a consumer is given: no control records, nothing below the log start "
    "offset, nothing of batches with wrong checksums. The first {usual} columns are those of "
    "Spark's own Kafka source, the others come where `columns` names them. `timestamp` is null "
    "where there is no such time; `timestamp_ms` is what is stored. `decoded` is JSON, of Kafka's "
    "own topics only.",
    TableName.BATCHES: "The headers of all batches that can be framed, control batches among them.",
    TableName.OFFSET_INDEX: "The entries of offset indexes.",
    TableName.TIME_INDEX: "The entries of time indexes.",
    TableName.TRANSACTIONS: "The aborted transactions that transaction indexes list.",
    TableName.SEGMENTS: "The segments and the sizes of their files.",
    TableName.PRODUCERS: "The producers in producer snapshots.",
    TableName.DEFECTS: "What is damaged in the logs, as far as reading them tells; `verify` checks "
    "far more. References: [defects.md](defects.md).",
}


def spark_page() -> str:
    """The text of the page."""
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in _OPTIONS.items())
    parts = [_HEAD.format(options=f"| option | meaning |\n|---|---|\n{rows}")]
    parts += [_table(table) for table in TableName]
    return "\n".join(parts)


def option_names() -> list[str]:
    """The options that the page tells."""
    return list(_OPTIONS)


def _table(table: TableName) -> str:
    words = _TABLES[table].format(usual=len(DEFAULT_RECORDS))
    rows = "".join(
        f"| `{field.name}` | {field.type} | {'yes' if field.nullable else ''} |\n"
        for field in SCHEMAS[table]
    )
    return f"### `{table}`\n\n{words}\n\n| column | type | can be null |\n|---|---|---|\n{rows}"
