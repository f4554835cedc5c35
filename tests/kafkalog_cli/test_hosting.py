"""What is not where its cluster has it: every command that reads topics notes it, none drops it.

A new command is covered once it is in `COMMANDS` of `test_identity`.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from formats.topic_names import CLUSTER_METADATA
from tests.builders import batch, record, write_log
from tests.kafkalog_cli.test_identity import COMMANDS
from tests.metadata_logs import value_of
from tests.nodes import D1, ORDERS, UNASSIGNED, identify, write_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOT_ASKED = {
    "a few records of a log": {"dump-segment", "lookup-offset"},
    "the state in internal topics": {"groups", "transactions", "sql of groups"},
}
"""Commands that do not look where each topic is, by what they answer for."""
ASKED = sorted({*COMMANDS} - set().union(*NOT_ASKED.values()))


def stray(node: Path) -> None:
    shutil.copytree(node / "d2" / "orders-1", node / "d2" / "orders-2")


def absent(node: Path) -> None:
    shutil.rmtree(node / "d2" / "orders-1")


def duplicate(node: Path) -> None:
    shutil.copytree(node / "d2" / "orders-1", node / "d1" / "orders-1")


def another_id(node: Path) -> None:
    identify(node / "d2" / "orders-1", "V" * 21 + "A")


def stale_watermark(node: Path) -> None:
    """The node was killed before it noted the last high watermark, and is not in sync alone."""
    (node / "d1" / ".kafka_cleanshutdown").unlink()
    watermarks = node / "d1" / "replication-offset-checkpoint"
    watermarks.write_text(watermarks.read_text().replace("orders 0 3", "orders 0 1"))
    change = value_of(
        "PartitionChangeRecord", 1, partitionId=0, topicId=ORDERS, isr=[1, 2], replicas=[1, 2],
        directories=[D1, UNASSIGNED],
    )  # fmt: skip
    metadata = node / "d1" / f"{CLUSTER_METADATA}-0"
    write_log(metadata, batch(9, [record(0, None, change)], epoch=1), name=f"{9:020}")


STATES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "stray": (stray, ("orders-2 becomes a stray when a broker starts",)),
    "absent": (absent, ("the next start would create 1 empty log in ", ": orders-1; their")),
    "duplicate": (duplicate, ("/orders-1, too: no broker starts on both",)),
    "another id": (another_id, ("left out: ", "orders-1 becomes a stray when a broker starts")),
    "stale high watermark": (
        stale_watermark, ('above the high watermark|"above_watermark":{"orders-0":1}', "orders-0")
    ),
}  # fmt: skip
CASES = [
    (command, state)
    for command in ASKED
    for state in STATES
    if (command, state) != ("sql of batches", "stale high watermark")  # batches have no such bound
]


@pytest.mark.sampled(4, each_value=True)
@pytest.mark.parametrize(("command", "state"), CASES)
def test_what_is_not_where_its_node_has_it_is_noted(
    tmp_path: Path, kafkalog: Callable[..., Any], command: str, state: str
) -> None:
    """With the same status as without: it is no damage."""
    change, words = STATES[state]
    node = write_node(tmp_path / "node")
    paths = [node / name for name in ("d1", "d2")]
    run = COMMANDS[command]
    before = run(paths, tmp_path / "before", kafkalog)
    change(node)
    after = run(paths, tmp_path / "after", kafkalog)
    said = [one.said + one.output for one in (before, after)]
    assert not re.search(words[0], said[0]), said[0]
    assert all(re.search(word, said[1]) for word in words), said[1]
    assert after.status == before.status
