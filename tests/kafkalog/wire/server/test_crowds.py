"""More clients than there is room for, and clients that only pretend: the others are answered.

What a client announces costs nothing, sockets count from the moment they are accepted, and a server
without descriptors says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.wire.server import connection, fetch
from kafkalog.wire.server.connection import REQUEST_SIZE_MAX
from kafkalog.wire.server.model import CONNECTIONS_MAX
from kafkalog.wire.server.room import Arrivals
from tests.kafkalog.wire.server.certificates import write_certificate
from tests.kafkalog.wire.server.protocol import SECONDS_MAX, Connected, serving
from tests.kafkalog.wire.server.test_hostile_frames import EXAMPLE, Served, eventually_sound, served
from tests.kafkalog.wire.server.wire import Wire
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.wire.server.model import Address

SOCKETS = 2_000
FILES = 512
WHOLE = struct.pack(">i", REQUEST_SIZE_MAX)
"""A request that takes all the room, announced."""
LARGE = [{"topicId": "A" * 22, "name": f"topic-{number}"} for number in range(2_000)]
"""Topics for a request that needs room."""
USER = "alice", "secret"


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """A limit of open files that lets a test open all its sockets."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS + FILES
    if limits[1] != resource.RLIM_INFINITY and limits[1] < wanted:
        pytest.skip(f"no more than {limits[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], wanted), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def opened(address: Address, count: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    return [
        stack.enter_context(socket.create_connection(address, SECONDS_MAX)) for _ in range(count)
    ]


def is_open(one: socket.socket) -> bool:
    """Return whether the server has left a connection open on which it says nothing."""
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def ask_much(client: Wire) -> None:
    """Ask for something that needs room, and get it."""
    assert len(client.tell("Metadata", 9, topics=LARGE)["topics"]) == len(LARGE)


@pytest.mark.parametrize("sent", [
    WHOLE, WHOLE[:1], WHOLE + b"\0" * 100, WHOLE + b"\0" * 100_000, struct.pack(">i", 512 << 10),
])  # fmt: skip
def test_an_announced_request_takes_no_room(sent: bytes) -> None:
    """Others are answered before the one that announced it goes on or is closed."""
    with serving(EXAMPLE) as running, contextlib.ExitStack() as stack:
        idle = opened(running.address, 20, stack)
        for one in idle:
            one.sendall(sent)
        with Wire(running.address) as client:
            ask_much(client)
        assert all(map(is_open, idle))


def test_no_answer_waits_for_the_last_one_to_be_acknowledged() -> None:
    """Nagle's algorithm would hold the end of each answer back for 40 ms."""
    with serving(EXAMPLE) as running, Wire(running.address) as client:
        client.tell("ApiVersions", 3)
        [visit] = running.server._door._visits
        assert visit.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def logged_in(address: Address) -> Wire:
    client = Wire(address)
    client.tell("SaslHandshake", 1, mechanism="PLAIN")
    token = "\0".join(("", *USER)).encode()
    assert client.tell("SaslAuthenticate", 2, authBytes=token)["errorCode"] == 0
    return client


def test_strangers_share_a_part_of_the_room(tmp_path: Path) -> None:
    """Also where they send what they announce, all but the last byte."""
    users = tmp_path / "users"
    users.write_text("=".join(USER))
    almost = struct.pack(">i", 512 << 10) + bytes((512 << 10) - 1)
    with (
        serving(EXAMPLE, sasl_file=str(users)) as running,
        contextlib.ExitStack() as stack,
        logged_in(running.address) as before,
    ):
        strangers = opened(running.address, 50, stack)
        for one in strangers:
            with contextlib.suppress(ConnectionError):
                one.sendall(almost)
        ask_much(before)
        with logged_in(running.address) as after:
            ask_much(after)
        # 2 MiB are theirs. Which ones stay depends on the order in which the server reads them.
        until(lambda: sum(map(is_open, strangers)) <= 4)
        assert any(map(is_open, strangers))


def test_the_most_silent_request_gives_way() -> None:
    """Nobody waits for bytes of others, so none can keep the others waiting."""

    async def run() -> None:
        arrivals = Arrivals(100)
        one, two, three = (asyncio.create_task(asyncio.sleep(SECONDS_MAX)) for _ in range(3))
        arrivals.hold(one, 50)
        arrivals.hold(two, 10)
        arrivals.hold(one, 60)
        arrivals.hold(three, 31)
        await asyncio.wait([two])
        assert [task.cancelled() for task in (one, two, three)] == [False, True, False]
        arrivals.release(one)
        arrivals.hold(three, 100)
        await asyncio.sleep(0)
        assert not three.cancelled()
        arrivals.hold(one, 1)
        await asyncio.wait([three])
        one.cancel()

    asyncio.run(run())


def test_a_request_that_has_begun_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first byte on: what follows is not a silence between requests."""
    monkeypatch.setattr(connection, "_REQUEST_SECONDS_MAX", 0.1)
    with serving(EXAMPLE) as running:
        for sent in (b"\0", b"\0\0\0", WHOLE, WHOLE + bytes(100_000)):
            with Connected(running.address) as client:
                client.ask("ApiVersions", 0, {})
                client.send(sent)
                assert client.receive() is None


def test_a_large_fetch_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has room that others need."""
    monkeypatch.setattr(fetch, "_WAIT_SECONDS_MAX", 1 << 30)
    wanted = [{"partition": number, "fetchOffset": 0} for number in range(100_000)]
    with serving(EXAMPLE, follow=True) as running, Wire(running.address) as waiting:
        topics = [{"topic": "none", "partitions": wanted[1:]}]
        waiting.request("Fetch", 12, maxWaitMs=1 << 30, minBytes=1 << 30, maxBytes=1 << 20,
                        sessionEpoch=-1, topics=topics)  # fmt: skip
        with Wire(running.address) as client:
            ask_much(client)


def sockets_of(server: Served) -> int:
    """Return how many sockets the server has open."""
    count = 0
    for one in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(one).startswith("socket:")
    return count


def warnings(server: Served) -> list[str]:
    found = server.errors.read_text().splitlines()
    return [line for line in found if not line.startswith("note: ")]


def limited(files: int, more: str = "") -> str:
    return (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n{more}"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sent", [b"", WHOLE])
def test_two_thousand_sockets(tmp_path: Path, sent: bytes) -> None:
    """A client that is there keeps its place, and one that comes later gets one."""
    with served(EXAMPLE, tmp_path, before=limited(FILES)) as server, Wire(server.address) as client:
        client.tell("ApiVersions", 3)
        with contextlib.ExitStack() as stack:
            for _ in range(SOCKETS // 100):
                for one in opened(server.address, 100, stack):
                    with contextlib.suppress(ConnectionError):
                        one.sendall(sent)
                ask_much(client)
            server.is_sound()
            assert sockets_of(server) < FILES // 2
        ask_much(client)
        eventually_sound(server)
    [warning] = warnings(server)
    assert f"{FILES} open files (ulimit -n) permit no more" in warning


def test_sockets_count_before_their_handshake(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    options = "--max-connections", "20", "--tls-cert", str(certificate), "--tls-key", str(key)
    with served(EXAMPLE, tmp_path, *options) as server, contextlib.ExitStack() as stack:
        before = sockets_of(server)
        crowd = opened(server.address, 200, stack)
        until(lambda: sum(map(is_open, crowd)) <= 20)
        assert sockets_of(server) - before <= 21
        assert is_open(crowd[-1]), "the last one has a place, one of the first had to go"
    [warning] = warnings(server)
    assert "silent ones are closed for more: --max-connections N permits N." in warning


def test_a_handshake_has_a_deadline(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    options = "--tls-cert", str(certificate), "--tls-key", str(key)
    before = "from kafkalog.wire.server import door; door._HANDSHAKE_SECONDS_MAX = 0.2"
    with served(EXAMPLE, tmp_path, *options, before=before) as server:
        for sent in (b"", b"\x16\x03\x01\x02"):
            with socket.create_connection(server.address, SECONDS_MAX) as one:
                one.sendall(sent)
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b""


def test_a_server_without_descriptors_says_so_once(tmp_path: Path) -> None:
    """It goes on as soon as it has some; Python would log each attempt with its stack."""
    patched = "from kafkalog.wire.server import door; door._places = lambda wanted: wanted"
    options = "--max-connections", str(SOCKETS)
    with served(EXAMPLE, tmp_path, *options, before=limited(60, patched)) as server:
        with contextlib.ExitStack() as stack:
            opened(server.address, 100, stack)
            until(lambda: "cannot be accepted" in server.errors.read_text())
        eventually_sound(server)
        with contextlib.ExitStack() as stack:
            opened(server.address, 100, stack)
            until(lambda: sockets_of(server) >= 40)
        eventually_sound(server)
    [warning] = warnings(server)
    assert "Too many open files" in warning


def test_places_are_for_clients_that_ask(tmp_path: Path) -> None:
    """Sockets that only open go first; those that were answered stay, and more are refused."""
    with served(EXAMPLE, tmp_path, "--max-connections", "30") as server:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Wire(server.address)) for _ in range(20)]
            for one in clients:
                one.tell("ApiVersions", 3)
            opened(server.address, CONNECTIONS_MAX, stack)
            for one in clients:
                one.tell("ApiVersions", 3)
            server.is_sound()
        eventually_sound(server)
