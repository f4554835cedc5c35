"""A server that speaks the part of S3 that readers need, and counts each request.

It answers after a delay and serves many requests at the same time. It makes an object only when it
is read, so that a store of hundreds of thousands of objects takes no time to fill.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from hashlib import md5
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLE"
BUCKET: Final = "logs"
_KEYS_A_PAGE: Final = 1000
MODIFIED: Final = 1_700_000_000
_UP_TO: Final = "\U0010ffff"
_GATHER_S: Final = 30.0  # then answers go out all the same, and a test sees that requests were few


@dataclass
class Faults:
    """What goes wrong at a store, by chance, but the same in each run.

    Attributes:
        busy: the share of requests that are refused with 503.
        cut: the share of answers with a body that end in the middle of it.
        dropped: the share of requests whose connection ends without an answer.
        denied: the names of objects that nobody may read, a pattern.
        chance: returns a number from 0 to 1.
    """

    busy: float = 0.0
    cut: float = 0.0
    dropped: float = 0.0
    denied: str = ""
    chance: Callable[[], float] = field(default_factory=lambda: random.Random(17).random)

    def of(self, target: str) -> str:
        """Return what goes wrong with a request: `denied`, the name of a share, or nothing."""
        if self.denied and re.search(self.denied, unquote(target.partition("?")[0])):
            return "denied"
        drawn = self.chance()
        for name, share in (("busy", self.busy), ("cut", self.cut), ("dropped", self.dropped)):
            if drawn < share:
                return name
            drawn -= share
        return ""


class CountedStore:
    """Objects of one bucket, and a log of the requests for them.

    Args:
        objects: name to content; contents can be shared.
        delay_s: how long each answer takes.

    Attributes:
        objects: as given; `changed` must be called after a change.
        modified: when objects were uploaded, in seconds, unless at the same time as all others.
        asked: each request since the last `forget`: its kind (`LIST`, `HEAD` or `GET`) and the key.
    """

    def __init__(self, objects: Mapping[str, bytes], delay_s: float = 0.0) -> None:
        self.objects = dict(objects)
        self.delay_s = delay_s
        self.modified: dict[str, int] = {}
        self.asked: list[tuple[str, str]] = []
        self.port = 0
        self.at_once = self.at_once_max = 0
        self.connections: set[asyncio.Transport] = set()
        self.faults = Faults()
        self._gathered, self._held_names = 0, ""
        self._held: list[Callable[[], None]] = []
        self.changed()

    def changed(self) -> None:
        """List the objects again."""
        self._names = sorted(self.objects)

    @property
    def counts(self) -> Counter[str]:
        """Return the number of requests of each kind."""
        return Counter(kind for kind, _ in self.asked)

    def forget(self) -> None:
        """Clear the log of requests."""
        self.asked.clear()
        self.at_once_max = 0

    def gather(self, count: int, names: str) -> None:
        """Hold answers about objects of such names, a pattern, until `count` requests wait at once.

        So how many a reader makes at once does not depend on how fast the machine is.
        """
        self.forget()
        self._gathered, self._held_names = count, names

    def hold(self, target: str, send: Callable[[], None]) -> bool:
        """Return whether an answer is held; release all if enough requests wait."""
        if self.at_once_max >= self._gathered:
            self.release()
            return False
        is_held = bool(re.search(self._held_names, target.partition("?")[0]))
        if is_held:
            self._held.append(send)
        return is_held

    def release(self) -> None:
        """Send the answers that are held."""
        self._gathered = 0
        while self._held:
            self._held.pop()()

    def uri(self, path: str) -> str:
        """Return the URI of a path, with all options that reading it needs."""
        endpoint = quote(f"127.0.0.1:{self.port}", safe="")
        return (
            f"s3://{KEY}:{SECRET}@{BUCKET}/{path}?endpoint_override={endpoint}&scheme=http"
            "&region=eu-central-1"
        )

    def answer(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        """Return status, lines of the head and body; the body of HEAD has only its length.

        Status 0 ends the connection without an answer, as a timeout does.
        """
        path, _, query = target.partition("?")
        bucket, _, name = unquote(path).lstrip("/").partition("/")
        if bucket == "_counts":
            body = " ".join(f"{kind}={number}" for kind, number in sorted(self.counts.items()))
            at_once, self.at_once_max = self.at_once_max, 0
            return 200, "", f"{body} at-once={at_once}".encode()
        if not name:
            if method == "HEAD":
                return 200, "", b""
            self.asked.append(("LIST", query))
            return 200, "Content-Type: application/xml\r\n", self._listed(parse_qs(query))
        self.asked.append((method, name))
        data = self.objects.get(name)
        if data is None:
            return 404, "Content-Type: application/xml\r\n", _MISSING
        if headers.get("if-match", _tag(data)).strip('"') != _tag(data):
            return 412, "", b""
        date = formatdate(self.modified.get(name, MODIFIED), usegmt=True)
        head = f'ETag: "{_tag(data)}"\r\nLast-Modified: {date}\r\nAccept-Ranges: bytes\r\n'
        wanted = headers.get("range")
        if wanted is None or method == "HEAD":
            return 200, head, data
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        low, high = int(first), min(int(last or len(data)), len(data) - 1)
        if low >= len(data):
            return 416, head, b""
        head += f"Content-Range: bytes {low}-{high}/{len(data)}\r\n"
        return 206, head, data[low : high + 1]

    def _time(self, name: str) -> str:
        when = time.gmtime(self.modified.get(name, MODIFIED))
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", when)

    def _listed(self, query: Mapping[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        count = int(query.get("max-keys", [str(_KEYS_A_PAGE)])[0])
        at = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        lines: list[str] = []
        last, is_whole = "", True
        while at < len(self._names) and self._names[at].startswith(prefix):
            if len(lines) == count:
                is_whole = False
                break
            name = self._names[at]
            inner, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            if found:
                last = f"{prefix}{inner}{delimiter}{_UP_TO}"
                lines.append(
                    f"<CommonPrefixes><Prefix>{escape(prefix + inner + delimiter)}</Prefix>"
                    "</CommonPrefixes>"
                )
                at = bisect_right(self._names, last)
                continue
            last = name
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{self._time(name)}</LastModified>"
                f"<ETag>&quot;{_tag(self.objects[name])}&quot;</ETag>"
                f"<Size>{len(self.objects[name])}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
            at += 1
        more = "" if is_whole else f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(lines)}</KeyCount>"
            f"<MaxKeys>{count}</MaxKeys><IsTruncated>{str(not is_whole).lower()}</IsTruncated>"
            f"{more}{''.join(lines)}</ListBucketResult>"
        ).encode()


_DATE: Final = formatdate(MODIFIED, usegmt=True)
_MISSING: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchKey</Code>'
    b"<Message>There is none.</Message></Error>"
)
_REFUSED: Final = {
    "busy": (503, "Content-Type: application/xml\r\n", b"<Error><Code>SlowDown</Code></Error>"),
    "denied": (403, "Content-Type: application/xml\r\n",
               b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"),
}  # fmt: skip
_tags: dict[int, tuple[bytes, str]] = {}


def _tag(data: bytes) -> str:
    found = _tags.get(id(data))
    if found is None or found[0] is not data:
        found = _tags[id(data)] = data, md5(data, usedforsecurity=False).hexdigest()
    return found[1]


class _Connection(asyncio.Protocol):
    """One connection: requests without a body, one after the other."""

    def __init__(self, store: CountedStore) -> None:
        self._store = store
        self._waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._store.connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 # as its base
        self._store.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head, self._waiting = self._waiting[:end].decode("latin-1"), self._waiting[end + 4 :]
            first, *lines = head.split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            method, target, _ = first.split(" ")
            status, more, body = self._store.answer(method, target, headers)
            fault = "" if target == "/_counts" else self._store.faults.of(target)
            if not status or fault == "dropped":
                self._transport.abort()
                return
            if fault in _REFUSED:
                status, more, body = _REFUSED[fault]
            text = (
                f"HTTP/1.1 {status} It\r\nContent-Length: {len(body)}\r\n"
                f"x-amz-request-id: 1\r\nDate: {_DATE}\r\n{more}\r\n"
            )
            body = b"" if method == "HEAD" else body
            is_cut = fault == "cut" and len(body) > 1
            answer = text.encode() + body[: len(body) // 2 if is_cut else None]
            self._store.at_once += 1
            self._store.at_once_max = max(self._store.at_once, self._store.at_once_max)
            send = partial(self._send, answer, is_last=is_cut)
            held = self._store.hold(target, send)
            loop = asyncio.get_running_loop()
            if held:
                loop.call_later(_GATHER_S, self._store.release)
            else:
                loop.call_later(self._store.delay_s, send)

    def _send(self, answer: bytes, *, is_last: bool) -> None:
        self._store.at_once -= 1
        if not self._transport.is_closing():
            self._transport.write(answer)
            if is_last:
                self._transport.close()


async def serve(store: CountedStore, port: int = 0) -> asyncio.Server:
    """Start a server on this machine."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(store), "127.0.0.1", port, backlog=512)
    store.port = server.sockets[0].getsockname()[1]
    return server


@contextmanager
def counted_store(objects: Mapping[str, bytes], delay_s: float = 0.0) -> Iterator[CountedStore]:
    """A store that answers from a thread of this process."""
    store = CountedStore(objects, delay_s)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(serve(store))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for one in list(store.connections):
            one.abort()
        loop.run_until_complete(server.wait_closed())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
