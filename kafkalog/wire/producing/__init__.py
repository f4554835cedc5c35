"""Produces what is in logs into a cluster, each record once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.change.plan import Plan
    from kafkalog.errors import Event, OnEvent
    from kafkalog.wire.producing.model import Replayed, Request
    from kafkalog.wire.producing.run import ReplaySummary


def replay(
    *paths: str | os.PathLike[str],
    bootstrap: str | None = None,
    progress_file: str | os.PathLike[str] | None = None,
    request: Request | None = None,
    config: Mapping[str, str] | None = None,
    on_event: OnEvent | None = None,
) -> Plan[Replayed, ReplaySummary]:
    """Plan to produce what is in logs into a cluster, each record once.

    A run that was stopped, also by a kill, goes on where it was if it is applied again. The plan
    asks no cluster.

    Args:
        paths: log directories, partition directories, and single logs.
        bootstrap: `HOST:PORT` of a broker, or several; needed to apply it.
        progress_file: what was produced; it belongs to one run; needed to apply it.
        request: which records, and how; all of them under their names by default.
        config: properties of librdkafka, such as those of SASL and TLS.
        on_event: is passed defects and warnings; without it a grave defect is raised.

    Raises:
        UsageError: the request makes no sense.
        RefusedError: the cluster or the file is not right for it; no record was produced.
        ClusterError: the cluster does not answer, or does not do what it is asked.
        UnsupportedError: confluent-kafka is missing.
        KafkaLogError: what is at a path cannot be read.

    Cost:
        The plan reads and counts all that would be replayed.
    """
    from kafkalog.change.plan import Plan
    from kafkalog.log.events import Reporter
    from kafkalog.node.targets import open_targets
    from kafkalog.wire.producing.cluster import Cluster
    from kafkalog.wire.producing.model import Replayed, ReplayListener, Request
    from kafkalog.wire.producing.run import Replay

    reporter = Reporter(on_event)

    class Passing(ReplayListener):
        """Passes everything on."""

        def hear(self, event: Event) -> None:
            reporter.hear(event)

        def advanced(self, size_bytes: int) -> None:
            if reporter.advance is not None:
                reporter.advance(size_bytes)

    def planned() -> Replay:
        return Replay(open_targets(paths), request or Request(), Passing())

    def apply(_: str | None) -> ReplaySummary:
        if bootstrap is None or progress_file is None:
            raise UsageError("A replay needs the address of a broker, and a progress file.")
        return planned().perform(Cluster(bootstrap, config), os.fspath(progress_file))

    summary = planned().count()
    return Plan(
        "replay", summary.logs, Replayed, summary=summary, apply=apply, keeps_originals=False
    )
