"""The facts of a report: what the checks have already read is not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.answers.overview import report
from kafkalog.answers.overview.model import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.answers.overview.model import PartitionFacts
    from kafkalog.files.log_dir import PartitionDir

NOW_MS = 1_790_000_000_000
STATES = ("txn", "crash-0-kill9", "crash-1-torn", "compact-0-before", "retention-0-before")


def facts(one: PartitionFacts) -> tuple[object, ...]:
    kept = one.retention
    judged = None if kept is None else (kept.marks, kept.log, kept.outcome, kept.verdicts)
    return one.listed, one.used, judged, one.growth, one.contents


@pytest.mark.sampled(2)
@pytest.mark.parametrize("state", STATES)
def test_what_the_checks_have_seen_is_what_every_question_would_read(
    corpus_dir: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Retention, log ends, open transactions and more, of real logs: sound, torn, unclosed."""
    path = corpus_dir / "kafka-4.3" / state
    found = report(path, now_ms=NOW_MS)
    surveys: list[bool] = []
    with_surveys = Contents.surveyed

    def count(contents: Contents, directory: PartitionDir) -> PartitionDir:
        surveyed = with_surveys(contents, directory)
        surveys.extend(entry.survey is not None for entry in surveyed.files)
        return directory

    monkeypatch.setattr(Contents, "surveyed", count)
    again = report(path, now_ms=NOW_MS)
    assert any(surveys)
    assert list(map(facts, found.partitions)) == list(map(facts, again.partitions))
    for name in ("open_transactions", "transactional_ids", "groups", "over", "gaps"):
        assert getattr(found, name) == getattr(again, name), name
