"""The figures of the pages on performance, made from `benchmarks/results/*.json` by `make docs`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from benchmarks.results import Record, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.results import Bound, Result

# What the page shows of all that is measured beside Kafka's tools.
SHOWN: Final = (
    "deep print, 300 MB", "deep print, 1.2 GB", "deep print, 4 GB",
    "deep print, 1.2 GB, 1 processor", "deep print, 1.2 GB in lz4", "deep print, 1.2 GB in zstd",
    "deep print, 1.2 GB in gzip", "deep print, 1.2 GB in snappy", "deep print, 1 MB",
    "none, 10 per batch, 100 B, transactional", "shallow, 300 MB", "shallow, 4 GB",
    "shallow, 1 MB", "offset index verified, 300 MB", "time index verified, 300 MB",
    "verify standard, 300 MB", "table, 300 MB", "NDJSON, 300 MB",
    "groups, 1 GB of __consumer_offsets", "serve to librdkafka, 1.2 GB",
    "serve to perf-test, 1.2 GB", "compaction, 300 MB", "compaction, 300 MB in zstd",
    "compact, 300 MB", "rebuild-index, 300 MB",
)  # fmt: skip


def runs(record: Record) -> str:
    """When, on what, and how many results are of that run."""
    lines = []
    for key, about in record.runs.items():
        count = sum(result.run == key for result in record.results.values())
        told = "; ".join(f"{name}: {value}" for name, value in about.items())
        lines.append(f"- {key} (results: {count}): {told}\n")
    return "".join(lines)


def beside_kafka(record: Record) -> str:
    """Both commands of the rows that the page shows, by the time of the work."""
    head = ("what", "s", "Kafka's s", "times faster", "MB", "Kafka's MB")
    lines = []
    for name in SHOWN:
        result = record.results[name]
        theirs = result.theirs or {}
        both = [number(_seconds(side)) for side in (result.ours, theirs)]
        memory = [number(side["peak_mb"]) for side in (result.ours, theirs)]
        lines.append((name, *both, number(result.times_faster), *memory))
    return _table(head, lines)


def missed(record: Record) -> str:
    """How many bounds are met, and for each that is not, how far off the rows are."""
    bounds = [(one.name, bound) for one in record.results.values() for bound in one.bounds]
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for name, bound in bounds:
        if not bound.met:
            found[bound.wanted].append((name, bound.measured))
    met = sum(bound.met for _, bound in bounds)
    same = [one.same_bytes for one in record.results.values() if one.same_bytes is not None]
    lines = [f"- {wish}: {_rows(wish, them)}\n" for wish, them in found.items()]
    return (
        f"{met} of {len(bounds)} targets are met; {sum(same)} of {len(same)} outputs that were "
        f"compared are the same bytes. Missed:\n\n{''.join(lines)}"
    )


def verdicts(record: Record) -> str:
    """Each bound with its verdict."""
    lines = [
        (one.name, bound.wanted, number(bound.measured), _verdict(bound))
        for one in record.results.values()
        for bound in one.bounds
    ]
    return _table(("what", "wanted", "measured", "verdict"), lines)


def jobs(record: Record) -> str:
    """Seconds of the jobs on Spark and beside it."""
    figures = ("wall_s", "cpu_s", "broker_cpu_s", "mb_per_s")
    lines = [
        (one.name, *(number(one.ours.get(figure)) for figure in figures))
        for one in record.results.values()
        if one.ours
    ]
    return _table(("job", "s", "CPU s", "broker's CPU s", "MB/s of the log"), lines)


def extremes(record: Record) -> str:
    """Time, memory and status of the commands over each log."""
    figures = ("wall_s", "peak_mb", "status")
    head = ("log: command", "s", "MB", "status", "Kafka's tool: s", "MB", "status")
    lines = [
        (_extreme(one), *(number(side.get(figure)) for side in (one.ours, one.theirs or {})
                          for figure in figures))
        for one in record.results.values()
    ]  # fmt: skip
    return _table(head, lines)


def number(value: float | None) -> str:
    """As many digits as count."""
    if value is None:
        return "-"
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _rows(wish: str, them: list[tuple[str, float]]) -> str:
    """Name one or two rows; of more, how many and which is the farthest off."""
    told = [f"{name} ({number(value)})" for name, value in them]
    if len(them) <= 2:
        return "; ".join(told)
    values = [value for _, value in them]
    worst = min(values) if wish.startswith("≥") else max(values)
    return f"{len(them)} rows, at worst {told[values.index(worst)]}"


def _extreme(result: Result) -> str:
    page = result.ours.get("page_mb")
    return result.name if page is None else f"{result.name}, {page:.1f} MB"


def _seconds(figures: Mapping[str, float]) -> float:
    return figures.get("inside_s", figures["wall_s"])


def _verdict(bound: Bound) -> str:
    return "met" if bound.met else "**missed**"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    rules = ["---"] + ["---:"] * (len(names) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in (names, rules, *rows))


BLOCKS: Final = {
    "benchmark-runs": lambda: runs(load("kafka")),
    "benchmarks": lambda: beside_kafka(load("kafka")),
    "extremes": lambda: extremes(load("extremes")),
    "extremes-runs": lambda: runs(load("extremes")),
    "missed": lambda: missed(load("kafka")),
    "spark-jobs": lambda: jobs(load("spark")),
    "spark-runs": lambda: runs(load("spark")),
    "spark-wanted": lambda: verdicts(load("spark")),
}
