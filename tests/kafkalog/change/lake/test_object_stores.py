"""Exports to a bucket: the same files as in a directory, and no credentials in messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.dataset as ds
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

import kafkalog
from kafkalog.change.lake.targets import open_target
from kafkalog.errors import DestinationExistsError, KafkaLogError, UsageError
from kafkalog.io.paths.uris import without_credentials
from kafkalog.model import Replicas
from kafkalog.tables import Bounds, Request
from tests.kafkalog.change.lake.exporting import HIVE, export, files_of, table_of
from tests.kafkalog.change.lake.test_resume import interrupt, logs
from tests.kafkalog.log.typed.test_serialized import as_topic
from tests.kafkalog_cli.test_record_types import CASES, values_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLE"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def store(endpoint: str) -> Any:
    files = fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=endpoint, scheme="http",
        region="eu-central-1", allow_bucket_creation=True, allow_bucket_deletion=True,
    )  # fmt: skip
    files.create_dir("lake")
    yield files
    files.delete_dir_contents("lake")


def uri(endpoint: str, path: str) -> str:
    options = f"endpoint_override={quote(endpoint, safe='')}&scheme=http&region=eu-central-1"
    return f"s3://{KEY}:{SECRET}@lake/{path}?{options}"


def objects(store: Any, under: str) -> dict[str, bytes]:
    found = store.get_file_info(fs.FileSelector(f"lake/{under}", recursive=True))
    return {
        one.path.removeprefix(f"lake/{under}/"): store.open_input_stream(one.path).read()
        for one in found
        if one.type == fs.FileType.File
    }


def test_a_bucket_gets_the_same_files(tmp_path: Path, endpoint: str, store: Any) -> None:
    """Byte for byte; a second run does nothing."""
    source = sorted(logs(tmp_path / "logs").iterdir())
    export(source, tmp_path / "to", Request(split_bytes=1))
    summary = export(source, uri(endpoint, "out"), Request(split_bytes=1))
    assert summary.destination == "s3://lake/out"
    assert objects(store, "out") == files_of(tmp_path / "to")
    assert export(source, uri(endpoint, "out"), Request(split_bytes=1)).was_complete
    found = ds.dataset("lake/out", filesystem=store, partitioning=HIVE).to_table()
    assert found.sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(
        table_of(tmp_path / "to").sort_by([("partition", "ascending"), ("offset", "ascending")])
    )


def test_an_interrupted_run_goes_on(tmp_path: Path, endpoint: str, store: Any) -> None:
    """It continues with what is in the bucket."""
    source = sorted(logs(tmp_path / "logs", 8, 1, 400).iterdir())
    request = Request(split_bytes=1 << 19)
    export(source, tmp_path / "to", request)
    interrupt(source, uri(endpoint, "again"), 0, request=request)
    summary = export(source, uri(endpoint, "again"), request)
    assert 0 < summary.written_files < len(summary.parts)
    assert objects(store, "again") == files_of(tmp_path / "to")


def test_something_else_in_the_bucket_is_refused(tmp_path: Path, endpoint: str, store: Any) -> None:
    """Nothing is written next to it."""
    source = sorted(logs(tmp_path / "logs").iterdir())
    with store.open_output_stream("lake/else/mine") as stream:
        stream.write(b"mine")
    with pytest.raises(DestinationExistsError) as raised:
        export(source, uri(endpoint, "else"))
    assert raised.value.path == "s3://lake/else"
    assert objects(store, "else") == {"mine": b"mine"}


def test_credentials_are_never_shown(
    tmp_path: Path, endpoint: str, store: Any, kafkalog: Callable[..., Any]
) -> None:
    """They appear neither in the report and the manifest nor in errors."""
    source = sorted(logs(tmp_path / "logs", 1).iterdir())
    done = kafkalog("export", source[0], "--to", uri(endpoint, "shown"), "--format", "ndjson")
    assert done.status == 0
    missing = uri(endpoint, "x").replace("@lake/", "@no-such-bucket/")
    failed = kafkalog("export", source[0], "--to", missing)
    assert failed.status in (3, 4)
    assert "Traceback" not in failed.stderr
    assert "s3://no-such-bucket/x" in failed.stderr
    manifest = json.dumps([data.decode("latin-1") for data in objects(store, "shown").values()])
    for text in (done.stdout.decode(), done.stderr, failed.stderr, manifest):
        assert SECRET not in text
        assert KEY not in text


def test_uris_without_credentials() -> None:
    """Only scheme, host and path are shown."""
    assert without_credentials("s3://a:b@bucket/x/y?secret=1") == "s3://bucket/x/y"
    assert without_credentials("abfs://c@account.dfs.core.windows.net/d?sas=1").endswith("/d")
    assert without_credentials("/plain/path") == "/plain/path"


@pytest.mark.parametrize("wrong", ["http://x/y", "hdfs://x/y", "s3://", "gs://"])
def test_other_places_are_refused(wrong: str) -> None:
    """The error names the schemes that exist."""
    with pytest.raises((UsageError, KafkaLogError)):
        open_target(wrong)


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (OSError("AWS Error NETWORK_CONNECTION: Could not resolve host"), 3),
        (OSError("AWS Error ACCESS_DENIED"), 3),
        (ValueError("Unexpected query parameter"), 2),
    ],
)
def test_a_store_out_of_reach_is_no_wrong_usage(
    raised: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client asks for the region of a bucket when it is made."""

    class Unreachable:
        @staticmethod
        def from_uri(_: str) -> None:
            raise raised

    monkeypatch.setattr(fs, "FileSystem", Unreachable)
    with pytest.raises(KafkaLogError) as caught:
        open_target("s3://bucket/lake")
    assert caught.value.exit_code == status


@pytest.mark.sampled(2)
@pytest.mark.parametrize("append", [True, False])
def test_a_bucket_gets_the_tables_of_types(
    tmp_path: Path, endpoint: str, store: Any, *, append: bool
) -> None:
    """Byte for byte those of a directory, each below the prefix."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case))
    found = {}
    for place in (str(tmp_path / "to"), uri(endpoint, "split")):
        done = kafkalog.export(
            disk, to=place, registry=disk, split_by_type=True, append=append,
            request=Request(bounds=Bounds(topics=("events",)), replicas=Replicas.BEST),
        ).apply()  # fmt: skip
        found[done.destination] = done.tables
    assert [*found] == [str(tmp_path / "to"), "s3://lake/split"]
    tables, others = found.values()
    assert tables == others
    assert objects(store, "split") == files_of(tmp_path / "to")
