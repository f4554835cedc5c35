"""Predicted starts of damaged logs that nobody has seen before, against Kafka 4.3's own loader."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.recovery import PredictedStart, StartConfig, StartMode, Verdict
from tests.kafka import broker_data
from tests.kafka.conftest import SEED_VARIABLE
from tests.kafka.damaged_logs import CONFIG, START_MS, Damage, workload
from tests.kafkalog import replay

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

LOGS = 6
DAMAGES_PER_LOG = 12
NOW_MS = START_MS + 10_000_000
START_CONFIG = StartConfig(
    index_interval_bytes=int(CONFIG["index.interval.bytes"]),
    segment_index_bytes=int(CONFIG["segment.index.bytes"]),
    now_ms=NOW_MS,
)
PARTITION = "orders-0"


def oracle_batch(commands: list[list[str]], cwd: Path) -> list[dict[str, Any]]:
    """One answer for each command of KafkaOracle, all in one JVM."""
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    answers = broker_data.java(broker_data.ORACLE, "batch", "-", cwd=cwd, stdin=lines)
    return [json.loads(line) for line in answers.splitlines()][: len(commands)]


def fresh_logs(root: Path, rng: random.Random) -> list[dict[str, Any]]:
    """Logs that Kafka writes below `root`, numbered; what it says of each at the end."""
    commands = []
    for number in range(LOGS):
        (root / str(number) / PARTITION).mkdir(parents=True)
        spec = root / str(number) / "spec.json"
        spec.write_text(json.dumps(workload(rng)))
        commands.append(["append", str(spec.parent / PARTITION), str(spec)])
    answers = oracle_batch(commands, root)
    assert not [answer for answer in answers if "error" in answer]
    return [answer["log"] for answer in answers]


def checkpoints(log: dict[str, Any], rng: random.Random) -> tuple[int, int]:
    """A recovery point and a log start offset, mostly as a broker would have them."""
    end = log["logEndOffset"]
    recovery_point = rng.choice((0, end, log["recoveryPoint"], rng.randrange(end + 2)))
    return recovery_point, rng.choice((0, 0, 0, rng.randrange(end + 3)))


@dataclass(frozen=True)
class Case:
    """Two copies of a damaged partition, one for us and one for Kafka, and how to start."""

    ours: Path
    kafkas: Path
    words: str
    mode: StartMode
    recovery_point: int
    log_start: int = 0

    def command(self) -> list[str]:
        words = ["load", str(self.kafkas), "--recovery-point", str(self.recovery_point)]
        words += ["--log-start", str(self.log_start), "--now", str(NOW_MS)]
        words += [word for name in CONFIG for word in ("--config", f"{name}={CONFIG[name]}")]
        return [*words, "--clean"] if self.mode == StartMode.CLEAN else words

    def start(self) -> PredictedStart:
        return replay.predict_and_perform(
            self.ours,
            self.mode,
            START_CONFIG,
            recovery_point=self.recovery_point,
            log_start_checkpoint=self.log_start,
        )


def compare(cases: list[Case], cwd: Path) -> tuple[Counter[Verdict], list[str]]:
    """What the starts came to, and where they differ from Kafka's."""
    verdicts: Counter[Verdict] = Counter()
    wrong = []
    answers = oracle_batch([case.command() for case in cases], cwd)
    for case, answer in zip(cases, answers, strict=True):
        predicted = case.start()
        verdicts[predicted.verdict] += 1
        if found := differences(predicted, case.ours, answer, case.kafkas):
            wrong.append("\n  ".join([str(case), *found]))
    return verdicts, wrong


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


@pytest.mark.usefixtures("harness")
def test_a_predicted_start_of_a_damaged_log_is_kafkas(tmp_path: Path) -> None:
    """Random damage from a seed, in all modes: the outcome and every file are Kafka's."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
    print("seed", seed)
    rng = random.Random(seed)
    logs = fresh_logs(tmp_path, rng)
    cases = []
    for number, log in enumerate(logs):
        for damaged in range(DAMAGES_PER_LOG):
            ours = tmp_path / f"{number}-{damaged}-ours" / PARTITION
            kafkas = tmp_path / f"{number}-{damaged}-kafka" / PARTITION
            shutil.copytree(tmp_path / str(number) / PARTITION, ours)
            damage = Damage(ours, rng)
            shutil.copytree(ours, kafkas)
            mode = rng.choice(list(StartMode))
            recovery_point, log_start = checkpoints(log, rng)
            if mode == StartMode.FULL:
                recovery_point = 0
            words = ", ".join(damage.words)
            cases.append(Case(ours, kafkas, words, mode, recovery_point, log_start))
    verdicts, wrong = compare(cases, tmp_path)
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(cases)} differ\n" + "\n".join(wrong)
    assert len(verdicts) >= 4, verdicts


def name_of(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}.{suffix}"


# A golden scenario, and files to change in it: new content, None to drop it, or whose copy it is.
ODD: list[tuple[str, dict[str, bytes | str | None]]] = [
    ("offset_overflow_split", {name_of(51, "index"): None}),
    ("offset_far", {name_of(51, "index"): None}),
    ("duplicated_content", {name_of(51, "index"): None}),
    ("crc_active_mid", {name_of(51, "index"): None}),
    ("intact", {"70.log": b""}),
    ("intact", {"5.log": b"abc"}),
    ("intact", {"-5.log": b""}),
    ("intact", {"7.log.swap": b""}),
    ("intact", {"+30.snapshot": b""}),
    ("intact", {"9" * 20 + ".log": b""}),
    ("intact", {"foo.txnindex": b""}),
    ("intact", {name_of(20, "log.swap"): name_of(20, "log")}),
    ("intact", {name_of(100, "log"): name_of(0, "log")}),
    ("intact", {name_of(10, "log"): name_of(51, "log")}),
    (
        "intact",
        {name_of(60, "log"): name_of(51, "log"), name_of(60, "index"): name_of(51, "index")},
    ),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n-1 5\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\nx 5\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n1 20"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n2\n1 20\n0 0\n"}),
    ("intact", {"leader-epoch-checkpoint": b"0\n1\n\xff\n"}),
    ("intact", {"leader-epoch-checkpoint": b""}),
    ("intact", {"partition.metadata": b""}),
    ("intact", {"partition.metadata": b"version: 0"}),
    ("intact", {"partition.metadata": b"version: 0\x0btopic_id: hPk5UTdUQhK8GdCZGLpcnA"}),
    ("intact", {"partition.metadata": b"version: 0\rtopic_id: hPk5UTdUQhK8GdCZGLpcnA\r\n"}),
    ("intact", {"partition.metadata": b"version: x\ntopic_id: hPk5UTdUQhK8GdCZGLpcnA"}),
    ("intact", {"partition.metadata": b"version: 5\ntopic_id: hPk5UTdUQhK8GdCZGLpcnA==\n"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: hPk5UTdUQhK8GdCZGLpcn"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"}),
    ("intact", {"partition.metadata": b"version: 0\ntopic_id: \xff"}),
    ("intact", {name_of(51, "timeindex"): bytes(70_000)}),
    ("intact", {name_of(51, "txnindex"): b"\xff" * 34}),
    ("intact", {name_of(20, "txnindex"): bytes(3 * 34)}),
    ("intact", {name_of(0, "checkpoint.deleted"): b"", name_of(10, "log.deleted"): b""}),
]


@pytest.mark.usefixtures("harness")
def test_odd_directories_start_as_kafkas(corpus_dir: Path, tmp_path: Path) -> None:
    """Names, checkpoints and indexes that no broker writes, where Java's own rules decide."""
    cases = []
    for number, (scenario, changes) in enumerate(ODD):
        for mode in StartMode:
            ours = tmp_path / f"{number}-{mode}-ours" / PARTITION
            shutil.copytree(corpus_dir / "recovery" / scenario / PARTITION, ours)
            for name, content in changes.items():
                if content is None:
                    (ours / name).unlink()
                elif isinstance(content, str):
                    shutil.copy(ours / content, ours / name)
                else:
                    (ours / name).write_bytes(content)
            kafkas = tmp_path / f"{number}-{mode}-kafka" / PARTITION
            shutil.copytree(ours, kafkas)
            recovery_point = 0 if mode == StartMode.FULL else 51
            cases.append(Case(ours, kafkas, f"{scenario} {changes}", mode, recovery_point))
    _, wrong = compare(cases, tmp_path)
    assert not wrong, f"{len(wrong)} of {len(cases)} differ\n" + "\n".join(wrong)
