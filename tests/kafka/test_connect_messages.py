"""Messages that Kafka's JsonConverter writes, compared with what it reads from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka import broker_data
from tests.kafkalog.log.typed.connect_messages import WRITTEN, compare, messages
from tests.sampling import new_seed, tries_everything

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).with_name("ConnectMessages.java")
SCHEMAS = 3000 if tries_everything() else 100


def printed(place: Path, seed: int, schemas: int, release: str = broker_data.RELEASE) -> list[str]:
    answer = broker_data.java(str(PROGRAM), str(seed), str(schemas), cwd=place, release=release)
    return answer.splitlines()


@pytest.mark.usefixtures("harness")
def test_drawn_values_are_what_kafka_reads(tmp_path: Path) -> None:
    seed = new_seed()
    print(f"KAFKALOG_SEED={seed}")
    lines = printed(tmp_path, seed, SCHEMAS)
    assert len(lines) > 3 * SCHEMAS
    compare(messages(lines))


def test_the_messages_of_the_corpus_are_kafkas(tmp_path: Path, newest_harness: str) -> None:
    lines = WRITTEN.read_text(encoding="utf-8").splitlines()
    assert printed(tmp_path, 1, 60, newest_harness) == lines
