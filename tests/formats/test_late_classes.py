"""Classes whose methods are made at their first use are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pytest

from formats import late_classes

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"slots": True, "unsafe_hash": True},
    {"frozen": True, "slots": True, "order": True},
    {"kw_only": True},
    {"eq": False},
]
NAMES = [" ".join(options) or "plain" for options in OPTIONS]
T = TypeVar("T")


def base_and_child(
    dataclass: Callable[..., Any], options: dict[str, bool]
) -> tuple[type[Any], type[Any]]:
    """Return a class and one that inherits from it."""

    @dataclass(**options)
    class Base(Generic[T]):
        """One."""

        first: int
        second: str = "two"
        hidden: int = field(default=3, compare=False, repr=False)
        listed: tuple[int, ...] = field(default_factory=tuple)

        @property
        def sum(self) -> int:
            return self.first + self.hidden

    @dataclass(**options)
    class Child(Base[int]):
        """Two."""

        many: list[int] = field(default_factory=list)

        def __str__(self) -> str:
            return "a child"

    return Base, Child


def answers(dataclass: Callable[..., Any], options: dict[str, bool]) -> list[object]:
    """Return all that can be seen of these classes and of instances."""
    base, child = base_and_child(dataclass, options)
    one, other = child(first=1), child(first=1, hidden=4, many=[5])
    values: list[object] = [
        one.sum, one == child(first=1, hidden=9),
        one == other, one == base(first=1), one != other, one.many, base.__match_args__,
        child.__match_args__, child.__doc__, child.__qualname__, hasattr(one, "__dict__"),
        dataclasses.asdict(other), dataclasses.astuple(other), base.__hash__ is None,
        dataclasses.replace(one, second="new") == child(first=1, second="new"),
        [(f.name, f.type, f.compare, f.repr, f.kw_only) for f in dataclasses.fields(child)],
        dataclasses.is_dataclass(base), str(inspect.signature(child)), str(inspect.signature(base)),
        base(first=1, listed=(2,)).listed, base(first=1).hidden,
        getattr(base, "second", None) == "two",
        copy.copy(other).many is other.many, copy.deepcopy(other) == other,
    ]  # fmt: skip
    for attempt in (
        lambda: setattr(one, "first", 7),
        lambda: setattr(one, "unknown", 7),
        lambda: delattr(one, "second"),
        lambda: hash(base(first=8)) == hash(base(first=8)),
        lambda: base(first=1) < base(first=2),
        lambda: base(1).first,
        base,
    ):
        try:
            values.append(attempt())
        except Exception as error:  # noqa: BLE001 # both ways raise the same
            values.append((type(error), str(error) if type(error) is FrozenInstanceError else ""))
    return values


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_a_class_is_that_of_the_standard_library(options: dict[str, bool]) -> None:
    """Values, equality, order, hashes, refusals and what introspection tells."""
    late = answers(late_classes.dataclass, options)
    of_library = answers(dataclasses.dataclass, options)
    if options.get("frozen") and options.get("slots"):
        # Before Python 3.14 the standard library raises a TypeError for names that are no fields.
        assert late.pop(-6) == (FrozenInstanceError, "cannot assign to field 'unknown'")
        of_library.pop(-6)
    assert late == of_library


def made(cls: type) -> set[str]:
    """Return which of the attributes that are made late a class has."""
    names = {"__init__", "__dataclass_fields__"}
    return {name for name in names if not isinstance(vars(cls)[name], late_classes._Awaited)}


def test_nothing_is_made_before_it_is_used() -> None:
    """A class that no one uses has no `__init__`, and the class of an instance no fields."""
    base, child = base_and_child(late_classes.dataclass, {"frozen": True, "slots": True})
    assert made(base) == made(child) == set()
    one = base(first=1)
    assert one == base(first=1)
    assert (made(base), made(child)) == ({"__init__"}, set())
    assert dataclasses.replace(one, first=2) == base(first=2)
    assert (made(base), made(child)) == ({"__init__", "__dataclass_fields__"}, set())


def test_a_hash_is_that_of_the_standard_library() -> None:
    """It depends on the fields that compare."""
    late, of_library = (base_and_child(one, {"frozen": True})[0](8, hidden=9)
                        for one in (late_classes.dataclass, dataclasses.dataclass))  # fmt: skip
    assert hash(late) == hash(of_library)


def test_what_is_no_field_is_left_to_the_standard_library() -> None:
    """Such a class is made at once."""

    @late_classes.dataclass
    class WithOther:
        """With a value of the class."""

        one: int
        other: ClassVar[int] = 2

    assert made(WithOther) == {"__init__", "__dataclass_fields__"}
    assert [one.name for one in dataclasses.fields(WithOther)] == ["one"]


def test_the_first_use_is_a_restored_value() -> None:
    """In another process; the values are equal, and what they are is known."""
    text = pickle.dumps(_values())
    code = (
        "import pickle, sys, tests.formats.test_late_classes as home\n"
        "assert home.made(home.Restored) == set()\n"
        "values = pickle.loads(sys.stdin.buffer.read())\n"
        "assert values == home._values(), values\n"
        "print(values)"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"{_values()}\n"


@late_classes.dataclass(frozen=True, slots=True)
class Restored:
    """With slots."""

    number: int


@late_classes.dataclass(frozen=True)
class RestoredToo:
    """Without."""

    number: int
    text: str = "text"


def _values() -> list[object]:
    return [Restored(1), RestoredToo(2)]


def test_threads_may_use_a_class_first_at_the_same_time() -> None:
    """Each gets a whole instance."""
    classes = [base_and_child(late_classes.dataclass, {"frozen": True})[1] for _ in range(20)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: classes[n // 8](first=n), range(160)))
    assert [one.first for one in made] == list(range(160))


@late_classes.dataclass(frozen=True, slots=True)
class Chosen:
    """A class that says what its line has."""

    _in_repr = ("name", "inner.first", "other.first")

    name: str
    inner: Any = None
    other: Any = None


def test_a_repr_is_one_line_of_what_says_something() -> None:
    """Whatever a value holds; null, empty and default values say nothing."""
    base, child = base_and_child(late_classes.dataclass, {"frozen": True})
    assert repr(child(first=1)) == "Child(first=1)"
    long = repr(Chosen("x\ny" * 900, base(3)))
    assert len(long) == 100
    assert "\n" not in long
    assert long.endswith("…)")
    assert repr(Chosen("x", base(3))) == "Chosen(name='x', first=3)"
