"""A random log with random damage, and what Kafka's LogLoader makes of it."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.topic_names import CLUSTER_METADATA
from kafkalog.node.recovery import PredictedStart, StartConfig, StartMode
from tests.builders import batch, record, write_log
from tests.kafka.damaged_logs import CONFIG, START_MS, Damage, workload
from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.retentions import PARTITION, written
from tests.kafka.oracle import config_words
from tests.kafkalog import replay
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from pathlib import Path

    from formats.releases import Release
    from tests.kafka.oracle import Oracle

NOW_MS = START_MS + 10_000_000
START_CONFIG = StartConfig(
    index_interval_bytes=int(CONFIG["index.interval.bytes"]),
    segment_index_bytes=int(CONFIG["segment.index.bytes"]),
    now_ms=NOW_MS,
)


@dataclass(frozen=True)
class Start:
    """Two copies of a partition, one for us and one for Kafka, and the mode of the start."""

    ours: Path
    kafkas: Path
    mode: StartMode
    recovery_point: int
    log_start: int = 0

    def _words(self) -> list[str]:
        words = ["--recovery-point", str(self.recovery_point)]
        words += ["--log-start", str(self.log_start), "--now", str(NOW_MS), *config_words(CONFIG)]
        return [*words, "--clean"] if self.mode == StartMode.CLEAN else words

    def compare(self, oracle: Oracle, outcome: Outcome, what: str) -> None:
        """Predict the start, perform it, and compare the result with Kafka's."""
        answer = oracle.ask("load", str(self.kafkas), *self._words())
        predicted = replay.predict_and_perform(
            self.ours,
            self.mode,
            START_CONFIG,
            trims=oracle.release.trims_metadata_indexes,
            recovery_point=self.recovery_point,
            log_start_checkpoint=self.log_start,
        )
        outcome.seen[predicted.verdict] += 1
        outcome.differences += [
            f"{what}, {self}: {one}"
            for one in differences(predicted, self.ours, answer, self.kafkas)
        ]


def run(seed: int, oracle: Oracle, place: Path) -> Outcome:
    """Run the case of a seed: one log, one damage, all modes of a start."""
    rng = random.Random(seed)
    outcome = Outcome()
    log = written(oracle, place / "log", workload(rng))["log"]
    partition = place / "log" / PARTITION
    damage = Damage(partition, rng)
    recovery_point, log_start = checkpoints(log, rng)
    for mode in StartMode:
        ours, kafkas = (place / f"{mode}-{who}" / PARTITION for who in ("ours", "kafka"))
        for copy in (ours, kafkas):
            shutil.copytree(partition, copy)
        name_release(ours.parent, oracle.release)
        point = 0 if mode == StartMode.FULL else recovery_point
        start = Start(ours, kafkas, mode, point, log_start)
        start.compare(oracle, outcome, ", ".join(damage.words))
    return outcome


def name_release(log_dir: Path, release: Release) -> None:
    """Write metadata that say which release starts on a log directory."""
    level = value_of(
        "FeatureLevelRecord", name="metadata.version", featureLevel=release.metadata_version
    )
    write_log(log_dir / f"{CLUSTER_METADATA}-0", batch(0, [record(0, None, level)], epoch=1))


def checkpoints(log: dict[str, Any], rng: random.Random) -> tuple[int, int]:
    """Draw a recovery point and a log start offset, mostly as a broker would have them."""
    end = log["logEndOffset"]
    recovery_point = rng.choice((0, end, log["recoveryPoint"], rng.randrange(end + 2)))
    return recovery_point, rng.choice((0, 0, 0, rng.randrange(end + 3)))


def differences(
    predicted: PredictedStart, ours: Path, kafka: dict[str, Any], kafkas: Path
) -> list[str]:
    if "error" in kafka:
        error = predicted.refusal and predicted.refusal.error
        wanted = kafka["error"].rpartition(".")[2]
        return [] if error == wanted else [f"{predicted.refusal} != {kafka}"]
    if predicted.refusal is not None:
        return [f"refused: {predicted.refusal}"]
    pairs: dict[str, tuple[Any, Any]] = {}
    for name, got in replay.loaded_facts(predicted).items():
        wanted = kafka["log"][name]
        if name == "segments":
            wanted = [{key: fact[key] for key in got[0]} for fact in wanted]
        pairs[name] = (got, wanted)
    got_files, kafka_files = replay.files(ours), replay.files(kafkas)
    for name in {*got_files, *kafka_files}:
        pairs[name] = (got_files.get(name), kafka_files.get(name))
    pairs["producer snapshots"] = (replay.snapshots(ours), replay.snapshots(kafkas))
    return [f"{what}: {got} != {wanted}" for what, (got, wanted) in pairs.items() if got != wanted]
