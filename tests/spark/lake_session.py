"""A program for a Spark that knows tables of Delta or Iceberg, as their documentation sets it up.

It reads a table and prints its rows as JSON. If asked to, it merges the files of the table then.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

TABLE: Final = "lake.kafka.records"
PACKAGES: Final = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,"
    "org.xerial:sqlite-jdbc:3.50.3.0",
}


def settings_of(form: str, place: str) -> dict[str, str]:
    """Return the settings of a session; the catalog of Iceberg is the file that pyiceberg has."""
    if form == "delta":
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{place}/catalog.db",
        "spark.sql.catalog.lake.warehouse": f"file://{place}",
    }


def main(form: str, place: str, home: str, *, merges: bool) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    own = {"spark.jars.packages": PACKAGES[form], "spark.jars.ivy": home}
    for name, value in {**own, **settings_of(form, place)}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    frame = spark.read.format("delta").load(place) if form == "delta" else spark.table(TABLE)
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS at_ms").drop("timestamp")
    found: dict[str, Any] = {
        "rows": [row.asDict(recursive=True) for row in rows.collect()],
        "few": frame.where("topic = 'orders' AND offset >= 3").count(),
    }
    if form == "iceberg":
        parts = spark.table(f"{TABLE}.partitions").selectExpr(
            "partition.topic", "string(partition.timestamp_day)", "record_count"
        )
        found["partitions"] = [list(row) for row in parts.collect()]
    if merges and form == "delta":
        spark.sql(f"OPTIMIZE delta.`{place}`")
    elif merges:
        spark.sql(
            "CALL lake.system.rewrite_data_files(table => 'kafka.records', "
            "options => map('min-input-files', '2'))"
        )
    print(json.dumps(found, default=lambda data: bytes(data).hex()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], merges="merge" in sys.argv[4:])
