"""Profiles of partitions and topics: counts of records, bytes, codecs, keys and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalog.errors import OnEvent
    from kafkalog.io.engine import Engine
    from kafkalog.io.rows import Rows
    from kafkalog.node.targets import AnyPath
    from kafkalog.tables.model import Request
    from kafkalog.tables.profiles.model import Profile

__all__ = ["profile"]


def profile(
    *paths: AnyPath,
    request: Request | None = None,
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Rows[Profile]:
    """Count what partitions and topics hold; the profile of a topic comes after its partitions.

    Args:
        paths: log directories, partition directories or logs.
        request: which records; None for all that consumers get.
        engine: runs the counting tasks; None for threads of this process.
        on_event: is passed damage and logs that cannot be read; without it the first one is raised.
        options: as for `profile_logs`: `bucket_ms`, `hot_keys`, `registry`.

    Raises:
        as `profile_logs`.
    """
    from kafkalog.io.engine import LocalEngine
    from kafkalog.io.rows import Rows
    from kafkalog.log.events import Reporter
    from kafkalog.tables.model import Request
    from kafkalog.tables.profiles.model import Profile
    from kafkalog.tables.profiles.run import profile_logs

    listener = None if on_event is None else Reporter(on_event)
    found = profile_logs(
        engine or LocalEngine(), paths, request or Request(), listener=listener, **options
    )
    return Rows(found, Profile)
