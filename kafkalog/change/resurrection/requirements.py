"""What must hold before a resurrection, and after it; each function raises if it does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import parse_file_name
from formats.releases import newest, releases
from kafkalog.change.resurrection.choice import NEW
from kafkalog.change.resurrection.model import Copy, ResurrectOptions
from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.files.log_dir import FileEntry, PartitionDir
from kafkalog.files.text_files import uuid_bytes
from kafkalog.io.paths import file_system
from kafkalog.io.storage import require_space
from kafkalog.node.cluster_image import ImageReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from formats.releases import Release
    from kafkalog.change.resurrection.choice import Chosen

_NODE_MAX: Final = (1 << 31) - 1


def require_sense(destination: str, options: ResurrectOptions) -> None:
    """Raise `UsageError` for values that Kafka would not accept."""
    if not 0 <= options.node_id <= _NODE_MAX:
        raise UsageError(f"{options.node_id} is not a node id.", hint="A node id is 0 or above.")
    require_ids(options)
    release_for(options)
    if "," in os.path.realpath(destination):
        raise UsageError(
            "Kafka takes a comma in log.dirs for the end of a path.",
            path=destination,
            hint="Choose a directory without one.",
        )


def release_for(options: ResurrectOptions) -> Release:
    """Return the release that is to start; raise `UsageError` if kafkalog does not know it."""
    if options.kafka is None:
        return newest()
    for one in releases():
        if one.name == options.kafka:
            return one
    known = " or ".join(one.name for one in releases())
    raise UsageError(f"{options.kafka!r} is not a release that --kafka takes.",
                     hint=f"It takes {known}.")  # fmt: skip


def require_meaning(options: ResurrectOptions, meaningless: Iterable[str], mode: str) -> None:
    """Raise `UsageError` for options that a mode has no use for."""
    for name in meaningless:
        if getattr(options, name) != getattr(ResurrectOptions(), name):
            option = name.removesuffix("s").replace("_", "-")
            raise UsageError(
                f"--{option} and {mode} exclude each other.",
                hint="Run `kafkalog salvage` first, and take its result."
                if name == "salvage" else "Leave it out.",
            )  # fmt: skip


def require_ids(options: ResurrectOptions) -> None:
    """Raise `UsageError` for ids that are none of Kafka's."""
    for given in (options.cluster_id, *options.topic_ids.values()):
        if given is None or given == NEW:
            continue
        if uuid_bytes(given) is None or not any(uuid_bytes(given) or b""):
            raise UsageError(
                f"{given!r} is not an id of Kafka.", hint="An id has 22 characters of base64."
            )


def require_room(destination: str, chosen: Chosen, options: ResurrectOptions) -> None:
    """Raise `UnwritableError` if the copies cannot fit; shared blocks take no room."""
    if options.copy == Copy.COPY:
        copies = (one.copies[0] for topic in chosen.topics for one in topic.partitions.values())
        require_space(destination, sum(one.directory.size_bytes for one in copies))


def require_read_back(log_dir: str, chosen: Chosen) -> None:
    """Read the metadata of a log directory back.

    Raises:
        CorruptDataError: they are not what was written.
    """
    path = os.path.join(log_dir, file_names.BOOTSTRAP)
    size_bytes = file_system.status(path).st_size
    entry = FileEntry(path, parse_file_name(file_names.BOOTSTRAP), size_bytes)
    reader = ImageReader(PartitionDir(log_dir, None, (entry,)))
    reader.begin_with(entry)
    image = reader.image
    wanted = {one.name: (one.topic_id, one.count) for one in chosen.topics}
    found = {name: (one, image.partition_count(name)) for name, one in image.topics.items()}
    if not image.is_whole or image.refused or image.unknown or found != wanted:
        raise CorruptDataError("The written metadata read back differently.", path=path)
