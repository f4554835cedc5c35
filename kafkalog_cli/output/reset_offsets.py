"""Offsets as a CSV that `kafka-consumer-groups --reset-offsets --from-file` takes."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def write_reset_offsets(path: str, rows: Iterable[Sequence[str | int | None]]) -> None:
    """Write rows of topic, partition and offset to a new file; of several groups, after the group.

    Kafka's tool reads a file without groups if it is called with one `--group`, else one with them.

    Raises:
        DestinationExistsError, UnwritableError: see `NewFile`.
    """
    from kafkalog.storage import NewFile

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with NewFile(path) as new:
        new.file.write(text.getvalue().encode())
