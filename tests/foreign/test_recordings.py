"""Logs of other clients, written by a real broker, are read as Kafka's own tools read them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.io.jit import fast_path
from kafkalog.model import Level, Severity
from tests.foreign.record import CLIENTS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

NAMES = [client.name for client in CLIENTS]
UNWRITTEN = {
    "kafkajs": {"zstd"},
    "rskafka": {"idempotent", "transactional"},
}
"""Topics that a client cannot write to."""
HASHED_FROM = 1024


@pytest.fixture(params=[1 << 40, 0], ids=["reference", "kernels"])
def _decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with the reference decoder, then with the kernels, whatever the size of the log."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", request.param)


@pytest.fixture(params=NAMES)
def recording(request: pytest.FixtureRequest, corpus_dir: Path) -> Path:
    """The log directory; the recorded output of Kafka lies next to it."""
    place: Path = corpus_dir / "foreign" / request.param
    return place


def expected(recording: Path) -> Path:
    return recording.with_name(f"{recording.name}.expected")


def partitions(recording: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each partition with the records that a Java consumer read from it."""
    for path in sorted((expected(recording) / "records").glob("*.ndjson")):
        yield path.stem, [json.loads(line) for line in path.read_text().splitlines()]


def as_a_consumer(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a record of our output to the form of the recorded consumer output."""
    return {
        "offset": row["offset"],
        "timestamp": row["timestamp"],
        "timestampType": row["timestamp_type"],
        "key": as_hex(row["key"]),
        "value": as_hex(row["value"]),
        "headers": [[header["key"], as_hex(header["value"])] for header in row["headers"]],
        "leaderEpoch": row["leader_epoch"],
    }


def as_hex(given: Any) -> Any:
    """Return bytes in hexadecimal; long ones as their size and SHA-256."""
    if given is None:
        return None
    data = base64.b64decode(given["base64"]) if isinstance(given, dict) else given.encode()
    if len(data) <= HASHED_FROM:
        return data.hex()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("_decoder")
def test_the_text_is_that_of_kafkas_tool(
    recording: Path, kafkalog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file, printed in each way that Kafka 4.3 did: the same bytes, the same status."""
    monkeypatch.chdir(recording)
    dump = expected(recording) / "dump"
    calls = json.loads((dump / "exit-codes.json").read_text())
    for name, run in calls.items():
        found = kafkalog("kafka-dump-log", "--kafka", "4.3", *run["args"])
        assert (found.stdout, found.status) == ((dump / name).read_bytes(), run["exit"]), name
    assert len(calls) > 50


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("_decoder")
@pytest.mark.parametrize("committed", [False, True], ids=["all", "committed"])
def test_the_records_are_those_of_a_consumer(
    recording: Path, kafkalog: Callable[..., Result], committed: bool
) -> None:
    """Keys, values and headers with null and empty apart, offsets, timestamps."""
    place = expected(recording) / "records-committed"
    for name, records in partitions(recording):
        given = ("--isolation", "read_committed") if committed else ()
        result = kafkalog("dump-segment", recording / name, "--format", "ndjson",
                          *given)  # fmt: skip
        rows = map(json.loads, result.stdout.splitlines())
        found = [as_a_consumer(row) for row in rows if not row["is_control"]]
        wanted = records
        if committed:
            offsets = set(json.loads((place / f"{name}.offsets.json").read_text()))
            wanted = [record for record in records if record["offset"] in offsets]
        assert (found, result.status) == (wanted, 0), name


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("_decoder")
def test_nothing_is_found_in_them(recording: Path) -> None:
    """A healthy log of another client gives no finding above a note."""
    verification = Verification(Level.DEEP)
    found = list(verification.verify(str(recording)))
    assert [one for one in found if one.severity != Severity.NOTE] == []


def test_each_client_has_written_what_it_can(recording: Path) -> None:
    """Every topic has records, except those that the client is known not to write."""
    target = open_path(str(recording))
    assert isinstance(target, LogDirListing)
    read = dict(partitions(recording))
    for topic in TOPICS:
        is_empty = topic in UNWRITTEN.get(recording.name, ())
        assert bool(read[f"{topic}-0"]) != is_empty, topic
    assert len(read["many-0"]) == 300
