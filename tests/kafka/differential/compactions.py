"""A random log, cleaned a few times by Kafka's Cleaner and by ours."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

from tests.kafka.differential import images
from tests.kafka.differential.cleanings import PARTITION, Judgement
from tests.kafka.differential.logs import LogWriter, Manner
from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.rounds import drawn_config, drawn_round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle


def run(seed: int, oracle: Oracle, place: Path) -> Outcome:
    """Run the case of a seed; the files in `place` show more if something differs."""
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
        this = drawn_round(rng, writer, made["log"], partition, oracle.release)
        before = place / f"before-{number}"
        shutil.copytree(root, before)
        answer = oracle.ask("compact", str(partition), *this.words())
        if "error" in answer:
            outcome.differences.append(f"Kafka does not open the log: {answer}")
            return outcome
        Judgement(before, this, answer["passes"][0], root, outcome, f"round {number}").judge()
        if "error" in answer["passes"][0]:
            break
        writer.now_ms = this.now_ms
    return outcome
