"""The Markdown page of the results, `docs/performance.md`."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from benchmarks.decoders import MEANINGS
from benchmarks.row import (
    Row,
    Trend,
    beside_codec,
    gain,
    gil_percent,
    inside,
    on_processors,
)  # fmt: skip
from benchmarks.rows import TRENDS, all_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.datasets import Partition
    from benchmarks.processes import Figures, Pair

    # Of the size and the records of a log, and what was measured over it.
    Figure = Callable[[int, int, Figures], float | None]

COMMAND = "python -m benchmarks --to docs/performance.md"

HEAD = """\
<!-- Written by `make bench`, not by hand. -->
# Performance

How fast kafkalog is, compared with Kafka's own tools on the same files. One command makes the data,
measures, and writes this page; like `make test`, it needs Java 17 and Maven.

```sh
make bench
```

It is `{command}`. Without `--to` the page goes to stdout;
`--data DIR` keeps the data for the next run ({gigabytes:.1f} GB); `--only REGEX` measures some of
the rows, and `--into FILE` puts them into a page that is there; `--scale`, `--runs` and `--quick`
measure less of everything. This page: {effort}.

Each figure is for a whole process, with its files in the page cache and its stdout discarded. The
two commands take turns. The first run of each is not counted; in it, their output is compared
(*same bytes*). A command that ends within 5 s is run `--runs` times and its median counts; one that
ends within 20 s, at most 3 times; a slower one, once. *CPU* is user and system time,
*memory* the largest resident size of a process (the kernel counts no less than the 24 MB of the
one that measures), *MB/s* the size of the log over the wall time. MB and GB are powers of ten.

Kafka's tool runs with what `kafka-run-class.sh` gives it, but without the script itself, its JMX
agent and its log4j configuration, all of which would slow it down:

    {java}

A segment of Kafka's ends at 2 GiB, since its positions are int32: "4 GB" is a partition of
two segments of about 2 GB, given as `--files A,B` or as the directory. The records have keys of
10 bytes and values of JSON-like text, 100 bytes unless stated otherwise, 150 per batch. "300 MB" is
2.5 million records, even if they are compressed and the file is smaller. Kafka's own storage
classes write them from a seed: the same bytes each time, with real indexes.
"""

MISSED = """\
Where targets were missed when this was written, the time went to:

- *Start-up*: Python, numpy and the kernels take 0.12 s to load: more than half of *shallow, 300
  MB*, a third of *rebuild-index*, a quarter of *deep print, 300 MB*. Typer alone takes 0.05 to 0.08
  s, which is nearly all of `--help`. `cat` takes 0.4 s for the 4 GB of *shallow*: six times faster
  than Kafka's tool would be faster than reading.
- *deep print*: a chunk of 2 MB is read, decoded and printed in a few calls of kernels; between them
  two threads wait for each other's Python. Seconds and GB/s are those of the machine's day (Kafka's
  own print of 300 MB took 7 to 11 s on different days); ratios are of the same run.
- *compaction*: half of the time is spent in the kernels (checksums, decoding, hashes of keys, the
  map, new batches), a third in the operating system (reading, writing and syncing the file, fresh
  pages, removing the old file), the rest in Python, once per 2 MB. The log is decoded once to judge
  it and to build the map; then only batches that lose some of their records are decoded again. The
  whole process adds 0.25 s of start-up and the end.
- *compaction and cp*: `cp` copies in the kernel, and syncs nothing; it takes 0.15 s for 300 MB.
- *verify deep*: start-up takes 0.3 s of the processors' 1.4 s, reading 0.3 s, kernels 0.45 s, the
  rest is Python, most of it checks of all headers. Reading in the threads that check, while another
  one looks at headers, was tried: no gain.
- *table*: Python makes each cell; the texts of the other formats come from kernels.
- *Parquet*: start-up takes 0.4 s, half of it for pyarrow. After that pyarrow encodes and
  compresses in one thread, which sets the pace; 40 % of its time is snappy.
- *count by SQL*: loading pyarrow and DuckDB takes 0.3 s of processor time, and the count as much as
  the walk over the headers.
- *1 and 2 processors*: a thread that waits for a processor while it holds the GIL counts as one
  that holds it. In `verify` a third of the samples are in the calls that wake another thread. With
  a switch interval of 0.05 to 1 ms in place of Python's 5 ms no command was clearly faster.
"""

NOTES = {
    "Deep print": "`kafka-dump-log --deep-iteration --print-data-log`: every record with key and "
    "payload.",
    "Shallow": "`kafka-dump-log` without options: batch headers, checksums checked.",
    "Indexes": "`kafka-dump-log --verify-index-only`: every entry against the log.",
    "Verify": "`verify` over the partition at its levels. Against it, Kafka's shallow pass over "
    "the log with `--verify-index-only` for its two indexes, in one process.",
    "Search": "`find` for a key that 1 in 100,000 records has, and for a regular expression that 1 "
    "in a million values matches. `diff` reads the log twice; the size is that of one. Measured "
    "once, in addition: a consumer of librdkafka (confluent-kafka 2.16.1) that compares the keys "
    "of the 10 million records of 1.2 GB took 58 s and 8.8 s of processor time, without the "
    "broker's, when `find` took 1.4 s and 0.8 s on the same busy machine.",
    "For other programs": "`dump-segment`, as a table and with `--format ndjson`, against "
    "Kafka's deep print, and `dump-segment --format parquet --to FILE`.",
    "Decoding": "`export --value avro --schemas` to Parquet, against `export` alone. It decodes "
    "each value into 10 more columns: two longs, an int, a float, a double, two strings, an enum, "
    "a boolean and a nullable string. Python writes the log, not Kafka's classes.",
    "SQL": "`sql` by DuckDB. `count(*)` against `verify --level quick`, which walks over "
    "headers; the count by key against `export` to Parquet and DuckDB over its files.",
    "Tiers": "`export` of a partition's segments in remote storage, against `export` of the same "
    "partition in a log directory. All are on the same disk: nothing is fetched over a network. "
    "The tier of Aiven's plugin has chunks of 4 MiB.",
    "Groups": "`groups` over committed offsets of 500 groups with 20 partitions each, 20 records "
    "per batch, against `kafka-dump-log --offsets-decoder`, which prints each record. The log is "
    "written by numpy, not by Kafka's classes.",
    "Disk usage": "`du` over a log directory of 10,000 partitions of one small segment; with "
    "`--forecast` it also reads indexes and batch headers, as `simulate-retention` does. "
    "The `du` of coreutils sums the same blocks.",
    "Serve": "`serve` against a broker that has links to the same logs: a topic of four "
    "partitions, read once by a client on the same machine. Wall is that of the client, from its "
    "first request on; kafka-consumer-perf-test states it, without joining its group. CPU and "
    "memory are the server's. `serve` checks each batch meanwhile; the broker does not, and was "
    "read once before. The kernel sends bytes of files (`sendfile`) but in the rows *through "
    "memory*: plain reads and writes, as where it cannot.",
    "Serve many partitions": "`serve` over 10,000 partitions of 200 records. Wall is from the "
    "start of the command until a client of librdkafka, which tried to connect all the time, has "
    "the first record; and what such a client needs for all records.",
    "Resurrection": "`resurrect` of a log directory of 10,000 partitions without any metadata: "
    "everything is read, judged, copied and synced. `cp` and `sync` copy the same files, and know "
    "nothing of them: no tool of Kafka makes a log directory that starts.",
    "Compaction": "The Cleaner of Kafka's storage classes with its defaults (a map of 128 MB) and "
    "ours, which also judges the whole log first and reads back what it wrote: in process, and the "
    "whole process of each. 2.5 million records with 917,874 keys, one closed segment.",
    "Keys": "Our compaction of records of 20 bytes, two of three of them the last of their key.",
    "Maintenance": "Whole commands: `compact --in-place` against the Cleaner, `rebuild-index "
    "--in-place` against `LogSegment.recover` of Kafka's storage classes.",
    "A segment of 1 MB": "Every mode of `kafka-dump-log` where start-up is most of the time.",
    "Small questions": "What must not depend on the size of the segment, here 1.2 GB. "
    "The last one is the deep print into `head -1`.",
    "Scaling": "The deep print, both commands bound to one or two processors.",
    "One processor": "Both processes bound to one processor: the work per byte, which other work "
    "on the machine cannot hide. The commands are those of the tables above.",
    "Limits": "Compaction, which reads its segments twice, syncs what it wrote and reads it back, "
    "against `cp`, which copies the same segments and the result, and syncs nothing; and the whole "
    "process of `dump-segment --format parquet` against pyarrow alone, which writes the same "
    "columns from memory, in the same encodings. *In process* is the time of that work.",
    "More processors": "The same work in a process on one processor and on two, without the start "
    "of the process, which has done that work before. *GIL held* is the part of the time on two "
    "processors in which one of its threads held the GIL, as py-spy saw it 500 times a second "
    "at random moments. *On 16* is not measured, but a model: with t1 and t2 seconds on one and "
    "two processors, the part that all threads share takes p = 2 (t1 - t2) on one processor, "
    "and n of them need t1 - p + p / n, but no less time than the GIL is held. It knows nothing "
    "of the width of memory; where the two processors are threads of one core, it promises too "
    "little. *CPU s* is that on one processor, *codec's CPU s* what one call of the codec's "
    "package for each batch takes alone.",
    "Kafka's JMH axes": "The deep print over the axes of Kafka's `BaseRecordBatchBenchmark` "
    "(codec, batch size, message size, headers), and transactions with their markers. About 32 MB "
    "each before compression.",
    "Physical references": "What the machine does with the same bytes.",
}  # fmt: skip

# Tables of processes that do not go through all of the log.
WITHOUT_RATES = {"A segment of 1 MB", "Disk usage", "Indexes", "Resurrection",
                 "Small questions", "Serve many partitions"}  # fmt: skip


_SAME_OUTPUT = "output of Kafka's tool"
_NO_ROWS = ("| ---", "| what |", "| ours / ", "| decoder |", f"| {_SAME_OUTPUT} |")


@dataclass(frozen=True)
class Results:
    """All that was measured."""

    machine: dict[str, str]
    java: str
    runs: int
    scale: float
    rows: list[Row]
    pairs: dict[str, Pair]
    partitions: dict[str, Partition]
    decoders: dict[str, tuple[int, float]]

    def size(self, row: Row) -> int:
        """Bytes of the logs that a row is about."""
        partition = self.partitions[row.dataset]
        return partition.size_bytes * partition.dataset.partitions

    def records(self, row: Row) -> int:
        """Records of the logs that a row is about."""
        dataset = self.partitions[row.dataset].dataset
        return dataset.records * dataset.partitions


def page(results: Results) -> str:
    """The whole page."""
    total = sum(partition.size_bytes for partition in results.partitions.values())
    effort = f"`--scale {results.scale:g} --runs {results.runs}`"
    if results.scale != 1:
        effort += ", so **with other sizes than the rows say**"
    parts = [
        HEAD.format(command=COMMAND, effort=effort, java=results.java, gigabytes=total / 1e9),
        "## Machine\n\n" + _table(("what", "which"), results.machine.items()),
        "## Wanted and measured\n\n" + _wanted(results) + "\n" + MISSED,
    ]
    for title in dict.fromkeys(row.table for row in results.rows):
        rows = [row for row in results.rows if row.table == title]
        has_others = any(row.theirs for row in all_rows() if row.table == title)
        draw = _beside_kafka if has_others else _alone
        note = textwrap.fill(NOTES[title], 100)
        parts.append(f"## {title}\n\n{note}\n\n{draw(results, rows)}")
    if results.decoders:
        parts.append("## Decoders\n\n" + _decoders(results))
    return "\n".join(parts)


def merged(old: str, new: str) -> str:
    """Return a page with the rows of another, which measured some of them later.

    Rows that it has already are replaced, others end their tables; new tables come in the order of
    `NOTES`.
    """
    lines = old.splitlines()
    for title, section in _sections(new).items():
        if title == "Machine":
            continue
        if title not in _sections("\n".join(lines)):
            order = [*NOTES, "Decoders"]
            after = {f"## {one}" for one in order[order.index(title) + 1 :]}
            place = next(number for number, line in enumerate(lines) if line in after)
            lines[place:place] = [f"## {title}", *section]
            continue
        found: dict[str, list[str]] = {}
        for row in section:
            if row.startswith("| ") and not row.startswith(_NO_ROWS):
                found.setdefault(_name(row), []).append(row)
        for name, rows in found.items():
            start = lines.index(f"## {title}")
            end = _end_of_table(lines, start)
            same = [at for at in range(start, end) if _name(lines[at]) == name]
            for at in reversed(same):
                del lines[at]
            place = same[0] if same else end
            lines[place:place] = rows
    return "\n".join(lines) + "\n"


def _name(line: str) -> str:
    """What a row is about; there may be several bounds on it."""
    return line.split(" | ", maxsplit=1)[0]


def _sections(page: str) -> dict[str, list[str]]:
    """The lines below each heading."""
    found: dict[str, list[str]] = {}
    for part in page.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        found[title] = [*lines, ""] if lines[-1] else lines
    return found


def _end_of_table(lines: list[str], start: int) -> int:
    first = next(at for at in range(start, len(lines)) if lines[at].startswith("| ---"))
    return next(
        (at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines)
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names, body = list(head), [list(row) for row in rows]
    rules = []
    for column in zip(*body, strict=True):
        is_number = all(cell[:1] == "-" or cell[:1].isdigit() for cell in column)
        rules.append("---:" if is_number else "---")
    return "".join(f"| {' | '.join(line)} |\n" for line in (names, rules, *body))


def _wanted(results: Results) -> str:
    lines = []
    for row in results.rows:
        for wanted in row.wanted:
            value = wanted.value(results.pairs[row.name], results.records(row), results.size(row))
            verdict = _verdict(wanted.is_met(value))
            lines.append((row.name, wanted.text(), _number(value), verdict))
    for trend in TRENDS:
        if {trend.small, trend.large} <= results.pairs.keys():
            value = _growth(results, trend)
            wish = f"≤ {trend.at_most:g} times"
            lines.append((trend.name, wish, _number(value), _verdict(value <= trend.at_most)))
    same = [pair.same_output for pair in results.pairs.values() if pair.same_output is not None]
    if same:
        found = f"{sum(same)} of {len(same)}"
        lines.append((_SAME_OUTPUT, "same bytes", found, _verdict(all(same))))
    return _table(("what", "wanted", "measured", "verdict"), lines)


def _growth(results: Results, trend: Trend) -> float:
    rows = {row.name: row for row in results.rows}

    if trend.figure == "CPU beside the codec":
        return beside_codec(results.pairs[trend.small].ours, results.pairs[trend.large].ours)

    def figure(name: str) -> float:
        ours = results.pairs[name].ours
        if trend.figure == "memory":
            return ours.peak_mb
        return ours.wall_s / results.size(rows[name])

    return figure(trend.large) / figure(trend.small)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _beside_kafka(results: Results, rows: list[Row]) -> str:
    figures = _figures(rows)
    own = ("Decoding", "SQL", "Tiers", "Limits")
    other = "the other" if rows[0].table in own else "Kafka's"
    head = (f"ours / {other}", *(name for name, _ in figures), "times faster", "same bytes")
    lines = []
    for row in rows:
        pair = results.pairs[row.name]
        took = inside if row.tells_seconds else attrgetter("wall_s")
        ratio = _number(took(pair.theirs) / took(pair.ours)) if pair.theirs else "-"
        same = {None: "-", True: "yes", False: "**no**"}[pair.same_output]
        cells = (_both(results, row, figure) for _, figure in figures)
        lines.append((row.name, *cells, ratio, same))
    return _table(head, lines)


def _alone(results: Results, rows: list[Row]) -> str:
    figures = _figures(rows)
    lines = [(row.name, *(_both(results, row, figure) for _, figure in figures)) for row in rows]
    return _table(("what", *(name for name, _ in figures)), lines)


def _figures(rows: list[Row]) -> tuple[tuple[str, Figure], ...]:
    if all(row.table == "More processors" for row in rows):
        return (
            ("on 1, s", lambda _, __, seen: seen.alone_wall_s or 0),
            ("on 2, s", lambda _, __, seen: seen.wall_s),
            ("times faster", lambda _, __, seen: gain(seen)),
            ("GIL held, %", lambda _, __, seen: gil_percent(seen)),
            ("on 16, s", lambda _, __, seen: on_processors(seen, 16)),
            ("times faster on 16", lambda _, __, seen: gain(seen, 16)),
            ("CPU s", lambda _, __, seen: seen.alone_cpu_s or 0),
            ("codec's CPU s", lambda _, __, seen: seen.codec_cpu_s),
            ("memory MB", lambda _, __, seen: seen.peak_mb),
        )
    figures: tuple[tuple[str, Figure], ...] = (
        ("wall s", lambda _, __, seen: seen.wall_s),
        ("CPU s", lambda _, __, seen: seen.cpu_s),
        ("memory MB", lambda _, __, seen: seen.peak_mb),
    )
    if tells_seconds(rows[0].table):
        figures = (("in process s", lambda _, __, seen: seen.inside_s), *figures)
    if any(row.table in WITHOUT_RATES for row in rows):
        return figures
    return (
        *figures,
        ("MB/s", lambda size, _, seen: size / seen.wall_s / 1e6),
        ("M records/s", lambda _, records, seen: records / seen.wall_s / 1e6),
    )


def tells_seconds(table: str) -> bool:
    """Whether a process of this table says what its work took; the others have no such figure."""
    return any(row.tells_seconds for row in all_rows() if row.table == table)


def _both(results: Results, row: Row, figure: Figure) -> str:
    pair = results.pairs[row.name]
    seen = [pair.ours] if pair.theirs is None else [pair.ours, pair.theirs]
    size, records = results.size(row), results.records(row)
    return " / ".join(_number(figure(size, records, each)) for each in seen)


def _decoders(results: Results) -> str:
    head = ("decoder", "M records/s", "s", "what it is")
    lines = [
        (name, _number(records / seconds / 1e6), _number(seconds), MEANINGS[name])
        for name, (records, seconds) in results.decoders.items()
    ]
    return (
        "Offset, key and value of every record of one uncompressed segment, 100 MB, each decoder\n"
        "in a fresh process; imports, reading the file and a rehearsal are outside the time. Less\n"
        "than a second is the median of several passes.\n"
        "Those of kafkalog check framing and checksums as well.\n\n" + _table(head, lines)
    )


def _number(value: float | None) -> str:
    """As many digits as count."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
