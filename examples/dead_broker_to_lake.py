"""What did a dead broker's disk hold? Its records as a lake of Parquet, in SQL. Needs Java 17.

Usage: python examples/dead_broker_to_lake.py [LOG_DIR]

The cells (`# %%`) run one after the other in a notebook as well.
"""

# %% What is there, and is it sound? Nothing is written to the log directory.
from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import kafkalog
from kafkalog.model import Isolation
from kafkalog.spark import KafkaLogDataSource, export, spark_session
from kafkalog.tables import Request

LOG_DIR = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "log-dir")

findings = kafkalog.verify(LOG_DIR, level="deep")
defects = list(findings)
summary = findings.summary
print(f"{summary.records} records in {summary.batches} batches, {len(defects)} defects")

# %% A session of Spark: local[*], or the master of a cluster that sees the same disk.
opened = ExitStack()
spark = opened.enter_context(spark_session("local[*]"))

# %% All committed records to a lake, partitioned by topic and partition; again, it goes on.
lake = os.path.join(opened.enter_context(tempfile.TemporaryDirectory()), "lake")
committed = Request(isolation=Isolation.READ_COMMITTED)
done = export(spark, LOG_DIR, to=lake, request=committed).apply()
print(f"{done.rows} committed records in {len(done.parts)} files")
spark.read.parquet(lake).createOrReplaceTempView("lake")

# %% 1. Who bought most?
for row in spark.sql(
    """
    select get_json_object(string(value), '$.user') as user,
           count(*) as orders,
           sum(int(get_json_object(string(value), '$.cents'))) as cents
    from lake where topic = 'orders'
    group by 1 order by cents desc, user limit 3
    """
).collect():
    print(f"{row.user}: {row.orders} orders, {row.cents / 100:.2f}")

# %% 2. How many orders a five minutes?
for row in spark.sql(
    """
    select date_format(window(timestamp, '5 minutes').start, 'HH:mm') as since, count(*) as orders
    from lake where topic = 'orders' group by 1 order by 1
    """
).collect():
    print(f"from {row.since}: {row.orders}")

# %% 3. What was paid, and what was only tried? The log itself has the aborted payments, too.
spark.dataSource.register(KafkaLogDataSource)
spark.read.format("kafkalog").load(LOG_DIR).createOrReplaceTempView("log")
for row in spark.sql(
    """
    select is_paid, count(*) as payments,
           sum(int(get_json_object(string(value), '$.cents'))) as cents
    from (
        select log.value, lake.offset is not null as is_paid
        from log left join lake
          on lake.topic = log.topic and lake.partition = log.partition and lake.offset = log.offset
        where log.topic = 'payments'
    ) group by is_paid order by is_paid desc
    """
).collect():
    print(f"{'paid' if row.is_paid else 'aborted'}: {row.payments} payments, {row.cents / 100:.2f}")

# %% The session ends; the lake of this example goes, too.
opened.close()
