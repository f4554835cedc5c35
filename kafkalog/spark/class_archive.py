"""Spark's Java classes, archived ready to use (AppCDS): a session starts in less time.

The archive is a file of this user alone, as it is code. It fits one Java, one pyspark and their
places; Java itself looks whether the jars are those it was made of, and goes on without it where
they are not.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalog.columnar.cache import cache_directory
from kafkalog.errors import EngineError, UnwritableError
from kafkalog.spark.requirements import find_java, require_pyspark
from kafkalog.spark.settings import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.spark.requirements import Java

_OWN_CHOICE: Final = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
_WRITING_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """An archive of classes.

    Attributes:
        path: the file, in the user's cache directory.
        size_bytes: its size; None where there is none yet.
        java: the major version of the Java that it fits.
        spark: the version of pyspark that it fits.
    """

    path: str
    size_bytes: int | None
    java: int
    spark: str


def archive_options(java: Java, conf: Mapping[str, str]) -> list[str]:
    """Options of the JVM that use the archive; none where there is none, or the user has an own."""
    if any(choice in conf.get(JAVA_OPTIONS, "") for choice in _OWN_CHOICE):
        return []
    path = archive_path(java)
    if path is None or not _is_own_file(path):
        return []
    return [f'"-XX:SharedArchiveFile={path}"']


def archive_path(java: Java) -> str | None:
    """Where the archive for a Java and the pyspark of this Python is; None without a cache."""
    import pyspark

    directory = cache_directory()
    if directory is None:
        return None
    facts = (java.path, java.version, pyspark.__version__, _spark_home())
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:20]
    return os.path.join(directory, f"spark-{name}.jsa")


def existing_archive() -> ClassArchive:
    """The archive that sessions use now, or would use if it were there.

    Raises:
        UnsupportedError: pyspark or Java is missing.
        UnwritableError: this user has no cache directory.
    """
    require_pyspark()
    import pyspark

    java = find_java()
    path = archive_path(java)
    if path is None:
        raise UnwritableError(
            "There is no cache directory that only this user can write.",
            hint="Set HOME or XDG_CACHE_HOME to a directory that can be written.",
        )
    size = os.path.getsize(path) if _is_own_file(path) else None
    return ClassArchive(path, size, java.major, pyspark.__version__)


def write_archive(connect_timeout_s: float = 60.0) -> ClassArchive:
    """Run a small session, and have Java archive the classes that it used.

    The archive appears whole, by a rename; an interrupted run leaves none.

    Raises:
        UnsupportedError: pyspark or Java is missing.
        UnwritableError: this user has no cache directory.
        EngineError: Java wrote no archive; the note names its log.

    Cost:
        Half a minute, and some 190 MB in the cache directory.
    """
    archive = existing_archive()
    from kafkalog.spark.session import spark_session

    path = archive.path
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix="spark-") as made:
        new = os.path.join(made, "archive")
        conf = {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={new}"'}
        with spark_session(
            "local[2]", conf, connect_timeout_s=connect_timeout_s, end_timeout_s=_WRITING_S
        ) as session:
            _use(session, made)
        with suppress(FileNotFoundError):
            os.replace(new, path)
            return replace(archive, size_bytes=os.path.getsize(path))
    raise EngineError(
        "Java wrote no archive of classes.",
        hint="Sessions work without it. Has SPARK_CONF_DIR files in it? Java takes no directories.",
    )


def _use(session: Any, directory: str) -> None:
    """What most sessions do: tasks of ours, an aggregation, Parquet."""
    from kafkalog.spark.engine import SparkEngine

    list(SparkEngine(session, 2).run(echo, [{"number": 0}, {"number": 1}]))
    frame = session.range(100).selectExpr("id", "id % 3 AS part", "CAST(id AS STRING) AS text")
    target = os.path.join(directory, "table")
    frame.write.partitionBy("part").parquet(target)
    session.read.parquet(target).groupBy("part").count().orderBy("part").toPandas()


def echo(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task that is done at once."""
    return task


def _is_own_file(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home  # the one place that knows the rules

    return os.path.realpath(_find_spark_home())
