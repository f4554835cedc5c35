"""The plan of an export: everything that decides its bytes, fixed before the first is written."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from formats.late_classes import dataclass
from kafkalog.change.lake.increments import next_increment
from kafkalog.change.lake.model import Gap, Increment, TableFormat
from kafkalog.change.lake.options import options_of, require_what_applies
from kafkalog.change.lake.targets import file_name
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    KafkaLogError,
    Listener,
    UnreadableError,
    UsageError,
)
from kafkalog.files.offsets import LeftOut, PartitionOffsets
from kafkalog.io.documents import (
    Anything,
    Entries,
    Fields,
    Items,
    Maybe,
    Number,
    OneOf,
    Row,
    Text,
    read_document,
    schema_of,
)
from kafkalog.io.paths import file_system
from kafkalog.log.typed.remarks import Remark, placed
from kafkalog.model import LogView, computed_once
from kafkalog.tables import Split, announced, plan_splits
from kafkalog.tables.model import OF_LOGS, TableName, partition_ends
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.errors import Event
    from kafkalog.tables.model import Offsets

VERSION = 2
_TASK_SIZE_MIN = 1 << 20
_BY_PATH = ("topic", "partition")
_WITH_STATES = (TableName.RECORDS, TableName.BATCHES)


@dataclass(frozen=True, slots=True)
class Part:
    """One file.

    Attributes:
        file: path relative to the destination.
        splits: consecutive splits of one partition directory.
    """

    _row = ("number", "file", "size_bytes")

    number: int
    file: str
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        """Number of bytes to read."""
        return sum(split.size_bytes for split in self.splits)

    def as_json(self) -> dict[str, Any]:
        splits = [split.as_json() for split in self.splits]
        return {"number": self.number, "file": self.file, "splits": splits}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        splits = tuple(Split.from_json(one) for one in fields["splits"])
        return cls(fields["number"], fields["file"], splits)


@dataclass(frozen=True)
class Plan:
    """The plan of an export.

    Attributes:
        options: the request, as JSON.
        columns: the columns of the files.
        sources: the files that are read, with their sizes at that time.
        parts: the files that are written.
        ends: for each partition, which bound decides where its rows end.
        increment: what an appending run adds; None for others.
        schema: for an appending run, that of the files, as `schema_text` returns it.
        lacking: the partitions that could not be read.
        remarks: what typed columns have another type for than one may expect.
    """

    options: dict[str, Any]
    columns: tuple[str, ...]
    sources: dict[str, int]
    parts: tuple[Part, ...]
    ends: tuple[PartitionOffsets, ...] = ()
    increment: Increment | None = None
    schema: str | None = None
    lacking: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def table(self) -> TableName:
        return TableName(self.options["table"])

    @property
    def left_out(self) -> LeftOut:
        """The records that no file gets."""
        return LeftOut.by(self.ends)

    @property
    def size_bytes(self) -> int:
        """Number of bytes to read."""
        return sum(part.size_bytes for part in self.parts)

    @computed_once
    def id(self) -> str:
        """A hash of the plan, the same whenever and wherever it was made."""
        # Machines and moments see files and the ends of logs differently; the bytes are the same.
        parts = [replace(part, splits=tuple(map(_unseen, part.splits))) for part in self.parts]
        return sha256(replace(self, parts=tuple(parts), ends=()).as_bytes()).hexdigest()

    def as_bytes(self) -> bytes:
        fields = {
            "version": VERSION,
            "options": self.options,
            "columns": self.columns,
            "sources": self.sources,
            "ends": [asdict(one) for one in self.ends],
            "increment": None if self.increment is None else asdict(self.increment),
            "parts": [part.as_json() for part in self.parts],
            **({} if self.schema is None else {"schema": self.schema}),
            **({"lacking": self.lacking} if self.lacking else {}),
            **({"remarks": [asdict(one) for one in self.remarks]} if self.remarks else {}),
        }
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> Self:
        """Rebuild the plan from the result of `as_bytes`, found at a place.

        Raises:
            UnreadableError: it is from another release.
            CorruptDataError: it is not a plan.
        """
        fields = read_document(data, _VERSIONED, place, "a plan of an export")
        if fields["version"] != VERSION:
            raise UnreadableError(
                f"This plan has version {fields['version']}; version {VERSION} is known.",
                path=place,
                hint="Continue with the release that started it, or start in another directory.",
            )
        fields = read_document(data, _PLAN, place, "a plan of an export")
        return cls(
            fields["options"],
            tuple(fields["columns"]),
            fields["sources"],
            tuple(Part.from_json(one) for one in fields["parts"]),
            tuple(PartitionOffsets.from_json(one) for one in fields["ends"]),
            None if fields["increment"] is None else Increment.from_json(fields["increment"]),
            fields.get("schema"),
            tuple(fields.get("lacking", ())),
            tuple(Remark(**one) for one in fields.get("remarks", ())),
        )


_OFFSETS = Entries(Text(), Row((Number(), Number(-1))))
INCREMENT = Fields(
    {
        "number": Number(),
        "start": _OFFSETS,
        "end": _OFFSETS,
        "gaps": Items(schema_of(Gap)),
        "gone": Items(Text()),
    }
)
# Schemas describe up to 10,000 fields.
SCHEMA_TEXT = Text(length_max=1 << 24)
_VERSIONED = Fields({"version": Number()}, others=Anything())
_PLAN = Fields(
    {
        "version": OneOf((VERSION,)),
        "options": Anything(),  # compared with the request
        "columns": Items(Text()),
        "increment": Maybe(INCREMENT),
        "sources": Entries(Text(), Number()),
        "parts": Items(
            Fields(
                {
                    "number": Number(),
                    "file": Text(),
                    "splits": Items(
                        schema_of(Split, optional=("looks_for_gap", "log_dirs")), count_min=1
                    ),
                }
            )
        ),
        "ends": Items(schema_of(PartitionOffsets)),
    },
    {"schema": SCHEMA_TEXT, "lacking": Items(Text()), "remarks": Items(schema_of(Remark))},
)


def _unseen(split: Split) -> Split:
    return split if split.seen is None else replace(split, seen=None)


def make_plan(
    asked: ExportRequest, listener: Listener, last: Increment | None = None,
    until: Offsets | None = None,
) -> Plan:  # fmt: skip
    """Make the plan for a request.

    Args:
        listener: as for `plan_splits`; for an appending run, what logs lack between their segments
            are gaps of the increment.
        last: for an appending run the increment before; None for the first.
        until: for an appending run where it ends at the latest; None for the ends of the logs.

    Raises:
        UsageError: a column is unknown, none is left, bounds do not fit the table, a partition
            directory is given twice, or a schema of a typed column is malformed.
        UnsupportedError: a package for a typed column is missing.
        NotFoundError, UnreadableError, NotAKafkaFileError: as `plan_splits`.

    Cost:
        That of `plan_splits`, and the status of each file.
    """
    request = asked.request
    require_what_applies(asked)
    remarks = placed({one.name: one.decoder().remarks for one in asked.typed})
    paths = [file_system.absolute(path) for path in asked.paths]
    columns = [
        name for name in table_schema(request.table, asked.columns).names if name not in _BY_PATH
    ]
    if asked.columns is None and request.view == LogView.ALL and request.table in _WITH_STATES:
        columns.append("state")
    if asked.columns is None and asked.append and request.table == TableName.RECORDS:
        columns.append("leader_epoch")  # tells records apart that another leader replaced
    if not columns:
        raise UsageError("The files would have no columns: topic and partition are in their names.")
    if len({*columns}) < len(columns):
        raise UsageError("A column is given twice.")
    increment = None
    heard = _Heard(listener)
    with file_system.listings_held(paths):
        if asked.append:
            increment, splits, there = next_increment(paths, request, last, heard, until)
            heard.ends = partition_ends(there, request, heard)
        else:
            splits = plan_splits(paths, replace(request, gaps_when_read=True), heard)
        _require_each_once(splits)
        sources = _sources(splits)
    suffix, number = asked.writing.suffix, None if increment is None else increment.number
    options = options_of(asked)
    return Plan(
        options,
        tuple(columns),
        sources,
        tuple(
            _parts(splits, request.split_bytes, suffix, number, names_topic=_names_topic(options))
        ),
        tuple(heard.ends),
        increment,
        lacking=tuple(heard.lacking),
        remarks=remarks,
    )


class _Heard(Listener):
    """Collects the ends of logs and the logs that cannot be read; each error is passed on once."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.ends: list[PartitionOffsets] = []
        self.lacking: dict[str, None] = {}

    def hear(self, event: Event) -> None:
        if isinstance(event, PartitionOffsets):
            self.ends.append(event)
            return
        if isinstance(event, KafkaLogError) and event.partition is not None:
            if event.partition.path in self.lacking:
                return
            self.lacking[event.partition.path] = None
        self._listener.hear(event)


def tasks_of(parts: Iterable[Part], split_bytes: int, common: dict[str, Any]) -> list[Any]:
    """Return tasks for parts, small ones together."""
    groups: list[list[Part]] = []
    room = 0
    size = max(split_bytes, _TASK_SIZE_MIN)
    for part in parts:
        cost = max(part.size_bytes, size // 64)  # as in `_parts`: a small part takes time, too
        if not groups or cost > room:
            groups.append([])
            room = size
        groups[-1].append(part)
        room -= cost
    return [
        {
            **common,
            "size_bytes": sum(part.size_bytes for part in group),
            "parts": [part.as_json() for part in group],
        }
        for group in groups
    ]


def parts_of(task: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the parts of a task, whose splits are read in this order."""
    parts = [Part.from_json(fields) for fields in task["parts"]]
    with announced(split for part in parts for split in part.splits):
        yield from parts


def require_own(plan: Plan, now: Plan, suffix: str, place: str) -> None:
    """Raise unless an export with these options would have made a plan that was found.

    The logs may have grown since; the names of the files must be those that its splits give them,
    and its sources must be among the requested paths.

    Args:
        plan: the plan that was found, whose options equal those of `now`.
        now: the plan that would be made now.
        suffix: suffix of the file names.
        place: where the plan was found.

    Raises:
        CorruptDataError: it is not a plan of this export.
    """
    splits = [split for part in plan.parts for split in part.splits]
    replicas = _replicas(splits)
    asked = plan.options["paths"]
    # Others can write to the destination: its plan must not make us read or replace other files.
    is_own = plan.columns == now.columns and all(
        _is_in(path, asked) for path in (*plan.sources, *(split.path for split in splits))
    )
    commit = None if plan.increment is None else plan.increment.number
    for number, part in enumerate(plan.parts):
        file = file_name(
            list(part.splits), replicas[_home(part.splits[0])], suffix, commit,
            names_topic=_names_topic(plan.options),
        )  # fmt: skip
        is_own = is_own and (part.number, part.file) == (number, file)
    if not is_own or any(split.table != plan.table for split in splits):
        raise CorruptDataError(
            "This is not the plan of this export: it reads or writes other files.",
            path=place,
            hint="Was it edited? Export into another directory.",
        )


def _is_in(path: str, asked: Iterable[str]) -> bool:
    # `PATH/../other` begins with PATH.
    is_direct = not {os.curdir, os.pardir} & set(path.split("/"))
    return is_direct and any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in asked)


def require_unchanged(plan: Plan) -> None:
    """Raise unless the files still have the bytes that an earlier plan will read.

    The last log of a partition may have grown: a plan states where it ends.

    Raises:
        ChangedSinceError: a file is gone, or has another size.
    """
    for path, size in plan.sources.items():
        now = _size_of(path)
        grows = plan.table in OF_LOGS and _is_last(path, plan.sources)
        if now != size and not (grows and now is not None and now > size):
            raise ChangedSinceError(
                f"The file had {size} bytes when the export started, "
                + ("and is gone." if now is None else f"and has {now}."),
                path=path,
                hint="Export the present files into another directory.",
            )


def _names_topic(options: Mapping[str, Any]) -> bool:
    """Return whether the topic is a directory of the destination: above types it is around it."""
    return options.get("of_type") is None or options["table_format"] != TableFormat.FILES


def _parts(
    splits: list[Split], size: int, suffix: str, commit: int | None = None, *,
    names_topic: bool = True,
) -> list[Part]:  # fmt: skip
    """Group consecutive splits of a partition directory into files of limited size."""
    groups: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = max(split.size_bytes, size // 64)  # opening a file has a cost
        if not groups or cost > room or _home(groups[-1][-1]) != _home(split):
            groups.append([])
            room = size
        groups[-1].append(split)
        room -= cost
    replicas = _replicas(splits)
    return [
        Part(
            number,
            file_name(group, replicas[_home(group[0])], suffix, commit, names_topic=names_topic),
            tuple(group),
        )
        for number, group in enumerate(groups)
    ]


def _require_each_once(splits: Iterable[Split]) -> None:
    seen: set[tuple[str, int]] = set()
    for split in splits:
        if (split.path, split.start) in seen:
            raise UsageError(
                "This is given twice.",
                path=split.path,
                hint="Name each log directory, partition or segment once.",
            )
        seen.add((split.path, split.start))


def _home(split: Split) -> tuple[str, int, str]:
    is_directory = split.table in (TableName.SEGMENTS, TableName.PRODUCERS)
    return (
        split.topic,
        split.partition,
        split.path if is_directory else os.path.dirname(split.path),
    )


def _replicas(splits: Iterable[Split]) -> dict[tuple[str, int, str], int | None]:
    """Number the directories of each partition; None if there is only one."""
    places: dict[tuple[str, int], list[str]] = {}
    for split in splits:
        topic, partition, place = _home(split)
        known = places.setdefault((topic, partition), [])
        if place not in known:
            known.append(place)
    return {
        (*name, place): number if len(known) > 1 else None
        for name, known in places.items()
        for number, place in enumerate(known)
    }


def _sources(splits: Iterable[Split]) -> dict[str, int]:
    paths = []
    for split in splits:
        # A split of these tables is a directory: they are made of its small files.
        if split.table in (TableName.SEGMENTS, TableName.PRODUCERS):
            names = file_system.names(split.path)
            paths += [os.path.join(split.path, name) for name in names]
        else:
            paths.append(split.path)
    return {path: size for path in paths if (size := _size_of(path)) is not None}


def _size_of(path: str) -> int | None:
    try:
        return file_system.stat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{error.strerror}.", path=path) from error


def _is_last(path: str, sources: Mapping[str, int]) -> bool:
    """Return whether a log is the last one of its partition in the plan."""
    place = os.path.dirname(path)
    return not any(os.path.dirname(other) == place and other > path for other in sources)
