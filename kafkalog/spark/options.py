"""The options of the data source, as text from `spark.read.option(…)`.

They are named as in Spark's own Kafka source, if that has them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.errors import UsageError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.tier_keys import TierKeys, use_keys
from kafkalog.model import Isolation, LogView
from kafkalog.spark.offsets import Edges, assigned_of, edges_of
from kafkalog.tables.model import SPLIT_SIZE, Bounds, Request, TableName, usual_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping

_Member = TypeVar("_Member", bound=StrEnum)

_ONE_OF: Final = ("assign", "subscribe", "subscribePattern")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
NAMES: Final = (
    "path", "paths", "table", "columns", "subscribe", "isolation", "mode", "replicas", "internal",
    "splitbytes", "maxtimestampdisorderms", "filterpushdown", "maxbytespertrigger",
    "failondataloss", "startingtimestamp", "endingtimestamp", "startingoffsets", "decode",
    "view", "subscribepattern", "assign", "endingoffsets", "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "includeheaders",
    "minpartitions", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay",
    "tierkey", "maxrecordsperpartition",
)  # fmt: skip
_OF_CLIENTS: Final = (
    "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms",
    "groupidprefix",
)  # fmt: skip
"""Options of Spark's own source, besides `kafka.…`, that only mean something to its clients."""
_ISOLATION: Final = "kafka.isolation.level"
_REFUSED: Final = (
    "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.interceptor.classes",
    "kafka.key.deserializer", "kafka.value.deserializer",
)  # fmt: skip
"""Those that Spark's own source refuses."""
_DELAY: Final = re.compile(r"([0-9]{1,12}) *(ms|s|m|min|h|d|)")
_DELAY_MS: Final = {
    "ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class Mode(StrEnum):
    """How damage is handled."""

    PERMISSIVE = "permissive"
    """It is skipped; the table of defects reports it."""
    FAILFAST = "failfast"
    """It ends the job."""


class Decode(StrEnum):
    """How keys and values are decoded."""

    BYTES = "bytes"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a source.

    Attributes:
        paths: the paths to read.
        request: the table, and which of its rows.
        columns: the columns; None for the default ones.
        as_text: whether keys and values are text.
        mode: how damage is handled.
        pushes_filters: whether Spark's filters are applied before anything is read.
        bytes_per_trigger: for streams: how much of the logs a batch covers; None for everything.
        fails_on_loss: whether offsets that were deleted unread are an error.
        edges: where reading begins and ends, as far as it is not by time for all partitions.
        tasks_min: the least number of tasks.
        records_max: how many offsets a task covers; None for any number.
        rows_per_trigger: for streams: how many offsets a batch covers; None for everything.
        rows_min: for streams: how many new offsets a batch waits for; None for none.
        delay_s: for streams: how long it waits for them.
        keys: what decrypts remote segments; whatever process gets the options uses them.
    """

    paths: tuple[str, ...]
    request: Request
    columns: tuple[str, ...] | None
    as_text: bool
    mode: Mode
    pushes_filters: bool
    bytes_per_trigger: int | None
    fails_on_loss: bool
    edges: Edges
    tasks_min: int | None = None
    records_max: int | None = None
    rows_per_trigger: int | None = None
    rows_min: int | None = None
    delay_s: float = 0
    keys: TierKeys = field(default_factory=TierKeys, repr=False)

    @property
    def is_as_kafkas(self) -> bool:
        """Whether the rows are those of Spark's own Kafka source: nobody has named columns."""
        return self.columns is None and self.request.table == TableName.RECORDS


def parse_options(options: Mapping[str, str], *, follows: bool = False) -> SourceOptions:
    """Parse the options; their names are case-insensitive.

    Args:
        follows: whether a stream reads: what it passes over never comes, so damage ends it as
            other losses do, unless a mode is named.

    Raises:
        UsageError: an option is unknown or has an invalid value, or no path is given.
    """
    given = _known(options)
    topics, assigned, pattern = _chosen_logs(given)
    bounds = Bounds(
        topics=None if topics is None else frozenset(topics),
        disorder_ms=_number(given, "maxTimestampDisorderMs"),
    )
    size = _number(given, "splitBytes")
    table = _member(given, "table", TableName.RECORDS)
    request = Request(
        table,
        bounds,
        _member(given, "isolation", Isolation.READ_UNCOMMITTED),
        _member(given, "replicas", usual_replicas(table)),
        _flag(given, "internal", default=False),
        SPLIT_SIZE if size is None else size,
        named=bounds,
        view=_member(given, "view", LogView.RECOVERED),
        assigned=assigned,
        pattern=pattern,
    )
    fails_on_loss = _flag(given, "failOnDataLoss", default=True)
    rows_max = _count(given, "maxOffsetsPerTrigger")
    rows_min = _count(given, "minOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise UsageError(
            f"minOffsetsPerTrigger is {rows_min}, which is higher than maxOffsetsPerTrigger, "
            f"{rows_max}."
        )
    return SourceOptions(
        _paths(given),
        request,
        _columns(given, table),
        _member(given, "decode", Decode.BYTES) == Decode.TEXT,
        _member(given, "mode", Mode.FAILFAST if follows and fails_on_loss else Mode.PERMISSIVE),
        _flag(given, "filterPushdown", default=False),
        _number(given, "maxBytesPerTrigger"),
        fails_on_loss,
        edges_of(given, fails_on_loss=fails_on_loss),
        _count(given, "minPartitions"),
        _count(given, "maxRecordsPerPartition"),
        rows_max,
        rows_min,
        _delay_s(given.get("maxtriggerdelay", "15m")),
        use_keys(_key_files(given.get("tierkey"))),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case, without those of Kafka's clients.

    `kafka.isolation.level` is our `isolation`.

    Raises:
        UsageError: there is no such option, or Spark's own source refuses it, too.
    """
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _REFUSED:
            raise UsageError(f"The option {name} is not supported, as in Spark's own source.")
        if lower == _ISOLATION:
            given.setdefault("isolation", value)
        elif lower in NAMES:
            given[lower] = value
        elif lower not in _OF_CLIENTS and not lower.startswith("kafka."):
            raise UsageError(f"There is no option {name!r}.", hint=f"There are {', '.join(NAMES)}.")
    return given


def _chosen_logs(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, frozenset[tuple[str, int]] | None, str | None]:
    """Return topics, partitions and a pattern; one of them at most is given."""
    names = [name for name in _ONE_OF if name.lower() in given]
    if len(names) > 1:
        raise UsageError(f"Only one of {', '.join(_ONE_OF)} can be given, not {len(names)}.")
    for name in names:
        if not given[name.lower()].strip(" ,"):
            raise UsageError(f"The option {name} is empty.")
    pattern = given.get("subscribepattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"The option subscribePattern is no pattern: {error}.") from None
    assigned = assigned_of(given["assign"]) if "assign" in given else None
    topics = _list(given.get("subscribe"))
    if assigned is not None:
        topics = tuple(sorted({topic for topic, _ in assigned}))
    return topics, assigned, pattern


def _columns(given: Mapping[str, str], table: TableName) -> tuple[str, ...] | None:
    names = _list(given.get("columns"))
    with_headers = _flag(given, "includeHeaders", default=True)
    if names is None and table == TableName.RECORDS and not with_headers:
        from kafkalog.tables.schemas import table_schema

        return tuple(name for name in table_schema(table).names if name != "headers")
    return names


def require_stream(asked: SourceOptions) -> None:
    """Raise `UsageError` for batch-only options, as Spark's own Kafka source does."""
    if asked.edges.end is not None:
        raise UsageError(f"A stream has no end: {asked.edges.end.option} is an option of batches.")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths: list[str] = []
    if "path" in given:
        paths.append(given["path"])
    if "paths" in given:  # as Spark passes the arguments of load(), and as a user may give them
        paths += _texts("paths", given["paths"])
    if not paths:
        raise UsageError("No path is given.", hint='spark.read.format("kafkalog").load(PATH)')
    return tuple(file_system.portable(path) for path in paths)  # tasks run in other directories


def _key_files(value: str | None) -> list[str]:
    """Return the files that are named: one, or several as a JSON array."""
    if value is None:
        return []
    return _texts("tierKey", value) if value.startswith("[") else [value]


def _texts(name: str, value: str) -> list[str]:
    """Parse a JSON array of texts."""
    try:
        several: Any = json.loads(value)
    except (ValueError, RecursionError):
        several = None
    if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
        raise UsageError(f"The option {name} is a JSON array of texts.")
    return several


def _list(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(one.strip() for one in text.split(",") if one.strip())


def _member(given: Mapping[str, str], name: str, usual: _Member) -> _Member:
    text = given.get(name.lower(), usual)
    kind = type(usual)
    try:
        return kind(text.lower())
    except ValueError:
        raise UsageError(
            f"The option {name} cannot be {text!r}.", hint=f"Give one of {', '.join(kind)}."
        ) from None


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default))
    if text.lower() not in ("true", "false"):
        raise UsageError(f"The option {name} is true or false, not {text!r}.")
    return text.lower() == "true"


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    digits, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not re.fullmatch("[0-9]{1,18}", digits) or unit not in _UNITS:
        raise UsageError(f"The option {name} is a number, such as 64m, not {text!r}.")
    return int(digits) * _UNITS[unit]


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is not None and not re.fullmatch("0*[1-9][0-9]{0,18}", text):
        raise UsageError(f"The option {name} is a number from 1 on, not {text!r}.")
    return None if text is None else int(text)


def _delay_s(text: str) -> float:
    found = _DELAY.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"The option maxTriggerDelay is a time, such as 15m, not {text!r}.")
    return int(found[1]) * _DELAY_MS[found[2]] / 1000
