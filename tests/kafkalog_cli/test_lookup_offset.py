"""`lookup-offset`, compared with brokers, Admin.listOffsets and Kafka's storage classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalog.node import lookup
from tests.builders import BASE_TIME, batch, record, seconds, write_log
from tests.conftest import SCENARIOS, State

PARTITION = "examples/log-dir/orders-0"

# The leader epoch of `latest` is the running leader's own. Where it is not (yet, or any more) in
# leader-epoch-checkpoint, no reader of the disk can know it.
EPOCH_OFF_DISK = {
    # Kafka 2.8 keeps no epochs for topics of magic 0 and 1.
    ("latest", "kafka-2.8/compact-before"),
    ("latest", "kafka-2.8/compact-after"),
    ("latest", "kafka-2.8/compact-after2"),
    ("latest", "kafka-2.8/crash"),
    ("latest", "kafka-2.8/v0"),
    ("latest", "kafka-2.8/v1"),
    # The broker was asked before two more starts, each of which began an epoch.
    ("latest", "kafka-4.3/interrupted-0-cleaned"),
    # A log that was moved to another directory has no record of the last epoch.
    ("latest", "kafka-4.4/jbod-restarted"),
}


def state_of(state: State) -> str:
    return f"{state.root.parent.name}/{state.name}"


def lookups(kafkalog: Any, partition: Path, *arguments: object) -> list[dict[str, Any]]:
    result = kafkalog("lookup-offset", partition, "--format", "ndjson", *arguments)
    assert result.status in (0, 1), result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def answer(found: dict[str, Any]) -> tuple[int, int]:
    """Return offset and timestamp as ListOffsets does, with -1 for none."""
    if not found["found"]:
        return -1, -1
    return found["offset"], found["timestamp"]


def epoch(expected: dict[str, Any]) -> int | None:
    number = expected.get("leaderEpoch", -1)
    return None if number == -1 else number


def served(state: State) -> list[tuple[Path, dict[str, Any]]]:
    """Return the live partition directories with recorded answers of the broker."""
    path = state.expected / "lookup.json"
    if not path.exists():
        return []
    recorded = json.loads(path.read_text())
    return [
        (partition, recorded[partition.name])
        for partition in state.partitions()
        if partition.name in recorded
    ]


@pytest.mark.sampled(18)
def test_timestamps_get_the_brokers_answers(any_state: State, kafkalog: Any) -> None:
    """Admin.listOffsets (4.3) and offsetsForTimes (2.8) were called while the broker ran."""
    for partition, recorded in served(any_state):
        if "timestamps" in recorded:
            wanted = [
                (query["target"], (query["offset"], query["timestamp"]), epoch(query))
                for query in recorded["timestamps"]
            ]
        else:
            wanted = [
                (
                    query["time"],
                    (query["answer"]["offset"], query["answer"]["timestamp"])
                    if query["answer"]
                    else (-1, -1),
                    epoch(query["answer"] or {}),
                )
                for query in recorded.get("offsetsForTimes", ())
            ]
        options = [word for target, _, _ in wanted for word in ("--timestamp", seconds(target))]
        if not options:
            continue
        got = lookups(kafkalog, partition, *options)
        assert [(row["query"]["timestamp"], answer(row), row["leader_epoch"]) for row in got] == (
            wanted
        ), partition


@pytest.mark.sampled(9)
def test_special_timestamps_get_the_brokers_answers(any_state: State, kafkalog: Any) -> None:
    """Earliest, latest, the last stable offset and, since 3.0, the largest timestamp.

    The only running replica knows that everything is replicated; its last checkpoint may be older.
    """
    for partition, recorded in served(any_state):
        queries = {"earliest": "earliest", "latest": "latest"}
        if "maxTimestamp" in recorded:
            queries["max-timestamp"] = "maxTimestamp"
        options = ["--high-watermark", "end"]
        options += [word for name in queries for word in ("--special", name)]
        got = lookups(kafkalog, partition, *options)
        for row, name in zip(got, queries.values(), strict=True):
            expected = recorded[name]
            assert answer(row) == (expected["offset"], expected["timestamp"]), (partition, name)
            if "leaderEpoch" in expected and (name, state_of(any_state)) not in EPOCH_OFF_DISK:
                assert row["leader_epoch"] == epoch(expected), (partition, name)
        stable = recorded.get("lastStableOffset") or recorded["latest_read_committed"]
        options = [
            "--special",
            "latest",
            "--isolation",
            "read_committed",
            "--high-watermark",
            "end",
        ]
        [row] = lookups(kafkalog, partition, *options)
        assert row["offset"] == stable["offset"], partition


@pytest.mark.sampled(3)
def test_read_committed_hides_what_the_broker_hides(any_state: State, kafkalog: Any) -> None:
    """An answer at or after the last stable offset is left out."""
    for partition, recorded in served(any_state):
        different = [q for q in recorded.get("timestamps", ()) if "readCommitted" in q]
        if not different:
            continue
        times = [seconds(query["target"]) for query in different]
        options = [word for time in times for word in ("--timestamp", time)]
        got = lookups(kafkalog, partition, "--isolation", "read_committed", *options)
        wanted = [
            (query["readCommitted"]["offset"], query["readCommitted"]["timestamp"])
            for query in different
        ]
        assert [answer(row) for row in got] == wanted, partition


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_offsets_are_where_the_storage_classes_read_them(
    scenario: str, corpus_dir: Path, kafkalog: Any
) -> None:
    """`UnifiedLog.read` of Kafka 4.3: segment, position, batch and first record for each offset."""
    facts = json.loads((corpus_dir / "lookup" / scenario / "facts.json").read_text())
    partition = log_of(corpus_dir, scenario)
    queries = [query for query in facts["answers"]["offsets"] if query["offset"] >= 0]
    got = lookups(kafkalog, partition, *(query["offset"] for query in queries))
    assert len(got) == len(queries) > 0
    for row, expected in zip(got, queries, strict=True):
        if "error" in expected or expected.get("empty"):
            assert not row["found"], expected
            continue
        assert row["found"], expected
        assert int(Path(row["segment"]).stem) == expected["segmentBase"], expected
        assert row["position"] == expected["position"], expected
        assert row["size_bytes"] == expected["batchSize"], expected
        assert row["batch_base_offset"] == expected["batchBaseOffset"], expected
        assert row["batch_last_offset"] == expected["batchLastOffset"], expected
        if "firstRecordOffset" in expected:
            assert row["offset"] == expected["firstRecordOffset"], expected


@pytest.mark.sampled(6)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_timestamps_get_the_storage_classes_answers(
    scenario: str, corpus_dir: Path, kafkalog: Any
) -> None:
    """`UnifiedLog.fetchOffsetByTimestamp` of Kafka 4.3, special timestamps included."""
    facts = json.loads((corpus_dir / "lookup" / scenario / "facts.json").read_text())
    partition = log_of(corpus_dir, scenario)
    special = {-1: "latest", -2: "earliest", -3: "max-timestamp"}
    # -4 to -6 are about tiered storage, which these logs do not have.
    queries = [query for query in facts["answers"]["timestamps"] if query["timestamp"] >= -3]
    assert queries
    for expected in queries:
        timestamp = expected["timestamp"]
        option = ("--timestamp", seconds(timestamp))
        if timestamp in special:
            option = ("--special", special[timestamp])
        [row] = lookups(kafkalog, partition, *option)
        if expected["offset"] is None:
            assert not row["found"], expected
            continue
        assert row["offset"] == expected["offset"], expected
        assert row["timestamp"] == expected["foundTimestamp"], expected
        assert row["leader_epoch"] == expected["leaderEpoch"], expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scanning_finds_what_the_indexes_find(
    scenario: str, corpus_dir: Path, kafkalog: Any
) -> None:
    """`--no-index` compares both ways; on sound logs they agree, and nothing is reported."""
    facts = json.loads((corpus_dir / "lookup" / scenario / "facts.json").read_text())
    offsets = [q["offset"] for q in facts["answers"]["offsets"] if "position" in q]
    rows = lookups(kafkalog, log_of(corpus_dir, scenario), "--no-index", *offsets)
    assert [row["type"] for row in rows] == ["lookup"] * len(offsets)


@pytest.mark.parametrize("special", ["latest", "max-timestamp"])
def test_what_is_appended_between_the_two_ways_is_no_difference(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch, special: str
) -> None:
    """With a running broker, both answers refer to the same moment."""
    log = write_log(tmp_path / "orders-0", one_batch(0))
    asked = lookup.lookup_special

    def appending(*arguments: Any, **options: Any) -> lookup.Lookup:
        found = asked(*arguments, **options)
        with log.open("ab") as file:
            file.write(one_batch(found.offset + 1))
        return found

    monkeypatch.setattr(lookup, "lookup_special", appending)
    monkeypatch.setattr("kafkalog.node.unified_log.is_broker_running", lambda _: True)
    options = ("--special", special, "--isolation", "log", "--no-index", "--format", "ndjson")
    result = kafkalog("lookup-offset", tmp_path / "orders-0", *options)
    [row] = map(json.loads, result.stdout.splitlines())
    assert (result.status, row["type"]) == (0, "lookup")


def one_batch(offset: int) -> bytes:
    """Return a batch of one record whose timestamp grows with its offset."""
    return batch(
        offset, [record(0, b"k", b"v")], base_time=BASE_TIME + offset, max_time=BASE_TIME + offset
    )


def log_of(corpus_dir: Path, scenario: str) -> Path:
    [found] = (corpus_dir / "lookup" / scenario).glob("**/orders-0")
    return found


@pytest.mark.sampled(9)
def test_a_log_directory_answers_with_each_of_its_partitions(any_state: State, kafkalog: Any):
    """Each answer equals the broker's. Rows name the partition, and each is asked once."""
    recorded = {partition.name: answers for partition, answers in served(any_state)}
    times = {
        query["target"] for answers in recorded.values() for query in answers.get("timestamps", ())
    }
    if not times:
        return
    words = [word for time in sorted(times)[:6] for word in ("--timestamp", seconds(time))]
    rows = lookups(kafkalog, any_state.root, *words, "--internal")
    live = [path for path in any_state.partitions() if "." not in path.name]
    assert len(rows) == len(words) // 2 * len({path.name for path in live})
    found = {(f"{row['topic']}-{row['partition']}", row["query"]["timestamp"]): row for row in rows}
    for name, answers in recorded.items():
        for query in answers.get("timestamps", ()):
            row = found.get((name, query["target"]))
            assert row is None or answer(row) == (query["offset"], query["timestamp"])


def test_an_export_is_where_kafkas_tool_would_reset_to(tmp_path: Path, kafkalog: Any) -> None:
    """`--to-datetime` takes the end if no record is at or after it; `--to-offset` stays in range.

    ConsumerGroupCommand.OffsetsUtils of Kafka 4.3: getLogTimestampOffsets, checkOffsetsRange.
    """
    for number, count in enumerate((3, 6, 0)):
        batches = [
            batch(offset, [record()], base_time=BASE_TIME + offset, max_time=BASE_TIME + offset)
            for offset in range(count)
        ]
        write_log(tmp_path / "logs" / f"orders-{number}", *batches)
    write_log(tmp_path / "logs" / "__consumer_offsets-0", batch(0, [record()]))
    wanted = {
        ("--timestamp", BASE_TIME + 4): "orders,0,3\norders,1,4\norders,2,0\n",
        ("4",): "orders,0,3\norders,1,4\norders,2,0\n",
        ("--special", "latest"): "orders,0,3\norders,1,6\norders,2,0\n",
    }
    for number, (words, text) in enumerate(wanted.items()):
        result = kafkalog("lookup-offset", tmp_path / "logs", *words, "-o", "reset-offsets")
        assert (result.status, result.stdout.decode()) == (0, text)
        assert ("2 partitions without such a record" in result.stderr) == (number < 2)
        assert "note: 1 internal partition left out" in result.stderr
    late = kafkalog("lookup-offset", tmp_path / "logs", "--timestamp", BASE_TIME + 99)
    assert late.status == 1, "no partition has an answer"


def test_the_best_replica_answers(tmp_path: Path, kafkalog: Any) -> None:
    """The replica with the longest log answers; with all replicas, rows name the directory."""
    for broker, count in (("broker-1", 2), ("broker-2", 5)):
        batches = [batch(offset, [record()]) for offset in range(count)]
        write_log(tmp_path / broker / "orders-0", *batches)
    [best] = lookups(kafkalog, tmp_path, "--special", "latest")
    assert (best["offset"], best["log_dir"]) == (5, str(tmp_path / "broker-2"))
    both = lookups(kafkalog, tmp_path, "--special", "latest", "--replicas", "all")
    assert [row["offset"] for row in both] == [2, 5]
    table = kafkalog("lookup-offset", tmp_path, "--special", "latest", "--replicas", "all")
    assert table.stdout.decode().split()[:2] == ["DIRECTORY", "PARTITION"]


def test_one_damaged_partition_costs_only_its_answer(tmp_path: Path, kafkalog: Any) -> None:
    """The others answer; the status says that the answer is incomplete."""
    for number in range(3):
        log = write_log(tmp_path / f"orders-{number}", batch(0, [record(value=b"x" * 99)]))
        if number == 1:
            data = bytearray(log.read_bytes())
            data[61] ^= 0xFF  # the length of the record
            log.write_bytes(data)
    result = kafkalog("lookup-offset", tmp_path, "--timestamp", "0", "--format", "ndjson")
    assert result.status not in (0, 1)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["partition"] for row in rows] == [0, 2]


@pytest.mark.parametrize(("text", "readings", "hint"), [
    ("1704067460", ("1970-01-20T17:21:07.460Z in ms", "2024-01-01T00:04:20.000Z in s"),
     "Write @1704067460 or 1704067460ms."),
    ("-60000", ("1969-12-31T23:59:00.000Z in ms", "1969-12-31T07:20:00.000Z in s"),
     "Write @-60000 or 1969-12-31T23:59:00.000Z."),
    ("1704067460000000", ("1970-01-20T17:21:07.460Z in ns", "2024-01-01T00:04:20.000Z in us"),
     "Write 1704067460000000us or 1970-01-20T17:21:07.460Z."),
    ("1704067460000000000", ("2024-01-01T00:04:20.000Z in ns",),
     "Write 2024-01-01T00:04:20.000Z."),
])  # fmt: skip
def test_a_number_whose_unit_is_open_is_refused(
    kafkalog: Any, tmp_path: Path, text: str, readings: tuple[str, ...], hint: str
) -> None:
    """Wherever a command takes a time; what the hint says is taken."""
    to = tmp_path / "page.html"
    for words in (
        ("lookup-offset", PARTITION, f"--timestamp={text}"),
        ("dump-segment", PARTITION, f"--from-time={text}"),
        ("find", PARTITION, "--key", "user-1", f"--to-time={text}"),
        ("retention", PARTITION, f"--now={text}", "--until", "+1d"),
        ("du", PARTITION, "--forecast", "--now", "1704067460000", f"--until={text}"),
        ("groups", "examples/log-dir", f"--at={text}"),
        ("transactions", "examples/log-dir", f"--at={text}"),
        ("compact", PARTITION, f"--now={text}"),
        ("recover", PARTITION, f"--now={text}"),
        ("report", PARTITION, f"--now={text}", "--to", to),
        ("lookup-offset", PARTITION, "--timestamp", "-1s", f"--now={text}"),
    ):
        result = kafkalog(*words)
        assert (result.status, result.stdout) == (2, b""), words
        assert f"{text} is {' and '.join(readings)}." in " ".join(result.stderr.split()), words
        assert f"hint: {hint}" in result.stderr, words
    for word in hint.removeprefix("Write ").rstrip(".").split(" or "):
        assert kafkalog("lookup-offset", PARTITION, f"--timestamp={word}").status in (0, 1)


@pytest.mark.parametrize("text", [
    "1704067460000", "@1704067460", "@1704067460.0004", "1704067460s", "1704067460000ms",
    "1704067460000000us", "2024-01-01T00:04:20", "2024-01-01T01:04:20+01:00",
])  # fmt: skip
def test_one_moment_has_many_spellings(kafkalog: Any, text: str) -> None:
    result = kafkalog("lookup-offset", PARTITION, "--timestamp", text, "--format", "ndjson")
    assert json.loads(result.stdout)["offset"] == 260


def test_relative_times_count_from_now(kafkalog: Any) -> None:
    result = kafkalog("lookup-offset", PARTITION, "--timestamp", "-10s", "--now", "@1704067470",
                      "--format", "ndjson")  # fmt: skip
    assert json.loads(result.stdout)["offset"] == 260
