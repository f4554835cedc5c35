"""A small node of two log directories on which Kafka 4.3 starts, and what may befall its files."""

from __future__ import annotations

import base64
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cluster_image.snapshot import snapshot_batches
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
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
SNAPSHOT = f"{8:020}-{1:010}.checkpoint"
LOG = f"{0:020}.log"
LATE_LOG = f"{8:020}.log"


def assigned(topic_id: str, number: int, directory: str) -> bytes:
    return value_of(
        "PartitionRecord", 1, partitionId=number, topicId=topic_id, replicas=[1], isr=[1],
        removingReplicas=[], addingReplicas=[], leader=1, leaderEpoch=0, partitionEpoch=0,
        directories=[directory],
    )  # fmt: skip


def operations() -> list[list[bytes]]:
    """Return the records of the metadata log by batch: the snapshot holds those of the first 8."""
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
            logDirs=[D1, D2],
        )],
        [
            value_of("TopicRecord", name="orders", topicId=ORDERS),
            assigned(ORDERS, 0, D1),
            assigned(ORDERS, 1, D2),
        ],
        [value_of("TopicRecord", name="payments", topicId=PAYMENTS), assigned(PAYMENTS, 0, D2)],
        [value_of("ConfigRecord", resourceType=2, resourceName="orders", name="retention.ms",
                  value="-1")],
    ]  # fmt: skip


def write_node(root: Path) -> Path:
    """Write the log directories `d1` and `d2`, closed cleanly, with three partitions."""
    for name, directory_id in DIRECTORIES.items():
        (root / name).mkdir(parents=True)
        lines = ["version=1", f"cluster.id={CLUSTER}", "node.id=1", f"directory.id={directory_id}"]
        (root / name / "meta.properties").write_text("\n".join([*lines, ""]))
        (root / name / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":2}')
        entries = [f"{one.replace('-', ' ')} 3" for one, place in PLACES.items() if place == name]
        for checkpoint in ("recovery-point", "replication"):
            text = "\n".join(["0", str(len(entries)), *entries, ""])
            (root / name / f"{checkpoint}-offset-checkpoint").write_text(text)
    for name, place in PLACES.items():
        topic_id = ORDERS if name.startswith("orders") else PAYMENTS
        write_log(root / place / name, batch(0, [record(0), record(1), record(2)]))
        identify(root / place / name, topic_id)
    write_metadata(root / "d1" / METADATA)
    return root


def identify(directory: Path, topic_id: str) -> None:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def write_metadata(directory: Path) -> None:
    """Write two segments, and the snapshot between them."""
    batches, values, offset = [], [], 0
    for operation in operations():
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
    """What befalls a node, and what Kafka 4.3 makes of it: recorded by `test_node_starts`.

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
    "metadata without an id": State(removed(f"d1/{METADATA}/partition.metadata")),
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


def mutate(root: Path, rng: random.Random) -> str:
    """Damage one or two files of a node, or move a directory; return what was done."""
    done = []
    for _ in range(rng.randint(1, 2)):
        files = sorted(path for path in root.rglob("*") if path.is_file())
        path = rng.choice(files)
        kind = rng.choice(("remove", "empty", "cut", "flip", "flip", "duplicate", "rename"))
        data = path.read_bytes()
        if kind == "remove":
            path.unlink()
        elif kind == "empty":
            path.write_bytes(b"")
        elif kind == "cut":
            path.write_bytes(data[: rng.randrange(len(data) + 1)])
        elif kind == "flip" and data:
            path.write_bytes(flip(data, rng.randrange(8 * len(data))))
        elif kind == "duplicate":
            other = root / ("d2" if path.is_relative_to(root / "d1") else "d1")
            if path.parent.parent == root:
                shutil.copy(path, other / path.name)
            elif not (other / path.parent.name).exists():
                shutil.copytree(path.parent, other / path.parent.name)
        elif kind == "rename" and path.parent.parent == root:
            path.rename(path.with_name(f"{path.name}9"))
        elif kind == "rename":
            suffix = rng.choice((f".{UID}-future", f".{UID}-delete", "9"))
            path.parent.rename(path.parent.with_name(path.parent.name + suffix))
        done.append(f"{kind} {path.relative_to(root)}")
    return ", ".join(done)
