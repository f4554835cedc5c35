"""An Iceberg table in a REST catalog: Iceberg's own server, with its tables on a local disk."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.kafka import broker_data
from tests.kafkalog.change.lake.catalogs import require_growth
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Result

pytestmark = pytest.mark.kafka

HOME: Final = broker_data.HERE / "iceberg"
LISTENS: Final = "0A"
"""A status in Linux's tables of sockets."""


@contextmanager
def rest_catalog(place: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    broker_data.package(HOME, HOME / "target")
    own = {
        "CATALOG_REST_PORT": "0",
        "CATALOG_URI": f"jdbc:sqlite:{place}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{place}/tables",
    }
    command = ["java", *broker_data.JVM_OPTIONS, "-cp", str(HOME / "target" / "lib" / "*"),
               "org.apache.iceberg.rest.RESTCatalogServer"]  # fmt: skip
    log = place / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | own) as server,
    ):
        try:
            until(
                lambda: _port_of(server.pid),
                failed=lambda: server.poll() is not None and log.read_text(),
            )
            yield f"http://127.0.0.1:{_port_of(server.pid)}"
        finally:
            server.terminate()


def _port_of(pid: int) -> int | None:
    """Return the port on which a process listens; the server tells it nowhere."""
    process = Path(f"/proc/{pid}")
    sockets = set()
    for descriptor in process.glob("fd/*"):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            sockets.add(str(descriptor.readlink()))
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            _, local, _, status, *_, inode = line.split()[:10]
            if status == LISTENS and f"socket:[{inode}]" in sockets:
                return int(local.rpartition(":")[2], 16)
    return None


def test_rest(java_tools: None, tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """As in the guide: the address is enough, and the server says where tables are."""
    assert java_tools is None
    place = tmp_path / "catalog"
    place.mkdir()
    with rest_catalog(place) as address:
        require_growth(
            kafkalog, tmp_path / "log", {"type": "rest", "uri": address},
            lambda: len(list(place.rglob("*.parquet"))),
        )  # fmt: skip
