"""A log directory without a metadata log has the configs of its node: all commands agree on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.node.targets import open_targets, partitions_of
from kafkalog.node.view import show
from tests.builders import batch, record, write_log
from tests.counted_store import counted_store
from tests.kafkalog.node.configs.test_metadata_configs import EVENTS, config, topic
from tests.kafkalog.node.configs.test_metadata_configs import log_dir as write_metadata

if TYPE_CHECKING:
    from pathlib import Path

SET = {"cleanup.policy": "compact", "index.interval.bytes": "1"}
COMMANDS = {
    "verify": "verify {dirs}",
    "dump": "dump-segment {dirs} --topic events",
    "replay": "replay {dirs} --topic events --dry-run",
    "profile": "profile {dirs} --topic events",
    "export": "export {dirs} --topic events --file-format ndjson --to {to}",
}


@pytest.fixture
def log_dirs(tmp_path: Path) -> tuple[Path, Path]:
    """Two directories of a node; the log in the second has a gap that only its policy explains."""
    first, second = tmp_path / "a", tmp_path / "b"
    write_metadata(first, [topic("events", EVENTS), *(config(*one) for one in SET.items())])
    for number in (0, 10):
        batches = [batch(number + delta, [record(value=b"v" * 100)]) for delta in range(3)]
        write_log(second / "events-0", *batches, name=f"{number:020}")
    for place in (first, second):
        identify(place, 1)
    return first, second


def identify(log_dir: Path, node: int) -> None:
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=c\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_gap_in_a_compacted_log(
    name: str, log_dirs: tuple[Path, Path], tmp_path: Path, kafkalog: Any
) -> None:
    """It is a finding only where no metadata log of the node is given."""
    for node, is_missing in ((1, False), (2, True)):
        identify(log_dirs[1], node)
        dirs, to = " ".join(map(str, log_dirs)), tmp_path / f"to-{node}"
        done = kafkalog(*COMMANDS[name].format(dirs=dirs, to=to).split(), "--format", "ndjson")
        said = "offsets-missing" in done.stdout.decode() + done.stderr
        assert said == is_missing, done
        wanted = 8 if is_missing else 0
        assert name == "verify" or done.status == wanted, done  # that has other findings


@pytest.mark.parametrize("name", ["profile", "export"])
def test_a_gap_in_a_compacted_log_in_a_store(
    name: str, log_dirs: tuple[Path, Path], tmp_path: Path, kafkalog: Any
) -> None:
    """Whoever reads the end of the segment judges the gap after it."""
    for node, is_missing in ((1, False), (2, True)):
        identify(log_dirs[1], node)
        files = (one for one in tmp_path.rglob("*/*") if one.is_file() and "to-" not in str(one))
        objects = {f"bucket{node}/{one.relative_to(tmp_path)}": one.read_bytes() for one in files}
        with counted_store(objects) as store:
            dirs = " ".join(store.uri(f"bucket{node}/{one.name}") for one in log_dirs)
            words = COMMANDS[name].format(dirs=dirs, to=tmp_path / f"to-{node}").split()
            done = kafkalog(*words, "--format", "ndjson")
        said = "offsets-missing" in done.stdout.decode() + done.stderr
        assert (said, done.status) == (is_missing, 8 if is_missing else 0), done


def test_a_start_writes_indexes_by_the_configs(log_dirs: tuple[Path, Path]) -> None:
    """With the interval of one byte, each batch but the first has an entry."""
    for node, entries in ((1, 2), (2, 0)):
        identify(log_dirs[1], node)
        [*_, events] = partitions_of(open_targets(log_dirs))
        loaded = show(events).partition.loaded
        assert loaded is not None
        assert [one.offset_index_entries for one in loaded.segments] == [entries, entries]
