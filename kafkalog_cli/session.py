"""The options of all commands, before a command or after it, and what they set for one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import typer

    from kafkalog.node.state.model import Moment


@dataclass
class Session:
    """What holds for one run, whatever its command.

    Attributes:
        exact: whether tables have plain numbers for sizes and times.
        zone: time zone of tables, and of times given without one.
        now: the time that relative times refer to, as given; None for the clock.
        is_quiet: whether only results and errors are shown.
        is_verbose: whether assumptions and sources are shown, too.
        shows_tracebacks: whether errors are shown with a traceback.
    """

    exact: bool = False
    zone: tzinfo = field(default=UTC)
    now: str | None = None
    is_quiet: bool = False
    is_verbose: bool = False
    shows_tracebacks: bool = False


_session = Session()


def session() -> Session:
    """Return what holds for this run."""
    return _session


def begin_session(argv: list[str]) -> None:
    """Forget the options of an earlier run; `--debug` holds while options are parsed, too."""
    global _session  # noqa: PLW0603 # one run at a time
    _session = Session(shows_tracebacks="--debug" in argv)


def time_of(text: str) -> int:
    """Parse a time of this run to milliseconds. Raises `UsageError`."""
    from kafkalog_cli.options import parse_time

    return parse_time(text, _session.now, _session.zone)


def moment_of(text: str | None) -> Moment | None:
    """Parse `TIME` or `P@OFFSET`; None stays None. Raises `UsageError`."""
    from kafkalog_cli.options import parse_moment

    return None if text is None else parse_moment(text, _session.now, _session.zone)


def now_ms() -> int:
    """Return what the clock says, or `--now` in its place. Raises `UsageError`."""
    return time_of("-0s" if _session.now is None else _session.now)


def _set_zone(name: str) -> None:
    from kafkalog_cli.options import parse_zone

    _session.zone = parse_zone(name)


def _use_requests(count: int) -> None:
    from kafkalog.io.paths.requests import requests

    requests().allowed = count


def _use_keys(paths: tuple[str, ...]) -> None:
    from kafkalog.io.paths.tier_keys import use_keys

    use_keys(list(paths))


def _setter(name: str) -> Callable[[Any], None]:
    return lambda value: setattr(_session, name, value)


def _option(
    names: tuple[str, ...], apply: Callable[[Any], None], help_: str, **more: Any
) -> TyperOption:
    def called(context: typer.Context, _: typer.CallbackParam, value: Any) -> None:
        if value not in (None, False, ()) and not context.resilient_parsing:
            apply(value)

    return TyperOption(
        param_decls=[*names], callback=called, expose_value=False, help=help_, show_default=False,
        **more,
    )  # fmt: skip


_COMMON: Final = (
    _option(("--exact",), _setter("exact"), "Plain numbers for sizes and times.", is_flag=True),
    _option(
        ("--tz",), _set_zone, "Time zone of tables, and of times given without one: Europe/Berlin.",
        metavar="ZONE",
    ),
    _option(
        ("--now",), _setter("now"), "The time that relative times refer to.", metavar="TIME",
    ),
    _option(
        ("--max-requests",), _use_requests,
        "Stop with status 7 rather than send object stores more than N requests.",
        type=int, metavar="N",
    ),
    _option(
        ("--tier-key",), _use_keys, "Private key that decrypts remote segments; repeatable.",
        multiple=True, metavar="FILE.pem",
    ),
    _option(("-q", "--quiet"), _setter("is_quiet"), "Only results and errors.", is_flag=True),
    _option(
        ("-v", "--verbose"), _setter("is_verbose"), "Also assumptions and sources.", is_flag=True
    ),
    _option(("--debug",), _setter("shows_tracebacks"), "Tracebacks of errors.", is_flag=True),
)  # fmt: skip


def common_options(own: Iterable[Any] = ()) -> list[TyperOption]:
    """Return the options of all commands, but those that a command still has of its own."""
    names = {name for one in own for name in getattr(one, "opts", ())}
    return [one for one in _COMMON if names.isdisjoint(one.opts)]
