"""`kafkalog compact`: Kafka's cleaner, offline."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli.options import (
    ConfigOption,
    ExactOption,
    FormatOption,
    HighWatermarkOption,
    InPlaceOption,
    MetadataDirOption,
    NowOption,
    PropertiesOption,
    QuietOption,
    TopicFirstOption,
    YesOption,
    parse_configs,
    parse_high_watermark,
    parse_size,
    parse_time,
    require_consent,
)
from kafkalog_cli.render.writer import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.compaction import Candidate, CompactionRequest
    from kafkalog.log_dir import LogDir, PartitionDir
    from kafkalog.runs.run import Run
    from kafkalog_cli.render.compactions import Shown


def compact(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Log directory or partition directory.")
    ],
    in_place: InPlaceOption = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DIR", help="Compact a copy: a new log directory; PATH is only read."
        ),
    ] = None,
    yes: YesOption = False,
    take_all: Annotated[
        bool, typer.Option("--all", help="Also partitions that are clean enough for a broker.")
    ] = False,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    topic_first: TopicFirstOption = False,
    metadata_dir: MetadataDirOption = None,
    high_watermark: HighWatermarkOption = None,
    first_dirty_offset: Annotated[
        int | None,
        typer.Option("--first-dirty-offset", metavar="N", help="Not the checkpoint's.", min=0),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option(
            "--up-to", metavar="OFFSET", help="Leave the segment that holds it, and all behind.",
            min=0,
        ),
    ] = None,
    map_memory: Annotated[
        str | None,
        typer.Option(
            "--map-memory", metavar="SIZE",
            help="Limit of the offset map, 24 bytes a slot, as in a broker; else as it takes.",
        ),
    ] = None,
    load_factor: Annotated[
        float, typer.Option("--load-factor", metavar="X", help="Up to where the map is filled.")
    ] = 0.9,
    single_pass: Annotated[
        bool, typer.Option("--single-pass", help="One pass, even if a full map left some to clean.")
    ] = False,
    old_formats: Annotated[
        bool,
        typer.Option("--allow-old-formats", help="Make batches of magic 2 of magic 0 and 1."),
    ] = False,
    now: NowOption = None,
    form: FormatOption = Format.TABLE,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> int:  # fmt: skip
    """Compact partitions as a broker's cleaner does, or say exactly what would come of it.

    Of each key the latest record is kept, up to the high watermark and the first open transaction;
    the active segment stays as it is. Tombstones, aborted records and markers go when a broker
    would let them go. Of a log directory those partitions are taken that a broker would take, the
    filthiest first.

    Without --in-place and --to nothing is written. All of a log is read and judged before any of it
    is changed; no broker may run on it, and it must have been shut down cleanly. Stopped at any
    moment, `kafkalog recover` or a broker's start finds the old segments or the new ones, whole.

    \b
    kafkalog compact /var/lib/kafka
    kafkalog compact orders-0 --config cleanup.policy=compact
    """
    from kafkalog.compaction import CompactionRequest
    from kafkalog.errors import UsageError

    if in_place and to is not None:
        raise UsageError("Either the log is changed, or a copy is made.", hint="Drop one of both.")
    if not 0 < load_factor <= 1:
        raise UsageError("A load factor lies above 0 and is at most 1.")
    request = CompactionRequest(
        now_ms=parse_time(now if now is not None else "-0s"),
        map_memory=None if map_memory is None else parse_size(map_memory),
        load_factor=load_factor,
        high_watermark=parse_high_watermark(high_watermark),
        first_dirty_offset=first_dirty_offset,
        up_to_offset=up_to,
        single_pass=single_pass,
        old_formats=old_formats,
    )
    command = _Command(path, request, form, in_place=in_place, take_all=take_all, quiet=quiet)
    command.configure(parse_configs(config), properties, metadata_dir, topic_first=topic_first)
    return command.run(to, yes=yes, exact=exact)


class _Command:
    """One run of the command."""

    def __init__(
        self, path: str, request: CompactionRequest, form: Format, *,
        in_place: bool, take_all: bool, quiet: bool,
    ) -> None:  # fmt: skip
        from kafkalog_cli.outcome import Outcome

        self._target = _opened(path)
        self._request = request
        self._form = form
        self._in_place = in_place
        self._take_all = take_all
        self._quiet = quiet
        self._outcome = Outcome()
        _require_one_partition(self._target, request)

    def configure(
        self, given: dict[str, str], properties: str | None, metadata_dir: str | None, *,
        topic_first: bool,
    ) -> None:  # fmt: skip
        """Where the configs come from."""
        import os

        from kafkalog.configs import ConfigSources
        from kafkalog.log_dir import LogDir
        from kafkalog_cli.render.configs import tell_metadata

        sources = ConfigSources(
            given, properties, topic_first=topic_first, metadata_dir=metadata_dir
        )
        path = os.path.abspath(self._target.path)
        path = path if isinstance(self._target, LogDir) else os.path.dirname(path)
        self._configs = sources.in_log_dir(path)
        tell_metadata(self._configs, self._outcome)

    def run(self, to: str | None, *, yes: bool, exact: bool) -> int:
        """Plan or compact, and show it."""
        from kafkalog.compaction import log_dir_of, reading_lock, require_closed, working_copy
        from kafkalog.log_dir import PartitionDir
        from kafkalog.runs.run import Run

        with ExitStack() as held:
            run: Run | None = None
            target = self._target
            if to is not None:
                copy = held.enter_context(working_copy(target, to))
                run = held.enter_context(Run(copy.path))
                target = copy.partitions[0] if isinstance(target, PartitionDir) else copy
            else:
                require_closed(log_dir_of(target))
                if self._in_place:
                    run = held.enter_context(Run(log_dir_of(target)))
                else:
                    held.enter_context(reading_lock(target))
            self._compact(target, run, yes=yes or to is not None, exact=exact)
        return self._outcome.status

    def _compact(
        self, target: LogDir | PartitionDir, run: Run | None, *, yes: bool, exact: bool
    ) -> None:
        from kafkalog.compaction import find_candidates
        from kafkalog.log_dir import PartitionDir
        from kafkalog_cli.render import compactions as show
        from kafkalog_cli.render.writer import Writer

        failures: list[show.Shown] = []
        candidates = find_candidates(
            target,
            self._configs.of_topic,
            self._request,
            take_all=self._take_all,
            failed=lambda *what: failures.append(show.Shown(what[0], None, what[1])),
        )
        wanted = [one for one in candidates if one.skip is None]
        if run is not None and wanted:
            count = f"{len(wanted)} partition{'s' if len(wanted) > 1 else ''}"
            require_consent(f"Compact {count} of {target.path} in place?", yes=yes)
        is_one = isinstance(target, PartitionDir)
        if is_one and self._form == Format.TABLE:
            show.print_candidate(candidates[0])
        summary = show.CompactionSummary(self._request.now_ms, run is not None)
        with Writer(show.compaction_view(exact=exact), self._form, self._outcome.defect) as writer:
            for shown in self._results(candidates, run, is_one=is_one):
                summary.add(shown)
                writer.write(shown)
            for shown in failures:
                assert shown.error is not None, "it failed"
                self._outcome.error(shown.error)
                summary.add(shown)
                writer.write(shown)
            if self._form in (Format.NDJSON, Format.JSON):
                writer.write_row(show.compaction_summary_row(summary))
        if self._form == Format.TABLE:
            show.print_compaction_summary(summary, exact=exact)

    def _results(
        self, candidates: list[Candidate], run: Run | None, *, is_one: bool
    ) -> Iterator[Shown]:
        """Partition after partition; one that was named stops the command with its error."""
        from kafkalog.compaction import compact_partition
        from kafkalog.errors import KafkaLogError
        from kafkalog_cli.render.compactions import Shown
        from kafkalog_cli.render.progress import byte_progress

        read = [one.partition for one in candidates if one.skip is None] * 3
        with byte_progress(read, enabled=not self._quiet) as progress:
            for candidate in candidates:
                try:
                    found = compact_partition(candidate, self._request, run, progress)
                except KafkaLogError as error:
                    if is_one:
                        raise
                    self._outcome.error(error)
                    yield Shown(candidate.partition, None, error)
                else:
                    yield Shown(candidate.partition, found)


def _opened(path: str) -> LogDir | PartitionDir:
    from kafkalog.errors import NotAKafkaFileError
    from kafkalog.log_dir import FileEntry, open_path

    target = open_path(path)
    if isinstance(target, FileEntry):
        raise NotAKafkaFileError(
            "This is a file, not a partition or log directory.",
            path=path,
            hint="The cleaner looks at all segments of a partition.",
        )
    return target


def _require_one_partition(target: LogDir | PartitionDir, request: CompactionRequest) -> None:
    """Offsets belong to one partition."""
    from kafkalog.errors import UsageError
    from kafkalog.log_dir import LogDir

    given = (request.first_dirty_offset, request.up_to_offset)
    if isinstance(target, LogDir) and (
        any(one is not None for one in given) or isinstance(request.high_watermark, int)
    ):
        raise UsageError(
            "An offset that is given belongs to one partition.",
            path=target.path,
            hint="Name the partition directory; --high-watermark end may stand for all.",
        )
