"""Workers refuse to read if they have another disk at the driver's path, in every command.

The workers of the cluster are in mount namespaces of their own: at `cluster.disk` the driver and
each worker have separate directories.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.builders import batch, copy_tree, record, write_log
from tests.sampling import sampled
from tests.waiting import until_settled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.cluster import Cluster
    from tests.spark.commands import CommandSession

PARTITIONS = 6
BATCHES = 40
ROWS = PARTITIONS * BATCHES * 5
COMPACT = (
    "--config",
    "cleanup.policy=compact",
    "--high-watermark",
    "end",
    "--now",
    "1700000600000",
)


def make_logs(log_dir: Path) -> None:
    """Write two segments per partition."""
    values = [record(i, b"k%d" % i, b"v" * 50) for i in range(5)]
    half = BATCHES * 5 // 2
    for number in range(PARTITIONS):
        for base in (0, half):
            batches = [batch(n, values) for n in range(base, base + half, 5)]
            write_log(log_dir / f"orders-{number}", *batches, name=f"{base:020}")
        (log_dir / f"orders-{number}" / "partition.metadata").write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAA1g\n"
        )
    ids = "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    (log_dir / "meta.properties").write_text(ids)


def lag(log_dir: Path) -> None:
    """Cut the last batches off, as if the copy were older."""
    for log in log_dir.glob(f"*/{BATCHES * 5 // 2:020}.log"):
        size = log.stat().st_size // (BATCHES // 2)
        log.write_bytes(log.read_bytes()[: -3 * size])


@pytest.fixture
def disks(cluster: Cluster) -> Path:
    """Fill the disks. On the driver's, all three logs are equal; others match their names."""
    disk = cluster.disk
    make_logs(disk / "same")
    for name in ("same", "other", "mixed"):
        for place in (disk, *cluster.disks):
            if not (place / name).exists():
                copy_tree(disk / "same", place / name)
    first, second = cluster.disks
    properties = first / "other" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    lag(second / "other")
    lag(second / "mixed")
    for place in (disk, *cluster.disks):
        until_settled(place)
    return disk


def test_other_disks_are_refused_every_time(
    cluster: Cluster, commands: CommandSession, disks: Path, tmp_path: Path
) -> None:
    """Another broker's disk, an older copy, and a target that is not the driver's."""
    copy_tree(disks / "same", tmp_path / "shared")
    spark = ("--spark", "local[*]")
    small = ("--set", "split-size=2KiB")
    counting = "select count(*) n from records"
    answered = {
        "same": ("sql", "-c", counting, disks / "same", "--format", "ndjson"),
    }
    mixed = {
        "mixed": ("sql", "-c", counting, disks / "mixed", "--format", "ndjson"),
        "mixed export": ("export", disks / "mixed", "--to", tmp_path / "mixed", *small, *spark),
    }
    refused = {
        "sql": ("sql", "-c", counting, disks / "other"),
        "export": ("export", disks / "other", "--to", tmp_path / "lake", *spark),
        "verify": ("verify", disks / "other", "--level", "deep", *spark),
        "profile": ("profile", disks / "other", *spark),
        "compact": ("compact", disks / "other", *COMPACT, *spark),
        "stream": ("stream", disks / "other", tmp_path / "copied"),
        "target": ("export", tmp_path / "shared", "--to", disks / "lake", *spark),
    }
    tried = [*answered, *sampled([*mixed], 6), *sampled([*refused], 18)]
    named = {name: words for name, words in (answered | mixed | refused).items() if name in tried}
    found = {name: commands.run(tmp_path, *words) for name, words in named.items()}
    assert found.pop("same") == (0, json.dumps({"n": ROWS}, separators=(",", ":")) + "\n", "")
    for name, whole in (("mixed", f"{ROWS}"), ("mixed export", f"{ROWS} rows")):
        if name not in found:
            continue
        status, stdout, stderr = found.pop(name)  # all tasks may run where it is right
        is_right = status == 0 and whole in stdout
        assert is_right or (status == 3 and "bytes instead of" in stderr), (name, stdout, stderr)
    if compacted := found.pop("compact", None):
        assert compacted[0] == 4, compacted
        assert compacted[2].count("The partition has changed since the plan was made") == PARTITIONS
    for name, (status, stdout, stderr) in found.items():
        assert status == 3, (name, stdout, stderr)
        assert "worker on" in stderr.replace("\n│", ""), (name, stderr)
        assert str(disks) in stderr, (name, stderr)
    assert not (tmp_path / "lake" / "_SUCCESS").exists()
    assert not (disks / "lake" / "_SUCCESS").exists()
    for own in cluster.disks:
        assert not (own / "lake").exists()
        shutil.rmtree(own / "other")
