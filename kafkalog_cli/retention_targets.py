"""Which partitions the retention commands look at, and the configs of their topics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.configs import ConfigSources, LogDirConfigs, TopicConfigs
    from kafkalog.log_dir import FileEntry, LogDir, PartitionDir
    from kafkalog_cli.outcome import Outcome


def retention_partitions(
    targets: list[LogDir | PartitionDir | FileEntry], sources: ConfigSources, outcome: Outcome
) -> Iterator[tuple[PartitionDir, TopicConfigs]]:
    """Every partition with a log, and the configs of its topic."""
    from kafkalog.errors import KafkaLogError, NotAKafkaFileError
    from kafkalog.log_dir import FileEntry, LogDir
    from kafkalog_cli.render.configs import tell_metadata

    log_dirs: dict[str, LogDirConfigs] = {}
    for target in targets:
        if isinstance(target, FileEntry):
            error = NotAKafkaFileError(
                "This is a file, not a partition or log directory.",
                path=target.path,
                hint="Retention looks at the segments of a partition beside each other.",
            )
            outcome.error(error)
            continue
        partitions = target.partitions if isinstance(target, LogDir) else (target,)
        for partition in partitions:
            if not partition.segments:
                continue
            path = os.path.dirname(os.path.abspath(partition.path))
            try:
                if path not in log_dirs:
                    log_dirs[path] = sources.in_log_dir(path)
                    tell_metadata(log_dirs[path], outcome)
                yield partition, log_dirs[path].of_topic(partition.topic)
            except KafkaLogError as stop:
                outcome.error(stop)
