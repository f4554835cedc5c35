"""A dataset that keeps what made a read fail: DuckDB passes on only the words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.datasets.arrow_dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.datasets.model import StateTable, Tables
    from kafkalog.datasets.scanner import Scanner
    from kafkalog.tables.model import TableName


class WatchedDataset(Dataset):
    """A dataset.

    Args:
        tables, table: as for `Dataset`.
        failures: gets each exception that ends a read.
    """

    def __init__(
        self, tables: Tables, table: TableName | StateTable, failures: list[BaseException]
    ) -> None:
        super().__init__(tables, table)
        self._failures = failures

    def scanner(self, *args: Any, **options: Any) -> Any:
        """Return a read whose failure is kept."""
        return _WatchedScanner(super().scanner(*args, **options), self._failures)


class _WatchedScanner:
    def __init__(self, scanner: Scanner, failures: list[BaseException]) -> None:
        self._scanner = scanner
        self._failures = failures

    def to_reader(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._scanner.to_batches()
        except Exception as raised:  # raised again: DuckDB passes on only its words
            self._failures.append(raised)
            raise
