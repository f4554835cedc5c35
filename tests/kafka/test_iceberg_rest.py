"""An Iceberg table in a REST catalog: Iceberg's own server, with its tables on a local disk."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.kafka import broker_data
from tests.kafkalog.lake.catalogs import require_growth
from tests.spark.cluster import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

pytestmark = pytest.mark.kafka

HOME: Final = broker_data.HERE / "iceberg"
START_S: Final = 60


@contextmanager
def rest_catalog(place: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    broker_data.build(HOME)
    port = free_port()
    own = {
        "CATALOG_REST_PORT": str(port),
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
            until = time.monotonic() + START_S
            while not _answers(port):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/config"):
            return True
    except OSError:
        return False


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
