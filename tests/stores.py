"""An object store on this machine, and log directories in it."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLE"
BUCKET = "logs"


class Store:
    """A bucket on a server that speaks S3."""

    def __init__(self, server: ThreadedMotoServer) -> None:
        self._server = server
        _, port = server.get_host_and_port()
        self.endpoint = f"127.0.0.1:{port}"
        self.files: Any = fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=self.endpoint, scheme="http",
            region="eu-central-1", allow_bucket_creation=True,
        )  # fmt: skip
        self.files.create_dir(BUCKET)
        self._names: set[str] = set()

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        """Return the URI to read, with all that is needed to read it."""
        options = f"endpoint_override={quote(self.endpoint, safe='')}&scheme=http"
        return f"s3://{KEY}:{SECRET}@{bucket}/{path}?{options}&region=eu-central-1"

    def put(self, name: str, data: bytes) -> None:
        """Store an object in the memory of the server, which runs in this process."""
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, name, data)
        self._names.add(name)

    def upload(self, directory: Path, name: str) -> None:
        """Upload all files of a directory below a prefix."""
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            self.put(f"{name}/{file.relative_to(directory)}", file.read_bytes())

    def stop(self) -> None:
        """Stop the server and drop its objects, as all servers of this process share one memory."""
        self._server.stop()
        for name in self._names:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].delete_object(BUCKET, name)
        self._names.clear()


@contextmanager
def hanging_up(port: int) -> Iterator[list[object]]:
    """Take connections at a port and close them at once; yield the clients so far."""
    clients: list[object] = []

    def take() -> None:
        while True:
            connection, client = server.accept()
            connection.close()
            if ended.is_set():
                return
            clients.append(client)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=take)
        thread.start()
        yield clients
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


@contextmanager
def running_store() -> Iterator[Store]:
    """Run a store with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    store = Store(server)
    try:
        yield store
    finally:
        store.stop()
