"""Writes tiers as Aiven's plugin for tiered storage does, from the description in its repository.

No part of kafkalog is used: chunks, manifest and sizes follow the README and the javadoc of
`ChunkSizesBinaryCodec`, the padding of the data key RFC 8017, and the ciphers are those of
`cryptography`, where kafkalog uses another library. None of it was written by the plugin itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zstandard
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from pathlib import Path

TOPIC_ID = "qcTm-9etQeKXX6L9q4c_5w"
_INDEXES = {
    "offset": ".index",
    "timestamp": ".timeindex",
    "producerSnapshot": ".snapshot",
    "leaderEpoch": ".leader_epoch_checkpoint",
    "transaction": ".txnindex",
}


@dataclass(frozen=True)
class Packing:
    """How segments are packed; `key` is the key that encrypts data keys, with its id."""

    chunk_size: int = 1000
    compression: bool = False
    key: tuple[str, rsa.RSAPrivateKey] | None = None


def new_key(directory: Path, name: str) -> rsa.RSAPrivateKey:
    """Make a key and write `NAME.pem`."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (directory / f"{name}.pem").write_bytes(pem)
    return key


def _mask(seed: bytes, size: int) -> bytes:
    """Return MGF1 of RFC 8017 with SHA3-512."""
    blocks = (
        hashlib.sha3_512(seed + number.to_bytes(4, "big")).digest()
        for number in range(-(-size // 64))
    )
    return b"".join(blocks)[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def sealed_key(key: rsa.RSAPublicKey, data_key: bytes) -> bytes:
    """Encrypt with RSAES-OAEP of RFC 8017 and SHA3-512: `OAEPWithSHA3-512AndMGF1Padding`."""
    numbers = key.public_numbers()
    size = key.key_size // 8
    block = hashlib.sha3_512(b"").digest()
    block += bytes(size - len(data_key) - 2 * 64 - 2) + b"\1" + data_key
    seed = os.urandom(64)
    masked = _xor(block, _mask(seed, size - 64 - 1))
    message = b"\0" + _xor(seed, _mask(masked, 64)) + masked
    sealed = pow(int.from_bytes(message, "big"), numbers.e, numbers.n)
    return sealed.to_bytes(size, "big")


def packed_sizes(values: list[int]) -> str:
    """Encode chunk sizes as a manifest does: a base, and a few bytes for each difference."""
    *others, last = values
    packed = len(values).to_bytes(4, "big")
    if others:
        base = min(others)
        width = max(1, -(-max(one - base for one in others).bit_length() // 8))
        packed += base.to_bytes(4, "big") + bytes([width])
        packed += b"".join((one - base).to_bytes(width, "big") for one in others)
    packed += last.to_bytes(4, "big")
    compressed = zstandard.ZstdCompressor().compress(packed)
    return base64.b64encode(compressed).decode()


def uploaded(partition: Path, tier: Path, topic_id: str = TOPIC_ID) -> Path:
    """Copy a partition's segments with records as `LocalTieredStorage` uploads them."""
    target = tier / f"{partition.name}-{topic_id}"
    target.mkdir(parents=True)
    snapshots = sorted(partition.glob("*.snapshot"))
    for number, log in enumerate(sorted(partition.glob("*.log"))):
        if not log.stat().st_size:
            continue
        stem = f"{log.stem}-{'A' * 20}{number:02d}"
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if log.with_suffix(suffix).exists():
                shutil.copy(log.with_suffix(suffix), target / f"{stem}{suffix}")
        after = [one for one in snapshots if one.stem > log.stem]
        (target / f"{stem}.snapshot").write_bytes(after[0].read_bytes())
        epochs = (partition / "leader-epoch-checkpoint").read_bytes()
        (target / f"{stem}.leader_epoch_checkpoint").write_bytes(epochs)
    return target


def pack(directory: Path, target: Path, packing: Packing) -> Path:
    """Write a partition of `LocalTieredStorage` in packed form below `target`; return its path."""
    topic, number, topic_id = _place_of(directory.name)
    found = target / f"{topic}-{topic_id}" / number
    found.mkdir(parents=True)
    for log in sorted(directory.glob("*.log")):
        _pack_segment(log, found, packing)
    return found


def _place_of(name: str) -> tuple[str, str, str]:
    topic, number = name[:-23].rsplit("-", 1)
    return topic, number, name[-22:]


def _described(log: Path, target: Path, whole: bytes) -> dict[str, Any]:
    """Return a segment's metadata as the plugin's `KafkaTypeSerdeModule` writes it."""
    at, end = 0, int(log.name[:20])
    while at < len(whole):
        base, size = struct.unpack_from(">qi", whole, at)
        [delta] = struct.unpack_from(">i", whole, at + 23)
        at, end = at + 12 + size, base + delta
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": target.parent.name[-22:],
                "topicPartition": {
                    "topic": target.parent.name[:-23],
                    "partition": int(target.name),
                },
            },
            "id": log.stem[21:],
        },
        "startOffset": int(log.name[:20]),
        "endOffset": end,
        "maxTimestampMs": 0,
        "brokerId": 1,
        "eventTimestampMs": 0,
        "segmentLeaderEpochs": {"0": int(log.name[:20])},
    }


def _pack_segment(log: Path, target: Path, packing: Packing) -> None:
    data_key, aad = AESGCM.generate_key(256), os.urandom(32)

    def sealed(data: bytes) -> bytes:
        if packing.key is None:
            return data
        iv = os.urandom(12)
        return iv + AESGCM(data_key).encrypt(iv, data, aad)

    whole, size = log.read_bytes(), packing.chunk_size
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    if packing.compression:
        chunks = [zstandard.ZstdCompressor().compress(one) for one in chunks]
    chunks = [sealed(one) for one in chunks]
    (target / log.name).write_bytes(b"".join(chunks))
    sizes = [len(one) for one in chunks]
    index: dict[str, Any] = {"originalChunkSize": size, "originalFileSize": len(whole)}
    if packing.compression:
        index = {"type": "variable", **index, "transformedChunks": packed_sizes(sizes)}
    else:
        index = {
            "type": "fixed",
            **index,
            "transformedChunkSize": sizes[0],
            "finalTransformedChunkSize": sizes[-1],
        }
    places: dict[str, Any] = {}
    together = b""
    for name, suffix in _INDEXES.items():
        path = log.with_suffix(suffix)
        content = path.read_bytes() if path.exists() else None
        if name == "transaction" and content is None:
            places[name] = None
            continue
        assert content is not None, path
        content = sealed(content) if content else b""
        places[name] = {"position": len(together), "size": len(content)}
        together += content
    (target / log.with_suffix(".indexes").name).write_bytes(together)
    manifest = {
        "version": "1",
        "chunkIndex": index,
        "segmentIndexes": places,
        "compression": packing.compression,
        "remoteLogSegmentMetadata": _described(log, target, whole),
    }
    if packing.key is not None:
        name, key = packing.key
        text = base64.b64encode(sealed_key(key.public_key(), data_key)).decode()
        encryption = {"dataKey": f"{name}:{text}", "aad": base64.b64encode(aad).decode()}
        manifest["encryption"] = encryption
    path = target / log.with_suffix(".rsm-manifest").name
    path.write_text(json.dumps(manifest, separators=(",", ":")))
