"""`docs/library.md`: the public names of `import kafkalog`, and examples that a test runs."""

from __future__ import annotations

import dataclasses
import enum
import inspect

import kafkalog

_RETURNED = (kafkalog.Rows, kafkalog.Plan)
"""Classes that functions return, and nobody else makes."""


def library_sections() -> str:
    """Write a section per public name."""
    parts = []
    for name in kafkalog.__all__:
        value = getattr(kafkalog, name)
        parts.append(f"\n### `{name}{_signature(value)}`\n\n{_summary(value)}\n")
        parts.extend(_members(value))
    return "".join(parts)


def _signature(value: object) -> str:
    """Return the parameter names of a callable in parentheses, or nothing for other values."""
    if isinstance(value, type) and (dataclasses.is_dataclass(value) or _is_plain(value)):
        return ""
    if value in _RETURNED:
        return ""
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type] # callable
    return f"({', '.join(_parameter(parameter) for parameter in parameters)})"


def _is_plain(value: type) -> bool:
    return issubclass(value, enum.Enum | BaseException)


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind == parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.kind == parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}=…"


def _summary(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _members(value: object) -> list[str]:
    """List what a class offers: values of an enumeration, fields, properties, methods."""
    if not isinstance(value, type) or issubclass(value, BaseException):
        return []
    if issubclass(value, enum.Enum):
        return ["\n", ", ".join(f"`{member.value}`" for member in value), "\n"]
    lines: dict[str, str] = {}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
        lines[""] = f"Fields: {', '.join(f'`{name}`' for name in names)}.\n"
    ours = [base for base in value.__mro__ if base.__module__.startswith("kafkalog")]
    if value is not kafkalog.Rows:
        ours = [base for base in ours if base is not kafkalog.Rows]
    for base in reversed(ours):
        for name, member in vars(base).items():
            function = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            call = ""
            if function is member:
                call = _signature(member).replace("(self, ", "(").replace("(self)", "()")
            lines[name] = f"- `{name}{call}`: {_summary(function)}"
    return ["\n", "\n".join(lines.values()).rstrip(), "\n"] if lines else []
