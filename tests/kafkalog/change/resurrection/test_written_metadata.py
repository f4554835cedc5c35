"""The metadata that a resurrection writes are those of a real broker, and are read back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.resurrection.requirements import require_read_back
from kafkalog.errors import CorruptDataError
from kafkalog.node.state.metadata import metadata
from tests.builders import batch, flip, record
from tests.kafkalog.change.resurrection.test_resurrect import (
    EXAMPLES,
    OTHER_ID,
    TOPIC_ID,
    make,
    run,
    topic,
)
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from pathlib import Path


def test_internal_topics_get_the_configs_of_a_real_broker(tmp_path: Path) -> None:
    """Without a metadata log they are those that the coordinators of Kafka 4.3 asked for."""
    names = {"__consumer_offsets": TOPIC_ID, "__transaction_state": OTHER_ID}
    for name, topic_id in names.items():
        make(tmp_path / "a", f"{name}-0", [], topic_id=topic_id)
    run(tmp_path / "a", to=tmp_path / "out")
    found = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image.configs
    real = metadata(EXAMPLES).image.configs
    for name in names:
        # The broker of the example was started with a transaction.state.log.min.isr of its own.
        wanted = {key: of for key, of in real[2, name].items() if key != "min.insync.replicas"}
        assert found[2, name] == wanted


@pytest.mark.parametrize("fault", ["damage", "a contradiction", "an unknown record"])
def test_metadata_that_read_back_differently_are_refused(tmp_path: Path, fault: str) -> None:
    """Each fault is enough, even behind sound records of all topics."""
    more = value_of("RemoveTopicRecord", topicId=OTHER_ID)  # of a topic that is not there
    if fault == "damage":
        more = value_of("NoOpRecord")
    elif fault == "an unknown record":
        more = b"\1\x7f\0"
    last = batch(9, [record(0, None, more)])
    chosen: Any = SimpleNamespace(topics=[SimpleNamespace(name="t", topic_id=TOPIC_ID, count=2)])
    make(tmp_path, "t-0", [])
    path = tmp_path / "bootstrap.checkpoint"
    sound = batch(0, [record(at, None, one) for at, one in enumerate(topic("t", TOPIC_ID, 2))])
    path.write_bytes(sound)
    require_read_back(str(tmp_path), chosen)
    path.write_bytes(sound + (flip(last, 8 * 40) if fault == "damage" else last))
    with pytest.raises(CorruptDataError):
        require_read_back(str(tmp_path), chosen)


def test_topics_that_read_back_differently_are_refused(tmp_path: Path) -> None:
    """One of two partitions is missing."""
    chosen: Any = SimpleNamespace(topics=[SimpleNamespace(name="t", topic_id=TOPIC_ID, count=2)])
    make(tmp_path, "t-0", [])
    records = [record(at, None, one) for at, one in enumerate(topic("t", TOPIC_ID, 1))]
    (tmp_path / "bootstrap.checkpoint").write_bytes(batch(0, records))
    with pytest.raises(CorruptDataError):
        require_read_back(str(tmp_path), chosen)
