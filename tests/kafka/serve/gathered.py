"""Every partition of the corpora in two log directories, so that one server serves all of them.

A batch does not name its topic, so a partition's directory can get another name. Here topic
`torn-a` of the state `crash-1-torn` is `crash-1-torn.torn-a`, and has its own topic id. Log
directories that were closed go into `closed`, those of killed brokers into `killed`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import DirectoryState, parse_directory_name
from kafkalog.files.text_files import read_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from formats.file_names import DirectoryName

CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
_RELEASES: Final = ("kafka-4.3", "kafka-2.8", "foreign")
_MADE_BY: Final = {
    "crash-1-torn": "crash-2-recovered",
    "interrupted-1-swap": "interrupted-2-swap-recovered",
}
"""States of which nobody could read before a broker had started, and what it then had."""
_METADATA_TOPIC: Final = "__cluster_metadata"
_IDS: Final = uuid.UUID("6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b")
_HASHED_FROM: Final = 1024
_ABORTED: Final = re.compile(r"firstOffset: (\d+) lastOffset: (\d+)")


@dataclass(frozen=True)
class Partition:
    """One gathered partition, and what Kafka's clients once read from it.

    Attributes:
        topic: its name in the gathered log directory.
        number: its number.
        state: the name of the corpus' state it comes from.
        expected: the directory with what was recorded of the state.
        original: topic and number in that state.
    """

    topic: str
    number: int
    state: str
    expected: Path
    original: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @cached_property
    def records(self) -> list[dict[str, Any]] | None:
        """Return what a consumer read, None if nobody recorded it."""
        path = self.expected / "records" / f"{self.original}.ndjson"
        if not path.exists():
            return None
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            for part in ("key", "value"):
                if isinstance(record[part], str):
                    record[part] = as_recorded(bytes.fromhex(record[part]))
        return records

    @cached_property
    def committed(self) -> set[int]:
        """Return the offsets that a consumer got with read_committed."""
        path = self.expected / "records-committed" / f"{self.original}.offsets.json"
        if path.exists():
            return set(json.loads(path.read_text()))
        # Of 2.8 there is what Kafka printed of the transaction indexes; no two were open at once.
        printed = (self.expected / "dump" / self.original).glob("*.txnindex*")
        aborted = {
            offset
            for file in printed
            for first, last in _ABORTED.findall(file.read_text())
            for offset in range(int(first), int(last))
        }
        return {record["offset"] for record in self.records or ()} - aborted

    @cached_property
    def lookups(self) -> dict[str, Any]:
        """Return the recorded answers of ListOffsets."""
        found: dict[str, Any] = json.loads((self.expected / "lookup.json").read_text())
        return found.get(self.original, {})


@dataclass(frozen=True)
class Gathered:
    """The log directories, and their partitions by name."""

    root: Path
    partitions: dict[str, Partition]

    @property
    def log_dirs(self) -> list[Path]:
        return [self.root / "closed", self.root / "killed"]


def gather(corpus_dir: Path, root: Path, *, releases: tuple[str, ...] = _RELEASES) -> Gathered:
    """Link the files of all live partitions into two log directories below `root`."""
    found: dict[str, Partition] = {}
    checkpoints: dict[Path, list[str]] = {}
    for release in releases:
        for state in _states(corpus_dir / release):
            truth = state.with_name(f"{_MADE_BY.get(state.name, state.name)}.expected")
            for log_dir in _log_dirs(state):
                is_closed = (log_dir / ".kafka_cleanshutdown").exists()
                target = root / ("closed" if is_closed else "killed")
                for name in _live(log_dir):
                    topic = f"{state.name}.{name.topic}"
                    one = Partition(
                        topic, name.partition, state.name, truth, f"{name.topic}-{name.partition}"
                    )
                    found[one.name] = one
                    _link(log_dir / one.original, target / one.name)
                    _give_an_id(target / one.name, topic)
                for file in CHECKPOINTS:
                    lines = checkpoints.setdefault(target / file, [])
                    lines += _renamed(log_dir / file, state.name)
    for path, lines in checkpoints.items():
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    (root / "closed" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return Gathered(root, found)


def _states(release: Path) -> list[Path]:
    return sorted(path for path in release.iterdir() if not path.name.endswith(".expected"))


def _log_dirs(state: Path) -> list[Path]:
    if (state / "meta.properties").exists():
        return [state]
    return sorted(path for path in state.iterdir() if path.is_dir())


def _live(log_dir: Path) -> Iterator[DirectoryName]:
    for path in sorted(log_dir.iterdir()):
        name = parse_directory_name(path.name) if path.is_dir() else None
        if name and name.state == DirectoryState.LIVE and name.topic != _METADATA_TOPIC:
            yield name


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


def _give_an_id(partition: Path, topic: str) -> None:
    """Give a topic a new id: its copies in several states share one."""
    path = partition / "partition.metadata"
    path.unlink(missing_ok=True)
    coded = base64.urlsafe_b64encode(uuid.uuid5(_IDS, topic).bytes).decode().rstrip("=")
    path.write_text(f"version: 0\ntopic_id: {coded}")


def _renamed(checkpoint: Path, state: str) -> list[str]:
    if not checkpoint.exists():
        return []
    return [
        f"{state}.{entry.topic} {entry.partition} {entry.offset}"
        for entry in read_offset_checkpoint(str(checkpoint))
        if entry.topic != _METADATA_TOPIC
        and (checkpoint.parent / f"{entry.topic}-{entry.partition}").exists()
    ]


def as_recorded(data: bytes | None) -> Any:
    """Return bytes as the corpus stores them: in hexadecimal, or size and SHA-256 if long."""
    if data is None or len(data) <= _HASHED_FROM:
        return None if data is None else data.hex()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}
