"""`kafkalog sql` with DuckDB: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from kafkalog.tables.datasets.model import Tables
from kafkalog.tables.datasets.sql import Database
from kafkalog_cli import queries
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.writer import Format
from kafkalog_cli.queries import Answers, Damage, ask, completer, is_complete
from tests.builders import batch, flip, record, write_log
from tests.conftest import state
from tests.waiting import HANG_S, cpu_seconds, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOG_DIR = "examples/log-dir"
COUNT = "select count(*) n from records"


def rows_of(result: Any) -> list[dict[str, Any]]:
    assert (result.status, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    records = [record(0, b"a", b"\xff", headers=[(b"h", None)]), record(1, None, b"ok")]
    write_log(tmp_path / "orders-0", batch(0, records, base_time=1_700_000_000_123))
    return tmp_path / "orders-0"


def test_counts_by_topic_are_those_of_consumers(kafkalog: Any, corpus_dir: Path) -> None:
    """For all codecs: as many records as a consumer received."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    query = "select topic, count(*) n, count(distinct key) k from records group by topic"
    found = {
        row["topic"]: row
        for row in rows_of(kafkalog("sql", "--format", "ndjson", "-c", query, one.root))
    }
    for path in sorted((one.expected / "records").glob("codec-*.ndjson")):
        keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
        row = found.pop(path.stem.rpartition("-")[0])
        assert row["n"] == len(keys)
        assert row["k"] == len({json.dumps(key) for key in keys if key is not None})
    assert not found


def test_only_committed_records_are_counted_on_request(kafkalog: Any, corpus_dir: Path) -> None:
    """As many as a read_committed consumer received."""
    one = state(corpus_dir, "kafka-4.3", "txn")
    noted = sorted((one.expected / "records").glob("*.read_committed.ndjson")) or sorted(
        (one.expected / "records-read-committed").glob("*.ndjson")
    )
    for path in noted:
        name = path.name.partition(".")[0]
        words = (
            "sql",
            "--isolation",
            "read_committed",
            "--format",
            "ndjson",
            "-c",
            COUNT,
            one.root / name,
        )
        found = json.loads(kafkalog(*words).stdout)
        assert found == {"n": len(path.read_text().splitlines())}, name


def test_records_that_are_left_out_are_told(kafkalog: Any, tmp_path: Path) -> None:
    """The note is the same as in an export, and only for queries of records."""
    write_log(tmp_path / "orders-0", *(batch(n, [record(0, b"a")]) for n in range(9)))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    found = kafkalog("sql", "--format", "ndjson", "-c", COUNT, tmp_path)
    assert (found.status, found.stdout) == (0, b'{"n":7}\n')
    left_out = "records above the high watermark left out (--isolation log includes them)"
    why = "the checkpoint counts: no metadata log in PATH says which copies are in sync"
    assert found.stderr == f"note: {left_out}: orders-0 from 7, 2 records; {why}\n"
    query = "select count(*) n from batches"
    assert rows_of(kafkalog("sql", "--format", "ndjson", "-c", query, tmp_path)) == [{"n": 9}]
    query = ("sql", "--isolation", "log", "--format", "ndjson", "-c", COUNT, tmp_path)
    assert rows_of(kafkalog(*query)) == [{"n": 9}]


def test_values_of_every_kind(kafkalog: Any, log: Path) -> None:
    """Bytes, text, times, null, structs and large sums, in each format."""
    query = (
        "select key, value, value_bytes, timestamp, headers, "
        "{'x': 1.5::double, 'y': 'nan'::double} s, "
        "map {'k': 1} m, map {date '2024-02-29': 1} u, "
        "map {2::decimal(20, 0): true} w, "
        "1.10::decimal(4, 2) d, date '2024-02-29' t, sum(offset) over () n, "
        "timestamp 'infinity' i from records order by offset"
    )
    first, second = rows_of(kafkalog("sql", "--format", "ndjson", "-c", query, log))
    assert first == {
        "key": "a",
        "value": "0xff",
        "value_bytes": {"base64": "/w=="},
        "timestamp": "2023-11-14T22:13:20.123000Z",
        "headers": [{"key": "h", "value": None}],
        "s": {"x": 1.5, "y": "nan"},
        "m": {"k": 1},
        "u": {"2024-02-29": 1},
        "w": {"2": True},
        "d": "1.10",
        "t": "2024-02-29",
        "n": 1,
        "i": first["i"],
    }
    assert (second["key"], second["value"]) == (None, "ok")
    as_csv = kafkalog("sql", "--format", "csv", "-c", "select key, value from records", log)
    assert list(csv.reader(io.StringIO(as_csv.stdout.decode()))) == [
        ["key", "value"], ["a", "0xff"], ["", "ok"],
    ]  # fmt: skip
    table = kafkalog("sql", "-c", "select offset, value from records order by 1", log)
    assert table.stdout.decode().splitlines() == ["offset  value", "     0  0xff", "     1  ok"]


def test_the_word_offset_needs_no_quotes(kafkalog: Any, corpus_dir: Path) -> None:
    """It is a keyword of DuckDB, and stays one where DuckDB expects it."""
    log = state(corpus_dir, "kafka-4.3", "codecs").root / "codec-lz4-0"
    ask_for = ("sql", "--format", "ndjson")
    for query, wanted in (
        ("select offset from records where offset = 5", [{"offset": 5}]),
        ("select 'offset' o, offset from records limit 1 offset 7", [{"o": "offset", "offset": 7}]),
        ("select count(*) n from (from batches limit 3 offset 1)", None),
        ("select 'ä' a, max(offset) m from records", [{"a": "ä", "m": 1999}]),
        ('select "offset" from records where "offset" = 5', [{"offset": 5}]),
    ):
        found = rows_of(kafkalog(*ask_for, "-c", query, log))
        assert wanted is None or found == wanted


def test_columns_are_there_where_a_query_names_them(kafkalog: Any, corpus_dir: Path) -> None:
    """`*` has the columns of Spark's own Kafka source, and any column that is also named."""
    log = state(corpus_dir, "kafka-4.3", "codecs").root / "codec-lz4-0"
    ask_for = ("sql", "--format", "ndjson")
    (row,) = rows_of(kafkalog(*ask_for, "-c", "select * from records where offset = 5", log))
    assert list(row) == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    query = "select compression, count(*) n from records group by compression"
    assert rows_of(kafkalog(*ask_for, "-c", query, log)) == [{"compression": "lz4", "n": 2000}]
    query = "select count(*) n from batches where not crc_valid"
    assert rows_of(kafkalog(*ask_for, "-c", query, log)) == [{"n": 0}]


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (("select nothing from records", "LOG"), 2, "nothing"),
        (("selct 1", "LOG"), 2, "syntax error"),
        (("select 1 from elsewhere", "LOG"), 2, "commits, topics, configs"),
        (("select 1 a, 2 a", "LOG", "--format", "ndjson"), 2, "Two columns have the name 'a'"),
        (("select 1; select 2", "LOG", "--format", "csv"), 2, "one query, not 2"),
        (("  ;", "LOG"), 2, "There is no query"),
        (("select 1", "/no/such/place"), 2, "No such file"),
        (("select error('ab' || 'cd')", "LOG"), 2, "abcd"),
        (("select 1 from groups", "LOG"), 2, "__consumer_offsets"),
        (("select 1 from topics", "LOG"), 2, "metadata log"),
        (("select group from groups", "LOG"), 2, "group_id"),
        (("copy records to '{to}/x.csv'", "LOG"), 2, "no other files"),
        (("attach '{to}/x.db'", "LOG"), 2, "no other files"),
        (("select * from read_text('/etc/hostname')", "LOG"), 2, "no other files"),
        (("from '/etc/hostname'", "LOG"), 2, "/etc/hostname"),
        (("install httpfs", "LOG"), 2, "no other files"),
        (("load httpfs", "LOG"), 2, "no other files"),
        (("export database '{to}'", "LOG"), 2, "no other files"),
        (("set enable_external_access = true", "LOG"), 2, "locked"),
        (("select 1", "LOG", "--memory-limit", "x"), 2, "not a size"),
        (("select key from records", "LOG", "-t", "ordres"), 1, "ordres"),
        (("select 1", "LOG", "--value-format", "avro"), 2, "needs a schema"),
        (("select 1", "LOG", "--spark", "local[1]", "-p", "0"), 2, "WHERE topic"),
        (("select 1", "LOG", "--spark", "local[1]", "--value-format", "json"), 2, "from_json"),
    ],
)
def test_what_makes_no_sense_or_is_not_allowed_is_told_in_a_few_lines(
    kafkalog: Any, log: Path, tmp_path: Path, argv: tuple[str, ...], status: int, words: str
) -> None:
    """A query reads only the logs, and writes nothing."""
    before = sorted(tmp_path.rglob("*"))
    filled = (str(log) if word == "LOG" else word.format(to=tmp_path) for word in argv)
    result = kafkalog("sql", "-c", *filled)
    assert (result.status, result.stdout) == (status, b"")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) <= 4
    assert sorted(tmp_path.rglob("*")) == before


def test_damage_is_reported_once_and_is_status_8(kafkalog: Any, tmp_path: Path) -> None:
    """Counting and reading skip the same batch; the table of defects lists it, with status 0."""
    rows = [record(i, b"k", b"v" * 100) for i in range(100)]
    data = b"".join(batch(number * 100, rows) for number in range(100))
    write_log(tmp_path / "a-0", flip(data, 8 * (len(data) // 2 + 500)))
    words = ("sql", "--view", "as-is", "--format", "ndjson")
    for query in (COUNT, "select count(key) n from records",
                  "select count(*) n from records a join records b using (offset)"):  # fmt: skip
        result = kafkalog(*words, "-c", query, tmp_path / "a-0")
        assert (result.status, result.stdout) == (8, b'{"n":9900}\n')
        assert result.stderr.count("batch-crc-mismatch") == 1
    (row,) = rows_of(kafkalog(*words, "-c", "select reference from defects", tmp_path / "a-0"))
    assert row == {"reference": "batch-crc-mismatch"}


def test_what_an_answer_lacks_is_told(kafkalog: Any, corpus_dir: Path) -> None:
    """Missing partitions of the groups' topic, and internal topics that are left out."""
    one = state(corpus_dir, "kafka-4.3", "internal-topics").root
    gone = min(one.glob("__consumer_offsets-*"))
    result = kafkalog("sql", "-c", "select count(*) n from commits", gone)
    groups = kafkalog("groups", gone)
    assert result.status == groups.status
    assert result.stderr == groups.stderr
    query = "select count(*) n from records where topic = '__consumer_offsets'"
    result = kafkalog("sql", "--format", "ndjson", "-c", query, one)
    assert (result.status, result.stdout) == (0, b'{"n":0}\n')
    assert "__consumer_offsets is an internal topic: --internal includes" in result.stderr
    result = kafkalog("sql", "--internal", "--format", "ndjson", "-c", query, one)
    assert json.loads(result.stdout)["n"] > 0
    assert result.stderr == ""


def test_an_hour_of_a_day_reads_a_small_part_of_the_bytes(
    kafkalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 24 hours in a log of ten megabytes, with and without a promised time order."""
    from kafkalog.io.paths.source import Source

    place, base_ms = tmp_path / "orders-0", 1_700_000_000_000
    rows = [record(i, b"k", b"v" * 1000) for i in range(10)]
    times = [base_ms + number * 86_400 for number in range(1000)]  # of a day
    write_log(place, *(batch(n * 10, rows, base_time=t, max_time=t) for n, t in enumerate(times)))
    assert kafkalog("rebuild-index", place, "--apply", "--yes").status == 0
    size = next(place.glob("*.log")).stat().st_size
    read: list[int] = []
    read_into = Source.read_into
    monkeypatch.setattr(
        Source,
        "read_into",
        lambda self, at, into: (read.append(len(into)), read_into(self, at, into))[1],
    )
    query = (
        f"select count(*) n from records where timestamp_ms >= {base_ms + 10 * 3_600_000} "  # noqa: S608
        f"and timestamp_ms < {base_ms + 11 * 3_600_000}"
    )
    words = ("sql", "--format", "ndjson", "-c", query, place)
    wanted = sum(base_ms + 10 * 3_600_000 <= t < base_ms + 11 * 3_600_000 for t in times) * 10
    assert rows_of(kafkalog(*words, "--disorder", "1m")) == [{"n": wanted}]
    assert sum(read) < 0.08 * size
    read.clear()
    assert rows_of(kafkalog(*words)) == [{"n": wanted}]
    assert 0.5 * size < sum(read) < 0.65 * size


def test_hostile_names_are_data(kafkalog: Any, tmp_path: Path) -> None:
    for name in ("a'b\"c-0", "records-0", "x;drop view records-0", "bad\udcff-0"):
        write_log(tmp_path / name, batch(0, [record(0, b"k")]))
    query = "select topic, count(*) n from records where topic = $$a'b\"c$$ group by 1"
    found = rows_of(kafkalog("sql", "--format", "ndjson", "-c", query, tmp_path))
    assert found == [{"topic": "a'b\"c", "n": 1}]
    assert rows_of(kafkalog("sql", "--format", "ndjson", "-c", COUNT, tmp_path)) == [{"n": 4}]


def run_alone(
    *words: object, own: dict[str, str] | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kafkalog_cli", "sql", *map(str, words)]
    env = {**os.environ, **(own or {})}
    return subprocess.run(line, input=text, capture_output=True, text=True, check=False, env=env)


def test_queries_come_from_stdin_if_none_is_given(log: Path) -> None:
    """Several statements run one after another."""
    text = "create table t as select offset o from records;\nselect max(o) m from t; select 2 two"
    done = run_alone("--format", "ndjson", log, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == ['{"m":1}', '{"two":2}']
    done = run_alone("--format", "ndjson", log, log, text=COUNT)
    assert (done.returncode, done.stdout) == (0, '{"n":2}\n')
    done = run_alone(log, text="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no query" in done.stderr


def test_what_does_not_fit_into_memory_goes_to_files_that_are_gone_at_the_end(
    log: Path, tmp_path: Path
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    query = (
        "select count(*) n from (select range, repeat('x', 99) y from range(2000000) order by y)"
    )
    words = ("--memory-limit", "100MiB", "--format", "ndjson", "-c", query, log)
    done = run_alone(*words, own={"TMPDIR": str(place)})
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n":2000000}\n', "")
    assert list(place.iterdir()) == []


def test_an_interrupt_ends_a_long_query(log: Path, tmp_path: Path) -> None:
    query = "select count(*) from range(1000000000000) where range % 7 = 3"
    line = [sys.executable, "-m", "kafkalog_cli", "sql", "-c", query, str(log)]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own) as process:
        until(lambda: cpu_seconds(process.pid) > 1, lambda: process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (130, b"")


def test_a_reader_that_goes_away_ends_the_query_silently(log: Path) -> None:
    query = "select range from range(100000000)"
    line = [
        sys.executable,
        "-m",
        "kafkalog_cli",
        "sql",
        "--format",
        "ndjson",
        "-c",
        query,
        str(log),
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in {-signal.SIGPIPE, 128 + signal.SIGPIPE}


def test_a_missing_extra_is_told(kafkalog: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "duckdb" else found(name)
    )
    result = kafkalog("sql", "-c", COUNT, log)
    assert result.status == 5
    assert "pip install 'kafkalog[data]'" in result.stderr


@pytest.fixture
def prompted(log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that types at a prompt and returns the printed text."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def typed(keys: str) -> str:
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        errors = io.StringIO()
        monkeypatch.setattr(sys, "stdout", printed)
        monkeypatch.setattr(sys, "stderr", errors)
        with (
            create_pipe_input() as pipe,
            create_app_session(input=pipe, output=DummyOutput()),
            Database(Tables((str(log),))) as database,
        ):
            pipe.send_text(keys)
            ask(database, Damage(Outcome()), Answers(Format.TABLE))
        printed.flush()
        return printed.buffer.getvalue().decode() + errors.getvalue()  # type: ignore[attr-defined]

    return typed


def test_a_prompt_takes_statements_of_several_lines(prompted: Any, tmp_path: Path) -> None:
    """An error ends one statement only; the history is kept for the next session."""
    shown = prompted(
        "select count(*) n\rfrom records;\r"
        "selct 1;\r"
        ".tables\r.schema time_index\r.help\r"
        "create table t as select 7 seven;\rselect * from t;\r"
        ".quit\r"
    )
    for words in (
        "n\n2\n",
        "syntax error",
        "commits\n",
        "time_index (topic, partition,",
        "exit, quit",
        "seven\n    7",
    ):
        assert words in shown
    history = tmp_path / "state" / "kafkalog" / "sql-history"
    assert "from records;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_prompt_completes_tables_columns_and_keywords(log: Path) -> None:
    with Database(Tables((str(log),))) as database:
        words = completer(database)
        for begun, wanted in (
            ("select base_o", "base_offset"), ("from reco", "records"), ("selec", "select"),
            (".tab", ".tables"),
        ):  # fmt: skip
            found = words.get_completions(Document(begun), CompleteEvent())
            assert wanted in [one.text for one in found], begun


@pytest.mark.parametrize("end", ["\x04", "exit\r", "quit;\r", ".exit\r", ".quit\r"])
def test_a_prompt_ends_with_the_input_or_on_request(prompted: Any, end: str) -> None:
    assert "error" not in prompted(f"select 1;\r{end}")


def test_a_statement_is_complete_at_its_semicolon() -> None:
    assert not is_complete("select 1")
    assert not is_complete("select 1;\nfrom")
    assert is_complete("select 1\n;  ")
    assert is_complete(".tables")
    assert is_complete("quit")
    assert is_complete("")


def test_a_parent_stands_for_its_log_directories(kafkalog: Any, corpus_dir: Path) -> None:
    """A broker with two disks, as in all other commands."""
    one = state(corpus_dir, "kafka-4.3", "jbod-restarted")
    result = kafkalog("sql", "--format", "ndjson", "-c", COUNT, one.root)
    assert (result.status, json.loads(result.stdout)) == (0, {"n": 1200})
    assert result.stderr.endswith("holds 2 log directories: logs-a, logs-b\n")


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("hurt", [lambda one: one[:-1], lambda one: flip(one, 8 * 8 + 6)])
def test_damage_where_a_segment_begins_is_never_silent(
    kafkalog: Any, tmp_path: Path, segments: int, hurt: Callable[[bytes], bytes]
) -> None:
    """A torn first batch or a wrong length there is always reported, whatever the query."""
    first, second = batch(0, [record(0)]), batch(1, [record(0)])
    log = tmp_path / "orders-0"
    if segments == 2:
        write_log(log, first)
        write_log(log, hurt(second), name=f"{1:020d}")
    else:
        write_log(log, hurt(first))
    for command in (
        ["sql", "-c", COUNT],
        ["sql", "-c", "select offset, key from records"],
        ["profile"],
    ):
        result = kafkalog(*command, log)
        assert result.status == 8, command
        assert result.stderr, command
    to = tmp_path / "lake"
    assert kafkalog("export", log, "--to", to).status == 8
    [found] = rows_of_damaged(
        kafkalog("sql", "--format", "ndjson", "-c", "select * from defects", log)
    )
    assert (found["position"], found["path"]) == (0, str(max(log.glob("*.log"))))


def rows_of_damaged(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_values_have_the_types_of_their_format(kafkalog: Any, tmp_path: Path) -> None:
    """What does not decode is NULL, and the status says so; the bytes stay."""
    values = [b'{"item":"tea","n":1}', b"no json", b'{"item":"honey","n":2}', None]
    rows = [record(i, b"\0\1", value) for i, value in enumerate(values)]
    write_log(tmp_path / "orders-0", batch(0, rows))
    query = "select key, value->>'item' item, value_bytes from records order by offset"
    words = ("sql", tmp_path, "-o", "ndjson", "--key-format", "hex", "-c", query)
    plain = kafkalog(*words)
    assert (plain.status, plain.stdout) == (2, b"")
    assert "--value-format json" in plain.stderr
    typed = kafkalog(*words, "--value-format", "json")
    assert typed.status == 8
    assert typed.stderr.startswith("warning: values that are no json are NULL: ")
    assert [json.loads(line) for line in typed.stdout.splitlines()] == [
        {"key": "0x0001", "item": "tea", "value_bytes": values[0].decode()},
        {"key": "0x0001", "item": None, "value_bytes": "no json"},
        {"key": "0x0001", "item": "honey", "value_bytes": values[2].decode()},
        {"key": "0x0001", "item": None, "value_bytes": None},
    ]  # fmt: skip
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    query = "select sum(value.n) n from records where value.n > 0"
    found = kafkalog("sql", tmp_path / "orders-0", "-o", "ndjson", "--value-format", "json",
                     "--value-schema", schema, "-c", query)  # fmt: skip
    assert (found.status, found.stdout) == (8, b'{"n":3}\n')


def test_only_some_partitions_and_rows(kafkalog: Any, tmp_path: Path) -> None:
    """By globs and numbers, in each table; `-n` counts the rows of all statements."""
    for name in ("orders-0", "orders-1", "other-0"):
        write_log(tmp_path / name, batch(0, [record(0, b"k"), record(1, b"k")]))
    words = ("sql", tmp_path, "-o", "ndjson", "-c")
    for more, wanted in ((("-t", "ord*"), 4), (("-t", "!ord*"), 2), (("-p", "1-3"), 2)):
        assert rows_of(kafkalog(*words, COUNT, *more)) == [{"n": wanted}]
    (found,) = rows_of(kafkalog(*words, "select count(*) n from batches", "-p", "0"))
    assert found == {"n": 2}
    two = "select offset from records; select 7 n; select 8 n"
    assert rows_of(kafkalog(*words, two, "-t", "other", "-n", "3")) == [
        {"offset": 0}, {"offset": 1}, {"n": 7},
    ]  # fmt: skip


def test_a_query_shows_that_it_runs(kafkalog: Any, monkeypatch: pytest.MonkeyPatch):
    """Until its first row is there; not with `-q`."""
    seen = []

    @contextmanager
    def watched(words: str, *, enabled: bool) -> Iterator[None]:
        seen.append((words, enabled))
        yield
        seen.append("first row")

    monkeypatch.setattr(queries, "waiting_for", watched)
    assert (
        kafkalog("sql", "-c", COUNT, LOG_DIR).stdout
        == kafkalog("sql", "-q", "-c", COUNT, LOG_DIR).stdout
    )
    assert seen == [
        ("running the query …", True), "first row", ("running the query …", False), "first row",
    ]  # fmt: skip
