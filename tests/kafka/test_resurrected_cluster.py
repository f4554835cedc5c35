"""A cluster whose brokers were all killed and whose controller is lost: one node, then three.

Broker 3 was down at the end, so that its copies are older. Clients get the same answers as before:
records, offsets, groups, transactional ids, topics, configs, ACLs, SCRAM users and quotas.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.booted import (
    ABORTING,
    Brokers,
    Told,
    findings,
    life,
    require_growth,
    require_metadata,
    resurrect,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Run, Truth

pytestmark = pytest.mark.kafka

BEGIN_MS = 1_700_000_000_000
TIMES = [BEGIN_MS + delta for delta in (-1, 0, 10_001, 100_000, 299_000, 10**9)]
TARGETS = {
    f"{topic}-{number}": TIMES
    for topic in ("plain", "compacted", "transactions")
    for number in range(3)
}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
NODE = """\
process.roles={role}
node.id={node}
controller.quorum.voters=0@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listener}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
min.insync.replicas=1
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
log.initial.task.delay.ms=600000
transaction.abort.timed.out.transaction.cleanup.interval.ms=600000
"""


@dataclass(frozen=True)
class Lost:
    """What is left of the cluster.

    Attributes:
        log_dirs: of the brokers.
        told: the last answers that clients got.
        cluster_id: the id of the cluster.
    """

    log_dirs: list[Path]
    told: Told
    cluster_id: str

    @property
    def truths(self) -> dict[str, Truth]:
        found = self.told.truths()
        return {name: truth for name, truth in found.items() if not name.startswith("__")}


@pytest.fixture(scope="module")
def lost(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Lost:  # noqa: ARG001
    """A controller and three brokers after a SIGKILL; the controller's disk is gone."""
    root = tmp_path_factory.mktemp("cluster")
    log_dirs = [root / str(node) for node in range(4)]
    with Brokers(root) as doomed:
        ports = doomed.ask("ports", 4)
        for node, log_dir in enumerate(log_dirs):
            listener = f"{'PLAINTEXT' if node else 'CONTROLLER'}://127.0.0.1:{ports[node]}"
            file = root / f"{node}.properties"
            text = NODE.format(role="broker" if node else "controller", node=node,
                               controller=ports[0], listener=listener, log_dir=log_dir)  # fmt: skip
            file.write_text(text)
            doomed.ask("format", file, "MkU3OEVBNTcwNTJENDM2Qk")
            doomed.ask("boot", str(node), file, {"listeners": listener})
        doomed.ask("fill", "1", 1)
        doomed.ask("shut-down", "3")
        doomed.ask("fill", "1", 2)
        doomed.ask("observe", "1", root / "told", TARGETS)
        doomed.kill()
    shutil.rmtree(log_dirs[0])
    return Lost(log_dirs[1:], Told(root / "told"), "MkU3OEVBNTcwNTJENDM2Qk")


def require_the_newest(rows: list[dict[str, Any]], lost: Lost) -> None:
    """Require that no partition that grew is taken from the broker that was down."""
    taken = {
        f"{row['topic']}-{row['partition']}": row["path"]
        for row in rows
        if row["type"] == "resurrected_partition"
    }
    assert set(taken) == set(lost.told.report["offsets"])
    grown = [name for name in taken if name.startswith(("plain", "compacted"))]
    assert not [name for name in grown if taken[name].startswith(f"{lost.log_dirs[2]}/")]


def test_a_lost_cluster_lives_on_one_node_and_then_on_three(
    brokers: Brokers, kafkalog: Run, lost: Lost, tmp_path: Path
) -> None:
    """Nothing is missing, users log in, an open transaction ends, and three nodes share it."""
    home = tmp_path / "new"
    require_the_newest(resurrect(kafkalog, home, *lost.log_dirs), lost)
    with life(brokers, home) as first:
        told = first.observe(lost.truths)
        told.require(lost.truths)
        require_metadata(told, lost.told)
        assert len(told.report["groups"]) == 3
        assert told.report["acls"]
        assert told.report["scram"] == {"alice": ["SCRAM-SHA-512 4096"]}
        assert first.go_on(lost.truths) == {}
    one, controller, secure, two, three = brokers.ask("ports", 5)
    configs = {
        "listeners": f"PLAINTEXT://127.0.0.1:{one},CONTROLLER://127.0.0.1:{controller},"
        f"SASL_PLAINTEXT://127.0.0.1:{secure}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{one},SASL_PLAINTEXT://127.0.0.1:{secure}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": JAAS,
    }
    with life(brokers, home, 2, {**ABORTING, **configs}) as second:
        require_growth(second.await_stable(), lost.truths)
        assert brokers.ask("log-in", f"127.0.0.1:{secure}")["topics"] == ["plain"]
        second.harmless = tuple(f"[Broker id={node}] Expected partition" for node in (2, 3))
        for node, port in ((2, two), (3, three)):
            add_broker(brokers, home, tmp_path, node, port, configs["controller.quorum.voters"])
        brokers.ask("reassign", second.name, [2, 3, 1])
        told = second.observe({})
        require_growth(told, lost.truths)
        for topic in told.report["topics"].values():
            for partition in topic["partitions"]:
                assert (partition["leader"], sorted(partition["isr"])) == (2, [1, 2, 3])
        for node in (3, 2):
            brokers.ask("shut-down", f"node-{node}")
    assert findings(kafkalog, home / "log") == set()
    assert findings(kafkalog, tmp_path / "log-2") == set()


def add_broker(brokers: Brokers, home: Path, root: Path, node: int, port: int, voters: str) -> None:
    """Add another broker to the resurrected cluster, in the usual way."""
    properties = (home / "log" / "meta.properties").read_text()
    [cluster] = [line[11:] for line in properties.splitlines() if line.startswith("cluster.id=")]
    changed = {
        "process.roles": "broker",
        "node.id": str(node),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": voters,
        "log.dirs": str(root / f"log-{node}"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.cleaner.enable": "false",
    }
    lines = (home / "server.properties").read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in changed]
    file = root / f"{node}.properties"
    file.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in changed.items()), ""]))
    brokers.ask("format", file, cluster)
    brokers.ask("boot", f"node-{node}", file, {"listeners": changed["listeners"]})


def test_each_record_of_the_checkpoint_is_needed(
    brokers: Brokers, kafkalog: Run, lost: Lost, tmp_path: Path
) -> None:
    """Without the producer ids a new producer's records are swallowed.

    Without the configs the first retention deletes what is older than a week.
    """
    home = tmp_path / "new"
    resurrect(kafkalog, home, *lost.log_dirs)
    records = brokers.ask("checkpoint", home / "log")
    kept = [
        record
        for record in records
        if record["type"] != "PRODUCER_IDS_RECORD"
        and not record["data"].get("name", "").startswith("retention.")
    ]
    assert len(kept) < len(records) - 6
    brokers.ask("write-checkpoint", home / "log", kept)
    with life(brokers, home) as mutated:
        once = {name: truth for name, truth in lost.truths.items() if name.startswith("once")}
        told = mutated.go_on(once)
        assert {name for name in once if told[name][0] < once[name].end} == set(once)
        new = mutated.observe({})
        while new.report["offsets"]["plain-0"]["read_uncommitted"]["earliest"][0] == 0:
            time.sleep(0.2)
            new = mutated.observe({})
    assert len(new.records("plain-0")) < len(lost.truths["plain-0"].records)
