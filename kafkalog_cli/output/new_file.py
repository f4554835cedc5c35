"""Rows in a new file, whose form its suffix says."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UsageError
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

COLUMNAR: Final = ("parquet", "arrow")
"""The forms that are written by columns; the others are text."""
_FORMS: Final = (*COLUMNAR, *(one for one in Format if one.has_objects))


def form_of(to: str, given: StrEnum) -> str:
    """Return the form of a file.

    Args:
        given: what `--format` says: the default, or the same.

    Raises:
        UsageError: the suffix names no form, or another than is given.
    """
    form = os.path.splitext(to)[1][1:]
    if form not in _FORMS:
        suffixes = ", ".join(f".{one}" for one in _FORMS)
        raise UsageError(f"--to {to}: the suffix names no format.", hint=f"There are {suffixes}.")
    if given.value not in ("table", form):
        raise UsageError(
            f"--to {to} cannot be combined with --format {given}.", hint="The suffix is the format."
        )
    return form


@contextmanager
def text_to(to: str | None) -> Iterator[None]:
    """Write what the block writes to stdout to a new file, which appears when it is complete.

    Raises:
        DestinationExistsError, UnwritableError: see `NewFile`.
    """
    if to is None:
        yield
        return
    from kafkalog.io.storage import NewFile

    with NewFile(to) as new:
        sys.stdout.flush()
        text = io.TextIOWrapper(new.file, encoding="utf-8", newline="")
        with redirect_stdout(text):
            yield
        text.flush()
        text.detach()
