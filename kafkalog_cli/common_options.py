"""The options of all commands, before a command or after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperOption

from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import typer


def _set_zone(name: str) -> None:
    from kafkalog_cli.values import parse_zone

    session().zone = parse_zone(name)


def _use_requests(count: int) -> None:
    from kafkalog.io.paths.requests import requests

    requests().allowed = count


def _use_keys(paths: tuple[str, ...]) -> None:
    from kafkalog.io.paths.tier_keys import use_keys

    use_keys(list(paths))


def _use_colours(choice: str) -> None:
    from kafkalog.errors import UsageError
    from kafkalog_cli.output.text import ColourChoice

    if choice not in tuple(ColourChoice):
        raise UsageError(f"--color: {choice!r} is not one of auto, always and never.")
    session().colours = choice


def _setter(name: str) -> Callable[[Any], None]:
    return lambda value: setattr(session(), name, value)


def _option(
    names: tuple[str, ...], apply: Callable[[Any], None], help_: str, **more: Any
) -> TyperOption:
    def called(context: typer.Context, _: typer.CallbackParam, value: Any) -> None:
        is_given = value is not None and value is not False and value != ()  # 0 is
        if is_given and not context.resilient_parsing:
            apply(value)

    return TyperOption(
        param_decls=[*names], callback=called, expose_value=False, help=help_, show_default=False,
        **more,
    )  # fmt: skip


def _show_brief_help(context: typer.Context, _: typer.CallbackParam, value: bool) -> None:
    if value and not context.resilient_parsing:
        import sys

        from kafkalog_cli.help import brief_help

        sys.stdout.write(brief_help(context))
        context.exit()


_COMMON: Final = (
    TyperOption(
        param_decls=["-h"], callback=_show_brief_help, expose_value=False, is_eager=True,
        is_flag=True, help="One screen about the command.", show_default=False,
    ),
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
    _option(
        ("--color",), _use_colours, "When there are colours.", metavar="auto|always|never",
        autocompletion=lambda *args: [
            word for word in ("always", "auto", "never") if word.startswith(args[-1])
        ],
    ),
    _option(
        ("--no-pager",), _setter("has_no_pager"), "Long output without a pager.", is_flag=True
    ),
    _option(("--debug",), _setter("shows_tracebacks"), "Tracebacks of errors.", is_flag=True),
)  # fmt: skip


def common_options(own: Iterable[Any] = ()) -> list[TyperOption]:
    """Return the options of all commands, but those that a command still has of its own."""
    names = {name for one in own for name in getattr(one, "opts", ())}
    return [one for one in _COMMON if names.isdisjoint(one.opts)]
