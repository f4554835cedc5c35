"""Seeded partitions that Kafka's own storage classes write, with their indexes.

Those with committed offsets and with values of Avro are written here, with an offset index.

What needs Python is written by processes of their own: see `benchmarks.processes`.

The same description gives the same bytes on every machine: `KafkaOracle` appends what its seeded
generator makes, at a fixed time.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
SIZES = {
    "1 MB": 8_300,
    "10 MB": 83_000,
    "100 MB": 830_000,
    "300 MB": 2_500_000,
    "1.2 GB": 10_000_000,
    "4 GB": 33_100_000,
}
KEY_COUNTS = {"1 M": 1_000_000, "5 M": 5_000_000, "20 M": 20_000_000}
MANY = "10000-partitions"
OFFSETS = "offsets-of-500-groups"
SERVED = "four-partitions"
AVRO, JSON, PROTOBUF = (f"{form}-of-10-fields" for form in ("avro", "json", "protobuf"))
TIERED = "tiered-1.2-GB"
TIER, PACKED_TIER = "tier", "packed-tier"
AXIS_BYTES = 32_000_000

SEED = 43
NOW_MS = 1_700_000_000_000
KEYS = 100_000
OFFSETS_PARTITION = "__consumer_offsets-0"
FIRST_KEY, FIRST_TEXT = "0000058827", '"id":305067,'
"""Key of the first record of each data set of `KEYS` keys, and a text of its value."""
RECORDS_MIN = 20
SEGMENT_SIZE_MIN = 1_200_000  # the largest batch of all data sets fits
SECONDS_MAX = 3600
# Full tiers, unlike the tests' short runs: millions of records are made here.
JVM_OPTIONS = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC",
               "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """What one partition holds: keys of 10 bytes, values of JSON-like text."""

    name: str
    records: int
    codec: str = "none"
    per_batch: int = 150
    value_size: int = 100
    headers: int = 0
    batches_per_transaction: int = 0
    segment_size: int = 2_000_000_000
    distinct: int = KEYS
    is_closed: bool = False
    """Whether an empty active segment follows, so that a cleaner takes all of it."""
    in_turn: bool = False
    """Whether the keys come one after the other, so that each is there."""
    partitions: int = 1
    """How many copies of it the log directory holds, itself included."""
    is_tiered: bool = False
    """Whether its segments are in tiers, too: Kafka's, and one packed as Aiven's plugin does."""
    groups: int = 0
    """Committed offsets of this many groups, as records of `__consumer_offsets`, instead."""
    form: str = ""
    """What the values of 10 fields are instead: avro, json or protobuf."""

    def scaled(self, factor: float) -> Dataset:
        """The same with fewer records; segments shrink as well, so that they stay as many."""
        return dataclasses.replace(
            self,
            records=max(RECORDS_MIN, int(self.records * factor)),
            distinct=max(RECORDS_MIN, int(self.distinct * factor)) if self.is_closed else KEYS,
            segment_size=max(SEGMENT_SIZE_MIN, int(self.segment_size * factor)),
            partitions=max(1, int(self.partitions * factor)),
            groups=max(1, int(self.groups * factor)) if self.groups else 0,
        )

    @property
    def partition(self) -> str:
        """The directory of the first partition."""
        return OFFSETS_PARTITION if self.groups else "orders-0"

    def spec(self) -> str:
        """The order for KafkaOracle, for `offset_commits`, or for `typed_values`."""
        if self.groups:
            return json.dumps({"groups": self.groups, "records": self.records, "seed": SEED})
        if self.form:
            return json.dumps({"form": self.form, "records": self.records, "seed": SEED})
        generate = {
            "op": "gen",
            "count": self.records,
            "distinct": self.distinct,
            "perBatch": self.per_batch,
            "valueSize": self.value_size,
            "codec": self.codec,
            "headers": self.headers,
            "batchesPerTransaction": self.batches_per_transaction,
            "ts": NOW_MS,
        }
        if self.in_turn:
            generate["sequentialKeys"] = True
        config = {"segment.bytes": self.segment_size}
        operations = [generate, {"op": "roll"}] if self.is_closed else [generate]
        return json.dumps({"config": config, "now": NOW_MS, "seed": SEED, "ops": operations})


@dataclass(frozen=True)
class Partition:
    """A data set on disk."""

    dataset: Dataset
    directory: Path
    end_offset: int

    @property
    def logs(self) -> list[Path]:
        """Its segments in order."""
        return sorted(self.directory.glob("*.log"))

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments, without the indexes."""
        return sum(path.stat().st_size for path in self.logs)

    def copy(self, target: Path) -> None:
        """A copy of its log directory for a program that changes it; logs are the same files."""
        copy_with_links(self.directory.parent, target)

    def places(self) -> dict[str, str]:
        """What the words in braces of a command stand for."""
        first = self.logs[0]
        return {
            "log": str(first),
            "logs": ",".join(map(str, self.logs)),
            "segments": ",".join(
                str(log.with_suffix(ending))
                for log in self.logs
                for ending in (".log", ".index", ".timeindex")
            ),
            "index": str(first.with_suffix(".index")),
            "timeindex": str(first.with_suffix(".timeindex")),
            "partition": str(self.directory),
            "log_dir": str(self.directory.parent),
            "schemas": str(self.directory.parent / "schemas"),
            "key": FIRST_KEY,
            "value_regex": FIRST_TEXT,
            "tier": str(self.directory.parent / TIER),
            "packed_tier": str(self.directory.parent / PACKED_TIER),
            "records": str(self.dataset.records),
            "late_offset": str(self.end_offset * 2 // 3),
            "late_time": str(NOW_MS + self.dataset.records * 2 // 3),
        }


def copy_with_links(home: Path, target: Path) -> None:
    """Copy a log directory for a program that puts new logs in the place of old ones.

    The logs are the same files. All is synced, so that no program has to wait for another's bytes.
    """
    shutil.rmtree(target, ignore_errors=True)
    for path in home.rglob("*"):
        if path.is_file() and path.name != ".lock":
            place = target / path.relative_to(home)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".log":
                place.hardlink_to(path)
            else:
                shutil.copy2(path, place)
    os.sync()


def provide(wanted_sets: Iterable[Dataset], root: Path) -> dict[str, Partition]:
    """Make the data sets that are not there yet, in one JVM.

    Returns:
        The name of each data set and where it is.

    Raises:
        HarnessError: Kafka's classes did not do it.
    """
    wanted = {dataset.name: dataset for dataset in wanted_sets}
    calls = []
    for dataset in wanted.values():
        home = root / dataset.name
        if _is_made(home, dataset):
            continue
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "spec.json").write_text(dataset.spec())
        if dataset.groups or dataset.form:
            _write_here(home, dataset)
            continue
        calls.append(["append", f"{home}/orders-0", f"{home}/spec.json", "--quiet",
                      "--out", f"{home}/facts.json"])  # fmt: skip
    if calls:
        lines = "".join(json.dumps(call) + "\n" for call in calls)
        broker_data.java(
            broker_data.ORACLE, "batch", "-",
            cwd=root, stdin=lines, options=JVM_OPTIONS, seconds_max=SECONDS_MAX,
        )  # fmt: skip
    return {name: _partition(root / name, dataset) for name, dataset in wanted.items()}


def _write_here(home: Path, dataset: Dataset) -> None:
    partition = home / dataset.partition
    partition.mkdir()
    log = str(partition / f"{0:020}.log")
    words = (
        ("offset_commits", log, dataset.records, dataset.groups, SEED)
        if dataset.groups
        else ("typed_values", log, dataset.records, SEED, dataset.form)
    )
    module, *counts = map(str, words)
    command = [sys.executable, "-m", f"benchmarks.{module}", *counts]
    end = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    (home / "facts.json").write_text(json.dumps({"log": {"logEndOffset": end}}))


def _is_made(home: Path, dataset: Dataset) -> bool:
    spec, facts = home / "spec.json", home / "facts.json"
    return facts.exists() and spec.exists() and spec.read_text() == dataset.spec()


def _partition(home: Path, dataset: Dataset) -> Partition:
    facts = json.loads((home / "facts.json").read_text())
    if "error" in facts:
        (home / "facts.json").unlink()
        raise broker_data.HarnessError(f"{dataset}: {facts['error']} {facts['message']}")
    for number in range(1, dataset.partitions):
        copy = home / f"orders-{number}"
        if not copy.exists():
            shutil.copytree(home / "orders-0", copy)
    if dataset.is_tiered and not (home / PACKED_TIER).exists():
        shutil.rmtree(home / TIER, ignore_errors=True)
        places = (str(home / name) for name in ("orders-0", TIER, PACKED_TIER))
        subprocess.run([sys.executable, "-m", "benchmarks.packed_tier", *places], check=True)
    return Partition(dataset, home / dataset.partition, facts["log"]["logEndOffset"])


def axis_datasets() -> dict[str, Dataset]:
    """The data of the JMH axes, about as large each: name in the table and data set."""
    made = {}
    for codec, per_batch, value in (
        *product(CODECS, (1, 10, 200), (100, 1000)),
        *product(("none", "zstd"), (10,), (10_000, 100_000)),
    ):
        name = f"{codec}, {per_batch} per batch, {value} B"
        made[name] = _axis(name, codec=codec, per_batch=per_batch, value_size=value)
    for codec in ("none", "lz4"):
        name = f"{codec}, 50 per batch, 1000 B, 5 headers"
        made[name] = _axis(name, codec=codec, per_batch=50, value_size=1000, headers=5)
        name = f"{codec}, 10 per batch, 100 B, transactional"
        made[name] = _axis(name, codec=codec, per_batch=10, value_size=100,
                           batches_per_transaction=10)  # fmt: skip
    return made


def _axis(
    name: str, *, codec: str, per_batch: int, value_size: int, headers: int = 0,
    batches_per_transaction: int = 0,
) -> Dataset:  # fmt: skip
    size = value_size + 20 + 38 * headers + 61 / per_batch
    return Dataset(
        "axis-" + name.replace(", ", "-").replace(" ", "-"),
        int(AXIS_BYTES / size),
        codec,
        per_batch,
        value_size,
        headers,
        batches_per_transaction,
    )


def sized(size: str, codec: str = "none") -> str:
    """The name of the data set of a size."""
    return f"{size}-{codec}".replace(" ", "-")


def datasets() -> dict[str, Dataset]:
    """All data sets by name."""
    made = [Dataset(sized(size), count) for size, count in SIZES.items()]
    made += [
        Dataset(sized(size, codec), SIZES[size], codec)
        for size, codec in product(("300 MB", "1.2 GB"), CODECS[1:])
    ]
    made += [
        Dataset(keyed("300 MB", codec), SIZES["300 MB"], codec, distinct=1_000_000, is_closed=True)
        for codec in CODECS
    ]
    made += [
        Dataset(keyed("1.2 GB", codec), SIZES["1.2 GB"], codec, distinct=1_000_000, is_closed=True)
        for codec in ("none", "zstd")
    ]
    made += [
        Dataset(keyed(size), keys * 3 // 2, value_size=20, distinct=keys, is_closed=True,
                in_turn=True)
        for size, keys in KEY_COUNTS.items()
    ]  # fmt: skip
    made.append(Dataset(MANY, 200, partitions=10_000))
    made.append(Dataset(OFFSETS, 10_000_000, groups=500))
    made.append(Dataset(AVRO, 1_500_000, form="avro"))
    made += [Dataset(JSON, 300_000, form="json"), Dataset(PROTOBUF, 300_000, form="protobuf")]
    made.append(Dataset(TIERED, SIZES["1.2 GB"], segment_size=100_000_000, is_closed=True,
                        is_tiered=True))  # fmt: skip
    made.append(Dataset(SERVED, SIZES["300 MB"], partitions=4))
    return {dataset.name: dataset for dataset in (*made, *axis_datasets().values())}


def keyed(size: str, codec: str | None = None) -> str:
    """The name of a data set with many keys and an empty active segment."""
    return f"keys-{sized(size, codec) if codec else size.replace(' ', '-')}"
