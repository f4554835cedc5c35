"""Defaults of options and places of a user: `config.toml`, read only if it exists."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args

from formats.late_patterns import pattern
from kafkalog.errors import UsageError
from kafkalog_cli.config_files import documents
from kafkalog_cli.option_sets import SAFETY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PLACE: Final = pattern(r"@[A-Za-z][\w.-]*")


class Config:
    """What config files say.

    Attributes:
        defaults: option to its default in all commands that have it.
        commands: command to its own defaults.
        places: name to what a place is: `paths`, and options.
        origins: the file that each default comes from; the name is `defaults.tz`, say.
    """

    def __init__(self) -> None:
        self.defaults: dict[str, Any] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.places: dict[str, dict[str, Any]] = {}
        self.origins: dict[str, str] = {}

    def defaults_of(self, command: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the defaults of the options that a command has.

        Raises:
            UsageError: the command's section has another option, or one that changes things.
        """
        known = {*names}
        own = self.commands.get(command, {})
        _require_known(own, known, f"command.{command}")
        return {name: value for name, value in self.defaults.items() if name in known} | own


def config() -> Config:
    """Read the files of this user and of the system. Raises `UsageError`."""
    found = Config()
    for path, read in documents():
        _add(found, read, path)
    return found


def _add(found: Config, read: dict[str, Any], path: str) -> None:
    sections = {"defaults": found.defaults, "command": found.commands, "place": found.places}
    for name, value in read.items():
        if name not in sections or not isinstance(value, dict):
            raise _unknown(name, sections, path)
    _require_known(read.get("defaults", {}), vocabulary(), "defaults")
    found.defaults.update(read.get("defaults", {}))
    for section in ("command", "place"):
        for name, values in read.get(section, {}).items():
            if not isinstance(values, dict):
                raise UsageError(f"{section}.{name} is no section.", path=path)
            sections[section].setdefault(name, {}).update(values)
    for section, values in (
        ("defaults", read.get("defaults", {})),
        *((f"command.{name}", one) for name, one in read.get("command", {}).items()),
        *((f"place.{name}", one) for name, one in read.get("place", {}).items()),
    ):
        found.origins.update({f"{section}.{name}": path for name in values})


def _require_known(given: Iterable[str], known: Iterable[str], section: str) -> None:
    names = {*known}
    for name in given:
        if name in SAFETY:
            raise UsageError(
                f"{section}.{name}: --{name} is given on the command line, never by a file.",
            )
        if name not in names:
            raise _unknown(f"{section}.{name}", [f"{section}.{one}" for one in names])


def _unknown(name: str, names: Iterable[str], path: str | None = None) -> UsageError:
    from difflib import get_close_matches

    alike = get_close_matches(name, list(names), 1)
    hint = f"Did you mean {alike[0]}?" if alike else "`kafkalog explain config` lists what is."
    return UsageError(f"The config has no {name}.", path=path, hint=hint)


@cache
def vocabulary() -> frozenset[str]:
    """Return the long names of the options that several commands share."""
    from kafkalog_cli import options
    from kafkalog_cli.common_options import common_options

    shared = [
        name
        for kind in vars(options).values()
        for one in get_args(kind)[1:]
        # Typer takes the first name for a default.
        for name in (getattr(one, "default", ""), *(getattr(one, "param_decls", None) or ()))
        if isinstance(name, str)
    ]
    common = [name for one in common_options() for name in one.opts]
    return frozenset(_long(shared) | _long(common)) - SAFETY


def _long(names: Iterable[str]) -> set[str]:
    return {one.split("/")[0][2:] for one in names if one.startswith("--")}


def defaults_for(command: Any, context: Any) -> dict[str, Any]:
    """Return the defaults that the config gives the options of a command. Raises `UsageError`."""
    parameters = {name: one.name for one in command.get_params(context) for name in _long(one.opts)}
    found = config().defaults_of(command.name, parameters)
    return {parameters[name]: value for name, value in found.items()}


def apply_places(command: Any, context: Any) -> None:
    """Put what is at the places that the arguments name in their place, with their options.

    Raises:
        UsageError: there is no such place, or two of them give an option different values.
    """
    given: dict[str, Any] = {}
    for argument in command.params:
        value = context.params.get(argument.name)
        if argument.param_type_name != "argument" or not value:
            continue
        words = [value] if isinstance(value, str) else [*value]
        if not any(isinstance(word, str) and _PLACE.fullmatch(word) for word in words):
            continue
        expanded = [path for word in words for path in _at(word, given)]
        if isinstance(value, str) and len(expanded) != 1:
            raise UsageError(f"{value} has {len(expanded)} paths, and one is needed.")
        context.params[argument.name] = expanded[0] if isinstance(value, str) else expanded
    if given:
        _give(command, context, given)


def forget_unused_registry(context: Any) -> None:
    """Forget where schemas are unless a format or the command line asks: a registry is slow."""
    from kafkalog.log.typed import TypedForm

    source = context.get_parameter_source("registry")
    if source is not None and source.name == "COMMANDLINE":
        return
    given = (context.params.get(name, "") for name in ("key_format", "value_format"))
    formats = (one.partition("@")[0] for one in given)
    if not {*formats} & {one for one in TypedForm if one.has_registry}:
        context.params["registry"] = None


def _at(word: str, given: dict[str, Any]) -> Iterator[str]:
    if not _PLACE.fullmatch(word):
        yield word
        return
    place = config().places.get(word[1:])
    if place is None:
        raise _no_place(word)
    for name, value in place.items():
        if isinstance(value, dict):
            raise UsageError(f"place.{word[1:]}.{name} is a section; a place has only options.")
        if name != "paths" and given.setdefault(name, value) != value:
            raise UsageError(f"Two places give --{name} different values.")
    paths = place.get("paths")
    if not isinstance(paths, list) or not paths or not all(isinstance(one, str) for one in paths):
        raise UsageError(f'place.{word[1:]} has no paths: paths = ["/var/lib/kafka"].')
    yield from paths


def _no_place(word: str) -> UsageError:
    from difflib import get_close_matches

    names = [f"@{name}" for name in config().places]
    alike = get_close_matches(word, names, 1)
    hint = (
        f"Did you mean {alike[0]}?"
        if alike
        else "A place is a section of config.toml: [place.NAME]."
    )
    return UsageError(f"There is no place {word}.", hint=hint)


def _give(command: Any, context: Any, given: Mapping[str, Any]) -> None:
    """Give options the values of a place, unless the command line has them."""
    _require_known(given, vocabulary(), "place")
    for option in command.get_params(context):
        [name] = _long(option.opts) or {""}
        source = context.get_parameter_source(option.name)
        if name in given and (source is None or source.name.startswith("DEFAULT")):
            value = option.process_value(context, given[name])
            if option.expose_value:
                context.params[option.name] = value
