"""Transactions as their coordinators and the data have them, and which of them hang.

Follows `TransactionStateManager`, `TransactionLog` and `kafka-transactions.sh find-hanging` of
Kafka. A transaction hangs if its data are open and its coordinator will not end it: the last
stable offset of the partition stays where it is, and so do its read_committed consumers.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from formats.topic_names import TRANSACTION_STATE
from kafkalog.errors import DataError, GoneError, KafkaLogError, NotFoundError
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.files.payloads.message_text import TRANSACTION_STATES
from kafkalog.io.rows import Rows
from kafkalog.io.times import clock_ms
from kafkalog.log.batches.selection import Selection
from kafkalog.log.events import reporting
from kafkalog.log.living import answered, listed_now
from kafkalog.model import Isolation
from kafkalog.node.choice import live_partitions
from kafkalog.node.scan import scan
from kafkalog.node.state.coordinators import InternalTopic, internal_topic
from kafkalog.node.state.latest import (
    Latest,
    LatestLog,
    LatestRecords,
    PlainRecords,
    latest_logs,
    latest_records,
)
from kafkalog.node.state.model import Moment, moment_of
from kafkalog.node.targets import best_replica, open_targets, unlisted
from kafkalog.node.unified_log import OpenTransaction, UnifiedLog
from kafkalog.node.view import show

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import PartitionDir, Target
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.io.times import Time
    from kafkalog.model import Defect

TIMEOUT_MS: Final = 900_000
"""Default of `transaction.max.timeout.ms`."""
_GRACE_MS: Final = 300_000
"""What `find-hanging` adds to it."""
_PREPARED: Final = {"PrepareCommit", "PrepareAbort"}
_EPOCH_IS_RAISED: Final = 2
_OVER: Final = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}
_UNKNOWN: Final = "Unknown"
_PRODUCER_ID_END: Final = 10
_PRODUCER_ID: Final = slice(2, _PRODUCER_ID_END)
"""Where all versions of `TransactionLogValue` have the producer id."""


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """A transactional id as its coordinator has it.

    Attributes:
        name: the transactional id.
        producer_id, producer_epoch: of its producer; -1 if not known, as are the times.
        state: Kafka's name of it.
        timeout_ms: `transaction.timeout.ms` of the producer.
        start_timestamp: when its transaction began, -1 if none did.
        last_update_timestamp: when the state changed last.
        partitions: topic and partition of what its transaction wrote to.
        coordinator: the partition of `__transaction_state`.
        record_offset: of its record there.
        is_exact, is_complete: as of a committed offset.
        version: the `transaction.version` of its client, 0 if not known.
        marked: partitions that have the marker already which its coordinator is about to write.
    """

    _row = (
        "transactional_id=name", "producer_id", "producer_epoch", "state", "timeout_ms",
        "start_timestamp", "last_update_timestamp", "coordinator", "record_offset",
        "exact=is_exact", "complete=is_complete",
    )  # fmt: skip

    name: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_timestamp: int
    last_update_timestamp: int
    partitions: tuple[tuple[str, int], ...]
    coordinator: int
    record_offset: int
    is_exact: bool
    is_complete: bool
    version: int = 0
    marked: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenData:
    """A transaction that is open in a partition.

    Attributes:
        topic, partition: where.
        path: the directory it was read from.
        open: what the producer state says of it.
        owner: the transactional id of its producer; None if no coordinator here knows it.
        hanging: why it hangs; None if it does not.
    """

    topic: str
    partition: int
    path: str
    open: OpenTransaction
    owner: TransactionalId | None
    hanging: str | None


@dataclass(slots=True)
class Transactions:
    """What `__transaction_state` and the data hold.

    Attributes:
        ids: by name.
        topic: the replicas of `__transaction_state`.
        open: open transactions of all partitions, by topic, partition and first offset.
        incomplete: partitions of `__transaction_state` that could not be read completely.
        undecoded: records that could not be decoded.
        errors: why the data of some partitions could not be read.
        cut: the offsets of partitions that have records above their high watermarks.
    """

    ids: dict[str, TransactionalId]
    topic: InternalTopic
    open: list[OpenData] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    undecoded: int = 0
    errors: list[KafkaLogError] = field(default_factory=list)
    cut: list[PartitionOffsets] = field(default_factory=list)

    @property
    def rows(self) -> Rows[TransactionalId]:
        """The transactional ids, as a table."""
        return Rows(self.ids.values(), TransactionalId)

    def _repr_html_(self) -> str:
        return self.rows._repr_html_()


def transactions(
    *paths: str | os.PathLike[str],
    at: Time | Moment | None = None,
    now: Time | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Transactions:
    """Return transactional ids with their states, and the transactions that are open in the data.

    Args:
        paths: the log directories of all brokers: each has a part of `__transaction_state`.
        at: the transactional ids as of a time or a `Moment`.
        now: the time from which the age of open transactions counts; None for the clock's.
        on_event: is passed each defect, what ended the reading of a log, and what was read; without
            it the first error or grave defect is raised.
        progress: whether to draw a bar.

    Raises:
        NotFoundError: neither `__transaction_state` nor an open transaction is there.
        CorruptDataError, UnreadableError: the log of a coordinator is damaged.
    """
    targets = open_targets(paths)
    with reporting(on_event, progress=progress) as report:
        return read_transactions(
            targets, now_ms=clock_ms(now), at=moment_of(at), defects=report.hear,
            progress=report.advance, failed=report.hear,
        )  # fmt: skip


def read_transactions(
    targets: Sequence[Target],
    *,
    now_ms: int,
    at: Moment | None = None,
    max_timeout_ms: int = TIMEOUT_MS,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
    failed: Callable[[KafkaLogError], None] | None = None,
    views: Mapping[str, PartitionDir] | None = None,
) -> Transactions:
    """Read the transactional ids, and find the transactions that are open in the data.

    Args:
        targets: log directories and partitions; all others are passed over.
        now_ms: the time from which the age of open transactions counts.
        at: the transactional ids as of this moment; open transactions are those of now.
        max_timeout_ms: `transaction.max.timeout.ms` of the brokers.
        defects: called with each defect; reading goes on.
        progress: called with numbers of bytes as they are read.
        failed: called with what ended the reading of one coordinator's log, whose partition is then
            incomplete; without it the error is raised.
        views: what starts would make of partitions, by path, if the caller knows it.

    Raises:
        NotFoundError: neither `__transaction_state` nor an open transaction is there.
    """
    found = read_transactional_ids(
        targets, at=at, defects=defects, progress=progress, failed=failed
    )
    topic = found.topic
    owners = {one.producer_id: one for one in found.ids.values() if one.state != _UNKNOWN}
    for partition in _data_partitions(targets):
        try:
            offsets, opened, epochs = _producers_of(partition, (views or {}).get(partition.path))
        except GoneError:
            continue  # a deleted partition has no open transaction
        except DataError as error:
            found.errors.append(error)
            continue
        if offsets.high_watermark.above and partition.topic != TRANSACTION_STATE:
            found.cut.append(offsets)
        where = partition.topic, partition.partition or 0
        _note_marker(found.ids, where, epochs, {one.producer_id for one in opened})
        for one in opened:
            owner = owners.get(one.producer_id)
            is_old = 0 <= one.last_timestamp < now_ms - max_timeout_ms - _GRACE_MS
            reason = _hanging(one, where, owner, found, is_old=is_old)
            found.open.append(OpenData(*where, partition.path, one, owner, reason))
    found.errors += [
        error for (name, _), error in unlisted(targets).items() if name != TRANSACTION_STATE
    ]
    if not topic.replicas and not found.open:
        raise NotFoundError(
            "There is no partition of __transaction_state here, and no open transaction.",
            path=targets[0].path if targets else None,
            note="; ".join(f"{one.name}: {one.high_watermark.left_out}" for one in found.cut[:3])
            or None,
            hint="Give the log directories of all brokers: each has a part of it.",
        )
    return found


def read_transactional_ids(
    targets: Sequence[Target],
    *,
    at: Moment | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
    failed: Callable[[KafkaLogError], None] | None = None,
) -> Transactions:
    """Read the transactional ids, not the data; arguments as for `read_transactions`."""
    topic = internal_topic(TRANSACTION_STATE, targets)
    found = Transactions({}, topic)
    read = (topic, found.incomplete, at, defects, progress, failed, latest_records)
    for number, log in latest_logs(*read):
        found.cut += log.cut
        records: dict[bytes, Latest | None] = dict(log.records.latest())
        for key in {*records, *log.newer}:
            latest = records.get(key)
            if key in log.newer or (latest is not None and latest.value is not None):
                known = _transactional_id(key, latest, number, log)
                if known is None:
                    found.undecoded += 1
                else:
                    found.ids[known.name] = known
    return found


def matching(ids: Sequence[TransactionalId], pattern: str) -> list[TransactionalId]:
    """Return the transactional ids whose whole name matches a regular expression of RE2.

    As in a broker: it takes time linear in the names, whatever the pattern, unlike `re`.

    Raises:
        ValueError: the pattern is malformed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.array([""]), pattern)  # without what is put around it below
    names = pa.array([one.name for one in ids], pa.string())
    matches = pc.match_substring_regex(names, rf"\A(?:{pattern})\z").to_pylist()
    return [one for one, is_match in zip(ids, matches, strict=True) if is_match]


def _producers_of(
    partition: PartitionDir, known: PartitionDir | None
) -> tuple[PartitionOffsets, list[OpenTransaction], dict[int, int]]:
    """Return the transactions that are open in a log, and the epochs of its producers.

    The log is read again if it has changed.
    """

    def of(log: UnifiedLog) -> tuple[PartitionOffsets, list[OpenTransaction], dict[int, int]]:
        offsets = log.offsets.of_partition(Isolation.READ_COMMITTED)
        return offsets, log.open_transactions(), log.producer_epochs()

    return answered(
        lambda: of(UnifiedLog(known or show(partition).partition)),
        lambda: of(UnifiedLog(show(listed_now(partition)).partition)),
    )


def _note_marker(
    ids: dict[str, TransactionalId],
    where: tuple[str, int],
    epochs: Mapping[int, int],
    opened: Collection[int],
) -> None:
    """Note which transactional ids wait for a marker that a partition has already.

    Only a marker brings the epoch to which the coordinator raises it first, since version 2. A
    broker without the fix of KAFKA-19999 refuses the marker when it is sent again.
    """
    for name, one in ids.items():
        if one.version >= _EPOCH_IS_RAISED and one.state in _PREPARED and where in one.partitions:
            is_marked = epochs.get(one.producer_id) == one.producer_epoch
            if is_marked and one.producer_id not in opened:
                ids[name] = replace(one, marked=(*one.marked, where))


def owners(
    targets: Sequence[Target],
    *,
    failed: Callable[[KafkaLogError], object],
) -> dict[int, str]:
    """Return the transactional id of each producer that the coordinators' logs still name.

    Unlike `read_transactions` it also knows producers that a transactional id has had before.

    Args:
        targets: log directories and partitions; all others are passed over.
        failed: called with what ended the reading of one coordinator's log.
    """
    found: dict[int, str] = {}
    for _, replicas in sorted(internal_topic(TRANSACTION_STATE, targets).replicas.items()):
        selection = Selection(data=True, sound=True)
        try:
            for rows in scan(best_replica(replicas), columns=["key", "value"], selection=selection):
                pairs = zip(*(rows[name].to_pylist() for name in ("key", "value")), strict=True)
                for key, value in pairs:
                    if value is not None and len(value) >= _PRODUCER_ID_END and key is not None:
                        producer_id = int.from_bytes(value[_PRODUCER_ID], "big", signed=True)
                        if producer_id not in found and (name := _name_in(key)) is not None:
                            found[producer_id] = name
        except DataError as error:
            failed(error)
    return found


def _name_in(key: bytes) -> str | None:
    """Return the transactional id in a key; None if it has none that is known."""
    decoded = decode(PayloadKind.TRANSACTION_LOG, key, None).key
    return None if decoded is None else str(decoded["data"]["transactionalId"])


def abort_commands(open_data: OpenData, bootstrap_server: str) -> tuple[str, str]:
    """Return the command lines of Kafka's tool that abort a hanging transaction.

    The first asks the partition's leader for the rest; the second, for brokers before 2.8, states
    all of it.
    """
    one = open_data.open
    tool = f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
    # A directory's name says what the topic is, and may be any text.
    where = f"--topic {shlex.quote(open_data.topic)} --partition {open_data.partition}"
    producer = f"--producer-id {one.producer_id} --producer-epoch {one.producer_epoch}"
    return (
        f"{tool} {where} --start-offset {one.first_offset}",
        f"{tool} {where} {producer} --coordinator-epoch {max(one.coordinator_epoch, 0)}",
    )


def _transactional_id(
    key: bytes, latest: Latest | None, number: int, log: LatestLog[LatestRecords | PlainRecords]
) -> TransactionalId | None:
    """Return what a record says; None if it cannot be decoded.

    Of an id without one, whose older records compaction may have removed, only the name is known.
    """
    decoded = decode(PayloadKind.TRANSACTION_LOG, key, latest.value if latest else None)
    if decoded.key is None or decoded.error is not None:
        return None
    name = decoded.key["data"]["transactionalId"]
    if latest is None or decoded.value is None:
        return TransactionalId(
            name, -1, -1, _UNKNOWN, -1, -1, -1, (), number, -1, False, log.is_complete
        )
    value: dict[str, Any] = decoded.value["data"]
    status = value["transactionStatus"]
    return TransactionalId(
        name,
        value["producerId"],
        value["producerEpoch"],
        TRANSACTION_STATES[status]
        if 0 <= status < len(TRANSACTION_STATES)
        else f"{_UNKNOWN}({status})",
        value["transactionTimeoutMs"],
        value["transactionStartTimestampMs"],
        value["transactionLastUpdateTimestampMs"],
        tuple(
            (one["topic"], partition)
            for one in value["transactionPartitions"] or ()
            for partition in sorted(one["partitionIds"])
        ),
        number,
        latest.offset,
        key not in log.newer,
        log.is_complete,
        value.get("clientTransactionVersion", 0),
    )


def _data_partitions(
    targets: Sequence[Target],
) -> Iterator[PartitionDir]:
    """Yield the best replica of each partition that is here."""
    replicas: defaultdict[tuple[str, int], list[PartitionDir]] = defaultdict(list)
    for partition in live_partitions(targets):
        replicas[partition.topic, partition.partition or 0].append(partition)
    for _, some in sorted(replicas.items()):
        yield best_replica(some)


def _hanging(
    one: OpenTransaction,
    where: tuple[str, int],
    owner: TransactionalId | None,
    found: Transactions,
    *,
    is_old: bool,
) -> str | None:
    """Return why a transaction hangs; None if its coordinator will end it, as far as is known."""
    if owner is None:
        if found.topic.replicas and not (found.topic.missing_count or found.incomplete):
            return "no transactional id has this producer"
        return "older than any transaction may be" if is_old else None
    if owner.state in _OVER:
        return f"its coordinator says {owner.state}"
    # What prepares the end may have raised the epoch, for a client of version 2 or after a timeout:
    # partitions get it with the marker.
    is_about_to_end = owner.state in _PREPARED and owner.producer_epoch > one.producer_epoch
    if owner.producer_epoch != one.producer_epoch and not is_about_to_end:
        return f"its coordinator has epoch {owner.producer_epoch}"
    return None if where in owner.partitions else "its coordinator does not know the partition"
