"""A random log, cleaned a few times by Kafka's Cleaner and by both of our passes."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalog.compaction.cleanable import find_cleanable
from kafkalog.compaction.cleaning import LastRecord, Pass
from kafkalog.compaction.columns import ColumnPass
from kafkalog.compaction.model import CompactionConfig, Dropped
from kafkalog.errors import KafkaLogError
from kafkalog.recovery import StartConfig, StartMode, predict_start
from kafkalog.unified_log import UnifiedLog
from tests.kafka.differential import images
from tests.kafka.differential.logs import LogWriter, Manner
from tests.kafka.oracle import config_words

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.compaction.model import Cleanable
    from kafkalog.unified_log import OpenTransaction
    from tests.kafka.oracle import Oracle

PARTITION = "orders-0"
SLOT_SIZE = 24
MANY_SLOTS = 5000
DAY_MS = 86_400_000
DEATHS = (
    "Attempt to append to a full",
    "Empty batches are only supported for magic v2",
)
"""What Kafka's cleaner dies of where ours does not.

The last batch of a pass stays even without records, which in old formats it cannot. Segments are put together up to `segment.index.bytes` of their indexes, but an index takes no entry
where its last one, or in a time index its last two, would be used. That takes more entries than
there are in a segment in real logs: Kafka's default is ten megabytes.
"""


@dataclass(frozen=True)
class Round:
    """One cleaning: the clock and what else decides the result."""

    config: dict[str, str]
    now_ms: int
    high_watermark: int
    checkpoint: int | None
    slots: int
    load_factor: float
    read_size: int

    def words(self) -> list[str]:
        """The options of `KafkaOracle compact`."""
        words = ["--now", str(self.now_ms), "--hw", str(self.high_watermark),
                 "--map-bytes", str(self.slots * SLOT_SIZE), "--load-factor", str(self.load_factor),
                 "--io-buffer", str(self.read_size), *config_words(self.config)]  # fmt: skip
        return words if self.checkpoint is None else [*words, "--checkpoint", str(self.checkpoint)]

    def compaction_config(self) -> CompactionConfig:
        """The same for us."""
        return CompactionConfig(
            segment_bytes=int(self.config["segment.bytes"]),
            segment_index_bytes=int(self.config["segment.index.bytes"]),
            index_interval_bytes=int(self.config["index.interval.bytes"]),
            delete_retention_ms=int(self.config["delete.retention.ms"]),
            min_compaction_lag_ms=int(self.config["min.compaction.lag.ms"]),
            map_memory=self.slots * SLOT_SIZE,
            load_factor=self.load_factor,
        )


@dataclass
class Outcome:
    """What a case came to.

    Attributes:
        differences: in words, none where all is equal.
        seen: how often what happened.
    """

    differences: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, ours: object, kafkas: object) -> None:
        if ours != kafkas:
            self.differences.append(f"{what}: {ours} != Kafka's {kafkas}")


def run(seed: int, oracle: Oracle, place: Path) -> Outcome:
    """The case of a seed; what it leaves in `place` tells more where something differs."""
    rng = random.Random(seed)
    outcome = Outcome()
    manner = Manner.drawn(rng)
    writer = LogWriter(rng, manner, drawn_config(rng, is_legacy=manner.magics[0] < 2))
    root = place / "kafka"
    partition = root / PARTITION
    partition.mkdir(parents=True)
    start = 0
    for number in range(rng.choice((1, 2, 3))):
        spec = place / f"{number}.json"
        spec.write_text(json.dumps(writer.spec(rng.randrange(8, 40) >> number)))
        made = oracle.ask(
            "append", str(partition), str(spec), "--clean", "--quiet", "--log-start", str(start)
        )
        if "error" in made:
            outcome.differences.append(f"Kafka does not write the log: {made}")
            return outcome
        start = made["log"]["logStartOffset"]
        images.date(partition, writer.now_ms, rng)
        this = drawn_round(rng, writer, made["log"], partition)
        before = place / f"before-{number}"
        shutil.copytree(root, before)
        answer = oracle.ask("compact", str(partition), *this.words())
        if "error" in answer:
            outcome.differences.append(f"Kafka does not open the log: {answer}")
            return outcome
        judge(before, this, answer["passes"][0], partition, outcome, f"round {number}")
        if "error" in answer["passes"][0]:
            break
        writer.now_ms = this.now_ms
    return outcome


def drawn_config(rng: random.Random, *, is_legacy: bool) -> dict[str, str]:
    """Limits that are soon met.

    Of an append of several old messages each is a batch, for which a small index has no room.
    """
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(rng.choice((500, 900, 2000, 5000))),
        "segment.index.bytes": str(4096 if is_legacy else rng.choice((48, 120, 4096))),
        "index.interval.bytes": str(rng.choice((0, 100, 300, 4096))),
        "delete.retention.ms": str(rng.choice((0, 1000, 50_000, DAY_MS))),
        "min.compaction.lag.ms": "0",
        "message.timestamp.after.max.ms": str(1 << 62),
        "message.timestamp.before.max.ms": str(1 << 62),
    }
    if rng.random() < 0.3:
        codecs = ("uncompressed", "gzip", "lz4", "snappy", "zstd")[: 4 if is_legacy else 5]
        config["compression.type"] = rng.choice(codecs)
        config["compression.gzip.level"] = rng.choice(("1", "9"))
        config["compression.zstd.level"] = rng.choice(("-3", "10"))
    if rng.random() < 0.15:
        config["message.timestamp.type"] = "LogAppendTime"
    return config


def drawn_round(
    rng: random.Random, writer: LogWriter, log: dict[str, Any], partition: Path
) -> Round:
    """When and how the log is cleaned next."""
    config = dict(writer.config)
    retention = int(config["delete.retention.ms"])
    if rng.random() < 0.2:
        config["delete.retention.ms"] = str(rng.choice((0, retention // 2, 3000)))
    if rng.random() < 0.2:
        config["segment.bytes"] = str(rng.choice((700, 3000, 100_000)))
    if rng.random() < 0.2:
        config["min.compaction.lag.ms"] = str(rng.choice((1, 5000, 30_000)))
    end, start = log["logEndOffset"], log["logStartOffset"]
    is_small = rng.random() < 0.25
    watermark = rng.choice((end, end, end, rng.randrange(start, end + 1)))
    if not set(open_at(partition, watermark)) <= set(open_at(partition, end)):
        watermark = end
    return Round(
        config,
        writer.now_ms + rng.choice((0, 1000, retention, retention + 1, 3 * retention)),
        watermark,
        rng.randrange(end + 3) if rng.random() < 0.1 else None,
        rng.randrange(3, 12) if is_small else MANY_SLOTS,
        rng.choice((0.9, 0.9, 0.75)),
        rng.choice((64, 1000, 1 << 18)),
    )


def open_at(partition: Path, watermark: int) -> list[OpenTransaction]:
    """The transactions that are undecided at a high watermark.

    A transaction whose marker is not replicated yet is undecided to us, and to a broker that saw
    the marker come; one that was restarted since has forgotten that, and cleans its batches.
    """
    log = UnifiedLog(str(partition), high_watermark=watermark)
    return [one for one in log.open_transactions() if one.first_offset < watermark]


def judge(
    before: Path, this: Round, said: dict[str, Any], after: Path, outcome: Outcome, where: str
) -> None:
    """Compare one cleaning by Kafka with ours of the image before it."""
    log = UnifiedLog(str(before / PARTITION), high_watermark=this.high_watermark)
    config = this.compaction_config()
    checkpoint = this.checkpoint
    if checkpoint is None:
        checkpoint = log.checkpoint("cleaner-offset-checkpoint")
    cleanable = find_cleanable(log, config, this.now_ms, checkpoint)
    _compare_choice(cleanable, said["cleanable"], outcome, where)
    if "skipped" in said:
        outcome.seen["nothing cleanable"] += 1
        outcome.compare(f"{where}: cleanable bytes", cleanable.cleanable_bytes, 0)
        return
    producers = _producers(before, this)
    outcome.compare(
        f"{where}: active producers",
        {str(who): [last.last_data_offset, last.producer_epoch] for who, last in producers.items()},
        said["lastRecordsOfActiveProducers"],
    )
    is_legacy = any(batch.magic < 2 for batch in images.batches(before / PARTITION))
    kinds: list[type[Pass] | type[ColumnPass]] = [Pass]
    if not is_legacy and this.slots == MANY_SLOTS:
        kinds.append(ColumnPass)
    for kind in kinds:
        name = f"{where}, {kind.__name__}"
        outcome.seen[kind.__name__] += 1
        try:
            cleaning = kind(log, config, this.now_ms, cleanable, producers)
            ours = before.with_name(f"{before.name}-{kind.__name__}")
            shutil.copytree(before, ours)
            images.write_cleaned(cleaning, ours / PARTITION)
        except (KafkaLogError, AssertionError) as error:
            if "error" not in said:
                outcome.differences.append(f"{name}: {error!r}, Kafka cleans")
            continue
        if "error" in said and any(reason in said["error"] for reason in DEATHS):
            outcome.seen["Kafka's cleaner dies"] += 1
            continue
        if "error" in said:
            outcome.differences.append(f"{name}: Kafka says {said['error']}")
            continue
        outcome.compare(f"{name}: end offset", cleaning.end_offset, said["endOffset"])
        outcome.compare(f"{name}: keys", len(cleaning.map), said["mapEntries"])
        _compare_tally(cleaning, said["stats"], outcome, name)
        interval = config.index_interval_bytes
        for found in images.differences(ours / PARTITION, after, interval):
            outcome.differences.append(f"{name}: {found}")
        for why, count in cleaning.tally.dropped.items():
            outcome.seen[why] += count


def _compare_choice(
    cleanable: Cleanable, said: dict[str, Any], outcome: Outcome, where: str
) -> None:
    for ours, name in (
        (cleanable.first_dirty_offset, "firstDirtyOffset"),
        (cleanable.first_uncleanable_offset, "firstUncleanableOffset"),
        (cleanable.clean_bytes, "cleanBytes"),
        (cleanable.cleanable_bytes, "cleanableBytes"),
        (cleanable.checkpoint_is_wrong, "forceUpdateCheckpoint"),
    ):
        outcome.compare(f"{where}: {name}", ours, said[name])


def _compare_tally(
    cleaning: Pass | ColumnPass, said: dict[str, Any], outcome: Outcome, name: str
) -> None:
    tally = cleaning.tally
    not_counted = tally.records_read - said["messagesRead"]  # those of batches dropped unread
    whole = tally.dropped[Dropped.ABORTED] + tally.dropped[Dropped.MARKER]
    outcome.compare(f"{name}: records read", 0 <= not_counted <= whole, True)
    kept = tally.records_read - tally.dropped.total()
    outcome.compare(f"{name}: sum of records", kept, said["messagesWritten"])
    outcome.compare(f"{name}: records kept", tally.records_kept, said["messagesWritten"])
    outcome.compare(f"{name}: bytes read", tally.bytes_read, said["bytesRead"])


def _producers(before: Path, this: Round) -> dict[int, LastRecord]:
    """The active producers as a clean start knows them."""
    start = predict_start(
        str(before / PARTITION), StartMode.CLEAN, config=StartConfig(now_ms=this.now_ms)
    )
    assert start.loaded is not None
    return {
        one.producer_id: LastRecord(
            one.last_offset if one.last_offset >= 0 else None, one.producer_epoch
        )
        for one in start.loaded.producers
    }
