"""Odd directories, as no broker leaves them, against Kafka 4.3's own loader."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.recovery import StartMode
from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.retentions import PARTITION
from tests.kafka.differential.starts import Start
from tests.kafka.oracle import Oracle

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka


def name_of(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}.{suffix}"


# A golden scenario, and files to change in it: new content, None to drop it, or whose copy it is.
ODD: list[tuple[str, dict[str, bytes | str | None]]] = [
    ("offset_overflow_split", {name_of(51, "index"): None}),
    ("offset_far", {name_of(51, "index"): None}),
    ("duplicated_content", {name_of(51, "index"): None}),
    ("crc_active_mid", {name_of(51, "index"): None}),
    ("intact", {"70.log": b""}),
    ("intact", {"5.log": b"abc"}),
    ("intact", {"-5.log": b""}),
    ("intact", {"7.log.swap": b""}),
    ("intact", {"+30.snapshot": b""}),
    ("intact", {"9" * 20 + ".log": b""}),
    ("intact", {"foo.txnindex": b""}),
    ("intact", {name_of(20, "log.swap"): name_of(20, "log")}),
    ("intact", {name_of(100, "log"): name_of(0, "log")}),
    ("intact", {name_of(10, "log"): name_of(51, "log")}),
    (
        "intact",
        {name_of(60, "log"): name_of(51, "log"), name_of(60, "index"): name_of(51, "index")},
    ),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n-1 5\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\nx 5\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n1 20"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n2\n1 20\n0 0\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n\xff\n"}),
    ("intact", {"leader-epoch-checkpoint": b""}),
    ("intact", {"partition.metadata": b""}),
    ("intact", {"partition.metadata": b"version: 0"}),
    ("intact", {"partition.metadata": b"version: 0\x0btopic_id: hPk5UTdUQhK8GdCZGLpcnA"}),
    ("intact", {"partition.metadata": b"version: 0\rtopic_id: hPk5UTdUQhK8GdCZGLpcnA\r\n"}),
    ("intact", {"partition.metadata": b"version: x\ntopic_id: hPk5UTdUQhK8GdCZGLpcnA"}),
    ("intact", {"partition.metadata": b"version: 5\ntopic_id: hPk5UTdUQhK8GdCZGLpcnA==\n"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: hPk5UTdUQhK8GdCZGLpcn"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: \xff"}),
    ("intact", {name_of(51, "timeindex"): bytes(70_000)}),
    ("intact", {name_of(51, "txnindex"): b"\xff" * 34}),
    ("intact", {name_of(20, "txnindex"): bytes(3 * 34)}),
    ("intact", {name_of(0, "checkpoint.deleted"): b"", name_of(10, "log.deleted"): b""}),
]


@pytest.mark.usefixtures("harness")
def test_odd_directories_start_as_kafkas(corpus_dir: Path, tmp_path: Path) -> None:
    """Names, checkpoints and indexes that no broker writes, where Java's own rules decide."""
    outcome = Outcome()
    with Oracle(tmp_path) as oracle:
        for number, (scenario, changes) in enumerate(ODD):
            for mode in StartMode:
                ours = tmp_path / f"{number}-{mode}-ours" / PARTITION
                shutil.copytree(corpus_dir / "recovery" / scenario / PARTITION, ours)
                change(ours, changes)
                kafkas = tmp_path / f"{number}-{mode}-kafka" / PARTITION
                shutil.copytree(ours, kafkas)
                start = Start(ours, kafkas, mode, 0 if mode == StartMode.FULL else 51)
                answer = oracle.ask(*start.words())
                start.compare(answer, outcome, f"{scenario} {changes}")
    assert not outcome.differences, "\n".join(outcome.differences)


def change(partition: Path, changes: dict[str, bytes | str | None]) -> None:
    """Put the changes into the files of a partition."""
    for name, content in changes.items():
        if content is None:
            (partition / name).unlink()
        elif isinstance(content, str):
            shutil.copy(partition / content, partition / name)
        else:
            (partition / name).write_bytes(content)
