"""Two keys with one MD5 digest: Kafka's cleaner loses a live record, ours keeps both."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.audit import Reason, audit_partition
from kafkalog.change.compaction.candidates import find_cleanable
from kafkalog.change.compaction.cleaning import Pass
from kafkalog.change.compaction.columns import ColumnPass
from kafkalog.change.compaction.model import CompactionConfig
from kafkalog.files.log_dir import open_partition
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

PARTITION = "orders-0"
START_MS = 1_700_000_000_000
# The collision that Xiaoyun Wang and others published in 2004.
FIRST_KEY = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488"
    "832571415a085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da"
    "03fd02396306d248cda0e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
FLIPPED_BYTES = (19, 45, 59, 83, 109, 123)


def second_key() -> bytes:
    """Flip the highest bit of six bytes."""
    key = bytearray(FIRST_KEY)
    for position in FLIPPED_BYTES:
        key[position] ^= 0x80
    return bytes(key)


def append(key: bytes | str, value: str) -> dict[str, object]:
    name = {"hex": key.hex()} if isinstance(key, bytes) else key
    return {"op": "append", "records": [{"k": name, "v": value, "ts": START_MS}]}


@pytest.fixture
def collided(oracle: Oracle, tmp_path: Path) -> Path:
    """A log with a live record of each of the two keys, one superseded record, and an end."""
    operations = [append("k", "old"), append(FIRST_KEY, "one"), append(second_key(), "two"),
                  append("k", "new"), {"op": "roll"}, append("end", "x")]  # fmt: skip
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"config": {"cleanup.policy": "compact"}, "now": START_MS,
                                "ops": operations}))  # fmt: skip
    partition = tmp_path / "before" / PARTITION
    partition.mkdir(parents=True)
    answer = oracle.ask("append", str(partition), str(spec))
    assert "error" not in answer, answer
    return tmp_path / "before"


def test_the_keys_collide() -> None:
    """The two keys have one digest, and Kafka's offset map knows a key only by its digest."""
    assert second_key() != FIRST_KEY
    digests = {hashlib.md5(key, usedforsecurity=False).digest() for key in
               (FIRST_KEY, second_key())}  # fmt: skip
    assert len(digests) == 1


def test_kafkas_cleaner_loses_a_live_record_and_the_audit_names_it(
    collided: Path, oracle: Oracle, tmp_path: Path
) -> None:
    """Its map holds one offset for both keys, and the record of the first key lies below it."""
    after = tmp_path / "after"
    shutil.copytree(collided, after)
    said = oracle.ask("compact", str(after / PARTITION), "--now", str(START_MS + 1000))
    assert said["passes"][0]["endOffset"] == 4, said
    found = audit_partition(
        open_partition(str(after / PARTITION)),
        open_partition(str(collided / PARTITION)),
        now_ms=START_MS + 1000,
        cleaner_offset=4,
        findings_max=9,
    )
    assert [(one.reason, one.offset, one.key) for one in found.findings] == [
        (Reason.LIVE_KEY_LOST, 1, FIRST_KEY)
    ]


@pytest.mark.parametrize("kind", [Pass, ColumnPass])
def test_our_cleaner_keeps_both(collided: Path, kind: type[Pass] | type[ColumnPass]) -> None:
    """It only removes the superseded record, with the kernels and without them."""
    log = UnifiedLog(str(collided / PARTITION))
    config = CompactionConfig()
    now = START_MS + 1000
    cleaning = kind(log, config, now, find_cleanable(log, config, now, None), {})
    written = b"".join(data for group in cleaning.groups() for data in cleaning.clean(group))
    assert FIRST_KEY in written
    assert second_key() in written
    assert b"old" not in written
    assert cleaning.tally.kept_records == 3
