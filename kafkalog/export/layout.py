"""Names in the destination of an export.

Names that begin with an underscore or a dot are passed over by whatever reads a directory as a
table: Spark, Hive, DuckDB's and pyarrow's data sets.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from kafkalog.tables import Split

OWN: Final = "_kafkalog"
PLAN: Final = f"{OWN}/plan.json"
BUILDING: Final = f"{OWN}/building"
PARTS: Final = f"{OWN}/parts"
MANIFEST: Final = f"{OWN}/manifest.json"
SUCCESS: Final = "_SUCCESS"


def entry_name(number: int) -> str:
    """What is known of a part that was written."""
    return f"{PARTS}/{number:08d}.json"


def directory_name(split: Split) -> str:
    """As Hive names partitions: what is special in names is escaped as in URLs."""
    return f"topic={quote(os.fsencode(split.topic), safe='')}/partition={split.partition}"


def file_name(splits: list[Split], replica: int | None, suffix: str) -> str:
    """Where the rows begin and end: base offsets of segments and positions in them.

    Args:
        splits: neighbours of one partition.
        replica: the ordinal of the partition directory, where a partition has several.
        suffix: the name's end.
    """
    first, last = splits[0], splits[-1]
    if first.end:
        name = f"{first.base_offset:020d}-{first.start}"
        if last.path != first.path:
            name += f"-{last.base_offset:020d}"
        name += f"-{last.end}"
    else:
        name = str(first.table)
    if replica is not None:
        name = f"replica{replica}-{name}"
    return f"{directory_name(first)}/{name}{suffix}"
