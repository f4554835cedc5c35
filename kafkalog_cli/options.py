"""The one vocabulary of the command line: each option is defined here, once.

A command takes the sets whose questions it answers, as parameters (`show: opt.Show`), and options
of its own; `kafkalog_cli.option_sets` gives each field of a set to Typer as an option. Options of
all commands are in `kafkalog_cli.common_options`.
"""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView, Replicas, Severity
from kafkalog_cli.completion import (
    config_names,
    one_of,
    partition_numbers,
    payload_formats,
    places,
    topic_names,
)
from kafkalog_cli.option_sets import (
    BOUNDS,
    CHANGE,
    CHECK,
    COMMON,
    CONFIGS,
    DECODE,
    RUN,
    SELECT,
    SHOW,
    OptionSet,
)
from kafkalog_cli.output.writer import Format
from kafkalog_cli.values import (
    parse_bytes,
    parse_configs,
    parse_header,
    parse_rate,
    parse_regex,
    parse_where,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from kafkalog.files.topics import PartitionNumbers, Topics
    from kafkalog.log.batches.selection import Selection
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.output.decoded import Decoded
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.payloads import Payload


def option(panel: str, *names: str, **more: Any) -> Any:
    """Return an option of Typer's that the help lists under a panel."""
    return typer.Option(*names, rich_help_panel=panel, **more)


PathsArgument = Annotated[list[str], typer.Argument(
    metavar="PATH...", show_default=False, autocompletion=places,
    help="Log directory, parent of several, partition directory or file; local, or in s3://, "
    "gs:// or abfs://.",
)]  # fmt: skip
DirectoriesArgument = Annotated[list[str], typer.Argument(
    metavar="PATH...", help="Log directory, parent of several, or partition directory.",
    show_default=False, autocompletion=places,
)]  # fmt: skip
PartitionArgument = Annotated[
    str, typer.Argument(metavar="PARTITION_DIR", help="A partition directory: orders-0.")
]

TopicsOption = Annotated[list[str] | None, option(
    SELECT, "-t", "--topic", metavar="GLOB",
    help="Only these topics; !GLOB leaves out. Repeatable.", autocompletion=topic_names,
)]  # fmt: skip
PartitionsOption = Annotated[list[str] | None, option(
    SELECT, "-p", "--partition", metavar="N|A-B", help="Only these partitions. Repeatable.",
    autocompletion=partition_numbers,
)]  # fmt: skip
InternalOption = Annotated[
    bool, option(SELECT, "--internal/--no-internal", help="Internal topics, too.")
]
FromOffsetOption = Annotated[
    int | None, option(SELECT, "--from-offset", min=0, metavar="N", help="First offset.")
]
ToOffsetOption = Annotated[
    int | None, option(SELECT, "--to-offset", min=0, metavar="N", help="Offset to stop before.")
]
FromTimeOption = Annotated[
    str | None, option(SELECT, "--from-time", metavar="TIME", help="Earliest timestamp.")
]
ToTimeOption = Annotated[
    str | None, option(SELECT, "--to-time", metavar="TIME", help="Timestamp to stop before.")
]
KeyOption = Annotated[str | None, option(
    SELECT, "-k", "--key", metavar="TEXT|0xHEX", help="Only records with this key.",
)]  # fmt: skip
KeyRegexOption = Annotated[str | None, option(
    SELECT, "--key-regex", metavar="REGEX", help="Only records whose key matches.",
)]  # fmt: skip
ValueRegexOption = Annotated[str | None, option(
    SELECT, "--value-regex", metavar="REGEX", help="Only records whose value matches.",
)]  # fmt: skip
HeaderOption = Annotated[str | None, option(
    SELECT, "--header", metavar="NAME[=VALUE]", help="Only records with this header.",
)]  # fmt: skip
WhereOption = Annotated[str | None, option(
    SELECT, "--where", metavar="EXPR",
    help="Only where CEL is true: 'value.cents > 100'.",
)]  # fmt: skip
ProducerIdOption = Annotated[int | None, option(
    SELECT, "--producer-id", metavar="N", help="Only what this producer wrote.",
)]  # fmt: skip
LeaderEpochOption = Annotated[int | None, option(
    SELECT, "--leader-epoch", metavar="N", help="Only what was written in this leader epoch.",
)]  # fmt: skip
FromPositionOption = Annotated[int | None, option(
    SELECT, "--from-position", min=0, metavar="N",
    help="Byte position to start from in each file; reading starts at the next batch.",
)]  # fmt: skip
ViewOption = Annotated[LogView, option(
    BOUNDS, "--view",
    help="After the next start of a broker; as it lies there; or with leftovers.",
)]  # fmt: skip
IsolationOption = Annotated[Isolation, option(
    BOUNDS, "--isolation", metavar="LEVEL", help="log, read_uncommitted or read_committed.",
)]  # fmt: skip
HighWatermarkOption = Annotated[str | None, option(
    BOUNDS, "--high-watermark", metavar="N|end|checkpoint",
    help="Instead of the recorded one; end: of the log.",
    autocompletion=one_of("end", "checkpoint"),
)]  # fmt: skip
LogStartOption = Annotated[int | None, option(
    BOUNDS, "--log-start-offset", metavar="N", min=0, help="Instead of the checkpointed one.",
)]  # fmt: skip
_REPLICAS = option(
    BOUNDS, "--replicas",
    help="Each record once, from the best copy; or every copy.",
)  # fmt: skip
ReplicasOption = Annotated[Replicas, _REPLICAS]
AnyReplicasOption = Annotated[Replicas | None, _REPLICAS]
KeyFormatOption = Annotated[str, option(
    DECODE, "--key-format", metavar="F[@FRAMING]", help="As --value-format, for keys.",
    autocompletion=payload_formats,
)]  # fmt: skip
ValueFormatOption = Annotated[str, option(
    DECODE, "--value-format", metavar="F[@FRAMING]",
    help="auto, text, hex, base64, json, avro, protobuf, connect; "
    "FRAMING: confluent[:ID], apicurio, apicurio4, glue.",
    autocompletion=payload_formats,
)]  # fmt: skip
KeySchemaOption = Annotated[str | None, option(
    DECODE, "--key-schema", metavar="FILE", help="As --value-schema, for keys.",
)]  # fmt: skip
ValueSchemaOption = Annotated[str | None, option(
    DECODE, "--value-schema", metavar="FILE",
    help="JSON Schema, .avsc, or output of protoc -o.",
)]  # fmt: skip
RegistryOption = Annotated[str | None, option(
    DECODE, "-r", "--registry", metavar="PLACE",
    help="Schemas by id: URL, log directory or folder.",
)]  # fmt: skip


class RowsFormat(StrEnum):
    """The format of a listing."""

    TABLE = "table"
    LINE = "line"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[RowsFormat, option(COMMON, "-o", "--format", help="Output format.")]
LastOption = Annotated[int | None, option(
    SHOW, "--last", min=1, metavar="N", help="Only the N latest records, in the order of time.",
)]  # fmt: skip
VerticalOption = Annotated[bool, option(COMMON, "-x", help="Each row as a block, nothing cut.")]
TemplateOption = Annotated[str | None, option(
    COMMON, "-f", "--template", metavar="TEXT", help="A line per row: '{offset}\\t{value.user}'.",
)]  # fmt: skip
ColumnsOption = Annotated[str | None, option(
    COMMON, "--columns", metavar="NAME,…", help="Fields to show, in this order; +NAME, -NAME, all.",
)]  # fmt: skip
LimitOption = Annotated[int | None, option(
    COMMON, "-n", "--limit", min=0, metavar="N", help="At most N rows in all.",
)]  # fmt: skip
AllOption = Annotated[bool, option(
    SELECT, "--all", help="Also partitions that are clean or identical.",
)]  # fmt: skip
SeedOption = Annotated[int | None, option(
    RUN, "--seed", metavar="N", help="Seed of what is random: --sample, segment.jitter.ms.",
)]  # fmt: skip
StepsOption = Annotated[bool, option(SHOW, "--steps", help="Each step, and why.")]
WrapOption = Annotated[bool, option(COMMON, "-w", "--wrap", help="Wrap long cells.")]
NoTruncOption = Annotated[
    bool, option(COMMON, "--no-trunc", help="Whole lines, however narrow the terminal is.")
]
FirstDirtyOption = Annotated[int | None, option(
    BOUNDS, "--first-dirty-offset", metavar="N", min=0,
    help="Start of the part that is not compacted; overrides the checkpoint.",
)]  # fmt: skip


class FailOn(StrEnum):
    """The severity of findings that make the status 1, and worse ones."""

    DAMAGE = "damage"
    INDEX = "index"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"

    @property
    def severities(self) -> list[Severity]:
        """The severities, the worst first."""
        worst_first = list(Severity)
        return [] if self == FailOn.NEVER else worst_first[: worst_first.index(Severity(self)) + 1]


FailOnOption = Annotated[FailOn, option(
    CHECK, "--fail-on", help="Status 1 for findings of this severity or worse.",
)]  # fmt: skip
ConfigOption = Annotated[list[str] | None, option(
    CONFIGS, "--config", metavar="NAME=VALUE",
    help="By Kafka's name; overrides others; repeatable.", autocompletion=config_names,
)]  # fmt: skip
PropertiesOption = Annotated[str | None, option(
    CONFIGS, "--properties", metavar="FILE", help="A broker's properties file.",
)]  # fmt: skip
MetadataDirOption = Annotated[str | None, option(
    CONFIGS, "--metadata-dir", metavar="LOG_DIR",
    help="Where __cluster_metadata-0 is, if not in PATH.",
)]  # fmt: skip
AtOption = Annotated[str | None, option(
    SELECT, "--at", metavar="TIME|P@OFFSET",
    help="The state then; P is of the internal topic.",
)]  # fmt: skip
SinceOption = Annotated[str | None, option(
    SELECT, "--since", metavar="TIME|P@OFFSET", help="What has changed since then.",
)]  # fmt: skip
ThreadsOption = Annotated[int | None, option(
    RUN, "--threads", metavar="N", min=1, help="Threads; one per processor, at most 8.",
)]  # fmt: skip
NoCacheOption = Annotated[
    bool, option(RUN, "--no-cache", help="Leave the page cache to a running broker.")
]
RateLimitOption = Annotated[str | None, option(
    RUN, "--rate-limit", metavar="SIZE", help="Read at most SIZE per second.",
)]  # fmt: skip
SparkOption = Annotated[str | None, option(
    RUN, "--spark", metavar="URL",
    help="Spark: local[N], spark://…, yarn, k8s://…, sc://….",
)]  # fmt: skip
SparkConfOption = Annotated[list[str] | None, option(
    RUN, "--spark-conf", metavar="NAME=VALUE",
    help="A Spark setting, kafkalog.connect.timeout (30s) or kafkalog.task.memory (1GiB); "
    "repeatable.",
)]  # fmt: skip
FollowOption = Annotated[bool, option(
    RUN, "--follow", help="Wait for more, until interrupted.",
)]  # fmt: skip
ToOption = Annotated[str | None, option(
    SHOW, "--to", metavar="NEW", help="Write a new file: .parquet, .arrow, .csv, .ndjson, .json.",
)]  # fmt: skip
ReplaceOption = Annotated[bool, option(SHOW, "--replace", help="Replace what --to names.")]
NewDirectoryOption = Annotated[str | None, option(
    CHANGE, "--to", metavar="NEW", help="A directory that is missing or empty.",
)]  # fmt: skip
FromTierOption = Annotated[list[str] | None, typer.Option(
    "--from-tier", metavar="TIER",
    help="Also copy what this tier has of the logs, as local segments; repeatable.",
)]  # fmt: skip
ApplyOption = Annotated[bool, option(CHANGE, "--apply", help="Do it, instead of only planning it.")]
YesOption = Annotated[bool, option(CHANGE, "-y", "--yes", help="Do not ask.")]
AllowLossOption = Annotated[
    bool, option(CHANGE, "--allow-loss", help="Also where committed records are lost.")
]
BackupOption = Annotated[str | None, option(
    CHANGE, "--backup", metavar="DIR", help="Keep the originals in DIR, for `kafkalog undo`.",
)]  # fmt: skip
CheckOption = Annotated[
    bool, option(CHANGE, "--check", help="Plan; status 1 if there is something to do.")
]
DryRunOption = Annotated[
    bool, option(CHANGE, "--dry-run", help="Plan, whatever destination is given.")
]


class PartitionNames(OptionSet):
    """Of which partitions facts are meant."""

    topic: TopicsOption = None
    partition: PartitionsOption = None

    @property
    def topics(self) -> Topics | None:
        """The topics that are meant; None for all."""
        from kafkalog.files.topics import Topics

        return None if not self.topic else Topics(self.topic)

    @property
    def numbers(self) -> PartitionNumbers | None:
        """The partitions that are meant; None for all. Raises `UsageError`."""
        from kafkalog.files.topics import PartitionNumbers

        return None if not self.partition else PartitionNumbers(self.partition)


class Partitions(PartitionNames):
    """Which partitions of the paths are meant."""

    internal: InternalOption = False

    @property
    def chosen(self) -> dict[str, Any]:
        """Which partitions are meant, as arguments of the library. Raises `UsageError`."""
        return {"topics": self.topics, "numbers": self.numbers, "internal": self.internal}


class AllPartitions(Partitions):
    """Which partitions are meant, by default also those of internal topics."""

    internal: InternalOption = True


class Range(OptionSet):
    """Which offsets and times are meant."""

    from_offset: FromOffsetOption = None
    to_offset: ToOffsetOption = None
    from_time: FromTimeOption = None
    to_time: ToTimeOption = None


class Contents(OptionSet):
    """Which contents of records are meant."""

    key: KeyOption = None
    key_regex: KeyRegexOption = None
    value_regex: ValueRegexOption = None
    header: HeaderOption = None
    where: WhereOption = None

    def matched(self) -> dict[str, Any]:
        """Return them as arguments of `Request`. Raises `UsageError`."""
        from kafkalog.tables import model

        parse_where(self.where, {})
        key, value = (parse_regex(one) for one in (self.key_regex, self.value_regex))
        header, header_value = parse_header(self.header) or (None, None)
        return {
            "where": self.where,
            "contents": model.Contents(
                None if self.key is None else parse_bytes(self.key),
                None if key is None else key.pattern,
                None if value is None else value.pattern,
                header,
                header_value,
            ),
        }


class Records(Contents, Range):
    """Which records of a log are meant."""

    producer_id: ProducerIdOption = None
    leader_epoch: LeaderEpochOption = None

    def selection(
        self, decoded: Mapping[str, Decoded] = MappingProxyType({}), **more: Any
    ) -> Selection:
        """Return what is selected, with other facts of `Selection`. Raises `UsageError`.

        `decoded` has what decodes keys and values for a condition, by `key` and `value`.
        """
        from kafkalog.log.batches.selection import Selection
        from kafkalog_cli.session import times_of

        from_time, to_time = times_of(
            self.from_offset, self.to_offset, self.from_time, self.to_time
        )
        return Selection(
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            from_time=from_time,
            to_time=to_time,
            key=None if self.key is None else parse_bytes(self.key),
            key_regex=parse_regex(self.key_regex),
            value_regex=parse_regex(self.value_regex),
            header=parse_header(self.header),
            where=parse_where(self.where, decoded),
            producer_id=self.producer_id,
            leader_epoch=self.leader_epoch,
            **more,
        )


class Bounds(OptionSet):
    """Which part of a log a reader may see."""

    view: ViewOption = LogView.RECOVERED
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED
    replicas: ReplicasOption = Replicas.BEST


class LogBounds(Bounds):
    """Which part of a log a reader may see, by default all of it."""

    isolation: IsolationOption = Isolation.LOG


class Decode(OptionSet):
    """How keys and values are read."""

    key_format: KeyFormatOption = "auto"
    value_format: ValueFormatOption = "auto"
    key_schema: KeySchemaOption = None
    value_schema: ValueSchemaOption = None
    registry: RegistryOption = None

    @property
    def payloads(self) -> tuple[Payload, Payload]:
        """How keys are read, and values. Raises `UsageError`."""
        from kafkalog_cli.payloads import payloads

        return payloads(
            self.registry,
            (self.key_format, self.key_schema),
            (self.value_format, self.value_schema),
        )


class Rows(OptionSet):
    """How rows are shown, of a command with formats of its own."""

    vertical: VerticalOption = False
    template: TemplateOption = None
    columns: ColumnsOption = None
    limit: LimitOption = None
    wrap: WrapOption = False
    no_trunc: NoTruncOption = False

    def shown_as(self, form: StrEnum) -> str:
        """Return the format: that of `-o`, unless another option chooses one.

        Raises:
            UsageError: two options choose one.
        """
        chosen = [] if form.value == Format.TABLE else [form.value]
        chosen += [Format.LINE.value] * (self.vertical and form.value != Format.LINE)
        chosen += [Format.TEMPLATE.value] * (self.template is not None)
        if len(chosen) > 1:
            raise UsageError("-o, -x and -f exclude each other.", hint="Give one of them.")
        return chosen[0] if chosen else form.value

    def style(self, **more: Any) -> Style:
        """Return the style of values, with other facts of `Style`."""
        from kafkalog_cli.output.layout import Layout
        from kafkalog_cli.output.objects import Style
        from kafkalog_cli.session import now_ms, session

        layout = Layout(
            template=self.template,
            columns=tuple(self.columns.split(",")) if self.columns else (),
            wrap=self.wrap,
            no_trunc=self.no_trunc,
            now_ms=None if session().now is None else now_ms(),
        )
        return Style(exact=session().exact, zone=session().zone, layout=layout, **more)


class Form(OptionSet):
    """The format of a command whose output is not one listing."""

    form: FormatOption = RowsFormat.TABLE

    @property
    def format(self) -> Format:
        """The format."""
        return Format(self.form.value)


class Show(Rows):
    """How rows are shown."""

    form: FormatOption = RowsFormat.TABLE

    @property
    def format(self) -> Format:
        """The format. Raises `UsageError`."""
        return Format(self.shown_as(self.form))


class OffsetsFormat(StrEnum):
    """The format of a listing of offsets; the last one is what Kafka's tool resets groups from."""

    TABLE = "table"
    LINE = "line"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    RESET_OFFSETS = "reset-offsets"


OffsetsFormatOption = Annotated[OffsetsFormat, option(
    SHOW, "-o", "--format",
    help="Output format; reset-offsets: for kafka-consumer-groups --reset-offsets --from-file.",
)]  # fmt: skip


class ShowOffsets(Rows):
    """How offsets are shown."""

    form: OffsetsFormatOption = OffsetsFormat.TABLE

    @property
    def resets(self) -> bool:
        """Whether they are written for Kafka's tool that resets the offsets of groups."""
        return self.form == OffsetsFormat.RESET_OFFSETS

    @property
    def format(self) -> Format:
        """The format of a listing. Raises `UsageError`."""
        return Format.TABLE if self.resets else Format(self.shown_as(self.form))


class Configs(OptionSet):
    """Where the configs of topics and brokers come from."""

    config: ConfigOption = None
    properties: PropertiesOption = None
    metadata_dir: MetadataDirOption = None

    def sources(self) -> ConfigSources:
        """Return the sources. Raises `UsageError`."""
        from kafkalog.node.configs import ConfigSources

        return ConfigSources(
            parse_configs(self.config), self.properties, metadata_dir=self.metadata_dir
        )


class Pace(OptionSet):
    """How much of the disk and of the page cache reading may take from others."""

    no_cache: NoCacheOption = False
    rate_limit: RateLimitOption = None

    def around(self) -> AbstractContextManager[object]:
        """Return the pace of all reading. Raises `UsageError`."""
        if self.rate_limit is None and not self.no_cache:
            return nullcontext()
        from kafkalog.io.paths.reading import reading

        rate = None if self.rate_limit is None else parse_rate(self.rate_limit)
        return reading(rate_limit=rate, leaves_cache=self.no_cache, everywhere=True)


class Reading(Pace):
    """How logs are read in bulk."""

    threads: ThreadsOption = None


class Spark(OptionSet):
    """Whether tasks run on Spark."""

    spark: SparkOption = None
    spark_conf: SparkConfOption = None


class Plan(OptionSet):
    """Whether a plan is carried out."""

    apply: ApplyOption = False
    yes: YesOption = False
    check: CheckOption = False
    dry_run: DryRunOption = False


class Change(Plan):
    """Whether a plan is carried out, and where the originals are kept."""

    backup: BackupOption = None
