"""One cleaning of a log: the settings that decide the result are drawn, for Kafka and for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction.model import CompactionConfig, CompactionRequest
from kafkalog.node.configs import ConfigSources
from kafkalog.node.unified_log import UnifiedLog
from tests.kafka.oracle import config_words

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from formats.releases import Release
    from kafkalog.node.configs import TopicConfigs
    from kafkalog.node.unified_log import OpenTransaction
    from tests.kafka.differential.logs import LogWriter

SLOT_SIZE = 24
MANY_SLOTS = 5000
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Round:
    """One cleaning: the clock and what else decides the result."""

    release: Release
    config: dict[str, str]
    now_ms: int
    high_watermark: int
    checkpoint: int | None
    slots: int
    load_factor: float
    read_size: int

    def words(self) -> list[str]:
        """Return the options of `KafkaOracle compact`."""
        words = ["--now", str(self.now_ms), "--hw", str(self.high_watermark),
                 "--map-bytes", str(self.slots * SLOT_SIZE), "--load-factor", str(self.load_factor),
                 "--io-buffer", str(self.read_size), *config_words(self.config)]  # fmt: skip
        return words if self.checkpoint is None else [*words, "--checkpoint", str(self.checkpoint)]

    @property
    def is_roomy(self) -> bool:
        """Return whether the map has room for every possible key."""
        return self.slots == MANY_SLOTS

    def compaction_config(self) -> CompactionConfig:
        """Return the settings for one of our passes."""
        return CompactionConfig(
            segment_bytes=int(self.config["segment.bytes"]),
            segment_index_bytes=int(self.config["segment.index.bytes"]),
            index_interval_bytes=int(self.config["index.interval.bytes"]),
            delete_retention_ms=int(self.config["delete.retention.ms"]),
            min_compaction_lag_ms=int(self.config["min.compaction.lag.ms"]),
            map_memory=self.slots * SLOT_SIZE,
            load_factor=self.load_factor,
            keeps_end_of_round=self.release.keeps_end_of_round,
        )

    def topic_configs(self, log_dir: Path) -> TopicConfigs:
        """Return the configs for our driver; producers expire only if configured."""
        given = self.config | {"producer.id.expiration.ms": str(DAY_MS)}
        found = ConfigSources(given).in_log_dir(str(log_dir)).of_topic("orders")
        found.release = self.release
        return found

    def request(self) -> CompactionRequest:
        """Return the request for our driver."""
        return CompactionRequest(
            now_ms=self.now_ms,
            map_memory=None if self.is_roomy else self.slots * SLOT_SIZE,
            load_factor=self.load_factor,
            high_watermark=self.high_watermark,
            first_dirty_offset=self.checkpoint,
            single_pass=True,
            old_formats=True,
        )


def drawn_config(rng: random.Random, *, is_legacy: bool) -> dict[str, str]:
    """Draw limits that are reached soon.

    If an append has several old messages, each is a batch: a small index has no room for them.
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
    rng: random.Random, writer: LogWriter, log: dict[str, Any], partition: Path, release: Release
) -> Round:
    """Draw when and how a log is cleaned next; `log` is Kafka's description of it."""
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
    if not set(_open_at(partition, watermark)) <= set(_open_at(partition, end)):
        watermark = end
    return Round(
        release,
        config,
        writer.now_ms + rng.choice((0, 1000, retention, retention + 1, 3 * retention)),
        watermark,
        rng.randrange(end + 3) if rng.random() < 0.1 else None,
        rng.randrange(3, 12) if is_small else MANY_SLOTS,
        rng.choice((0.9, 0.9, 0.75)),
        rng.choice((64, 1000, 1 << 18)),
    )


def _open_at(partition: Path, watermark: int) -> list[OpenTransaction]:
    """Return the transactions that are undecided at a high watermark.

    A transaction whose marker is not replicated yet is undecided for us, and for a broker that saw
    the marker arrive. A broker that was restarted since has forgotten this, and cleans its batches.
    """
    log = UnifiedLog(str(partition), high_watermark=watermark)
    return [one for one in log.open_transactions() if one.first_offset < watermark]
