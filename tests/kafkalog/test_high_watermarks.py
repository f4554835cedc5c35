"""Each command that stops at the high watermark takes the same one, and says what it leaves out."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from kafkalog.errors import Event, Note
from kafkalog.files.offsets import OffsetSource
from kafkalog.model import Isolation
from kafkalog.node.targets import open_targets, partitions_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.model import ServeListener, ServeOptions
from tests.builders import batch, record, write_log
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

END: Final = 10
STALE: Final = 6
OPEN: Final = 8
"""Where a transaction begins that is still open."""
COMMIT: Final = 5
"""The offset in the newest commit, which is above a stale watermark, too."""
TOPIC_ID: Final = "A" * 20 + "Ew"
OTHER_ID: Final = "B" * 20 + "Ew"
DIRECTORY: Final = "C" * 20 + "Ew"


class State(NamedTuple):
    """What is known of the high watermark of a log with offsets 0 to 9, and what follows.

    Attributes:
        end: the high watermark that every command takes.
        source: by what it is known.
        reason: a part of why it is not better known.
        noted: the entry of the checkpoint.
        isr, replicas, elr: as in the metadata; None if there is no metadata log.
        copy: the log end offset of the copy of node 2; None if it is not given.
        closed: whether the log directory has the mark of a clean shutdown.
        min_isr: `min.insync.replicas` of the topic.
        cut: how many bytes the metadata log has lost at its end.
        topic_id, cluster: as the metadata have them.
    """

    end: int
    source: OffsetSource
    reason: str = ""
    noted: int | None = STALE
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] = (1,)
    elr: tuple[int, ...] = ()
    copy: int | None = None
    closed: bool = False
    min_isr: int = 1
    cut: int = 0
    topic_id: str = TOPIC_ID
    cluster: str = "c"


_CHECKPOINT, _IN_SYNC, _LOG = OffsetSource.CHECKPOINT, OffsetSource.IN_SYNC, OffsetSource.LOG
STATES: Final = {
    "stale": State(STALE, _CHECKPOINT, "no metadata log in PATH"),
    "exact": State(END, _CHECKPOINT, noted=END),
    "clean": State(STALE, _CHECKPOINT, closed=True, isr=(1,)),
    "missing": State(END, _LOG, noted=None),
    "alone in sync": State(END, _IN_SYNC, isr=(1,)),
    "missing, alone in sync": State(END, _IN_SYNC, noted=None, isr=(1,)),
    "two in sync": State(8, _IN_SYNC, isr=(1, 2), replicas=(1, 2), copy=8),
    "two in sync, one not given": State(
        STALE, _CHECKPOINT, "the copy of node 2", isr=(1, 2), replicas=(1, 2)
    ),
    "not in sync": State(
        STALE, _CHECKPOINT, "do not say that this copy", isr=(2,), replicas=(1, 2)
    ),
    "the last one that may lead": State(END, _IN_SYNC, isr=(), elr=(1,)),
    "too few in sync": State(
        STALE, _CHECKPOINT, "min.insync.replicas is 2", isr=(1,), replicas=(1, 2, 3), min_isr=2
    ),
    "as few as there are": State(END, _IN_SYNC, isr=(1,), min_isr=2),
    "metadata cut": State(STALE, _CHECKPOINT, "damaged or incomplete", isr=(1,), cut=5),
    "metadata of another topic": State(
        STALE, _CHECKPOINT, "do not know the partition", isr=(1,), topic_id=OTHER_ID
    ),
}


def write_node(log_dir: Path, node: int, end: int, cluster: str = "c") -> None:
    """Write a log directory with `orders-0` and the commits of a group."""
    log = [batch(at, [record(0, b"k", b"v")]) for at in range(end)]
    if end > OPEN:
        attributes, producer = 0x10, (7, 0, 0)
        log[OPEN] = batch(OPEN, [record()], attributes=attributes, producer=producer)
    write_log(log_dir / "orders-0", *log)
    # As many records as the log has, so that one watermark means the same in both.
    commits = [commit(at, COMMIT if at >= STALE else 3) for at in range(end)]
    write_log(log_dir / "__consumer_offsets-0", *commits)
    for name in ("orders-0", "__consumer_offsets-0"):
        (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID_OF[name]}")
    properties = f"version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={DIRECTORY}\n"
    (log_dir / "meta.properties").write_text(properties)


ID_OF: Final = {"orders-0": TOPIC_ID, "__consumer_offsets-0": "D" * 20 + "Ew"}


def commit(at: int, offset: int) -> bytes:
    key = struct.pack(">hh1sh6si", 1, 1, b"g", 6, b"orders", 0)
    return batch(at, [record(0, key, struct.pack(">hqihq", 3, offset, -1, 0, 0))])


def write_metadata(log_dir: Path, state: State) -> None:
    """Write a metadata log in a log directory of its own."""
    values = []
    ids = {**ID_OF, "orders-0": state.topic_id}
    for name in ("orders", "__consumer_offsets"):
        topic_id = ids[f"{name}-0"]
        if state.topic_id != TOPIC_ID:
            topic_id = topic_id.replace("D", "F")
        values += [
            value_of("TopicRecord", name=name, topicId=topic_id),
            value_of(
                "PartitionRecord", partitionId=0, topicId=topic_id, replicas=list(state.replicas),
                isr=list(state.isr or ()), removingReplicas=[], addingReplicas=[], leader=1,
                leaderEpoch=0, partitionEpoch=0, directories=[DIRECTORY] * len(state.replicas),
                eligibleLeaderReplicas=list(state.elr), lastKnownElr=[],
            ),
            value_of(
                "ConfigRecord", resourceType=2, resourceName=name, name="min.insync.replicas",
                value=str(state.min_isr),
            ),
        ]  # fmt: skip
    path = write_log(
        log_dir / "__cluster_metadata-0",
        *(batch(at, [record(0, None, value)], epoch=1) for at, value in enumerate(values)),
    )
    path.write_bytes(path.read_bytes()[: path.stat().st_size - state.cut])
    properties = f"version=1\ncluster.id={state.cluster}\nnode.id=1\n"
    (log_dir / "meta.properties").write_text(properties)


@pytest.fixture(params=STATES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[State, list[Path]]:
    """A state, and the log directories that are given."""
    state = STATES[request.param]
    paths = [tmp_path / "n1"]
    write_node(paths[0], 1, END)
    if state.noted is not None:
        lines = f"0\n2\norders 0 {state.noted}\n__consumer_offsets 0 {state.noted}\n"
        (paths[0] / "replication-offset-checkpoint").write_text(lines)
    if state.closed:
        (paths[0] / ".kafka_cleanshutdown").write_text("")
    if state.isr is not None:
        paths.append(tmp_path / "metadata")
        write_metadata(paths[-1], state)
    if state.copy is not None:
        paths.append(tmp_path / "n2")
        write_node(paths[-1], 2, state.copy)
    return state, paths


def objects(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [one for one in found if one.get("type") == kind]


def export(kafkalog: Run, paths: list[Path], to: Path) -> tuple[int, str]:
    words = ("--topic", "orders", "--to", to)
    told = kafkalog("export", *paths, *words)
    found = objects(kafkalog("export", *paths, *words, "--format", "ndjson"), "export_part")
    return max(one["last_offset"] for one in found) + 1, told.stdout.decode()


def append(kafkalog: Run, paths: list[Path], to: Path) -> tuple[int, str]:
    words = ("--topic", "orders", "--to", to, "--append")
    told = kafkalog("export", *paths, *words)
    commits = sorted((to / "_kafkalog" / "commits").iterdir())
    [[end, _]] = json.loads(commits[0].read_text())["increment"]["end"].values()
    return end, told.stdout.decode()


def sql(kafkalog: Run, paths: list[Path], _: Path) -> tuple[int, str]:
    query = "select max(\"offset\") + 1 n from records where topic = 'orders'"
    words = ("--replicas", "best", "--format", "ndjson")
    found = kafkalog("sql", *words, "-c", query, *paths)
    return json.loads(found.stdout)["n"], found.stderr


def profile(kafkalog: Run, paths: list[Path], _: Path) -> tuple[int, str]:
    words = ("--replicas", "best", "--topic", "orders", "--format", "ndjson")
    found = kafkalog("profile", *paths, *words)
    [one] = objects(found, "profile")
    return one["last_offset"] + 1, found.stderr


def replay(kafkalog: Run, paths: list[Path], _: Path) -> tuple[int, str]:
    found = kafkalog("replay", *paths, "--topic", "orders", "--dry-run", "--format", "ndjson")
    return sum(one["records"] for one in objects(found, "replayed")), found.stderr


def groups(kafkalog: Run, paths: list[Path], _: Path) -> tuple[int, str]:
    found = kafkalog("groups", *paths, "--group", "g", "--format", "ndjson")
    [one] = objects(found, "group_offset")
    assert one["offset"] == (COMMIT if one["log_end_offset"] > STALE else 3)
    assert one["lag"] == one["log_end_offset"] - one["offset"]
    return one["log_end_offset"], found.stderr


def serve(_: Run, paths: list[Path], __: Path) -> tuple[int, str]:
    told: list[str] = []

    class Heard(ServeListener):
        def hear(self, event: Event) -> None:
            if isinstance(event, Note):
                told.append(event.text)

    catalog = Catalog(map(str, paths), ServeOptions(), Heard())
    partition = catalog.partition("orders", 0)
    assert partition is not None
    log = catalog.log(partition)
    text = "\n".join(told).replace("record above", "records above")
    return log.bounds(Isolation.READ_UNCOMMITTED)[1], text


def lookup(kafkalog: Run, paths: list[Path], _: Path) -> tuple[int, str]:
    words = ("--topic", "orders", "--special", "latest", "--format", "ndjson")
    found = kafkalog("lookup-offset", *paths, "--replicas", "best", *words)
    return json.loads(found.stdout.splitlines()[0])["offset"], found.stderr


COMMANDS: Final = {
    one.__name__: one for one in (export, append, sql, profile, replay, groups, serve, lookup)
}


def test_the_offset_has_a_source(case: tuple[State, list[Path]]) -> None:
    """And how many records lie above it, with the reason if another source would be better."""
    state, paths = case
    [log] = [
        UnifiedLog(one)
        for one in partitions_of(open_targets(paths[:1] if state.isr is None else paths))
        if one.topic == "orders" and one.log_dir == str(paths[0])
    ]
    found = log.offsets.high_watermark
    assert (found.value, found.source, found.above) == (state.end, state.source, END - state.end)
    assert state.reason in found.reason
    assert bool(state.reason) == bool(found.reason)
    stable = log.offsets.last_stable_offset
    assert stable.value == min(OPEN, state.end)
    assert stable.source == (OffsetSource.TRANSACTION if state.end > OPEN else state.source)


@pytest.mark.sampled(8, each_value=True)
@pytest.mark.filterwarnings("ignore:.* becomes a stray:UserWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_stops_there(
    command: str, case: tuple[State, list[Path]], kafkalog: Run, tmp_path: Path
) -> None:
    """It says what it leaves out, and why, by the same words; and nothing else of watermarks."""
    state, paths = case
    end, text = COMMANDS[command](kafkalog, paths, tmp_path / "to")
    assert end == state.end
    assert ("above the high watermark" in text) == (state.end < END), text
    if state.end < END:
        assert str(state.end) in text
        assert f"{END - state.end} record" in text
        assert state.reason in text


def test_an_open_transaction_that_blocks_readers_is_shown(
    case: tuple[State, list[Path]], kafkalog: Run
) -> None:
    """Unless it begins above the high watermark, and then that is said."""
    state, paths = case
    found = kafkalog("transactions", *paths, "--format", "ndjson")
    opened = [one["first_offset"] for one in objects(found, "open_transaction")]
    assert opened == ([OPEN] if state.end > OPEN else [])
    assert ("above the high watermark" in found.stderr) == (state.end < END)


@pytest.mark.sampled(3)
def test_a_search_says_that_it_goes_beyond(
    case: tuple[State, list[Path]], kafkalog: Run, tmp_path: Path
) -> None:
    """It shows records that consumers may not get; a page names what its lags leave out."""
    state, paths = case
    words = ("--topic", "orders", "--key", "k", "--replicas", "best", "--format", "ndjson")
    found = kafkalog("find", *paths, *words)
    said = f"also searched above the high watermark: orders-0 from {state.end}"
    assert (said in found.stderr) == (state.end < END), found.stderr
    to = tmp_path / "report.html"
    assert kafkalog("report", *paths, "--to", to, "-q").status in (0, 1)
    assert ("above the high watermark left out" in to.read_text()) == (state.end < END)


def test_a_given_watermark_counts_before_all_others(tmp_path: Path) -> None:
    """The metadata say that this copy alone is in sync, and are not even read."""
    write_node(tmp_path, 1, END)
    write_log(tmp_path / "__cluster_metadata-0", b"not a log")
    found = UnifiedLog(str(tmp_path / "orders-0"), high_watermark=4).offsets.high_watermark
    assert (found.value, found.source, found.above) == (4, OffsetSource.GIVEN, 6)
