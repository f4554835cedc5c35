"""How close to the limits kafkalog is: work per byte, copies of files, columns from memory."""

from __future__ import annotations

from benchmarks.datasets import CODECS, keyed, sized
from benchmarks.row import (
    CLEAN_OURS,
    CLEAN_THEIRS,
    DEEP,
    IN_PLACE,
    Row,
    Wanted,
    dump,
    times,
)  # fmt: skip

ONE_PROCESSOR = "One processor"
LIMITS = "Limits"
OTHER_IN_PROCESS = "times as fast as the other in process"


def limit_rows() -> list[Row]:
    """Both commands on one processor; ours next to what the machine does with the same bytes."""
    return [*_print_rows(), *_compaction_rows(), *_maintenance_rows(), *_copy_rows(),
            _parquet_row()]  # fmt: skip


def _print_rows() -> list[Row]:
    factors = dict.fromkeys(CODECS, 6) | {"none": 10, "gzip": 5}
    rows = [
        dump(ONE_PROCESSOR, f"deep print, {_packed('1.2 GB', codec)}, 1 processor",
             sized("1.2 GB", codec), *DEEP, wanted=(times(factor),), cpus=1)
        for codec, factor in factors.items()
    ]  # fmt: skip
    data = sized("300 MB")
    return [
        *rows,
        dump(ONE_PROCESSOR, "shallow, 300 MB, 1 processor", data, wanted=(times(2.5),), cpus=1),
        dump(ONE_PROCESSOR, "offset index verified, 300 MB, 1 processor", data,
             "--verify-index-only", files="{index}", cpus=1),
    ]  # fmt: skip


def _compaction_rows() -> list[Row]:
    four = (Wanted("times Kafka's in process", at_least=4),)
    return [
        Row(ONE_PROCESSOR, f"compaction, {_packed('300 MB', codec)}, 1 processor",
            keyed("300 MB", codec), CLEAN_OURS, CLEAN_THEIRS, cpus=1, wanted=four,
            is_changing=True, tells_seconds=True)
        for codec in CODECS
    ]  # fmt: skip


def _maintenance_rows() -> list[Row]:
    data = keyed("300 MB", "none")
    policy = ("--config", "cleanup.policy=compact")
    return [
        Row(ONE_PROCESSOR, "compact, 300 MB, 1 processor", data,
            ("kafkalog", "compact", *IN_PLACE, *policy), CLEAN_THEIRS, cpus=1, is_changing=True),
        Row(ONE_PROCESSOR, "rebuild-index, 300 MB, 1 processor", data,
            ("kafkalog", "rebuild-index", *IN_PLACE), ("CleanerTimes", "recover", "{copy}"),
            cpus=1, is_changing=True),
    ]  # fmt: skip


def _copy_rows() -> list[Row]:
    near = (Wanted(OTHER_IN_PROCESS, at_least=0.4),)
    return [
        Row(LIMITS, f"compaction and cp of what it reads and writes, {_packed('300 MB', codec)}",
            keyed("300 MB", codec), CLEAN_OURS, (*CLEAN_OURS, "--cp"), wanted=near,
            is_changing=True, tells_seconds=True)
        for codec in CODECS
    ]  # fmt: skip


def _parquet_row() -> Row:
    write = ("python", "-m", "benchmarks.parquet", "{partition}", "{to}.parquet")
    return Row(
        LIMITS, "Parquet and pyarrow from memory, 300 MB", sized("300 MB"), write,
        (*write, "--from-memory"), wanted=(Wanted(OTHER_IN_PROCESS, at_least=0.7),),
        tells_seconds=True,
    )  # fmt: skip


def _packed(size: str, codec: str) -> str:
    return size if codec == "none" else f"{size} in {codec}"
