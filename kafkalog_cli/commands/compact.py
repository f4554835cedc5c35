"""`kafkalog compact`: run Kafka's log cleaner offline."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.engines import (
    ConnectTimeoutOption,
    EngineChoice,
    EngineName,
    MasterOption,
    SparkChoice,
    SparkConfOption,
)
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.compaction import Candidate, Compaction, CompactionRequest
    from kafkalog.configs import LogDirConfigs
    from kafkalog.engine import Engine
    from kafkalog.errors import KafkaLogError
    from kafkalog.journal import Run
    from kafkalog.log_dir import LogDirListing, PartitionDir
    from kafkalog_cli.maintenance import Maintenance
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.compactions import Shown
    from kafkalog_cli.output.progress import ByteProgress
    from kafkalog_cli.output.writer import Writer


def compact(
    path: opt.DirectoryArgument,
    in_place: opt.InPlaceOption = False,
    to: Annotated[str | None, typer.Option(
        "--to", metavar="DIR", help="Compact a copy into a new log directory; only read PATH.",
    )] = None,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    take_all: Annotated[bool, typer.Option(
        "--all", help="Also partitions too clean for a broker to choose.",
    )] = False,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    topic_first: opt.TopicFirstOption = False,
    metadata_dir: opt.MetadataDirOption = None,
    high_watermark: opt.HighWatermarkOption = None,
    first_dirty_offset: Annotated[int | None, typer.Option(
        "--first-dirty-offset", metavar="N", help="Override the checkpoint.", min=0,
    )] = None,
    up_to: Annotated[int | None, typer.Option(
        "--up-to", metavar="OFFSET", help="Leave the segment of OFFSET and all after it.", min=0,
    )] = None,
    map_memory: Annotated[str | None, typer.Option(
        "--map-memory", metavar="SIZE",
        help="Size of the offset map, 24 bytes per slot, as in a broker; default: as large as "
             "needed.",
    )] = None,
    load_factor: Annotated[float, typer.Option(
        "--load-factor", metavar="X", help="How full the map may become.",
    )] = 0.9,
    single_pass: Annotated[bool, typer.Option(
        "--single-pass", help="One pass only, even if the map fills up.",
    )] = False,
    old_formats: Annotated[bool, typer.Option(
        "--allow-old-formats", help="Convert batches of magic 0 and 1 to magic 2.",
    )] = False,
    engine: Annotated[EngineName, typer.Option(
        "--engine", help="Compact in this process or in Spark tasks.",
    )] = EngineName.LOCAL,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    connect_timeout: ConnectTimeoutOption = "30s",
    task_memory: Annotated[str, typer.Option(
        "--task-memory", metavar="SIZE",
        help="Memory for the keys of one Spark task; more keys are split among tasks.",
    )] = "1GiB",
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Compact partitions as a broker's cleaner does, or show exactly what the result would be.

    The latest record of each key is kept, up to the high watermark and the first open transaction;
    the active segment stays as it is. Tombstones, aborted records and markers are dropped when a
    broker would drop them; so are .deleted files left by a broker. In a log directory, the
    partitions that a broker would choose are compacted, the dirtiest first.

    Without --in-place or --to nothing is written. The whole log is read and judged before any of it
    is changed. No broker may run on it, and its next start must have nothing to do: after a crash,
    run `kafkalog recover` first. If it is killed at any moment, the next run or the next start of a
    broker finds the old segments or the new ones, complete. --backup keeps the old ones: repeat the
    same command to continue, run `kafkalog undo` to restore everything.

    With --engine spark, one task per partition judges it and writes its new segments into a
    directory in the log directory; the driver compares them with their checksums and swaps them in.
    Workers must see the same files under the same paths, as the same user. A partition with more
    keys than --task-memory holds has a task per bucket of keys, and one per new segment. Tasks that
    had finished when a run was killed are not repeated by the next run with the same --now, or
    within a day without one.


    \b
    kafkalog compact /var/lib/kafka
    kafkalog compact orders-0 --config cleanup.policy=compact
    kafkalog compact /var/lib/kafka --in-place --yes --backup before-compaction
    kafkalog compact /var/lib/kafka --engine spark
    """
    from kafkalog.compaction import CompactionRequest, working_copy
    from kafkalog.configs import ConfigSources
    from kafkalog.errors import UsageError
    from kafkalog.journal import Run
    from kafkalog.log_dir import LogDirListing
    from kafkalog_cli.maintenance import (
        Maintenance,
        configs_at,
        maintenance,
        require_consent,
        target_at,
    )
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.standard_streams import put_work_first

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if in_place and to is not None:
        raise UsageError("--in-place and --to exclude each other.", hint="Give one of them.")
    if not 0 < load_factor <= 1:
        raise UsageError("A load factor lies above 0 and is at most 1.")
    target = target_at(path)
    clock = opt.parse_time(now if now is not None else "-0s")
    if engine == EngineName.SPARK and in_place and now is None:
        clock = _clock_of(target, clock)
    request = CompactionRequest(
        now_ms=clock,
        map_memory=None if map_memory is None else opt.parse_size(map_memory),
        load_factor=load_factor,
        high_watermark=opt.parse_high_watermark(high_watermark),
        first_dirty_offset=first_dirty_offset,
        up_to_offset=up_to,
        single_pass=single_pass,
        old_formats=old_formats,
    )
    sources = ConfigSources(
        opt.parse_configs(config), properties, topic_first=topic_first, metadata_dir=metadata_dir
    )
    outcome = Outcome()
    _require_one_partition(target, request)
    choice = EngineChoice(engine, SparkChoice(master, spark_conf, connect_timeout, quiet))
    with ExitStack() as held:
        command = _Command(
            request, form, outcome, _opening(held, choice),
            opt.parse_size(task_memory), take_all=take_all, exact=exact, quiet=quiet,
        )  # fmt: skip
        if to is None:
            place = held.enter_context(
                maintenance(path, "compact", in_place=in_place, backup=backup)
            )
            command.run(place, configs_at(place.target, sources, outcome), yes=yes)
            has_changed = place.run is not None and place.run.has_changed
            is_concerned = command.is_concerned
        else:
            put_work_first()
            configs = configs_at(target, sources, outcome)
            copy = held.enter_context(working_copy(target, to))
            run = held.enter_context(Run(copy.path))
            copied = copy if isinstance(target, LogDirListing) else copy.partitions[0]
            command.run(Maintenance(copied, copy.path, run), configs, yes=True)
            has_changed = is_concerned = True  # the copy
    return outcome.of_work(has_changed=has_changed, is_concerned=is_concerned)


def _opening(held: ExitStack, choice: EngineChoice) -> Callable[[], Engine] | None:
    """Return the function that opens the engine; None if this process does the work."""
    if choice.name == EngineName.LOCAL:
        return None
    return cache(lambda: held.enter_context(choice.open(partitions=0)))


def _clock_of(target: LogDirListing | PartitionDir, now_ms: int) -> int:
    """Return the clock of a killed run, or `now_ms` if there is none."""
    from kafkalog.compaction import clock_of_stopped_run
    from kafkalog_cli.outcome import show_note

    stopped = clock_of_stopped_run(target, now_ms)
    if stopped is None:
        return now_ms
    show_note(f"continuing a killed run, with its time: --now {stopped}")
    return stopped


class _Command:
    """One run of the command.

    Attributes:
        is_concerned: whether there was a partition to compact, or one that could not be judged.
    """

    def __init__(
        self, request: CompactionRequest, form: Format, outcome: Outcome,
        engine: Callable[[], Engine] | None, task_memory: int, *,
        take_all: bool, exact: bool, quiet: bool,
    ) -> None:  # fmt: skip
        self._request = request
        self._form = form
        self._outcome = outcome
        self._engine = engine
        self._task_memory = task_memory
        self._take_all = take_all
        self._style = Style(exact)
        self._quiet = quiet
        self.is_concerned = False

    def run(self, held: Maintenance, configs: LogDirConfigs, *, yes: bool) -> None:
        """Plan or compact, and show it; if consent is asked for, first plan, then compact."""
        from kafkalog.plurals import counted
        from kafkalog_cli.maintenance import consents
        from kafkalog_cli.output.compactions import compaction_view
        from kafkalog_cli.output.writer import Writer

        failures: list[Shown] = []
        candidates = self._candidates(held, configs, failures)
        count = sum(one.skip is None for one in candidates)
        self.is_concerned = bool(count or failures)
        is_asked = held.run is not None and count > 0 and not yes
        view = compaction_view(self._style)
        with Writer(view, self._form, self._outcome.defect) as writer:
            self._show(writer, held, candidates, failures, None if is_asked else held.run)
            words = f"{counted(count, 'partition')} of {held.target.path}"
            if is_asked and consents(f"Compact {words} in place?", yes=False):
                self._show(writer, held, candidates, [], held.run)

    def _candidates(
        self, held: Maintenance, configs: LogDirConfigs, failures: list[Shown]
    ) -> list[Candidate]:
        from kafkalog.compaction import find_candidates, named_candidate
        from kafkalog.log_dir import LogDirListing
        from kafkalog_cli.output.compactions import Shown

        partitions = held.partitions(self._outcome)
        if not isinstance(held.target, LogDirListing):
            return [
                named_candidate(one, configs.of_topic(one.topic), self._request)
                for one in partitions
            ]
        return find_candidates(
            partitions,
            configs.of_topic,
            self._request,
            take_all=self._take_all,
            failed=lambda partition, error: failures.append(Shown(partition, None, error)),
        )

    def _show(
        self, writer: Writer[Shown], held: Maintenance, candidates: list[Candidate],
        failures: list[Shown], run: Run | None,
    ) -> None:  # fmt: skip
        """Show the result for each partition, planned or performed, and the summary."""
        from kafkalog.log_dir import PartitionDir
        from kafkalog_cli.output import compactions as show

        is_one = isinstance(held.target, PartitionDir)
        if is_one and self._form == Format.TABLE:
            for candidate in candidates:
                show.print_candidate(candidate)
        summary = show.CompactionSummary(self._request.now_ms, run is not None)
        for shown in self._results(candidates, run, is_one=is_one):
            summary.add(shown)
            writer.write(shown)
        for shown in failures:
            assert shown.error is not None, "it failed"
            self._outcome.error(shown.error)
            summary.add(shown)
            writer.write(shown)
        if self._form in (Format.NDJSON, Format.JSON):
            writer.write_row(show.COMPACTION_SUMMARY.row(summary))
        if self._form == Format.TABLE:
            writer.flush()
            in_place = held.run is not None
            show.print_compaction_summary(summary, self._style, in_place=in_place)

    def _results(
        self, candidates: list[Candidate], run: Run | None, *, is_one: bool
    ) -> Iterator[Shown]:
        """Yield each partition; one that was named raises its error, unless something changed."""
        from kafkalog.errors import KafkaLogError
        from kafkalog_cli.output.compactions import Shown
        from kafkalog_cli.output.progress import byte_progress

        read = [one.partition for one in candidates if one.skip is None] * 3
        with byte_progress(read, enabled=not self._quiet) as progress:
            for candidate, found in self._compacted(candidates, run, progress):
                if not isinstance(found, KafkaLogError):
                    yield Shown(candidate.partition, found)
                elif is_one and not (run is not None and run.has_changed):
                    raise found
                else:
                    self._outcome.error(found)
                    yield Shown(candidate.partition, None, found)

    def _compacted(
        self, candidates: list[Candidate], run: Run | None, progress: ByteProgress | None
    ) -> Iterator[tuple[Candidate, Compaction | KafkaLogError]]:
        """Yield each partition with its result."""
        from kafkalog.compaction import compact_partition, compact_partitions
        from kafkalog.errors import contained

        if self._engine is not None and any(one.skip is None for one in candidates):
            yield from compact_partitions(candidates, self._request, self._engine(), run, progress)
            return
        for candidate in candidates:
            found: list[Compaction | KafkaLogError] = []
            with contained(candidate.partition.path, found.append):
                found.append(compact_partition(candidate, self._request, run, progress))
            yield candidate, found[0]


def _require_one_partition(
    target: LogDirListing | PartitionDir, request: CompactionRequest
) -> None:
    """Raise `UsageError` if offsets are given for a log directory."""
    from kafkalog.errors import UsageError
    from kafkalog.log_dir import LogDirListing

    given = (request.first_dirty_offset, request.up_to_offset)
    if isinstance(target, LogDirListing) and (
        any(one is not None for one in given) or isinstance(request.high_watermark, int)
    ):
        raise UsageError(
            "Offsets can only be given for one partition.",
            path=target.path,
            hint="Name the partition directory; --high-watermark end may stand for all.",
        )
