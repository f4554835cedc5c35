"""A run that stops anywhere continues where its last transaction ended."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafkalog.errors import (
    ClusterError,
    CorruptDataError,
    DestinationExistsError,
    Note,
    RefusedError,
    UsageError,
)
from kafkalog.files.log_dir import open_path
from kafkalog.io.storage import AppendedFile
from kafkalog.log.batches.condition import Condition
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.log.defects import Events
from kafkalog.model import Isolation, present_ms
from kafkalog.wire.producing import run
from kafkalog.wire.producing.lanes import Lanes
from kafkalog.wire.producing.model import Place, Position, ReplayListener, Request
from kafkalog.wire.producing.offsets import OffsetMap
from kafkalog.wire.producing.progress import ProgressFile
from kafkalog.wire.producing.refusals import REFUSED_BEGIN, TopicRules
from kafkalog.wire.producing.routes import require_topics_in
from tests.builders import batch, record, write_log
from tests.metadata_logs import value_of
from tests.nodes import uuid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOGS = 7
RECORDS = 40


class KilledError(Exception):
    """Stands for a kill of the process."""


class Message:
    """What the producer reports about a delivery."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class Cluster:
    """A cluster in memory: partitions with their committed records, and a position."""

    def __init__(self) -> None:
        self.records: dict[str, list[Any]] = {}
        self.offsets: dict[str, int] = {}
        self.position: Position | None = None


class Sending:
    """Sends into a cluster in memory, until it is killed at a step."""

    def __init__(self, cluster: Cluster, steps: int) -> None:
        self._cluster = cluster
        self._open: list[tuple[str, Any]] = []
        self._told: list[tuple[Any, int]] = []
        self._steps = steps

    @property
    def position(self) -> Position | None:
        return self._cluster.position

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise KilledError

    def send(
        self, route: Any, messages: Sequence[Any], *, keeps_time: bool, told: Any = None
    ) -> int:
        assert keeps_time
        for one in messages:
            self._step()
            name = route.name
            at = self._cluster.offsets[name] = self._cluster.offsets.get(name, 99) + 1
            self._open.append((name, (at, one)))
        if told is not None:
            self._told.append((told, at))
        return 0

    def idle(self, seconds: float) -> None:
        pass

    def fail(self, *_: object) -> None:
        raise AssertionError

    def flush(self) -> None:
        for told, at in self._told:
            told(None, Message(at))
        self._told = []

    def commit(self, position: Position) -> None:
        self._step()
        for name, one in self._open:
            self._cluster.records.setdefault(name, []).append(one)
        self._open = []
        self._cluster.position = position
        self._step()  # killed right after it


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with gaps between offsets."""
    for number in range(LOGS):
        some = []
        for first, end in ((0, 15), (15, RECORDS)):
            records = [record(2 * (at - first), b"%d" % at) for at in range(first, end)]
            last = 28 if not first else 2 * (RECORDS - first)
            some.append(batch(1000 * number + 2 * first, records, last_delta=last))
        write_log(tmp_path / "kafka" / f"orders-{number}", *some)
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\nnode.id=1\n")
    return tmp_path / "kafka"


def part_of_a_run(
    logs: Path,
    progress: Path,
    cluster: Cluster,
    steps: int,
    wanted: dict[int, list[int]],
    selection: Selection = EVERYTHING,
) -> OffsetMap:
    """Run until the end, or until `KilledError`."""
    request = Request(selection, keep_partitions=True)
    replay = run.Replay([open_path(str(logs))], request, ReplayListener())
    names = [(route.path, route.topic, route.partition) for route in replay.routes]
    with ProgressFile(str(progress), request.identity(), names) as file:
        sending: Any = Sending(cluster, steps)
        run._begin(file, sending, _Named(), "orders", str(progress))
        work = run._Work(replay, file, sending, {}, {})
        work.offsets = OffsetMap(wanted, *file.known(), failed=sending.fail)
        work.run()
        return work.offsets


class _Named:
    id = "cluster"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_a_run_killed_again_and_again_gives_each_record_once(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Committed offsets lead to the first record at or after them."""
    monkeypatch.setattr(run, "_COMMIT_RECORDS", 9)
    drawn = random.Random(seed)
    ends = {log: 1000 * log + 2 * RECORDS for log in range(LOGS)}
    wanted = {
        log: [drawn.randrange(1000 * log, end + 5) for _ in range(4)] for log, end in ends.items()
    }
    cluster, kills = Cluster(), 0
    while True:
        steps = drawn.choice([drawn.randrange(4), drawn.randrange(60)])
        try:
            found = part_of_a_run(logs, tmp_path / "run", cluster, steps, wanted)
            break
        except KilledError:
            kills += 1
    assert kills > 5
    for log in range(LOGS):
        got = cluster.records[f"orders-{log}"]
        offsets = [1000 * log + 2 * at for at in range(RECORDS)]
        assert [one[0] for _, one in got] == offsets
        places = dict(zip(offsets, (at for at, _ in got), strict=True))
        for old in wanted[log]:
            following = [places[one] for one in offsets if one >= old]
            assert found.translated(log, old) == (following or [got[-1][0] + 1])[0]


@pytest.mark.parametrize("limit", [0, 5, RECORDS, RECORDS + 5, LOGS * RECORDS + 1])
def test_a_limit_counts_the_records_of_all_logs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """In the order of the logs, also where the run was stopped in between."""
    monkeypatch.setattr(run, "_COMMIT_RECORDS", 9)
    cluster = Cluster()
    for steps in (7, 30, 61, 1000):
        with suppress(KilledError):
            part_of_a_run(logs, tmp_path / "run", cluster, steps, {}, Selection(limit=limit))
    counts = [len(cluster.records.get(f"orders-{log}", [])) for log in range(LOGS)]
    assert counts == [min(max(limit - RECORDS * log, 0), RECORDS) for log in range(LOGS)]


def test_a_condition_holds_across_kills(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a run has the same one: another would skip records or repeat them."""
    monkeypatch.setattr(run, "_COMMIT_RECORDS", 3)
    cluster, wanted = Cluster(), Selection(where=Condition('key.contains("1") && offset < 5050'))
    for steps in (7, 30, 61, 1000):
        with suppress(KilledError):
            part_of_a_run(logs, tmp_path / "run", cluster, steps, {}, wanted)
    for log in range(LOGS):
        got = [one[0] for _, one in cluster.records.get(f"orders-{log}", [])]
        offsets = {1000 * log + 2 * at for at in range(RECORDS) if "1" in str(at)}
        assert got == sorted(one for one in offsets if one < 5050)
    with pytest.raises(RefusedError, match="another run"):
        part_of_a_run(logs, tmp_path / "run", cluster, 9, {}, Selection(where=Condition("true")))


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """A log directory whose log lacks the offsets from 5 to 9 between two segments."""
    log_dir = tmp_path / "lacking"
    for first in (0, 10):
        batches = [batch(first + at, [record()]) for at in range(5)]
        write_log(log_dir / "orders-0", *batches, name=f"{first:020}")
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\n")
    return log_dir


class _Heard(Events, ReplayListener):
    """Keeps what it hears."""


@pytest.mark.parametrize(
    ("wanted", "is_missing"),
    [
        ({}, True),
        ({"to_offset": 11}, True),
        ({"limit": 6}, True),
        ({"limit": 5}, False),
        ({"to_offset": 5}, False),
        ({"from_offset": 10}, False),
    ],
)
def test_a_gap_in_what_is_wanted_is_a_finding(
    lacking: Path, wanted: dict[str, Any], is_missing: bool
) -> None:
    """A run goes on after it, and says that the cluster does not get all."""
    heard = _Heard()
    run.Replay([open_path(str(lacking))], Request(Selection(**wanted)), heard).count()
    assert [one.reference for one in heard.defects] == ["offsets-missing"] * is_missing


def test_a_run_that_goes_on_after_a_gap_reports_it(lacking: Path) -> None:
    """The run before it was killed, so it had no status."""
    heard, request = _Heard(), Request()
    routes = run.Replay([open_path(str(lacking))], request, heard).routes
    places = {0: Place(next_offset=12, records=7)}
    lanes = Lanes(routes, request, Position(7, 1, places), heard)
    for lane, piece in lanes.pieces():
        lanes.count(lane, piece, 0)
    assert [one.records for one in lanes.done] == [3]
    assert [one.reference for one in heard.defects] == ["offsets-missing"]


@pytest.mark.parametrize("isolation", Isolation)
def test_deleted_records_are_not_replayed(lacking: Path, isolation: Isolation) -> None:
    """`kafka-delete-records` raised the log start offset: nor does a gap below it matter."""
    (lacking / "log-start-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    heard = _Heard()
    request = Request(Selection(isolation=isolation))
    replay = run.Replay([open_path(str(lacking))], request, heard)
    assert [one.records for one in replay.count().logs] == [3]
    assert [one.start.known for one in replay.ends()] == [12]
    assert heard.heard == []


def test_a_lost_progress_is_refused(logs: Path, tmp_path: Path) -> None:
    """Without it, nobody knows what was produced."""
    with pytest.raises(KilledError):
        part_of_a_run(logs, tmp_path / "run", Cluster(), 50, {})
    with pytest.raises(RefusedError, match="lost the progress"):
        part_of_a_run(logs, tmp_path / "run", Cluster(), 50, {})


def progress_file(path: Path, **asked: Any) -> ProgressFile:
    return ProgressFile(str(path), asked, [("/kafka/orders-0", "orders", 0)])


def test_a_file_that_has_begun_takes_no_other_run(tmp_path: Path) -> None:
    """Before its first record it does: nothing was produced."""
    with progress_file(tmp_path / "run", end="log") as file:
        name = file.run
    with progress_file(tmp_path / "run", end="watermark") as file:
        assert file.run == name
        file.begin("cluster", "orders")
    with pytest.raises(RefusedError, match="not of this command"), progress_file(tmp_path / "run"):
        pass
    with progress_file(tmp_path / "run", end="watermark") as file:
        assert (file.run, file.cluster, file.topic) == (name, "cluster", "orders")


def test_two_processes_cannot_use_one_file(tmp_path: Path) -> None:
    """They would write into each other's lines."""
    with progress_file(tmp_path / "run"):  # noqa: SIM117
        with pytest.raises(DestinationExistsError), progress_file(tmp_path / "run"):
            pass


def test_a_torn_last_line_is_not_read(tmp_path: Path) -> None:
    """A crash may have written any part of it."""
    path = tmp_path / "run"
    with progress_file(path) as file:
        file.begin("cluster", "orders")
        file.note(5, [(0, 1, 2)], {0: 3})
        whole = len(path.read_bytes())
        file.note(9, [(0, 7, 8)], {0: 9})
    data = path.read_bytes()
    for end in range(whole, len(data)):
        path.write_bytes(data[:end])
        with progress_file(path) as file:
            assert file.known() == ({(0, 1): 2}, {0: 3})
    path.write_bytes(data)
    with progress_file(path) as file:
        file.resume(5)
        file.note(7, [], {0: 4})
    with progress_file(path) as file:
        assert file.known() == ({(0, 1): 2}, {0: 4})


@pytest.mark.parametrize(
    "data", [b"hello", b"hello\n", b"{}\n", b"[1]\n", b"\xff\n", b'{"kafkalog_replay": 2}\n',
             b"[" * 100_000 + b"\n"],
)  # fmt: skip
def test_another_file_is_not_touched(tmp_path: Path, data: bytes) -> None:
    """It may have any content."""
    path = tmp_path / "run"
    path.write_bytes(data)
    with pytest.raises(CorruptDataError), progress_file(path):
        pass
    assert path.read_bytes() == data


def test_requests_that_make_no_sense(logs: Path) -> None:
    """Each error says what is wrong."""
    with pytest.raises(UsageError, match="keep"):
        Request(commit_offsets=True)
    for names, words in ({"tea": "t"}, "names tea"), ({"orders": "__consumer_offsets"}, "brokers"):
        with pytest.raises(UsageError, match=words):
            run.Replay([open_path(str(logs))], Request(topic_map=names), ReplayListener())


class FakeCluster:
    """Has some topics, and creates others."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.created: dict[str, Any] = {}

    def partitions(self) -> dict[str, int]:
        return self.topics

    def require_access(self, topic: str) -> None:
        if topic == "closed":
            raise ClusterError("closed")

    def create_topics(self, topics: dict[str, Any]) -> None:
        self.created = topics

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        return {topic: {"message.timestamp.type": "LogAppendTime"} for topic in topics}


def test_topics_are_checked_before_anything_is_produced(logs: Path) -> None:
    """Too few partitions, no topic, no permission; and the topics that are created."""
    targets = [open_path(str(logs))]
    kept = Request(keep_partitions=True)
    routes = run.Replay(targets, kept, ReplayListener()).routes
    short: Any = FakeCluster(orders=LOGS - 1)
    with pytest.raises(RefusedError, match="orders has 6 of 7"):
        require_topics_in(short, routes, kept, targets)
    without: Any = FakeCluster()
    with pytest.raises(RefusedError, match="no topic orders"):
        require_topics_in(without, routes, kept, targets)
    creating = Request(keep_partitions=True, create_topics=True)
    assert require_topics_in(without, routes, creating, targets) == ["orders"]
    assert without.created == {"orders": (LOGS, {})}
    closed = Request(topic_map={"orders": "closed"}, create_topics=True)
    with pytest.raises(ClusterError):
        require_topics_in(
            without, run.Replay(targets, closed, ReplayListener()).routes, closed, targets
        )


def test_a_plan_is_checked_against_a_cluster(logs: Path) -> None:
    """As a run is, but nothing is created."""
    targets, heard = [open_path(str(logs))], _Heard()
    for request, topics, says in (
        (Request(keep_partitions=True), {"orders": LOGS - 1}, "orders has 6 of 7"),
        (Request(), {}, "no topic orders"),
    ):
        cluster: Any = FakeCluster(**topics)
        with pytest.raises(RefusedError, match=says):
            run.Replay(targets, request, heard).check(cluster)
    empty: Any = FakeCluster()
    run.Replay(targets, Request(create_topics=True), heard).check(empty)
    assert (empty.created, heard.heard) == ({}, [])
    run.Replay(targets, Request(), heard).check(cast("Any", FakeCluster(orders=1)))
    [note] = heard.heard
    assert isinstance(note, Note)
    assert "LogAppendTime" in note.text


def test_a_new_topic_has_what_its_old_brokers_set_for_all(logs: Path) -> None:
    """Dynamic configs of brokers, by the names of topics; its own come first, replication not."""
    of_brokers = {
        "log.retention.ms": "5000", "log.cleanup.policy": "compact", "message.max.bytes": "2000000",
        "log.message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2",
    }  # fmt: skip
    values = [value_of("TopicRecord", name="orders", topicId=uuid(1))] + [
        value_of("ConfigRecord", resourceType=kind, resourceName=resource, name=name, value=value)
        for kind, resource, configs in (
            (4, "", of_brokers),
            (2, "orders", {"retention.ms": "7000", "internal.segment.bytes": "12000"}),
        )
        for name, value in configs.items()
    ]
    records = [record(delta, None, value) for delta, value in enumerate(values)]
    write_log(logs / "__cluster_metadata-0", batch(0, records, epoch=1))
    targets = [open_path(str(logs))]
    creating = Request(keep_partitions=True, create_topics=True, topics=("orders",))
    routes = run.Replay(targets, creating, ReplayListener()).routes
    cluster: Any = FakeCluster()
    require_topics_in(cluster, routes, creating, targets)
    assert cluster.created["orders"][1] == {
        "retention.ms": "7000", "cleanup.policy": "compact", "max.message.bytes": "2000000",
        "message.timestamp.type": "LogAppendTime",
    }  # fmt: skip


@pytest.mark.parametrize(("size", "compresses", "is_refused"), [
    (994, True, False), (995, True, True), (995, False, False),
])  # fmt: skip
def test_a_topic_limits_the_records_in_compressed_batches(
    size: int, *, compresses: bool, is_refused: bool
) -> None:
    """By the smallest size that a record of these bytes can have."""
    configs = {"max.decompressed.message.bytes": "1000"}
    rules = TopicRules(configs, keeps_time=False, compresses=compresses)
    piece: Any = SimpleNamespace(messages=[(7, b"x" * size, None, 0, None)])
    found = list(rules.refused(piece))
    words = "max.decompressed.message.bytes: it is too large"
    assert found == ([(7, words)] if is_refused else [])


def test_what_a_topic_refuses_is_listed_and_left_out(tmp_path: Path) -> None:
    """The run goes on with the others; each rule is one of a topic's configs."""
    now = present_ms()
    records = [
        record(0, b"a", b"fine"),
        record(1, None, b"no key"),
        record(2, b"b", b"x" * 2000),
        record(3, b"c", b"old", time_delta=-50_000),
        record(4, b"d", b"ahead", time_delta=500_000),
        record(5, b"e", b"fine"),
    ]
    write_log(tmp_path / "log" / "orders-0", batch(0, records, base_time=now, max_time=now))
    configs = {"orders": {
        "cleanup.policy": "compact,delete", "max.message.bytes": "1500",
        "message.timestamp.before.max.ms": "40000", "message.timestamp.after.max.ms": "400000",
    }}  # fmt: skip
    replay = run.Replay(
        [open_path(str(tmp_path / "log"))], Request(keep_partitions=True), ReplayListener()
    )
    names = [(route.path, route.topic, route.partition) for route in replay.routes]
    listed = tmp_path / "refused"
    cluster = Cluster()
    with (
        ProgressFile(str(tmp_path / "progress"), Request().identity(), names) as file,
        AppendedFile(str(listed), (REFUSED_BEGIN,)) as refused,
    ):
        sending: Any = Sending(cluster, 100)
        cluster.position = Position()
        work = run._Work(replay, file, sending, {}, configs, refused)
        work.run()
    [done] = work.logs
    assert (done.records, done.refused_records) == (2, 4)
    sent = [message[0] for _, message in cluster.records["orders-0"]]
    assert sent == [0, 5]
    rows = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [(row["offset"], row["why"].partition(":")[0]) for row in rows] == [
        (1, "cleanup.policy"), (2, "max.message.bytes"),
        (3, "message.timestamp.before.max.ms"), (4, "message.timestamp.after.max.ms"),
    ]  # fmt: skip
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 0)}
