"""How `export` reports its runs: a file for Prometheus."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkalog_cli.output import export_metrics
from tests.builders import batch, record, write_log
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from collections.abc import Callable
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
    words = (
        "export",
        tmp_path / "log",
        "--to",
        tmp_path / "lake",
        "--append",
        "--metrics-file",
        file,
    )
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
    words = ("export", log, "--to", to, "--append", "--metrics-file", file)
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
        ("success", ""): 1, ("files", ""): len(files), ("gaps", ""): 0,
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
    words = ("export", log, "--to", tmp_path / "lake", "--value-format", "json",
             "--value-schema", schema,
             "--metrics-file")  # fmt: skip
    assert kafkalog(*words, file).status == 4
    names = {name for name, _ in metrics_of(file)}
    assert names == {"success", "duration_seconds", "last_run_timestamp_seconds"}
    assert metrics_of(file)["success", ""] == 0
    assert kafkalog(*words, file, "--accept", "rejects=4").status == 0
    found = metrics_of(file)
    assert (found["success", ""], found["rows", "a0"], found["rejects", "a0"]) == (1, 6, 3)
    assert (found["files", ""], found["rows", "b0"], found["rejects", "b0"]) == (1, 0, 1)
    assert ("lag_offsets", "a0") not in found, "nothing says where the next run begins"
    other = (*words[:3], tmp_path / "other", *words[4:])
    assert kafkalog(*other, tmp_path / "nowhere" / "k.prom", "--accept", "rejects=3").status == 4
    assert not (tmp_path / "other").exists()
