"""Read everything with Spark's Kafka source: `read.py BOOTSTRAP ISOLATIONS`, topics on stdin.

Each record is a line of JSON, with keys and values in base64.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, unix_millis

TYPES = ("CreateTime", "LogAppendTime")


def text(data: bytearray | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def main() -> None:
    bootstrap, isolations = sys.argv[1:3]
    topics = sys.stdin.read().split()
    jars = ",".join(map(str, (Path.cwd() / "target" / "lib").glob("*.jar")))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    for isolation in isolations.split(","):
        rows = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.isolation.level", isolation)
            .option("kafka.fetch.max.wait.ms", "5")  # at each gap it asks where the log ends
            .option("subscribe", ",".join(topics))
            .option("includeHeaders", "true")
            .load()
            .withColumn("ms", unix_millis(col("timestamp")))
        )
        for row in rows.sort("topic", "partition", "offset").toLocalIterator():
            kind = TYPES[row.timestampType] if row.timestampType >= 0 else "NoTimestampType"
            line = {
                "isolation": isolation, "topic": row.topic, "partition": row.partition,
                "offset": row.offset, "timestamp": row.ms, "type": kind,
                "key": text(row.key), "value": text(row.value),
                "headers": [(one.key, text(one.value)) for one in row.headers or ()],
            }  # fmt: skip
            sys.stdout.write(json.dumps(line) + "\n")
    spark.stop()


main()
