"""New segments that a task has written elsewhere on the same disk, and how they get into place.

A result is a directory: the files of each new segment, as `.cleaned`, and `result.json`, which
describes them. It is complete before it gets its name, and never changes afterwards.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from formats import file_names
from formats.constants import INT64_MAX
from formats.file_names import is_plain, segment_file
from kafkalog.change.compaction.model import Dropped, Tally
from kafkalog.change.compaction.plan import PassPlan, SoundLog, sound_from_json
from kafkalog.change.compaction.swap import SUFFIXES, NewFiles
from kafkalog.errors import CorruptDataError, DataError, RefusedError
from kafkalog.io.codecs import crc32c
from kafkalog.io.documents import (
    Anything,
    Either,
    Entries,
    Fields,
    Flag,
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
from kafkalog.io.paths.source import Source, read_file
from kafkalog.io.storage import Changes, require_no_link
from kafkalog.model import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.files.log_dir import PartitionDir, Segment

RESULT_NAME: Final = "result.json"
_AT_ONCE: Final = 1 << 22
_RESULT_SIZE_MAX: Final = 1 << 28
_OFFSET: Final = Number(-1)
_ABORTED: Final = schema_of(AbortedTransaction)
_GROUP: Final = Fields(
    {
        "sources": Items(_OFFSET, count_min=1),
        "base_offset": _OFFSET,
        "next_offset": _OFFSET,
        "next_base_offset": _OFFSET,
        "size_bytes": Number(),
        "records": Number(),
        "suffixes": Items(OneOf(SUFFIXES)),
    }
)
_RESULT: Final = Fields(
    {
        "plan": Fields(  # compared with the plan that is carried out
            {"request": Fields({"now_ms": Number(-INT64_MAX)}, others=Anything())},
            others=Anything(),
        ),
        "files": Entries(Text(is_plain), Row((Number(), Number(0, (1 << 32) - 1)))),
    },
    {
        "sound": Fields(
            {
                "producers": Items(Row((Number(-1), Maybe(Number(-1)), Number(-1)))),
                "suits_kernels": Flag(),
            }
        ),
        "keys": Number(),
        "end_offset": _OFFSET,
        "tally": Fields(
            {
                "read_records": Number(),
                "kept_records": Number(),
                "read_bytes": Number(),
                "bytes_written": Number(),
                "dropped": Entries(OneOf(tuple(map(str, Dropped))), Number()),
                "cleaner_gives_up": Maybe(Text()),
            }
        ),
        "groups": Either((Number(), Items(_GROUP))),
        "rows": Number(),
        "buckets": Number(),
        "starts": Entries(Text(), Number()),
        "transactions": Entries(
            Text(),
            Fields(
                {
                    "pending": Items(_ABORTED),
                    "aborted": Items(Row((Number(-1), _ABORTED))),
                    "with_data": Items(Number(-1)),
                    "committed": Items(Number(-1)),
                }
            ),
        ),
    },
)
"""Schema of the results of all steps; anything else is not the result of a plan."""


def segment_to_json(files: NewFiles, group: Sequence[Segment]) -> dict[str, Any]:
    """Describe a new segment that was written, for `result.json`."""
    return {
        "sources": [segment.base_offset for segment in group],
        "base_offset": files.base_offset,
        "next_offset": files.next_offset,
        "next_base_offset": files.next_base_offset,
        "size_bytes": files.size_bytes,
        "records": files.records,
        "suffixes": list(files.suffixes),
    }


def write_result(result: Mapping[str, Any], changes: Changes) -> None:
    """Write the description of a directory, with the sizes and checksums of its files."""
    # Read back from the disk: the driver compares what it links with what the task has seen there.
    names = file_system.names_in(changes.directory)
    files = {name: _checksum(changes.path(name)) for name in names}
    with changes.create(RESULT_NAME) as file:
        file.write(json.dumps({**result, "files": files}).encode())


def tally_to_json(tally: Tally) -> dict[str, Any]:
    return {
        "read_records": tally.read_records,
        "kept_records": tally.kept_records,
        "read_bytes": tally.read_bytes,
        "bytes_written": tally.bytes_written,
        "dropped": dict(tally.dropped),
        "cleaner_gives_up": tally.cleaner_gives_up,
    }


def tally_from_json(given: Mapping[str, Any]) -> Tally:
    dropped = Counter({Dropped(why): count for why, count in given["dropped"].items()})
    return Tally(**{**given, "dropped": dropped})


class StagedPass:
    """A pass whose new segments are in the directories of results.

    Args:
        paths: the results, in log order.
        partition: the partition of the pass.

    Raises:
        KafkaLogError: the result cannot be read.
    """

    def __init__(self, paths: Sequence[str], partition: PartitionDir) -> None:
        said = [_staged_result(path) for path in paths]
        self.keys: int = said[0]["keys"]
        self.end_offset: int = said[0]["end_offset"]
        self.sound: SoundLog = sound_from_json(said[0]["sound"])
        self.tally = Tally()
        self._paths = paths
        self._segments = {segment.base_offset: segment for segment in partition.segments}
        for path, one in zip(paths, said, strict=True):
            for made in one["groups"]:
                if not self._segments.keys() >= {*made["sources"]} or (
                    made["base_offset"] != made["sources"][0]
                    # Without its log a swap would retire the old segments for an index.
                    or file_names.LOG not in made["suffixes"]
                ):
                    raise CorruptDataError("The result is that of another log.", path=path)
        self._made: dict[int, dict[str, Any]] = {}
        self._places: dict[int, str] = {}
        for path, one in zip(paths, said, strict=True):
            self.tally.add(tally_from_json(one["tally"]))
            for made in one["groups"]:
                self._made[made["base_offset"]] = made
                self._places[made["base_offset"]] = path

    def require_whole(self) -> None:
        """Raise as `require_whole` for each result."""
        for path in self._paths:
            require_whole(path)

    def groups(self) -> list[list[Segment]]:
        return [[self._segments[base] for base in one["sources"]] for one in self._made.values()]

    def require_room(self, directory: str, sizes: Sequence[int]) -> None:
        """Do nothing: the new segments are on the disk already."""

    def put(self, group: Sequence[Segment], changes: Changes | None) -> NewFiles:
        """Link the files of a new segment into the partition directory, as `.cleaned`."""
        assert changes is not None, "what is staged is put into place"
        said = self._made[group[0].base_offset]
        base_offset = said["base_offset"]
        for suffix in said["suffixes"]:
            place = self._place(base_offset, suffix)
            _require_ours(place, group[0].log.path)
            # Linked, not moved: after a crash the result is still whole, and the run can be
            # continued.
            changes.link(place, segment_file(base_offset, suffix) + file_names.CLEANED)
        indexes = [suffix for suffix in said["suffixes"] if suffix != file_names.LOG]
        return NewFiles(
            base_offset,
            said["next_offset"],
            said["next_base_offset"],
            said["size_bytes"],
            said["records"],
            {suffix: self._content(base_offset, suffix) for suffix in indexes},
        )

    def _place(self, base_offset: int, suffix: str) -> str:
        return os.path.join(
            self._places[base_offset], segment_file(base_offset, suffix) + file_names.CLEANED
        )

    def _content(self, base_offset: int, suffix: str) -> bytes:
        with Source(self._place(base_offset, suffix)) as source:
            return source.read(0, source.size_bytes)


def plan_of_result(path: str) -> PassPlan:
    """Return the plan that a result was made from.

    Raises:
        KafkaLogError: it cannot be read.
    """
    try:
        return PassPlan.from_json(read_result(path)["plan"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError("The result has no compaction plan.", path=path) from error


def require_whole(path: str) -> None:
    """Raise unless each file of a result has the bytes that were written.

    Raises:
        CorruptDataError: a file has other bytes.
        NotFoundError, UnreadableError: a file is missing or unreadable.
    """
    for name, checksum in read_result(path)["files"].items():
        if _checksum(os.path.join(path, name)) != checksum:
            raise CorruptDataError(
                "The file is not what the task wrote.",
                path=os.path.join(path, name),
                note="The old segments are untouched.",
                hint="Check the disk.",
            )


def is_whole(path: str, plan: PassPlan) -> bool:
    """Return whether an earlier run left the whole result of a plan, byte for byte."""
    try:
        if plan_of_result(path) != plan:
            return False
        require_whole(path)
    except DataError:
        return False
    return True


def _staged_result(path: str) -> dict[str, Any]:
    """Read the description of a result with new segments. Raises as `read_result`."""
    said = read_result(path)
    missing = {"keys", "end_offset", "sound", "tally", "groups"} - said.keys()
    if missing or not isinstance(said["groups"], list):
        raise CorruptDataError("The result is that of another step.", path=path)
    return said


def read_result(path: str) -> dict[str, Any]:
    """Read the description of a result.

    Raises:
        KafkaLogError: it cannot be read.
    """
    place = os.path.join(path, RESULT_NAME)
    require_no_link(path)
    require_no_link(place)
    said: dict[str, Any] = read_document(
        read_file(place, _RESULT_SIZE_MAX), _RESULT, place, "the result of a task"
    )
    return said


def _checksum(path: str) -> list[int]:
    """Return the size of a file and its CRC-32C."""
    checksum = 0
    with Source(path) as source:
        for at in range(0, source.size_bytes, _AT_ONCE):
            checksum = crc32c(source.read(at, min(_AT_ONCE, source.size_bytes - at)), checksum)
        return [source.size_bytes, checksum]


def _require_ours(path: str, like: str) -> None:
    """Raise if another user's worker has written files that a broker could not append to."""
    wanted, found = file_system.status(like), file_system.status(path)
    # Links share the owner of the file: a link cannot be given to the broker's user.
    if found.st_uid not in (wanted.st_uid, os.geteuid()):
        raise RefusedError(
            "The worker that wrote it belongs to another user than the log.",
            path=path,
            note="The old segments are untouched.",
            hint="Run workers and driver as the user of the broker.",
        )
