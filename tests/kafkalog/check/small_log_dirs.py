"""Log directories of a few KiB, cut out of the corpus: one partition with the files around it.

Every byte was written by Kafka, but for the offset checkpoints, which are reduced to the entry of
the partition. Directories of brokers also have the log of the cluster's metadata. Logs of the
storage classes come without a broker's files: they get those of a broker that was closed cleanly,
and those bits are not tested.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "corpus"
BROKER = "kafka-4.3/compact-2-later-passes"
METADATA = "__cluster_metadata-0"
OFFSET_CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


@dataclass(frozen=True)
class SmallLogDir:
    """The origin of a small log directory, and what it represents.

    Attributes:
        name: name of the log directory.
        state: the state or the scenario of the corpus.
        partition: the directory in it.
        shows: what kind of log it is.
    """

    name: str
    state: str
    partition: str
    shows: str

    @property
    def is_brokers(self) -> bool:
        """Return whether a broker wrote all of it."""
        return self.state.startswith("kafka-")

    def files(self, log_dir: Path) -> list[Path]:
        """Return the files whose bits are flipped."""
        names = OFFSET_CHECKPOINTS
        if self.is_brokers:
            names += ("meta.properties", ".kafka_cleanshutdown")
        inner = (log_dir / self.partition).iterdir()
        found = [path for path in inner if self.is_brokers or path.name != "partition.metadata"]
        return sorted((*found, *(log_dir / name for name in names)))


SMALL_LOG_DIRS = (
    SmallLogDir("uncompressed", "lookup/ties", "orders-0", "no codec, no producer ids"),
    SmallLogDir("compressed", "lookup/plain", "orders-0", "all codecs, four segments"),
    SmallLogDir("transactional", "lookup/transactions", "orders-0", "interleaved transactions"),
    SmallLogDir("idempotent", "kafka-4.3/internal-topics", "more-events-0",
                "a broker's: idempotent and transactional producers"),
    SmallLogDir("compacted", BROKER, "compact-live-1", "a broker's: cleaned four times"),
    SmallLogDir("old-formats", "lookup/old_formats", "orders-0", "magic 0 and 1"),
)  # fmt: skip


def make_small_log_dir(small: SmallLogDir, target: Path) -> Path:
    """Make the log directory, in a new directory inside `target`."""
    root = target / small.name
    root.mkdir(parents=True)
    scratch = target / f"{small.name}.corpus"
    broker = _unpacked(BROKER, scratch)
    origin = _unpacked(small.state, scratch)
    shutil.copytree(origin / small.partition, root / small.partition)
    for name in ("meta.properties", ".kafka_cleanshutdown", *OFFSET_CHECKPOINTS):
        file = origin / name
        shutil.copy2(file if file.exists() else broker / name, root / name)
    for name in OFFSET_CHECKPOINTS:
        _keep_entry(root / name, small.partition)
    if small.is_brokers:
        shutil.copytree(origin / METADATA, root / METADATA)
    shutil.rmtree(scratch)
    return root


def _unpacked(state: str, scratch: Path) -> Path:
    scratch.mkdir(exist_ok=True)
    release, _, name = state.partition("/")
    place = scratch / release
    if not (place / name).exists():
        place.mkdir(exist_ok=True)
        [archive] = (path for path in CORPUS.glob(f"{state}.tar.*") if ".expected" not in path.name)
        subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
        for log in (place / name).glob("log.tar.gz"):
            subprocess.run(["tar", "-xf", log, "-C", log.parent], check=True)
    return place / name


def _keep_entry(checkpoint: Path, partition: str) -> None:
    """Keep version, count, and the entry of the partition if there is one."""
    topic, _, number = partition.rpartition("-")
    version, _, *entries = checkpoint.read_text().splitlines()
    kept = [entry for entry in entries if entry.startswith(f"{topic} {number} ")]
    checkpoint.write_text("".join(f"{line}\n" for line in (version, len(kept), *kept)))
