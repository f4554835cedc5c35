"""Servers of HTTP on this machine: one that answers as a test says, and a registry of schemas."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence


class Answering(BaseHTTPRequestHandler):
    """Answers as a function says, and notes what was asked."""

    protocol_version = "HTTP/1.1"
    server: Recorded

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.close_connection = True
        self.server.answer(self)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Recorded(ThreadingHTTPServer):
    """A server and what it was asked."""

    def __init__(self, answer: Callable[[Answering], object]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str | None]] = []
        self.answer = answer
        self.is_over = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """Clients go away in the middle of answers."""

    @property
    def origin(self) -> str:
        return f"127.0.0.1:{self.server_port}"


@contextmanager
def server(
    answer: Callable[[Answering], object], tls: ssl.SSLContext | None = None
) -> Iterator[Recorded]:
    with Recorded(answer) as made:
        if tls is not None:
            made.socket = tls.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever, args=[0.01])
        thread.start()
        try:
            yield made
        finally:
            made.is_over.set()
            made.shutdown()
            thread.join()


def says(data: bytes) -> Callable[[Answering], None]:
    def answer(to: Answering) -> None:
        to.send_response(200)
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        to.wfile.write(data)

    return answer


def leads(target: str | Callable[[], str], body: bytes = b"") -> Callable[[Answering], None]:
    def answer(to: Answering) -> None:
        to.send_response(302)
        to.send_header("Location", target if isinstance(target, str) else target())
        to.end_headers()
        to.wfile.write(body)

    return answer


def registry_of(versions: Sequence[dict[str, Any]]) -> Callable[[Answering], None]:
    """Answer as a registry with some versions of subjects, as Confluent documents its API."""

    def answer(to: Answering) -> None:
        parts = urlsplit(to.path)
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        there = [one for one in versions if not one.get("deleted") or parse_qs(parts.query)]
        match words:
            case ["schemas", "types"]:
                return gives(to, ["AVRO", "JSON", "PROTOBUF"])
            case ["schemas", ("ids" | "guids") as kind, name]:
                same = [one for one in versions if str(one.get(kind[:-1])) == name]
                code = 40403
                names = ("schema", "schemaType", "references", "guid")
                found: Any = [{name: one[name] for name in names if name in one} for one in same]
            case ["schemas", "ids", number, "versions"]:
                same = [one for one in there if str(one["id"]) == number]
                rows = [{"subject": one["subject"], "version": one["version"]} for one in same]
                return gives(to, rows)
            case ["schemas", "guids", guid, "ids"]:
                same = [one for one in versions if one.get("guid") == guid]
                return gives(to, [{"context": ".", "id": one["id"]} for one in same])
            case ["subjects", subject, "versions", *numbers]:
                same = [one for one in there if one["subject"] == subject]
                code = 40402 if same else 40401
                found = [one for one in same if [str(one["version"])] == numbers]
                if not numbers and same:
                    return gives(to, [one["version"] for one in same])
            case _:
                return gives(to, {"error_code": 404, "message": "HTTP 404 Not Found"}, 404)
        if found:
            return gives(to, found[0])
        return gives(to, {"error_code": code, "message": "not found"}, 404)

    return answer


def gives(to: Answering, found: Any, status: int = 200) -> None:
    """Answer with JSON."""
    data = json.dumps(found).encode()
    to.send_response(status)
    to.send_header("Content-Length", str(len(data)))
    to.end_headers()
    to.wfile.write(data)


def only_for(
    authorization: str, answer: Callable[[Answering], None]
) -> Callable[[Answering], None]:
    """Answer who says who it is."""

    def answered(to: Answering) -> None:
        if to.headers["Authorization"] == authorization:
            answer(to)
        else:
            gives(to, {"error_code": 401, "message": "Unauthorized"}, 401)

    return answered


def basic(user: str) -> str:
    return "Basic " + b64encode(user.encode()).decode()


@contextmanager
def registry(versions: Sequence[dict[str, Any]], user: str | None = None) -> Iterator[str]:
    """Run a registry; its URL has name and password."""
    answer = registry_of(versions)
    with server(answer if user is None else only_for(basic(user), answer)) as made:
        yield f"http://{'' if user is None else f'{user}@'}{made.origin}"
