"""The C functions of the codecs' packages, as addresses that kernels call without Python.

They are the public interfaces of liblz4, libzstd, ISA-L and zlib, which the extension modules of
the packages and of Python export. Where one is missing, as it may be in another build, its address
is 0, and the codec's module is used instead. The package for snappy exports none.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_ZSTD_MODULE: Final = "_zstd" if sys.version_info >= (3, 14) else "backports.zstd._zstd"

FUNCTIONS: Final = (
    ("lz4.frame._frame", "LZ4_decompress_safe"),
    ("lz4.frame._frame", "XXH32"),
    (_ZSTD_MODULE, "ZSTD_createDCtx"),
    (_ZSTD_MODULE, "ZSTD_freeDCtx"),
    (_ZSTD_MODULE, "ZSTD_decompressDCtx"),
    ("isal.isal_zlib", "isal_inflate_init"),
    ("isal.isal_zlib", "isal_inflate_stateless"),
    ("isal.isal_zlib", "crc32_gzip_refl"),
    ("lz4.frame._frame", "LZ4_compress_fast"),
    (_ZSTD_MODULE, "ZSTD_createCCtx"),
    (_ZSTD_MODULE, "ZSTD_freeCCtx"),
    (_ZSTD_MODULE, "ZSTD_CCtx_setParameter"),
    (_ZSTD_MODULE, "ZSTD_CCtx_reset"),
    (_ZSTD_MODULE, "ZSTD_compressStream2"),
    ("zlib", "deflateInit2_"),
    ("zlib", "deflate"),
    ("zlib", "deflateReset"),
    ("zlib", "deflateEnd"),
)
"""Each function with the extension module that exports it, in the order of `addresses`."""


@cache
def addresses() -> tuple[int, ...]:
    """Return the address of each function, or 0."""
    return tuple(_address(module, name) for module, name in FUNCTIONS)


@cache
def decompress_whole() -> Any:
    """Return libzstd's `ZSTD_decompress`, for whole frames of a known size; None if missing."""
    address = _address(_ZSTD_MODULE, "ZSTD_decompress")
    size, place = ctypes.c_size_t, ctypes.c_void_p
    return ctypes.CFUNCTYPE(size, place, size, ctypes.c_char_p, size)(address) if address else None


def _spec(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except ValueError:  # another thread imports it: until that ends, it is there without a spec
        package = import_module(module.rpartition(".")[0])
        return PathFinder.find_spec(module, package.__path__)


def _address(module: str, name: str) -> int:
    try:
        found = _spec(module)
        if found is None or not (found.has_location or found.origin == "built-in"):
            return 0
        # Debian builds zlib into its Python, whose own symbols are those of no library.
        function = getattr(ctypes.CDLL(found.origin if found.has_location else None), name)
    except (AttributeError, ImportError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
