"""Large responses to clients that read them at once, slowly, or never."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from kafkalog.wire.server.model import Watermark
from tests.builders import batch, record, write_log
from tests.kafkalog.wire.server.protocol import serving
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCH, LARGE = 500_000, 40_000_000
"""More than the buffers of a connection take."""
WAYS = {"kernel": {}, "memory": {"by_kernel": False}, "pace": {"rate": 1 << 40}}
ASKED = {"maxBytes": 1 << 30, "sessionEpoch": -1, "topics": [
    {"topic": "large", "partitions": [
        {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": LARGE, "currentLeaderEpoch": -1},
    ]},
]}  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of large batches."""
    directory = tmp_path_factory.mktemp("large") / "large-0"
    directory.mkdir()
    value = random.Random(1).randbytes(BATCH)
    return write_log(
        directory, *(batch(offset, [record(0, value=value)]) for offset in range(LARGE // BATCH))
    )


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    return {"high_watermark": Watermark.END, **WAYS[request.param]}


@pytest.mark.sampled(2)
def test_a_slow_client_gets_every_byte(log: Path, way: dict[str, Any]) -> None:
    """This includes what follows the records in the response, and the next response."""
    wanted = log.read_bytes()[:LARGE]
    with serving(log.parent, **way) as served, Wire(served.address) as client:
        client.request("Fetch", 12, **ASKED)
        client.request("Fetch", 12, **ASKED)
        time.sleep(0.3)  # nothing is taken
        for _ in range(2):
            answer = client.answer()
            assert answer["errorCode"] == ErrorCode.NONE
            [[found]] = [one["partitions"] for one in answer["responses"]]
            assert found["records"] == wanted


@pytest.mark.sampled(2)
def test_clients_that_take_nothing_keep_nobody_waiting(log: Path, way: dict[str, Any]) -> None:
    """There are more such clients than threads. Then the server shuts down amid their responses."""
    with serving(log.parent, **way) as served:
        stuck = [Wire(served.address) for _ in range(40)]
        for one in stuck:
            one.request("Fetch", 12, **ASKED)
        stuck.pop().__exit__()  # one goes away
        with Wire(served.address) as client:
            answer = client.tell("Fetch", 12, **ASKED)
            assert answer["errorCode"] == ErrorCode.NONE
    assert not served.thread.is_alive()
    assert served.heard.errors == []
    for one in stuck:
        with one:
            assert one.receive() is None, "the connection has ended"
