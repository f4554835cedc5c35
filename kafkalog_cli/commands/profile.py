"""`kafkalog profile`: count what partitions and topics hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from kafkalog_cli import options as opt
from kafkalog_cli.engines import EngineChoice, engine_choice
from kafkalog_cli.option_sets import SHOW
from kafkalog_cli.values import parse_duration

if TYPE_CHECKING:
    from kafkalog.tables import Request
    from kafkalog.tables.profiles.model import Profile
    from kafkalog_cli.outcome import Outcome


def profile(
    paths: opt.PathsArgument,
    bucket: Annotated[str, opt.option(
        SHOW, "--bucket", metavar="DURATION",
        help="Width of a histogram bucket; doubled if there would be too many.",
    )] = "1h",
    hot_keys: Annotated[int, opt.option(
        SHOW, "--hot-keys", metavar="N", min=0, help="At most N hot keys per topic.",
    )] = 10,
    registry: opt.RegistryOption = None,
    *,
    partitions: opt.Partitions,
    bounds: opt.Bounds,
    show: opt.Show,
    reading: opt.Reading,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Count what each partition and topic holds: records, bytes, codecs, keys, producers, times.

    Counts are exact. The numbers of many distinct keys and producers, and the hot keys, are
    estimates, whose bounds -o ndjson states. DATA is the uncompressed size of keys, values and
    headers, BATCH the records and bytes of an average batch; a codec's ratio is that of data to
    bytes in the log. Damaged batches are skipped and counted.

    \b
    kafkalog profile /var/lib/kafka
    kafkalog profile orders-0 -o ndjson --bucket 1d
    kafkalog profile /var/lib/kafka -t 'orders*' --spark 'local[4]'
    """
    from kafkalog.io.jit import fast_path
    from kafkalog.tables import Bounds, Request
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.profiles import profile_total, profile_view
    from kafkalog_cli.output.writer import Writer

    fast_path.require_arrow()
    meant = Bounds(partitions.topics, partitions.numbers)
    request = Request(
        bounds=meant,
        named=meant,
        isolation=bounds.isolation,
        replicas=bounds.replicas,
        internal=partitions.internal,
        view=bounds.view,
    )
    outcome = Outcome()
    choice = engine_choice(spark, reading.threads)
    found = _profiles(paths, request, choice, outcome, parse_duration(bucket), hot_keys, registry)
    _report_defects(found, outcome)
    _report_unasked(found, outcome)
    style, found = show.style(), found[: show.limit]
    with Writer(profile_view(style, schemas=registry is not None), show.format) as writer:
        for one in found:
            writer.write(one)
        if found or not outcome.errors:
            writer.total(profile_total(found, show.limit, style))
    return outcome.status


def _report_defects(found: list[Profile], outcome: Outcome) -> None:
    from kafkalog.files.offsets import name_of
    from kafkalog.io.wording import counted, some_of
    from kafkalog_cli.outcome import show_warning

    damaged = [one for one in found if one.defects]
    damaged = [one for one in damaged if one.partition is not None] or damaged  # no sums
    if damaged:
        names = some_of([name_of(one.topic, one.partition) for one in damaged])
        number = counted(sum(one.defects for one in damaged), "defect")
        hint = "`kafkalog verify` shows what is damaged or cannot be read"
        show_warning(f"{number} left out, in {names}; {hint}")
    outcome.lacks(any(one.defects for one in found))


def _report_unasked(found: list[Profile], outcome: Outcome) -> None:
    from kafkalog_cli.outcome import show_warning

    number = sum(one.unasked for one in found if one.partition is not None)
    if number:
        show_warning(
            f"the registry lacks too many ids, and was asked for no others: {number} keys and "
            "values with these are not among the schemas"
        )
        outcome.lacks()


def _profiles(
    paths: list[str],
    request: Request,
    choice: EngineChoice,
    outcome: Outcome,
    bucket_s: float,
    hot_keys: int,
    registry: str | None,
) -> list[Profile]:
    from kafkalog.io.paths.file_system import absolute
    from kafkalog.tables.profiles.run import profile_logs

    targets = outcome.open_all(map(absolute, paths), topics=request.bounds.topics)
    with choice.open() as engine:
        bucket_ms = max(round(bucket_s * 1000), 1)
        found = profile_logs(
            engine,
            targets,
            request,
            bucket_ms=bucket_ms,
            hot_keys=hot_keys,
            registry=registry,
            listener=outcome,
        )
    outcome.report_logs()
    return found
