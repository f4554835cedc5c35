"""The compactions that Kafka's cleaner performed for the corpus: states, clocks, results."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.releases import release_of
from kafkalog.change.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.change.journal.run import Run
from kafkalog.files.log_dir import open_partition
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.model import Batch
from kafkalog.node.configs import ConfigSources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.change.compaction import Candidate, Compaction
    from kafkalog.io.storage import Step

PARTITION = "orders-0"


@dataclass(frozen=True)
class Cleaning:
    """One compaction: the log directory before and after it, and Kafka's answer."""

    scenario: str
    number: int
    before: Path
    after: Path | None
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.number}"

    @property
    def result(self) -> dict[str, Any]:
        return self.facts["result"]

    def copy(self, target: Path) -> Path:
        """Copy the log directory as it was before."""
        shutil.copytree(self.before, target)
        return target

    def request(self, **more: Any) -> CompactionRequest:
        options = self.facts["options"]
        given = {
            "now_ms": self.facts["now"],
            "map_memory": options["mapBytes"],
            "load_factor": options["loadFactor"],
            "high_watermark": options.get("hw", "end"),
            "first_dirty_offset": options.get("checkpoint"),
            "up_to_offset": options.get("upto"),
            "single_pass": True,
            "old_formats": True,
        }
        return CompactionRequest(**given | more)

    def candidate(self, log_dir: Path, request: CompactionRequest) -> Candidate:
        """Return the partition with the scenario's configs; the others are Kafka's defaults."""
        configs = self.facts["config"]
        topic = ConfigSources(configs).in_log_dir(str(log_dir)).of_topic("orders")
        topic.release = release_of(30)  # 4.3: no metadata log says so here
        return find_candidate(open_partition(str(log_dir / PARTITION)), topic, request)

    def compact(
        self, log_dir: Path, *, observe: Callable[[Step], None] | None = None, **more: Any
    ) -> Compaction:
        """Compact a copy in place."""
        request = self.request(**more)
        with Run(str(log_dir), observe) as run:
            return compact_partition(self.candidate(log_dir, request), request, run)


def cleanings(root: Path, scenario: str) -> list[Cleaning]:
    """Return the compactions of a scenario, in order."""
    place = root / scenario
    found = []
    image = "before"
    for number, step in enumerate(json.loads((place / "facts.json").read_text())["steps"], 1):
        result = step["image"].removesuffix(".tar.gz") if "image" in step else None
        result = result or step.get("sameAs")
        if step["action"] == "compact":
            after = None if result is None else place / result
            found.append(Cleaning(scenario, number, place / image, after, step))
        image = result or image
    return found


def segment_files(partition: Path) -> dict[str, bytes]:
    """Return logs and indexes by name; an empty transaction index counts as missing."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    found = {
        path.name: path.read_bytes() for path in partition.iterdir() if path.suffix in suffixes
    }
    return {name: data for name, data in found.items() if data or not name.endswith(".txnindex")}


def mtimes_ms(partition: Path) -> dict[str, int]:
    return {
        path.name: os.stat(path).st_mtime_ns // 1_000_000
        for path in partition.iterdir()
        if path.suffix in (".log", ".index", ".timeindex")
    }


def contents(log: Path) -> list[Any]:
    """Return batch headers and records of a log, without what compressed bytes decide."""
    found: list[Any] = []
    with Source(str(log)) as source:
        for batch in scan_batches(source, 0):
            assert isinstance(batch, Batch)
            header = (
                batch.base_offset, batch.last_offset, batch.magic, batch.attributes,
                batch.leader_epoch, batch.base_timestamp, batch.max_timestamp,
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.records,
            )  # fmt: skip
            records = [
                (one.offset, one.timestamp, one.key, one.value, [*one.headers])
                for one in decode_records(source, batch)
            ]
            found.append((header, records))
    return found
