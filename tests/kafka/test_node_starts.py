"""Starts of whole nodes: a stock broker makes of each state what is predicted and recorded."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka import broker_data
from tests.kafkalog.test_node_start import RECORDED, predicted
from tests.nodes import METADATA, STATES, Outcome, drawn_node, sizes_of, write_node
from tests.sampling import new_seed
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.booted import Brokers
    from tests.nodes import State

pytestmark = pytest.mark.kafka

DAMAGED = 200
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
metadata.log.dir={home}
# what a future copy replaces stays, however late the broker is killed
log.segment.delete.delay.ms=86400000
"""
OPTIONS = (
    *(option for option in broker_data.JVM_OPTIONS if "defaultLogLevel" not in option),
    "-Xms64m",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)
STARTED = "Kafka Server started"
LOADED = re.compile(
    r"Completed load of Log\(dir=(\S+), .*?logStartOffset=(\d+), logEndOffset=(\d+)\) with"
)


def outcome(log: str, root: Path, made: set[Path]) -> Outcome:
    """Return what a broker made of its log directories, by what it logged and which it made."""
    errors: set[str] = set()
    if STARTED not in log:
        errors = set(re.findall(r"(?:\w+\.)+(\w+(?:Exception|Error))\b", log))
        if "Shutdown broker because" in log:
            errors.add("KafkaStorageException")  # the exception is not logged
    offline = set(re.findall(rf"Stopping serving logs in dir {root}/(\w+)", log))
    offline |= set(re.findall(rf"Error while reading meta.properties file {root}/(\w+)", log))
    strays = {path for path in made if path.name.endswith("-stray")}
    stray_names = {named(path).name for path in strays}
    created = set(re.findall(r"Created log for partition (\S+)", log)) - stray_names
    # Once it is up, the broker goes on with moves: a copy takes the place of what was loaded.
    places = {named(path): path for path in made if path.name.endswith(("-stray", "-delete"))}
    logs = {}
    for name, start, end in LOADED.findall(log) if not errors else ():
        path = named(Path(name)) if Path(name) in strays else Path(name)
        place = places.get(path, path)
        short = str(path.relative_to(root))
        sizes = sizes_of(short, (one.stat().st_size for one in sorted(place.glob("*.log"))))
        logs[short] = int(start), int(end), *sizes
    found = (tuple(sorted(one)) for one in (errors, offline, stray_names, created))
    return Outcome(*found, logs)


def named(path: Path) -> Path:
    """Return a directory by the name of its partition."""
    return path.with_name(path.name.partition(".")[0])


def start(root: Path, ports: list[int], release: str = broker_data.RELEASE) -> Outcome:
    """Start a broker on the directories in a process of its own: some starts end the process."""
    log_dirs = sorted(path for path in root.iterdir() if path.is_dir())
    before = {path for one in log_dirs for path in one.iterdir()}
    # As it is predicted: the metadata log is where it is configured.
    home = next((one for one in log_dirs if (one / METADATA).exists()), log_dirs[0])
    properties = root.with_suffix(".properties")
    names = ",".join(map(str, log_dirs))
    text = PROPERTIES.format(controller=ports[0], broker=ports[1], log_dirs=names, home=home)
    properties.write_text(text)
    output = root.with_suffix(".log")
    command = broker_data.java_command(
        "kafka.Kafka", str(properties), options=OPTIONS, release=release
    )
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + HANG_S
            while process.poll() is None and STARTED not in output.read_text():
                assert time.monotonic() < deadline, output.read_text()[-2000:]
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait(HANG_S)
    made = {path for one in log_dirs for path in one.iterdir()} - before
    return outcome(output.read_text(), root, made)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_the_recorded_outcomes_are_a_brokers(
    state: State, brokers: Brokers, tmp_path: Path
) -> None:
    root = write_node(tmp_path / "node")
    state.change(root)
    ours = predicted(root)
    started = start(root, brokers.ask("ports", 2))
    assert not ours.differences(started)
    assert bool(started.errors) == (state.error is not None)
    if state.error is not None:
        assert state.error in started.errors
    elif state.offline is None:
        assert started.strays == tuple(sorted(state.strays))
        assert started.created == tuple(sorted(state.created))


@pytest.mark.sampled(200)
@pytest.mark.parametrize("number", range(DAMAGED))
def test_damaged_nodes_start_as_predicted(
    number: int, brokers: Brokers, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Some of them are recorded, and compared with that, too; the others are new in a soak."""
    recorded = RECORDED[number] if number < len(RECORDED) else None
    seed = recorded["seed"] if recorded is not None else new_seed() + number
    root = tmp_path / "node"
    about = drawn_node(root, corpus_dir / "recovery" / "intact" / "orders-0", seed)
    tell(f"seed {seed}: {about}")
    ours = predicted(root)
    started = start(root, brokers.ask("ports", 2))
    assert not ours.differences(started), about
    if recorded is not None:
        outcomes = Outcome.of(dict(recorded["outcome"])), started
        # With a directory offline it may die or not, here as when it was recorded.
        one, other = sorted(outcomes, key=lambda one: not one.offline)
        assert not one.differences(other), about


@pytest.mark.sampled(100)
@pytest.mark.parametrize("row", RECORDED[::2], ids=lambda row: str(row["seed"]))
def test_an_older_kafka_starts_as_predicted(
    row: dict[str, Any], brokers: Brokers, older_harness: str, corpus_dir: Path, tmp_path: Path
) -> None:
    root = tmp_path / "node"
    drawn_node(root, corpus_dir / "recovery" / "intact" / "orders-0", row["seed"])
    ours = predicted(root)
    started = start(root, brokers.ask("ports", 2), older_harness)
    assert not ours.differences(started), row["about"]
