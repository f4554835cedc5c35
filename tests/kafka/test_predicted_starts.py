"""Odd directories that no broker leaves, compared with Kafka's own loader."""

from __future__ import annotations

import shutil
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.files.log_dir import open_partition
from kafkalog.node.recovery import StartMode, Verdict
from kafkalog.node.view import show
from tests.builders import write_log
from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.retentions import PARTITION
from tests.kafka.differential.starts import Start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

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


# Messages that say they are compressed, and end before or behind a size.
CUT_SHORT = [
    ("the key's size is cut", 1, 17, b""),
    ("nothing is left for the key's size", 1, 14, b""),
    ("the value's size is cut", 1, 20, b""),
    ("the value is too short", 1, 24, b"\0\0\0\7"),
    ("the value is too short, of magic 0", 0, 16, b"\0\0\0\7"),
    ("magic is negative", -1, 30, b""),
]


def test_messages_that_are_cut_short_stop_a_start_as_kafkas(oracle: Oracle, tmp_path: Path) -> None:
    """The exception is the same as Kafka's in each mode; the checksum is right."""
    outcome = Outcome()
    for number, (what, magic, length, value) in enumerate(CUT_SHORT):
        body = struct.pack(">bb", magic, 1) + bytes(8 if magic == 1 else 0)
        body = (body + struct.pack(">i", 0) + value + bytes(length))[: length - 4]
        data = struct.pack(">qiI", 0, length, zlib.crc32(body)) + body
        for mode in StartMode:
            home = tmp_path / f"{number}-{mode}"
            ours, kafkas = home / "ours" / PARTITION, home / "kafka" / PARTITION
            for partition in (ours, kafkas):
                write_log(partition, data)
            start = Start(ours, kafkas, mode, 0)
            start.compare(oracle, outcome, what)
    assert not outcome.differences, "\n".join(outcome.differences)
    assert outcome.seen[Verdict.REFUSE]


def test_odd_directories_start_as_kafkas(oracle: Oracle, corpus_dir: Path, tmp_path: Path) -> None:
    """Names, checkpoints and indexes that no broker writes, for which Java's own rules decide."""
    outcome = Outcome()
    for number, (scenario, changes) in enumerate(ODD):
        for mode in StartMode:
            ours = tmp_path / f"{number}-{mode}-ours" / PARTITION
            shutil.copytree(corpus_dir / "recovery" / scenario / PARTITION, ours)
            change(ours, changes)
            kafkas = tmp_path / f"{number}-{mode}-kafka" / PARTITION
            shutil.copytree(ours, kafkas)
            start = Start(ours, kafkas, mode, 0 if mode == StartMode.FULL else 51)
            start.compare(oracle, outcome, f"{scenario} {changes}")
    assert not outcome.differences, "\n".join(outcome.differences)


def test_the_view_of_a_closed_log_says_what_kafka_refuses(
    oracle: Oracle, corpus_dir: Path, tmp_path: Path
) -> None:
    """After a clean shutdown, readers note where Kafka's loader throws, and only there."""
    wrong, refused = [], 0
    for number, (scenario, changes) in enumerate(ODD):
        ours = tmp_path / str(number) / "ours" / PARTITION
        shutil.copytree(corpus_dir / "recovery" / scenario / PARTITION, ours)
        change(ours, changes)
        (ours.parent / ".kafka_cleanshutdown").touch()
        kafkas = tmp_path / str(number) / "kafka" / PARTITION
        shutil.copytree(ours, kafkas)
        config = ["--config", "segment.index.bytes=10485760"]
        answer = oracle.ask("load", str(kafkas), "--clean", *config)
        difference = show(open_partition(str(ours))).difference
        refusal = difference and difference.refusal
        error = answer.get("error", "").rpartition(".")[2]
        refused += bool(error)
        if bool(error) != bool(refusal) or error not in (refusal or ""):
            wrong.append(f"{scenario} {changes}: {refusal} != {answer}")
    assert not wrong, "\n".join(wrong)
    assert refused > len(ODD) // 3


def change(partition: Path, changes: dict[str, bytes | str | None]) -> None:
    """Apply the changes to the files of a partition."""
    for name, content in changes.items():
        if content is None:
            (partition / name).unlink()
        elif isinstance(content, str):
            shutil.copy(partition / content, partition / name)
        else:
            (partition / name).write_bytes(content)


TORN = [
    # Bytes that are cut off or appended, where Kafka's log then ends, and what is said of it.
    (b"torn", 1000, Verdict.NOTHING, "the next append goes after them"),
    (-40, 750, Verdict.HIDE, "offsets in use would be given again"),
]


@pytest.mark.parametrize(("change", "end", "verdict", "said"), TORN)
def test_a_torn_end_stays_if_the_log_was_closed_cleanly(
    oracle: Oracle, tmp_path: Path, change: bytes | int, end: int, verdict: Verdict, said: str
) -> None:
    """Kafka reads only its index and cuts nothing; `verify`, `recover` and `report` say so.

    If the index leads to the torn batch, the log ends where its last segment begins.
    """
    log_dir = tmp_path / "logs"
    shutil.copytree("examples/log-dir", log_dir)
    partition, name = log_dir / "orders-0", name_of(750, "log")
    whole = (partition / name).read_bytes()
    torn = whole + change if isinstance(change, bytes) else whole[:change]
    (partition / name).write_bytes(torn)
    kafkas = tmp_path / "kafkas" / "orders-0"
    shutil.copytree(partition, kafkas)
    answer = oracle.ask("load", str(kafkas), "--recovery-point", "1000", "--log-start", "0",
                        "--now", "1795000000000", "--clean")  # fmt: skip
    assert answer["log"]["logEndOffset"] == end
    assert (kafkas / name).read_bytes() == torn

    found = kafkalog.verify(log_dir, level="quick")
    assert "torn-tail" in {one.reference for one in found}
    [start] = [one for one in found.next_starts if one.topic == "orders"]
    assert (start.verdict, start.truncate_to) == (verdict, None)
    assert said in "".join(start.notes)

    facts = kafkalog.report(log_dir, level="quick")
    [shown] = [one for one in facts.next_starts if one.topic == "orders"]
    assert shown.notes == start.notes
    rows = facts.to_html().split('id="next-start-table"')[1].split("</table>")[0]
    assert said in rows

    [plan] = [one.plan for one in kafkalog.recover(partition, mode="unclean")]
    assert plan.verdict == Verdict.TRUNCATE, "an unclean start would"
    assert plan.while_marked is not None
    assert plan.while_marked.verdict == verdict
    assert plan.while_marked.loaded is not None
    assert plan.while_marked.loaded.log_end_offset == end
    assert plan.while_marked.notes == start.notes
