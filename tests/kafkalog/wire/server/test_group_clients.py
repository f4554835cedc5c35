"""Third-party consumers and admin clients in groups of a running server, plain and over TLS."""

from __future__ import annotations

import contextlib
import ssl
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import confluent_kafka as librdkafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kafkalog.wire.server.meter import PrometheusMeter
from kafkalog.wire.server.model import Address
from tests.checkout import ROOT
from tests.kafkalog.wire.server.certificates import write_certificate
from tests.kafkalog.wire.server.protocol import serving
from tests.kafkalog.wire.server.wire import Wire
from tests.waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.kafkalog.wire.server.protocol import Serving

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")

EXAMPLE = ROOT / "examples" / "log-dir"
TOPIC, PARTITIONS = "txn", 3


@pytest.fixture(scope="module")
def served(corpus_dir: Path) -> Iterator[Serving]:
    """A log directory with a topic of three partitions."""
    with serving(corpus_dir / "kafka-4.3" / "txn") as running:
        yield running


def poll_together(members: Sequence[Rdkafka | Python]) -> None:
    """Poll each member in its own thread: a member that joins may wait for the others to join."""
    with ThreadPoolExecutor(len(members)) as pool:
        for one in [pool.submit(member.poll) for member in members]:
            one.result()


class Rdkafka:
    """A librdkafka consumer that counts its records."""

    def __init__(self, address: Address, group: str, **config: Any) -> None:
        self._consumer = librdkafka.Consumer({
            "bootstrap.servers": str(address), "group.id": group,
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, **config,
        })  # fmt: skip
        self._consumer.subscribe([TOPIC])
        self.count = 0

    def poll(self) -> None:
        for message in self._consumer.consume(1_000, 0.05):
            assert message.error() is None, message.error()
            self.count += 1

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def has_read(self) -> bool:
        """Return whether each assigned partition has delivered records."""
        assigned = self._consumer.assignment()
        return all(one.offset > 0 for one in self._consumer.position(assigned))

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Python:
    """A kafka-python consumer that counts its records."""

    def __init__(self, address: Address, group: str, **config: Any) -> None:
        self._consumer = kafka.KafkaConsumer(
            TOPIC, bootstrap_servers=str(address), group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=6_000, heartbeat_interval_ms=200, **config,
        )  # fmt: skip
        self.count = 0

    def poll(self) -> None:
        self.count += sum(map(len, self._consumer.poll(timeout_ms=50).values()))

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def has_read(self) -> bool:
        """Return whether each assigned partition has delivered records."""
        return all(self._consumer.position(one) > 0 for one in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("kind", [Rdkafka, Python])
def test_two_members_share_the_partitions_until_one_leaves(
    served: Serving, kind: type[Rdkafka | Python]
) -> None:
    group = f"shared-{kind.__name__}"
    everything = set(range(PARTITIONS))
    with contextlib.ExitStack() as stack:
        members = [kind(served.address, group) for _ in range(2)]
        for one in members:
            stack.callback(one.close)

        def is_split() -> bool:
            poll_together(members)
            first, second = (one.partitions() for one in members)
            return bool(first and second and first | second == everything)

        until(is_split)
        first, second = (one.partitions() for one in members)
        assert not first & second
        with Wire(served.address) as wire:
            [told] = wire.tell("DescribeGroups", 6, groups=[group])["groups"]
            assert (told["groupState"], len(told["members"])) == ("Stable", 2)
        until(lambda: (poll_together(members), all(one.has_read() for one in members))[-1])
        for one in members:
            one.commit()
        members[1].close()

        def has_all() -> bool:
            members[0].poll()
            return members[0].partitions() == everything

        until(has_all)
    admin = kafka.KafkaAdminClient(bootstrap_servers=str(served.address))
    try:
        offsets = admin.list_group_offsets([group])[group]
        assert {one.partition for one in offsets} == everything
        assert all(one.offset > 0 for one in offsets.values())
    finally:
        admin.close()


def test_members_of_two_libraries_share_a_group(served: Serving) -> None:
    """librdkafka and kafka-python both support the `range` assignor."""
    with contextlib.ExitStack() as stack:
        members = [
            Rdkafka(served.address, "mixed", **{"partition.assignment.strategy": "range"}),
            Python(served.address, "mixed"),
        ]
        for one in members:
            stack.callback(one.close)

        def is_split() -> bool:
            poll_together(members)
            return sum(len(one.partitions()) for one in members) == PARTITIONS and all(
                one.partitions() for one in members
            )

        until(is_split)


def test_tools_see_the_offsets_of_the_log() -> None:
    with serving(EXAMPLE) as running:
        admin = kafka.KafkaAdminClient(bootstrap_servers=str(running.address))
        try:
            offsets = admin.list_group_offsets(["billing"])["billing"]
        finally:
            admin.close()
        [(partition, committed)] = offsets.items()
        assert (partition.topic, partition.partition, committed.offset) == ("orders", 0, 400)
        rdkafka = AdminClient({"bootstrap.servers": str(running.address)})
        groups = rdkafka.list_consumer_groups().result()
        assert [one.group_id for one in groups.valid] == ["billing"]
        resource = ConfigResource(ConfigResource.Type.TOPIC, "customers")
        configs = rdkafka.describe_configs([resource])[resource].result()
        assert configs["cleanup.policy"].value == "compact"
        assert configs["cleanup.policy"].is_read_only
        assert not configs["cleanup.policy"].is_default
        assert configs["retention.ms"].value == "604800000"
        assert configs["retention.ms"].is_default


def test_tls_and_sasl(tmp_path: Path, corpus_dir: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    users = tmp_path / "users"
    users.write_text("alice=secret\n")
    tls = (str(certificate), str(key))
    log_dir = corpus_dir / "kafka-4.3" / "txn"
    with serving(log_dir, tls=tls, sasl_file=str(users)) as running:
        address = Address("localhost", running.address.port)
        secured = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificate),
                   "sasl.mechanism": "PLAIN", "sasl.username": "alice",
                   "sasl.password": "secret"}  # fmt: skip
        consumer = Rdkafka(address, "secured", **secured)
        until(lambda: (consumer.poll(), consumer.partitions() == set(range(PARTITIONS)))[-1])
        until(lambda: (consumer.poll(), consumer.count > 0)[-1])
        consumer.close()
        other = Python(
            address, "python", security_protocol="SASL_SSL", ssl_cafile=str(certificate),
            sasl_mechanism="PLAIN", sasl_plain_username="alice",
            sasl_plain_password="secret",  # noqa: S106
        )  # fmt: skip
        until(lambda: (other.poll(), other.count > 0)[-1])
        other.close()
        failures: list[str] = []
        refused = AdminClient({
            "bootstrap.servers": str(address), **secured, "sasl.password": "guess",
            "error_cb": lambda error: failures.append(error.name()),
        })  # fmt: skip
        until(lambda: (refused.poll(0.1), "_AUTHENTICATION" in failures)[-1])
        context = ssl.create_default_context(cafile=str(certificate))
        with Wire(address, tls=context) as wire:  # nothing is told before
            assert wire.tell("ApiVersions", 3, clientSoftwareName="w")["errorCode"] == 0
            with pytest.raises(ConnectionResetError):
                wire.tell("Metadata", 12, topics=None)
        with Wire(running.address) as plain, pytest.raises(ConnectionResetError):
            plain.tell("ApiVersions", 3)


def test_metrics(corpus_dir: Path) -> None:
    meter = PrometheusMeter(Address("127.0.0.1", 0))
    try:
        with serving(corpus_dir / "kafka-4.3" / "txn", meter=meter) as running:
            with Wire(running.address) as wire:
                wire.tell("Metadata", 12, topics=None)
                wire.tell("Metadata", 12, topics=None)
                counted = 'kafkalog_serve_request_seconds_count{api="Metadata"} 2.0'
                until(lambda: counted in scraped(meter))  # after the answer is sent
                text = scraped(meter)
            assert "kafkalog_serve_connections 1.0" in text
            assert 'kafkalog_serve_requests_total{api="Metadata"} 2.0' in text
            assert "kafkalog_serve_group_members 0.0" in text
            until(lambda: "kafkalog_serve_connections 0.0" in scraped(meter))
    finally:
        meter.close()


def scraped(meter: PrometheusMeter) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{meter.port}/metrics") as answer:
        return str(answer.read().decode())


def test_large_requests_that_wait_do_not_keep_others_waiting(served: Serving) -> None:
    """Waiting members with large metadata do not use up the request memory of other clients."""
    protocols = [{"name": "range", "metadata": bytes(1 << 20)}]
    request = {"groupId": "large", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 300_000,
               "protocolType": "consumer", "protocols": protocols}  # fmt: skip
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(served.address)) for _ in range(4)]
        for wire in wires:
            wire.request("JoinGroup", 3, **request)
        for wire in wires:  # the first rebalance ends for all of them
            assert wire.answer()["errorCode"] == 0
        for wire in wires[1:]:
            wire.request("JoinGroup", 3, **request)
        groups = [{"groupId": f"{number:0200}", "topics": None} for number in range(100)]
        answer = wires[0].tell("OffsetFetch", 9, groups=groups)
        assert len(answer["groups"]) == 100
