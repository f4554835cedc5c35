"""`dump-segment --to FILE.parquet`, or `.arrow`, writes the rows of NDJSON to one whole file."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalog.io.jit import fast_path
from kafkalog.tables import arrow_files
from kafkalog_cli.main import run
from kafkalog_cli.output import file_dump as command
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State


def table_of(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return pa.ipc.open_file(path).read_all()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the file in the form of NDJSON with `--value-format base64`."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, list):
            return [{"key": item["key"].decode("utf-8", "replace"),
                     "value": plain(item["value"])} for item in value]  # fmt: skip
        return value

    return [
        {name: plain(value) for name, value in row.items()} for row in table_of(path).to_pylist()
    ]


def objects(kafkalog: Any, *argv: object) -> list[dict[str, Any]]:
    """Return the rows of NDJSON without fields that only NDJSON has."""
    out = kafkalog(
        "dump-segment",
        *argv,
        "--format",
        "ndjson",
        "--key-format",
        "base64",
        "--value-format",
        "base64",
    ).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    for row in rows:
        for name in ("key_size_bytes", "value_size_bytes", "control_type", "decoded"):
            row.pop(name, None)
    return [row for row in rows if row.pop("type") != "defect"]


@pytest.fixture(params=[0, 1 << 60], ids=["kernels", "reference"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", request.param)


@pytest.mark.sampled(85)
@pytest.mark.usefixtures("_either_way")
def test_records_and_batches_are_those_of_ndjson(any_state: State, tmp_path: Path, kafkalog: Any):
    """Whole log directories, and several PATHs into one file."""
    partitions = any_state.partitions()
    for what in ((), ("--batches",)):
        arguments = (*what, *partitions[:12], "--from-offset", 1)
        status = kafkalog("dump-segment", *arguments, "--format", "ndjson").status
        rows = objects(kafkalog, *arguments)
        for form in ("parquet", "arrow"):
            target = tmp_path / f"{len(what)}.{form}"
            words = ("dump-segment", *arguments, "--to", target)
            assert run([str(word) for word in words]) == status
            assert rows_of(target) == rows


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_indexes_are_those_of_ndjson(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any, form: str, suffix: str
):
    """Each kind of index goes into its own file."""
    paths = sorted((corpus_dir / "lookup").rglob(f"*.{suffix}"))
    paths = [path for path in paths if path.stat().st_size][:3]
    assert paths
    target = tmp_path / f"x.{form}"
    chosen = (*paths, "--from-offset", 10, "--limit", 20)
    assert run(["dump-segment", *map(str, chosen), "--to", str(target)]) == 0
    assert rows_of(target) == objects(kafkalog, *chosen)


@pytest.mark.usefixtures("_either_way")
def test_defects_go_to_stderr(tmp_path: Path, kafkalog: Any):
    """The rows around the damage are in the file; the status is 8, as for CSV."""
    sound = [batch(i, [record(0)]) for i in range(3)]
    path = write_log(tmp_path, sound[0], flip(sound[1], 8 * 17), sound[2])
    target = tmp_path / "x.parquet"
    result = kafkalog("dump-segment", path, "--to", target)
    assert result.status == 8
    assert result.stdout == b""
    assert "batch-crc-mismatch" in result.stderr
    assert result.stderr == kafkalog("dump-segment", path, "--format", "csv").stderr
    assert [row["offset"] for row in rows_of(target)] == [0, 1, 2]


def test_row_groups_are_bounded(tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch):
    """A limit on rows and bytes bounds memory; the compression is Parquet's usual one."""
    monkeypatch.setattr(arrow_files, "_GROUP_ROWS", 100)
    monkeypatch.setattr(command, "_BATCH_ROWS", 30)
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    made = [batch(i * 50, [record(n, b"k", bytes(90)) for n in range(50)]) for i in range(9)]
    path = write_log(tmp_path, *made)
    target = tmp_path / "x.parquet"
    assert kafkalog("dump-segment", path, "--to", target).status == 0
    found = pq.ParquetFile(target)
    assert found.metadata.num_rows == 450
    groups = [found.metadata.row_group(i) for i in range(found.num_row_groups)]
    assert [group.num_rows for group in groups] == [120, 120, 120, 90]
    assert {group.column(5).compression for group in groups} == {"SNAPPY"}


def test_the_metadata_says_what_was_selected(tmp_path: Path, kafkalog: Any):
    """Both formats have it."""
    path = write_log(tmp_path, batch(0, [record(0, b"k")]))
    for form in ("parquet", "arrow"):
        target = tmp_path / f"x.{form}"
        kafkalog("dump-segment", path, "--key", "k", "--key-regex", "k", "--header", "h", "--limit",
                 5, "--to", target)  # fmt: skip
        facts = json.loads(table_of(target).schema.metadata[b"kafkalog"])
        assert facts["selection"] == {
            "limit": 5, "key": "k", "key_regex": "k", "header": ["h", None],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "reference"),
    [
        (("--to", "-"), 2, "usage"),
        (("--to", "{new}.txt"), 2, "usage"),
        (("--format", "ndjson", "--to", "{new}.arrow"), 2, "usage"),
        (("--follow", "--to", "{new}.arrow"), 2, "usage"),
        (("--value-format", "json", "--to", "{new}.arrow"), 2, "usage"),
        (("--to", "{there}"), 4, "destination-exists"),
        (("--to", "{new}/x.csv"), 4, "path-unwritable"),
        (("{checkpoint}", "--to", "{new}.arrow"), 2, "usage"),
        (("{index}", "--to", "{new}.arrow"), 2, "usage"),
        (("{new}x", "--to", "{new}.arrow"), 2, "path-not-found"),
    ],
)
def test_refusals_leave_no_file(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any, arguments: tuple[str, ...], status: int,
    reference: str,
):  # fmt: skip
    """The error gives the reason."""
    [partition] = list((corpus_dir / "lookup" / "transactions").rglob("orders-0"))[:1]
    there = tmp_path / "there.arrow"
    there.touch()
    places = {
        "new": tmp_path / "new",
        "there": there,
        "index": next(iter(partition.glob("*.index"))),
        "checkpoint": partition / "leader-epoch-checkpoint",
    }
    words = [word.format(**places) for word in arguments]
    first = [] if "{new}x" in arguments else [partition]
    result = kafkalog("dump-segment", *first, *words)
    assert result.status == status, result.stderr
    assert result.stderr.startswith(f"error: {reference}\n")
    assert os.listdir(tmp_path) == ["there.arrow"]


def test_a_bad_path_among_good_ones_is_told(tmp_path: Path, kafkalog: Any):
    """The others are in the file, and the gravest status counts."""
    path = write_log(tmp_path, batch(0, [record(0)]))
    target = tmp_path / "x.arrow"
    result = kafkalog("dump-segment", tmp_path / "no", path, "--to", target)
    assert result.status == 8
    assert len(rows_of(target)) == 1


def test_an_interrupt_leaves_no_file(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C in the middle of an export."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = write_log(tmp_path, batch(0, [record(0)]))
    monkeypatch.setattr(arrow_files.Exporter, "write", interrupt)
    target = tmp_path / "x.parquet"
    assert kafkalog("dump-segment", path, "--to", target).status == 130
    assert os.listdir(tmp_path) == [path.name]


def test_a_missing_package_is_named(tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch):
    """The error gives the command that installs it."""
    path = write_log(tmp_path, batch(0, [record(0)]))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name)
    )
    target = tmp_path / "x.parquet"
    result = kafkalog("dump-segment", path, "--to", target)
    assert result.status == 5
    assert "pyarrow" in result.stderr
    assert "pip install 'kafkalog[" in result.stderr
    assert os.listdir(tmp_path) == [path.name]
