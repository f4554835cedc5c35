"""The output of `dump-segment` to a file of Parquet or Arrow."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from formats.file_names import INDEX_KINDS
from kafkalog.errors import KafkaLogError, ShortageError, UsageError
from kafkalog.files.log_dir import FileEntry, PartitionDir, one_log
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.model import Defect
from kafkalog.node.reader import plan_reading
from kafkalog_cli.output.dump import LOGS, DumpStyle, with_missing
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.side_files import index_entries, selected_entries

if TYPE_CHECKING:
    from kafkalog.files.log_dir import Target
    from kafkalog.tables.arrow_files import Exporter
    from kafkalog_cli.outcome import Outcome

_BATCH_ROWS = 16384


class FileDump:
    """Writes targets of one kind to a file of Parquet or Arrow; use it as a context manager.

    The file appears when it is complete.

    Attributes:
        rows: how many were written so far.

    Raises:
        UnsupportedError: a package is missing.
        DestinationExistsError, UnwritableError: see `NewFile`.
    """

    def __init__(self, path: str, selection: Selection, style: DumpStyle, outcome: Outcome) -> None:
        # Arrow's own pool keeps tens of megabytes that it does not use.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        from kafkalog.io.jit import fast_path

        fast_path.require_arrow()
        self.rows = 0
        self._path = path
        self._selection = selection
        self._style = style
        self._outcome = outcome
        self._kind: str | None = None
        self._exporter: Exporter | None = None
        self._files = ExitStack()

    def __enter__(self) -> Self:
        from kafkalog.io.storage import NewFile

        self._new_file = self._files.enter_context(NewFile(self._path))
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._exporter is None:
            self._new_file.discard()
        self._files.__exit__(*raised)

    def show(self, target: Target) -> None:
        """Write one target; errors in it are reported, not raised.

        Raises:
            UsageError: it is of another kind than the first one.
        """
        if self._selection.limit == 0:
            return
        try:
            target = one_log(target)
            exporter = self._exporter_for(target)
            view = self._selection.view
            what = target if isinstance(target, FileEntry) else self._outcome.shown(target, view)
            with byte_progress([target], enabled=self._style.progress) as progress:
                if self._kind in ("records", "batches"):
                    from kafkalog.node.scan import scan

                    read = partial(
                        scan,
                        batches=self._kind == "batches",
                        batch_rows=_BATCH_ROWS,
                        defects=self._outcome.hear,
                        progress=progress,
                    )
                    for found in with_missing(what, plan_reading(what, self._selection), read):
                        if isinstance(found, Defect):
                            self._outcome.hear(found)
                            continue
                        exporter.write(found)
                        self._count(found.num_rows)
                else:
                    assert isinstance(target, FileEntry), "only files are of other kinds"
                    entries = index_entries(target.path, target.name.kind)
                    wanted = selected_entries(entries, self._selection)
                    self._count(exporter.write_entries(wanted, target.path))
        except (UsageError, ShortageError):  # the other targets would fail the same way
            raise
        except KafkaLogError as error:
            self._outcome.hear(error)

    def _count(self, rows: int) -> None:
        """Count rows that were written: the limit is one for all targets."""
        self.rows += rows
        if (limit := self._selection.limit) is not None:
            self._selection = replace(self._selection, limit=limit - rows)

    def _exporter_for(self, target: PartitionDir | FileEntry) -> Exporter:
        kind = "records" if self._style.records else "batches"
        if isinstance(target, FileEntry) and target.name.kind not in LOGS:
            if target.name.kind not in INDEX_KINDS:
                raise UsageError(
                    f"A file of this kind cannot be written as {self._style.form}.",
                    path=target.path,
                    hint="Logs and indexes can; for others there are ndjson, json and csv.",
                )
            kind = str(target.name.kind)
        if self._kind not in (None, kind):
            raise UsageError(
                f"A file holds rows of one kind: {self._kind} so far, {kind} here.",
                path=target.path,
                hint="Write each kind to its own file.",
            )
        if self._exporter is None:
            from kafkalog.tables.arrow_files import Exporter

            made = Exporter(self._new_file.file, self._style.form, kind, _facts(self._selection))
            self._exporter = self._files.enter_context(made)
            self._kind = kind
        return self._exporter


def _facts(selection: Selection) -> dict[str, Any]:
    """Return the selection for the metadata of the file."""
    from importlib.metadata import version

    chosen = {
        name: _plain(value)
        for name, value in asdict(selection).items()
        if value != getattr(EVERYTHING, name)
    }
    return {"version": version("kafkalog"), "selection": chosen}


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return [None if part is None else _plain(part) for part in value]
    if isinstance(value, re.Pattern):
        value = value.pattern
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value
