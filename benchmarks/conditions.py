"""Values a second that `--where` decides on one core; jq and DuckDB on the same values.

`python -m benchmarks.conditions`: half a minute, idle machine. Each figure is the best of three
runs, in CPU time. DuckDB gets all values at once as a column, jq as lines of a file.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from kafkalog.log.batches.condition import Condition, Content

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT: Final = 200_000
RUNS: Final = 3
QUESTIONS: Final = {
    "value.cents > 100": ("select(.cents > 100)", "cast(v->>'cents' as bigint) > 100"),
    'value.item == "tea"': ('select(.item == "tea")', "v->>'item' = 'tea'"),
    'value.cents > 1900 && value.item.startsWith("t")': (
        'select(.cents > 1900 and (.item | startswith("t")))',
        "cast(v->>'cents' as bigint) > 1900 and starts_with(v->>'item', 't')",
    ),
}


def values() -> list[bytes]:
    drawn = random.Random(7)
    items = ("tea", "coffee", "caf\u00e9", "milk")
    return [
        json.dumps(
            {"order": number, "user": f"user-{drawn.randrange(100)}",
             "item": drawn.choice(items), "cents": drawn.randrange(2000)},
            ensure_ascii=False, separators=(",", ":"),
        ).encode()
        for number in range(COUNT)
    ]  # fmt: skip


def rate(measured: Callable[[], int], clock: Callable[[], float]) -> tuple[int, float]:
    """Return how many values matched, and how many were decided in a CPU-second."""
    best, found = float("inf"), 0
    for _ in range(RUNS):
        start = clock()
        found = measured()
        best = min(best, clock() - start)
    return found, COUNT / best


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_condition(data: list[bytes], expression: str) -> tuple[int, float]:
    records = [Content(number, number, None, one) for number, one in enumerate(data)]
    where = Condition(expression)
    return rate(lambda: sum(map(where.matches, records)), time.process_time)


def by_duckdb(data: list[bytes], condition: str) -> tuple[int, float]:
    with duckdb.connect() as database:
        database.execute("set threads = 1")
        database.register("t", pa.table({"v": [one.decode() for one in data]}))
        query = f"select count(*) from t where {condition}"  # noqa: S608 # of `QUESTIONS`
        return rate(lambda: int(database.execute(query).fetchall()[0][0]), time.process_time)


def by_jq(data: list[bytes], program: str) -> tuple[int, float]:
    with tempfile.NamedTemporaryFile() as lines:
        lines.write(b"\n".join(data) + b"\n")
        lines.flush()
        command = ["jq", "--compact-output", program, lines.name]

        def found() -> int:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            return done.stdout.count(b"\n")

        return rate(found, children_s)


def main() -> None:
    data = values()
    for expression, (program, condition) in QUESTIONS.items():
        rates = {
            "kafkalog": by_condition(data, expression),
            "DuckDB": by_duckdb(data, condition),
        }
        if shutil.which("jq"):
            rates["jq"] = by_jq(data, program)
        assert len({found for found, _ in rates.values()}) == 1, rates
        figures = ", ".join(f"{name} {speed:,.0f}" for name, (_, speed) in rates.items())
        print(f"{expression}: {figures}")


if __name__ == "__main__":
    main()
