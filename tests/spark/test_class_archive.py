"""The archive of Java classes: private, used by itself, and only where it fits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.spark.class_archive import archive_options, archive_path, existing_archive
from kafkalog.spark.requirements import Java, find_java
from tests.spark.cluster import running_processes
from tests.spark.driver import REPOSITORY, start_driver, wait_for_files

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.conftest import Result


def test_warm_up_writes_what_sessions_use(tmp_path: Path) -> None:
    """The file is in a directory of this user alone; a session of local[2] maps it."""
    cache, temporary, tasks = (tmp_path / name for name in ("cache", "tmp", "tasks"))
    temporary.mkdir()
    tasks.mkdir()
    own = {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog_cli", "spark-warmup"],
        capture_output=True, text=True, check=False, cwd=REPOSITORY, env={**os.environ, **own},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    [archive] = (cache / "kafkalog").iterdir()
    assert f"written: {archive}, " in done.stdout
    assert archive.parent.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []

    one = {"number": 0, "directory": str(tasks), "seconds": 1}
    driver = start_driver(temporary, own, master="local[2]", work="slow", tasks=[one])
    wait_for_files(tasks, 1)
    [jvm] = [pid for pid, above, _ in running_processes() if above == driver.process.pid]
    assert str(archive) in Path(f"/proc/{jvm}/maps").read_text()
    assert driver.results() == [[0, {"number": 0}]]


def test_archive_of_another_java_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name tells for what it is; nor is one used that belongs to nobody knows whom."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = find_java()
    assert archive_options(java, {}) == []
    path = archive_path(java)
    assert path is not None
    Path(path).touch()
    assert archive_options(java, {}) == [f'"-XX:SharedArchiveFile={path}"']
    assert archive_options(Java(java.path, f"{java.version}+1", java.major), {}) == []
    assert archive_options(java, {"spark.driver.extraJavaOptions": "-Xshare:off"}) == []
    assert existing_archive().size_bytes == 0
    Path(path).unlink()
    Path(path).symlink_to("/etc/hostname")
    assert archive_options(java, {}) == []


def test_dry_run_writes_nothing(
    kafkalog: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = kafkalog("spark-warmup", "--dry-run")
    assert (result.status, result.stderr) == (0, "")
    assert b"no archive yet" in result.stdout
    assert list((tmp_path / "kafkalog").iterdir()) == []
