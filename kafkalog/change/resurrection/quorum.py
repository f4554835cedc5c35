"""Makes the log directory from which a quorum goes on, as `kafkalog.node.quorum.rescue` plans it.

It has a new directory id: else two disks would be the same voter. Indexes and snapshots of
producers are not copied: without the mark of a clean shutdown a start makes them of the batches.
Follows `QuorumStateData` and `KafkaRaftLog` of Kafka.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from formats import file_names
from formats.file_names import FileKind, segment_file_name
from formats.topic_names import CLUSTER_METADATA, CLUSTER_METADATA_ID
from kafkalog.change.resurrection.model import new_id
from kafkalog.change.resurrection.properties import meta_properties
from kafkalog.errors import CorruptDataError
from kafkalog.files.text_files import checkpoint_text, topic_id_text
from kafkalog.io.paths.source import Source
from kafkalog.io.storage import LogDirLock, NewDirectory, require_outside, require_vacant
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch, present_ms
from kafkalog.node.quorum.choice import candidates, history
from kafkalog.node.quorum.model import NOBODY
from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.quorum.rescue import NO_DIRECTORY, first_batch
from kafkalog.node.targets import open_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import Segment
    from kafkalog.io.storage import Step
    from kafkalog.node.quorum.choice import Merge, Part
    from kafkalog.node.quorum.lineage import Lineage
    from kafkalog.node.quorum.model import Voter
    from kafkalog.node.quorum.quorum import Quorum
    from kafkalog.node.quorum.rescue import Rescue

_METADATA: Final = f"{CLUSTER_METADATA}-0"
_PIECE_SIZE: Final = 1 << 20


def write_rescue(
    quorum: Quorum, rescue: Rescue, to: str, observe: Callable[[Step], None] | None = None
) -> int:
    """Make the log directory of the controller that leads first; return how many files it has.

    Args:
        quorum: what is left of it.
        rescue: how it goes on.
        to: the new log directory.
        observe: called after each step on the disk.

    Raises:
        DestinationExistsError: the path is taken.
        LogDirInUseError: a broker runs on one of the copies.
        CorruptDataError: the files changed after they were read, or read back differently.
        UnreadableError, UnwritableError: of the files.
        PartlyDoneError: the directory is there, and then something failed.

    On disk after a crash: the whole directory, or none but `<to>.kafkalog-partial`, which the next
    run removes.
    """
    merged = quorum.merged
    assert merged is not None, "the plan required it"
    assert quorum.cluster_id is not None, "likewise"
    log_dirs = [one.partition.log_dir for one in quorum.copies]
    require_outside(to, log_dirs)
    require_vacant(os.path.realpath(to))
    with ExitStack() as held:
        for log_dir in log_dirs:
            held.enter_context(LogDirLock(log_dir))
        home = rescue.source.partition.log_dir
        directory = held.enter_context(NewDirectory(to, home, observe=observe))
        directory_id = new_id()
        voters = (rescue.voters[0]._replace(directory_id=directory_id), *rescue.voters[1:])
        batch = b""
        if quorum.kraft_version:
            batch = first_batch(
                merged.end, rescue.leader_epoch, rescue.node_id, voters, present_ms()
            )
        _write_log(directory, merged, batch)
        state = _quorum_state(quorum, rescue, directory_id)
        _write(directory, file_names.PARTITION_METADATA, (topic_id_text(CLUSTER_METADATA_ID),))
        text = json.dumps(state, separators=(",", ":"))  # as Kafka writes it
        _write(directory, file_names.QUORUM_STATE, (text.encode(),))
        properties = meta_properties(quorum.cluster_id, rescue.node_id, directory_id)
        directory.write(file_names.META_PROPERTIES, properties)
        lineage = _read_back(quorum, rescue, voters, directory.building)
        epochs = [next(spans)[:2] for _, spans in groupby(lineage.spans, key=itemgetter(0))]
        _write(directory, file_names.LEADER_EPOCHS, (checkpoint_text(epochs),))
        return sum(len(names) for _, _, names in os.walk(directory.building))


def _write_log(directory: NewDirectory, merged: Merge, batch: bytes) -> None:
    """Copy the snapshot and the log of a merge, in the segments they come from; append a batch."""
    if merged.snapshot is not None:
        path = merged.snapshot.entry.path
        with Source(path) as source:
            pieces = _pieces(source, 0, source.size_bytes)
            _write(directory, merged.snapshot.name, pieces)
    copies = [one for part in merged.parts for one in _segments(part)]
    for number, (segment, first, runs) in enumerate(copies, 1):
        with Source(segment.log.path) as source:
            pieces = (one for start, end in runs for one in _pieces(source, start, end))
            after = (batch,) if number == len(copies) else ()
            _write(directory, segment_file_name(first, FileKind.LOG), chain(pieces, after))
    if not copies:
        _write(directory, segment_file_name(merged.end, FileKind.LOG), (batch,))


def _segments(part: Part) -> Iterator[tuple[Segment, int, list[tuple[int, int]]]]:
    """Yield the segments that have a part, each with its first offset there, and with positions.

    Batches that do not go on where the one before ended are none of the part, as the reader of the
    log found.
    """
    following = part.start
    for segment in part.replica.partition.segments:
        first, runs = following, list[tuple[int, int]]()
        with Source(segment.log.path) as source:
            for one in scan_batches(source, check_crc=True):
                if not isinstance(one, Batch) or not one.crc_valid or following >= part.end:
                    continue
                if one.base_offset != following:
                    continue
                start, end = one.position, one.position + one.size_bytes
                following = one.next_offset
                if runs and runs[-1][1] == start:
                    start = runs.pop()[0]
                runs.append((start, end))
        if runs:
            yield segment, first, runs
    if following != part.end:
        raise _changed(part.replica.path, f"Its log has nothing at offset {following} now.")


def _pieces(source: Source, start: int, end: int) -> Iterator[bytes]:
    for position in range(start, end, _PIECE_SIZE):
        yield source.read(position, min(_PIECE_SIZE, end - position))


def _write(directory: NewDirectory, name: str, pieces: Iterable[bytes]) -> None:
    with directory.create(f"{_METADATA}/{name}") as file:
        for one in pieces:
            file.write(one)


def _quorum_state(quorum: Quorum, rescue: Rescue, directory_id: str) -> dict[str, Any]:
    """Return `quorum-state`: an only voter has voted for itself, and leads at its next start.

    Of several nobody leads yet, nor of those that the properties name.
    """
    leader, epoch = rescue.node_id, rescue.leader_epoch
    if quorum.kraft_version:
        is_alone = len(rescue.voters) == 1
        elected = leader if is_alone else NOBODY
        return {
            "leaderId": elected, "leaderEpoch": epoch, "votedId": elected,
            "votedDirectoryId": directory_id if is_alone else NO_DIRECTORY, "data_version": 1,
        }  # fmt: skip
    return {
        "clusterId": "", "leaderId": NOBODY, "leaderEpoch": epoch, "votedId": NOBODY,
        "appliedOffset": 0, "currentVoters": [{"voterId": leader}], "data_version": 0,
    }  # fmt: skip


def _read_back(quorum: Quorum, rescue: Rescue, voters: Sequence[Voter], log_dir: str) -> Lineage:
    """Read the new directory, and judge it with what follows; return which epoch wrote what of it.

    Raises:
        CorruptDataError: it is not what was planned.
    """
    found, merged = read_quorum(open_targets([log_dir])), quorum.merged
    assert merged is not None, "it was written"
    copy = found.chosen
    if (
        copy is None
        or found.defects
        or (found.cluster_id, copy.node_id) != (quorum.cluster_id, rescue.node_id)
        or (copy.lineage.spans and copy.lineage.start != merged.start)
        or copy.reach.end < merged.end
        or history(rescue.source).fork(history(copy)) < merged.end
    ):
        raise _changed(log_dir, "It reads back differently.")
    if quorum.kraft_version:
        followers = (one for one in quorum.copies if one.node_id != rescue.node_id)
        elected = candidates((copy, *followers), found.voters)
        if found.voters.voters != tuple(sorted(voters)) or elected != [voters[0]]:
            raise _changed(log_dir, "Its controller could not be elected.")
    return copy.lineage


def _changed(path: str, words: str) -> CorruptDataError:
    return CorruptDataError(f"The metadata changed while they were copied. {words}", path=path)
