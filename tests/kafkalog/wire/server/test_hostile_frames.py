"""A served log directory with hostile clients, and on a read-only disk.

The server runs in its own process, as users run it. Every batch of frames ends with a good client
that must receive the bytes of the log.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka as librdkafka
import pytest

from formats.error_codes import ErrorCode
from formats.message_codec import encode
from formats.message_table import requests
from kafkalog.wire.server.connection import REQUEST_SIZE_MAX
from kafkalog.wire.server.model import Address
from tests.builders import copy_tree
from tests.checkout import ROOT
from tests.kafkalog.wire.server.protocol import SECONDS_MAX
from tests.kafkalog.wire.server.wire import Wire
from tests.kafkalog_cli.test_reading_never_writes import (
    CALLS,
    changing_calls,
    is_elsewhere,
    pictures,
    read_only,
    refuses_to_write,
    where_strace_is,
)
from tests.sampling import tries_everything
from tests.soak.mutations import mutated, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from formats.message_table import Field, Message, Struct

EXAMPLE = ROOT / "examples" / "log-dir"
TOPICS = ("orders", "customers", "payments")
FRAMES = 100_000 if tries_everything() else 500
BATCH = 500
SEED = 20_260_101
MEMORY_MAX = 400 << 20
"""What the process may take at its peak: itself, large requests, groups, and their answers."""
TOGETHER = 64
"""Connections of a fuzzer whose answers it still waits for."""
PATIENCE_SECONDS = 0.2
"""Where nothing comes for so long, a fuzzer goes away: members of groups are answered later."""
SILENT = 20
BOMBS = (
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 6,
    b"\x80\x80\x80\x80\x80\x01", b"\x7f\xff", b"\x80\x00\x00\x00", b"\x00\x03\x0d\x41",
)  # fmt: skip
"""Counts and sizes that are too large or negative, and varints that do not end."""


@dataclass
class Served:
    """A server process; `errors` is the file that receives its stderr."""

    process: subprocess.Popen[str]
    address: Address
    errors: Path

    def peak(self) -> int:
        """Return the peak memory of the process in bytes, as reported by Linux."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10

    def is_sound(self) -> None:
        """Check that the process is alive, answers correctly, and has logged no complaint."""
        assert self.process.poll() is None, self.errors.read_text()
        with Wire(self.address) as client:
            versions = client.tell("ApiVersions", 3)
            assert versions["errorCode"] == ErrorCode.NONE
            assert len(versions["apiKeys"]) >= 27
            found = client.tell("Metadata", 9, topics=None)
            assert {one["name"] for one in found["topics"]} == {*TOPICS}
            wanted = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
            answer = client.tell("Fetch", 12, maxBytes=1 << 20, sessionEpoch=-1, topics=[
                {"topic": "orders", "partitions": [wanted]},
            ])  # fmt: skip
            [[got]] = [one["partitions"] for one in answer["responses"]]
            assert got["errorCode"] == ErrorCode.NONE
            first = min((EXAMPLE / "orders-0").glob("*.log")).read_bytes()
            assert got["records"][: len(first)] == first
        complaints = self.errors.read_text(errors="replace")
        for word in ("Traceback", "internal error", "Task exception", "never retrieved"):
            assert word not in complaints, complaints[-5000:]
        if sys.platform == "linux":
            assert self.peak() < MEMORY_MAX


@contextlib.contextmanager
def served(
    tree: Path, place: Path, *options: str, prefix: Iterable[str] = (), status: int = 0,
    before: str = "",
) -> Iterator[Served]:  # fmt: skip
    """Serve a tree in a process until the block ends, optionally through another program."""
    errors = place / "stderr"
    script = f"{before}\nimport sys; from kafkalog_cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-B", "-c", script, "--debug", "serve", "--listen", "127.0.0.1:0",
               "--quiet", *options, str(tree)]  # fmt: skip
    with (
        errors.open("w") as stderr,
        subprocess.Popen([*prefix, *command], stdout=subprocess.PIPE, stderr=stderr, text=True)
        as process,
    ):  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"bootstrap\.servers=(.*):(\d+)\n", line)
            assert match is not None, line + errors.read_text()
            yield Served(process, Address(match[1], int(match[2])), errors)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == status, errors.read_text()
        finally:
            process.kill()


# Frames


def apis() -> list[tuple[Message, int]]:
    """Return every supported request in each of its versions."""
    keys = {one.name: one for one in requests().values() if one.part == "request"}
    return [(one, version) for one in keys.values() for version in one.versions]


def value(field: Field, version: int, rng: random.Random) -> Any:
    """Return a valid value for the field."""
    if field.nullable and rng.random() < 0.15:
        return None
    if field.array:
        return [element(field, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return element(field, version, rng)


def element(field: Field, version: int, rng: random.Random) -> Any:
    if field.struct is not None:
        return values(field.struct, version, rng)
    if field.type == "str":
        return rng.choice((*TOPICS, "group", "member", "consumer", "range", "", "é" * 99, "0"))
    if field.type in ("bytes", "records"):
        return rng.randbytes(rng.randrange(40))
    if field.type == "bool":
        return rng.random() < 0.5
    if field.type == "f64":
        return rng.random()
    if field.type == "uuid":
        return rng.choice(("A" * 22, "AAAAAAAAAAAAAAAAAAAAAQ"))
    if field.name == "maxWaitMs":  # else the server waits as long as it is told to
        return rng.choice((0, 1, -1, 20))
    if field.name == "sessionTimeoutMs":
        return rng.choice((6_000, number(rng, 32)))
    if field.type == "u16":
        return rng.randrange(1 << 16)
    return number(rng, int(field.type[1:])) if rng.random() < 0.5 else rng.randrange(3)


def values(struct_: Struct, version: int, rng: random.Random) -> dict[str, Any]:
    return {one.name: value(one, version, rng) for one in struct_.fields_of(version)}


def good(message: Message, version: int, rng: random.Random) -> bytes:
    """Return a well-formed request without its size."""
    head = struct.pack(">hhih", message.api_key, version, 1, 6) + b"fuzzer"
    head += b"\0" * (version in message.flexible_versions)
    return head + b"".join(encode(message.name, version, values(message.struct, version, rng)))


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def hostile(message: Message, version: int, rng: random.Random) -> bytes:
    """Return the bytes that a hostile client sends on one connection, derived from a request."""
    request = good(message, version, rng)
    at = rng.randrange(len(request) + 1)
    match rng.randrange(9):
        case 0:
            return rng.randbytes(rng.randrange(200))
        case 1:
            return framed(request[:8] + rng.randbytes(rng.randrange(120)))
        case 2:
            return framed(request)[: at + 3]
        case 3:
            size = rng.choice((-1, 0, 7, len(request) - 1, len(request) + 9, REQUEST_SIZE_MAX,
                               REQUEST_SIZE_MAX + 1, 2**31 - 1, -(2**31)))  # fmt: skip
            return struct.pack(">i", size) + request
        case 4:
            bomb = rng.choice(BOMBS)
            return framed(request[:at] + bomb + request[at + len(bomb) :])
        case 5:
            return framed(request[:at])
        case 6:
            return framed(request)
        case _:
            return framed(mutated(request, rng, good(message, version, rng)))


def large(rng: random.Random) -> bytes:
    """Return a request of up to the maximum size that claims very many elements."""
    count = rng.choice((150_000, 190_000, 2_000_000, 2**31 - 1))
    head = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", count)
    return framed(head + bytes(rng.choice((1 << 18, 1 << 20, REQUEST_SIZE_MAX - len(head)))))


class Fuzzer:
    """Sends on many connections in turn and reads whatever comes back."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._open: list[socket.socket] = []
        self.answered = 0

    def send(self, data: bytes) -> None:
        """Send bytes on a new connection."""
        while len(self._open) >= TOGETHER:
            self.read()
        connection = socket.create_connection(self._address, timeout=SECONDS_MAX)
        self._open.append(connection)
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

    def read(self) -> None:
        """Read what has arrived; close ended connections, or all of them if nothing arrives."""
        ready, _, _ = select.select(self._open, (), (), PATIENCE_SECONDS)
        for connection in ready or [*self._open]:
            with contextlib.suppress(ConnectionError):
                if ready and connection.recv(1 << 16):
                    self.answered += 1
                    continue
            self._open.remove(connection)
            connection.close()

    def finish(self) -> None:
        """Read the remaining responses."""
        while self._open:
            self.read()


def test_hostile_frames_cost_their_connections_only(tmp_path: Path):
    """All APIs in all versions; after each batch a good client still gets the bytes of the log."""
    rng = random.Random(SEED)
    table = apis()
    sent = Counter[str]()
    with served(EXAMPLE, tmp_path, "--max-connections", "400") as server:
        server.is_sound()
        fuzzer = Fuzzer(server.address)
        for first in range(0, FRAMES, BATCH):
            with contextlib.ExitStack() as stack:
                for _ in range(SILENT):  # half a request, then nothing while others are served
                    silent = socket.create_connection(server.address, timeout=SECONDS_MAX)
                    stack.enter_context(silent)
                    request = framed(good(*rng.choice(table), rng))
                    silent.sendall(request[: rng.randrange(len(request))])
                for index in range(first, first + BATCH - SILENT - 1):
                    message, version = table[index % len(table)]
                    fuzzer.send(hostile(message, version, rng))
                    sent[message.name] += 1
                fuzzer.send(large(rng))
                fuzzer.finish()
                server.is_sound()
        print(f"{FRAMES} frames, {fuzzer.answered} answers")
        assert sent.keys() == {message.name for message, _ in table}
        assert fuzzer.answered > FRAMES / 100, "no frame got as far as an answer"


def test_clients_that_have_gone_keep_no_places(tmp_path: Path):
    """Each requested data that never arrives, and left without waiting for the answer."""
    last = {"partition": 0, "fetchOffset": 1000, "partitionMaxBytes": 1 << 20}
    endless = "from kafkalog.wire.server import fetch; fetch._WAIT_SECONDS_MAX = 1 << 30"
    with served(EXAMPLE, tmp_path, "--max-connections", "2", before=endless) as server:
        for _ in range(2):
            with Wire(server.address) as client:
                client.request(
                    "Fetch", 12, maxWaitMs=1 << 30, minBytes=1, maxBytes=1 << 20, sessionEpoch=-1,
                    topics=[{"topic": "orders", "partitions": [last]}],
                )  # fmt: skip
        eventually_sound(server)


def eventually_sound(server: Served) -> None:
    """Check the server once it has noticed that other clients are gone."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            server.is_sound()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


# What is served is only read


def stored(root: Path) -> Counter[str]:
    """Return the number of records of each topic, from the batch headers."""
    found = Counter[str]()
    for path in root.rglob("*.log"):
        topic = path.parent.name.rpartition("-")[0]
        data, position = path.read_bytes(), 0
        while topic in TOPICS and position < len(data):
            is_control = data[position + 22] & 0x20
            found[topic] += 0 if is_control else struct.unpack_from(">i", data, position + 57)[0]
            position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return found


def consumed(address: Address) -> Counter[str]:
    """Return the number of records that a client receives from each topic."""
    consumer = librdkafka.Consumer({
        "bootstrap.servers": str(address), "group.id": "reader", "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted", "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    found, ended = Counter[str](), set[str]()
    consumer.assign([librdkafka.TopicPartition(topic, 0, 0) for topic in TOPICS])
    deadline = time.monotonic() + SECONDS_MAX
    while ended != {*TOPICS}:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found[message.topic() or ""] += 1
            else:
                assert error.code() == librdkafka.KafkaError._PARTITION_EOF
                ended.add(message.topic() or "")
    consumer.close()
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a copy of the example."""
    return copy_tree(EXAMPLE, tmp_path / "data")


def test_serving_opens_nothing_for_writing(tree: Path, tmp_path: Path):
    """Checked by system calls, where strace is installed, and by the files on disk."""
    log = tmp_path / "strace.log"
    strace = where_strace_is()
    prefix = [] if strace is None else [
        strace, "-D", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(log),
    ]  # fmt: skip
    before = pictures(tree)
    with served(tree, tmp_path, prefix=prefix) as server:
        assert consumed(server.address) == stored(tree)
        pid = server.process.pid
    assert pictures(tree) == before
    if strace is None:
        return
    deadline = time.monotonic() + SECONDS_MAX
    while f"{pid} +++ exited" not in re.sub(" +", " ", log.read_text(errors="replace")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lines = log.read_text(errors="replace").splitlines()
    assert any(f"{tree}/orders-0" in line and "O_RDONLY" in line for line in lines)
    assert [call for call in changing_calls(lines) if not is_elsewhere(call, tree)] == []


@pytest.mark.parametrize("kind", ["mount", "modes"])
def test_a_tree_without_write_permission_is_served(tree: Path, tmp_path: Path, kind: str):
    """Uses a read-only mount if possible, else file modes, with root's privilege dropped."""
    wanted = stored(tree)
    prefix: list[str] = []
    if kind == "mount":
        _, prefix = read_only(tree)
    else:
        for path in [tree, *tree.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        if os.geteuid() == 0:
            prefix = ["setpriv", "--bounding-set=-dac_override"]
    try:
        assert refuses_to_write(tree, prefix) or (kind == "mount" and not prefix)
        before = pictures(tree)
        with served(tree, tmp_path, prefix=prefix) as server:
            assert consumed(server.address) == wanted
        assert pictures(tree) == before
    finally:
        for path in [tree, *tree.rglob("*")]:
            path.chmod(0o755)
