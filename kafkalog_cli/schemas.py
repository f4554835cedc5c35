"""Where the schemas of keys and values are, and what decodes by them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from formats.file_names import partition_of
from kafkalog.errors import DataError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import none_announced
from kafkalog.log.typed import TypedForm
from kafkalog_cli.outcome import show_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.answers.search.table import Decode
    from kafkalog.files.log_dir import FileEntry, PartitionDir
    from kafkalog.log.typed import TypedColumn
    from kafkalog.model import Record
    from kafkalog.tables.topic_types import ByData
    from kafkalog_cli.output.decoded import Decoded
    from kafkalog_cli.payloads import Payload

_FIRST_RECORDS: Final = 10


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
    for one in by_id:
        made[one.source] = decoded_by_id(one.source, one.schemas, is_asked=True)
    return made


def value_decoder(value: Payload, logs: Iterable[PartitionDir | FileEntry]) -> Decode:
    """Return what decodes values one by one, as `undecodable` takes it. Raises as `decoders`."""
    from kafkalog.io.jit.fast_path import require_arrow

    require_arrow("schemas")
    from kafkalog.log.typed.columns import one_value
    from kafkalog.tables.schema_columns import SchemaIdDecoder

    if value.typed is None:
        return SchemaIdDecoder(value.source, value.schemas).decode
    if value.typed == TypedForm.CONNECT:
        from kafkalog.log.typed.connect import EachConnectDecoder

        each = EachConnectDecoder()
        return lambda data, _headers: each.decode(data)
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
    payloads: Iterable[Payload],
    topics: Sequence[str],
    paths: Sequence[str],
    *,
    are_split: bool = False,
) -> tuple[tuple[TypedColumn, ...], tuple[ByData, ...]]:
    """Return the typed columns of a table of some topics, and those that its data decides.

    Args:
        payloads: how keys and values are read.
        topics: the topics; none for all in the paths.
        paths: log directories, or partitions.
        are_split: whether each topic has its own.

    Raises:
        UsageError: as `Payload.columns` and `Payload.by_data`.
    """
    if not topics:
        names = {partition_of(file_system.absolute(path)) for path in paths}
        topics = (
            sorted({one.topic for one in names if one is not None}) if None not in names else []
        )
    columns: list[TypedColumn] = []
    by_data: list[ByData] = []
    for one in payloads:
        found = one.by_data(topics, are_split=are_split)
        if found is None:
            columns += [_with_message(column, topics, paths) for column in one.columns(topics)]
        else:
            by_data.append(found)
    return tuple(columns), tuple(by_data)


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
