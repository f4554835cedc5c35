"""A small node of two log directories on which Kafka starts, and what may befall its files."""

from __future__ import annotations

import base64
import random
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.constants import CONTROL_MASK
from formats.message_schema import schema
from kafkalog.node.cluster_image.snapshot import snapshot_batches
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

METADATA = "__cluster_metadata-0"
UID = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
UNASSIGNED = "A" * 22


def uuid(number: int) -> str:
    return base64.urlsafe_b64encode(bytes([number]) * 16).decode().rstrip("=")


CLUSTER, D1, D2, ORDERS, PAYMENTS = map(uuid, range(11, 16))
DIRECTORIES = {"d1": D1, "d2": D2}
PLACES = {"orders-0": "d1", "orders-1": "d2", "payments-0": "d2"}
"""Where the partitions are."""
LOG_ENDS = {"orders-0": 66, "orders-1": 3, "payments-0": 66}
"""Where logs end in a node with long ones."""
SNAPSHOT = f"{8:020}-{1:010}.checkpoint"
LOG = f"{0:020}.log"
LATE_LOG = f"{8:020}.log"


def assigned(topic_id: str, number: int, directory: str, node: int = 1) -> bytes:
    return value_of(
        "PartitionRecord", 1, partitionId=number, topicId=topic_id, replicas=[node], isr=[node],
        removingReplicas=[], addingReplicas=[], leader=node, leaderEpoch=0, partitionEpoch=0,
        directories=[directory],
    )  # fmt: skip


def control(offset: int, kind: int, name: str, fields: dict[str, Any], epoch: int = 1) -> bytes:
    one = record(0, struct.pack(">hh", 0, kind), schema(name, 0).build(fields))
    return batch(offset, [one], attributes=CONTROL_MASK, epoch=epoch)


def voters_of(offset: int, voters: Iterable[int], epoch: int = 1) -> bytes:
    """Return the record of the voters of a quorum that is not static."""
    endpoint = {"name": "CONTROLLER", "port": 9093}
    listed = [
        {
            "voterId": one, "voterDirectoryId": uuid(one),
            "endpoints": [{**endpoint, "host": f"node{one}"}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }
        for one in voters
    ]  # fmt: skip
    return control(offset, 6, "VotersRecord", {"version": 0, "voters": listed}, epoch)


def operations(ids: Mapping[str, str]) -> list[list[bytes]]:
    """Return the records of the metadata log by batch: the snapshot holds those of the first 8."""
    home = {name: ids.get(place, D1) for name, place in PLACES.items()}
    end_point = {"host": "127.0.0.1", "port": 1, "securityProtocol": 0}
    version = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}
    return [
        [value_of("FeatureLevelRecord", name="metadata.version", featureLevel=30)],
        [value_of(
            "RegisterControllerRecord", controllerId=1, incarnationId=uuid(21),
            zkMigrationReady=False, endPoints=[{"name": "CONTROLLER", **end_point}],
            features=[version],
        )],
        [value_of(
            "RegisterBrokerRecord", brokerId=1, incarnationId=uuid(22), brokerEpoch=2, rack=None,
            fenced=True, inControlledShutdown=False, isMigratingZkBroker=False,
            endPoints=[{"name": "PLAINTEXT", **end_point}], features=[version],
            logDirs=[*ids.values()],
        )],
        [
            value_of("TopicRecord", name="orders", topicId=ORDERS),
            assigned(ORDERS, 0, home["orders-0"]),
            assigned(ORDERS, 1, home["orders-1"]),
        ],
        [
            value_of("TopicRecord", name="payments", topicId=PAYMENTS),
            assigned(PAYMENTS, 0, home["payments-0"]),
        ],
        [config("retention.ms", "-1", "orders")],
    ]  # fmt: skip


def write_node(
    root: Path,
    ids: Mapping[str, str] = DIRECTORIES,
    long: Path | None = None,
    *,
    is_clean: bool = True,
) -> Path:
    """Write log directories with three partitions.

    Args:
        root: the directory that they are written below.
        ids: names and ids of the log directories.
        long: the files of a log of several segments, which two of the partitions get.
        is_clean: whether it was closed cleanly; if not, its recovery points are lower.
    """
    homes = {name: place if place in ids else "d1" for name, place in PLACES.items()}
    for name, directory_id in ids.items():
        (root / name).mkdir(parents=True)
        lines = ["version=1", f"cluster.id={CLUSTER}", "node.id=1", f"directory.id={directory_id}"]
        (root / name / "meta.properties").write_text("\n".join([*lines, ""]))
        if is_clean:
            (root / name / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":2}')
        here = {one: LOG_ENDS[one] if long else 3 for one, place in homes.items() if place == name}
        for checkpoint in ("recovery-point", "replication"):
            is_low = checkpoint == "recovery-point" and not is_clean
            entries = [
                f"{one.replace('-', ' ')} {0 if is_low else end}" for one, end in here.items()
            ]
            text = "\n".join(["0", str(len(entries)), *entries, ""])
            (root / name / f"{checkpoint}-offset-checkpoint").write_text(text)
    for name, place in homes.items():
        if long is not None and LOG_ENDS[name] > 3:
            shutil.copytree(long, root / place / name)
        else:
            write_log(root / place / name, batch(0, [record(0), record(1), record(2)]))
        identify(root / place / name, ORDERS if name.startswith("orders") else PAYMENTS)
    write_metadata(root / "d1" / METADATA, ids)
    return root


def identify(directory: Path, topic_id: str) -> None:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def write_metadata(directory: Path, ids: Mapping[str, str]) -> None:
    """Write two segments, and the snapshot between them."""
    batches, values, offset = [], [], 0
    for operation in operations(ids):
        records = [record(delta, None, value) for delta, value in enumerate(operation)]
        batches.append(batch(offset, records, epoch=1))
        values += operation
        offset += len(operation)
    write_log(directory, *batches[:-1])
    write_log(directory, batches[-1], name=f"{8:020}")
    (directory / SNAPSHOT).write_bytes(b"".join(snapshot_batches(values[:-1], BASE_TIME)))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    identify(directory, "AAAAAAAAAAAAAAAAAAAAAQ")
    (directory / "quorum-state").write_text(
        '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@dataclass(frozen=True)
class State:
    """What befalls a node, and what Kafka makes of it: recorded by `test_node_starts`.

    Attributes:
        change: what befalls its files.
        error: the exception with which the broker dies, None if it starts.
        offline: the log directory that it does without.
        strays: the partitions that it makes strays.
        created: the partitions that it creates empty.
        promoted: whether a future copy takes the place of its partition.
    """

    change: Callable[[Path], object]
    error: str | None = None
    offline: str | None = None
    strays: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    promoted: bool = False


ALL = ("orders-0", "orders-1", "payments-0")


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


def written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data)


def removed(*names: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        for path in (root / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def cut(name: str, size: int) -> Callable[[Path], object]:
    """Keep the first bytes of a file; a negative number drops as many from its end."""
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:size])


def flipped(name: str, position: int) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        data = bytearray((root / name).read_bytes())
        data[position] ^= 1
        (root / name).write_bytes(data)

    return change


def appended(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes() + data)


def copied(source: str, target: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        copy = shutil.copytree if (root / source).is_dir() else shutil.copy
        copy(root / source, root / target)

    return change


def renamed(source: str, target: str) -> Callable[[Path], object]:
    return lambda root: (root / source).rename(root / target)


def both(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda root: [change(root) for change in changes]


def config(name: str, value: str, topic: str) -> bytes:
    return value_of("ConfigRecord", resourceType=2, resourceName=topic, name=name, value=value)


def configured(name: str, value: str, topic: str = "orders") -> Callable[[Path], object]:
    return appended(LAST, batch(9, [record(0, None, config(name, value, topic))], epoch=1))


M1, M2, QUORUM = "d1/meta.properties", "d2/meta.properties", f"d1/{METADATA}/quorum-state"
NEWEST, FIRST, LAST = (f"d1/{METADATA}/{name}" for name in (SNAPSHOT, LOG, LATE_LOG))
FUTURE = f"payments-0.{UID}-future"
RUNTIME, STATE = "RuntimeException", "IllegalStateException"
STATES = {
    "as written": State(lambda _: None),
    # ids
    "no meta.properties": State(removed(M2), RUNTIME),
    "empty meta.properties": State(written(M2, b""), RUNTIME),
    "malformed where the metadata is": State(written(M1, b"\\u00zz=1\n"), RUNTIME),
    "malformed elsewhere": State(written(M2, b"\\u00zz=1\n"), offline="d2"),
    "unknown version": State(replaced(M2, "version=1", "version=5"), offline="d2"),
    "version 0": State(replaced(M2, "version=1", "version=0"), RUNTIME),
    "other node": State(replaced(M2, "node.id=1", "node.id=2"), RUNTIME),
    "other cluster": State(replaced(M2, CLUSTER, uuid(99)), RUNTIME),
    "other cluster in both": State(both(*(replaced(m, CLUSTER, uuid(99)) for m in (M1, M2)))),
    "directory id twice": State(replaced(M2, D2, D1), RUNTIME),
    "reserved directory id": State(replaced(M2, D2, "AAAAAAAAAAAAAAAAAAAAAQ"), RUNTIME),
    "no directory id": State(replaced(M2, f"directory.id={D2}\n", "")),
    # the quorum
    "no quorum-state": State(removed(QUORUM)),
    "empty quorum-state": State(written(QUORUM, b""), "UncheckedIOException"),
    "quorum-state of a later version": State(
        replaced(QUORUM, '"data_version":0', '"data_version":9'), STATE),
    "quorum-state without a field": State(replaced(QUORUM, '"leaderEpoch":1,', ""), RUNTIME),
    "quorum-state with a text for a number": State(
        replaced(QUORUM, '"leaderEpoch":1', '"leaderEpoch":"x"'), "NumberFormatException"),
    # the metadata log
    "metadata twice": State(copied(f"d1/{METADATA}", f"d2/{METADATA}"), "KafkaException"),
    "deleted metadata that cannot be loaded": State(both(
        copied(f"d1/{METADATA}", f"d1/{METADATA}.{UID}-delete"),
        written(f"d1/{METADATA}.{UID}-delete/partition.metadata", b""))),
    "metadata without an id": State(removed(f"d1/{METADATA}/partition.metadata")),
    "another id of the metadata": State(
        lambda root: identify(root / f"d1/{METADATA}", uuid(77)), "InconsistentTopicIdException"),
    "malformed id of the metadata": State(
        written(f"d1/{METADATA}/partition.metadata", b"x"), "KafkaStorageException"),
    "empty metadata log": State(both(written(FIRST, b""), removed(LAST))),
    "first batch flipped": State(flipped(FIRST, 100)),
    "first batch flipped, no snapshot": State(
        both(flipped(FIRST, 100), removed(NEWEST)), strays=ALL),
    "second last batch flipped, no snapshot": State(
        both(flipped(FIRST, -5), removed(NEWEST)), strays=("payments-0",)),
    "metadata log torn": State(cut(LAST, -5)),
    "metadata log begins at the snapshot": State(removed(FIRST)),
    "metadata log begins behind the snapshot": State(removed(FIRST, NEWEST), STATE),
    # the configs of topics
    "config below its bound": State(configured("segment.bytes", "20000"), "ConfigException"),
    "config of another type": State(configured("retention.ms", "long"), "ConfigException"),
    "config with an unknown word": State(
        configured("message.timestamp.type", "Now"), "ConfigException"),
    "config of a topic on another node": State(appended(LAST, batch(9, [
        record(0, None, value_of("TopicRecord", name="far", topicId=uuid(16))),
        record(1, None, assigned(uuid(16), 0, D2, 2)),
        record(2, None, config("segment.bytes", "20000", "far")),
    ], epoch=1)), "ConfigException"),
    "config of no name that Kafka knows": State(configured("segment.bits", "x")),
    "config of a topic that is not there": State(configured("segment.bytes", "1", "gone")),
    "config by its internal name": State(configured("internal.segment.bytes", "1")),
    "configs that contradict each other": State(configured("min.compaction.lag.ms", str(2**63-1))),
    # the newest snapshot
    "no snapshot": State(removed(NEWEST)),
    "empty snapshot": State(written(NEWEST, b""), "NoSuchElementException"),
    "snapshot cut in its first header": State(cut(NEWEST, 5), "NullPointerException"),
    "snapshot cut in its first batch": State(cut(NEWEST, 40), "NoSuchElementException"),
    "snapshot cut in its second batch": State(cut(NEWEST, 300), STATE),
    "snapshot without its end": State(cut(NEWEST, -20)),
    "snapshot flipped": State(flipped(NEWEST, 400), "CorruptRecordException"),
    "length of its first batch flipped": State(flipped(NEWEST, 9), "NoSuchElementException"),
    "magic of its first batch flipped": State(flipped(NEWEST, 16), "CorruptRecordException"),
    "epoch in the snapshot flipped": State(flipped(NEWEST, 15)),
    "five bytes behind the snapshot": State(appended(NEWEST, b"abcde")),
    "zeros behind the snapshot": State(appended(NEWEST, bytes(14)), "CorruptRecordException"),
    "zeros for a snapshot": State(written(NEWEST, bytes(500)), "CorruptRecordException"),
    "snapshot of a later epoch": State(
        copied(NEWEST, f"d1/{METADATA}/{5000:020}-{9:010}.checkpoint")),
    "empty bootstrap.checkpoint": State(written("d1/bootstrap.checkpoint", b""), RUNTIME),
    "bootstrap.checkpoint of zeros": State(
        written("d1/bootstrap.checkpoint", bytes(300)), "CorruptRecordException"),
    # the partitions
    "lost+found": State(lambda root: (root / "d2" / "lost+found").mkdir(), "KafkaException"),
    "partition twice": State(copied("d1/orders-0", "d2/orders-0"), STATE),
    "partition twice in a directory": State(copied("d1/orders-0", "d1/orders-00"), STATE),
    "partition in the other directory": State(renamed("d1/orders-0", "d2/orders-0")),
    "partition is gone": State(removed("d2/payments-0"), created=("payments-0",)),
    "partitions are gone": State(
        removed("d2/payments-0", "d1/orders-0"), created=("orders-0", "payments-0")),
    "partition awaits its deletion": State(
        renamed("d2/payments-0", f"d2/payments-0.{UID}-delete"), created=("payments-0",)),
    "partition has another name": State(
        renamed("d2/payments-0", "d2/paid-0"), created=("payments-0",)),
    "partition has no id": State(
        removed("d2/payments-0/partition.metadata"), strays=("payments-0",)),
    "partition of no topic": State(
        lambda root: identify(root / "d2" / "payments-0", uuid(77)), strays=("payments-0",)),
    "future copy alone": State(renamed("d2/payments-0", f"d2/{FUTURE}"), promoted=True),
    "future copy alone elsewhere": State(
        renamed("d2/payments-0", f"d1/{FUTURE}"), created=("payments-0",)),
    "future copy where it is assigned": State(
        both(renamed("d2/payments-0", f"d2/{FUTURE}"), copied(f"d2/{FUTURE}", "d1/payments-0")),
        promoted=True),
    "future copy next to its partition": State(
        copied("d2/payments-0", f"d2/{FUTURE}"), "KafkaStorageException", promoted=True),
    "two future copies": State(
        both(*(copied("d2/payments-0", f"{one}/{FUTURE}") for one in ("d1", "d2"))), STATE,
        promoted=True),
    "malformed checkpoint": State(
        written("d2/recovery-point-offset-checkpoint", b"x\n"), offline="d2"),
    "malformed checkpoint where the metadata is": State(
        written("d1/recovery-point-offset-checkpoint", b"x\n"), "KafkaStorageException"),
    "malformed high watermarks": State(
        written("d2/replication-offset-checkpoint", b"0\n0\norders 1 3\n"), offline="d2"),
    "malformed high watermarks where the metadata is": State(
        written("d1/replication-offset-checkpoint", b"0\n0\norders 0 3\n"),
        "KafkaStorageException"),
    "malformed id of a partition where the metadata is": State(
        written("d1/orders-0/partition.metadata", b"x"), "KafkaStorageException"),
}  # fmt: skip


Log = tuple[int, ...]
"""Its start and its end, and the size of each segment; no sizes of one that goes on moving."""


def sizes_of(name: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """Return what counts of the sizes: a future copy is cut as soon as its move goes on."""
    return () if name.endswith("-future") else tuple(sizes)


@dataclass(frozen=True)
class Outcome:
    """What a start made of a node, or is predicted to make of it.

    Attributes:
        errors: the exceptions of which the broker died, or all that it logged then; none if it is
            up.
        offline: the log directories that it does without.
        strays: the partitions that it makes strays; None if nothing predicts them, as without
            metadata, which the node may have elsewhere.
        created: the partitions that it creates empty; None likewise.
        logs: the logs that it loads, by their directories; none if it died.
    """

    errors: tuple[str, ...]
    offline: tuple[str, ...]
    strays: tuple[str, ...] | None
    created: tuple[str, ...] | None
    logs: dict[str, Log]

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Outcome:
        """Return what was recorded."""
        logs = {name: tuple(log) for name, log in fields.pop("logs").items()}
        return cls(**{name: tuple(one) for name, one in fields.items()}, logs=logs)

    def differences(self, recorded: Outcome) -> list[str]:
        """Return what is predicted otherwise than a broker did it."""
        if self.offline and "KafkaStorageException" in recorded.errors:
            return []  # a thread met another log there, see `Consequence.LOG_DIR_OFFLINE`
        if bool(self.errors) != bool(recorded.errors):
            return [f"dies of {self.errors or 'nothing'}, not of {recorded.errors or 'nothing'}"]
        if self.errors:
            is_one = set(self.errors) & set(recorded.errors)
            return [] if is_one else [f"dies of {self.errors}, not of {recorded.errors}"]
        pairs: list[tuple[str, Any, Any]] = [("offline", self.offline, recorded.offline)]
        if not self.offline and self.strays is not None:
            pairs += [("strays", self.strays, recorded.strays)]
            pairs += [("created", self.created, recorded.created)]
        pairs += [
            (name, self.logs.get(name), recorded.logs.get(name))
            for name in sorted(self.logs.keys() | recorded.logs.keys())
            if name.partition("/")[0] not in self.offline
        ]
        return [f"{what}: {ours}, not {theirs}" for what, ours, theirs in pairs if ours != theirs]


def drawn_node(root: Path, long: Path, seed: int) -> str:
    """Write a node of one or two log directories, closed cleanly or killed, and damage it.

    Returns what was drawn and done.

    Args:
        root: the directory that the log directories are written below.
        long: the files of a log of several segments.
        seed: chooses what is written and done.
    """
    rng = random.Random(seed)
    ids = DIRECTORIES if rng.random() < 0.6 else {"d1": D1}
    is_clean = rng.random() < 0.6
    write_node(root, ids, long, is_clean=is_clean)
    done = [mutate(root, rng) for _ in range(rng.randint(1, 3))]
    return f"{len(ids)} {'closed' if is_clean else 'killed'}: {', '.join(done)}"


def mutate(root: Path, rng: random.Random) -> str:
    """Damage a file of a node, or copy or rename one or a directory; return what was done."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    deciding = [one for one in files if one.parent.name == METADATA or one.name[0] > "9"]
    path = rng.choice(deciding if rng.random() < 0.6 else files)
    kind = rng.choice(("remove", "empty", "cut", "flip", "flip", "duplicate", "rename"))
    data = path.read_bytes()
    target = path
    if kind == "remove":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == "flip" and data:
        path.write_bytes(flip(data, rng.randrange(8 * len(data))))
    elif kind in ("duplicate", "rename"):
        target = other_name(root, path, rng)
        if target.parent != path.parent:
            path, target = path.parent, target.parent
        if not target.exists():
            (copied if kind == "duplicate" else renamed)(str(path), str(target))(root)
    to = "" if target == path else f" to {target.relative_to(root)}"
    return f"{kind} {path.relative_to(root)}{to}"


def other_name(root: Path, path: Path, rng: random.Random) -> Path:
    """Return another name for a file, or for its directory, below a log directory."""
    log_dirs = sorted(one for one in root.iterdir() if one.is_dir())
    if path.parent in log_dirs:
        return rng.choice(
            [one / (path.name + rest) for one in log_dirs for rest in ("", "9", ".tmp")]
        )
    if rng.random() < 0.5:
        suffix = rng.choice(("", f".{UID}-future", f".{UID}-delete", f".{UID}-stray", "9"))
        return rng.choice(log_dirs) / (path.parent.name + suffix) / path.name
    base, dot, suffix = path.name.partition(".")
    if not base.isdigit() or rng.random() < 0.4:
        return path.with_name(
            path.name + rng.choice((".deleted", ".swap", ".cleaned", ".tmp", "9"))
        )
    return path.with_name(f"{int(base) + rng.choice((-1, 1, 7, 100)):020}{dot}{suffix}")
