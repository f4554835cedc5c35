"""The report about log directories: its facts, and the page that shows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.answers.overview.gathering import Report
    from kafkalog.errors import Event, OnEvent
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
    on_event: OnEvent | None = None,
    progress: bool = False,
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
        on_event: is passed what stops the work on one thing, while everything else is reported, and
            what was read; without it the first such error is raised.
        progress: whether to draw a bar.

    Raises:
        KafkaLogError: a path cannot be read, without `on_event`.
        UnsupportedError: `records` is given, and an optional part is missing.

    Cost:
        That of `kafkalog.verify`, and with `records` of `kafkalog.profile`. A row per segment in
        memory.
    """
    from kafkalog.answers.overview.gathering import Gathering
    from kafkalog.io.times import clock_ms
    from kafkalog.log.events import reporting
    from kafkalog.model import Level, named_member
    from kafkalog.node.configs import ConfigSources

    def profiles() -> Sequence[Profile]:
        from kafkalog.tables.model import Request
        from kafkalog.tables.profiles import profile

        request = Request(notes_hosting=False)  # the checks report hosting
        return profile(
            *paths, request=request, hot_keys=hot_keys, on_event=partial(_errors, reporter.hear)
        )

    with reporting(on_event, progress=progress) as reporter:
        gathering = Gathering(
            paths,
            named_member(Level, level),
            ConfigSources.of(configs),
            clock_ms(now),
            threads=threads,
            failed=reporter.hear,
            progress=reporter.advance or (lambda _: None),
        )
        return gathering.report(profiles if records else None)


def _errors(hear: OnEvent, event: Event) -> None:
    """Pass on errors only: the checks report what else there is."""
    if isinstance(event, KafkaLogError):
        hear(event)
