"""The table of commands: their panels, summaries and aliases."""

from __future__ import annotations

from typing import Final

KAFKAS_OWN: Final = "kafka-dump-log"
PANELS: Final[dict[str, dict[str, str]]] = {
    "Look": {
        "ls": "List directories, partitions, segments or files.",
        "dump-segment": "Show the records, batches or entries of any file.",
        "anatomy": "Explain the bytes of a file, field by field.",
        "du": "Show what uses the disk, and when it will be full.",
    },
    "Search": {
        "lookup-offset": "Find a record by offset or time, as a broker does.",
        "find": "Find records by key, value, field, header or producer.",
    },
    "Check": {
        "verify": "Check everything; predict the broker's next start.",
        "diff": "Compare copies of partitions.",
        "quorum": "Show which KRaft voters are left, and who could lead.",
        "explain": "Explain a finding, an error, a config or a field.",
    },
    "Answer": {
        "groups": "Show groups, their offsets and lag, now or in the past.",
        "transactions": "Show open and hanging transactions.",
        "metadata": "Show topics, configs, brokers, ACLs, now or in the past.",
        "profile": "Count records, bytes, keys and codecs.",
        "sql": "Query logs with SQL.",
        "report": "Write one HTML page about all of this.",
        "simulate-roll": "Show where segments would end under other configs.",
    },
    "Rescue": {
        "recover": "Do what a broker does after a crash.",
        "salvage": "Copy what is sound, past any damage.",
        "resurrect": "Make a log directory that Kafka can start from.",
        "undo": "Take back what --apply has changed.",
    },
    "Change": {
        "compact": "Compact as a broker's cleaner does.",
        "retention": "Show what retention deletes, when and why; delete it.",
        "rebuild-index": "Rebuild indexes from the log.",
    },
    "Move": {
        "export": "Write records as files or Delta and Iceberg tables.",
        "replay": "Produce records into a live cluster.",
    },
    "Serve": {
        "serve": "Let any Kafka client read these directories.",
        KAFKAS_OWN: "Print what kafka-dump-log.sh prints.",
    },
}
"""Panel of the help to its commands and their summaries.

`a-b` is the function `a_b` in the module of that name, but for Kafka's own.
"""
COMMANDS: Final = {name: text for panel in PANELS.values() for name, text in panel.items()}
ALIASES: Final = {
    "dump": "dump-segment",
    "lookup": "lookup-offset",
    "simulate-retention": "retention",
}
