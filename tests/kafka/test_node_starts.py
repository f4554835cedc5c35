"""Starts of whole nodes: a stock broker makes of each state what is predicted and recorded."""

from __future__ import annotations

import random
import re
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.recovery import Consequence
from tests.kafka import broker_data
from tests.kafkalog.test_node_start import errors, node_at
from tests.nodes import STATES, mutate, write_node
from tests.sampling import new_seed
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.booted import Brokers
    from tests.nodes import State

pytestmark = pytest.mark.kafka

MUTATED = 140
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
"""
OPTIONS = (
    *(option for option in broker_data.JVM_OPTIONS if "defaultLogLevel" not in option),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)
STARTED = "Kafka Server started"


@dataclass(frozen=True)
class Started:
    """What a broker made of its log directories.

    Attributes:
        log: what it logged.
        strays: the partitions whose directories it made strays.
    """

    log: str
    strays: set[str]

    @property
    def is_up(self) -> bool:
        return STARTED in self.log

    def died_of(self, errors: set[str]) -> bool:
        """Return whether it logged one of these exceptions, or only the cause of one.

        A log directory that goes offline takes the exception with it.
        """
        found = set(re.findall(r"(?:\w+\.)+(\w+(?:Exception|Error))\b", self.log))
        is_offline = "Shutdown broker because the metadata log dir" in self.log
        return bool(found & errors) or (is_offline and "KafkaStorageException" in errors)

    @property
    def created(self) -> set[str]:
        """The partitions that it created empty, without those in place of strays."""
        return set(re.findall(r"Created log for partition (\S+)", self.log)) - self.strays


def start(root: Path, ports: list[int]) -> Started:
    """Start a broker on the directories in a process of its own: some starts end the process."""
    log_dirs = sorted(path for path in root.iterdir() if path.is_dir())
    before = {path for one in log_dirs for path in one.glob("*-stray")}
    properties = root.with_suffix(".properties")
    names = ",".join(map(str, log_dirs))
    text = PROPERTIES.format(controller=ports[0], broker=ports[1], log_dirs=names)
    properties.write_text(text)
    output = root.with_suffix(".log")
    command = broker_data.java_command("kafka.Kafka", str(properties), options=OPTIONS)
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + HANG_S
            while process.poll() is None and STARTED not in output.read_text():
                assert time.monotonic() < deadline, output.read_text()[-2000:]
                time.sleep(0.2)
        finally:
            process.terminate()
            process.wait(HANG_S)
    strays = {path for one in log_dirs for path in one.glob("*-stray")} - before
    return Started(output.read_text(), {path.name.partition(".")[0] for path in strays})


def require_equal(root: Path, brokers: Brokers, about: str) -> Started:
    """Predict the start, start, compare, and return what the broker did."""
    node = node_at(root / "d1", root / "d2")
    refused = errors(node, Consequence.BROKER_FAILS)
    offline = errors(node, Consequence.LOG_DIR_OFFLINE)
    partitions = [partition for one in node.dirs for partition in one.log_dir.partitions]
    strays = {f"{one.topic}-{one.partition}" for one in partitions if node.stray_reason(one)}
    started = start(root, brokers.ask("ports", 2))
    assert started.is_up == (not refused), (about, refused, started.log[-2000:])
    if refused:
        assert started.died_of(refused), about
    elif not offline and node.hosting is not None:
        assert started.strays == strays, about
        assert started.created == {one.name for one in node.absent}, about
    return started


@pytest.mark.sampled(20)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_the_recorded_outcomes_are_a_brokers(
    state: State, brokers: Brokers, tmp_path: Path
) -> None:
    root = write_node(tmp_path / "node")
    state.change(root)
    started = require_equal(root, brokers, "")
    assert started.is_up == (state.error is None)
    if state.error is not None:
        assert started.died_of({state.error})
    elif state.offline is None:
        assert started.strays == {*state.strays}
        assert started.created == {*state.created}


@pytest.mark.sampled(70)
@pytest.mark.parametrize("number", range(MUTATED))
def test_damaged_nodes_start_as_predicted(
    number: int, brokers: Brokers, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seed = new_seed() + number
    root = write_node(tmp_path / "node")
    about = mutate(root, random.Random(seed))
    tell(f"seed {seed}: {about}")
    require_equal(root, brokers, about)
