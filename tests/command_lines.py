"""Command lines of all commands, for proofs that hold for each of them."""

from __future__ import annotations

import random
import re
import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NOW_NS = 1_800_000_000 * 10**9

LOG = "{dir}/orders-0/00000000000000000000.log"
FILES = f"{LOG},{{dir}}/orders-0/00000000000000000000.index"
COMPACTED = ("--config", "cleanup.policy=compact", "--high-watermark", "end", "--now", "0")
FRESH_ID = "N" * 21 + "A"
IN_PLACE = ("--in-place", "--yes", "--now", "0", "--format", "ndjson")
RESURRECT = ("resurrect", "{broker}", "--cluster-id", FRESH_ID, "--format", "ndjson")
LINES: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "{dir}", "--format", "ndjson"),
    "ls-segments": ("ls", "{dir}", "--segments", "--format", "ndjson"),
    "ls-files": ("ls", "{dir}", "--files"),
    "dump-ndjson": ("dump-segment", "{dir}/orders-0", "--format", "ndjson"),
    "dump-json": ("dump-segment", "{dir}/orders-0", "--format", "json"),
    "dump-csv": ("dump-segment", "{dir}/orders-0", "--format", "csv"),
    "dump-table": ("dump-segment", "{dir}/orders-0"),
    "dump-kafka": ("dump-segment", "{dir}/orders-0", "--format", "kafka"),
    "dump-batches": ("dump-segment", "{dir}/orders-0", "--batches", "--format", "ndjson"),
    "dump-committed": ("dump-segment", "{dir}/orders-0", "--read-committed", "--format", "ndjson"),
    "dump-parquet": ("dump-segment", "{dir}/orders-0", "--format", "parquet", "--to", "{to}"),
    "dump-index": ("dump-segment", FILES.partition(",")[2], "--format", "ndjson"),
    "dump-checkpoint": ("dump-segment", "{dir}/replication-offset-checkpoint"),
    "lookup-offset": ("lookup-offset", "{dir}/orders-0", "17", "--format", "ndjson"),
    "lookup-time": ("lookup-offset", "{dir}/orders-0", "--timestamp", "1700000000000",
                    "--format", "ndjson"),
    "lookup-latest": ("lookup-offset", "{dir}/orders-0", "--special", "latest", "--explain"),
    "verify-quick": ("verify", "{dir}", "--level", "quick", "--format", "ndjson"),
    "verify": ("verify", "{dir}", "--format", "ndjson"),
    "verify-deep": ("verify", "{dir}", "--level", "deep", "--format", "ndjson"),
    "verify-prometheus": ("verify", "{dir}", "--format", "prometheus"),
    "kafka-dump-log": ("kafka-dump-log", "--print-data-log", "--files", FILES),
    "simulate-retention": ("simulate-retention", "{dir}", "--config", "retention.ms=1",
                           "--now", "0", "--format", "ndjson"),
    "simulate-roll": ("simulate-roll", "{dir}/orders-0", "--config", "segment.bytes=1000",
                      "--format", "ndjson"),
    "apply-retention": ("apply-retention", "{dir}", "--config", "retention.ms=1", "--now", "0",
                        "--format", "ndjson"),
    "audit-compaction": ("audit-compaction", "{dir}/orders-0", "--cleaner-offset", "20",
                         "--now", "0", "--format", "ndjson"),
    "compact": ("compact", "{dir}", *COMPACTED, "--format", "ndjson"),
    "recover": ("recover", "{dir}", "--now", "0", "--format", "ndjson"),
    "recover-start": ("recover", "{dir}", "--from", "start", "--now", "0", "--format", "ndjson"),
    "rebuild-index": ("rebuild-index", "{dir}", "--now", "0", "--format", "ndjson"),
    "profile": ("profile", "{dir}", "--engine", "local", "--format", "ndjson"),
    "salvage-plan": ("salvage", "{dir}", "--to", "{to}", "--dry-run", "--format", "ndjson"),
    "salvage": ("salvage", "{dir}", "--to", "{to}", "--format", "ndjson"),
    "compact-to": ("compact", "{dir}", *COMPACTED, "--to", "{to}", "--format", "ndjson"),
    "count": ("sql", "select count(*) n from records", "{dir}", "--format", "ndjson"),
    "du": ("du", "{dir}", "--format", "ndjson"),
    "du-forecast": ("du", "{dir}", "--forecast", "--now", "0", "--disk-size", "1G"),
    "find": ("find", "{dir}", "--value-regex", ".", "--format", "ndjson"),
    "diff": ("diff", "{dir}/orders-0", "{dir}/orders-1", "--all", "--format", "ndjson"),
    "sql": ("sql", "select * from records order by all", "{dir}", "--format", "ndjson"),
    "groups": ("groups", "{broker}", "--format", "ndjson"),
    "transactions": ("transactions", "{broker}", "--now", "0", "--format", "ndjson"),
    "metadata": ("metadata", "{broker}", "--format", "ndjson"),
    "simulate-broker": ("simulate-retention", "{broker}", "--now", "0", "--format", "ndjson"),
    "verify-broker": ("verify", "{broker}", "--format", "ndjson"),
    "report": ("report", "{broker}", "--now", "0", "--to", "{to}"),
    "anatomy": ("anatomy", "{dir}/orders-0", "--format", "ndjson"),
    "explain": ("explain", "bytes-unreadable"),
    "export": ("export", "{dir}", "--to", "{to}", "--file-format", "ndjson", "--engine", "local",
               "--format", "ndjson"),
    "export-parquet": ("export", "{dir}", "--to", "{to}", "--engine", "local",
                       "--format", "ndjson"),
    "export-append": ("export", "{dir}", "--to", "{to}", "--engine", "local", "--append",
                      "--format", "ndjson"),
    "replay": ("replay", "{dir}", "--dry-run", "--format", "ndjson"),
    "where": ("where", "{broker}", "--group", "billing", "--format", "ndjson"),
    "resurrect-plan": (*RESURRECT, "--to", "{to}", "--dry-run"),
    "resurrect": (*RESURRECT, "--to", "{to}"),
    "undo-list": ("undo", "--list", "{backup}", "--format", "ndjson"),
}  # fmt: skip
"""Those that change nothing but `{to}`."""
WRITERS: dict[str, tuple[str, ...]] = {
    "recover-in-place": ("recover", "{dir}", "--from", "start", "--force", *IN_PLACE),
    "rebuild-in-place": ("rebuild-index", "{dir}", *IN_PLACE),
    "apply-retention-in-place": ("apply-retention", "{dir}", "--config", "retention.bytes=1",
                                 *IN_PLACE),
    "compact-in-place": ("compact", "{dir}", *COMPACTED, *IN_PLACE[:2], "--format", "ndjson"),
    "undo": ("undo", "{backup}", "--in-place", "--yes", "--format", "ndjson"),
}  # fmt: skip
"""Those that change `{dir}`; of `resurrect --in-place` see `tests/crash/test_in_place.py`."""
OF_THE_RUN = re.compile(
    rb'"(?:start|end)TimeUtc":"[^"]*"|_duration_seconds \S+|_run_timestamp_seconds \S+'
    rb"|directory\.id=\S+|#\w{3} \w{3} \d\d [\d:]{8} UTC \d{4}"
)
"""When a run was, and how long it took."""


def repeatable(patch: pytest.MonkeyPatch) -> None:
    """Make a run give the same ids and times as the one before."""
    ids = random.Random(0)
    patch.setattr(time, "time_ns", lambda: NOW_NS)
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
