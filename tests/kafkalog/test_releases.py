"""What follows from the release of Kafka that a directory names, on small nodes of 4.3 and 4.4."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from formats.releases import newest, release_of
from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import open_partition
from kafkalog.model import Level
from kafkalog.node.cluster_image.model import Broker, ClusterImage
from kafkalog.node.configs import ConfigSources
from kafkalog.node.identity import image_of, release_around, release_of_node
from kafkalog.node.recovery import StartMode, Verdict, predict_start
from kafkalog.node.unified_log import UnifiedLog
from tests.conftest import CORPUS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

METADATA = "__cluster_metadata-0"
INDEX = f"{METADATA}/{0:020}.index"
TIME_INDEX = f"{METADATA}/{0:020}.timeindex"
MAX_TIMESTAMP = ("--special", "max-timestamp")
FORMATTED = ("quorum-4.3", "quorum-4.4", "standalone-4.3", "standalone-4.4")
RELEASES = {
    "standalone-4.4": "4.4",
    "quorum-4.4": "4.4",
    "started-4.3": "4.3",
    "started-4.4": "4.4",
    "killed-4.4": "4.4",
    "upgraded": "4.4",
    "both": "4.4",
}
STARTED = tuple(name for name in RELEASES if name not in FORMATTED)


@pytest.fixture
def node(corpus_dir: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy the log directory of a node: its 20 MB of indexes are holes."""

    def copy(name: str) -> Path:
        shutil.copytree(corpus_dir / "formatted" / name, tmp_path / name)
        return tmp_path / name

    return copy


def findings(log_dir: Path, level: Level = Level.DEEP) -> tuple[list[str], list[str]]:
    """Return the references of all findings, and what the next start is said to do."""
    run = Verification(level)
    found = [defect.reference for defect in run.verify(str(log_dir))]
    return found, [start.detail for start in run.next_starts]


def broker(level: int) -> Broker:
    return Broker(
        1, "", {}, {"metadata.version": (7, level)}, 2, None, False, False, False, (), None
    )


@pytest.mark.parametrize(
    ("image", "node_id", "name"),
    [
        (None, 1, newest().name),
        (ClusterImage(), 1, newest().name),
        (ClusterImage(metadata_version=30), 1, "4.3"),
        (ClusterImage(metadata_version=33), 1, "4.4"),
        (ClusterImage(metadata_version=30, brokers={1: broker(33)}), 1, "4.4"),
        (ClusterImage(metadata_version=30, brokers={1: broker(33)}), 2, "4.3"),
        (ClusterImage(metadata_version=30, brokers={1: broker(33)}), None, "4.3"),
        (ClusterImage(metadata_version=7, brokers={1: broker(99)}), 1, newest().name),
    ],
)
def test_what_a_node_has_registered_counts_first(
    image: ClusterImage | None, node_id: int | None, name: str
) -> None:
    """The level of the cluster stays where it was after an upgrade of its nodes."""
    assert release_of_node(image, node_id).name == name


@pytest.mark.parametrize("name", RELEASES)
def test_a_directory_names_its_release(name: str, node: Callable[[str], Path]) -> None:
    """By the registration in its log, or the snapshot that formatting wrote."""
    log_dir = node(name)
    assert release_around(open_partition(str(log_dir / METADATA))).name == RELEASES[name]
    configs = ConfigSources().in_log_dir(str(log_dir))
    assert configs.of_topic("orders").release.name == RELEASES[name]


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("name", [*FORMATTED, *STARTED])
def test_a_healthy_node_is_healthy(name: str, level: Level, node: Callable[[str], Path]) -> None:
    """Nothing is wrong, and no start does more than each does."""
    assert findings(node(name), level) == ([], [])


def test_no_state_is_missing(corpus_dir: Path) -> None:
    assert (CORPUS / "formatted" / "nodes.tar.xz").exists()
    there = {path.name for path in (corpus_dir / "formatted").iterdir()}
    assert there == {*FORMATTED, *RELEASES}


def test_a_metadata_log_of_4_3_has_closed_indexes(node: Callable[[str], Path]) -> None:
    """A time index without its last entry is a finding there; 4.4 never writes that entry."""
    old, new = node("started-4.3"), node("started-4.4")
    shutil.copy(new / TIME_INDEX, old / TIME_INDEX)
    assert findings(old)[0] == ["time-index-incomplete"]
    assert UnifiedLog(str(old / METADATA)).has_closed_indexes
    log = UnifiedLog(str(new / METADATA))
    assert (log.was_closed, log.has_closed_indexes) == (True, False)


@pytest.mark.parametrize("name", STARTED)
def test_the_largest_time_in_the_metadata_log_is_found(
    name: str, node: Callable[[str], Path], kafkalog: Any
) -> None:
    """It is that of the last record, although the index of 4.4 says nothing of it."""
    partition = node(name) / METADATA
    dumped = kafkalog("dump-segment", partition, "--format", "ndjson")
    newest_ms = max(row["timestamp"] for row in map(json.loads, dumped.stdout.splitlines()))
    found = kafkalog("lookup-offset", partition, *MAX_TIMESTAMP, "--format", "ndjson")
    [row] = map(json.loads, found.stdout.splitlines())
    assert (found.status, row["timestamp"]) == (0, newest_ms)


def test_a_missing_index_of_the_metadata_log_is_built(node: Callable[[str], Path]) -> None:
    """That is not what each start does."""
    log_dir = node("started-4.4")
    (log_dir / INDEX).unlink()
    assert predict_start(str(log_dir / METADATA)).verdict == Verdict.REBUILD


@pytest.mark.parametrize("name", FORMATTED)
def test_a_formatted_node_was_never_started(
    name: str, node: Callable[[str], Path], kafkalog: Any
) -> None:
    """Nor is its metadata log a stray, or refused for want of a level of `metadata.version`."""
    log_dir = node(name)
    assert b", never started, " in kafkalog("ls", log_dir).stdout
    done = kafkalog("recover", log_dir)
    assert (done.status, b"stray" in done.stdout + done.stderr.encode()) == (0, False)
    assert kafkalog("du", log_dir).status == 0
    if "quorum-4.3" in name:
        return  # it has no metadata log yet
    assert predict_start(str(log_dir / METADATA)).verdict == Verdict.NOTHING
    image = image_of(open_partition(str(log_dir / METADATA)))
    assert image is not None
    # 4.3 keeps them in `bootstrap.checkpoint`.
    assert image.metadata_version == (33 if "4.4" in name else None)


@pytest.mark.parametrize("name", ["killed-4.4", "started-4.4", "upgraded"])
def test_a_started_node_is_not_as_formatted(
    name: str, node: Callable[[str], Path], kafkalog: Any
) -> None:
    stop = b"not shut down cleanly" if "killed" in name else b"closed cleanly"
    assert stop in kafkalog("ls", node(name)).stdout


def test_levels_of_formatting_win_over_bootstrap_checkpoint(node: Callable[[str], Path]) -> None:
    """4.4 began with those of its own file, not with 4.3's, where both are."""
    log_dir = node("both")
    assert (log_dir / "bootstrap.checkpoint").exists()
    image = image_of(open_partition(str(log_dir / METADATA)))
    assert image is not None
    assert (image.metadata_version, image.features["share.version"]) == (33, 2)
    (log_dir / METADATA / f"{0:020}.log").unlink()
    before = image_of(open_partition(str(log_dir / METADATA)))
    assert before is not None
    assert before.metadata_version == image.metadata_version


@pytest.mark.parametrize(("name", "is_refused"), [("started-4.3", False), ("started-4.4", True)])
def test_the_version_of_an_aborted_transaction(
    name: str, is_refused: bool, node: Callable[[str], Path], corpus_dir: Path
) -> None:
    """4.3 takes its first byte for all of it, and so takes 7 for 0."""
    log_dir = node(name)
    orders = corpus_dir / "recovery" / "txnindex_version_7" / "orders-0"
    shutil.copytree(orders, log_dir / "orders-0")
    for mode in StartMode:
        refusal = predict_start(str(log_dir / "orders-0"), mode).refusal
        assert (refusal is not None) == is_refused
        if refusal is not None:
            assert refusal.message.endswith("supported version range is 0 to 0")


@pytest.mark.parametrize(("name", "is_refused"), [("started-4.3", False), ("started-4.4", True)])
@pytest.mark.parametrize("command", ["verify", "recover"])
def test_another_log_directory_names_the_release(
    name: str, command: str, node: Callable[[str], Path], corpus_dir: Path, kafkalog: Any, *,
    is_refused: bool,
) -> None:  # fmt: skip
    """A node has one metadata log, and more log directories."""
    log_dir = node(name)
    other = log_dir.with_name("other")
    orders = corpus_dir / "recovery" / "txnindex_version_7" / "orders-0"
    shutil.copytree(orders, other / "orders-0")
    properties = (log_dir / "meta.properties").read_text().splitlines()
    kept = [line for line in properties if not line.startswith("directory.id")]
    (other / "meta.properties").write_text("\n".join([*kept, ""]))
    told = kafkalog(command, log_dir, other, "--format", "ndjson").stdout
    assert (b"supported version range is 0 to 0" in told) == is_refused


def test_each_release_has_its_own_levels() -> None:
    assert [release_of(level).name for level in (7, 30, 31, 33)] == ["4.3", "4.3", "4.4", "4.4"]
