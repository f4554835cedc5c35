"""`replay` into a real broker: its consumers get what the source's consumers got."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kafkalog.wire.producing import cluster
from tests.builders import batch, record, write_log
from tests.conftest import State, state
from tests.kafka import broker_data
from tests.sampling import new_seed, tries_everything
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result
    from tests.kafka.booted import Brokers

    Kafkalog = Callable[..., Result]

pytestmark = pytest.mark.kafka

KILLS: Final = 20 if tries_everything() else 3
WAIT_S: Final = 60
SMALL_TRANSACTIONS: Final = """
import sys
from kafkalog.wire.producing import run, sending
from kafkalog_cli.main import main

def saying(word, do):
    say = lambda: print(word, flush=True, file=sys.stderr)
    return lambda *args, **options: (do(*args, **options), say())[0]

run._COMMIT_RECORDS = 7
sending.Sending.commit = saying("committed", sending.Sending.commit)
sending.Sending.send = saying("sent", sending.Sending.send)
main()
"""


class Broker(NamedTuple):
    """A broker: its address, and topic names that nobody has used."""

    bootstrap: str
    names: Iterator[int]

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def new_name(self) -> str:
        return f"replayed-{next(self.names)}"

    def create(self, partitions: int, **config: str) -> str:
        name = self.new_name()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin = self.admin  # answers come as long as it is there
        admin.create_topics([topic])[name].result(WAIT_S)
        return name

    def read(
        self, topic: str, partition: int = 0, isolation: str = "read_committed", first: int = 0
    ) -> list[Any]:
        """Return what a consumer gets up to the high watermark.

        A coordinator answers a commit before it writes the markers: until they are there, the last
        stable offset is lower, and the consumer sees an end there.
        """
        place = TopicPartition(topic, partition)
        admin = self.admin  # answers come as long as it is there
        latest = admin.list_offsets({place: OffsetSpec.latest()})[place].result(WAIT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "reader",
                "enable.partition.eof": True, "isolation.level": isolation,
                "enable.auto.commit": False, "auto.offset.reset": "error",
            }
        )  # fmt: skip
        found = []
        try:
            consumer.assign([TopicPartition(topic, partition, first)])
            while True:
                message = consumer.poll(WAIT_S)
                assert message is not None, "the broker does not answer"
                if message.error() is not None:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    if message.offset() >= latest.offset:
                        return found
                    continue
                found.append(message)
        finally:
            consumer.close()

    def await_groups(self) -> None:
        """Wait for what is created before the first answer; `replay` waits only a minute."""
        admin = self.admin  # ends before the broker: librdkafka may hang where it ends after it
        until(lambda: admin.describe_consumer_groups(["reader"])["reader"].exception() is None)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        admin = self.admin
        answers = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        places = answers[group].result(WAIT_S).topic_partitions
        return {(one.topic, one.partition): one.offset for one in places}


@pytest.fixture(scope="module")
def target(brokers: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; it has no topics at first."""
    with brokers.on(tmp_path_factory.mktemp("target") / "log") as running:
        broker = Broker(f"127.0.0.1:{running.port}", count())
        broker.await_groups()
        yield broker


def digest_of(data: bytes | None) -> Any:
    if data is None or len(data) <= 1024:
        return None if data is None else data.hex()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def told(message: Any) -> dict[str, Any]:
    """Return a record as the corpus writes it, without its offset."""
    return {
        "timestamp": message.timestamp()[1],
        "key": digest_of(message.key()),
        "value": digest_of(message.value()),
        "headers": [[name, digest_of(value)] for name, value in message.headers() or ()],
    }


def expected(one: State, partition: str) -> list[dict[str, Any]]:
    """Return what a consumer of the source got; librdkafka sends no timestamp 0."""
    with (one.expected / "records" / f"{partition}.ndjson").open() as lines:
        return [json.loads(line) for line in lines]


def without_place(record: dict[str, Any]) -> dict[str, Any]:
    found = {name: record[name] for name in ("timestamp", "key", "value", "headers")}
    return {**found, "timestamp": found["timestamp"] or 1}


def user_partitions(one: State) -> list[Path]:
    """Return the partitions that a consumer read; others are about to be deleted."""
    return [
        path
        for path in one.partitions()
        if not path.name.startswith("__")
        and (one.expected / "records" / f"{path.name}.ndjson").exists()
    ]


def renamed(broker: Broker, one: State) -> tuple[dict[str, str], list[str]]:
    """Return a name in the cluster for each topic, and the options that map them."""
    topics = sorted({path.name.rpartition("-")[0] for path in user_partitions(one)})
    names = {topic: broker.new_name() for topic in topics}
    words = [word for old, new in names.items() for word in ("--topic-map", f"{old}={new}")]
    return names, words


def objects(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [row for row in found if row["type"] == kind]


STATES: Final = ("codecs", "txn", "timestamps", "default-config-live", "internal-topics")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STATES)
def test_a_consumer_gets_what_the_consumer_of_the_source_got(
    name: str, target: Broker, corpus_dir: Path, kafkalog: Kafkalog, tmp_path: Path
) -> None:
    """Compressed, null, empty and large keys and values, headers, tombstones, and all times."""
    one = state(corpus_dir, "kafka-4.3", name)
    names, words = renamed(target, one)
    result = kafkalog(
        "replay", *one.log_dirs, *words, "--bootstrap", target.bootstrap, "--create-topics",
        "--apply", "--progress", tmp_path / "run", "--keep-partitions", "--isolation", "log",
        "--format", "ndjson",
    )  # fmt: skip
    zero_timestamps = records = 0
    for path in user_partitions(one):
        topic, _, number = path.name.rpartition("-")
        rows = expected(one, path.name)
        got = [told(message) for message in target.read(names[topic], int(number))]
        wanted = [without_place(row) for row in rows]
        if any(row["timestampType"] == "LogAppendTime" for row in rows):  # so is the new topic
            assert (
                f"warning: {names[topic]} has message.timestamp.type=LogAppendTime" in result.stderr
            )
            got, wanted = ([one | {"timestamp": 0} for one in some] for some in (got, wanted))
        assert got == wanted
        zero_timestamps += sum(row["timestamp"] == 0 for row in rows)
        records += len(rows)
    assert result.status == (8 if zero_timestamps else 0), result.stderr
    assert sum(row["records"] for row in objects(result, "replayed")) == records
    assert sum(row["zero_timestamps"] for row in objects(result, "replayed")) == zero_timestamps


def test_read_committed_leaves_aborted_records_out(
    target: Broker, corpus_dir: Path, kafkalog: Kafkalog, tmp_path: Path
) -> None:
    """It also leaves out what follows the first open transaction."""
    one = state(corpus_dir, "kafka-4.3", "txn")
    names, words = renamed(target, one)
    result = kafkalog(
        "replay", *one.log_dirs, *words, "--bootstrap", target.bootstrap, "--create-topics",
        "--apply", "--progress", tmp_path / "run", "--keep-partitions",
        "--isolation", "read_committed",
    )  # fmt: skip
    assert result.status == 0, result.stderr
    for path in user_partitions(one):
        topic, _, number = path.name.rpartition("-")
        text = (one.expected / "records-committed" / f"{path.name}.offsets.json").read_text()
        offsets = set(json.loads(text))
        wanted = [row for row in expected(one, path.name) if row["offset"] in offsets]
        got = target.read(names[topic], int(number))
        assert [told(message) for message in got] == [without_place(row) for row in wanted]
        assert len(wanted) < len(expected(one, path.name))


def first_at_or_after(records: list[dict[str, Any]], offset: int) -> dict[str, Any] | None:
    return next((without_place(row) for row in records if row["offset"] >= offset), None)


def require_translated(target: Broker, one: State, result: Result) -> int:
    """Require that each committed offset leads to the same record as in the source."""
    found = objects(result, "translated_offset")
    for row in found:
        place = (row["to_topic"], row["partition"])
        assert target.committed(row["group_id"])[place] == row["to_offset"]
        records = expected(one, f"{row['topic']}-{row['partition']}")
        following = target.read(*place, first=row["to_offset"])
        got = told(following[0]) if following else None
        assert got == first_at_or_after(records, row["offset"]), row
    return len(found)


def test_killed_at_random_moments_nothing_is_missing_or_there_twice(
    target: Broker, corpus_dir: Path, kafkalog: Kafkalog, tmp_path: Path
) -> None:
    """Runs are killed with -9 until one completes; the offsets of groups are checked, too."""
    seed = new_seed()
    print("seed", seed)
    drawn = random.Random(seed)
    one = state(corpus_dir, "kafka-4.3", "internal-topics")
    names, words = renamed(target, one)
    size = sum(row["size_bytes"] for row in objects(
        kafkalog("replay", *one.log_dirs, *words, "--dry-run", "--format", "ndjson"), "replayed"
    ))  # fmt: skip
    seconds = 0.5 * KILLS
    argv = [
        "replay", *one.log_dirs, *words, "--bootstrap", target.bootstrap, "--create-topics",
        "--apply", "--progress", tmp_path / "run", "--keep-partitions", "--commit-offsets",
        "--rate-limit", int(size / seconds), "--format", "ndjson",
    ]  # fmt: skip
    killed = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", SMALL_TRANSACTIONS, *map(str, argv)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            commits = (line for line in process.stderr if line == "committed\n")
            for _ in islice(commits, drawn.randrange(4)):
                pass
            time.sleep(drawn.uniform(0, 0.5))  # to any moment of the transactions that follow
            killed += process.poll() is None
            process.kill()
    assert killed > KILLS / 2
    argv[argv.index("--rate-limit") + 1] = "1GiB"
    result = kafkalog(*argv)
    assert result.status == 0, result.stderr
    before = sum(row["records_before"] for row in objects(result, "replayed"))
    for path in user_partitions(one):
        topic, _, number = path.name.rpartition("-")
        got = [told(message) for message in target.read(names[topic], int(number))]
        assert got == [without_place(row) for row in expected(one, path.name)]
    assert require_translated(target, one, result) > 0
    again = kafkalog(*argv)
    assert (again.status, objects(again, "replayed")) == (0, []), again.stderr
    print(f"{killed} kills, {before} records before the last part")


EXAMPLE: Final = "examples/log-dir"


@pytest.fixture
def argv(target: Broker, tmp_path: Path) -> list[Any]:
    """Options of each run."""
    return ["--bootstrap", target.bootstrap, "--apply", "--format", "ndjson",
            "--progress", tmp_path / "run"]  # fmt: skip


def test_keys_decide_as_for_kafkas_producer(
    target: Broker, kafkalog: Kafkalog, argv: list[Any]
) -> None:
    """The order within each key stays; aiokafka computes the expected partitions."""
    name = target.create(3)
    result = kafkalog("replay", f"{EXAMPLE}/orders-0", "--topic-map", f"orders={name}", *argv)
    assert result.status == 0, result.stderr
    got = [target.read(name, number) for number in range(3)]
    for number, messages in enumerate(got):
        assert messages
        assert {(murmur2(one.key()) & 0x7FFFFFFF) % 3 for one in messages} == {number}
        orders = [json.loads(one.value())["order"] for one in messages]
        assert orders == sorted(orders)
    assert sum(map(len, got)) == 1000


def test_at_least_once_without_transactions(
    target: Broker, kafkalog: Kafkalog, argv: list[Any]
) -> None:
    """Without a kill that means once; a second run has nothing to do."""
    name = target.create(1)
    words = ("replay", f"{EXAMPLE}/orders-0", "--topic-map", f"orders={name}", "--keep-partitions",
             "--no-transactions", *argv)  # fmt: skip
    assert [kafkalog(*words).status for _ in range(2)] == [0, 0]
    got = target.read(name)
    assert [json.loads(one.value())["order"] for one in got] == list(range(1000))
    assert [one.offset() for one in got] == list(range(1000)), "no markers of transactions"


def test_new_timestamps_are_those_of_the_replay(
    target: Broker, kafkalog: Kafkalog, argv: list[Any]
) -> None:
    name = target.create(1)
    before = int(1000 * time.time())
    words = ("--topic-map", f"orders={name}", "--new-timestamps", "--limit", "10")
    assert kafkalog("replay", f"{EXAMPLE}/orders-0", *words, *argv).status == 0
    after = int(1000 * time.time())
    times = [one.timestamp()[1] for one in target.read(name)]
    assert len(times) == 10
    assert all(before <= one <= after for one in times)


def test_the_rate_is_limited(target: Broker, kafkalog: Kafkalog, argv: list[Any]) -> None:
    """70.9 KB at 40 KiB per second take more than a second."""
    name = target.create(1)
    since = time.monotonic()
    words = ("--topic-map", f"orders={name}", "--rate-limit", "40KiB")
    assert kafkalog("replay", f"{EXAMPLE}/orders-0", *words, *argv).status == 0
    assert time.monotonic() - since > 70_900 / (40 << 10) - 0.5
    assert len(target.read(name)) == 1000


def test_ctrl_c_aborts_and_the_command_given_again_goes_on(
    target: Broker, kafkalog: Kafkalog, argv: list[Any]
) -> None:
    """The abort leaves no open transaction for which readers would wait."""
    name = target.create(1)
    words = ["replay", f"{EXAMPLE}/orders-0", "--topic-map", f"orders={name}", *argv]
    slow = [*words, "--rate-limit", "2KiB"]  # half a minute, however late the signal comes
    with subprocess.Popen(
        [sys.executable, "-c", SMALL_TRANSACTIONS, *map(str, slow)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for step in ("committed\n", "sent\n"):  # a transaction is open then
            next(line for line in process.stderr if line == step)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(WAIT_S) == 130, said
    assert len(target.read(name)) < 1000
    assert kafkalog(*words).status == 0
    got = [json.loads(one.value())["order"] for one in target.read(name)]
    assert got == list(range(1000))


def test_what_the_cluster_lacks_is_refused(
    target: Broker, kafkalog: Kafkalog, argv: list[Any], tmp_path: Path
) -> None:
    """No topic, or too few partitions: nothing is produced, and the command can be corrected."""
    missing = kafkalog("replay", f"{EXAMPLE}/orders-0", "--topic-map", "orders=nowhere", *argv)
    assert missing.status == 4
    assert "The cluster has no topic nowhere." in missing.stderr
    name = target.create(1)
    for number in range(2):
        shutil.copytree(f"{EXAMPLE}/orders-0", tmp_path / f"orders-{number}")
    words = ["replay", tmp_path / "orders-0", tmp_path / "orders-1", "--topic-map",
             f"orders={name}", *argv]  # fmt: skip
    short = kafkalog(*words, "--keep-partitions")
    assert short.status == 4
    assert f"{name} has 1 of 2" in short.stderr
    assert target.read(name) == []
    assert kafkalog(*words).status == 0
    assert len(target.read(name)) == 2000
    other = kafkalog(*words, "--limit", "3")
    assert other.status == 4
    assert "another run, not of this command" in other.stderr


def test_a_record_that_the_topic_does_not_take_ends_the_run(
    target: Broker, kafkalog: Kafkalog, argv: list[Any], corpus_dir: Path
) -> None:
    """The error has the broker's reason; readers see no record of its transaction."""
    name = target.create(1, **{"message.timestamp.before.max.ms": "1000"})
    old = kafkalog("replay", f"{EXAMPLE}/orders-0", "--topic-map", f"orders={name}", *argv)
    assert old.status == 3
    assert "message.timestamp.before.max.ms" in old.stderr
    assert "At least 0 records of the run are in the cluster." in old.stderr
    assert target.read(name) == []
    small = target.create(1, **{"max.message.bytes": "300"})
    path = corpus_dir / "kafka-4.3" / "codecs" / "codec-none-0"
    words = ("--topic-map", f"codec-none={small}", *argv[:-1], f"{argv[-1]}-large")
    large = kafkalog("replay", path, *words)
    assert large.status == 3
    assert "max.message.bytes" in large.stderr


@pytest.mark.parametrize("config", [
    {"cleanup.policy": "compact"}, {"message.timestamp.after.max.ms": "60000"},
    {"message.timestamp.before.max.ms": "60000"}, {"max.message.bytes": "1500"},
    {"max.decompressed.message.bytes": "1500"},
], ids=lambda config: next(iter(config)))  # fmt: skip
def test_what_a_topic_does_not_take_is_listed(
    target: Broker, kafkalog: Kafkalog, tmp_path: Path, config: dict[str, str]
) -> None:
    """By its rules: without the option the broker refuses the same records."""
    limit = "max.decompressed.message.bytes"
    if limit in config and broker_data.RELEASE == "4.3":
        pytest.skip("4.4 brought this config")
    now = time.time_ns() // 1_000_000
    one = {
        "cleanup.policy": record(1, None, b"v"),
        "max.message.bytes": record(1, b"k", b"v" * 1500),
        limit: record(1, b"k", b"v" * 1500),
        "message.timestamp.before.max.ms": record(1, b"k", b"v", time_delta=-120_000),
        "message.timestamp.after.max.ms": record(1, b"k", b"v", time_delta=120_000),
    }[next(iter(config))]
    some = [record(0, b"a", b"fine"), one, record(2, b"z", b"fine")]
    write_log(tmp_path / "log" / "t-0", batch(0, some, base_time=now, max_time=now + 120_000))
    name, refused = target.create(1, **config), tmp_path / "refused"
    words: list[Any] = ["replay", tmp_path / "log", "--bootstrap", target.bootstrap,
                        "--topic-map", f"t={name}", "--apply"]  # fmt: skip
    if limit in config:
        words += ["--producer-config", "compression.type=zstd"]
    words.append("--progress")
    ended = kafkalog(*words, tmp_path / "ended")
    assert (ended.status, "is refused by" in ended.stderr) == (3, True), ended.stderr
    done = kafkalog(*words, tmp_path / "progress", "--refused", refused)
    assert (done.status, "1 record left out" in done.stderr) == (8, True), done.stderr
    assert [json.loads(line)["offset"] for line in refused.read_text().splitlines()] == [1]
    assert len(target.read(name)) == 2


def test_an_active_group_is_refused(target: Broker, kafkalog: Kafkalog, argv: list[Any]) -> None:
    """Its members would continue from their own positions."""
    name = target.create(1)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "billing"})
    try:
        joined: list[Any] = []
        consumer.subscribe([name], on_assign=lambda _, places: joined.extend(places))
        over = time.monotonic() + WAIT_S
        while not joined:
            consumer.poll(0.2)
            assert time.monotonic() < over
        words = ("replay", EXAMPLE, "--topic", "orders", "--topic-map", f"orders={name}",
                 "--keep-partitions", "--commit-offsets", *argv)  # fmt: skip
        refused = kafkalog(*words)
    finally:
        consumer.close()
    assert refused.status == 4
    assert "The group billing is active" in refused.stderr
    assert target.read(name) == []
    assert kafkalog(*words).status == 0
    [message] = target.read(name, first=target.committed("billing")[name, 0])[:1]
    assert json.loads(message.value())["order"] == 400


def test_a_cluster_that_does_not_answer(
    kafkalog: Kafkalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes within seconds, with the address."""
    monkeypatch.setattr(cluster, "ANSWER_S", 1.0)
    words = ("--bootstrap", "127.0.0.1:1", "--apply", "--progress", tmp_path / "run")
    result = kafkalog("replay", f"{EXAMPLE}/orders-0", *words)
    assert result.status == 3
    assert "127.0.0.1:1 does not answer" in result.stderr
    assert not (tmp_path / "run").exists()
    wrong = kafkalog("replay", f"{EXAMPLE}/orders-0", *words, "--producer-config", "no.such=1")
    assert wrong.status == 2
    assert "no.such" in wrong.stderr
