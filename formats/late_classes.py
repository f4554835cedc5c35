"""`dataclass` as in the standard library, whose methods are made when a class is first used.

That of the standard library compiles up to eight methods of each class while a module is loaded,
some half a millisecond a class. A short command loads 50 to 120 of them and uses a few: they took
a fifth of its time. What it uses, it mostly neither compares nor shows.

A `repr` is one line: a notebook shows one for each cell, and a record may hold a megabyte.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from inspect import get_annotations
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 # to be imported from here
else:

    def dataclass(cls=None, /, **options):
        """Return the class as a dataclass: see `dataclasses.dataclass`."""
        return partial(_made, **options) if cls is None else _made(cls, **options)


_FIELDS: Final = "__dataclass_fields__"
_REFUSING: Final = ("__setattr__", "__delattr__")
_HASHED: Final = {"frozen", "unsafe_hash"}
_PARAMETERS: Final = "__dataclass_params__"
_NOT_FIELDS: Final = ("ClassVar", "InitVar", "KW_ONLY")
_OF_LAYOUT: Final = ("__dict__", "__weakref__", "__slots__")
_LINE_MAX: Final = 100
_PATH_MAX: Final = 40
_PLAIN: Final = (bool, int, float, str, bytes)
_MANY: Final = (tuple, list, dict, set, frozenset)
SHOWN: Final = "_in_repr"
"""Attribute of a class: paths of the attributes that its `repr` shows, such as `batch.position`."""
_lock: Final = RLock()


def one_line(name: str, *parts: str) -> str:
    """Return `Name(part, part)`, cut to a line."""
    line = f"{name}({', '.join(parts)})"
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 2]}…)"


def value_at(value: Any, path: str) -> Any:
    """Return the attribute at a path such as `batch.position`; None if one on the way is None."""
    for name in path.split("."):
        if value is not None:
            value = getattr(value, name)
    return value


def _value(value: Any) -> str:
    """Return a value of a field, or what it is if that is long."""
    if isinstance(value, str):
        # What a path is of stands at its end.
        is_long_path = "/" in value and len(value) > _PATH_MAX
        return repr(f"…{value[-_PATH_MAX:]}" if is_long_path else str(value[:_LINE_MAX]))
    if isinstance(value, bytes):
        return repr(value[:_LINE_MAX])
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, _MANY):
        return f"{len(value)} item{'s'[: len(value) != 1]}"
    return f"{type(value).__name__}(…)"


def _line_of(self: Any) -> str:
    """Return the attributes in `SHOWN`; else the fields that are neither null nor as by default."""
    name = type(self).__name__
    if hasattr(self, SHOWN):
        found = ((path, value_at(self, path)) for path in getattr(self, SHOWN))
        return one_line(name, *(f"{path.rpartition('.')[2]}={_value(value)}"
                                for path, value in found if value is not None))  # fmt: skip
    values = ((one, getattr(self, one.name, None)) for one in dataclasses.fields(self) if one.repr)
    parts = (f"{one.name}={_value(value)}" for one, value in values if _says(value, one.default))
    return one_line(name, *parts)


def _says(value: Any, default: object) -> bool:
    if isinstance(value, _MANY):
        return bool(value)
    return value is not None and not (isinstance(value, _PLAIN) and value == default)


def _made(cls: Any, **options: Any) -> Any:
    if "__repr__" not in cls.__dict__ and options.get("repr", True):
        cls.__repr__ = _line_of
    hints = get_annotations(cls)
    # Annotations are text here (`from __future__`): what is none, or is no field, is left to the
    # library.
    plain = (isinstance(hint, str) and not any(map(hint.count, _NOT_FIELDS)) for hint in
             hints.values())  # fmt: skip
    if not hints or cls.__dict__.keys() & {"__init__", *_REFUSING} or not all(plain):
        return dataclasses.dataclass(**options)(cls)
    defaults = {name: cls.__dict__[name] for name in hints if name in cls.__dict__}
    made = _with_slots(cls, hints) if options.pop("slots", False) else cls
    if made is cls:
        _set_defaults(cls, defaults)
    if options.get("frozen"):
        made.__setattr__, made.__delattr__ = _refusals(made, hints)
    if _is_simple(made, defaults, options):
        if not options.keys() & _HASHED:
            made.__hash__ = None
        made.__match_args__ = (*hints,)  # type: ignore[misc] # of a class that is made
        _LateComparison(made, defaults, options, ("__eq__", "__hash__"))
        _LateInit(made, defaults, options, ("__init__",))
        _LateFields(made, defaults, options, (_FIELDS, "__replace__"))
    else:
        _Late(made, defaults, options, ("__init__", _FIELDS, "__setstate__"))
    return made


def _is_simple(cls: Any, defaults: dict[str, Any], options: dict[str, Any]) -> bool:
    """Return whether names and values of fields are all that the methods of a class depend on."""
    if options.keys() - _HASHED or cls.__dict__.keys() & {"__eq__", "__hash__"}:
        return False
    if any(_FIELDS in base.__dict__ for base in cls.__mro__[1:]):
        return False
    fields = (value for value in defaults.values() if isinstance(value, dataclasses.Field))
    return all(one.init and one.hash is None and one.kw_only is not True for one in fields)


def _set_defaults(cls: type, defaults: dict[str, Any]) -> None:
    """Leave the value of a default in the class, instead of the field that has it."""
    for name, value in defaults.items():
        if _value_of(value) is dataclasses.MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, _value_of(value))


def _value_of(default: Any) -> Any:
    return default.default if isinstance(default, dataclasses.Field) else default


class _Late:
    """Methods of a class that are still to be made.

    Attributes:
        cls: the class.
        awaited: its attributes that ask for them.
    """

    def __init__(
        self, cls: type, defaults: dict[str, Any], options: dict[str, Any], names: tuple[str, ...]
    ) -> None:
        self.cls = cls
        self.awaited = {name for name in names if name not in cls.__dict__}
        self._defaults = defaults
        self._options = options
        for name in self.awaited:
            setattr(cls, name, _Awaited(self, name))

    def complete(self) -> None:
        """Make the methods, if that was not done yet."""
        # Two threads may need a class for the first time at once.
        with _lock:
            if self.awaited:
                self._complete()
                self.awaited.clear()

    def _complete(self) -> None:
        """Take what the standard library makes of a twin without slots."""
        cls = self.cls
        left_out = {*_OF_LAYOUT, *_REFUSING, *get_annotations(cls)}
        own = {name: value for name, value in cls.__dict__.items()
               if name not in left_out and not isinstance(value, _Awaited)}  # fmt: skip
        # `dataclass` would change the class itself, or replace it because of the slots.
        twin = type(cls)(cls.__name__, cls.__bases__, own | self._defaults)
        twin.__qualname__ = cls.__qualname__
        made = self._by_library(twin)
        # What is awaited comes last: another thread may be about to make an instance.
        for name in sorted(made.keys() - own.keys() - left_out, key=self.awaited.__contains__):
            setattr(cls, name, made[name])
        for name in self.awaited - made.keys():
            delattr(cls, name)

    def _by_library(self, twin: type) -> dict[str, Any]:
        return dict(dataclasses.dataclass(**self._options)(twin).__dict__)


class _LateFields(_Late):
    """What describes the fields of a class whose methods are made otherwise."""

    def _by_library(self, twin: type) -> dict[str, Any]:
        dataclasses.dataclass(init=False, repr=False, eq=False)(twin)
        # Of a frozen twin it would make the methods that refuse.
        getattr(twin, _PARAMETERS).frozen = self._options.get("frozen", False)
        return dict(twin.__dict__)


class _LateOne(_Late):
    """A method of a class with simple fields.

    The standard library makes others with it, and takes four times as long.
    """

    def _function(
        self, name: str, parameters: list[str], lines: list[str], scope: dict[str, Any]
    ) -> Any:
        text = f"def {name}({', '.join(parameters)}):\n " + "\n ".join(lines)
        exec(text, scope)  # noqa: S102 # made of names of fields, as in the library
        scope[name].__qualname__ = f"{self.cls.__qualname__}.{name}"
        return scope[name]


class _LateComparison(_LateOne):
    """`__eq__`, and a `__hash__` unless the class has none."""

    def _complete(self) -> None:
        fields = {name: self._defaults.get(name) for name in get_annotations(self.cls)}
        names = [name for name, one in fields.items() if getattr(one, "compare", True)]
        mine, theirs = ("(" + "".join(f"{one}.{name}, " for name in names) + ")"
                        for one in ("self", "other"))  # fmt: skip
        lines = ["if other.__class__ is self.__class__:", f" return {mine} == {theirs}",
                 "return NotImplemented"]  # fmt: skip
        scope: dict[str, Any] = {"__name__": self.cls.__module__}
        made = {"__eq__": self._function("__eq__", ["self", "other"], lines, scope)}
        if "__hash__" in self.awaited:
            lines = [f"return hash({mine})"]
            made["__hash__"] = self._function("__hash__", ["self"], lines, scope)
        for name, method in made.items():
            setattr(self.cls, name, method)


class _LateInit(_LateOne):
    """The `__init__`."""

    def _complete(self) -> None:
        hints = get_annotations(self.cls)
        scope: dict[str, Any] = {"__name__": self.cls.__module__, "__made": _MADE,
                                 "__set": object.__setattr__}  # fmt: skip
        setting = "__set(self, {0!r}, {1})" if self._options.get("frozen") else "self.{0} = {1}"
        defaults, parameters, lines = [], [], []
        for name in hints:
            given, default = name, self._defaults.get(name, dataclasses.MISSING)
            if isinstance(default, dataclasses.Field):
                if default.default_factory is not dataclasses.MISSING:
                    scope[f"__make_{name}"] = default.default_factory
                    given = f"__make_{name}() if {name} is __made else {name}"
                    default = _MADE
                else:
                    default = default.default
            is_optional = default is not dataclasses.MISSING
            defaults += [default] * is_optional
            parameters.append(f"{name}=None" if is_optional else name)
            lines.append(setting.format(name, given))
        lines += ["self.__post_init__()"] * hasattr(self.cls, "__post_init__")
        made = self._function("__init__", ["self", *parameters], lines, scope)
        made.__defaults__ = (*defaults,)
        made.__annotations__ = {**hints, "return": None}
        self.cls.__init__ = made  # type: ignore[misc] # it was awaited


class _Made:
    """Stands in a signature for a value that each instance makes for itself."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE: Final = _Made()


class _Awaited:
    """An attribute of a class for which its methods are made."""

    def __init__(self, late: _Late, name: str) -> None:
        self._late, self._name = late, name

    def __get__(self, instance: object, owner: type) -> Any:
        self._late.complete()
        if self._name not in self._late.cls.__dict__:
            raise AttributeError(self._name)
        value = self._late.cls.__dict__[self._name]
        return value.__get__(instance, owner) if callable(value) else value


def _with_slots(cls: Any, names: Any) -> Any:
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    body = {name: value for name, value in cls.__dict__.items()
            if name not in (*_OF_LAYOUT, *names)}  # fmt: skip
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    # As the library does for frozen classes with slots, which pickle could not set otherwise.
    body.setdefault("__getstate__", _values)
    body.setdefault("__setstate__", _set_values)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _values(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_values(self: Any, values: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, one.name, value)


def _refusals(cls: Any, fields: Any) -> tuple[Any, Any]:
    """Return what frozen instances do when they are changed."""

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
