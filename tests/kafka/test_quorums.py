"""What is put together from damaged copies of a quorum, by Kafka's own metadata image."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from formats.releases import newest
from kafkalog.change.resurrection.quorum import write_rescue
from kafkalog.errors import RefusedError
from kafkalog.node.quorum.quorum import read_quorum, records_of
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import batch, flip, frames, record
from tests.kafka import broker_data
from tests.kafkalog.node.quorum.test_copies import ENDS
from tests.metadata_logs import value_of
from tests.nodes import CLUSTER, METADATA, uuid
from tests.sampling import new_seed, tries_everything
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.node.quorum.quorum import Quorum
    from kafkalog.node.quorum.rescue import Rescue
    from tests.kafka.booted import Brokers, Run
    from tests.kafka.conftest import Ask

    Running = dict[int, tuple[subprocess.Popen[bytes], Path]]
    """By node id its process, and the file with its output."""

pytestmark = pytest.mark.kafka

NODES = (1, 11, 12)
"""One voter, and two brokers."""
BATCH_SIZE = 287
"""Of the first batch of an epoch, with three voters."""
ROUNDS = 60 if tries_everything() else 8


@pytest.mark.parametrize("name", ENDS)
def test_an_image_of_damaged_copies_is_that_of_the_sound_one(
    name: str, metadata_trees: Ask, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Flips in the logs and snapshots of each copy: what is left of all of them is everything."""
    seed = new_seed()
    rnd = random.Random(seed)
    whole = corpus_dir / "quorum" / name
    end = ENDS[name]
    [wanted] = metadata_trees("at", whole / "n1" / METADATA, end)
    topics = {line.split()[1] for line in (whole / "topics.txt").read_text().splitlines()}
    assert topics
    assert all(f"{topic}:" in wanted for topic in topics)  # as Admin said before the kill
    complete = 0
    for number in range(ROUNDS):
        root = tmp_path / str(number)
        for node in NODES:
            shutil.copytree(whole / f"n{node}", root / f"n{node}")
        for path in rnd.sample(sorted((*root.rglob("*.log"), *root.rglob("*.checkpoint"))), 6):
            data = path.read_bytes()
            at, size = rnd.choice(frames(data))
            path.write_bytes(flip(data, rnd.randrange(8 * at, 8 * (at + size))))
        found = read_quorum(open_targets([str(root / f"n{node}") for node in NODES]))
        assert found.merged is not None
        merged = found.merged
        if not merged.is_whole:
            continue
        complete += 1
        write_rescue(found, plan_rescue(found, {1: ("controller1", 9093)}), str(root / "new"))
        [image] = metadata_trees("at", root / "new" / METADATA, end)
        assert image == wanted, f"seed {seed}, round {number}"
        shutil.rmtree(root)
    tell(f"{complete} of {ROUNDS} are whole, seed {seed}")
    assert complete > ROUNDS // 2


PROPERTIES = """process.roles=controller
node.id={node}
{configured}
listeners=CONTROLLER://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={log_dir}
controller.quorum.election.timeout.ms=500
"""
OPTIONS = (
    *(option for option in broker_data.JVM_OPTIONS if "defaultLogLevel" not in option),
    "-Xms64m",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)
BOOTSTRAP = "controller.quorum.bootstrap.servers="
LEADS = re.compile(r"Completed transition to Leader\(localVoterNode=.*?, epoch=(\d+)")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def directory_id_of(log_dir: Path) -> str:
    [found] = re.findall(r"directory.id=(\S+)", (log_dir / "meta.properties").read_text())
    return str(found)


@contextmanager
def started(log_dirs: dict[int, Path], ports: dict[int, int], configured: str) -> Iterator[Running]:
    """Run a controller on each log directory, each with its output in a file; kill all of them."""
    found: Running = {}
    try:
        for node, log_dir in log_dirs.items():
            properties, output = log_dir.with_suffix(".properties"), log_dir.with_suffix(".out")
            properties.write_text(
                PROPERTIES.format(
                    node=node, configured=configured, port=ports[node], log_dir=log_dir
                )
            )
            command = broker_data.java_command(
                "kafka.Kafka", str(properties), options=OPTIONS, release=newest().name
            )
            with output.open("w") as file:
                process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
            found[node] = process, output
        yield found
    finally:
        for process, _ in found.values():
            process.kill()
            process.wait(HANG_S)


def wait_for(running: Running, is_reached: Callable[[], object]) -> None:
    """Wait for something, as long as all controllers run."""
    deadline = time.monotonic() + HANG_S
    while not is_reached() and all(process.poll() is None for process, _ in running.values()):
        words = {node: output.read_text()[-2000:] for node, (_, output) in running.items()}
        assert time.monotonic() < deadline, words
        time.sleep(0.2)


def leader_epoch(output: Path) -> int:
    """Return the epoch in which a controller has become the leader; 0 if it has not."""
    found = LEADS.search(output.read_text())
    return 0 if found is None else int(found[1])


@pytest.mark.parametrize(
    ("name", "nodes"),
    [("dynamic-4.4", (1,)), ("dynamic-4.4", (11, 12)), ("static-4.3", (1, 12))],
    ids=["a survivor", "brokers alone", "a static survivor"],
)
def test_a_controller_leads_on_what_is_written(
    name: str, nodes: tuple[int, ...], metadata_trees: Ask, corpus_dir: Path, tmp_path: Path
) -> None:
    """Of three voters none other is there; and the cluster's metadata are what they were."""
    killed, end, port = corpus_dir / "quorum" / name, ENDS[name], free_port()
    found = read_quorum(open_targets([str(killed / f"n{node}") for node in nodes]))
    plan = plan_rescue(found, {1: ("127.0.0.1", port)})
    log_dir = tmp_path / "n1"
    write_rescue(found, plan, str(log_dir))
    directory_id = directory_id_of(log_dir)
    before = read_quorum(open_targets([str(log_dir)]))
    is_static = not found.kraft_version
    assert [one.node_id for one in before.candidates] == [1]
    assert (before.defects, before.proven) == ((), end if is_static else end + 3)
    [configured] = [
        one.detail for one in plan.steps if (one.action, one.node_id) == ("configure", 1)
    ]
    with started({1: log_dir}, {1: port}, configured) as running:
        output = running[1][1]
        wait_for(running, lambda: leader_epoch(output))
    assert leader_epoch(output) == plan.leader_epoch + 1, output.read_text()[-2000:]
    after = read_quorum(open_targets([str(log_dir)]))
    assert after.chosen is not None
    assert found.merged is not None
    assert after.chosen.lineage.start == found.merged.start  # nothing was cut or dropped
    assert after.chosen.lineage.end >= end
    assert after.chosen.state is not None  # it may be killed before it writes of its new epoch
    assert after.chosen.state.leader_epoch == plan.leader_epoch + 1
    if not is_static:
        assert after.chosen.lineage.epoch_of(end) == plan.leader_epoch
        assert [one.name for one in after.voters.voters] == [f"1@{directory_id}"]
    [image] = metadata_trees("at", log_dir / METADATA, end)
    assert image == metadata_trees("at", killed / "n1" / METADATA, end)[0]


def test_a_leader_aborts_the_transaction_that_was_open(
    metadata_trees: Ask, corpus_dir: Path, tmp_path: Path
) -> None:
    """It is in the log that is written; the topic in it never is."""
    end, port = ENDS["dynamic-4.4"], free_port()
    killed = shutil.copytree(corpus_dir / "quorum" / "dynamic-4.4" / "n1", tmp_path / "killed")
    values = [
        value_of("BeginTransactionRecord", name="open"),
        value_of("TopicRecord", name="orphan", topicId=uuid(70)),
    ]
    records = [record(delta, None, value) for delta, value in enumerate(values)]
    log = max((killed / METADATA).glob("*.log"))
    log.write_bytes(log.read_bytes() + batch(end, records, epoch=1))
    found = read_quorum(open_targets([str(killed)]))
    plan = plan_rescue(found, {1: ("127.0.0.1", port)})
    assert any(f"begins at offset {end} has no end" in one for one in plan.warnings)
    log_dir = tmp_path / "n1"
    write_rescue(found, plan, str(log_dir))
    copy = tmp_path / "copy"

    def aborted() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(log_dir, copy)
        merged = read_quorum(open_targets([str(copy)])).merged
        assert merged is not None
        known = {one.record_type for part in merged.parts for one in records_of(part)}
        return "ABORT_TRANSACTION_RECORD" in known

    with started({1: log_dir}, {1: port}, f"{BOOTSTRAP}127.0.0.1:{port}") as running:
        wait_for(running, aborted)
    assert aborted()
    [image] = metadata_trees("at", log_dir / METADATA, 1 << 40)
    assert "orphan" not in image
    assert "c100:" in image


class Moved(NamedTuple):
    """Three controllers that have other ports now, and the directory that the first one gets."""

    killed: Path
    found: Quorum
    plan: Rescue
    ports: dict[int, int]
    log_dirs: dict[int, Path]

    @property
    def configured(self) -> str:
        [step] = (one for one in self.plan.steps if one.action == "configure")
        return step.detail[step.detail.index(BOOTSTRAP) :]

    def voters(self) -> set[str]:
        """Return the voters that are wanted, with their directories."""
        ids = {1: directory_id_of(self.log_dirs[1])}
        ids |= {node: directory_id_of(self.killed / f"n{node}") for node in (2, 3)}
        return {f"{node}@{directory_id}" for node, directory_id in ids.items()}

    def has_first_batch(self) -> bool:
        """Return whether the others have fetched what the first one's log was given."""
        first = min((self.log_dirs[1] / METADATA).glob("*.log")).read_bytes()
        at = first.index(self.plan.end_offset.to_bytes(8, "big"))
        logs = (max((self.log_dirs[node] / METADATA).glob("*.log")) for node in (2, 3))
        return all(first[at : at + BATCH_SIZE] in log.read_bytes() for log in logs)


@pytest.fixture
def moved(corpus_dir: Path, tmp_path: Path) -> Moved:
    killed, ports = corpus_dir / "quorum" / "dynamic-4.4", {n: free_port() for n in (1, 2, 3)}
    found = read_quorum(open_targets([str(killed / f"n{node}") for node in ports]))
    plan = plan_rescue(found, {node: ("127.0.0.1", port) for node, port in ports.items()})
    log_dirs = {node: tmp_path / f"n{node}" for node in ports}
    write_rescue(found, plan, str(log_dirs[1]))
    for node in (2, 3):
        shutil.copytree(killed / f"n{node}", log_dirs[node])
    return Moved(killed, found, plan, ports, log_dirs)


def test_controllers_that_moved_go_on_with_one_new_directory(
    moved: Moved, metadata_trees: Ask
) -> None:
    """Two of them keep their disks, and follow."""
    assert directory_id_of(moved.log_dirs[1]) != directory_id_of(moved.killed / "n1")
    with started(moved.log_dirs, moved.ports, moved.configured) as running:
        output = running[1][1]
        wait_for(running, lambda: leader_epoch(output) and moved.has_first_batch())
    assert leader_epoch(output) > moved.plan.leader_epoch, output.read_text()[-2000:]
    assert (merged := moved.found.merged) is not None
    end = moved.plan.end_offset
    [wanted] = metadata_trees("at", moved.killed / "n1" / METADATA, end)
    for node, log_dir in moved.log_dirs.items():
        after = read_quorum(open_targets([str(log_dir)]))
        assert after.chosen is not None
        assert after.defects == ()
        assert after.chosen.lineage.start == (merged.start if node == 1 else 0)  # nothing was cut
        assert after.chosen.lineage.epoch_of(end) == moved.plan.leader_epoch
        assert {one.name for one in after.voters.voters} == moved.voters()
        assert {one.node_id: one.listeners[0][2] for one in after.voters.voters} == moved.ports
        [image] = metadata_trees("at", log_dir / METADATA, end)
        assert image == wanted


@pytest.mark.thorough(
    "tests/kafka/test_quorums.py::test_controllers_that_moved_go_on_with_one_new_directory"
)
def test_an_old_disk_does_not_come_back_as_a_voter(moved: Moved) -> None:
    """The others elect one of them, and the controller on its old disk is an observer."""
    with started(moved.log_dirs, moved.ports, moved.configured) as running:
        wait_for(running, lambda: leader_epoch(running[1][1]) and moved.has_first_batch())
    old = moved.log_dirs[1].with_name("old1")
    shutil.copytree(moved.killed / "n1", old)
    with started({**moved.log_dirs, 1: old}, moved.ports, moved.configured) as running:
        wait_for(running, lambda: any(leader_epoch(running[node][1]) for node in (2, 3)))
    assert not leader_epoch(running[1][1])
    after = read_quorum(open_targets([str(old), *(str(moved.log_dirs[node]) for node in (2, 3))]))
    assert [(one.node_id, one.role) for one in after.replicas] == [
        (1, "lost"), (1, "observer"), (2, "voter"), (3, "voter")
    ]  # fmt: skip
    assert {one.name for one in after.voters.voters} == moved.voters()
    assert [one.node_id for one in after.candidates if one.node_id == 1] == []


@pytest.mark.thorough(
    "tests/kafka/test_quorums.py::test_controllers_that_moved_go_on_with_one_new_directory"
)
def test_controllers_of_which_one_stayed_need_no_rescue(corpus_dir: Path, tmp_path: Path) -> None:
    """The two others ask it for its vote; and each tells the leader where it listens now."""
    killed = corpus_dir / "quorum" / "dynamic-4.4"
    found = read_quorum(open_targets([str(killed / f"n{node}") for node in (1, 2, 3)]))
    [old] = {one.listeners[0][2] for one in found.voters.voters if one.node_id == 2}
    ports = {1: free_port(), 2: old, 3: free_port()}
    with pytest.raises(RefusedError, match="can elect a leader: 1, 3"):
        plan_rescue(found, {node: ("127.0.0.1", port) for node, port in ports.items()})
    log_dirs = {node: tmp_path / f"n{node}" for node in ports}
    for node, log_dir in log_dirs.items():
        shutil.copytree(killed / f"n{node}", log_dir)
    configured = BOOTSTRAP + ",".join(f"127.0.0.1:{port}" for port in ports.values())

    def recorded() -> dict[int, int]:
        voters = read_quorum(open_targets([str(log_dirs[2])])).voters.voters
        return {one.node_id: one.listeners[0][2] for one in voters}

    with started(log_dirs, ports, configured) as running:
        wait_for(running, lambda: recorded() == ports)
    assert recorded() == ports
    assert leader_epoch(running[1][1]) or leader_epoch(running[3][1])


NODE = """process.roles={role}
node.id={node}
controller.quorum.voters=0@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listener}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
broker.session.timeout.ms=1000
"""


class Lost(NamedTuple):
    """A controller, whose disk is lost, and two brokers.

    Broker 2 was down when the last topics were made, and broker 1 has lost its metadata.
    """

    brokers: Brokers
    root: Path
    ports: list[int]

    def file(self, node: int) -> Path:
        return self.root / f"{node}.properties"

    def write(self, node: int) -> None:
        self.file(node).write_text(
            NODE.format(
                role="broker" if node else "controller", node=node, controller=self.ports[0],
                listener=self.listener(node), log_dir=self.root / str(node),
            )
        )  # fmt: skip

    def listener(self, node: int) -> str:
        return f"{'PLAINTEXT' if node else 'CONTROLLER'}://127.0.0.1:{self.ports[node]}"

    def boot(self, node: int) -> None:
        words = {"listeners": self.listener(node)}
        self.brokers.ask("boot", self.file(node), self.file(node), words)

    def shut_down(self, *nodes: int) -> None:
        for node in nodes:
            self.brokers.ask("shut-down", self.file(node))


@pytest.fixture
def lost(brokers: Brokers, tmp_path: Path) -> Lost:
    cluster = Lost(brokers, tmp_path, brokers.ask("ports", 3))
    for node in range(3):
        cluster.write(node)
        brokers.ask("format", cluster.file(node), CLUSTER)
        cluster.boot(node)
    brokers.ask("create", cluster.file(1), [f"old{number}" for number in range(16)])
    cluster.shut_down(2)
    brokers.ask("create", cluster.file(1), [f"new{number}" for number in range(4)])
    cluster.shut_down(1, 0)
    shutil.rmtree(tmp_path / "0")
    shutil.rmtree(tmp_path / "1" / METADATA)
    return cluster


LEADER = re.compile(
    r"^ +(old\d+):\n +0:\n +PartitionRegistration\(.* leader=(-?\d+),", re.MULTILINE
)


def led_by(node: int, leaders: dict[str, int]) -> set[str]:
    return {name for name, leader in leaders.items() if leader == node}


def test_partitions_become_strays_and_go_offline_as_the_plan_says(
    lost: Lost, metadata_trees: Ask, tmp_path: Path, kafkalog: Run
) -> None:
    """A broker has partitions of topics that the log that counts does not know."""
    here, stale, new = tmp_path / "1", tmp_path / "2" / METADATA, tmp_path / "0"
    sizes = {
        f"{path}-stray": sum(one.stat().st_size for one in path.iterdir())
        for path in here.glob("new*")
    }
    words = ("quorum", here, stale, "--standalone", "0", "--to", new, "-o", "ndjson")
    done = kafkalog(*words)
    assert done.status == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    offline = {row["topic"]: row for row in rows if row["type"] == "quorum_offline_partition"}

    def leaders() -> dict[str, int]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(new / METADATA, copy)
        [image] = metadata_trees("at", copy, 1 << 40)
        return {name: int(leader) for name, leader in LEADER.findall(image)}

    lost.boot(0)
    lost.boot(1)
    try:
        there = {one.name.removesuffix("-0") for one in here.glob("old*-0")}
        deadline = time.monotonic() + HANG_S
        while led_by(1, led := leaders()) != there and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        lost.shut_down(1, 0)
    strays = {re.sub(r"\.\w{32}-stray$", "-stray", str(one)) for one in here.glob("*-stray")}
    assert len(strays) == 4
    assert strays == sizes.keys()
    predicted = {f"{row['path']}-stray": row for row in rows if row["type"] == "quorum_stray"}
    assert {path: row["size_bytes"] for path, row in predicted.items()} == sizes
    assert all("no topic with id" in row["reason"] for row in predicted.values())
    assert len(led) == 16
    assert set(led.values()) == {1, -1}
    assert offline.keys() == led_by(-1, led)
    assert all((row["in_sync"], row["here"]) == ([2], []) for row in offline.values())
