"""What commands over whole logs share: the configs in force, and consent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog.node.configs.definitions import value_text
from kafkalog_cli.output.kinds import INT, Kind
from kafkalog_cli.output.objects import Field
from kafkalog_cli.output.text import duration_text
from kafkalog_cli.standard_streams import put_work_first, require_stdout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.files.offsets import LogOffset
    from kafkalog.node.configs import ConfigValue
    from kafkalog_cli.options import Change, Plan
    from kafkalog_cli.output.objects import Row, Style


def configs_text(configs: Iterable[ConfigValue]) -> str:
    """Return `retention.ms=1000 (1 second, --config), ...`."""
    return ", ".join(
        f"{config.name}={value_text(config.value)} ({_duration(config)}{_source(config)})"
        for config in configs
    )


def marks_text(marks: Iterable[LogOffset]) -> str:
    """Return `high watermark 1000 (checkpoint), ...`."""
    return ", ".join(
        f"{mark.name} {'-' if mark.value is None else mark.value} ({mark.source})" for mark in marks
    )


def _config_objects(configs: Iterable[ConfigValue], _: Style) -> list[Row]:
    """Return objects for configs; lists are joined by commas, as Kafka writes them."""
    return [
        {
            "name": config.name,
            "value": ",".join(config.value) if isinstance(config.value, tuple) else config.value,
            "source": config.source,
            "set_as": config.set_as,
        }
        for config in configs
    ]


def _mark_objects(marks: Iterable[LogOffset], _: Style) -> list[Row]:
    return [{"name": mark.name, "value": mark.value, "source": mark.source} for mark in marks]


CONFIGS: Final = Kind("array", to_json=_config_objects)
MARKS: Final = Kind("array", to_json=_mark_objects)
STATUS: Final = Field[Any]("status", INT, "exit status of the command")
WORK_DONE: Final = (
    STATUS,
    Field[Any]("changed", INT, "partitions that were changed or made; 0 in a plan"),
)
"""The last fields of each summary of a command that writes."""
PLAN_ONLY: Final = "Plan only: --apply does it"


def with_next_step(total: str, *, is_plan: bool) -> str:
    """Return a line of totals, with how a plan of something to do is carried out."""
    return f"{total}. {PLAN_ONLY}" if is_plan else total


def _duration(config: ConfigValue) -> str:
    value = config.value
    if not config.name.endswith(".ms") or not isinstance(value, int):
        return ""
    return f"{duration_text(value)}, " if 0 < value < sys.maxsize else ""  # the rest is no duration


def _source(config: ConfigValue) -> str:
    if config.set_as is None or config.set_as == config.name:
        return config.source
    return f"{config.source}, {config.set_as}"


def will_apply(change: Plan, *, to: str | None = None, backup: str | None = None) -> bool:
    """Return whether a plan is to be carried out, in place or as what `--to` names.

    Raises:
        UsageError: the options contradict each other.
    """
    if change.apply and to is not None:
        raise UsageError("--apply and --to exclude each other.", hint="Give one of them.")
    if change.check and (change.apply or to is not None):
        raise UsageError(
            f"--check and {'--apply' if change.apply else '--to'} exclude each other.",
            hint="--check only plans.",
        )
    given = {"--yes": change.yes, "--backup": backup is not None}
    for name in (name for name, is_given in given.items() if is_given and not change.apply):
        raise UsageError(f"{name} requires --apply.", hint="Without it only the plan is shown.")
    is_applied = not change.dry_run and (change.apply or to is not None)
    if is_applied:
        put_work_first()
    return is_applied


def asks(change: Plan) -> bool:
    """Return whether somebody is there to ask before a plan is carried out."""
    return not change.yes and sys.stdin.isatty()


def consents(change: Plan, question: str) -> bool:
    if not asks(change):
        return True
    import typer

    require_stdout()
    return typer.confirm(question, err=True)  # stdout is for the answer


def consents_to(change: Change, partitions: int, where: str) -> bool:
    """Ask before partitions are changed, if somebody is there to ask."""
    warning = "" if change.backup else " Without --backup there is no undo."
    what = counted(partitions, "partition")
    return consents(change, f"Change {what} in {where}?{warning}")
