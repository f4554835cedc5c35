"""A benchmark: its command, what it is compared with, and the bounds on its figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.cores import seconds_on
from benchmarks.results import Bound, Result

if TYPE_CHECKING:
    from benchmarks.processes import Figures, Pair

# Tables of processes that do not go through all of the log, or not as whole processes.
WITHOUT_RATES: Final = {"A segment of 1 MB", "Disk usage", "Indexes", "More processors",
                        "Resurrection", "Small questions", "Serve many partitions"}  # fmt: skip


def inside(figures: Figures) -> float:
    """What a process said that its work took."""
    assert figures.inside_s is not None
    return figures.inside_s


def on_processors(figures: Figures, processors: int) -> float:
    """What the work takes on many processors: a model, see `benchmarks.cores.seconds_on`."""
    assert figures.alone_wall_s is not None
    assert figures.gil_share is not None
    gil_s = figures.gil_share * figures.wall_s
    return seconds_on(processors, figures.alone_wall_s, figures.wall_s, gil_s)


def gain(figures: Figures, processors: int = 2) -> float:
    """How many times as fast the work is as on one processor: measured on two, else a model."""
    assert figures.alone_wall_s is not None
    many_s = figures.wall_s if processors == 2 else on_processors(figures, processors)
    return figures.alone_wall_s / many_s


def gil_percent(figures: Figures) -> float:
    """In how much of the time a thread held the GIL."""
    assert figures.gil_share is not None
    return 100 * figures.gil_share


def beside_codec(plain: Figures, packed: Figures) -> float:
    """Processor time for compressed data, against the uncompressed run and the codec alone."""
    assert plain.alone_cpu_s is not None
    assert packed.alone_cpu_s is not None
    assert packed.codec_cpu_s is not None
    return packed.alone_cpu_s / (plain.alone_cpu_s + packed.codec_cpu_s)


@dataclass(frozen=True)
class Wanted:
    """A bound on one figure of a row."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def value(self, pair: Pair, records: int, size_bytes: int) -> float:
        """The figure, for a log of this many records and bytes."""
        if self.figure in ("times Kafka's", "times as fast as the other"):
            assert pair.theirs is not None
            return pair.theirs.wall_s / pair.ours.wall_s
        if self.figure in ("times Kafka's in process", "times as fast as the other in process"):
            assert pair.theirs is not None
            return inside(pair.theirs) / inside(pair.ours)
        if self.figure == "times as fast on 2 processors":
            return gain(pair.ours)
        if self.figure == "% of the time with the GIL":
            return gil_percent(pair.ours)
        if self.figure == "M records/s":
            return records / pair.ours.wall_s / 1e6
        if self.figure == "GB/s":
            return size_bytes / pair.ours.wall_s / 1e9
        return {"s": pair.ours.wall_s, "MB": pair.ours.peak_mb}[self.figure]

    def is_met(self, value: float) -> bool:
        """Whether a figure is within the bound."""
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def text(self) -> str:
        """The bound in words."""
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        return f"{sign} {bound:g} {self.figure}"

    def bound(self, value: float) -> Bound:
        """The bound beside a figure."""
        return Bound(self.text(), value, self.is_met(value))


@dataclass(frozen=True)
class Row:
    """One benchmark: our command, what it is compared with, and what is wanted.

    Attributes:
        is_changing: the commands change what they are about: each run gets a copy.
        tells_seconds: the commands print the seconds that their work took in the process.
        tells_figures: the commands print all figures: they are of a process that they started.
    """

    table: str
    name: str
    dataset: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...] | None = None
    compare: bool = False
    cpus: int = 2
    wanted: tuple[Wanted, ...] = ()
    is_changing: bool = False
    tells_seconds: bool = False
    tells_figures: bool = False

    @property
    def title(self) -> str:
        """Table and name."""
        return f"{self.table}: {self.name}"

    def result(self, pair: Pair, records: int, size_bytes: int, run: str) -> Result:
        """What is recorded of a log of this many records and bytes."""

        def figures(seen: Figures) -> dict[str, float]:
            found = {name: value for name, value in asdict(seen).items() if value is not None}
            if seen.gil_share is not None:
                found |= {"times_faster_on_2": gain(seen), "on_16_s": on_processors(seen, 16),
                          "times_faster_on_16": gain(seen, 16)}  # fmt: skip
            if self.table not in WITHOUT_RATES:
                found["mb_per_s"] = size_bytes / seen.wall_s / 1e6
                found["m_records_per_s"] = records / seen.wall_s / 1e6
            return found

        figure = "times Kafka's in process" if self.tells_seconds else "times Kafka's"
        return Result(
            self.table, self.name, run, figures(pair.ours),
            figures(pair.theirs) if pair.theirs else None,
            Wanted(figure).value(pair, records, size_bytes) if pair.theirs else None,
            pair.same_output,
            tuple(one.bound(one.value(pair, records, size_bytes)) for one in self.wanted),
        )  # fmt: skip


DEEP = ("--deep-iteration", "--print-data-log")
IN_PLACE = ("{copy}", "--apply", "--yes")
CLEAN_OURS = ("python", "-m", "benchmarks.compaction", "{copy}")
CLEAN_THEIRS = ("CleanerTimes", "clean", "{copy}")


def dump(
    table: str,
    name: str,
    dataset: str,
    *options: str,
    files: str = "{logs}",
    wanted: tuple[Wanted, ...] = (),
    cpus: int = 2,
) -> Row:
    """Our drop-in and Kafka's tool with the same arguments; on one processor only for the time."""
    words = ("--files", files, *options)
    ours, theirs = ("kafkalog", "kafka-dump-log", *words), ("DumpLogSegments", *words)
    return Row(table, name, dataset, ours, theirs, cpus > 1, cpus, wanted)


def times(factor: float) -> Wanted:
    """So many times as fast as Kafka's tool."""
    return Wanted("times Kafka's", at_least=factor)


@dataclass(frozen=True)
class Trend:
    """How a figure of two rows on data of different sizes may change."""

    name: str
    figure: str
    small: str
    large: str
    at_most: float = 1.1

    def result(self, small: tuple[Pair, int], large: tuple[Pair, int], run: str) -> Result:
        """What is recorded of two pairs, each with the bytes of its log."""
        wanted = Wanted("times", at_most=self.at_most)
        if self.figure == "CPU beside the codec":
            value = beside_codec(small[0].ours, large[0].ours)
        else:
            value = self._of(large) / self._of(small)
        return Result("Trends", self.name, run, bounds=(wanted.bound(value),))

    def _of(self, measured: tuple[Pair, int]) -> float:
        pair, size_bytes = measured
        return pair.ours.peak_mb if self.figure == "memory" else pair.ours.wall_s / size_bytes
