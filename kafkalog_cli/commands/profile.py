"""`kafkalog profile`: count what partitions and topics hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.model import Isolation, LogView, Replicas
from kafkalog_cli import options as opt
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.tables import Request
    from kafkalog.tables.profiles.model import Profile
    from kafkalog_cli.engines import EngineChoice
    from kafkalog_cli.outcome import Outcome


def profile(
    paths: opt.PathsArgument,
    topic: opt.TopicsOption = None,
    isolation: opt.IsolationOption = Isolation.READ_UNCOMMITTED,
    replicas: opt.ReplicasOption = Replicas.BEST,
    internal: opt.InternalOption = False,
    view: opt.ViewOption = LogView.RECOVERED,
    bucket: Annotated[str, typer.Option(
        "--bucket", metavar="DURATION",
        help="Width of a histogram bucket; doubled if there would be too many.",
    )] = "1h",
    hot_keys: Annotated[int, typer.Option(
        "--hot-keys", metavar="N", min=0, help="Show at most N hot keys.",
    )] = 10,
    threads: opt.ThreadsOption = None,
    form: opt.RowsFormatOption = opt.RowsFormat.TABLE,
    to: Annotated[str | None, typer.Option(
        "--to", metavar="FILE", help="New file to write, for --format parquet.",
    )] = None,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    tz: opt.ZoneOption = "UTC",
    exact: opt.ExactOption = False,
    *,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Summarize what each partition and topic holds: records, bytes, codecs, keys, producers,
    times.

    Counts are exact. The numbers of many distinct keys and producers, and the hot keys, are
    estimates, whose bounds --format ndjson states. DATA is the uncompressed size of keys, values
    and headers, BATCH the records and bytes of an average batch; a codec's ratio is that of data to
    bytes in the log. Damaged batches are skipped and counted, and make the exit status 1.

    \b
    kafkalog profile /var/lib/kafka
    kafkalog profile --format ndjson --bucket 1d orders-0
    kafkalog profile orders-0 --format parquet --to profile.parquet
    """
    from kafkalog.errors import UsageError
    from kafkalog.io.jit import fast_path
    from kafkalog.tables import Bounds, Request
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.profiles import profile_view
    from kafkalog_cli.output.writer import write_all

    fast_path.require_arrow()
    if (to is None) == (form == opt.RowsFormat.PARQUET):
        raise UsageError("--format parquet and --to FILE require each other.", hint="Give both.")
    request = Request(
        bounds=Bounds(topics=None if not topic else frozenset(topic)),
        required_topics=frozenset(topic or ()),
        isolation=isolation,
        replicas=replicas,
        internal=internal,
        view=view,
    )
    choice = spark.choice(threads)
    outcome = Outcome()
    found = _profiles(paths, request, choice, outcome, opt.parse_duration(bucket), hot_keys)
    _report_defects(found, outcome)
    if to is not None:
        _write_parquet(found, to)
        return outcome.status
    columns = profile_view(Style(exact, opt.parse_zone(tz), bytes_form))
    write_all(found, columns, Format(form.value))
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
    outcome.fail_if(any(one.defects for one in found))


def _profiles(
    paths: list[str],
    request: Request,
    choice: EngineChoice,
    outcome: Outcome,
    bucket_s: float,
    hot_keys: int,
) -> list[Profile]:
    from kafkalog.io.paths.file_system import absolute
    from kafkalog.node.targets import open_targets
    from kafkalog.tables.profiles.run import profile_logs

    targets = open_targets(
        map(absolute, paths), hear=outcome.hear_note, topics=request.bounds.topics
    )
    with choice.open() as engine:
        bucket_ms = max(round(bucket_s * 1000), 1)
        found = profile_logs(
            engine,
            targets,
            request,
            bucket_ms=bucket_ms,
            hot_keys=hot_keys,
            listener=outcome,
        )
    outcome.report_logs()
    return found


def _write_parquet(profiles: Sequence[Profile], path: str) -> None:
    from kafkalog.io.storage import NewFile
    from kafkalog.tables.profiles.run import write_parquet

    with NewFile(path) as file:
        write_parquet(profiles, file.file)
