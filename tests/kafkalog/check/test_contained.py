"""A failure inside kafkalog is a finding, all else is still judged, and the status is 70."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check import registry
from kafkalog.check.verify import Verification
from kafkalog.check.walk import Walk
from kafkalog.model import Level
from kafkalog.node.recovery import StartInProgress, StartMode, Verdict, predict_start
from tests.builders import copy_tree, flip, message, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.model import Defect
    from tests.conftest import Result

CLASSES = [*registry.SEGMENT_CHECKS, *registry.PARTITION_CHECKS]
FUNCTIONS = ("DIRECTORY_CHECKS", "LOG_DIR_CHECKS", "TOGETHER_CHECKS", "COPY_CHECKS")

# A message of magic 1 that says it is compressed and ends before the size of its key.
CUT_SHORT = bytes.fromhex("0000000000000000000000112980bc8801810000000000000000000000")


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug of ours")


@pytest.fixture
def hurt(corpus_dir: Path, tmp_path: Path) -> Path:
    """A log directory with a wrong bit in one of its partitions."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    log = root / "txn-0" / "00000000000000000119.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 70))
    return root


def findings(root: Path) -> list[Defect]:
    run = Verification(Level.DEEP)
    return list(run.verify(root))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("check", CLASSES, ids=lambda check: check.__name__)
def test_a_check_of_batches_that_fails_costs_itself(
    hurt: Path, monkeypatch: pytest.MonkeyPatch, check: Any
) -> None:
    """Every other check reports the same as before, and this one reports its failure."""
    before = findings(hurt)
    monkeypatch.setattr(check, "batches", broken)
    after = findings(hurt)
    failed = [defect for defect in after if defect.reference == "check-failed"]
    assert failed
    assert all(check.__name__ in d.detail and "a bug of ours" in d.detail for d in failed)
    assert {d.reference for d in after} - {"check-failed"} <= {d.reference for d in before}
    lost = {d.reference for d in before} - {d.reference for d in after}
    assert len(lost) <= 1  # what this check tells


@pytest.mark.parametrize("table", FUNCTIONS)
def test_a_check_of_files_that_fails_costs_itself(
    hurt: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """This includes checks of log directories against each other."""
    before = findings(hurt)
    broken.__name__ = "broken"
    monkeypatch.setattr(registry, table, (broken, *getattr(registry, table)))
    after = findings(hurt)
    failed = [defect for defect in after if defect.reference == "check-failed"]
    assert failed
    assert [d for d in after if d.reference != "check-failed"] == before


@pytest.mark.parametrize("step", ["__init__", "begin", "feed", "end"])
def test_a_prediction_that_fails_costs_itself(
    hurt: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The other findings stay the same; each partition reports that its start is not known.

    So does the node, whose start scans its metadata log.
    """
    before = findings(hurt)
    monkeypatch.setattr(StartInProgress, step, broken)
    after = findings(hurt)
    failed = [defect for defect in after if defect.reference == "check-failed"]
    of_node = [defect for defect in failed if "The check starts_succeed" in defect.detail]
    assert len(of_node) == (step not in ("begin", "feed"))
    failed = [defect for defect in failed if defect not in of_node]
    assert {"prediction of the next start" in defect.detail for defect in failed} == {True}
    assert len(failed) == len(list(hurt.glob("*-[0-9]")))
    explained = {"check-failed", "start-refused", "start-loses-records"}
    assert [d for d in after if d.reference not in explained] == [
        d for d in before if d.reference not in explained
    ]


def test_a_segment_that_fails_costs_its_walk(
    hurt: Path, monkeypatch: pytest.MonkeyPatch, kafkalog: Callable[..., Result]
) -> None:
    """The status is 70, whatever other findings there are; every other partition is judged."""
    read = Walk._read_here

    def fails_in_one(self: Walk, log: Any, *rest: Any) -> Any:
        return broken() if "txn-1" in log.path else read(self, log, *rest)

    monkeypatch.setattr(Walk, "_read_here", fails_in_one)
    result = kafkalog("verify", hurt, "--format", "ndjson")
    assert result.status == 70
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = {(row["reference"], row["path"].removeprefix(f"{hurt}/").split("/")[0])
             for row in rows if "reference" in row}  # fmt: skip
    notes = {"changed-after-shutdown", "transaction-open"}
    assert {reference for reference, _ in found} - notes == {
        "batch-crc-mismatch", "bytes-not-checked", "check-failed"
    }  # fmt: skip
    assert ("batch-crc-mismatch", "txn-0") in found
    assert {directory for reference, directory in found if reference == "check-failed"} == {"txn-1"}
    assert rows[-1]["type"] == "verify_summary"


def test_a_message_that_ends_before_its_key_stops_nothing(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """A broker refuses to start on it; the other partition is judged as usual."""
    write_log(tmp_path / "cut-0", CUT_SHORT)
    write_log(tmp_path / "sound-0", message(0))
    result = kafkalog("verify", tmp_path, "--format", "ndjson")
    assert result.status == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    [refused] = [row for row in rows if row.get("verdict") == "refuse"]
    assert (refused["topic"], refused["error"]) == ("cut", "IndexOutOfBoundsException")
    assert "check-failed" not in result.stdout.decode()
    for command, status in (("recover", 8), ("rebuild-index", 8)):
        result = kafkalog(command, tmp_path)
        assert result.status == status, result.stderr
        assert "sound-0" in result.stdout.decode()


@pytest.mark.parametrize("magic", [-1, 0, 1, 2, 3])
def test_a_start_on_messages_of_any_length_is_predicted(tmp_path: Path, magic: int) -> None:
    """Wherever a message ends among its fields, and whatever its sizes say, there is a prediction.

    tests/kafka/test_predicted_starts.py compares some of them with Kafka.
    """
    for length in range(14, 36):
        for attributes in (0, 1, 3, 5):
            for size in (-1, 0, 3, 2**31 - 1):
                fields = struct.pack(">bb", magic, attributes) + struct.pack(">i", size) * 9
                body = fields[: length - 4]
                data = struct.pack(">qiI", 0, length, zlib.crc32(body)) + body
                write_log(tmp_path / "t-0", data)
                found = predict_start(str(tmp_path / "t-0"), StartMode.FULL)
                assert found.verdict in Verdict
