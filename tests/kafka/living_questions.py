"""Questions to the logs of a working broker, and what must be true of each answer."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

from formats.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.kafkalog.wire.server.protocol import Connected, serving
from tests.kafkalog.wire.server.test_fetch import batches, everything
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result
    from tests.kafka.test_living_broker import LivingBroker

    Kafkalog = Callable[..., Result]

GRAVE = ("damage", "warning", "index")
SIZE = 1 << 20
NUMBERED = ("steady", "compacted", "retained", "trimmed")


def answered(kafkalog: Kafkalog, *words: object, statuses: tuple[int, ...] = (0,)) -> list[Any]:
    """Return the rows of an answer without a finding above a note."""
    done = kafkalog(*words, "--format", "ndjson")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    grave = [one for one in found if one.get("severity") in GRAVE]
    assert not grave, (words, grave)
    assert done.status in statuses, (words, done)
    return found


def asked(broker: LivingBroker, kafkalog: Kafkalog, place: Path) -> None:
    """Ask everything once."""
    dirs = broker.log_dirs
    until(lambda: (broker.watermark("steady") or 0) > 7)
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        until(partial(is_there, dirs, topic))
    committed(broker, kafkalog)
    answered(kafkalog, "transactions", *dirs)
    topics = {one.get("topic") for one in answered(kafkalog, "metadata", dirs[0])}
    assert topics >= {*NUMBERED}
    [found] = answered(kafkalog, "find", *dirs, "--topic", "steady", "--value-regex", "^7 ")
    assert found["offset"] == 7
    counted(broker, kafkalog)
    if len(dirs) > 1:
        moved(kafkalog, dirs)
    page = place / "report.html"
    done = kafkalog("report", *dirs, "--to", page)
    assert done.status == 0, done
    page.unlink()
    used = answered(kafkalog, "du", *dirs)
    assert {one.get("topic") for one in used} >= {*NUMBERED}
    answered(kafkalog, "retention", *dirs)
    compared(broker, kafkalog, place)
    served(broker)


def is_there(dirs: list[Path], topic: str) -> bool:
    """Return whether a topic has been created."""
    return any(path for one in dirs for path in one.glob(f"{topic}-*"))


def committed(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Require the group's offset to be one that was committed."""
    groups = answered(kafkalog, "groups", *broker.log_dirs)
    for one in groups:
        if one["type"] == "group_offset":
            assert (one["group_id"], one["topic"]) == ("billing", "steady")
            assert one["offset"] <= broker.steady_end()


def counted(broker: LivingBroker, kafkalog: Kafkalog) -> None:
    """Require that a count ends at a high watermark that was noted meanwhile."""
    words = "select count(*) n from records where topic = 'steady'"
    before = broker.watermark("steady")
    [row] = answered(kafkalog, "sql", "-c", words, *broker.log_dirs)
    after = broker.watermark("steady")
    assert before is None or before <= row["n"]
    assert after is None or before is None or row["n"] <= after


def moved(kafkalog: Kafkalog, dirs: list[Path]) -> None:
    """Require the records of the topic that moves, once and from the first on."""
    words = "select \"offset\" as o, value from records where topic = 'moving' order by 1"
    offsets = [one["o"] for one in answered(kafkalog, "sql", "-c", words, *dirs)]
    assert offsets == [*range(len(offsets))]


def compared(broker: LivingBroker, kafkalog: Kafkalog, place: Path) -> None:
    """Compare a log with a copy of it that lags behind."""
    copy = place / "copy" / "ledger-0"
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(broker.log_dir / "ledger-0", copy, ignore_dangling_symlinks=True)
    answered(kafkalog, "diff", broker.log_dir / "ledger-0", copy, statuses=(0, 1))


def served(broker: LivingBroker) -> None:
    """Require that a client gets all records up to the high watermark, in order."""
    before = broker.watermark("steady") or 0
    with serving(*broker.log_dirs, topics=("steady",)) as running:
        with Connected(running.address) as client:
            data = everything(client, "steady", 0, SIZE)
        assert not running.heard.errors
        assert not running.heard.defects
    end = 0
    for position, _, after in batches(data):
        assert int.from_bytes(data[position : position + 8], "big") == end
        end = after
    assert end >= before
