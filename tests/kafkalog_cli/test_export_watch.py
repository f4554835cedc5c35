"""How `export` reports its runs: a file for Prometheus, OpenLineage events."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkalog.lake import lineage
from kafkalog_cli.output import export_metrics
from tests.builders import batch, record, write_log
from tests.kafkalog.lake.appending import TABLE, grow, iceberg
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]


def metrics_of(path: Path) -> dict[tuple[str, str], float]:
    """Return the values by name and partition, read by a parser of Prometheus' format."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.type == "gauge"
        assert family.documentation
        for one in family.samples:
            name = one.name.removeprefix("kafkalog_export_")
            assert name != one.name
            topic = one.labels.get("topic", "") + one.labels.get("partition", "")
            found[name, topic] = one.value
    return found


@pytest.mark.parametrize("content", [b"notes", b"notes\n", b"# HELP node_load1 1m load average.\n"])
def test_metrics_replace_no_file_of_something_else(
    tmp_path: Path, kafkalog: Kafkalog, content: bytes
) -> None:
    """The user named it, which does not prove that it is ours."""
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    make_log(tmp_path / "log")
    words = ("export", tmp_path / "log", "--to", tmp_path / "lake", "--append", "--metrics", file)
    found = kafkalog(*words)
    assert found.status == 4, found
    assert "something else than metrics" in found.stderr
    assert file.read_bytes() == content
    file.write_bytes(b"")
    assert kafkalog(*words).status == 0


def test_metrics_of_runs(
    tmp_path: Path, kafkalog: Kafkalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every partition has metrics, even without news; the lag counts up to the high watermark."""
    log, to, file = tmp_path / "log", tmp_path / "lake", tmp_path / "k.prom"
    partition = make_log(log)
    (log / "replication-offset-checkpoint").write_text("0\n1\norders 0 60\n")
    words = ("export", log, "--to", to, "--append", "--metrics", file)
    clock = SimpleNamespace(time=lambda: 1.7e9, monotonic=count(100, 7.5).__next__)
    monkeypatch.setattr(export_metrics, "time", clock)
    assert kafkalog(*words).status == 0
    found = metrics_of(file)
    assert found.pop(("last_run_timestamp_seconds", "")) == 1.7e9
    assert found.pop(("duration_seconds", "")) == 7.5
    files = [*to.rglob("*.parquet")]
    logs = sum(path.stat().st_size for path in partition.glob("*.log"))
    assert 0 < found.pop(("log_bytes", "")) <= logs
    assert found == {
        ("success", ""): 1, ("files", ""): len(files), ("gaps", ""): 0, ("merged_files", ""): 0,
        ("commit", ""): 0, ("rows", "orders0"): 60, ("defects", "orders0"): 0,
        ("rejects", "orders0"): 0, ("next_offset", "orders0"): 60, ("lag_offsets", "orders0"): 60,
        ("bytes", "orders0"): sum(path.stat().st_size for path in files),
    }  # fmt: skip
    (tmp_path / "plain").touch()
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode, "a collector may read it"
    (log / "replication-offset-checkpoint").write_text("0\n1\norders 0 120\n")
    write_log(log / "quiet-3", b"")
    assert kafkalog(*words).status == 0
    found = metrics_of(file)
    assert (found["rows", "orders0"], found["lag_offsets", "orders0"]) == (60, 0)
    assert (found["commit", ""], found["rows", "quiet3"]) == (1, 0)
    assert kafkalog(*words).status == 0
    found = metrics_of(file)
    assert (found["rows", "orders0"], found["next_offset", "orders0"]) == (0, 120)
    assert found["success", ""] == 1
    assert not [*tmp_path.glob("*.tmp")]


def test_metrics_of_rejects_and_failures(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """A failed run reports only its failure; a run whose file is refused does nothing."""
    log, file, schema = tmp_path / "log", tmp_path / "k.prom", tmp_path / "s.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    values = [b"{}" if i % 3 else b"-" for i in range(9)]
    write_log(log / "a-0", batch(0, [record(i, value=value) for i, value in enumerate(values)]))
    write_log(log / "b-0", batch(0, [record(0, value=b"-")]))
    (log / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    words = ("export", log, "--to", tmp_path / "lake", "--value", "json", "--value-schema", schema,
             "--metrics")  # fmt: skip
    assert kafkalog(*words, file).status == 4
    names = {name for name, _ in metrics_of(file)}
    assert names == {"success", "duration_seconds", "last_run_timestamp_seconds"}
    assert metrics_of(file)["success", ""] == 0
    assert kafkalog(*words, file, "--max-rejects", 4).status == 0
    found = metrics_of(file)
    assert (found["success", ""], found["rows", "a0"], found["rejects", "a0"]) == (1, 6, 3)
    assert (found["files", ""], found["rows", "b0"], found["rejects", "b0"]) == (1, 0, 1)
    assert ("lag_offsets", "a0") not in found, "nothing says where the next run begins"
    other = (*words[:3], tmp_path / "other", *words[4:])
    assert kafkalog(*other, tmp_path / "nowhere" / "k.prom", "--max-rejects", 3).status == 4
    assert not (tmp_path / "other").exists()


class Collector:
    """A server for OpenLineage events.

    Attributes:
        events: the events received.
        status: the status it answers with.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.status = 201
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server's
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.events.append(json.loads(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def told(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        found, self.events[:] = list(self.events), []
        return found


def configured(place: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Configure the library to send events to a port, without retries."""
    place.write_text(
        f"transport: {{type: http, url: 'http://127.0.0.1:{port}', retry: {{total: 0}}}}\n"
        "facets: {source_code_location: {disabled: true}}\n"
    )
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(place))


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    one = Collector()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    configured(tmp_path / "openlineage.yml", monkeypatch, one.server.server_address[1])
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


def test_events_of_runs(tmp_path: Path, kafkalog: Kafkalog, collector: Collector) -> None:
    """The logs, the table with its columns, and how each run ended."""
    log, to = tmp_path / "log", tmp_path / "lake"
    partition = make_log(log)
    words = ("export", log, "--to", to, "--append", "--lineage", "prod/nightly/orders",
             "--columns", "offset,value,headers")  # fmt: skip
    result = kafkalog(*words)
    assert (result.status, "ineage" in result.stderr) == (0, False)
    start, complete = collector.told()
    assert [one["eventType"] for one in (start, complete)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["eventTime"] <= complete["eventTime"]
    for one in (start, complete):
        assert (one["job"]["namespace"], one["job"]["name"]) == ("prod/nightly", "orders")
        assert one["producer"].startswith("pkg:pypi/kafkalog@")
        [read] = one["inputs"]
        assert (read["namespace"], read["name"]) == ("file", f"{log}/orders")
        size = sum(path.stat().st_size for path in partition.glob("*.log"))
        assert read["inputFacets"]["inputStatistics"]["size"] == size
        [written] = one["outputs"]
        assert (written["namespace"], written["name"]) == ("file", str(to))
        fields = written["facets"]["schema"]["fields"]
        assert [(field["name"], field["type"]) for field in fields] == [
            ("offset", "int64"), ("value", "binary"),
            ("headers", "array"),
            ("topic", "string"), ("partition", "int32"),
        ]  # fmt: skip
        [element] = fields[2]["fields"]
        assert (element["name"], element["type"]) == ("_element", "struct")
        assert [(field["name"], field["type"]) for field in element["fields"]] == [
            ("key", "string"), ("value", "binary"),
        ]  # fmt: skip
    statistics = written["outputFacets"]["outputStatistics"]
    files = [*to.rglob("*.parquet")]
    assert statistics["rowCount"] == 120
    assert statistics["size"] == sum(path.stat().st_size for path in files)
    grow(partition, 150, 5)
    for path in partition.glob("*.log"):
        if path.name < f"{150:020}":
            path.unlink()
    assert kafkalog(*words).status == 4
    start, fail = collector.told()
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert "Records are gone" in fail["run"]["facets"]["errorMessage"]["message"]
    assert start["run"]["runId"] == fail["run"]["runId"] != complete["run"]["runId"]


def test_events_of_an_iceberg_table(
    tmp_path: Path, kafkalog: Kafkalog, collector: Collector
) -> None:
    """The event has the table's name, and the rows of each run."""
    make_log(tmp_path / "log")
    words = ("export", tmp_path / "log", "--to", TABLE, "--append", "--warehouse", tmp_path / "w",
             "--lineage", "nightly")  # fmt: skip
    for rows in (120, 0):
        assert kafkalog(*words).status == 0
        start, complete = collector.told()
        assert start["job"]["namespace"] == "kafkalog"
        [written] = complete["outputs"]
        assert (written["namespace"], written["name"]) == ("iceberg://lake", "kafka.records")
        assert written["outputFacets"]["outputStatistics"]["rowCount"] == rows
        names = [field["name"] for field in written["facets"]["schema"]["fields"]]
        assert names == [field.name for field in iceberg(tmp_path / "w").schema().fields]


@pytest.mark.parametrize("how", ["refused", "error", "silent", "no such transport"])
def test_events_that_nobody_takes(
    tmp_path: Path, kafkalog: Kafkalog, monkeypatch: pytest.MonkeyPatch, collector: Collector,
    how: str,
) -> None:  # fmt: skip
    """The export ends as it does without events, with a note."""
    make_log(tmp_path / "log")
    config = tmp_path / "other.yml"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if how == "error":
            collector.status = 400
        elif how == "no such transport":
            config.write_text("transport: {type: nowhere.Transport}\n")
            monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
        else:
            if how == "silent":  # it takes connections, and never answers
                server.listen()
                monkeypatch.setattr(lineage, "_WAIT_S", 0.2)
            configured(config, monkeypatch, server.getsockname()[1])
        result = kafkalog(
            "export", tmp_path / "log", "--to", tmp_path / "lake", "--lineage", "nightly"
        )
    assert result.status == 0
    assert "note: " in result.stderr
    wanted = {
        "refused": "An event of lineage was not sent: ",
        "error": "An event of lineage was not sent: 400 ",
        "silent": "Events of lineage were not sent within ",
        "no such transport": "Lineage is not sent: ",
    }
    assert wanted[how] in result.stderr
    assert len([*(tmp_path / "lake").rglob("*.parquet")]) > 0


def test_usage(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """A job without a name is refused."""
    make_log(tmp_path / "log")
    result = kafkalog("export", tmp_path / "log", "--to", tmp_path / "lake", "--lineage", "a/")
    assert (result.status, "The job has no name" in result.stderr) == (2, True)
