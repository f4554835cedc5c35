"""What the parts of the server share: options, clients, APIs, and bytes of files in a response."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.errors import Listener

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from formats.message_table import Message
    from kafkalog.errors import Event
    from kafkalog.io.paths.source import Source

NODE_ID: Final = 0
"""The only broker there is."""
NO_ID: Final = "A" * 22
"""`Uuid.ZERO_UUID`."""

Fields = dict[str, Any]
"""A request, a response or a part of one, by the names of `formats/requests.txt`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A response whose first bytes are on their way.

    Attributes:
        left: the parts that are not.
        size: bytes of the whole.
    """

    left: Sequence[Any]
    size: int


Answer = Fields | Begun | None
"""A response; None ends the connection without one."""

Handler = Callable[[Fields, int, "Client"], Awaitable[Answer]]
"""Answers a request of a version."""


class Address(NamedTuple):
    """Where to listen, or what clients connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the form of `bootstrap.servers`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


CONNECTIONS_MAX: Final = 256
"""Enough for an executor of Spark's Kafka source, which keeps 64 consumers."""
LISTEN: Final = Address("127.0.0.1", 9092)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class OnDamage(StrEnum):
    """What a consumer gets where a batch is damaged: an error, or the next sound batch."""

    STOP = "stop"
    SKIP = "skip"


class Watermark(StrEnum):
    """Where consumers stop: at the high watermark that the broker noted, or at the log end."""

    CHECKPOINT = "checkpoint"
    END = "end"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve.

    Attributes:
        listen: where to listen; port 0 takes a free one.
        advertise: the address for clients to connect to; None for the address they listen on.
        topics: only these topics, which may be internal; None for all.
        internal: whether internal topics are served, too.
        leftovers: whether directories are served that await their deletion or are stray.
        high_watermark: where consumers stop.
        on_damage: what a consumer gets where a batch is damaged.
        follow: whether the files may grow, and fetches wait for more.
        once: whether to end when some client has fetched every partition to its end.
        rate: bytes per second for all clients together; None for no limit.
        max_connections: one more closes a silent one, or is closed at once.
        groups_file: where committed offsets outlive the server; None for memory only.
        read_only_groups: whether commits are refused.
        tls: files with the certificate and its key; None for no TLS.
        sasl_file: file with the users that are let in; None for everybody.
        metrics: where Prometheus finds metrics; None for none.
        by_kernel: whether the kernel may send bytes of files (`sendfile`), where it can; else they
            pass through the memory of the process.
    """

    listen: Address = LISTEN
    advertise: Address | None = None
    topics: Collection[str] | None = None
    internal: bool = False
    leftovers: bool = False
    high_watermark: Watermark = Watermark.CHECKPOINT
    on_damage: OnDamage = OnDamage.STOP
    follow: bool = False
    once: bool = False
    rate: int | None = None
    max_connections: int = CONNECTIONS_MAX
    groups_file: str | None = None
    read_only_groups: bool = False
    tls: tuple[str, str] | None = None
    sasl_file: str | None = None
    metrics: Address | None = None
    by_kernel: bool = True

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines may connect, and nothing protects what is served."""
        is_protected = self.tls is not None or self.sasl_file is not None
        return not is_protected and not is_loopback(self.listen.host)


class ServeListener(Listener):
    """Hears what a server reports; subclasses override what they need."""

    def hear(self, event: Event) -> None:
        """Handle an event: one path or partition that fails, damage once per place, a note."""

    def started(self, address: Address) -> None:
        """Handle the start: clients can connect to this address."""

    def connected(self, client: Client) -> None:
        """Handle a client that has said who it is."""


class Commit(NamedTuple):
    """A committed offset, as clients see it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Committed(NamedTuple):
    """What one request commits for a group: topic, partition and offset of each."""

    group: str
    time_ms: int
    offsets: Sequence[tuple[str, int, Commit]]


def nothing() -> None:
    """Do nothing."""


def as_it_is(response: Fields) -> Fields | Begun:
    """Return a response that is sent later."""
    return response


@dataclass
class Client:
    """One connection.

    Attributes:
        client_id: what it calls itself, as of its last request.
        software: name and version of its library, if it sent them.
        principal: the user who authenticated; `ANONYMOUS` without SASL.
        state: what other parts of the server keep about the connection, by their names.
        forget_request: called by a handler that waits and needs the request no more.
        begin: may be called by a handler, in any thread, with the response that it is about to
            return: begins to send it, and returns what to return instead.
    """

    host: str
    port: int
    client_id: str | None = None
    software: str = ""
    principal: str = "ANONYMOUS"
    state: dict[str, Any] = field(default_factory=dict)
    forget_request: Callable[[], None] = nothing
    begin: Callable[[Fields], Fields | Begun] = as_it_is


@dataclass(frozen=True)
class Api:
    """An API that the server knows.

    Attributes:
        name: as in `formats/requests.txt`, e.g. `Fetch`.
        handler: what answers its requests.
    """

    name: str
    handler: Handler

    @property
    def key(self) -> int:
        key = self._message.api_key
        assert key is not None, "each request has one"
        return key

    @property
    def request(self) -> str:
        return f"{self.name}Request"

    @property
    def response(self) -> str:
        return f"{self.name}Response"

    @property
    def versions(self) -> range:
        return self._message.versions

    @cached_property
    def _message(self) -> Message:
        from formats.message_schema import message  # the command's help needs no schemas

        return message(self.request)

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has tagged fields, and so has its header."""
        return version in self._message.flexible_versions


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file, sent as they lie there; the value of a `records` field.

    Attributes:
        source: the open file.
        owner: what keeps the file open as long as this lives.
        held: the bytes, if they were in memory anyway.
    """

    source: Source
    position: int
    size: int
    owner: object
    held: bytes | None = None

    def __len__(self) -> int:
        return self.size
