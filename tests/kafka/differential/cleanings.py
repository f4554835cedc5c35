"""One cleaning by Kafka's Cleaner and by ours of the same log: both passes, and the driver."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction import compact_partition, find_candidate
from kafkalog.change.compaction.candidates import find_cleanable
from kafkalog.change.compaction.cleaning import Pass
from kafkalog.change.compaction.columns import ColumnPass
from kafkalog.change.compaction.model import Dropped
from kafkalog.change.journal.run import Run
from kafkalog.errors import KafkaLogError
from kafkalog.files.log_dir import open_partition
from kafkalog.log.producers import LastRecord
from kafkalog.node.recovery import RemoveFile, StartConfig, StartMode, predict_start
from kafkalog.node.unified_log import UnifiedLog
from tests.kafka.differential import images

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.compaction.model import Cleanable, Tally
    from kafkalog.node.recovery import PredictedStart
    from tests.kafka.differential.outcome import Outcome
    from tests.kafka.differential.rounds import Round

PARTITION = "orders-0"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
DEATHS = (
    "Attempt to append to a full",
    "Empty batches are only supported for magic v2",
)
"""What Kafka's cleaner dies of where ours need not.

Segments are put together up to `segment.index.bytes` of their indexes, but an index takes no entry
where its last one, or in a time index its last two, would be used. At Kafka's default of ten
megabytes no segment has that many entries. The last batch of a pass stays even without records,
which in old formats it cannot.
"""


@dataclass
class Judgement:
    """Compares one cleaning.

    Attributes:
        before: the log directory before the cleaning; it stays unchanged.
        round: the settings that decide the result.
        said: Kafka's answer.
        after: the log directory as Kafka left it.
        outcome: collects the differences.
        where: the cleaning, in words.
    """

    before: Path
    round: Round
    said: dict[str, Any]
    after: Path
    outcome: Outcome
    where: str

    def judge(self) -> None:
        """Judge the choice of what to clean, then each way of cleaning."""
        outcome, said = self.outcome, self.said
        checkpoint = self.round.checkpoint
        if checkpoint is None:
            checkpoint = self.log.checkpoint(CLEANER_OFFSETS)
        config = self.round.compaction_config()
        cleanable = find_cleanable(self.log, config, self.round.now_ms, checkpoint)
        self._compare_choice(cleanable)
        if "skipped" in said:
            outcome.seen["nothing cleanable"] += 1
            outcome.compare(f"{self.where}: cleanable bytes", cleanable.cleanable_bytes, 0)
            return
        outcome.compare(
            f"{self.where}: active producers",
            {str(who): [one.last_data_offset, one.producer_epoch]
             for who, one in self.producers.items()},
            said["lastRecordsOfActiveProducers"],
        )  # fmt: skip
        self._judge_pass(Pass, cleanable)
        if self.round.is_roomy and not self._is_old:
            self._judge_pass(ColumnPass, cleanable)
        self._judge_driver()

    @cached_property
    def log(self) -> UnifiedLog:
        """Return the log before the cleaning."""
        partition = str(self.before / PARTITION)
        return UnifiedLog(partition, high_watermark=self.round.high_watermark)

    @cached_property
    def start(self) -> PredictedStart:
        """Predict a clean start on the log before the cleaning: Kafka's Cleaner runs after one."""
        return predict_start(
            str(self.before / PARTITION),
            StartMode.CLEAN,
            config=StartConfig(now_ms=self.round.now_ms),
        )

    @cached_property
    def producers(self) -> dict[int, LastRecord]:
        """Return the active producers as a clean start knows them."""
        assert self.start.loaded is not None
        return {
            one.producer_id: LastRecord(
                one.last_offset if one.last_offset >= 0 else None, one.producer_epoch
            )
            for one in self.start.loaded.producers
        }

    @property
    def _is_old(self) -> bool:
        return any(batch.magic < 2 for batch in images.batches(self.before / PARTITION))

    @property
    def _is_dead(self) -> bool:
        return any(reason in self.said.get("error", "") for reason in DEATHS)

    def _copy(self, name: str) -> Path:
        ours = self.before.with_name(f"{self.before.name}-{name}")
        shutil.copytree(self.before, ours)
        return ours

    def _compare_choice(self, cleanable: Cleanable) -> None:
        said = self.said["cleanable"]
        for ours, name in (
            (cleanable.first_dirty_offset, "firstDirtyOffset"),
            (cleanable.first_uncleanable_offset, "firstUncleanableOffset"),
            (cleanable.clean_bytes, "cleanBytes"),
            (cleanable.cleanable_bytes, "cleanableBytes"),
            (cleanable.checkpoint_is_wrong, "forceUpdateCheckpoint"),
        ):
            self.outcome.compare(f"{self.where}: {name}", ours, said[name])

    def _judge_pass(self, kind: type[Pass | ColumnPass], cleanable: Cleanable) -> None:
        name = f"{self.where}, {kind.__name__}"
        outcome, said = self.outcome, self.said
        outcome.seen[kind.__name__] += 1
        config = self.round.compaction_config()
        ours = self._copy(kind.__name__)
        try:
            cleaning = kind(self.log, config, self.round.now_ms, cleanable, self.producers)
            images.write_cleaned(cleaning, ours / PARTITION)
        except (KafkaLogError, AssertionError) as error:
            self._tell_failure(name, error)
            return
        if "error" in said:
            self._judge_error(name)
            return
        outcome.compare(f"{name}: end offset", cleaning.end_offset, said["endOffset"])
        outcome.compare(f"{name}: keys", cleaning.keys, said["mapEntries"])
        self._compare_tally(cleaning.tally, name)
        self._compare_files(ours, name)
        for why, count in cleaning.tally.dropped.items():
            outcome.seen[why] += count

    def _judge_driver(self) -> None:
        """Judge a compaction in place, with everything that the command does."""
        name = f"{self.where}, driver"
        outcome, said = self.outcome, self.said
        ours = self._copy("driver")
        partition = open_partition(str(ours / PARTITION))
        request = self.round.request()
        try:
            candidate = find_candidate(partition, self.round.topic_configs(ours), request)
            with Run(str(ours)) as run:
                done = compact_partition(candidate, request, run)
        except KafkaLogError as error:
            self._tell_failure(name, error)
            return
        if "error" in said:
            self._judge_error(name)
            return
        outcome.seen["driver"] += 1
        self._compare_tally(done.tally, name)
        self._compare_files(ours, name)
        for action in self.start.actions:  # what is left of an earlier close
            if isinstance(action, RemoveFile):
                (ours / PARTITION / action.name).unlink(missing_ok=True)
        found = images.directory_differences(ours / PARTITION, self.after / PARTITION)
        outcome.differences += [f"{name}: {one}" for one in found]
        if self.round.checkpoint is None:
            cleaned = UnifiedLog(str(ours / PARTITION)).checkpoint(CLEANER_OFFSETS)
            outcome.compare(f"{name}: cleaner offset", cleaned, said["endOffset"])

    def _tell_failure(self, name: str, error: Exception) -> None:
        if not self._is_dead:
            kafkas = self.said.get("error")
            self.outcome.differences.append(f"{name}: {error!r}, Kafka: {kafkas}")

    def _judge_error(self, name: str) -> None:
        if self._is_dead:
            self.outcome.seen["Kafka's cleaner dies"] += 1
        else:
            self.outcome.differences.append(f"{name}: Kafka says {self.said['error']}")

    def _compare_tally(self, tally: Tally, name: str) -> None:
        compare, said = self.outcome.compare, self.said["stats"]
        not_counted = tally.read_records - said["messagesRead"]  # of batches dropped as a whole
        whole = tally.dropped[Dropped.ABORTED] + tally.dropped[Dropped.MARKER]
        compare(f"{name}: records read as Kafka counts them", 0 <= not_counted <= whole, True)
        kept = tally.read_records - tally.dropped.total()
        compare(f"{name}: sum of records", kept, said["messagesWritten"])
        compare(f"{name}: records kept", tally.kept_records, said["messagesWritten"])
        compare(f"{name}: bytes read", tally.read_bytes, said["bytesRead"])

    def _compare_files(self, ours: Path, name: str) -> None:
        interval = self.round.compaction_config().index_interval_bytes
        found = images.differences(ours / PARTITION, self.after / PARTITION, interval)
        self.outcome.differences += [f"{name}: {one}" for one in found]
