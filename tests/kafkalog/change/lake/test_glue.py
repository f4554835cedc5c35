"""An Iceberg table in a catalog of AWS Glue, as moto plays it, with its files in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.exceptions import JsonRESTError
from moto.glue.models import glue_backends
from moto.glue.responses import GlueResponse
from pyarrow import fs

from tests.kafkalog.change.lake.appending import grow, rows
from tests.kafkalog.change.lake.catalogs import require_growth, rows_of, words_of
from tests.kafkalog.tables.test_other_disks import make_log
from tests.stores import BUCKET, KEY, SECRET, Store, running_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from tests.conftest import Result

REGION = "eu-central-1"


@pytest.fixture
def store() -> Iterator[Store]:
    """A server for both services; moto takes each commit to Glue, unless it compares versions."""
    plain = GlueResponse.update_table

    def updating(call: GlueResponse) -> Any:
        asked = call.parameters
        table = call.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
        if asked["VersionId"] != table.as_dict()["VersionId"]:
            raise JsonRESTError("ConcurrentModificationException", "Update table failed")
        return plain(call)

    with running_store() as running, pytest.MonkeyPatch.context() as patched:
        patched.setattr(GlueResponse, "update_table", updating)
        try:
            yield running
        finally:
            glue_backends[DEFAULT_ACCOUNT_ID][REGION].reset()
            running.files.delete_dir_contents(BUCKET)


def properties_of(store: Store) -> dict[str, str]:
    """Return those of the guide: each service of AWS has an endpoint, a region and keys."""
    own = {"region": REGION, "access-key-id": KEY, "secret-access-key": SECRET}
    own["endpoint"] = f"http://{store.endpoint}"
    both = {f"{one}.{key}": own[key] for one in ("glue", "s3") for key in own}
    return {"type": "glue", "warehouse": f"s3://{BUCKET}/lake", **both}


@pytest.mark.thorough("tests/kafkalog/change/lake/test_glue.py::test_a_commit_that_is_repeated")
def test_a_table_grows(store: Store, tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """Despite a run that is killed."""

    def count_files() -> int:
        within = fs.FileSelector(f"{BUCKET}/lake", recursive=True)
        return sum(one.path.endswith(".parquet") for one in store.files.get_file_info(within))

    require_growth(kafkalog, tmp_path / "log", properties_of(store), count_files)


def test_a_commit_that_is_repeated(
    store: Store, tmp_path: Path, kafkalog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of AWS calls again after an error, and is refused because of its first call."""
    partition, properties = make_log(tmp_path / "log"), properties_of(store)
    words = words_of(tmp_path / "log", properties)
    assert kafkalog(*words).status == 0
    grow(partition, 120, 2)
    update, calls = GlueResponse.update_table, []

    def failing(call: GlueResponse) -> Any:
        calls.append(call)
        answer = update(call)
        if len(calls) == 1:
            error = JsonRESTError("InternalServiceException", "Try again")
            error.code = 500
            raise error
        return answer

    monkeypatch.setattr(GlueResponse, "update_table", failing)
    result = kafkalog(*words)
    assert result.status == 0, result.stderr
    assert len(calls) == 2
    assert rows_of(properties) == rows(0, 126)
    assert "nothing is new" in kafkalog(*words).stdout.decode()
