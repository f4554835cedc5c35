"""One partition's log as consumers are served it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.model import Watermark
from kafkalog.unified_log import UnifiedLog
from kafkalog.view import show_now

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir
    from kafkalog.server.catalog import ServedPartition
    from kafkalog.server.model import ServeListener, ServeOptions


class ServedLog:
    """The log of a partition, opened.

    Args:
        served: the partition that clients see.
        directory: the copy that is served.
        options: how it is served.
        listener: hears of damage.

    Raises:
        KafkaLogError: the log cannot be read.
    """

    def __init__(
        self,
        served: ServedPartition,
        directory: PartitionDir,
        options: ServeOptions,
        listener: ServeListener,
    ) -> None:
        self.served = served
        self._options = options
        self._listener = listener
        self.log = UnifiedLog(
            show_now(directory).partition,
            high_watermark="end" if options.high_watermark == Watermark.END else None,
        )
