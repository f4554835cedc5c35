"""The output of `report`: the page that was written, and its most important numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalog.model import Severity
from kafkalog.node.recovery.model import Verdict
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.findings import MEANING_OF_DEPTH
from kafkalog_cli.output.objects import Column, Field, ObjectType

if TYPE_CHECKING:
    from kafkalog.answers.overview.gathering import Report
    from kafkalog_cli.output.objects import Style, View


@dataclass(frozen=True)
class WrittenReport:
    """A page, its size, and the facts on it."""

    path: str
    size_bytes: int
    facts: Report


REPORT: Final = ObjectType[WrittenReport](
    "report",
    "`report`",
    "The page, and its main numbers.",
    Field("path", k.TEXT, ""),
    Field("size_bytes", k.SIZE, ""),
    Field("timestamp", k.TIME, "also the clock for ages", "facts.made_ms"),
    Field("topics", k.INT, "", lambda one: len({p.listed.topic for p in one.facts.partitions})),
    Field("partitions", k.INT, "partition directories", lambda one: len(one.facts.partitions)),
    Field("log_bytes", k.SIZE, "as `ls` counts", "facts.size_bytes"),
    Field("defects", k.OBJECT, "by severity",
          lambda one: {each.value: one.facts.checked.defects[each] for each in Severity}),
    Field("depth", k.TEXT, MEANING_OF_DEPTH, "facts.checked.looked"),
    Field("next_starts", k.INT, "directories on which the next start acts",
          lambda one: sum(each.verdict != Verdict.NOTHING for each in one.facts.next_starts)),
    Field("groups", k.INT, "", lambda one: len(one.facts.groups)),
    Field("open_transactions", k.INT, "", lambda one: len(one.facts.open_transactions)),
    Field("gaps", k.INT, "what is not known; the page names it", lambda one: len(one.facts.gaps)),
)  # fmt: skip


def view(style: Style) -> View[WrittenReport]:
    return REPORT.view(
        style,
        Column("PAGE", "path", least=12, keeps_end=True),
        Column("SIZE", "size_bytes"),
        Column("TOPICS", "topics"),
        Column("PARTITIONS", "partitions"),
        Column("LOG SIZE", "log_bytes"),
        Column("FINDINGS", lambda one: one.facts.verdict, below=True),
    )
