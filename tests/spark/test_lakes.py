"""Tables that `export --append` makes, as Spark reads them with the jars of Delta and Iceberg.

Neither has a release for the Spark of other tests: `docs/guide/lake.md` says what happens with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.change.lake.appending import DELTA, ICEBERG
from tests.kafkalog.change.lake.test_evolution import FIRST, SECOND, framed, run

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake.model import TableFormat

VERSION: Final = "4.1.3"
"""The newest Spark for which both have a release."""
HOUR_MS: Final = 3_600_000
LOGS: Final = ("orders-0", "orders-1", "payments-0")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with that Spark; the jars get into it, too."""
    place = tmp_path_factory.mktemp("spark")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(place)]
    subprocess.run([*pip, f"pyspark=={VERSION}"], check=True)
    return place


class Source:
    """A log directory that grows by three records per partition, and the rows that it has."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.rows: list[dict[str, Any]] = []

    def grow(self, schema: dict[str, Any]) -> None:
        """Append records, ten hours apart, whose values are written with a schema."""
        first = len(self.rows) // len(LOGS)
        for name in LOGS:
            topic, _, partition = name.rpartition("-")
            records = []
            for n in range(3):
                offset = first + n
                lines = [{"sku": f"{name}-{offset}", "count": n}] * n
                total = None if n else offset / 4
                order = {"id": offset, "note": f"n{n}", "lines": lines, "total": total}
                value = framed(schema, order)
                key, headers = (None, []) if n == 1 else (b"k%d" % n, [(b"h", b"%d" % offset)])
                records.append(record(n, key, value, time_delta=10 * n * HOUR_MS, headers=headers))
                is_first = schema is FIRST
                self.rows.append({
                    "topic": topic, "partition": int(partition), "offset": offset,
                    "key": None if key is None else key.hex(), "value": value.hex(),
                    "at_ms": self._time_of(first) + 10 * n * HOUR_MS, "timestampType": 0,
                    "headers": [{"key": k.decode(), "value": v.hex()} for k, v in headers],
                    "leader_epoch": 3,
                    "value_decoded": {
                        "id": offset, "note": f"n{n}" if is_first else None,
                        "lines": [
                            {"sku": one["sku"], "count": None if is_first else one["count"]}
                            for one in lines
                        ],
                        "total": None if is_first else total,
                    },
                })  # fmt: skip
            at = self._time_of(first)
            last = at + 20 * HOUR_MS
            made = batch(first, records, base_time=at, max_time=last, epoch=3)
            write_log(self.place / name, made, name=f"{first:020}")

    @staticmethod
    def _time_of(first: int) -> int:
        return BASE_TIME + first * 10 * HOUR_MS


@pytest.mark.thorough(
    "tests/kafkalog/change/lake/test_iceberg.py::test_other_programs_read_the_rows"
)
@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_spark_reads_what_is_appended(home: Path, tmp_path: Path, form: TableFormat) -> None:
    """Rows of several runs, of which the second adds fields and leaves one out, equal those of the
    logs. After Spark has merged the files the next run goes on.
    """
    log, lake = Source(tmp_path / "log"), tmp_path / "lake"
    for schema in (FIRST, SECOND, SECOND):
        log.grow(schema)
        run(log.place, lake, form, schema)
    require_same(read(home, lake, form, "merge"), log.rows)
    log.grow(SECOND)
    assert run(log.place, lake, form, SECOND).rows == 9
    require_same(read(home, lake, form), log.rows)


def read(home: Path, lake: Path, form: TableFormat, *words: str) -> dict[str, Any]:
    """Return what Spark finds in a table."""
    program = [sys.executable, "-m", "tests.spark.lake_session"]
    line = [*program, str(form), str(lake), str(home / "ivy"), *words]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(home), os.getcwd())),
        "SPARK_HOME": str(home / "pyspark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def require_same(found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Require the rows of the log, once each; in Iceberg those of a topic and a day together."""
    assert sorted(found["rows"], key=place_of) == sorted(rows, key=place_of)
    assert found["few"] == sum(row["topic"] == "orders" and row["offset"] >= 3 for row in rows)
    if "partitions" in found:
        wanted = Counter((row["topic"], day_of(row["at_ms"])) for row in rows)
        assert len({day for _, day in wanted}) > 2
        assert {(topic, day): count for topic, day, count in found["partitions"]} == wanted


def place_of(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def day_of(time_ms: int) -> str:
    return str(datetime.fromtimestamp(time_ms / 1000, UTC).date())
