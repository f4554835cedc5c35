"""Segments as Aiven's plugin for tiered storage packs them: logs in chunks, indexes in one object.

Follows `SegmentManifestV1`, `AbstractChunkIndex`, `ChunkSizesBinaryCodec`, `RsaEncryptionProvider`
and `KafkaRemoteStorageManager` of that plugin as of May 2026. Chunks are compressed with zstd,
encrypted, both, or neither; a manifest says which, and where they are.

Files of a segment have the names that they have in other tiers: `….index` stands for a part of the
object `….indexes`, and `….log` for what was uploaded, whatever its object holds.
"""

from __future__ import annotations

import io
import json
import os
from base64 import b64decode
from collections import OrderedDict
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Any, Final

from formats.file_names import INDEXES_OBJECT, LOG, MANIFEST, FileKind, parse_file_name
from formats.late_classes import dataclass
from kafkalog.errors import (
    BytesUnreadableError,
    CorruptDataError,
    FileChangedError,
    NotFoundError,
    UnsupportedDataError,
)
from kafkalog.io.codecs.zstd import decompress_known
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import announced, reading_error
from kafkalog.io.paths.source import ObjectSource, Source, read_file
from kafkalog.io.paths.tier_keys import SEALED, data_key, opened_chunk
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import counted

INDEX_FIELDS: Final = {
    FileKind.OFFSET_INDEX: "offset",
    FileKind.TIME_INDEX: "timestamp",
    FileKind.TRANSACTION_INDEX: "transaction",
    FileKind.PRODUCER_SNAPSHOT: "producerSnapshot",
    FileKind.LEADER_EPOCH_CHECKPOINT: "leaderEpoch",
}
"""The fields of `segmentIndexes` in a manifest."""

_MANIFEST_SIZE_MAX: Final = 8 << 20
_MANIFESTS_KEPT: Final = 1 << 12
_CHUNK_SIZE_MAX: Final = 256 << 20
_CHUNKS_MAX: Final = 1 << 20
_CHUNKS_KEPT: Final = 2
_INT_MAX: Final = (1 << 31) - 1  # sizes are Java's ints
_PUFFIN: Final = b"PFA1"  # Puffin's magic


@dataclass(frozen=True, slots=True)
class Claims:
    """What a manifest says about its segment. The plugin writes it, but never reads it."""

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of a segment.

    Attributes:
        path: the manifest.
        file_size: the length of the log.
        chunk_size: that of a chunk of the log; the last one is what is left.
        starts: where the chunks are in the object, and the end of the last one.
        indexes: position and size of what is in the object of the indexes.
        is_compressed: whether chunks are compressed.
        key: id of the key and the data key that it encrypted; None without encryption.
        aad: what chunks are authenticated with.
        claims: what segment it is of; None if it does not say.
    """

    path: str
    file_size: int
    chunk_size: int
    starts: tuple[int, ...]
    indexes: dict[FileKind, tuple[int, int]]
    is_compressed: bool
    key: tuple[str, bytes] | None
    aad: bytes
    claims: Claims | None = None

    def size_of(self, kind: FileKind) -> int:
        """Return the length of the log or of an index, as it was uploaded; 0 if there is none."""
        if kind == FileKind.LOG:
            return self.file_size
        size = self.indexes.get(kind, (0, 0))[1]
        return max(size - SEALED, 0) if self.key is not None else size


def manifest_at(path: str) -> Manifest:
    """Return what the manifest at a path says.

    Raises:
        UnsupportedDataError: it is of another version, or in Iceberg mode.
        CorruptDataError: it is no manifest.
        NotFoundError, UnreadableError: it cannot be read.
    """
    try:
        status = file_system.stat(path)
    except FileNotFoundError:
        raise NotFoundError("The segment has no manifest.", path=path) from None
    except OSError as error:
        raise reading_error(error, path) from error
    return _manifest(path, status.st_mtime_ns, status.st_size)


@lru_cache(_MANIFESTS_KEPT)
def _manifest(path: str, _mtime_ns: int, _size: int) -> Manifest:
    data = read_file(path, _MANIFEST_SIZE_MAX)
    if data.startswith(_PUFFIN):
        raise UnsupportedDataError(
            "The manifest is that of a segment in an Iceberg table, which is not read.",
            path=path,
            hint="Read the table with what reads Iceberg.",
        )
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptDataError("This is no manifest of a segment.", path=path) from None
    if version != "1":
        shown = json.dumps(version)[:40]
        raise UnsupportedDataError(f"The manifest has version {shown}; 1 is read.", path=path)
    try:
        return _parsed(path, fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        words = str(error).splitlines()
        raise CorruptDataError(
            f"The manifest cannot be used: {words[0][:80] if words else 'a field is wrong'}.",
            path=path,
        ) from None


def _parsed(path: str, fields: dict[str, Any]) -> Manifest:
    chunks = fields["chunkIndex"]
    file_size = _number(chunks["originalFileSize"])
    chunk_size = max(_number(chunks["originalChunkSize"]), 1)
    count = -(-file_size // chunk_size)
    # Before lists of that length are made.
    if count > _CHUNKS_MAX:
        raise ValueError(f"it has {count} chunks")
    if chunks["type"] == "fixed":
        sizes = [_number(chunks["transformedChunkSize"])] * (count - 1)
        sizes += [_number(chunks["finalTransformedChunkSize"])] if count else []
    elif chunks["type"] == "variable":
        sizes = _chunk_sizes(b64decode(chunks["transformedChunks"], validate=True))
        sizes = sizes if count else []
    else:
        raise ValueError(f"it has a chunk index {str(chunks['type'])[:20]!r}")
    if len(sizes) != count:
        raise ValueError(f"it has {counted(len(sizes), 'chunk')} in place of {count}")
    indexes = {}
    for kind, name in INDEX_FIELDS.items():
        if (one := fields["segmentIndexes"].get(name)) is not None:
            indexes[kind] = (_number(one["position"]), _number(one["size"]))
    key, aad = None, b""
    if (sealed := fields.get("encryption")) is not None:
        key_id, _, data_key = sealed["dataKey"].partition(":")
        key = (key_id, b64decode(data_key, validate=True))
        aad = b64decode(sealed["aad"], validate=True)
    starts = tuple(accumulate(sizes, initial=0))
    is_compressed = fields["compression"]
    if not isinstance(is_compressed, bool):
        raise TypeError("compression is neither true nor false")
    claims = _claims(fields.get("remoteLogSegmentMetadata"))
    return Manifest(path, file_size, chunk_size, starts, indexes, is_compressed, key, aad, claims)


def _claims(fields: Any) -> Claims | None:
    try:
        name = fields["remoteLogSegmentId"]
        place = name["topicIdPartition"]
        partition = place["topicPartition"]
        found = Claims(
            partition["topic"], partition["partition"], place["topicId"], name["id"],
            fields["startOffset"], fields["endOffset"],
        )  # fmt: skip
    except (TypeError, KeyError):
        return None
    texts = (found.topic, found.topic_id, found.segment_id)
    numbers = (found.partition, found.start_offset, found.end_offset)
    is_sound = all(isinstance(one, str) for one in texts)
    return found if is_sound and all(type(one) is int for one in numbers) else None


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _INT_MAX:
        raise ValueError("a size is no number")
    return value


def _chunk_sizes(packed: bytes) -> list[int]:
    """Decode what `ChunkSizesBinaryCodec` encodes: the last size in full, others above a base."""
    # At most four bytes per chunk, and count, base, width and last size.
    data = decompress_known(packed, 4 * _CHUNKS_MAX + 16)
    count = int.from_bytes(data[:4], "big")
    if count < 2:
        if len(data) != 4 + 4 * count:
            raise ValueError("its sizes of chunks are malformed")
        return [int.from_bytes(data[4:], "big")] if count else []
    base, width = int.from_bytes(data[4:8], "big"), data[8]
    if width > 4 or len(data) != 9 + (count - 1) * width + 4:
        raise ValueError("its sizes of chunks are malformed")
    body = data[9:-4]
    sizes = [
        base + int.from_bytes(body[at * width : (at + 1) * width], "big") for at in range(count - 1)
    ]
    return [*sizes, int.from_bytes(data[-4:], "big")]


class ChunkedSource(Source):
    """A file of a segment in this layout, open for reading: its bytes as they were uploaded."""

    __slots__ = ("_chunks", "_data_key", "_is_compressed", "_lock", "_manifest", "_object",
                 "_starts", "_step")  # fmt: skip

    def _open(self) -> None:
        path = self.path = file_system.normalize(self.path)
        kind = parse_file_name(os.path.basename(path)).kind
        stem, _, _ = path.rpartition(".")
        manifest = self._manifest = manifest_at(stem + MANIFEST)
        self._data_key = None
        if manifest.key is not None:
            self._data_key = data_key(*manifest.key, manifest.path)
        self._is_compressed = manifest.is_compressed and kind == FileKind.LOG
        self._starts, self._step = manifest.starts, manifest.chunk_size
        if kind != FileKind.LOG:
            position, size = manifest.indexes.get(kind, (0, 0))
            self._starts, self._step = (position, position + size), max(size, 1)
        self.size_bytes = self.stored_bytes = manifest.size_of(kind)
        self._chunks: OrderedDict[int, bytes | bytearray] = OrderedDict()
        self._lock = Lock()
        self._object = _as_it_is(stem + (LOG if kind == FileKind.LOG else INDEXES_OBJECT))
        self.modified_timestamp = self._object.modified_timestamp

    def fileno(self) -> int:
        """Raise: what is read is in no file."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """Close the object; closing twice does no harm."""
        self._object.close()

    def has_changed(self) -> bool:
        """Return False: what was uploaded is never written again."""
        return False

    def next_data(self, position: int) -> int:
        """Return the position: there are no holes."""
        return min(position, self.size_bytes)

    def next_readable(self, position: int) -> int:
        """Return where the next chunk begins: one is readable as a whole, or not at all."""
        return min((position // self._step + 1) * self._step, self.size_bytes)

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill the buffer from `position`; the file must be that long. Raises as `Source.read`."""
        buffer = buffer.cast("B")
        if position + len(buffer) > self.size_bytes:
            raise self._became_shorter(self.size_bytes)
        # The object is the file: it is read at any position, without chunks.
        if self._data_key is None and not self._is_compressed:
            self._object.read_into(self._starts[0] + position, buffer)
            return
        while len(buffer):
            number, start = divmod(position, self._step)
            # Readers in several threads share the chunks.
            with self._lock:
                part = memoryview(self._chunk(number))[start : start + len(buffer)]
            buffer[: len(part)] = part
            buffer, position = buffer[len(part) :], position + len(part)

    def _chunk(self, number: int) -> bytes | bytearray:
        """Return a chunk of the file as it was uploaded, from those read last or the object."""
        if number in self._chunks:
            self._chunks.move_to_end(number)
            return self._chunks[number]
        size = min(self._step, self.size_bytes - number * self._step)
        start, end = self._starts[number : number + 2]
        try:
            if max(size, end - start) > _CHUNK_SIZE_MAX:
                raise ValueError(f"it has {max(size, end - start)} bytes")
            data = self._object.read(start, end - start)
            if len(data) < end - start:
                raise ValueError("the object ends before it does")
            if self._data_key is not None:
                data = opened_chunk(data, self._data_key, self._manifest.aad)
            found = decompress_known(data, size) if self._is_compressed else data
            if len(found) != size:
                raise ValueError(f"it has {counted(len(found), 'byte')} in place of {size}")
        except (ValueError, FileChangedError) as error:
            raise announced(
                BytesUnreadableError(
                    f"Chunk {number} of the segment cannot be read: {error}.",
                    path=self.path,
                    position=number * self._step,
                    hint="Restore the object from a version or a backup of the storage.",
                )
            ) from None
        self._chunks[number] = found
        if len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return found

    def _pread(self, position: int, size: int) -> bytes:
        chunk = bytearray(size)
        self.read_into(position, memoryview(chunk))
        return bytes(chunk)


def _as_it_is(path: str) -> Source:
    """Open an object whose name would stand for what is in it."""
    # Past `Source.__new__`, which would open a part by this name again.
    opened = object.__new__(ObjectSource if is_object(path) else Source)
    Source.__init__(opened, path)
    return opened
