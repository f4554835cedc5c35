"""The progress file of a run: which run it is, and where group offsets lead.

How far a run has come is in the cluster, in the same transactions as the records: this file says
under which names to look for it. So a run that was killed goes on without a gap or a duplicate,
whatever of the file's last line was written.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.errors import CorruptDataError, RefusedError, UnreadableError
from kafkalog.io.documents import Anything, Either, Fields, Flag, Items, Number, Row, Text, parsed
from kafkalog.io.storage import AppendedFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION: Final = 1
_SIZE_MAX: Final = 1 << 28
_NAME: Final = Text(length_max=1 << 16)
_TWO: Final = Row((Number(), Number()))
_THREE: Final = Row((Number(), Number(), Number()))
_HEAD: Final = Fields(
    {
        "kafkalog_replay": Number(_VERSION, _VERSION),
        "run": Text(re.compile("[0-9a-f]{16}")),
        "asked": Anything(),
        "logs": Items(Row((_NAME, _NAME, Anything()))),
    }
)
_BEGINS: Final = tuple(
    f'{{"{name}": '.encode()
    for name in ("kafkalog_replay", "cluster", "records", "resumed", "complete")
)
_LINE: Final = Either(
    (
        _HEAD,
        Fields({"cluster": Text(), "topic": Text()}),
        Fields({"records": Number(), "offsets": Items(_THREE), "ends": Items(_TWO)}),
        Fields({"resumed": Number()}),
        Fields({"complete": Flag()}),
    )
)


class ProgressFile:
    """The file; use it as a context manager.

    Args:
        path: the file, created if missing.
        asked: what the run must be about, as JSON values.
        logs: path, topic and partition of its logs, in order.

    Attributes:
        run: the identity of the run.
        cluster: the cluster it began in; None if nothing can have been produced.
        topic: the topic whose partition 0 its progress is committed for.
        is_complete: whether it came to its end.

    Raises:
        DestinationExistsError: another run uses the file.
        RefusedError: the file belongs to another run.
        CorruptDataError: it is no progress file.
        UnreadableError, UnwritableError: it cannot be read or written.
    """

    def __init__(
        self, path: str, asked: Mapping[str, Any], logs: Sequence[tuple[str, str, int | None]]
    ) -> None:
        self._file = AppendedFile(path, _BEGINS)
        self._path = path
        self._asked = dict(asked)
        self._logs = [list(one) for one in logs]
        self._noted: list[dict[str, Any]] = []
        self.run = ""
        self.cluster: str | None = None
        self.topic: str | None = None
        self.is_complete = False

    def __enter__(self) -> Self:
        self._file.__enter__()
        try:
            self._load()
        except BaseException:  # the lock is not kept, whatever it was
            self._file.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def begin(self, cluster: str, topic: str) -> None:
        """Note that records will be produced from now on."""
        self._append({"cluster": cluster, "topic": topic})
        self.cluster, self.topic = cluster, topic

    def resume(self, records: int) -> None:
        """Forget what was noted for more records than were committed."""
        # A run died between its note and the transaction that would have made it true.
        if any(row["records"] > records for row in self._noted):
            self._append({"resumed": records})
            self._forget(records)

    def _forget(self, records: int) -> None:
        self._noted = [row for row in self._noted if row["records"] <= records]

    def note(
        self,
        records: int,
        offsets: Sequence[tuple[int, int, int]],
        ends: Mapping[int, int],
    ) -> None:
        """Note where offsets lead, before the transaction that makes it true.

        Args:
            records: how many records are in the cluster once it is committed.
            offsets: log, offset in it, offset in the cluster.
            ends: log to the offset after its last record in the cluster.
        """
        row = {
            "records": records,
            "offsets": [list(one) for one in offsets],
            "ends": [list(pair) for pair in ends.items()],
        }
        self._append(row)
        self._noted.append(row)

    def complete(self) -> None:
        self._append({"complete": True})
        self.is_complete = True

    def known(self) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        """Return log and offset in it to offset in the cluster, and log to its end there."""
        offsets: dict[tuple[int, int], int] = {}
        ends: dict[int, int] = {}
        for row in self._noted:
            offsets |= {(log, old): new for log, old, new in row["offsets"]}
            ends |= dict(row["ends"])
        return offsets, ends

    def _append(self, row: dict[str, Any]) -> None:
        self._file.append(json.dumps(row).encode())

    def _load(self) -> None:
        lines = self._lines()
        if not lines:
            self.run = secrets.token_hex(8)
            self._append(self._head())
            return
        head = lines[0]
        for line in lines[1:]:
            if "run" in line:
                head = line  # nothing had begun
            elif "cluster" in line:
                self.cluster, self.topic = line["cluster"], line["topic"]
            elif "resumed" in line:
                self._forget(line["resumed"])
            elif "complete" in line:
                self.is_complete = True
            else:
                self._noted.append(line)
        self.run = head["run"]
        if head["asked"] == self._asked and head["logs"] == self._logs:
            return
        if self.cluster is None:
            self._append(self._head())
            return
        what = "the logs that are there now" if head["asked"] == self._asked else "this command"
        raise RefusedError(
            f"The file has the progress of another run, not of {what}.",
            path=self._path,
            hint="Repeat the command as it was, or name another file.",
        )

    def _head(self) -> dict[str, Any]:
        return {
            "kafkalog_replay": _VERSION,
            "run": self.run,
            "asked": self._asked,
            "logs": self._logs,
        }

    def _lines(self) -> list[dict[str, Any]]:
        """Read the whole lines of the file; the last one may be torn."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(_SIZE_MAX + 1)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise UnreadableError(
                f"The progress file cannot be read: {reason}.", path=self._path
            ) from error
        whole = data.split(b"\n")[:-1]
        try:
            if len(data) > _SIZE_MAX:
                raise ValueError("it is something else")
            found = [parsed(line) for line in whole]
            for number, one in enumerate(found):
                (_LINE if number else _HEAD).check(one, f"line {number + 1}")
        except ValueError as error:
            raise CorruptDataError(
                f"This is not the progress of a replay: {error}.",
                path=self._path,
                hint="Name another file.",
            ) from error
        return found
