"""What runs ask of object stores: counted, told and bounded (`--max-requests`)."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from formats.file_names import FileKind
from kafkalog.files.log_dir import list_partition
from kafkalog.io.paths import chunked, file_system, object_store
from kafkalog.io.paths.requests import requests_counted
from kafkalog_cli.outcome import show_requests
from tests.counted_store import counted_store
from tests.kafkalog.test_tiers import EXAMPLES, packed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("layout", ["local", "packed"])
def test_requests_for_a_tier_are_few_counted_and_bounded(
    tmp_path: Path, kafkalog: Any, layout: str
) -> None:
    """One a segment and ten a log for `ls` and a quick check; a run says what the store has seen.

    With one request less allowed than are needed the status is 7, and no more are made.
    """
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    tier = directory.parents[1] if layout == "packed" else tmp_path / "local"
    segments = len(list(directory.glob("*.log")))
    assert segments > 3
    files = {
        f"tier/{path.relative_to(tier)}": path.read_bytes()
        for path in tier.rglob("*")
        if path.is_file()
    }
    with counted_store(files) as store:
        object_store.forget()
        for command in (["ls"], ["verify", "--level", "quick"]):

            def run(*options: object, command: list[str] = command) -> Any:
                object_store.forget()
                store.forget()
                return kafkalog(*options, *command, store.uri("tier"))

            for _ in range(2):  # a process keeps the manifests that it has read
                whole = run()
                assert whole.status == 0, whole.stderr
                needed = len(store.asked)
                assert needed <= 10 + segments, store.counts
                assert f"note: {needed} requests to object stores, " in whole.stderr
            allowed = run("--max-requests", needed)
            assert (allowed.status, allowed.stdout) == (0, whole.stdout)
            for bound in (0, 1, needed - 1):
                stopped = run("--max-requests", bound)
                assert stopped.status == 7, stopped.stderr
                assert stopped.stderr.count("--max-requests") == 1
                assert len(store.asked) <= bound


def test_manifests_are_read_side_by_side(tmp_path: Path) -> None:
    """A store that takes its time is asked for several at once, of one partition."""
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    tier = directory.parents[1]
    files = {
        f"tier/{path.relative_to(tier)}": path.read_bytes()
        for path in directory.iterdir()
        if path.suffix == ".rsm-manifest"
    }
    chunked._manifest.cache_clear()  # a process keeps the manifests that it has read
    with counted_store(files, 0.05) as store:
        object_store.forget()
        store.gather(2, r"0[1-9]\.rsm-manifest$")  # the first is read alone
        path = file_system.normalize(store.uri(f"tier/{directory.relative_to(tier)}"))
        found = list_partition(path)
        assert [entry.name.kind for entry in found.files] == [FileKind.MANIFEST] * len(files)
        assert store.at_once_max > 1


def test_requests_of_spark_are_neither_counted_nor_bounded(kafkalog: Any) -> None:
    """A bound is refused before Spark starts, and the note says whose requests it counts."""
    path = EXAMPLES / "log-dir" / "orders-0"
    result = kafkalog("--max-requests", 9, "sql", "--spark", "local[*]", "-c", "select 1", path)
    assert result.status == 2
    assert "does not bound what tasks of Spark request" in result.stderr
    with requests_counted() as requests, redirect_stderr(StringIO()) as shown:
        requests.leave()
        requests.ask()
        show_requests(requests)
    assert "1 request to object stores, 0 bytes read by the driver alone" in shown.getvalue()
