"""Spark beside the local engine and beside Spark's own Kafka source with a live broker.

`python -m benchmarks.spark --help`. Makes a day of records in 8 partitions with a real broker,
measures jobs in processes with a warm session, and records the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import sink
from benchmarks.processes import exit_on_signals
from benchmarks.results import Bound, Record, Result, run_key, store
from kafkalog.tables import Bounds, Request, plan_splits
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PARTITIONS = 8
RECORDS = 2_250_000
SEED = 43
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
CONNECTOR = Path(__file__).parent / "connector"
JARS = ("spark-sql-kafka-*", "spark-token-provider-*", "kafka-clients-*", "commons-pool2-*")
OURS = ("export_local", "export_spark", "export_iceberg", "count_local", "count_spark",
        "columns_export", "columns_source", "columns_frame", "columns_parquet",
        "count_rewritten", "hour_spark", "verify_local", "verify_spark", "compact_local",
        "compact_spark")  # fmt: skip
KAFKAS = ("export_kafka", "columns_kafka", "count_kafka")
SCALED = ("verify_spark", "compact_spark")

HOUR = "bytes read for an hour of the day"
HOUR_SHARE_MAX = 0.08


class Took(NamedTuple):
    """What a job took: seconds, CPU seconds of its process with all of Spark, and of the broker."""

    wall_s: float
    cpu_s: float
    broker_s: float


class Wish(NamedTuple):
    """What is wanted of two jobs: how many times less the second takes, at least, of what."""

    name: str
    first: str
    second: str
    at_least: float
    of: str = "wall_s"


WISHES = (
    Wish("export to Parquet, against the local engine", "export_local", "export_spark", 0.6),
    Wish("count of one column, against the local engine", "count_local", "count_spark", 0.5),
    Wish("count(*) by SQL, against the local engine", "count_local", "count_rewritten", 1),
    Wish("verify --level deep, against the local engine", "verify_local", "verify_spark", 0.7),
    Wish("compact, against the local engine", "compact_local", "compact_spark", 0.7),
    Wish("export to Parquet, against Spark's Kafka source", "export_kafka", "export_spark", 5),
    Wish("export to Iceberg, against Kafka Connect's sink", sink.NAME, "export_iceberg", 5),
    Wish(
        "five columns to Parquet by `export`, against Spark's Kafka source",
        "columns_kafka",
        "columns_export",
        3,
    ),
    Wish("the same, seconds of processors", "columns_kafka", "columns_export", 2.5, "cpu_s"),
    Wish("count, against Spark's Kafka source", "count_kafka", "count_spark", 5),
    Wish("verify, 2 processors against 1", "verify_spark on 1", "verify_spark", 1.7),
    Wish("compact, 2 processors against 1", "compact_spark on 1", "compact_spark", 1.7),
)


def main() -> None:
    """Make the data, measure, record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--into", type=Path, metavar="FILE", help="merge results there (stdout)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the data here, or use it")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"a partition ({RECORDS})")
    parser.add_argument("--runs", type=int, default=3, help="of each job that count (3)")
    parser.add_argument("--only", metavar="REGEX", default="", help="the jobs with such names")
    options = parser.parse_args()
    kafkas, ours, scaled = (
        tuple(name for name in jobs if re.search(options.only, name))
        for jobs in (KAFKAS, OURS, SCALED)
    )
    exit_on_signals()
    broker_data.build()
    jars = _connector()
    with tempfile.TemporaryDirectory(prefix="kafkalog-benchmarks-") as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        seen: dict[str, Took] = {}
        with _broker(home, options.records) as (bootstrap, pid):
            seen |= _measure(home, 2, options.runs, kafkas, bootstrap, pid, jars)
            if re.search(options.only, sink.NAME):
                rows = PARTITIONS * options.records
                try:
                    took = sink.measure_sink(home, bootstrap, pid, rows, options.runs)
                except TimeoutError as error:  # the other jobs are worth recording
                    print(f"{sink.NAME}: {error}", file=sys.stderr, flush=True)
                else:
                    print(f"{sink.NAME}: {took}", file=sys.stderr, flush=True)
                    seen[sink.NAME] = Took(*took)
        seen |= _measure(home, 2, options.runs, ours)
        alone = _measure(home, 1, options.runs, scaled)
        seen |= {f"{name} on 1": took for name, took in alone.items()}
        store(_record(home / "logs", options, seen), names(), options.into)


def names() -> list[str]:
    """Every result there is, in the order of the record."""
    jobs = (*KAFKAS, sink.NAME, *OURS, *(f"{name} on 1" for name in SCALED))
    return [*jobs, *(wish.name for wish in WISHES), HOUR]


def _connector() -> str:
    """Spark's own Kafka source, from Maven Central; paths of its jars."""
    command = ["mvn", "-q", "-B", "-f", str(CONNECTOR / "pom.xml"), "package"]
    subprocess.run(command, check=True)
    found = [path for name in JARS for path in (CONNECTOR / "target" / "lib").glob(f"{name}.jar")]
    assert len(found) == len(JARS), found
    return ",".join(map(str, found))


@contextmanager
def _broker(home: Path, records: int) -> Iterator[tuple[str, int]]:
    """A broker with the data, which are made where they are not there; its address and its pid."""
    command = broker_data.java_command(
        "kafkalog.harness.FilledBroker", str(home / "logs"), str(PARTITIONS), str(records),
        str(SEED), options=("-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
    )  # fmt: skip
    broker = subprocess.Popen(
        command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    try:
        words = broker.stdout.readline().split()
        if words[:1] != ["running"]:
            raise SystemExit(f"The broker does not run: {words}")
        yield f"127.0.0.1:{words[1]}", broker.pid
    finally:
        broker.stdin.close()
        broker.wait()
        broker.stdout.close()


def _measure(
    home: Path, processors: int, runs: int, jobs: tuple[str, ...], bootstrap: str = "-",
    broker_pid: int = -1, jars: str = "",
) -> dict[str, Took]:  # fmt: skip
    """Run jobs in one process, bound to some processors; return what each took."""
    if not jobs:
        return {}
    scratch = home / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.spark_jobs", str(home / "logs"), str(scratch),
               f"local[{processors}]", str(runs), bootstrap, str(broker_pid), jars,
               *jobs]  # fmt: skip
    allowed = sorted(os.sched_getaffinity(0))[:processors]
    seen = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 # no threads here
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            print(f"on {processors}: {line}", end="", file=sys.stderr, flush=True)
            seen[found["job"]] = Took(*found["took"])
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return seen


def _record(log_dir: Path, options: argparse.Namespace, seen: Mapping[str, Took]) -> Record:
    size = sum(path.stat().st_size for path in log_dir.glob("orders-*/*.log"))
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    about = {
        "processors": str(len(os.sched_getaffinity(0))),
        "Python": platform.python_version(),
        "Java": java.splitlines()[0],
        "packages": ", ".join(f"{one} {version(one)}" for one in ("pyspark", "pyarrow", "numpy")),
        "log": f"{size / 1e9:.2f} GB, {options.records:,} records in each partition",
        "effort": f"--runs {options.runs}",
    }
    run = run_key()
    results = []
    for name, took in seen.items():
        figures = {"wall_s": took.wall_s, "cpu_s": took.cpu_s}
        if name in (*KAFKAS, sink.NAME):
            figures["broker_cpu_s"] = took.broker_s
        figures["mb_per_s"] = size / took.wall_s / 1e6
        results.append(Result("Seconds", name, run, figures))
    for wish in WISHES:
        if {wish.first, wish.second} <= seen.keys():
            first, second = (getattr(seen[one], wish.of) for one in (wish.first, wish.second))
            times = first / second
            bound = Bound(f"≥ {wish.at_least:g} times", times, times >= wish.at_least)
            results.append(Result("Wanted", wish.name, run, bounds=(bound,)))
    share = _share_of_an_hour(log_dir, size)
    bound = Bound(f"≤ {HOUR_SHARE_MAX} of all", share, share <= HOUR_SHARE_MAX)
    results.append(Result("Wanted", HOUR, run, bounds=(bound,)))
    return Record({run: about}, {result.name: result for result in results})


def _share_of_an_hour(log_dir: Path, size: int) -> float:
    """Of all bytes, what a query for an hour of the day reads."""
    begin = BEGIN_MS + 7 * HOUR_MS
    bounds = Bounds(from_time=begin, to_time=begin + HOUR_MS, disorder_ms=60_000)
    splits = plan_splits([str(log_dir)], Request(bounds=bounds))
    return sum(split.size_bytes for split in splits) / size


if __name__ == "__main__":
    main()
