"""Runs the benchmarks and records their results: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import processes
from benchmarks.datasets import Partition, datasets, provide
from benchmarks.decoders import MEANINGS
from benchmarks.results import Record, Result, run_key, store
from benchmarks.rows import DECODERS_DATASET, REHEARSAL_DATASET, TRENDS, all_rows
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.row import Row

KAFKALOG = Path(sys.executable).with_name("kafkalog")
DECODERS_TITLE = "Decoders"
# What kafka-run-class.sh gives every tool, as far as it is not the default of Java 17.
JAVA = ("java", "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true")  # fmt: skip
# A broker has a gigabyte by default; the map of the Cleaner alone takes an eighth of it.
CLEANER_OPTIONS = ("-Xms1g", "-Xmx1g", *JAVA[2:], "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
CLEANER_TIMES = "org.apache.kafka.storage.internals.log.CleanerTimes"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
PACKAGES = ("numpy", "numba", "pyarrow", "construct", "crc32c", "lz4", "backports.zstd", "cramjam",
            "isal", "aiokafka", "kafka-python", "py-spy")  # fmt: skip


def main() -> None:
    """Make the data, measure row after row, record after each row what there is so far."""
    options = parse_arguments()
    processes.exit_on_signals()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # which the command sets for itself
    _check_what_is_needed()
    broker_data.build()
    _compile_modules()
    failures: list[str] = []
    record = Record()
    with tempfile.TemporaryDirectory(prefix="kafkalog-benchmarks-") as scratch:
        data = options.data or Path(scratch)
        data.mkdir(parents=True, exist_ok=True)
        for record in _measure(options, data.resolve(), Path(scratch), failures):
            if options.into is not None:
                store(record, names(), options.into)
    if options.into is None:
        store(record, names(), None)
    if failures:
        raise SystemExit("\n".join(failures))


def names() -> list[str]:
    """Every result there is, in the order of the record."""
    return [row.name for row in all_rows()] + [trend.name for trend in TRENDS] + list(MEANINGS)


def parse_arguments() -> argparse.Namespace:
    """The options, `--quick` resolved."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--into", type=Path, metavar="FILE", help="merge results there (stdout)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the data here, or use it")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="rows of 'table: name' like this"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the records (1.0)")
    parser.add_argument("--runs", type=int, default=5, help="of each command at most (5)")
    parser.add_argument("--quick", action="store_true", help="the same as --scale 0.01 --runs 0")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.runs = min(options.scale, 0.01), 0
    return options


def _check_what_is_needed() -> None:
    missing = broker_data.missing_tool()
    if missing:
        raise SystemExit(missing)
    if not KAFKALOG.exists():
        raise SystemExit(f"There is no {KAFKALOG}: pip install --editable '.[dev]'")


def _compile_modules() -> None:
    """As pip does with what it installs, wherever Python itself is told to write no bytecode."""
    for package in ("formats", "kafkalog", "kafkalog_cli"):
        compileall.compile_dir(Path(__file__).parents[1] / package, quiet=2)


def _measure(
    options: argparse.Namespace, data: Path, scratch: Path, failures: list[str]
) -> Iterator[Record]:
    """Yield after each row all that was measured; `failures` gets rows that did not end well."""
    rows = [row for row in all_rows() if re.search(options.only, row.title)]
    wanted = list(dict.fromkeys(row.dataset for row in rows))
    with_decoders = bool(re.search(options.only, DECODERS_TITLE))
    if with_decoders:
        wanted += [DECODERS_DATASET, REHEARSAL_DATASET]
    if not wanted:
        raise SystemExit(f"No row is like {options.only!r}.")
    _say(f"data sets: {len(set(wanted))}")
    known = datasets()
    partitions = provide((known[name].scaled(options.scale) for name in wanted), data)
    run = run_key()
    record = Record({run: machine() | {"effort": _effort(options)}})
    if with_decoders:
        record.results.update(_decoders(partitions, run))
    pairs: dict[str, tuple[processes.Pair, int]] = {}
    seen: dict[tuple[object, ...], processes.Pair] = {}
    # What is measured alone comes first: it is soon seen when a command does not work.
    for row in sorted(rows, key=lambda row: row.theirs is not None):
        key = (row.dataset, row.ours, row.theirs, row.cpus)  # two tables may show the same
        partition = partitions[row.dataset]
        try:
            if key not in seen:
                seen[key] = _pair(row, partition, data, scratch, options.runs)
        except processes.FailedError as failed:
            failures.append(f"{row.title}\n{failed}")
            _say(failures[-1])
            continue
        size_bytes = partition.size_bytes * partition.dataset.partitions
        records = partition.dataset.records * partition.dataset.partitions
        pairs[row.name] = seen[key], size_bytes
        record.results[row.name] = row.result(seen[key], records, size_bytes, run)
        _tell(row, seen[key])
        yield record
    for trend in TRENDS:
        if {trend.small, trend.large} <= pairs.keys():
            found = trend.result(pairs[trend.small], pairs[trend.large], run)
            record.results[trend.name] = found
    yield record


def _effort(options: argparse.Namespace) -> str:
    effort = f"--scale {options.scale:g} --runs {options.runs}"
    return effort if options.scale == 1 else f"{effort}, so with other sizes than the rows say"


def _pair(row: Row, partition: Partition, data: Path, scratch: Path, runs: int) -> processes.Pair:
    work = data / "work"  # beside the data: its logs are links
    places = partition.places()
    places |= {"kafkalog": str(KAFKALOG), "python": sys.executable, "to": str(scratch / "to.out")}
    places["copy"] = str(work / partition.directory.name)
    places["work"] = str(work)
    commands = [command_line(words, places) for words in (row.ours, row.theirs) if words]
    try:
        return processes.measure(
            commands,
            row.cpus,
            runs,
            compare=row.compare,
            prepare=(lambda: partition.copy(work)) if row.is_changing else None,
            tells_seconds=row.tells_seconds,
            tells_figures=row.tells_figures,
        )
    finally:
        # some rows leave a file there, some a directory
        for place in (work, *scratch.glob("to.out*")):
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def command_line(words: tuple[str, ...], places: dict[str, str]) -> list[str]:
    """Return the command of a row, with its places filled in."""
    program, *rest = words
    if program == "sh":
        quoted = {name: shlex.quote(place) for name, place in places.items()}
        return [program, *(word.format(**quoted) for word in rest)]
    arguments = [word.format(**places) for word in rest]
    if program == "kafkalog":
        return [str(KAFKALOG), *arguments]
    if program == "DumpLogSegments":
        class_path = str(broker_data.target() / "lib" / "*")
        return [*JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", class_path,
                DUMP_LOG_SEGMENTS, *arguments]  # fmt: skip
    if program == "CleanerTimes":
        return broker_data.java_command(CLEANER_TIMES, *arguments, options=CLEANER_OPTIONS)
    return [sys.executable if program == "python" else program, *arguments]


def _decoders(partitions: dict[str, Partition], run: str) -> dict[str, Result]:
    paths = [partitions[name].places()["log"] for name in (REHEARSAL_DATASET, DECODERS_DATASET)]
    found = {}
    for name in MEANINGS:
        command = [sys.executable, "-m", "benchmarks.decoders", name, *paths]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        answer = json.loads(done.stdout)
        records, seconds = answer["records"], answer["seconds"]
        assert records == partitions[DECODERS_DATASET].end_offset, (name, answer)
        figures = {"inside_s": seconds, "m_records_per_s": records / seconds / 1e6}
        found[name] = Result(DECODERS_TITLE, name, run, figures)
        _say(f"{DECODERS_TITLE}: {name}: {seconds:.3f} s")
    return found


def machine() -> dict[str, str]:
    """What the figures depend on; nothing that names the machine."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    [clients] = (broker_data.target() / "lib").glob("kafka-clients-*.jar")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {
        "processors": f"{len(os.sched_getaffinity(0))}, {_processor()}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "Python": platform.python_version(),
        "Java": java.splitlines()[0],
        "Kafka": clients.stem.removeprefix("kafka-clients-"),
        "kafkalog": version("kafkalog"),
        "packages": packages,
        "Kafka's tool": " ".join((*JAVA, "-cp 'libs/*'", DUMP_LOG_SEGMENTS, "...")),
    }


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _tell(row: Row, pair: processes.Pair) -> None:
    theirs = ""
    if pair.theirs is not None:
        theirs = f", Kafka's {pair.theirs.wall_s:.2f} s, {pair.theirs.peak_mb:.0f} MB"
    differs = ", OUTPUT DIFFERS" if pair.same_output is False else ""
    ours = f"{pair.ours.wall_s:.2f} s, {pair.ours.peak_mb:.0f} MB"
    if pair.ours.inside_s is not None:
        ours += f", in process {pair.ours.inside_s:.2f} s"
    if pair.theirs is not None and pair.theirs.inside_s is not None:
        theirs += f", in process {pair.theirs.inside_s:.2f} s"
    _say(f"{row.title}: {ours}{theirs}{differs}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
