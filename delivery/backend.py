"""The build backend: that of setuptools, which fetches a compiler if there are kernels to compile.

A wheel also needs what kafkalog itself needs: the command line writes its manual pages. The archive
of the sources and the metadata need neither.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, Final

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


_ROOT: Final = Path(__file__).parents[1]


def get_requires_for_build_wheel(settings: Any = None) -> list[str]:
    """Return what a wheel is built with, besides setuptools."""
    text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    own = tomllib.loads(text)["project"]["dependencies"]
    return [*build_meta.get_requires_for_build_wheel(settings), *_for_kernels(), *own]


def get_requires_for_build_editable(settings: Any = None) -> list[str]:
    """Return what an editable install is built with, besides setuptools."""
    return [*build_meta.get_requires_for_build_editable(settings), *_for_kernels()]


def _for_kernels() -> list[str]:
    sys.path.insert(0, str(_ROOT))
    from kafkalog.io.jit import library

    return library.build_requirements()
