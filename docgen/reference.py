"""`docs/exit-codes.md`, `defects.md`, `formats.md`: tables that come from the code."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING

from formats import topic_names
from formats.file_names import OFFSET_CHECKPOINTS, FileKind
from formats.message_table import messages
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Severity
from kafkalog_cli.exit_statuses import EXIT_MEANINGS
from kafkalog_cli.output.explanations import error_classes, first_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.model import Reference


def status_table() -> str:
    """Write a row per exit status."""
    missing = {error.exit_code for error in error_classes()} - set(EXIT_MEANINGS)
    assert not missing, f"exit statuses without a meaning: {missing}"
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_MEANINGS.items())
    return f"| status | meaning |\n|---|---|\n{rows}"


def error_table() -> str:
    """Write a row per error class."""
    rows = "".join(
        f"| `{error.reference}` | {error.exit_code} | `kafkalog.errors.{error.__name__}` "
        f"| {first_sentence(error)} |\n"
        for error in error_classes()
    )
    return f"| reference | status | class in Python | meaning |\n|---|---|---|---|\n{rows}"


_LONG_WORDS = 6
"""A shorter text is shorter than a link to it."""
_SEVERITY_HEADS = {
    Severity.DAMAGE: "Data is unreadable or wrong.",
    Severity.INDEX: "A derived file is wrong; Kafka can rebuild it from the log.",
    Severity.WARNING: "Something a person should look at.",
    Severity.NOTE: "Worth knowing, no action needed; the exit status stays 0.",
}


def defect_sections() -> str:
    """Write a section per defect reference, by severity; a text that recurs stands once."""
    parts = []
    sections: dict[str, str] = {}
    for severity, head in _SEVERITY_HEADS.items():
        parts.append(f"\n## {severity}\n\n{head}\n")
        for reference in REFERENCES.values():
            if reference.severity == severity:
                parts.append(f"\n### `{reference.name}`\n\n{reference.meaning}\n\n")
                parts.append("\\\n".join(_labelled(reference, sections)) + "\n")
    return "".join(parts)


def _labelled(reference: Reference, sections: dict[str, str]) -> Iterator[str]:
    """Yield a line for each thing to say; `sections` has the section of each text so far."""
    said = {
        "Arises": reference.arises,
        "Broker": reference.broker,
        "To do": reference.hint,
        "Example": f"`{reference.example}`" if reference.example else None,
    }
    for title, text in said.items():
        if text:
            first = sections.setdefault(text, reference.name)
            is_repeated = first != reference.name and len(text.split()) >= _LONG_WORDS
            yield f"**{title}:** " + (f"see [`{first}`](#{first})" if is_repeated else text)


# Kind of file: its name on disk, the schema of its bytes, the module that interprets it.
_FILES = {
    FileKind.LOG: ("`<base offset>.log`", "record_batch", "node.reader"),
    FileKind.OFFSET_INDEX: ("`<base offset>.index`", "side_files", "files.indexes"),
    FileKind.TIME_INDEX: ("`<base offset>.timeindex`", "side_files", "files.indexes"),
    FileKind.TRANSACTION_INDEX: ("`<base offset>.txnindex`", "side_files", "files.indexes"),
    FileKind.PRODUCER_SNAPSHOT: ("`<offset>.snapshot`", "side_files", "log.producers"),
    FileKind.KRAFT_SNAPSHOT: (
        "`<end offset>-<epoch>.checkpoint`, `bootstrap.checkpoint`",
        "record_batch",
        "node.reader",
    ),
    FileKind.LEADER_EPOCH_CHECKPOINT: (
        "`leader-epoch-checkpoint`",
        "text_files",
        "files.text_files",
    ),
    FileKind.PARTITION_METADATA: ("`partition.metadata`", "text_files", "files.text_files"),
    FileKind.QUORUM_STATE: ("`quorum-state`", "text_files", "files.text_files"),
    FileKind.OFFSET_CHECKPOINT: (
        ", ".join(f"`{name}`" for name in OFFSET_CHECKPOINTS),
        "text_files",
        "files.text_files",
    ),
    FileKind.META_PROPERTIES: ("`meta.properties`", "text_files", "files.text_files"),
    FileKind.CLEAN_SHUTDOWN: ("`.kafka_cleanshutdown`", "text_files", "files.text_files"),
    FileKind.LOCK: ("`.lock`", "", ""),
    FileKind.REMOTE_LOG_SNAPSHOT: (
        "`remote_log_snapshot`",
        "side_files",
        "files.text_files",
    ),
    FileKind.REMOTE_LOG_OFFSETS: ("`_rlmm_committed_offsets`", "text_files", "files.text_files"),
    FileKind.MANIFEST: ("`<base offset>-<segment id>.rsm-manifest`", "", "io.paths.chunked"),
}

_INTERNAL_TOPICS = (
    topic_names.CONSUMER_OFFSETS,
    topic_names.TRANSACTION_STATE,
    topic_names.CLUSTER_METADATA,
    topic_names.REMOTE_LOG_METADATA,
    topic_names.SHARE_GROUP_STATE,
)


def file_table() -> str:
    """Write a row per kind of file."""
    undocumented = set(FileKind) - set(_FILES) - {FileKind.UNKNOWN}
    assert not undocumented, f"kinds of files without a description: {undocumented}"
    rows = []
    for kind, (name, schemas, module) in _FILES.items():
        for part in schemas.split():
            importlib.import_module(f"formats.{part}")
        if module:
            importlib.import_module(f"kafkalog.{module}")
        layout = ", ".join(f"`formats.{part}`" for part in schemas.split())
        layout = layout or ("JSON" if kind == FileKind.MANIFEST else "empty")
        meaning = f"`kafkalog.{module}`" if module else "listed only"
        rows.append(f"| {name} | `{kind}` | {layout} | {meaning} |\n")
    return f"| name | kind | layout | read by |\n|---|---|---|---|\n{''.join(rows)}"


def payload_table() -> str:
    """Write a row per family of messages: how many messages and how many schemas."""
    table = messages().values()
    counts = Counter(message.family for message in table)
    schemas_of = Counter[str]()
    for message in table:
        schemas_of[message.family] += len(message.versions)
    topics = {payload_kind(topic): topic for topic in _INTERNAL_TOPICS}
    assert set(topics) == set(PayloadKind)
    rows = "".join(
        f"| {_family(family, topics)} | {count} | {schemas_of[family]} |\n"
        for family, count in counts.items()
    )
    total = f"| together | {sum(counts.values())} | {sum(schemas_of.values())} |\n"
    return f"| where | messages | schemas |\n|---|---|---|\n{rows}{total}"


def _family(family: str, topics: dict[PayloadKind | None, str]) -> str:
    if family in set(PayloadKind):
        return f"`{topics[PayloadKind(family)]}`"
    return {"control": "control records", "consumer-protocol": "members of consumer groups"}[family]
