"""What commands read from the directory of a living node, against what Admin answers.

Between the moments there are members of each group protocol, transactions that are open, prepared
or hang, compaction, topics of the same name, changes of configs, ACLs, SCRAM users and features;
the node is killed and started again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from formats.releases import newest
from kafkalog.model import present_ms
from kafkalog.node.cluster_image.model import BROKER, RESOURCE_TYPES, SCRAM_MECHANISMS, TOPIC
from kafkalog.node.state.metadata import metadata
from tests.builders import batch, record
from tests.kafka import broker_data
from tests.kafka.booted import Brokers
from tests.kafka.broker_client import produce
from tests.kafka.test_groups import as_told, on_disk, read, transactions_on_disk
from tests.sampling import sampled
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        newest().name != broker_data.RELEASE, reason="what it sets is of the newest release"
    ),
]

STEPS: Final = (
    "topics", "security", "classic", "consumer", "share", "ongoing", "prepared", "killed",
    "streams", "hanging", "cleaned", "administered",
)  # fmt: skip
"""What happens before each moment, see ClusterMoments.java."""
TRANSACTIONAL: Final = 1 << 4
STRANGER: Final = 4711
"""A producer that no coordinator knows."""
CONFIGS: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "metadata.max.idle.interval.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


class Clients(Brokers):
    """The JVM of the clients: ClusterMoments explains what it can be asked."""

    def __init__(self, cwd: Path, bootstrap: str, log_dir: Path) -> None:
        super().__init__(cwd)
        self.command = ("kafkalog.harness.ClusterMoments", bootstrap, str(log_dir))


class Cluster:
    """A node, its clients, and at times a second node."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root, self._stack = root, stack
        self._brokers = stack.enter_context(Brokers(root))
        self.port, controller, self._second_port = self._brokers.ask("ports", 3)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log_dir = root / "log-1"
        self._configs = {
            **CONFIGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        self._file = self._format("1", self._configs)
        self._boot()
        self.clients = stack.enter_context(Clients(root, self.bootstrap, self.log_dir))
        self.clients.ask("step", "begin")

    def _format(self, node: str, configs: dict[str, str]) -> Path:
        file = self._root / f"{node}.properties"
        lines = {**configs, "log.dirs": str(self._root / f"log-{node}")}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._brokers.ask("format", file, "MkU3OEVBNTcwNTJENDM2Qk")
        return file

    def _boot(self) -> None:
        self._brokers.ask("boot", "1", self._file, {"listeners": self._configs["listeners"]})

    def step(self, name: str) -> None:
        """Let something happen."""
        if name == "prepared":
            listener = f"PLAINTEXT://127.0.0.1:{self._second_port}"
            mine = {"node.id": "2", "process.roles": "broker"}
            mine |= {"listeners": listener, "advertised.listeners": listener}
            file = self._format("2", {**self._configs, **mine})
            self._brokers.ask("boot", "2", file, {"listeners": listener})
            self.clients.ask("step", "begin-remote")
            self._brokers.ask("shut-down", "2")
        if name == "killed":
            self._brokers.kill()
            self._brokers = self._stack.enter_context(Brokers(self._root))
            self._boot()
        if name == "hanging":
            self.clients.ask("step", "unverified")
            producer = (STRANGER, 0, 0)
            data = batch(0, [record()], attributes=TRANSACTIONAL, producer=producer)
            assert produce(self.port, "orders", 2, data, "stranger")[0] == 0
        self.clients.ask("step", name)

    def answer(self) -> dict[str, Any]:
        """Return what Admin answers."""
        answer: dict[str, Any] = self.clients.ask("answer")
        answer["open"].sort()
        answer["hanging"] = []
        for name in ("acls", "quotas", "scram"):
            answer["metadata"][name].sort(key=str)
        if any(producer == STRANGER for _, producer, *_ in answer["open"]):
            answer["hanging"] = self._hanging()
        return answer

    def _hanging(self) -> list[str]:
        """Return the partitions that `kafka-transactions.sh find-hanging` names."""
        words = ("--bootstrap-server", self.bootstrap, "find-hanging", "--broker-id", "1")
        tool = "org.apache.kafka.tools.TransactionsCommand"
        lines = broker_data.java(tool, *words, cwd=self._root).splitlines()[1:]
        return sorted("-".join(line.split()[:2]) for line in lines)


def state_on_disk(log_dir: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the state that the directory has, in the form of the admin client."""
    found = read(log_dir)
    answer["groups"] = on_disk(answer["groups"], found)
    return {
        "groups": as_told(found, answer["groups"], log_dir),
        **transactions_on_disk(log_dir, present_ms()),
        "metadata": metadata_on_disk(log_dir),
    }


def metadata_on_disk(log_dir: Path) -> dict[str, Any]:
    image = metadata(log_dir).image
    assert image.is_whole
    assert not image.unknown
    assert not image.refused
    shown = {TOPIC: image.topics, BROKER: ("", "1")}
    return {
        "topics": {
            name: [
                topic_id,
                {
                    str(number): [
                        one.leader,
                        *map(list, (one.replicas, one.isr, one.elr, one.last_known_elr)),
                    ]
                    for number, one in image.partitions[topic_id].items()
                },
            ]
            for name, topic_id in image.topics.items()
        },
        "configs": {
            f"{RESOURCE_TYPES[kind]}:{name}": configs
            for (kind, name), configs in image.configs.items()
            if configs and name in shown.get(kind, (name,))
        },
        "features": {"metadata.version": image.metadata_version, **image.features},
        "acls": sorted(
            (
                [
                    one.resource_type,
                    one.resource_name,
                    one.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                ]
                for one in image.acls.values()
            ),
            key=str,
        ),
        "quotas": sorted(
            (
                [dict(entity), dict(sorted(values.items()))]
                for entity, values in image.quotas.items()
            ),
            key=str,
        ),
        "scram": sorted(
            (
                [user, SCRAM_MECHANISMS[mechanism], one.iterations]
                for (mechanism, user), one in image.scram.items()
            ),
            key=str,
        ),
        "brokers": {
            str(one.node_id): [
                one.endpoints["PLAINTEXT"].host,
                one.endpoints["PLAINTEXT"].port,
                one.is_fenced,
            ]
            for one in image.brokers.values()
        },
    }


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return what differs between two answers."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in sorted({*ours, *theirs})
            for line in differences(ours.get(name), theirs.get(name), f"{where}/{name}")
        ]
    return [] if ours == theirs else [f"{where}: {ours}, the broker says {theirs}"]


def require_equal(cluster: Cluster, where: str) -> None:
    """Require that the directory has what Admin answers.

    The disk lags: high watermarks are noted at intervals, and members join. So this asks again
    until both agree, while the broker's answers around the reading are the same.
    """
    over = time.monotonic() + HANG_S
    while True:
        before = cluster.answer()
        ours = state_on_disk(cluster.log_dir, before)
        after = cluster.answer()
        after["groups"] = {name: after["groups"].get(name) for name in before["groups"]}
        differ = differences(ours, before)
        if before == after and not differ:
            return
        assert time.monotonic() < over, f"{where}\n" + "\n".join(differ or ["it does not rest"])
        time.sleep(0.2)


def test_commands_show_what_admin_answers(
    harness: None, tmp_path: Path, kafkalog: Callable[..., Result], tell: Callable[[str], None]
) -> None:
    """The answers are equal at each moment, and the commands end with status 0."""
    assert harness is None
    steps = sampled(STEPS, len(STEPS))
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        for name in steps:
            cluster.step(name)
            require_equal(cluster, name)
            for command in ("groups", "transactions", "metadata"):
                result = kafkalog(command, cluster.log_dir)
                assert result.status == 0, (name, result)
    tell(f"the directory of a node had what Admin answered after {', '.join(steps)}")
