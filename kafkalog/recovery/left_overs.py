"""What a start does first: it finishes an interrupted swap, or rolls it back, by names alone.

Follows `LogLoader.removeTempFilesAndCollectSwapFiles` and `LogLoader.load` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from formats.constants import INT64_MAX
from kafkalog.recovery.directory import offset_from_name, segment_file
from kafkalog.recovery.index_slots import OffsetSlots
from kafkalog.recovery.model import StartRefusedError
from kafkalog.recovery.segment_state import SegmentState

if TYPE_CHECKING:
    from kafkalog.recovery.directory import Directory
    from kafkalog.recovery.model import StartConfig

_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


def settle_left_overs(
    directory: Directory, config: StartConfig, *, trusts_swaps: bool = True
) -> None:
    """Remove leftovers, and put the files of a complete swap in their places.

    Args:
        directory: the files.
        config: how large indexes are.
        trusts_swaps: whether the log of a swap without its indexes gets empty ones, as in a broker;
            else they are built.

    Raises:
        StartRefusedError: Kafka would throw.
    """
    swaps = _remove_temporary(directory)
    _complete_swap(directory, config, swaps, trusts_swaps=trusts_swaps)


def _remove_temporary(directory: Directory) -> list[str]:
    """First pass: drop leftovers and swaps that were not complete; the names of the rest."""
    swaps, cleaned = [], []
    least_cleaned = INT64_MAX
    for name in directory.names():
        if name.endswith(file_names.DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            directory.remove(name, "a deletion was interrupted")
        elif name.endswith(file_names.CLEANED):
            least_cleaned = min(least_cleaned, offset_from_name(name))
            cleaned.append(name)
        elif name.endswith(file_names.SWAP):
            swaps.append(name)
    undone = [name for name in swaps if offset_from_name(name) >= least_cleaned]
    for name in undone:
        directory.remove(name, "a swap was interrupted before all its files were ready")
    for name in cleaned:
        directory.remove(name, "a cleaning or split was interrupted")
    return [name for name in swaps if name not in undone]


def _complete_swap(
    directory: Directory, config: StartConfig, swaps: list[str], *, trusts_swaps: bool
) -> None:
    """Delete the segments that complete swap files replace, then rename these."""
    least, most = INT64_MAX, -INT64_MAX - 1
    for name in swaps:
        if not name.removesuffix(file_names.SWAP).endswith(file_names.LOG):
            continue
        base_offset = offset_from_name(name)
        least = min(least, base_offset)
        most = max(
            most, _next_offset_of_swap(directory, config, base_offset, trusts_swaps=trusts_swaps)
        )
    for name in directory.names():
        if name.endswith(file_names.SWAP):
            continue
        try:
            offset = offset_from_name(name)
        except StartRefusedError:
            continue
        if least <= offset < most:
            directory.remove(name, "its segment is replaced by a swap file")
    for name in directory.names(file_names.SWAP):
        directory.rename(
            name, name.removesuffix(file_names.SWAP), "an interrupted swap is completed"
        )


def _next_offset_of_swap(
    directory: Directory, config: StartConfig, base_offset: int, *, trusts_swaps: bool
) -> int:
    log_name = segment_file(base_offset, file_names.LOG + file_names.SWAP)
    if log_name not in directory:
        directory.write(log_name, b"", "the name of a swap file has no 20 digits")
    segment = SegmentState(directory, base_offset, config, directory.contents[log_name])
    if not trusts_swaps:
        _complete_indexes(directory, segment)
    index_name = segment_file(base_offset, file_names.OFFSET_INDEX + file_names.SWAP)
    index = directory.contents.get(index_name)
    segment.use_indexes(OffsetSlots(base_offset, index, config.segment_index_bytes))
    if index is None:
        capacity = config.segment_index_bytes // OffsetSlots.entry.size
        zeros = bytes(capacity * OffsetSlots.entry.size)
        why = "the index of a swap file is missing: it becomes one of zeros"
        directory.write(index_name, zeros, why, keep=True)
    return segment.next_offset()


def _complete_indexes(directory: Directory, segment: SegmentState) -> None:
    """Write the indexes that a swap file came without."""
    built = None
    for suffix in (file_names.OFFSET_INDEX, file_names.TIME_INDEX):
        name = segment.name(suffix + file_names.SWAP)
        if name not in directory:
            built = built or segment.built_indexes()
            why = "it is missing beside the log of a swap"
            directory.write(name, built[suffix], why, keep=True)
