"""Kafka's own broker and tools as fixtures, started once per session, also with pytest-xdist."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from formats.releases import newest
from tests.kafka import broker_data
from tests.kafka.booted import Brokers
from tests.kafka.oracle import Oracle
from tests.kafka.tiered import Tiered
from tests.sampling import new_seed, tries_everything
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.spark_topics import Kafka

    Ask = Callable[..., list[str]]

MOMENTS = 40 if tries_everything() else 6


@dataclass(frozen=True)
class GroupMoments:
    """The data that `kafkalog.harness.GroupMoments` left, and its seed."""

    root: Path
    seed: int


@pytest.fixture(scope="session")
def java_tools() -> None:
    """Java and Maven. If they are missing, tests are skipped locally and fail in CI."""
    missing = broker_data.missing_tool()
    if missing and os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)  # at home only, with the missing tool as the reason shown


@pytest.fixture(scope="session")
def harness(java_tools: None) -> None:  # noqa: ARG001
    """The compiled Java side."""
    broker_data.build()
    broker_data.share_classes()


@pytest.fixture(scope="session")
def newest_harness(java_tools: None) -> str:  # noqa: ARG001
    """The Java side for the release whose tables kafkalog has."""
    broker_data.build(newest().name)
    return newest().name


@pytest.fixture(scope="session")
def older_harness(java_tools: None) -> str:  # noqa: ARG001
    """The Java side for the oldest release that kafkalog follows."""
    broker_data.build(broker_data.OLDEST)
    return broker_data.OLDEST


@pytest.fixture(scope="session")
def oracle(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:  # noqa: ARG001
    """Kafka's storage classes, in one JVM for all tests; paths in commands are absolute."""
    with Oracle(tmp_path_factory.mktemp("oracle")) as running:
        yield running


@pytest.fixture(scope="session")
def older_oracle(older_harness: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """The storage classes of the oldest release that kafkalog follows."""
    with Oracle(tmp_path_factory.mktemp("oracle"), older_harness) as running:
        yield running


@pytest.fixture(scope="module")
def metadata_trees(harness: None) -> Iterator[Ask]:  # noqa: ARG001
    """Get trees of Kafka's images from one JVM; MetadataTrees explains `shell` and `at`."""
    process = subprocess.Popen(
        broker_data.java_command("kafkalog.harness.MetadataTrees"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip

    def answer(*words: object) -> list[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        process.stdin.flush()
        found: list[str] = json.loads(process.stdout.readline())
        return found

    yield answer
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    process.stdout.close()
    process.wait(HANG_S)


@pytest.fixture(scope="session")
def brokers(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:  # noqa: ARG001
    """Stock nodes, in one JVM for all tests of a process."""
    with Brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(
    brokers: Brokers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    """A broker whose topics Spark reads, for all tests about its Kafka source."""
    from tests.kafka.spark_topics import Kafka

    with Kafka.running(brokers, spark, tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def broker(harness: None, tmp_path_factory: pytest.TempPathFactory) -> broker_data.BrokerData:  # noqa: ARG001
    """Fresh data of a real broker; its seed is printed (repeat it with KAFKALOG_SEED)."""
    base = shared_by_workers(tmp_path_factory)
    with broker_data.locked(base / "live-broker.lock"):
        return broker_data.run_live_broker(base / "live-broker", new_seed())


@pytest.fixture(scope="session")
def first_life(harness: None, tmp_path_factory: pytest.TempPathFactory) -> broker_data.PastLife:  # noqa: ARG001
    """Data of a real broker that was closed; its seed is printed (repeat it with KAFKALOG_SEED)."""
    base = shared_by_workers(tmp_path_factory)
    with broker_data.locked(base / "first-life.lock"):
        return broker_data.run_first_life(base / "first-life", new_seed())


@pytest.fixture(scope="session")
def killed_life(
    first_life: broker_data.PastLife, tmp_path_factory: pytest.TempPathFactory
) -> broker_data.PastLife:
    """Data of the broker's second life, at the end of which it was killed."""
    base = shared_by_workers(tmp_path_factory)
    with broker_data.locked(base / "killed-life.lock"):
        return broker_data.run_second_life(base / "killed-life", first_life)


@pytest.fixture(scope="session")
def group_moments(harness: None, tmp_path_factory: pytest.TempPathFactory) -> GroupMoments:  # noqa: ARG001
    """A broker's life with groups of each protocol, and all kinds of metadata."""
    return run_group_moments(shared_by_workers(tmp_path_factory) / "group-moments")


def run_group_moments(root: Path, release: str = broker_data.RELEASE) -> GroupMoments:
    """Run a broker of a release below `root` to its end, unless that was done before."""
    with broker_data.locked(root.with_suffix(".lock")):
        told = root / "seed"
        if not told.exists():
            seed = new_seed()
            (root / "cwd").mkdir(parents=True)
            words = (str(root), str(seed), str(MOMENTS))
            name = "kafkalog.harness.GroupMoments"
            broker_data.java(name, *words, cwd=root / "cwd", release=release)
            told.write_text(str(seed))
        return GroupMoments(root, int(told.read_text()))


@pytest.fixture(scope="session")
def tiered(harness: None, tmp_path_factory: pytest.TempPathFactory) -> Tiered:  # noqa: ARG001
    """The data of a broker with remote storage; tests change only copies."""
    root = shared_by_workers(tmp_path_factory) / "tiered"
    with broker_data.locked(root.with_suffix(".lock")):
        if not (root / "done").exists():
            seed = new_seed()
            print("seed", seed)
            (root / "cwd").mkdir(parents=True)
            name = "kafkalog.harness.TieredBroker"
            broker_data.java(name, str(root), str(seed), cwd=root / "cwd")
            (root / "done").touch()
    return Tiered(root)


def shared_by_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that all workers of pytest-xdist share, so that one broker is enough."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base
