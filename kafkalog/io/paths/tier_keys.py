"""Private keys of tiers: what Aiven's plugin encrypted is opened with them, in each process.

Follows `RsaEncryptionProvider` and `DecryptionChunkEnumeration` of that plugin. Keys stay in
memory; other processes get them with their work, and nothing shows them.
"""

from __future__ import annotations

import os
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog.errors import UnsupportedDataError, UnsupportedError, UsageError
from kafkalog.io.paths.source import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of AES-GCM: before a chunk, and after it.
_IV_SIZE: Final = 12
_TAG_SIZE: Final = 16
SEALED: Final = _IV_SIZE + _TAG_SIZE
"""How much longer a chunk is that was encrypted."""
_DATA_KEYS_KEPT: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class TierKeys:
    """Private keys on their way to another process, which uses them as soon as it has them.

    Attributes:
        keys: of each key its id, the path of its file, and what that holds. They are never shown.
    """

    keys: tuple[tuple[str, str, bytes], ...] = field(default=(), repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again, and uses the keys there."""
        return _arrived, (self.keys,)


_keys: dict[str, tuple[str, bytes]] = {}  # key id to the file and what it holds


def use_keys(paths: Iterable[str]) -> TierKeys:
    """Use private RSA keys in this process; the id of each is its file's name without the suffix.

    Returns:
        The keys, for other processes.

    Raises:
        NotFoundError, UnreadableError: a file cannot be read.
        UsageError: it holds no private RSA key.
    """
    found = []
    for path in paths:
        data = read_file(path, 1 << 20)
        if _private_key(data) is None:
            raise UsageError(
                "This is no private RSA key in PEM, or a passphrase protects it.", path=path
            )
        found.append((os.path.splitext(os.path.basename(path))[0], path, data))
    return _arrived(tuple(found))


def _arrived(keys: tuple[tuple[str, str, bytes], ...]) -> TierKeys:
    _keys.update((key_id, (path, data)) for key_id, path, data in keys)
    return TierKeys(keys)


def keys_in_use() -> TierKeys:
    """Return the keys of this process, for other ones."""
    return TierKeys(tuple((key_id, path, data) for key_id, (path, data) in _keys.items()))


@lru_cache(64)
def _private_key(data: bytes) -> Any:
    """Return the private RSA key in a file; None if it holds none."""
    try:
        key = _crypto().RSA.import_key(data)
    except (ValueError, IndexError, TypeError):  # pycryptodome raises each of them for other files
        return None
    return key if key.has_private() else None


class _Crypto:
    """The parts of pycryptodome that are used."""

    def __init__(self) -> None:
        from Crypto.Cipher import AES, PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA

        self.AES, self.OAEP, self.SHA3_512, self.RSA = AES, PKCS1_OAEP, SHA3_512, RSA


@lru_cache(1)
def _crypto() -> _Crypto:
    try:
        return _Crypto()
    except ImportError as error:
        raise UnsupportedError(
            "Reading encrypted segments needs pycryptodome, which is not installed.",
            hint="pip install 'kafkalog[data]'",
        ) from error


@lru_cache(_DATA_KEYS_KEPT)
def _data_key(key_id: str, sealed: bytes, key: bytes) -> bytes:
    """Decrypt a data key. Raises `ValueError` if the key does not fit."""
    crypto = _crypto()
    cipher = crypto.OAEP.new(_private_key(key), hashAlgo=crypto.SHA3_512)
    data_key: bytes = cipher.decrypt(sealed)
    if len(data_key) != 32:  # AES-256
        raise ValueError(f"a data key of {len(data_key)} bytes is unknown, key {key_id}")
    return data_key


def data_key(key_id: str, sealed: bytes, manifest: str) -> bytes:
    """Return the data key of a segment.

    Args:
        key_id: id of the private key.
        sealed: the data key as the manifest has it.
        manifest: the path of the manifest.

    Raises:
        UnsupportedDataError: the private key was not given, or is another one.
    """
    if (known := _keys.get(key_id)) is None:
        raise UnsupportedDataError(
            f"The segment is encrypted, and the private key {key_id} is not given.",
            path=manifest,
            hint=f"kafkalog --tier-key {key_id}.pem …",
        )
    path, key = known
    try:
        return _data_key(key_id, sealed, key)
    except (ValueError, TypeError):
        raise UnsupportedDataError(
            f"The segment is encrypted, and its key is not the one in {path}.", path=manifest
        ) from None


def opened_chunk(data: bytes, key: bytes, aad: bytes) -> bytes:
    """Decrypt a chunk: an initialization vector, AES-256-GCM, and its tag. Raises `ValueError`."""
    if len(data) < SEALED:
        raise ValueError("it is too short")
    aes = _crypto().AES
    cipher = aes.new(key, aes.MODE_GCM, nonce=data[:_IV_SIZE])
    cipher.update(aad)
    try:
        plain: bytes = cipher.decrypt_and_verify(data[_IV_SIZE:-_TAG_SIZE], data[-_TAG_SIZE:])
    except ValueError:
        raise ValueError("it was changed after it was encrypted") from None
    return plain
