"""kafkalog against what a real Kafka broker wrote a moment ago, and what Kafka reads from it.

The same claims as for the golden corpus, with data that nobody has seen before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import seconds
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.broker_data import BrokerData
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

STATES = ("clean", "live")
# the endings of the recorded outputs, one test each
DUMPS = {
    "log": (".log.txt", ".checkpoint.txt"),
    "log-shallow": (".log.shallow.txt", ".checkpoint.shallow.txt"),
    "log-deep": (".log.deep.txt", ".checkpoint.deep.txt"),
    "log-plain": (".log.plain.txt", ".checkpoint.plain.txt"),
    "log-part": (".log.part.txt", ".checkpoint.part.txt"),
    "log-decoded": (".decoded.txt",),
    "index": (".index.txt", ".timeindex.txt"),
    "index-verify": (".verify.txt",),
    "index-sanity": (".sanity.txt",),
    "txnindex": (".txnindex.txt",),
    "snapshot": (".snapshot.txt",),
    "deleted": (".deleted.txt",),
}
PER_CALL = 100  # queries on one command line
WHOLE_BYTES_MAX = 1024
SHOWN_MAX = 5


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def log_dir(
    broker: BrokerData, state: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[broker_data.Path]:
    """A log directory as the working directory; bytes, names, sizes and times must not change."""
    print("seed", broker.facts["seed"])
    path = broker.log_dir(state)
    before = broker_data.fingerprint(path)
    monkeypatch.chdir(path)
    yield path
    assert broker_data.fingerprint(path) == before


def rows(kafkalog: Callable[..., Any], *argv: object) -> list[dict[str, Any]]:
    result = kafkalog(*argv, "--format", "ndjson")
    assert result.status in (0, 1), (argv, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def first_difference(got: bytes, wanted: bytes) -> str:
    pairs = zip(got.splitlines(), wanted.splitlines(), strict=False)
    for number, (ours, kafkas) in enumerate(pairs, 1):
        if ours != kafkas:
            return f"line {number}:\n  ours  {ours[:600]!r}\n  Kafka {kafkas[:600]!r}"
    return f"{len(got)} bytes, Kafka {len(wanted)}: {got[-200:]!r}, Kafka {wanted[-200:]!r}"


def fail_on(differences: list[str], total: int) -> None:
    shown = "\n".join(differences[:SHOWN_MAX])
    assert not differences, f"{len(differences)} of {total} differ, the first ones:\n{shown}"


def expected_bytes(wanted: Any, got: str | None) -> Any:
    """Return the expected bytes; if the corpus has only a digest, return the digest of `got`."""
    if not isinstance(wanted, dict):
        return wanted
    raw = bytes.fromhex(got or "")
    return got if wanted == {"len": len(raw), "sha256": hashlib.sha256(raw).hexdigest()} else wanted


def test_broker_data_hold_what_they_promise(broker: BrokerData) -> None:
    """A harness that compares nothing proves nothing: every special case must be in the data."""
    records = {partition: list(broker.records(partition)) for partition in broker.partitions()}
    of_codecs = [r for p, rs in records.items() if p.startswith("codec-") for r in rs]
    assert len(of_codecs) == 5 * 700
    for field in ("key", "value"):
        assert {None, ""} <= {r[field] for r in of_codecs if not isinstance(r[field], dict)}
    assert any(isinstance(r["value"], dict) for r in of_codecs)
    headers = [r["headers"] for r in of_codecs]
    assert any(len({name for name, _ in hs}) < len(hs) for hs in headers)
    assert {None, ""} <= {value for hs in headers for _, value in hs}
    assert {r["timestampType"] for r in records["append-time-0"]} == {"LogAppendTime"}
    times = [r["timestamp"] for r in records["out-of-order-0"]]
    assert times != sorted(times)
    assert min(times) == 0

    transactions = broker.lookups["a.b_c-1-0"]
    assert transactions["lastStableOffset"]["offset"] < transactions["latest"]["offset"]
    assert any("readCommitted" in query for query in transactions["timestamps"])
    committed = broker.committed_offsets("a.b_c-1-0")
    assert 0 < len(committed) < len(records["a.b_c-1-0"])

    compacted = broker.facts["partitions"]["compacted-0"]["records"]
    assert 0 < compacted < broker.lookups["compacted-0"]["latest"]["offset"] / 2
    assert broker.lookups["trimmed-0"]["earliest"]["offset"] == records["trimmed-0"][0]["offset"]
    assert list(broker.log_dir("clean").glob("trimmed-0/*.deleted"))
    sizes = {s: (broker.log_dir(s) / "default-config-0" / f"{0:020}.index").stat() for s in STATES}
    assert sizes["live"].st_size == 10 << 20
    assert sizes["live"].st_blocks * 512 < 1 << 20
    assert sizes["clean"].st_size < 1 << 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", DUMPS)
def test_dump_prints_the_bytes_of_kafkas_tool(
    broker: BrokerData, state: str, log_dir: Any, kafkalog: Callable[..., Any], kind: str
) -> None:
    """Scripts that parse kafka-dump-log.sh must not see a difference.

    Where the tool itself fails with an exception, ours must not, and its output starts with the
    same bytes.
    """
    assert log_dir
    calls = {n: c for n, c in broker.dumps(state).items() if n.endswith(DUMPS[kind])}
    assert calls
    differences = []
    for name, call in calls.items():
        wanted = (broker.dump_dir(state) / name).read_bytes()
        result = kafkalog("kafka-dump-log", *call["args"])
        same = result.stdout == wanted if call["exit"] == 0 else result.stdout.startswith(wanted)
        if not same or result.status not in (0, 1):
            words = f"status {result.status} {result.stderr.strip()[:300]}"
            found = first_difference(result.stdout, wanted)
            differences.append(f"{' '.join(call['args'])}: {words}\n{found}")
    fail_on(differences, len(calls))


def test_every_recorded_dump_belongs_to_a_test(broker: BrokerData) -> None:
    """Nobody would compare an output with an unknown suffix."""
    known = tuple(ending for endings in DUMPS.values() for ending in endings)
    for state in STATES:
        assert [name for name in broker.dumps(state) if not name.endswith(known)] == []


@pytest.mark.sampled(2)
def test_records_are_those_of_a_consumer(
    broker: BrokerData, log_dir: Any, kafkalog: Callable[..., Any]
) -> None:
    """Offsets, times, keys, values and headers; null, empty and absent stay different."""
    differences = []
    for partition in broker.partitions():
        start = broker.lookups[partition]["earliest"]["offset"]
        argv = ("dump-segment", log_dir / partition, "--key-format", "hex", "--value-format", "hex")
        got = [
            row
            for row in rows(kafkalog, *argv)
            if row["type"] == "record" and not row["is_control"] and row["offset"] >= start
        ]
        wanted = list(broker.records(partition))
        if [row["offset"] for row in got] != [record["offset"] for record in wanted]:
            differences.append(f"{partition}: {len(got)} offsets, consumer {len(wanted)}")
            continue
        for ours, theirs in zip(got, wanted, strict=True):
            seen = {name: ours[name] for name in ("timestamp", "timestamp_type", "key", "value")}
            seen["headers"] = [[header["key"], header["value"]] for header in ours["headers"]]
            headers = zip(theirs["headers"], ours["headers"], strict=False)
            told = {
                "timestamp": theirs["timestamp"],
                "timestamp_type": theirs["timestampType"],
                "key": expected_bytes(theirs["key"], ours["key"]),
                "value": expected_bytes(theirs["value"], ours["value"]),
                "headers": [[h[0], expected_bytes(h[1], o["value"])] for h, o in headers],
            }
            if seen != told or len(theirs["headers"]) != len(ours["headers"]):
                differences.append(f"{partition} {ours['offset']}:\n  {seen}\n  {told}")
    fail_on(differences, sum(p["records"] for p in broker.facts["partitions"].values()))


@pytest.mark.sampled(2)
def test_read_committed_offsets_are_those_of_a_consumer(
    broker: BrokerData, log_dir: Any, kafkalog: Callable[..., Any]
) -> None:
    """Aborted records and everything after the first open transaction stay hidden."""
    differences = []
    for partition in broker.partitions():
        start = broker.lookups[partition]["earliest"]["offset"]
        argv = ("dump-segment", log_dir / partition, "--isolation", "read_committed")
        got = [
            row["offset"]
            for row in rows(kafkalog, *argv)
            if row["type"] == "record" and not row["is_control"] and row["offset"] >= start
        ]
        wanted = broker.committed_offsets(partition)
        if got != wanted:
            odd = sorted(set(got) ^ set(wanted))
            differences.append(f"{partition}: differs at {odd[:20]}")
    fail_on(differences, len(broker.partitions()))


def answers(
    kafkalog: Callable[..., Any], partition: Any, option: str, queries: list[Any], isolation: str
) -> list[tuple[int, int, int]]:
    """Return offset, timestamp and leader epoch per query, as ListOffsets does; -1 is none."""
    out = []
    for at in range(0, len(queries), PER_CALL):
        part = queries[at : at + PER_CALL]
        is_time = option == "--timestamp"
        argv = [word for one in part for word in (option, seconds(one) if is_time else one)]
        result = kafkalog(
            "lookup-offset", partition, *argv, "--isolation", isolation, "--format", "ndjson"
        )
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["type"] for row in found] == ["lookup"] * len(part), result.stderr
        assert [row["query"] for row in found] == [{option[2:]: query} for query in part]
        assert result.status == (0 if all(row["found"] for row in found) else 1), result.stderr
        for row in found:
            values = [row[name] for name in ("offset", "timestamp", "leader_epoch")]
            out.append(
                tuple(-1 if value is None else value for value in values)
                if row["found"]
                else (-1, -1, -1)
            )
    return out


def listed(answer: dict[str, int]) -> tuple[int, int, int]:
    return answer["offset"], answer["timestamp"], answer["leaderEpoch"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_timestamp_lookups_answer_like_list_offsets(
    broker: BrokerData, log_dir: Any, kafkalog: Callable[..., Any], isolation: str
) -> None:
    """Boundaries of records and segments and their neighbours, times before and after all data."""
    differences = []
    total = 0
    for partition in broker.partitions():
        queries = broker.lookups[partition]["timestamps"]
        targets = [query["target"] for query in queries]
        got = answers(kafkalog, log_dir / partition, "--timestamp", targets, isolation)
        for query, ours in zip(queries, got, strict=True):
            committed = query.get("readCommitted", query)
            wanted = listed(query if isolation == "read_uncommitted" else committed)
            if ours != wanted:
                differences.append(f"{partition} {query['target']}: {ours}, broker {wanted}")
        total += len(queries)
    fail_on(differences, total)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_special_lookups_answer_like_list_offsets(
    broker: BrokerData, log_dir: Any, kafkalog: Callable[..., Any], isolation: str
) -> None:
    """Log start, end or last stable offset, and the first record with the largest timestamp."""
    names = ["earliest", "latest", "max-timestamp"]
    differences = []
    for partition in broker.partitions():
        told = broker.lookups[partition]
        wanted = [told["earliest"], told["latest"], told["maxTimestamp"]]
        if isolation == "read_committed":
            stable = told.get("maxTimestampReadCommitted", told["maxTimestamp"])
            wanted = [told["earliest"], told["lastStableOffset"], stable]
        got = answers(kafkalog, log_dir / partition, "--special", names, isolation)
        differences += [
            f"{partition} {name}: {ours}, broker {listed(theirs)}"
            for name, ours, theirs in zip(names, got, wanted, strict=True)
            if ours != listed(theirs)
        ]
    fail_on(differences, len(names) * len(broker.partitions()))


def test_fetch_positions_are_those_of_the_storage_classes(
    broker: BrokerData, oracle: Oracle, kafkalog: Callable[..., Any], tmp_path: Any
) -> None:
    """`UnifiedLog.read` for every offset: segment, position, batch, first record at or above it.

    The cleaner leaves empty batches and segments, over which the first record must be found.
    """
    shutil.copytree(broker.log_dir("clean"), tmp_path / "copy")
    recorded = json.loads((broker.expected / "lookup.json").read_text())
    differences, total = [], 0
    for name in ("compacted-twice-0", "compacted-0", "trimmed-0", "a.b_c-1-0"):
        partition = broker.log_dir("clean") / name
        [end] = rows(kafkalog, "lookup-offset", partition, "--special", "latest")
        offsets = [str(offset) for offset in range(end["offset"] + 2)]
        # Without it the oracle would begin at the first segment, not where DeleteRecords cut.
        options = ["--log-start", str(recorded[name]["earliest"]["offset"])]
        options += [word for offset in offsets for word in ("--offset", offset)]
        read = oracle.ask("lookup", str(tmp_path / "copy" / name), *options)
        got = rows(kafkalog, "lookup-offset", partition, "--isolation", "log", *offsets)
        for row, wanted in zip(got, read["offsets"], strict=True):
            total += 1
            found = None
            if row["found"]:
                base = int(os.path.basename(row["segment"]).partition(".")[0])
                found = (base, row["position"], row["size_bytes"], row["batch_base_offset"],
                         row["batch_last_offset"], row["offset"])  # fmt: skip
            expected = None
            if "position" in wanted:
                expected = (wanted["segmentBase"], wanted["position"], wanted["batchSize"],
                            wanted["batchBaseOffset"], wanted["batchLastOffset"],
                            wanted["firstRecordOffset"])  # fmt: skip
            if found != expected:
                differences.append(f"{name} {wanted['offset']}: {found}, Kafka {expected}")
    fail_on(differences, total)


def test_a_process_of_its_own_prints_the_same(broker: BrokerData, log_dir: Any) -> None:
    """The other tests run inside pytest; stdout of a real process must carry the same bytes."""
    name = f"codec-zstd-0/{0:020}.log.txt"
    args = broker.dumps(log_dir.name)[name]["args"]
    command = [sys.executable, "-m", "kafkalog_cli", "kafka-dump-log", *args]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, env=env, cwd=log_dir, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (broker.dump_dir(log_dir.name) / name).read_bytes()


def test_dump_batch_answers_in_the_order_of_its_calls(harness: None, tmp_path: Any) -> None:
    """One JVM for many DumpLogSegments calls; a wrong call must not end it."""
    assert harness is None
    (tmp_path / "0.log").touch()
    calls = [["--files", "0.log"], ["--no-such-option"], ["--files", "nothing.txt"]]
    empty, wrong, unknown = broker_data.dump(calls, tmp_path)
    assert (empty.exit, empty.stdout) == (0, b"Dumping 0.log\nLog starting offset: 0\n")
    assert wrong.exit == 1
    assert (unknown.exit, unknown.stdout) == (0, b"Dumping nothing.txt\n")
    assert "Ignoring unknown file" in unknown.stderr
