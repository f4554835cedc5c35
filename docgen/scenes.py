"""The scenes of pages in `docs/guide/`: copies of `examples/log-dir` after something went wrong.

A page names the scene of its console blocks by `<!-- scene: NAME -->`; they are run in a directory
that has only what the scene makes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "log-dir"
_PAYMENTS: Final = "payments-0/00000000000000000000.log"
_LAST_ORDERS: Final = "orders-0/00000000000000000750.log"


@contextmanager
def scene(name: str) -> Iterator[Path]:
    """Make a scene in a new directory, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-scene-") as root:
        SCENES[name](Path(root))
        yield Path(root)


def _broker(root: Path, name: str = "broker-1") -> Path:
    return Path(shutil.copytree(EXAMPLE, root / name))


def _killed(root: Path) -> None:
    """The machine lost power: no clean shutdown mark, and the last write is torn."""
    broker = _broker(root)
    (broker / ".kafka_cleanshutdown").unlink()
    (broker / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 750\n")
    with (broker / _LAST_ORDERS).open("r+b") as log:
        log.truncate(EXAMPLE.joinpath(_LAST_ORDERS).stat().st_size - 100)


def _bad_disk(root: Path) -> None:
    """One bit of a closed segment has flipped."""
    path = _broker(root) / "orders-0" / "00000000000000000250.log"
    data = bytearray(path.read_bytes())
    data[5000] ^= 0x10
    times = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # a disk does not say so


def _deleted_topic(root: Path) -> None:
    """A broker was stopped after somebody deleted a topic, before it removed the files."""
    broker = _broker(root)
    (broker / "payments-0").rename(broker / "payments-0.7f0e1a52c3b94d68a1f2c3d4e5f60718-delete")


def _hanging(root: Path) -> None:
    """The end of a transaction, its abort marker, never reached a partition of a killed broker."""
    path = _broker(root) / _PAYMENTS
    with path.open("r+b") as log:
        log.truncate(3030)
    (path.parent / "00000000000000000048.snapshot").unlink()
    (path.parents[1] / ".kafka_cleanshutdown").unlink()


def _poisoned(root: Path) -> None:
    """A producer has sent a value that is not JSON; its batch is as sound as any other."""
    path = _broker(root) / _PAYMENTS
    data = bytearray(path.read_bytes())
    _put(data, data.index(b'{"order":7,'), b"<")
    path.write_bytes(data)
    (root / "payment.json").write_text(
        '{"type": "object", "properties": {"order": {"type": "integer"}, '
        '"cents": {"type": "integer"}}}'
    )


def _diverged(root: Path) -> None:
    """Two replicas: broker 2 became leader when broker 1 was cut off, and wrote something else."""
    _broker(root)
    path = _broker(root, "broker-2") / _PAYMENTS
    data = bytearray(path.read_bytes())
    for start, _ in _batches(data):
        if start >= 2848:
            data[start + 12 : start + 16] = (1).to_bytes(4)
    _put(data, data.index(b'"cents":', 2848) + 8, b"9")
    path.write_bytes(data)
    (path.parent / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 44\n")


def _put(data: bytearray, position: int, new: bytes) -> None:
    """Change bytes of a record, and compute the checksum of its batch again."""
    data[position : position + len(new)] = new
    for start, end in _batches(data):
        if start <= position < end:
            data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4)


def _batches(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield where the batches begin and end."""
    start = 0
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start + 8 : start + 12])
        yield start, end
        start = end


def _lost_cluster(root: Path) -> None:
    """The controllers are gone; of two brokers, each with a copy of all, one lags behind."""
    _broker(root)
    path = _broker(root, "broker-2") / _PAYMENTS
    with path.open("r+b") as log:
        log.truncate(2848)
    (path.parent / "00000000000000000048.snapshot").unlink()


def _lost_metadata(root: Path) -> None:
    """Somebody saved the partitions of a disk, and not the metadata log."""
    shutil.rmtree(_broker(root) / "__cluster_metadata-0")


def _stuck_cleaner(root: Path) -> None:
    """The topic is compacted, and the thread that compacts ended a day and a half ago."""
    broker = _broker(root)
    (broker / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 250\n")
    now = 1704110400
    for path in (*broker.glob("*-checkpoint"), *(broker / "orders-0").glob("*.log")):
        when = now - 36 * 3600 if path.suffix == ".log" else now
        os.utime(path, (when, when))


SCENES: Final[dict[str, Callable[[Path], object]]] = {
    "sound": _broker,
    "killed": _killed,
    "bad-disk": _bad_disk,
    "deleted-topic": _deleted_topic,
    "hanging": _hanging,
    "poisoned": _poisoned,
    "diverged": _diverged,
    "lost-cluster": _lost_cluster,
    "lost-metadata": _lost_metadata,
    "stuck-cleaner": _stuck_cleaner,
}
