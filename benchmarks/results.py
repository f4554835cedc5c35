"""The record of what was measured: a file of `benchmarks/results/` for each program of benchmarks.

A file holds the runs (when, on which commit, machine and packages) and one result per line. A later
run of some benchmarks replaces their results by name; each result names its run.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESULTS: Final = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Bound:
    """What is wanted of a figure, and what was measured."""

    wanted: str
    measured: float
    met: bool


@dataclass(frozen=True)
class Result:
    """What one benchmark gave.

    Attributes:
        run: key of the run in the record.
        ours, theirs: figures of the two commands by name; units end the names.
        times_faster: by the time of the work, which may be a part of the process.
        same_bytes: whether both printed the same; None: not compared.
    """

    table: str
    name: str
    run: str
    ours: Mapping[str, float] = field(default_factory=dict)
    theirs: Mapping[str, float] | None = None
    times_faster: float | None = None
    same_bytes: bool | None = None
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Record:
    """All results by name, and what their runs depended on."""

    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)


def run_key() -> str:
    """The day and the commit."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(
        command, cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )  # an archive of the sources has no commit
    return f"{datetime.now(UTC).date()} {done.stdout.strip() or 'unknown'}"


def merged(old: Record, new: Record, names: Iterable[str]) -> Record:
    """The newest result of each benchmark, in the order of `names`; others no longer exist."""
    both = old.results | new.results
    results = {name: both[name] for name in names if name in both}
    used = {result.run for result in results.values()}
    runs = {key: about for key, about in (old.runs | new.runs).items() if key in used}
    return Record(runs, results)


def loads(text: str) -> Record:
    """Read the text of a file."""
    stored = json.loads(text)
    results = (
        Result(**row | {"bounds": tuple(Bound(**bound) for bound in row.get("bounds", ()))})
        for row in stored["results"]
    )
    return Record(stored["runs"], {result.name: result for result in results})


def dumps(record: Record) -> str:
    """Write a line per run and per result, so that a change shows what was measured again."""
    runs = (f"{json.dumps(key)}: {_line(about)}" for key, about in record.runs.items())
    rows = (_line(_stored(result)) for result in record.results.values())
    body = '{{\n"runs": {{\n{}\n}},\n"results": [\n{}\n]\n}}\n'
    return body.format(",\n".join(runs), ",\n".join(rows))


def load(area: str) -> Record:
    """Read `benchmarks/results/AREA.json`."""
    return loads((RESULTS / f"{area}.json").read_text(encoding="utf-8"))


def store(new: Record, names: Iterable[str], into: Path | None) -> None:
    """Merge a run into a file, which may be new; without one, print it."""
    if into is None:
        print(dumps(new), end="")
        return
    old = loads(into.read_text(encoding="utf-8")) if into.exists() else Record()
    into.write_text(dumps(merged(old, new, names)), encoding="utf-8")


def _stored(result: Result) -> dict[str, Any]:
    row = asdict(result)
    return {name: _rounded(value) for name, value in row.items() if value not in (None, {}, ())}


def _rounded(value: Any) -> Any:
    """Five digits of a figure: more would only be noise."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
