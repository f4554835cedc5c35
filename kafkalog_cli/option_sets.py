"""Sets of options as parameters of commands: Typer gets an option for each of their fields."""

from __future__ import annotations

import inspect
from contextlib import ExitStack, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


WHAT: Final = "What"
SELECT: Final = "Select"
BOUNDS: Final = "Bounds"
CHECK: Final = "Check"
DECODE: Final = "Decode"
SHOW: Final = "Show"
RUN: Final = "Run"
CHANGE: Final = "Change"
CONFIGS: Final = "Configs"
COMMON: Final = "Common"
PANELS: Final = (WHAT, SELECT, BOUNDS, CHECK, DECODE, SHOW, CONFIGS, RUN, CHANGE)
"""The headings of options in the help, in their order; an option without one belongs to `What`.

Options of `Common` are only named there: `explain options` describes them once.
"""
SAFETY: Final = frozenset(
    ("apply", "yes", "allow-loss", "to", "into", "backup", "replace", "accept", "append")
)
"""Options that only a command line gives: what is changed depends on no file and no variable."""


class OptionSet:
    """Options that belong together: each field is one, with its default.

    A command whose parameter is of such a class has its options; a subclass has other defaults.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def around(self) -> AbstractContextManager[object]:
        """Return what surrounds the command."""
        return nullcontext()


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that takes the fields of its option sets one by one."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    sets: dict[str, tuple[type[OptionSet], list[str]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not (isinstance(kind, type) and issubclass(kind, OptionSet)):
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        fields = get_type_hints(kind, include_extras=True)
        sets[parameter.name] = kind, [*fields]
        parameters += [
            inspect.Parameter(
                name, parameter.KEYWORD_ONLY, default=getattr(kind, name), annotation=hint
            )
            for name, hint in fields.items()
        ]

    @wraps(command)
    def called(**values: Any) -> int:
        with ExitStack() as stack:
            for name, (kind, fields) in sets.items():
                values[name] = kind(**{one: values.pop(one) for one in fields})
                stack.enter_context(values[name].around())
            return command(**values)

    called.__dict__.pop("__wrapped__")
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # for `inspect`
        [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
    )
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called
