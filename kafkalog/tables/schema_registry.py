"""The schemas that values were written with: of a registry, of a `_schemas` topic, or of files.

A registry of Confluent's kind numbers all schemas. It keeps them in the topic `_schemas`, so the
disk of a broker has them, too, whether the registry is alive or not.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import CorruptDataError, NotAKafkaFileError
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.source import read_file
from kafkalog.log.batches.selection import Selection
from kafkalog.log.typed.registered import ID, SCHEMA_SIZE_MAX, SchemaRegistry, registered
from kafkalog.log.typed.remote_registry import opened
from kafkalog.model import Defect
from kafkalog.node.reader import read_records
from kafkalog.node.targets import open_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOPIC: Final = "_schemas"
_FORMS: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def read_registry(place: str) -> SchemaRegistry:
    """Read all schemas of a place; but a registry is asked for each when it is needed.

    Args:
        place: the URL of a registry (`http://`, `https://`), a log directory or partition directory
            with the topic `_schemas`, or a directory of schemas whose names are their ids, such
            as `12.avsc`, `13.json`, `14.proto` or `UUID.avsc`; what these refer to is beside them,
            with names of their own.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        CorruptDataError: it has no schemas, or malformed ones.
        UsageError: a URL, or what goes with it in the environment, is malformed.
    """
    if place.startswith(("http://", "https://")):
        return opened(place)
    registry = SchemaRegistry(place)
    files = list(_files(place))
    for row in _of_files(files) if files else _of_topic(place):
        # In a topic, one that is malformed is like one that is lost.
        with nullcontext() if files else suppress(CorruptDataError):
            registry.add(registered(row, place, is_named=bool(files)))
    if not registry.by_id:
        raise CorruptDataError("There are no schemas here.", path=place)
    return registry


# Sources -----------------------------------------------------------------------------------------


def _files(place: str) -> Iterator[str]:
    """Yield the schemas of a directory, if the names of some of them are ids."""
    try:
        names = file_system.names(place)
    except NotADirectoryError:
        return
    except OSError as error:
        raise reading_error(error, place) from error
    found = [name for name in sorted(names) if os.path.splitext(name)[1] in _FORMS]
    if any(ID.fullmatch(os.path.splitext(name)[0]) for name in found):
        yield from (os.path.join(place, name) for name in found)


def _of_files(paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield a version for each file; one whose name is no id is a subject of that name."""
    texts = {
        os.path.basename(path): read_file(path, SCHEMA_SIZE_MAX).decode("utf-8", "replace")
        for path in paths
    }
    named = [name for name in texts if not ID.fullmatch(os.path.splitext(name)[0])]
    for name, text in texts.items():
        stem, kind = os.path.splitext(name)
        referred = [one for one in named if one != name and one.endswith(kind) and f"{one}" in text]
        yield {
            "id": int(stem) if stem.isdecimal() else stem.lower(),
            "subject": name if name in named else None,
            "schema": text,
            "schemaType": _FORMS[kind],
            "references": [{"name": one, "subject": one, "version": 0} for one in referred],
        }


def _of_topic(place: str) -> Iterator[dict[str, Any]]:
    """Yield the versions in `_schemas`, deleted ones included: records may still have them."""
    partitions = []
    with suppress(NotAKafkaFileError):
        partitions = [
            one
            for found in open_targets([place])
            for one in (found.partitions if isinstance(found, LogDirListing) else [found])
            if isinstance(one, PartitionDir) and one.topic == TOPIC
        ]
    if not partitions:
        raise CorruptDataError(
            f"There are no schemas here, and no topic {TOPIC}.",
            path=place,
            hint="Name a registry, a directory of files such as 12.avsc, 12.json or 12.proto, or a "
            "log directory with "
            f"{TOPIC}-0.",
        )
    # A registry keeps all in one partition: the last record of a version counts. What is lost by
    # damage decodes nothing, which is said of each value with its id.
    for record in read_records(partitions[0], Selection(data=True)):
        if not isinstance(record, Defect) and record.key is not None and record.value is not None:
            key, value = _object(record.key), _object(record.value)
            if key.get("keytype") == "SCHEMA":  # configs, deletions and pings have other keys
                yield value


def _object(data: bytes) -> dict[str, Any]:
    """Parse an object of JSON; what is none has no fields."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
