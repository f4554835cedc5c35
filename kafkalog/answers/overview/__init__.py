"""The report about log directories: its facts, and the page that shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import KafkaLogError, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.answers.overview.gathering import Report
    from kafkalog.errors import Event
    from kafkalog.io.times import Time
    from kafkalog.model import Level
    from kafkalog.node.configs import ConfigSources
    from kafkalog.node.targets import AnyPath
    from kafkalog.tables.profiles.model import Profile

__all__ = ["report"]


def report(
    *paths: AnyPath,
    level: Level | str = "standard",
    records: bool = False,
    hot_keys: int = 10,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now: Time | None = None,
    threads: int | None = None,
    failed: Callable[[KafkaLogError], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Gather what there is to know about log directories, for people; `to_html` gives the page.

    Args:
        paths: log directories and partitions: those of all brokers together say most.
        level: how much the checks read: `quick`, `standard` or `deep`.
        records: whether to read all records, too: tombstones, distinct and hot keys.
        hot_keys: maximum number of hot keys per topic.
        configs: configs of topics by name, or their sources.
        now: the clock that retention and ages are judged by; None for the clock's time.
        threads: number of checking threads; None for one per processor, up to 8.
        failed: called with what stops the work on one thing, while everything else is reported;
            without it the first such error is raised.
        progress: called with numbers of bytes as they are checked.

    Raises:
        KafkaLogError: a path cannot be read, without `failed`.
        UnsupportedError: `records` is given, and an optional part is missing.

    Cost:
        That of `kafkalog.verify`, and with `records` of `kafkalog.profile`. A row per segment in
        memory.
    """
    from kafkalog.answers.overview.gathering import Gathering
    from kafkalog.errors import raised
    from kafkalog.io.times import clock_ms
    from kafkalog.model import Level, named_member
    from kafkalog.node.configs import ConfigSources

    gathering = Gathering(
        paths,
        named_member(Level, level),
        ConfigSources.of(configs),
        clock_ms(now),
        threads=threads,
        failed=failed or raised,
        progress=progress or (lambda _: None),
    )

    def profiles() -> Sequence[Profile]:
        from kafkalog.tables.model import Request
        from kafkalog.tables.profiles import profile

        listener = _Errors(failed or raised)
        request = Request(notes_hosting=False)  # the checks report hosting
        return profile(*paths, request=request, hot_keys=hot_keys, listener=listener)

    return gathering.report(profiles if records else None)


class _Errors(Listener):
    """Hears of errors only: the checks report what else there is."""

    def __init__(self, failed: Callable[[KafkaLogError], None]) -> None:
        self._failed = failed

    def hear(self, event: Event) -> None:
        if isinstance(event, KafkaLogError):
            self._failed(event)
