"""What prevents the compaction of a partition; nothing is changed then."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from formats.file_names import parse_directory_name
from kafkalog.change.compaction import (
    CompactionRequest,
    Skip,
    compact_partition,
    find_candidate,
)
from kafkalog.change.journal import Run
from kafkalog.change.journal.requirements import mode_to_judge_by
from kafkalog.change.repair import perform_recovery, plan_recovery
from kafkalog.errors import (
    CorruptDataError,
    KafkaLogError,
    RefusedError,
    UnwritableError,
    UsageError,
)
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from kafkalog.node.recovery import StartMode
from tests.builders import flip
from tests.kafka.broker_data import fingerprint
from tests.kafkalog.change.compaction.oracle import PARTITION, cleanings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = "00000000000000000000"


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    """Something to clean, of magic 2, without transactions."""
    return cleanings(corpus_dir / "compaction", "dedupe_none")[0].copy(tmp_path / "log-dir")


def flipped(partition: Path) -> None:
    log = partition / f"{FIRST}.log"
    log.write_bytes(flip(log.read_bytes(), 8 * (log.stat().st_size - 5)))


def linked(partition: Path) -> None:
    log = partition / f"{FIRST}.log"
    log.rename(partition.parent / "elsewhere")
    log.symlink_to(partition.parent / "elsewhere")


def cut_index(partition: Path) -> None:
    index = partition / f"{FIRST}.timeindex"
    index.write_bytes(index.read_bytes()[:-1])


DAMAGES: dict[str, tuple[Callable[[Path], Any], type[KafkaLogError]]] = {
    "a flipped bit": (flipped, CorruptDataError),
    "a log that is a link": (linked, RefusedError),
    "a cut index": (cut_index, RefusedError),
    "a leftover of a cleaning": (
        lambda place: (place / f"{FIRST}.log.cleaned").write_bytes(b""), RefusedError),
    "a leftover of an old release": (
        lambda place: (place / f"{FIRST}.index.clean").write_bytes(b""), RefusedError),
    "a half swap": (lambda place: (place / f"{FIRST}.log.swap").write_bytes(b""), RefusedError),
    "a backup by hand": (lambda place: (place / f"{FIRST}.bak").write_bytes(b""), RefusedError),
    "a directory": (lambda place: (place / "old").mkdir(), RefusedError),
    "a missing index": (lambda place: (place / f"{FIRST}.index").unlink(), RefusedError),
}  # fmt: skip


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_partition_that_is_not_whole_is_refused(damage: str, log_dir: Path) -> None:
    hurt, error = DAMAGES[damage]
    hurt(log_dir / PARTITION)
    before = fingerprint(log_dir)
    with pytest.raises(error) as caught:
        compact_in_place(log_dir)
    assert caught.value.path
    assert caught.value.hint
    after = fingerprint(log_dir)
    after.pop(".lock", None)
    assert after == before


def compact_in_place(log_dir: Path, **more: Any) -> Any:
    candidate, request = candidate_in(log_dir, **more)
    with Run(str(log_dir)) as run:
        return compact_partition(candidate, request, run)


def candidate_in(
    log_dir: Path, name: str = PARTITION, config: dict[str, str] | None = None, **more: Any
) -> tuple[Any, CompactionRequest]:
    given = {"now_ms": 1_700_000_000_000, "high_watermark": "end"} | more
    request = CompactionRequest(**given)
    partition = open_partition(str(log_dir / name))
    configs = {"cleanup.policy": "compact"} | (config or {})
    parsed = parse_directory_name(name)
    topic = parsed.topic if parsed else name
    found = find_candidate(
        partition, ConfigSources(configs).in_log_dir(str(log_dir)).of_topic(topic), request
    )
    return found, request


@pytest.mark.parametrize(
    ("config", "more", "skip"),
    [
        ({"cleanup.policy": "delete"}, {}, Skip.NOT_COMPACTED),
        ({"remote.storage.enable": "true"}, {}, Skip.REMOTE),
        ({"min.compaction.lag.ms": str(10**15)}, {}, Skip.NOTHING),
        ({}, {"up_to_offset": 0}, Skip.NOTHING),
        ({}, {"high_watermark": 0}, Skip.NOTHING),
    ],
)
def test_why_a_partition_is_skipped(
    config: dict[str, str], more: dict[str, Any], skip: Skip, log_dir: Path
) -> None:
    candidate, request = candidate_in(log_dir, config=config, **more)
    assert candidate.skip == skip
    assert compact_partition(candidate, request).groups == ()


def test_a_high_watermark_must_be_noted(log_dir: Path) -> None:
    """An unreplicated record must not replace a replicated one."""
    (log_dir / "replication-offset-checkpoint").unlink()
    assert candidate_in(log_dir, high_watermark=None)[0].skip == Skip.NO_HIGH_WATERMARK
    assert candidate_in(log_dir)[0].skip is None


@pytest.mark.parametrize(
    ("name", "skip"),
    [
        ("__cluster_metadata-0", Skip.METADATA),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", Skip.NOT_LIVE),
        ("orders-0.0123456789abcdef0123456789abcdef-future", Skip.NOT_LIVE),
        ("orders-0.0123456789abcdef0123456789abcdef-stray", Skip.NOT_LIVE),
    ],
)
def test_other_directories_are_left_alone(name: str, skip: Skip, log_dir: Path) -> None:
    (log_dir / PARTITION).rename(log_dir / name)
    assert candidate_in(log_dir, name)[0].skip == skip


def test_a_log_that_was_not_closed_must_be_recovered_first(log_dir: Path) -> None:
    """A recovered log starts without changes; a copy without a broker's files counts as closed.

    A log that ends in the middle of a batch stands for what a crash leaves.
    """
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    active = max((log_dir / PARTITION).glob("*.log"))
    with active.open("ab") as out:
        out.write(bytes(8) + b"\0\0\1")
    assert mode_to_judge_by(str(log_dir)) == mode_to_judge_by(None) == StartMode.CLEAN
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    assert mode_to_judge_by(str(log_dir)) == StartMode.UNCLEAN
    with pytest.raises(KafkaLogError):
        compact_in_place(log_dir)
    partition = open_partition(str(log_dir / PARTITION))
    with Run(str(log_dir)) as run:
        perform_recovery(plan_recovery(partition, StartMode.UNCLEAN), run)
    assert compact_in_place(log_dir).groups


def test_a_directory_that_is_a_link_is_refused(log_dir: Path) -> None:
    (log_dir / PARTITION).rename(log_dir.parent / PARTITION)
    os.symlink(log_dir.parent / PARTITION, log_dir / PARTITION)
    with pytest.raises(RefusedError, match="symbolic link"):
        compact_in_place(log_dir)


def test_old_formats_are_asked_for(corpus_dir: Path, tmp_path: Path) -> None:
    """They become batches of magic 2, which needs an option."""
    cleaning = cleanings(corpus_dir / "compaction", "legacy_v1")[0]
    log_dir = cleaning.copy(tmp_path / "log-dir")
    with pytest.raises(RefusedError, match="old format"):
        cleaning.compact(log_dir, old_formats=False)


def test_a_directory_that_cannot_be_written_is_refused(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal comes before the read; for root, only the file system can refuse."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UnwritableError):
        compact_in_place(log_dir)


def test_a_map_without_a_slot_is_no_map(log_dir: Path) -> None:
    with pytest.raises(UsageError):
        candidate_in(log_dir, map_memory=24)
