"""The jobs of `benchmarks.spark` in a process with a warm session: prints a line of JSON each.

`python -m benchmarks.spark_jobs LOG_DIR SCRATCH MASTER RUNS BOOTSTRAP BROKER_PID JARS JOB...`
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.datasets import copy_with_links
from kafkalog.change.compaction import (
    Compaction,
    CompactionRequest,
    compact_partition,
    compact_partitions,
    find_candidates,
)
from kafkalog.change.journal.run import Run
from kafkalog.change.lake import Export, ExportRequest, TableFormat, local_catalog, writing
from kafkalog.change.lake.model import Writing
from kafkalog.check.schedule import Schedule
from kafkalog.check.tasks import ReadOptions, WalkedByTasks
from kafkalog.check.verify import Verification
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Level, Replicas
from kafkalog.node.configs import ConfigSources
from kafkalog.spark import KafkaLogDataSource, export, read_frame
from kafkalog.spark.engine import SparkEngine
from kafkalog.spark.queries import run_query
from kafkalog.spark.session import spark_session
from kafkalog.tables import Request, Split, plan_splits, read_split
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.io.engine import Engine

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000


def cpu_seconds(root: int) -> float:
    """What a process and all below it have used, those that have ended, too."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            used[int(path.parent.name)] = sum(map(int, fields[11:15]))

    def is_below(pid: int) -> bool:
        while pid not in (0, root):
            pid = parents.get(pid, 0)
        return pid == root

    return sum(ticks for pid, ticks in used.items() if is_below(pid)) / os.sysconf("SC_CLK_TCK")


def count_rows(task: Mapping[str, Any]) -> dict[str, int]:
    """The work of the local engine for a count."""
    schema = table_schema(Split.from_json(task).table, ["offset"])
    return {"rows": sum(some.num_rows for some in read_split(Split.from_json(task), schema))}


class Jobs:
    """What is measured, by name; each returns something to compare."""

    def __init__(
        self,
        session: Any,
        log_dir: Path,
        scratch: Path,
        workers: int,
        bootstrap: str,
        broker_pid: int,
    ) -> None:
        self.session = session
        self.log_dir = log_dir
        self.scratch = scratch
        self.local = LocalEngine(workers)
        self.spark = SparkEngine(session, workers)
        self.bootstrap = bootstrap
        self._broker_pid = broker_pid
        self.took = (0.0, 0.0, 0.0)

    def measured(self, job: Callable[[], object]) -> object:
        """What a job gives; what it took is in `took`."""
        before = self._used()
        result = job()
        wall, own, broker = (now - then for now, then in zip(self._used(), before, strict=True))
        self.took = wall, own, broker
        return result

    def _used(self) -> tuple[float, float, float]:
        """The clock, and the CPU seconds of this process with all of Spark, and of the broker."""
        return time.perf_counter(), cpu_seconds(os.getpid()), cpu_seconds(self._broker_pid)

    def export_local(self) -> object:
        """To Parquet."""
        return self._export(self.local)

    def export_spark(self) -> object:
        """The same by Spark."""
        return self._export(self.spark)

    def _export(self, engine: Engine) -> object:
        target = self.scratch / "lake"
        shutil.rmtree(target, ignore_errors=True)
        asked = ExportRequest((str(self.log_dir),), Request(), None, Writing())

        def job() -> object:
            with Export(asked, str(target)) as export:
                export.run(engine)
                return sum(part.rows for part in export.summary().parts)

        return self.measured(job)

    def export_iceberg(self) -> object:
        """To an Iceberg table, with the columns that Kafka Connect's sink can write."""
        place = self.scratch / "warehouse"
        shutil.rmtree(place, ignore_errors=True)
        asked = ExportRequest(
            (str(self.log_dir),), Request(replicas=Replicas.BEST),
            columns=("offset", "timestamp", "value"), table_format=TableFormat.ICEBERG,
            append=True,
        )  # fmt: skip
        catalog = local_catalog(str(place))

        def job() -> object:
            with writing(asked, "lake.kafka.orders", catalog=catalog) as run:
                run.run(self.local)
                return sum(part.rows for part in run.summary().parts)

        return self.measured(job)

    def columns_export(self) -> object:
        """Five columns to Parquet, as the workers write it."""
        target = self.scratch / "columns"
        shutil.rmtree(target, ignore_errors=True)
        plan = export(self.session, self.log_dir, to=target, columns=COLUMNS)
        return self.measured(lambda: plan.apply().rows)

    def columns_source(self) -> object:
        """The same as Spark writes it, from the data source."""
        frame = self.session.read.format("kafkalog").option("columns", ",".join(COLUMNS))
        return self._written(frame.load(str(self.log_dir)))

    def columns_frame(self) -> object:
        """The same from `read_frame`."""
        return self._written(read_frame(self.session, str(self.log_dir), columns=",".join(COLUMNS)))

    def columns_parquet(self) -> object:
        """The same from Parquet: what of it is Spark's own."""
        place = self.scratch / "columns"
        if not place.exists():
            export(self.session, self.log_dir, to=place, columns=COLUMNS).apply()
        return self._written(self.session.read.parquet(str(place)).select(*COLUMNS))

    def columns_kafka(self) -> object:
        """The same from the broker, with Spark's own source."""
        return self._written(self._of_kafka().select(*COLUMNS))

    def _written(self, frame: Any) -> object:
        target = str(self.scratch / "written")
        self.measured(lambda: frame.write.mode("overwrite").parquet(target))
        return self.session.read.parquet(target).count()

    def export_kafka(self) -> object:
        """From the broker to Parquet, with Spark's own source."""
        return self._written(self._of_kafka())

    def count_local(self) -> object:
        """Of one column."""
        return self.measured(
            lambda: sum(
                result["rows"]
                for _, result in self.local.run(
                    count_rows,
                    [one.as_json() for one in plan_splits([str(self.log_dir)], Request())],
                )
            )
        )

    def count_spark(self) -> object:
        """The same by Spark."""
        frame = self.session.read.format("kafkalog").option("columns", "offset")
        return self.measured(
            lambda: frame.load(str(self.log_dir)).selectExpr("count(offset)").collect()[0][0]
        )

    def count_rewritten(self) -> object:
        """Of all rows, by SQL: tasks of Spark return counts instead of rows."""
        query = "SELECT count(*) FROM records"
        return self.measured(
            lambda: next(iter(run_query(self.session, query, [str(self.log_dir)], {}).rows))[0]
        )

    def count_kafka(self) -> object:
        """From the broker, with Spark's own source."""
        frame = self._of_kafka()
        return self.measured(lambda: frame.selectExpr("count(offset)").collect()[0][0])

    def hour_spark(self) -> object:
        """The records of an hour of the day."""
        reader = self.session.read.format("kafkalog").option("filterPushdown", "true")
        frame = reader.option("maxTimestampDisorderMs", "60000").load(str(self.log_dir))
        hour = frame.where(
            f"timestamp >= timestamp_millis({BEGIN_MS + 7 * HOUR_MS}) and "
            f"timestamp < timestamp_millis({BEGIN_MS + 8 * HOUR_MS})"
        )
        return self.measured(
            lambda: hour.selectExpr("count(*)", "sum(length(value))").collect()[0][0]
        )

    def _of_kafka(self) -> Any:
        reader = self.session.read.format("kafka").option("subscribe", "orders")
        return reader.option("kafka.bootstrap.servers", self.bootstrap).load()

    def verify_local(self) -> object:
        """At the level deep."""
        schedule = Schedule([open_path(str(self.log_dir))], Level.DEEP)
        run = Verification(schedule=schedule, threads=self.local.workers)
        return self.measured(lambda: _verify(run))

    def verify_spark(self) -> object:
        """The same by Spark."""
        schedule = Schedule([open_path(str(self.log_dir))], Level.DEEP)

        def job() -> object:
            with WalkedByTasks(self.spark, schedule, ReadOptions(1, None, False)) as remote:
                return _verify(Verification(schedule=schedule, remote=remote))

        return self.measured(job)

    def compact_local(self) -> object:
        """In place, a copy of the log directory."""
        return self._compact(None)

    def compact_spark(self) -> object:
        """The same by Spark."""
        return self._compact(self.spark)

    def _compact(self, engine: Engine | None) -> object:
        place = self.scratch / "compacted"
        copy_with_links(self.log_dir, place)
        request = CompactionRequest(now_ms=BEGIN_MS, high_watermark="end")
        configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(place))
        found = open_path(str(place))
        assert isinstance(found, LogDirListing)
        wanted = [one for one in found.partitions if one.topic == "orders"]
        candidates = find_candidates(wanted, configs.of_topic, request, take_all=True, failed=_fail)

        def job() -> object:
            with Run(str(place)) as run:
                if engine is None:
                    return sum(_size(compact_partition(one, request, run)) for one in candidates)
                done = compact_partitions(candidates, request, engine, run)
                return sum(_size(one) for _, one in done)

        return self.measured(job)


def _verify(run: Verification) -> object:
    [target] = run.schedule.targets
    found = [*run.verify(target), *run.check_together()]
    return len(found), run.summary.records


def _size(done: Compaction | KafkaLogError) -> int:
    if isinstance(done, KafkaLogError):
        raise done
    return done.after_bytes


def _fail(_: object, error: Exception) -> None:
    raise error


def main(argv: list[str]) -> None:
    """Run the jobs one after the other, each once for nothing and then as often as wanted."""
    log_dir, scratch, master, runs, bootstrap, broker_pid, jars, *names = argv
    conf = {"spark.jars": jars} if jars else {}
    workers = int(master.removeprefix("local[").removesuffix("]"))
    with spark_session(master, conf) as session:
        session.dataSource.register(KafkaLogDataSource)
        jobs = Jobs(session, Path(log_dir), Path(scratch), workers, bootstrap, int(broker_pid))
        for name in names:
            seen, results = [], []
            for _ in range(int(runs) + 1):
                results.append(getattr(jobs, name)())
                seen.append(jobs.took)
            assert all(result == results[0] for result in results), (name, results)
            took = [statistics.median(each) for each in zip(*(seen[1:] or seen), strict=True)]
            told = {"job": name, "took": took, "first": seen[0], "result": str(results[0])}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
