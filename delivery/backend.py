"""The build backend: that of setuptools, which fetches a compiler if there are kernels to compile.

The archive of the sources and the metadata need none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(settings: Any = None) -> list[str]:
    """Return what a wheel is built with, besides setuptools."""
    return [*build_meta.get_requires_for_build_wheel(settings), *_for_kernels()]


def get_requires_for_build_editable(settings: Any = None) -> list[str]:
    """Return what an editable install is built with, besides setuptools."""
    return [*build_meta.get_requires_for_build_editable(settings), *_for_kernels()]


def _for_kernels() -> list[str]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from kafkalog.io.jit import library

    return library.build_requirements()
