"""Command lines of all commands, for proofs that hold for each of them."""

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
import uuid
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from kafkalog.wire.server.run import Server
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.wire.server.model import Address
    from tests.conftest import Result

NOW_NS = 1_800_000_000 * 10**9

LOG = "{dir}/orders-0/00000000000000000000.log"
FILES = f"{LOG},{{dir}}/orders-0/00000000000000000000.index"
COMPACTED = ("--config", "cleanup.policy=compact", "--high-watermark", "end", "--now", "0")
FRESH_ID = "N" * 21 + "A"
IN_PLACE = ("--apply", "--yes", "--now", "0", "--format", "ndjson")
APPEND = ("export", "{dir}", "--append", "--format", "ndjson")
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
    "dump-committed": ("dump-segment", "{dir}/orders-0", "--isolation", "read_committed",
                       "--format", "ndjson"),
    "dump-parquet": ("dump-segment", "{dir}/orders-0", "--to", "{to}.parquet"),
    "dump-index": ("dump-segment", FILES.partition(",")[2], "--format", "ndjson"),
    "dump-checkpoint": ("dump-segment", "{dir}/replication-offset-checkpoint"),
    "lookup-offset": ("lookup-offset", "{dir}/orders-0", "17", "--format", "ndjson"),
    "lookup-time": ("lookup-offset", "{dir}/orders-0", "--timestamp", "1700000000000",
                    "--format", "ndjson"),
    "lookup-latest": ("lookup-offset", "{dir}/orders-0", "--special", "latest", "--steps"),
    "verify-quick": ("verify", "{dir}", "--level", "quick", "--format", "ndjson"),
    "verify": ("verify", "{dir}", "--format", "ndjson"),
    "verify-deep": ("verify", "{dir}", "--level", "deep", "--format", "ndjson"),
    "verify-prometheus": ("verify", "{dir}", "--format", "prometheus"),
    "kafka-dump-log": ("kafka-dump-log", "--print-data-log", "--files", FILES),
    "retention": ("retention", "{dir}", "--config", "retention.ms=1", "--now", "0",
                  "--format", "ndjson"),
    "simulate-roll": ("simulate-roll", "{dir}/orders-0", "--config", "segment.bytes=1000",
                      "--format", "ndjson"),
    "audit-compaction": ("verify", "--compaction", "{dir}/orders-0", "--cleaner-offset", "20",
                         "--now", "0", "--format", "ndjson"),
    "compact": ("compact", "{dir}", *COMPACTED, "--format", "ndjson"),
    "recover": ("recover", "{dir}", "--now", "0", "--format", "ndjson"),
    "recover-start": ("recover", "{dir}", "--scan", "start", "--now", "0", "--format", "ndjson"),
    "rebuild-index": ("rebuild-index", "{dir}", "--now", "0", "--format", "ndjson"),
    "profile": ("profile", "{dir}", "--format", "ndjson"),
    "salvage-plan": ("salvage", "{dir}", "--format", "ndjson"),
    "salvage": ("salvage", "{dir}", "--to", "{to}", "--format", "ndjson"),
    "salvage-copies": ("salvage", "{copies}/1", "{copies}/2", "--to", "{to}",
                       "--format", "ndjson"),
    "compact-to": ("compact", "{dir}", *COMPACTED, "--to", "{to}", "--format", "ndjson"),
    "count": ("sql", "-c", "select count(*) n from records", "{dir}", "--format", "ndjson"),
    "quorum": ("quorum", "{broker}", "--format", "ndjson"),
    "du": ("du", "{dir}", "--format", "ndjson"),
    "du-forecast": ("du", "{dir}", "--forecast", "--now", "0", "--disk-size", "1G"),
    "find": ("find", "{dir}", "--value-regex", ".", "--format", "ndjson"),
    "diff": ("diff", "{dir}/orders-0", "{dir}/orders-1", "--all", "--format", "ndjson"),
    "sql": ("sql", "-c", "select * from records order by all", "{dir}", "--format", "ndjson"),
    "groups": ("groups", "{broker}", "--format", "ndjson"),
    "groups-at": ("groups", "{broker}", "--at", "2023-11-14T22:13:20Z", "--format", "ndjson"),
    "transactions": ("transactions", "{broker}", "--now", "0", "--format", "ndjson"),
    "metadata": ("metadata", "{broker}", "--format", "ndjson"),
    "metadata-at": ("metadata", "{broker}", "--at", "0@20", "--format", "ndjson"),
    "simulate-broker": ("retention", "{broker}", "--now", "0", "--format", "ndjson"),
    "verify-broker": ("verify", "{broker}", "--format", "ndjson"),
    "report": ("report", "{broker}", "--now", "0", "--to", "{to}"),
    "anatomy": ("anatomy", "{dir}/orders-0", "--format", "ndjson"),
    "explain": ("explain", "bytes-unreadable"),
    "export": ("export", "{dir}", "--to", "{to}", "--file-format", "ndjson",
               "--format", "ndjson"),
    "export-parquet": ("export", "{dir}", "--to", "{to}",
                       "--format", "ndjson"),
    "export-append": (*APPEND, "--to", "{to}"),
    "export-delta": (*APPEND, "--to", "{to}", "--as", "delta"),
    "export-iceberg": (*APPEND, "--to", "a.kafka.log", "--as", "iceberg",
                       "--set", "warehouse={to}"),
    "export-best": ("export", "{copies}/1", "{copies}/2", "--to", "{to}",
                    "--format", "ndjson"),
    "replay": ("replay", "{dir}", "--dry-run", "--format", "ndjson"),
    "groups-of": ("groups", "{broker}", "--group", "billing", "--format", "ndjson"),
    "resurrect-plan": RESURRECT,
    "resurrect": (*RESURRECT, "--to", "{to}"),
    "undo-list": ("undo", "--list", "{backup}", "--format", "ndjson"),
    "serve": ("serve", "{dir}", "--listen", "127.0.0.1:0", "--quiet"),
}  # fmt: skip
"""Those that change nothing but `{to}`."""
WRITERS: dict[str, tuple[str, ...]] = {
    "recover-in-place": ("recover", "{dir}", "--scan", "start", "--allow-loss", *IN_PLACE),
    "rebuild-in-place": ("rebuild-index", "{dir}", *IN_PLACE),
    "retention-in-place": ("retention", "{dir}", "--config", "retention.bytes=1", *IN_PLACE),
    "compact-in-place": ("compact", "{dir}", *COMPACTED, *IN_PLACE[:2], "--format", "ndjson"),
    "compact-with-backup": ("compact", "{dir}", *COMPACTED, *IN_PLACE[:2], "--backup", "{to}",
                            "--format", "ndjson"),
    "resurrect-in-place": ("resurrect", "{dir}", *IN_PLACE[:2], "--backup", "{to}",
                           "--cluster-id", FRESH_ID, "--format", "ndjson"),
    "undo": ("undo", "{backup}", "--apply", "--yes", "--format", "ndjson"),
    "undo-resurrect": ("undo", "{backup}", "--apply", "--yes", "--format", "ndjson"),
    "export-append-more": (*APPEND, "--to", "{to}"),
}  # fmt: skip
"""Those that change `{dir}`, or what is in `{to}` already."""
OF_THE_RUN = re.compile(
    rb'"(?:start|end)TimeUtc":"[^"]*"|_duration_seconds \S+|_run_timestamp_seconds \S+'
    rb"|(?<=commit\d{8}-)[0-9a-f]{8}|directory\.id=\S+|bootstrap\.servers=\S+"
    rb'|"left_over_removed":\w+'
    rb"|#\w{3} \w{3} \d\d [\d:]{8} UTC \d{4}"
)
"""When a run was, and how long it took."""


def repeatable(patch: pytest.MonkeyPatch) -> None:
    """Make a run give the same ids and times as the one before."""
    ids = random.Random(0)
    patch.setattr(time, "time_ns", lambda: NOW_NS)
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))


def lines_of(done: Result) -> set[bytes]:
    """Return the lines without what depends on those around: widths, and brackets of an array."""
    lines = OF_THE_RUN.sub(b"", done.stdout).splitlines()
    return {b" ".join(line.strip(b"[],").split()) for line in lines} - {b""}


TRIES = 3
"""How often a client asks again after an error."""


def ran(kafkalog: Callable[..., Result], words: Sequence[str]) -> Result:
    """Run a command line; of a server, the output is what a client fetches before it ends it."""
    if words[0] != "serve":
        return kafkalog(*words)
    started: SimpleQueue[tuple[Server, asyncio.AbstractEventLoop] | None] = SimpleQueue()
    start = Server.start
    found: list[str] = []

    async def starting(server: Server) -> None:
        await start(server)
        started.put((server, asyncio.get_running_loop()))

    def consume() -> None:
        if (running := started.get()) is None:
            return
        server, loop = running
        try:
            found.extend(fetched(server.address))
        finally:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(server.stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "start", starting)
        client = Thread(target=consume)
        client.start()
        done = kafkalog(*words)
        started.put(None)
        client.join()
    lines = "".join(f"{line}\n" for line in found)
    return type(done)(done.status, done.stdout + lines.encode(), done.stderr)


def fetched(address: Address) -> Iterator[str]:
    """Yield a line for each batch that a client gets, up to an error that stays."""
    with suppress(ConnectionResetError), Wire(address) as wire:
        topics = wire.tell("Metadata", 9, topics=None)["topics"]
        for topic in sorted(topics, key=lambda one: str(one["name"])):
            for number in sorted(one["partitionIndex"] for one in topic["partitions"]):
                yield from _batches(wire, topic["name"], number)


def _batches(wire: Wire, topic: str, partition: int) -> Iterator[str]:
    offset, failures = 0, 0
    while failures < TRIES:
        got = _fetch(wire, topic, partition, offset)
        data = got["records"] or b""
        if not got["errorCode"] and not data and offset >= got["highWatermark"]:
            return
        failures = 0 if data else failures + 1
        while data:
            base, length = struct.unpack_from(">qi", data)
            batch, data = data[: 12 + length], data[12 + length :]
            if len(batch) < 12 + length:
                break
            offset = base + struct.unpack_from(">i", batch, 23)[0] + 1
            yield f"{topic}-{partition} {base} {crc32(batch)}"


def _fetch(wire: Wire, topic: str, partition: int, offset: int) -> dict[str, Any]:
    wanted = {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [wanted]}]
    answer = wire.tell("Fetch", 12, maxBytes=1 << 20, sessionEpoch=-1, topics=topics)
    [[got]] = [one["partitions"] for one in answer["responses"]]
    return got  # type: ignore[no-any-return]
