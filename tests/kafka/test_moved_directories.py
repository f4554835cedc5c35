"""What a starting broker renames or refuses because a directory is not where it belongs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.model import Level
from kafkalog.node.recovery import Verdict
from tests.builders import BASE_TIME, batch, copy_tree, record
from tests.kafka.broker_client import produce
from tests.kafka.broker_data import HarnessError
from tests.kafkalog.check.moved import foreign, move_replica
from tests.kafkalog.check.test_log_dir_checks import replaced

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import Defect
    from tests.kafka.booted import Brokers

pytestmark = pytest.mark.kafka


def verified(*log_dirs: Path) -> tuple[Verification, list[Defect]]:
    run = Verification(Level.DEEP)
    return run, list(run.verify(*log_dirs))


def without_metadata(root: Path, name: str) -> None:
    copy_tree(root / "txn-0", root / name)
    (root / name / "partition.metadata").unlink()


def test_strays_are_those_of_a_broker(brokers: Brokers, corpus_dir: Path, tmp_path: Path) -> None:
    """`verify` reports each directory that a broker will rename, with its reason, and no other."""
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    partitions = sorted(path.name for path in root.glob("*-[0-9]"))
    foreign("elsewhere-0")(root)
    foreign(f"elsewhere-1.{'0' * 32}-future")(root)
    without_metadata(root, "nameless-0")
    copy_tree(root / "txn-0", root / "txn-9")  # the topic has no partition 9
    copy_tree(root / "txn-1", root / "renamed-1")  # the id counts, not the name
    move_replica(root, "txn-2", 2)
    run, found = verified(root)
    strays = {start.path: start for start in run.next_starts if start.verdict == Verdict.STRAY}
    told = {defect.path for defect in found if defect.reference == "partition-not-assigned"}
    missing = {defect.path for defect in found if defect.reference == "partition-metadata-missing"}
    with brokers.on(root):
        pass
    gone = {str(root / name) for name in (*partitions, "elsewhere-0", "nameless-0", "txn-9")
            if not (root / name).exists()}  # fmt: skip
    gone |= {str(path) for path in map(type(root), strays) if path.name.endswith("-future")}
    assert not list(root.glob("*-future"))
    assert len(list(root.glob("*-stray"))) == len(gone) == 5
    assert set(strays) == gone
    assert told | {str(root / "nameless-0")} == gone
    assert missing == {str(root / "nameless-0" / "partition.metadata")}
    assert (root / "renamed-1").exists()


REFUSED = {
    "No readable meta.properties": "log-dir-not-formatted",
    "node ID not found": "log-dir-not-formatted",
    "No `meta.properties` found": "log-dir-not-formatted",
    "doesn't match previous node id": "log-dir-of-other-broker",
    "Invalid cluster.id": "log-dir-of-other-broker",
    "Duplicate directory ID": "directory-id-repeated",
}
"""What a broker says when it does not start, and the finding of `verify` that tells it."""


@pytest.mark.parametrize("words", REFUSED)
def test_a_broker_does_not_start_where_a_finding_says_so(
    brokers: Brokers, corpus_dir: Path, tmp_path: Path, words: str
) -> None:
    """The file `meta.properties` is missing, empty, or belongs to another log directory."""
    jbod = copy_tree(corpus_dir / "kafka-4.3" / "jbod-restarted", tmp_path / "jbod")
    log_dirs = [jbod / "logs-a", jbod / "logs-b"]
    properties = log_dirs[1] / "meta.properties"
    if words.startswith("No readable"):
        log_dirs = log_dirs[:1]
        (log_dirs[0] / "meta.properties").unlink()
    elif words.startswith("node ID"):
        properties.write_bytes(b"")
    elif words.startswith("No `meta"):
        properties.unlink()
    elif words.startswith("doesn't"):
        replaced("meta.properties", "node.id=1", "node.id=2")(log_dirs[1])
    elif words.startswith("Invalid"):
        replaced("meta.properties", "cluster.id=.", "cluster.id=x")(log_dirs[1])
    else:
        shutil.copy(log_dirs[0] / "meta.properties", properties)
    _, found = verified(*log_dirs)
    assert REFUSED[words] in {defect.reference for defect in found}
    with pytest.raises(HarnessError) as refused, brokers.on(*log_dirs):
        pass
    assert words in str(refused.value)


def test_what_a_broker_accepts_is_no_finding(
    brokers: Brokers, corpus_dir: Path, tmp_path: Path
) -> None:
    """Negative times, and a cluster id that is no UUID in a meta.properties of version 0.

    With negative times the largest timestamp of a batch is -1, whatever the producer wrote in its
    header.
    """
    root = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "txn")
    replaced("meta.properties", "cluster.id=.*", "cluster.id=my cluster")(root)
    replaced("meta.properties", "node.id", "broker.id")(root)
    replaced("meta.properties", "version=1", "version=0")(root)
    sent = {times: batch(0, [record(i, time_delta=time - times[0]) for i, time in enumerate(times)],
                         base_time=times[0], max_time=max(times))
            for times in ((-5, -7), (-(2**62),), (-9, -1), (-3, BASE_TIME))}  # fmt: skip
    offsets = {}
    with brokers.on(root) as running:
        for times, data in sent.items():
            error, offsets[times] = produce(running.port, "txn", 0, data)
            assert not error
    log = max((root / "txn-0").glob("*.log")).read_bytes()
    for times, offset in offsets.items():
        position = log.index(offset.to_bytes(8, "big") + len(sent[times][12:]).to_bytes(4, "big"))
        largest = int.from_bytes(log[position + 35 : position + 43], "big", signed=True)
        assert largest == max(*times, -1)
    _, found = verified(root)
    assert {defect.severity.value for defect in found} <= {"note"}, found
    assert "file-not-as-written" not in {defect.reference for defect in found}
