"""Metrics in a file for the textfile collector of node_exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import UnsupportedError
from kafkalog.storage.files import NewFile

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsFile:
    """A file of metrics, which is replaced as a whole.

    Args:
        path: the file.
        what: what the metrics are about, as the subject of an error: `--metrics`.

    Raises:
        UnsupportedError: prometheus_client is not installed.
        UnwritableError: the file cannot be written there.
    """

    def __init__(self, path: str, what: str) -> None:
        try:
            import prometheus_client  # noqa: F401 # a missing library shows before the work
        except ImportError as error:
            raise UnsupportedError(
                f"{what} needs prometheus_client.", hint="pip install 'kafkalog[metrics]'"
            ) from error
        self._path = path
        # An unwritable place shows before hours of work, not after.
        with NewFile(path, replaces=True) as trial:
            trial.discard()

    def write(self, registry: CollectorRegistry) -> None:
        import prometheus_client

        with NewFile(self._path, replaces=True) as new:
            new.file.write(prometheus_client.generate_latest(registry))
