"""The run that writes one table, of any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.change.lake.append import Append
from kafkalog.change.lake.model import NOTHING_ACCEPTED, TableFormat
from kafkalog.change.lake.run import Export
from kafkalog.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.change.lake.iceberg_append import IcebergAppend
    from kafkalog.change.lake.model import Accepted, ExportRequest
    from kafkalog.change.lake.of_type import Turn
    from kafkalog.errors import Listener


def table_run(
    asked: ExportRequest,
    to: str,
    *,
    fail_fast: bool = False,
    accepted: Accepted = NOTHING_ACCEPTED,
    catalog: Mapping[str, str] | None = None,
    listener: Listener | None = None,
    turn: Turn | None = None,
) -> Export | Append | IcebergAppend:
    """Return the run that makes a table or adds to it; use it as a context manager.

    Args:
        asked, to, fail_fast, accepted, listener, turn: as for `Export`.
        catalog: properties of the catalog of an Iceberg table.

    Raises:
        UnsupportedError: `pyiceberg` is not installed.
        as `Export`, `Append` or `IcebergAppend`.
    """
    if not asked.append or asked.table_format != TableFormat.ICEBERG:
        kind = Append if asked.append else Export
        return kind(asked, to, fail_fast=fail_fast, accepted=accepted, listener=listener, turn=turn)
    try:
        from kafkalog.change.lake.iceberg_append import IcebergAppend
    except ImportError as error:
        raise UnsupportedError(
            "Iceberg tables are written by pyiceberg, which is not installed.",
            hint="pip install 'kafkalog[lake]'",
        ) from error
    return IcebergAppend(
        asked, to, fail_fast=fail_fast, accepted=accepted, catalog=catalog, listener=listener,
        turn=turn,
    )  # fmt: skip
