"""What is put together from damaged copies of a quorum, by Kafka's own metadata image."""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from formats.releases import newest
from kafkalog.change.resurrection.quorum import write_rescue
from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import flip, frames
from tests.kafka import broker_data
from tests.kafkalog.node.quorum.test_copies import ENDS
from tests.nodes import METADATA
from tests.sampling import new_seed, tries_everything
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.conftest import Ask

pytestmark = pytest.mark.kafka

NODES = (1, 11, 12)
"""One voter, and two brokers."""
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
        write_rescue(found, plan_rescue(found, 1, ("controller1", 9093)), str(root / "new"))
        [image] = metadata_trees("at", root / "new" / METADATA, end)
        assert image == wanted, f"seed {seed}, round {number}"
        shutil.rmtree(root)
    tell(f"{complete} of {ROUNDS} are whole, seed {seed}")
    assert complete > ROUNDS // 2


PROPERTIES = """process.roles=controller
node.id=1
{configured}
listeners=CONTROLLER://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={log_dir}
"""
OPTIONS = (
    *(option for option in broker_data.JVM_OPTIONS if "defaultLogLevel" not in option),
    "-Xms64m",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)
CONFIGURED = ("configure", 1)
LEADS = re.compile(r"Completed transition to Leader\(localVoterNode=.*?, epoch=(\d+)")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def directory_id_of(log_dir: Path) -> str:
    [found] = re.findall(r"directory.id=(\S+)", (log_dir / "meta.properties").read_text())
    return str(found)


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
    plan = plan_rescue(found, 1, ("127.0.0.1", port))
    log_dir = tmp_path / "n1"
    write_rescue(found, plan, str(log_dir))
    [directory_id] = re.findall(r"directory.id=(\S+)", (log_dir / "meta.properties").read_text())
    before = read_quorum(open_targets([str(log_dir)]))
    is_static = not found.kraft_version
    assert [one.node_id for one in before.candidates] == [1]
    assert (before.defects, before.proven) == ((), end if is_static else end + 3)
    [configured] = [one.detail for one in plan.steps if (one.action, one.node_id) == CONFIGURED]
    properties, output = tmp_path / "server.properties", tmp_path / "out"
    properties.write_text(PROPERTIES.format(configured=configured, port=port, log_dir=log_dir))
    command = broker_data.java_command(
        "kafka.Kafka", str(properties), options=OPTIONS, release=newest().name
    )
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + HANG_S
            while process.poll() is None and LEADS.search(output.read_text()) is None:
                assert time.monotonic() < deadline, output.read_text()[-2000:]
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait(HANG_S)
    leads = LEADS.search(output.read_text())
    assert leads is not None, output.read_text()[-2000:]
    assert int(leads[1]) == plan.leader_epoch + 1
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
