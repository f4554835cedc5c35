"""How keys and values are read: the words of the options about it, and what they ask for."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from formats.file_names import partition_of
from formats.late_classes import dataclass
from kafkalog.errors import DataError, NotAKafkaFileError, UsageError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import none_announced
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.text import BytesFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.answers.search.table import Decode
    from kafkalog.files.log_dir import FileEntry, PartitionDir
    from kafkalog.model import Record
    from kafkalog_cli.output.decoded import Decoded

_SCHEMA_SIZE_MAX: Final = 16 << 20
_FIRST_RECORDS: Final = 10
FORMS: Final = (*BytesFormat, *TypedForm)


@dataclass(frozen=True)
class Payload:
    """How keys or values are read.

    Attributes:
        source: `key` or `value`.
        form: how bytes are shown that are not decoded.
        typed: the form that a schema, or JSON itself, gives types to; None for plain bytes.
        framing: what precedes the data; None for the usual.
        schema: the file with the schema; None without one.
        message: full name of the Protobuf message; None for the first one.
        registry: the place with the schemas that the data was written with.
    """

    source: str
    form: BytesFormat
    typed: TypedForm | None = None
    framing: str | None = None
    schema: str | None = None
    message: str | None = None
    registry: str | None = None

    @property
    def is_auto(self) -> bool:
        """Whether the data itself shows what it is."""
        return self.typed is None and self.form == BytesFormat.AUTO

    def columns(self, topics: Sequence[str] = ()) -> tuple[TypedColumn, ...]:
        """Return the typed column, if it is one.

        Args:
            topics: the topics that are read.

        Raises:
            UsageError: the schema cannot be read, or does not decide what the column is.
        """
        if self.typed is None:
            return self._of_subject(topics)
        kind, schema_id = self._framing()
        is_by_id = self.registry is not None and kind != Framing.NONE
        if self.schema is None and not is_by_id and self.typed != TypedForm.JSON:
            raise UsageError(
                f"--{self.source}-format {self.typed} needs a schema.",
                hint=f"--{self.source}-schema FILE, or --registry PLACE",
            )
        contents = b"" if self.schema is None else _contents(self.schema)
        given = TypedColumn(self.source, self.typed, contents, self.message, kind, schema_id)
        if not is_by_id:
            return (given,)
        from kafkalog.tables.schema_columns import column_by_id
        from kafkalog.tables.schema_registry import read_registry

        assert self.registry is not None, "ids need a place"
        return (column_by_id(given, read_registry(self.registry), topics),)

    def _of_subject(self, topics: Sequence[str]) -> tuple[TypedColumn, ...]:
        """Return the column whose form is that of the topic's subject, if there is one."""
        if self.registry is None or self.form != BytesFormat.AUTO:
            return ()
        from kafkalog.tables.schema_columns import column_of_topic
        from kafkalog.tables.schema_registry import read_registry

        column = column_of_topic(read_registry(self.registry), topics, self.source)
        return () if column is None else (column,)

    def _framing(self) -> tuple[Framing, int | None]:
        text = self.framing
        if text is None:
            text = Framing.NONE if self.registry is None else Framing.CONFLUENT
        name, colon, number = text.partition(":")
        is_known = name in tuple(Framing)
        # An id, if and only if there is a colon.
        if not is_known or bool(colon) != number.isdigit() or (colon and name == "none"):
            raise UsageError(
                f"{text!r} is not a framing.",
                hint="confluent, confluent:ID, apicurio, apicurio4, glue or none",
            )
        return Framing(name), int(number) if colon else None


def decoders(
    found: Iterable[Payload], logs: Iterable[PartitionDir | FileEntry], *, unasked: bool = True
) -> dict[str, Decoded]:
    """Return what decodes keys and values of some logs, by `key` and `value`.

    Args:
        found: how they are read.
        logs: the logs.
        unasked: whether schemas on the same disk decode what nobody asked for.

    Raises:
        UsageError: a schema cannot be read, is malformed, or it is not clear which one is meant.
        UnsupportedError: a package is missing.
    """
    found, logs = list(found), list(logs)
    typed = [one for one in found if one.typed is not None]
    by_id = [one for one in found if one.is_auto and one.registry is not None]
    if not (typed or by_id):
        sources = [one.source for one in found if one.is_auto] if unasked else []
        return _decoders_on_disk(sources, logs)
    from kafkalog.io.jit.fast_path import require_arrow

    require_arrow("schemas")
    from kafkalog_cli.output.decoded import decoded_by_column, decoded_by_id

    topics = topics_in(logs)
    made = {
        column.source: decoded_by_column(column) for one in typed for column in one.columns(topics)
    }
    if by_id:
        from kafkalog.tables.schema_registry import read_registry

        registry = read_registry(by_id[0].registry or "")  # of both: --registry is about both
        for one in by_id:
            made[one.source] = decoded_by_id(one.source, registry, is_asked=True)
    return made


def value_decoder(value: Payload, logs: Iterable[PartitionDir | FileEntry]) -> Decode:
    """Return what decodes values one by one, as `undecodable` takes it. Raises as `decoders`."""
    from kafkalog.io.jit.fast_path import require_arrow

    require_arrow("schemas")
    from kafkalog.log.typed.columns import one_value
    from kafkalog.tables.schema_columns import SchemaIdDecoder
    from kafkalog.tables.schema_registry import read_registry

    if value.typed is None:
        return SchemaIdDecoder(value.source, read_registry(value.registry or "")).decode
    [column] = value.columns(topics_in(logs))
    return partial(one_value, column, column.decoder())


def _decoders_on_disk(
    sources: list[str], logs: Sequence[PartitionDir | FileEntry]
) -> dict[str, Decoded]:
    """Return what decodes by the schemas of the topic `_schemas` that is next to logs.

    That decodes a topic if one of its first records has the id of one of them. What nobody asked
    for must not fail: without the packages, or without schemas in the topic, a note says so.
    """
    around = (os.path.dirname(file_system.absolute(one.path)) for one in _partitions(logs))
    place = _topic_of_schemas(around) if sources else None
    if place is None:
        return {}
    try:
        from kafkalog.tables.schema_registry import read_registry
        from kafkalog_cli.output.decoded import decoded_by_id

        with none_announced():
            registry = read_registry(place)
        made = {source: decoded_by_id(source, registry, is_asked=False) for source in sources}
    except (ModuleNotFoundError, DataError) as error:
        show_note(f"{place} decodes nothing: {error}")
        return {}
    firsts = _first_records(logs)
    used = {
        source: one for source, one in made.items()
        if any(one.schema_id(getattr(record, source), record.headers) for record in firsts)
    }  # fmt: skip
    if used:
        what = " and ".join(f"{source}s" for source in used)
        show_note(f"{what} with schema ids are decoded by {place}")
    return used


def _topic_of_schemas(log_dirs: Iterable[str]) -> str | None:
    """Return the partition of the topic `_schemas` in one of some log directories."""
    places = (os.path.join(one, "_schemas-0") for one in dict.fromkeys(log_dirs))
    return next((one for one in places if os.path.isdir(one)), None)


def _first_records(logs: Sequence[PartitionDir | FileEntry]) -> list[Record]:
    """Return the first records of each topic."""
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.payloads.kinds import payload_kind
    from kafkalog.log.batches.selection import Selection
    from kafkalog.model import Record
    from kafkalog.node.reader import read_records

    firsts: dict[str, list[Record]] = {}
    for log, around in zip(logs, _partitions(logs), strict=True):
        if around.topic in firsts or payload_kind(around.topic) is not None:
            continue
        with suppress(DataError):  # the command itself will say it
            path = log if isinstance(log, PartitionDir) else log.path
            rows = read_records(path, Selection(data=True))
            first = [*islice((one for one in rows if isinstance(one, Record)), _FIRST_RECORDS)]
            firsts |= {around.topic: first} if first else {}
    return [one for some in firsts.values() for one in some]


def _partitions(logs: Iterable[PartitionDir | FileEntry]) -> list[PartitionDir]:
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.targets import partition_around

    return [one if isinstance(one, PartitionDir) else partition_around(one.path) for one in logs]


def typed_columns(
    payloads: Iterable[Payload], topics: Sequence[str], paths: Sequence[str]
) -> tuple[TypedColumn, ...]:
    """Return the typed columns of a table of some topics.

    Args:
        payloads: how keys and values are read.
        topics: the topics; none for all in the paths.
        paths: log directories, or partitions.

    Raises:
        UsageError: as `Payload.columns`, or a registry has no schema for them.
    """
    given = tuple(payloads)
    if not topics:
        names = {partition_of(file_system.absolute(path)) for path in paths}
        topics = (
            sorted({one.topic for one in names if one is not None}) if None not in names else []
        )
    columns = tuple(
        _with_message(column, topics, paths) for one in given for column in one.columns(topics)
    )
    places = [one.registry for one in given if one.registry is not None]
    if places and not columns:
        raise UsageError(
            f"{places[0]} has no subject {topics[0]}-value, and none {topics[0]}-key.",
            hint="--value-format avro --value-schema FILE",
        )
    return columns


def _with_message(column: TypedColumn, topics: Sequence[str], paths: Sequence[str]) -> TypedColumn:
    """Return a column of Protobuf for the message that first records have, if nobody names one."""
    if column.form != TypedForm.PROTOBUF or column.message is not None or not column.has_ids:
        return column
    from kafkalog.node.targets import open_targets, partitions_of
    from kafkalog.tables.schema_columns import message_of

    with suppress(DataError):  # the command itself will say it
        targets = open_targets(paths, hear=lambda _: None, topics=topics)
        logs = [one for one in partitions_of(targets) if not topics or one.topic in topics]
        found = {
            message_of(column, data, record.headers)
            for record in _first_records(logs)
            if (data := getattr(record, column.source)) is not None
        } - {None}
        if len(found) == 1:
            return replace(column, message=found.pop())
    return column


def topics_in(logs: Iterable[PartitionDir | FileEntry]) -> list[str]:
    """Return the topics of logs, by name."""
    return sorted({one.topic for one in _partitions(logs)})


def payloads(
    registry: str | None, key: tuple[str, str | None], value: tuple[str, str | None]
) -> tuple[Payload, Payload]:
    """Return how keys are read, and values, from formats and schemas as the options have them.

    Raises:
        UsageError: a word is unknown, or a schema is given for what has none.
    """
    keys, values = _payload("key", *key, registry), _payload("value", *value, registry)
    if registry is not None and not any(one.typed or one.is_auto for one in (keys, values)):
        raise UsageError("--registry is about data with schemas.", hint="--value-format auto")
    if values.typed and not keys.typed:  # one that is named leaves the other plain
        keys = replace(keys, registry=None)
    if keys.typed and not values.typed:
        values = replace(values, registry=None)
    return keys, values


def _payload(source: str, form: str, schema: str | None, registry: str | None) -> Payload:
    name, at, framing = form.partition("@")
    if name not in FORMS:
        raise UsageError(f"{form!r} is not a format of {source}s.", hint=", ".join(FORMS))
    if name not in tuple(TypedForm):
        if at or schema is not None:
            what = f"{form!r}" if at else f"--{source}-schema"
            raise UsageError(
                f"{what} is about data with a schema, and --{source}-format {name} has none.",
                hint=f"--{source}-format {', '.join(TypedForm)}",
            )
        return Payload(source, BytesFormat(name), registry=registry)
    typed = TypedForm(name)
    path, _, message = schema or "", "", ""
    if typed == TypedForm.PROTOBUF:
        path, _, message = path.partition("#")
    given = path or None, message or None
    return Payload(source, BytesFormat.AUTO, typed, framing if at else None, *given, registry)


def _contents(path: str) -> bytes:
    """Read a schema file, which must be regular and small, unlike `/dev/zero`."""
    from kafkalog.io.paths.source import read_file

    try:
        return read_file(path, size_max=_SCHEMA_SIZE_MAX)
    except NotAKafkaFileError as error:
        raise UsageError("A schema must be a regular file of at most 16 MiB.", path=path) from error
