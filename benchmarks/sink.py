"""Kafka Connect with Iceberg's sink, for `benchmarks.spark`: until all rows of a topic are there.

One process of Connect stays for all runs. Each run has a connector and a table of its own: the
group of its consumers begins at the first record.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.spark_jobs import cpu_seconds
from kafkalog.change.lake.model import CATALOG, local_catalog
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

NAME = "export_connect"
POM = Path(__file__).parent / "sink" / "pom.xml"
CONTROL = "control-iceberg"
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
    ]
)
COMMIT_S = 5
START_S_MAX = 120
WAIT_S_MAX = 300
"""So long a table may get no rows."""


def measure_sink(
    home: Path, bootstrap: str, broker_pid: int, rows: int, runs: int
) -> tuple[float, float, float]:
    """The medians of seconds, CPU seconds of Connect, and of the broker; one run is uncounted.

    Raises:
        TimeoutError: it no longer commits rows.
    """
    place = home / "scratch" / "sink"
    seen = []
    with _control_topic(home, bootstrap), _connect(home, bootstrap) as (port, pid):
        for _ in range(runs + 1):
            catalog = _catalog(place)
            name = f"sink-{uuid4()}"
            before = time.perf_counter(), cpu_seconds(pid), cpu_seconds(broker_pid)
            _ask(port, "POST", "", {"name": name, "config": _connector(place)})
            _await_rows(catalog, rows)
            now = time.perf_counter(), cpu_seconds(pid), cpu_seconds(broker_pid)
            seen.append([end - begin for end, begin in zip(now, before, strict=True)])
            _ask(port, "DELETE", f"/{name}")
            catalog.close()
    wall, own, broker = map(statistics.median, zip(*(seen[1:] or seen), strict=True))
    return wall, own, broker


@contextmanager
def _control_topic(home: Path, bootstrap: str) -> Iterator[None]:
    """The topic over which the tasks of the sink agree: gone before others read the directory."""
    words = ("--bootstrap-server", bootstrap, "--topic", CONTROL)
    tool = "org.apache.kafka.tools.TopicCommand"
    broker_data.java(tool, *words, "--create", "--if-not-exists", cwd=home)
    try:
        yield
    finally:
        broker_data.java(tool, *words, "--delete", cwd=home)


@contextmanager
def _connect(home: Path, bootstrap: str) -> Iterator[tuple[int, int]]:
    """A worker of Connect without connectors; its port and its pid."""
    subprocess.run(["mvn", "-q", "-B", "-f", str(POM), "package"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bytes_as_they_are = "org.apache.kafka.connect.converters.ByteArrayConverter"
    worker = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": bytes_as_they_are,
        "value.converter": bytes_as_they_are,
        "offset.storage.file.filename": str(home / "connect.offsets"),
        "offset.flush.interval.ms": "1000",  # a task without records hears of a commit as often
        "plugin.discovery": "service_load",
    }
    config = home / "connect.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in worker.items()))
    command = ["java", "-Xms1g", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp",
               str(POM.parent / "target" / "lib" / "*"),
               "org.apache.kafka.connect.cli.ConnectStandalone", str(config)]  # fmt: skip
    allowed = sorted(os.sched_getaffinity(0))[:2]
    with (home / "connect.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=home, stdout=log, stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 # no threads here
        )  # fmt: skip
        try:
            _await_worker(process, port)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


def _await_worker(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + START_S_MAX
    while True:
        try:
            return _ask(port, "GET", "")
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("Kafka Connect does not start: see connect.log") from error
            time.sleep(0.2)


def _ask(port: int, method: str, path: str, document: object = None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = None if document is None else json.dumps(document)
    connection.request(method, f"/connectors{path}", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status >= http.client.MULTIPLE_CHOICES:  # while it starts, 404
        raise ConnectionError(answer.status, text.decode())


def _catalog(place: Path) -> Catalog:
    """A catalog in an SQLite file with the table, which is empty."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(place / CATALOG) as file:
        file.execute("PRAGMA journal_mode=WAL")  # who counts rows does not keep out who commits
    file.close()
    catalog = load_catalog("lake", **local_catalog(str(place)))
    catalog.create_namespace("kafka")
    codec = {"write.parquet.compression-codec": "snappy"}  # as kafkalog's
    catalog.create_table("kafka.orders", SCHEMA, properties=codec)
    return catalog


def _connector(place: Path) -> dict[str, Any]:
    kafkas, of_iceberg = "org.apache.kafka.connect.transforms", "org.apache.iceberg"
    added = ("topic", "partition", "offset", "timestamp")
    return {
        "connector.class": f"{of_iceberg}.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": "orders",
        "transforms": "wrap,add",
        "transforms.wrap.type": f"{kafkas}.HoistField$Value",
        "transforms.wrap.field": "value",
        "transforms.add.type": f"{kafkas}.InsertField$Value",
        **{f"transforms.add.{one}.field": one for one in added},
        "iceberg.tables": "kafka.orders",
        "iceberg.control.topic": CONTROL,
        "iceberg.control.commit.interval-ms": str(COMMIT_S * 1000),
        "iceberg.catalog": "lake",
        "iceberg.catalog.catalog-impl": f"{of_iceberg}.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": f"jdbc:sqlite:{place / CATALOG}",
        "iceberg.catalog.warehouse": place.as_uri(),
    }


def _await_rows(catalog: Catalog, rows: int) -> None:
    there, end = 0, time.monotonic() + WAIT_S_MAX
    while there < rows:
        time.sleep(0.2)
        snapshot = catalog.load_table("kafka.orders").current_snapshot()
        now = int((snapshot and snapshot.summary and snapshot.summary["total-records"]) or 0)
        if now > there:
            there, end = now, time.monotonic() + WAIT_S_MAX
        if time.monotonic() > end:
            raise TimeoutError(f"The sink stays at {there} of {rows} rows: see connect.log")
    assert there == rows, there
