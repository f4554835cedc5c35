"""Produces what is in logs into a cluster, each record once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.wire.producing.model import ReplayListener, Request
    from kafkalog.wire.producing.run import ReplaySummary


def replay(
    *paths: str | os.PathLike[str],
    bootstrap: str | None = None,
    progress: str | os.PathLike[str] | None = None,
    request: Request | None = None,
    config: Mapping[str, str] | None = None,
    dry_run: bool = False,
    listener: ReplayListener | None = None,
) -> ReplaySummary:
    """Produce what is in logs into a cluster, each record once.

    A run that was stopped, also by a kill, goes on where it was if it is given again.

    Args:
        paths: log directories, partition directories, and single logs.
        bootstrap: `HOST:PORT` of a broker, or several.
        progress: the progress file, which is created; it belongs to one run.
        request: which records, and how; all of them under their names by default.
        config: properties of librdkafka, such as those of SASL and TLS.
        dry_run: whether records are only counted.
        listener: receives defects and warnings; by default a grave defect is raised.

    Raises:
        UsageError: the request makes no sense.
        RefusedError: the cluster or the file is not right for it; no record was produced.
        ClusterError: the cluster does not answer, or does not do what it is asked.
        UnsupportedError: confluent-kafka is missing.
        KafkaLogError: what is at a path cannot be read.
    """
    from kafkalog.node.targets import open_targets
    from kafkalog.wire.producing.cluster import Cluster
    from kafkalog.wire.producing.model import ReplayListener, Request
    from kafkalog.wire.producing.run import Replay

    planned = Replay(open_targets(paths), request or Request(), listener or ReplayListener())
    if dry_run:
        return planned.count()
    if bootstrap is None or progress is None:
        raise UsageError("A replay needs the address of a broker, and a progress file.")
    return planned.perform(Cluster(bootstrap, config), os.fspath(progress))
