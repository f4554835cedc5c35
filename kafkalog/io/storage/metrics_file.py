"""Metrics in a file for the textfile collector of node_exporter."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from kafkalog.errors import DestinationExistsError, UnsupportedError
from kafkalog.io.storage.files import NewFile, unwritable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_BEGIN: Final = b"# HELP kafkalog_"


class MetricsFile:
    """A file of metrics, which is replaced as a whole.

    Args:
        what: what the metrics are about, as the subject of an error: `--metrics`.

    Raises:
        UnsupportedError: prometheus_client is not installed.
        DestinationExistsError: there is a file of something else.
        UnwritableError: the file cannot be written there.
    """

    def __init__(self, path: str, what: str) -> None:
        try:
            import prometheus_client  # noqa: F401 # a missing library shows before the work
        except ImportError as error:
            raise UnsupportedError(
                f"{what} needs prometheus_client.", hint="pip install 'kafkalog[data]'"
            ) from error
        self._path = path
        _require_metrics(path)
        # An unwritable place shows before hours of work, not after.
        with NewFile(path, replaces=True) as trial:
            trial.discard()

    def write(self, registry: CollectorRegistry) -> None:
        import prometheus_client

        with NewFile(self._path, replaces=True) as new:
            new.file.write(prometheus_client.generate_latest(registry))


def _require_metrics(path: str) -> None:
    """Raise unless a path is free, or a file that is empty or has our metrics."""
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
        with open(path if is_regular else os.devnull, "rb") as file:
            begin = file.read(len(_BEGIN))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(error, path) from error
    if not is_regular or begin not in (b"", _BEGIN):
        raise DestinationExistsError(
            "It exists, and holds something else than metrics of kafkalog.",
            path=path,
            hint="Name another file.",
        )
