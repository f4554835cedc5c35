"""The tables of the page; the value of each cell is the one that the commands print."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from kafkalog.answers.disk_usage.model import HOURS
from kafkalog.answers.overview.html import (
    Cell,
    Table,
    badge,
    command_html,
    duration_text,
    escaped,
    id_cell,
    number_cell,
    share_cell,
    size_cell,
    size_text,
    table_of,
    text_cell,
    time_cell,
    topics_by_size,
    with_commands,
)
from kafkalog.change.retention.model import Reason
from kafkalog.io.paths import file_system
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Severity
from kafkalog.node.recovery.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.answers.disk_usage.model import Disk
    from kafkalog.answers.overview.gathering import Report
    from kafkalog.answers.overview.model import Finding, PartitionFacts
    from kafkalog.change.retention.partition import PartitionRetention
    from kafkalog.node.recovery import NextStart

_ASSUMPTIONS_MAX: Final = 200
_STARTS_MAX: Final = 1000
"""At most this many directories are listed, those with the worst outcome."""


def _severity(finding: Finding) -> Cell:
    severity = finding.defect.severity
    shown = badge(severity).shown
    # Sorts by rank, filters by name.
    return Cell(shown, f"{list(Severity).index(severity)} {severity}")


def _place(path: str, *, has_several: bool) -> str:
    """Return the last two parts of a path, which may be broken between them; and the rest."""
    rest, name = os.path.split(file_system.absolute(path))
    rest, directory = os.path.split(rest)
    before = f"<small>{escaped(rest)}</small>" if has_several else ""
    return f"{escaped(directory)}/<wbr>{escaped(name)}{before}"


def findings_table(report: Report) -> Table:
    rows = []
    for one in report.findings:
        defect = one.defect
        shown = _place(defect.path, has_several=len(report.log_dirs) > 1)
        more = f"<small>and {one.alike} more of this kind in this file</small>" * bool(one.alike)
        known = REFERENCES.get(defect.reference)
        is_own = known is None or defect.hint != known.hint
        hint = f"<small>{with_commands(defect.hint)}</small>" if defect.hint and is_own else ""
        rows.append((
            _severity(one),
            text_cell(defect.reference, "k"),
            Cell(shown, defect.path, "p"),
            id_cell(defect.offset),
            id_cell(defect.position),
            Cell(escaped(defect.detail) + more, None, "w"),
            Cell(f"{command_html(one.command)}{hint}", None, "w"),
        ))  # fmt: skip
    found = report.checked.defects.total()
    listed = sum(1 + one.alike for one in report.findings)
    caption = "All findings"
    if listed < found:
        caption = f"The {listed:,} most severe of {found:,} findings"
    columns = (
        ("Severity", "How bad it is"), ("Finding", "kafkalog explain describes it"),
        ("Where", "The file or directory"), ("Offset", "Record offset"),
        ("Position", "Byte position in the file"), ("What", "What was found"),
        ("Next step", "The command that repairs or shows more"),
    )  # fmt: skip
    return Table("findings-table", caption, columns, rows)


def meaning_table(report: Report) -> Table:
    counts: Counter[str] = Counter()
    for one in report.findings:
        counts[one.defect.reference] += 1 + one.alike
    rows = []
    for name, number in counts.items():
        known = REFERENCES[name]
        rows.append((
            text_cell(name, "k"),
            number_cell(number),
            *(
                Cell(with_commands(text), None, "w")
                for text in (known.meaning, known.broker, known.hint or "")
            ),
        ))  # fmt: skip
    columns = (
        ("Finding", "kafkalog explain describes it"), ("Number", "Findings of this kind"),
        ("Meaning", "What was found"), ("What a broker does", "With it"), ("What to do", "By hand"),
    )  # fmt: skip
    return Table("meaning-table", "What they mean", columns, rows)


def next_start_table(report: Report) -> Table:
    worst = {verdict: number for number, verdict in enumerate(Verdict)}

    def rank(one: NextStart) -> tuple[int, int, str]:
        return (-worst[one.verdict], -one.lost_records - one.hidden_records, one.path)

    def outcome(one: NextStart) -> Cell:
        # The worst sorts first.
        return Cell(badge(one.verdict).shown, f"{len(worst) - worst[one.verdict]} {one.verdict}")

    caption = "Directories on which a start acts"
    if len(report.next_starts) > _STARTS_MAX:
        caption += f": {_STARTS_MAX} of {len(report.next_starts)}, those with the worst outcome"
    return table_of(
        "next-start-table", caption, sorted(report.next_starts, key=rank)[:_STARTS_MAX],
        ("Where", "Partition or log directory",
         lambda one: text_cell(os.path.basename(file_system.absolute(one.path)), "k")),
        ("Outcome", "The most serious thing it does", outcome),
        ("Mode", "How the broker starts on it", lambda one: text_cell(one.mode)),
        ("Truncates to", "Log end offset after the log is cut",
         lambda one: id_cell(one.truncate_to)),
        ("Records lost", "Records that are cut off",
         lambda one: number_cell(one.lost_records)),
        ("Records hidden", "Records behind a log end that is too early",
         lambda one: number_cell(one.hidden_records)),
        ("Bytes lost", "Bytes that are cut off",
         lambda one: size_cell(one.lost_bytes)),
        ("What it does", "In one line", lambda one: text_cell("; ".join(_acts_of(one)), "w")),
    )  # fmt: skip


def _acts_of(start: NextStart) -> Sequence[str]:
    """Return what a start does; if it changes no file, also why it is listed."""
    keeps_files = start.verdict in (Verdict.NOTHING, Verdict.HIDE)
    return (start.detail, *start.notes) if keeps_files else (start.detail,)


def assumption_table(report: Report) -> Table:
    counts: Counter[tuple[str, str]] = Counter()
    for one in report.next_starts:
        counts.update(("assumed", text) for text in one.assumptions)
        counts.update(("note", text) for text in one.notes)
    rows = [
        (text_cell(kind), text_cell(text, "w"), number_cell(number))
        for (kind, text), number in counts.most_common(_ASSUMPTIONS_MAX)
    ]
    columns = (
        ("Kind", "Assumed by the prediction, or not noticed by the start"), ("What", ""),
        ("Directories", "For how many it holds"),
    )  # fmt: skip
    return Table("assumption-table", "Assumptions and notes", columns, rows, (2, "desc"))


def _growth_cell(partitions: Sequence[PartitionFacts]) -> Cell:
    known = [one.growth for one in partitions if one.growth]
    return size_cell(sum(map(sum, known)) // HOURS if known else None)


def disk_table(report: Report) -> Table:
    def full(one: Disk) -> Cell:
        return (
            Cell("not in ten years", -2)
            if one.full_timestamp is None
            else time_cell(one.full_timestamp)
        )

    return table_of(
        "disk-table", "Disks", report.disks,
        ("Log directories", "On one file system",
         lambda one: text_cell(", ".join(one.log_dirs), "k")),
        ("Used", "By these log directories", lambda one: size_cell(one.used_bytes)),
        ("Free", "On the file system, on the machine that made this page",
         lambda one: size_cell(one.free_bytes)),
        ("Growth per hour", "Mean of the last 24 hours, by the timestamps of batches",
         lambda one: size_cell(one.hourly_growth_bytes)),
        ("Full", "If it grows on like this, and retention deletes as predicted", full),
    )  # fmt: skip


def over_table(report: Report) -> Table:
    return table_of(
        "over-table", "Above their limit", report.over,
        ("Partition", "Topic and partition",
         lambda one: text_cell(os.path.basename(one.path), "k")),
        ("Above", "Bytes above the limit", lambda one: size_cell(one.over_bytes)),
        ("Why", "What keeps them", lambda one: text_cell(one.reason, "w")),
        order=(1, "desc"),
    )  # fmt: skip


def topic_table(report: Report) -> Table:
    by_topic: defaultdict[str, list[PartitionFacts]] = defaultdict(list)
    for one in report.partitions:
        by_topic[one.listed.topic].append(one)
    rows = []
    for topic in topics_by_size(report):
        found = by_topic[topic]
        size = sum(one.listed.size_bytes for one in found)
        freed = sum(one.retention.freed_bytes for one in found if one.retention)
        rows.append((
            text_cell(topic, "k"),
            number_cell(len(found)),
            size_cell(size),
            share_cell(size / report.size_bytes if report.size_bytes else 0),
            number_cell(sum(one.listed.segments for one in found)),
            number_cell(sum(part.records for one in found for part in one.contents)),
            _growth_cell(found),
            size_cell(freed),
        ))  # fmt: skip
    columns = (
        ("Topic", "Topic"), ("Partitions", "Partition directories, all replicas"),
        ("Size", "Files of the partitions, as ls counts them"), ("Share", "Share of all topics"),
        ("Segments", "Segments"), ("Records", "Records, by the headers of their batches"),
        ("Growth per hour", "Mean of the last 24 hours, by the timestamps of batches"),
        ("Retention frees", "What retention deletes at its next check"),
    )  # fmt: skip
    return Table("topic-table", "Topics", columns, rows, (2, "desc"))


def _name(one: PartitionFacts, report: Report) -> Cell:
    """Return the cell of a partition; where there are several log directories, with its path."""
    path = one.listed.path if len(report.log_dirs) > 1 else os.path.basename(one.listed.path)
    return Cell(escaped(one.name), path, "k")


def partition_table(report: Report) -> Table:
    has_several = len({os.path.dirname(one.listed.path) for one in report.partitions}) > 1
    rows = []
    for one in report.partitions:
        listed = one.listed
        last = max(
            (part.last_timestamp for part in one.contents if part.last_timestamp is not None),
            default=None,
        )
        rows.append((
            _name(one, report),
            text_cell(listed.state),
            size_cell(listed.size_bytes),
            number_cell(listed.segments),
            id_cell(listed.log_start_offset),
            id_cell(listed.high_watermark),
            id_cell(listed.log_end_offset),
            time_cell(last),
            text_cell(os.path.dirname(listed.path), "k"),
        )[: 9 if has_several else 8])  # fmt: skip
    columns = (
        ("Partition", "Topic and partition"), ("State", "live, delete, future or stray"),
        ("Size", "Files of the directory, as ls counts them"), ("Segments", "Segments"),
        ("Log start", "Log start offset"), ("High watermark", "As the broker noted it"),
        ("Log end", "Log end offset"), ("Last batch", "Largest timestamp"),
        ("Log directory", "Where it lies"),
    )[: 9 if has_several else 8]  # fmt: skip
    return Table("partition-table", "Partitions", columns, rows, (2, "desc"))


def log_dir_table(report: Report) -> Table:
    return table_of(
        "log-dir-table", "Log directories", report.log_dirs,
        ("Log directory", "Path", lambda one: text_cell(one.path, "k")),
        ("Node", "node.id", lambda one: text_cell("–" if one.meta is None else one.meta.node_id)),
        ("Cluster", "cluster.id",
         lambda one: text_cell("–" if one.meta is None else one.meta.cluster_id, "k")),
        ("Shutdown", "Whether the broker was shut down cleanly",
         lambda one: text_cell(one.last_stop)),
        ("Partitions", "Partition directories", lambda one: number_cell(one.partitions)),
        ("Size", "All files", lambda one: size_cell(one.size_bytes)),
    )  # fmt: skip


def _limit_text(found: PartitionRetention) -> str:
    policy = found.policy
    if policy.inert is not None:
        return str(policy.inert)
    if not policy.deletes:
        return str(Reason.COMPACT_ONLY)
    limits = []
    if policy.retention_ms >= 0:
        limits.append(duration_text(policy.retention_ms))
    if policy.retention_bytes >= 0:
        limits.append(size_text(policy.retention_bytes))
    return " or ".join(limits) or str(Reason.UNLIMITED)


def retention_table(report: Report) -> Table:
    rows = []
    for one in report.partitions:
        found = one.retention
        if found is None:
            continue
        kept = [verdict for verdict in found.verdicts if not verdict.is_deleted]
        times = [
            verdict.deletable_timestamp
            for verdict in kept
            if verdict.deletable_timestamp is not None
        ]
        blocked = [verdict for verdict in kept if verdict.reason == Reason.BLOCKED]
        rows.append((
            _name(one, report),
            text_cell(_limit_text(found)),
            size_cell(found.log.size_bytes),
            number_cell(len(found.outcome.deleted)),
            size_cell(found.freed_bytes),
            time_cell(min(times, default=None)),
            number_cell(len(blocked)),
            text_cell(blocked[0].detail if blocked else "", "w"),
        ))  # fmt: skip
    columns = (
        ("Partition", "Topic and partition"), ("Limit", "retention.ms and retention.bytes"),
        ("Size", "Size of the log"), ("Deletes", "Segments that go at the next check"),
        ("Frees", "Bytes of these logs"), ("Next", "When time alone makes the next one go"),
        ("Blocked", "Segments that a limit would delete, but something blocks that"),
        ("Why", "What blocks the first of these"),
    )  # fmt: skip
    return Table("retention-table", "What goes, and when", columns, rows, (4, "desc"))


def cleaning_table(report: Report) -> Table:
    rows = []
    for one in report.partitions:
        found = one.cleaning
        if found is None or found.cleanable is None:
            continue
        cleanable, bound = found.cleanable, found.config.min_cleanable_dirty_ratio
        # As `LogCleanerManager.grabFilthiestCompactedLog`: overdue by max.compaction.lag.ms, or
        # dirty enough; a ratio that equals the bound is not.
        is_due = bool(found.delay_ms) or cleanable.ratio > bound
        why = "the cleaner takes it" if is_due else f"not above {bound:g}"
        rows.append((
            _name(one, report),
            share_cell(cleanable.ratio),
            size_cell(cleanable.cleanable_bytes),
            size_cell(cleanable.clean_bytes),
            id_cell(cleanable.first_dirty_offset),
            id_cell(cleanable.first_uncleanable_offset),
            text_cell(str(found.skip) if found.skip else why, "w"),
        ))  # fmt: skip
    columns = (
        ("Partition", "Topic and partition"), ("Dirty ratio", "Dirty share of what can be cleaned"),
        ("Dirty", "Bytes that the next cleaning reads"), ("Clean", "Bytes below the dirty part"),
        ("First dirty", "Where the next cleaning begins"),
        ("Ends at", "Where it ends: active segment, open transaction, compaction lag"),
        ("Verdict", "Whether the cleaner takes it"),
    )  # fmt: skip
    return Table("cleaning-table", "Compacted partitions", columns, rows, (1, "desc"))


def gap_table(report: Report) -> Table:
    rows = [(text_cell(one.about, "k"), text_cell(one.why, "w")) for one in report.gaps]
    return Table("gap-table", "Questions without an answer", (("What", ""), ("Why", "")), rows)
