"""`--where` in all that moves or counts records, against plain code over the rows of a dump."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import kafkalog as library
from kafkalog.log.batches.condition import Condition
from kafkalog.model import Isolation, Replicas
from kafkalog.tables import Request
from tests.builders import BASE_TIME, batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]
    Row = dict[str, Any]

GZIP, TRANSACTIONAL, CONTROL = 1, 0x10, 0x20


def data(first: int, offsets: range, *, attributes: int = 0, producer: int = -1) -> bytes:
    """Build a batch of six offsets in which those that are not given were cleaned away."""
    made = []
    for i in offsets:
        value = json.dumps({"n": i, "s": "ab"[i % 2]}).encode()
        value = {7: b"no json", 16: b"\xff\xfe", 23: b"[1]"}.get(i, value)
        headers = [(b"h", b"%d" % (i % 3))]
        made.append(record(i - first, b"k%d" % (i % 5), None if i % 11 == 10 else value,
                           time_delta=i, headers=headers))  # fmt: skip
    body = b"".join(made)
    return batch(
        first, payload=gzip.compress(body) if attributes & GZIP else body, count=len(made),
        last_delta=5, attributes=attributes, max_time=BASE_TIME + max(offsets),
        producer=(producer, 0, -1 if producer < 0 else first),
    )  # fmt: skip


def marker(offset: int, producer: int, kind: int) -> bytes:
    one = record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch(offset, [one], attributes=TRANSACTIONAL | CONTROL, producer=(producer, 0, -1),
                 base_time=BASE_TIME + offset, max_time=BASE_TIME + offset)  # fmt: skip


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log that is compacted and compressed, with transactions and a torn end."""
    log = tmp_path / "broker" / "mix-0"
    write_log(
        log,
        data(0, range(0, 6, 2)),
        data(6, range(6, 12), attributes=GZIP),
        data(12, range(12, 18), attributes=TRANSACTIONAL, producer=1),
        marker(18, 1, 0),
    )
    later = [data(20, range(20, 26), attributes=GZIP | TRANSACTIONAL, producer=2),
             marker(26, 2, 1), data(27, range(27, 33)),
             data(33, range(33, 39), attributes=TRANSACTIONAL, producer=3)]  # fmt: skip
    write_log(log, *later, data(39, range(39, 45))[:-9], name=f"{20:020}")
    (log / f"{0:020}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 1, 12, 18, 19))
    (log.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    (log.parent / "replication-offset-checkpoint").write_text("0\n1\nmix 0 37\n")
    return log.parent


def part(row: Row, name: str) -> Any:
    """Return a field of a JSON object; NaN, which compares with nothing, if it is missing."""
    try:
        value = json.loads(row["value"]) if isinstance(row["value"], str) else None
    except ValueError:
        value = None
    return value.get(name, float("nan")) if isinstance(value, dict) else float("nan")


WHERE: dict[str, Callable[[Row], bool]] = {
    "value.n > 8": lambda row: part(row, "n") > 8,
    'value.s == "a" || offset < 3': lambda row: part(row, "s") == "a" or row["offset"] < 3,
    'key == "k3" && value.n < 30': lambda row: row["key"] == "k3" and part(row, "n") < 30,
    'headers["h"] == "1" && value.n % 2 == 0': lambda row: (
        row["headers"][0]["value"] == "1" and part(row, "n") % 2 == 0
    ),
    "value == null": lambda row: row["value"] is None,
}
NARROWED: tuple[tuple[str, ...], ...] = (
    (), ("--from-time", f"{BASE_TIME + 9}ms"), ("--from-offset", "8", "--to-offset", "36"),
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isolation", Isolation)
def test_searches_and_replays_take_what_matches(
    kafkalog: Run, log_dir: Path, isolation: Isolation
) -> None:
    """Within bounds of time and offset, at each isolation; what does not decode is counted."""
    for narrowed in NARROWED:
        words = (log_dir, "--isolation", isolation, *narrowed)
        dumped = kafkalog("dump-segment", *words, "-o", "ndjson").stdout.splitlines()
        everything = [json.loads(line) for line in dumped]
        rows = [row for row in everything if not row["is_control"]]
        odd = sum(row["offset"] in (7, 16) for row in rows)
        assert rows
        for where, matches in WHERE.items():
            wanted = [row["offset"] for row in rows if matches(row)]
            for command in ("dump-segment", "find"):
                found = kafkalog(command, *words, "--where", where, "-o", "ndjson")
                offsets = [json.loads(line)["offset"] for line in found.stdout.splitlines()]
                assert offsets == wanted, (command, where)
            plan = kafkalog("replay", *words, "--where", where, "-o", "ndjson")
            last = json.loads(plan.stdout.splitlines()[0])
            assert last["records"] == len(wanted), where
            if where == "value.n > 8":
                for result in (found, plan):
                    assert "Traceback" not in result.stderr
                said = re.findall(r"no answer for (\d+) value", plan.stderr)
                assert said == [str(odd)] * bool(odd)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isolation", Isolation)
def test_a_table_that_grows_gets_each_match_once(
    log_dir: Path, tmp_path: Path, isolation: Isolation
) -> None:
    """The log is there in parts at first; a commit per run, and nothing twice."""
    whole = tmp_path / "whole"
    shutil.copytree(log_dir, whole)
    (log_dir / "mix-0" / f"{20:020}.log").unlink()
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nmix 0 9\n")
    for where in WHERE:
        lake = tmp_path / f"lake-{len(where)}"
        request = Request(isolation=isolation, replicas=Replicas.BEST, where=where)
        for source in (log_dir, log_dir, whole, whole):
            plan = library.export(source, to=lake, request=request, append=True,
                                  on_event=lambda _: None)  # fmt: skip
            plan.apply()
        files = [pq.read_table(file, partitioning=None) for file in lake.rglob("*.parquet")]
        got = [offset for file in files for offset in file["offset"].to_pylist()]
        log = library.open(whole / "mix-0")
        found = log.records(isolation=isolation, data=True, on_event=lambda _: None)
        wanted = [one.offset for one in found if Condition(where).matches(one)]
        assert Counter(got) == Counter(wanted), where


CONTENTS: dict[tuple[str, ...], Callable[[Row], bool]] = {
    ("--where", "value.n > 8"): WHERE["value.n > 8"],
    ("-k", "k3", "--header", "h=1"): lambda row: (
        row["key"] == "k3" and row["headers"][0]["value"] == "1"
    ),
    ("--key-regex", "[24]$", "--value-regex", "no|a"): lambda row: (
        row["key"][-1] in "24" and re.search("no|a", row["value"] or "") is not None
    ),
}


@pytest.mark.parametrize("words", CONTENTS)
def test_an_export_has_the_records_of_a_dump_that_match(
    kafkalog: Run, log_dir: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A table that grows keeps what it selects by; what does not decode is counted."""
    levels = ("--isolation", "read_committed")
    dumped = kafkalog("dump-segment", log_dir, *levels, "-o", "ndjson").stdout.splitlines()
    rows = [row for row in map(json.loads, dumped) if not row["is_control"]]
    wanted = [row["offset"] for row in rows if CONTENTS[words](row)]
    odd = sum(row["offset"] in (7, 16) for row in rows) * ("--where" in words)
    to = tmp_path / "lake"
    first, again, other = (
        kafkalog("export", log_dir, *levels, "--to", to, "--append", "-o", "ndjson", *some)
        for some in (words, words, ("-k", "k1"))
    )
    files = [pq.read_table(file, partitioning=None) for file in to.rglob("*.parquet")]
    assert [offset for file in files for offset in file["offset"].to_pylist()] == wanted != []
    assert re.findall(r"no answer for (\d+) value", first.stderr) == [str(odd)] * bool(odd)
    assert json.loads(first.stdout.splitlines()[-1])["without_answer"] == odd
    assert json.loads(again.stdout.splitlines()[-1])["changed"] == 0
    assert (other.status, "another export" in other.stderr) == (4, True)


def test_an_export_refuses_conditions_that_it_cannot_answer(
    kafkalog: Run, log_dir: Path, tmp_path: Path
) -> None:
    """Nothing is selected by what would be ignored, or read in another way."""
    schema = tmp_path / "r.avsc"
    schema.write_text('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}')
    avro = ("--value-format", "avro", "--value-schema", schema)
    for words, said in (
        (("--table", "batches", "-k", "k1"), "Conditions select records, not rows of batches."),
        ((*avro, "--where", "value.n > 1"), "--where reads a value as JSON or text, not as avro"),
        (("--where", "value.n = 1"), "Write == to compare."),
    ):
        result = kafkalog("export", log_dir, "--to", tmp_path / "lake", *words)
        assert (result.status, said in result.stderr) == (2, True), words
    assert not (tmp_path / "lake").exists()


def test_what_has_no_conditions_names_what_has(kafkalog: Run) -> None:
    result = kafkalog("profile", "examples/log-dir", "--where", "value.n > 8")
    assert result.status == 2
    assert "kafkalog find PATH --where" in result.stderr
