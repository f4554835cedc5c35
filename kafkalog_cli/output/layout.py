"""The layout of rows: formats, the columns that were asked for, and how a table fits a terminal."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from formats.late_classes import dataclass
from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalog_cli.output.objects import Column

GAP: Final = 2  # blanks between columns
_FOLDED: Final = 8  # a wrapped cell must be this wide to be legible


class Format(StrEnum):
    """The format of a listing; TEMPLATE comes with `Layout.template`."""

    TABLE = "table"
    LINE = "line"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    TEMPLATE = "template"

    @property
    def is_screen(self) -> bool:
        """Whether people read it, with totals and other words between the rows."""
        return self in (Format.TABLE, Format.LINE)

    @property
    def has_objects(self) -> bool:
        """Whether programs read it: rows are objects, which say their type."""
        return self in (Format.NDJSON, Format.JSON, Format.CSV)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows.

    Attributes:
        template: text of a row, for `Format.TEMPLATE`.
        columns: what `choose` gets.
        wrap: whether cells that do not fit take several lines.
        no_trunc: whether rows are as long as they are, however narrow the terminal.
        width: columns of the terminal; None asks the terminal behind stdout.
        now_ms: what relative times refer to; None for the clock.
    """

    template: str | None = None
    columns: tuple[str, ...] = ()
    wrap: bool = False
    no_trunc: bool = False
    width: int | None = None
    now_ms: int | None = None

    @property
    def names_columns(self) -> bool:
        """Whether `columns` replace the default ones."""
        return any(_is_plain(word) for word in self.columns)


def _is_plain(word: str) -> bool:
    return not word.startswith(("+", "-"))


def near(name: str, known: Collection[str]) -> str:
    """Return a hint that names what is like a wrong name, or all there is."""
    from difflib import get_close_matches

    like = get_close_matches(name, known, 5, 0.5) or [one for one in known if name and name in one]
    return f"Did you mean {' or '.join(like)}?" if like else f"There are {', '.join(known)}."


def choose(
    words: Sequence[str], default: Sequence[str], known: Sequence[str], fields: Sequence[str]
) -> list[str]:
    """Return the names that `--columns` asks for, in order.

    Plain names replace the default ones; `+NAME` adds one, `-NAME` leaves one out, `all` is all
    fields.

    Raises:
        UsageError: a name is neither one of `fields` nor, after a minus, of `known`.
    """
    names = [] if any(map(_is_plain, words)) else [*default]
    for word in words:
        name = word.lstrip("+-")
        known_here = known if word.startswith("-") else fields
        if name == "all":
            names += [one for one in fields if one not in names]
        elif name not in known_here:
            raise UsageError(f"There is no column {name!r}.", hint=near(name, known_here))
        elif word.startswith("-"):
            names = [one for one in names if one != name]
        elif name not in names:
            names.append(name)
    if not names:
        raise UsageError("No column is left.", hint=f"There are {', '.join(fields)}.")
    return names


@dataclass(slots=True)
class Fit:
    """Which columns a table has on a terminal, by their numbers, and where.

    Attributes:
        inline: those with a title, in order.
        under: words that go below their row.
        empty: without a value in the first rows, and therefore left out.
        hidden: without room.
        words: the widths of words that are inline.
        rest: words that get the room which the others leave.
    """

    columns: Sequence[Column[Any]]
    titles: Sequence[int]
    room: int | None
    wraps: bool
    inline: list[int]
    empty: list[int]
    under: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    words: dict[int, int] = field(default_factory=dict)
    rest: int | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[Column[Any]],
        widths: Sequence[int],
        empty: Collection[int],
        room: int | None,
        *,
        wraps: bool = False,
    ) -> Self:
        """Fit columns of these natural widths into a room; None is any room.

        What is empty goes first, then the columns of least weight, until the rest fits with all
        data cut. Words go below their row if they do not fit either: they are never cut.
        """
        titles = [len(column.heading) for column in columns]
        inline = [i for i in range(len(columns)) if i not in empty] or [0]
        found = cls(columns, titles, room, wraps, inline, [i for i in empty if i not in inline])
        if room is not None:
            found._fit(widths)
        return found

    def _fit(self, widths: Sequence[int]) -> None:
        least = self._least(widths)
        words = [] if self.wraps else [i for i in self.inline if self.columns[i].below]
        solid = [i for i in self.inline if i not in words]
        while len(solid) > 1 and not self._fits([least[i] for i in solid]):
            gone = min(solid[1:], key=lambda i: (self.columns[i].weight, -i))
            solid.remove(gone)
            self.hidden.append(gone)
        self.hidden.sort()
        bases = [least[i] for i in solid]
        while words and not self._fits(bases + [widths[i] for i in words]):
            self.under.insert(0, words.pop())
        self.words = {i: widths[i] for i in words}
        if len(self.under) == 1:
            titles = [self.titles[self.under[0]], *self.words.values()]
            if self._fits(bases + titles):
                self.rest = self.under.pop()
        kept = {*solid, *words, self.rest}
        self.inline = [i for i in self.inline if i in kept]

    def _fits(self, widths: Sequence[int]) -> bool:
        return self.room is None or _total(widths) <= self.room

    def _least(self, widths: Sequence[int]) -> list[int]:
        """Return the width below which each column must not be cut, or wrapped."""
        least = []
        for column, width, title in zip(self.columns, widths, self.titles, strict=True):
            floor = column.least or width
            if self.wraps and (column.least or column.below):
                floor = _FOLDED
            least.append(max(title, min(width, floor)))
        return least

    def widths(self, natural: Sequence[int]) -> Mapping[int, int]:
        """Return the widths of the columns that are inline: the widest are cut first."""
        least = self._least(natural)
        found = {i: natural[i] for i in self.inline}
        if self.room is None:
            return found
        found |= self.words
        if self.rest is not None:
            found[self.rest] = self.titles[self.rest]
        fixed = {self.rest, *self.words}
        loose = [i for i in found if i not in fixed and found[i] > least[i]]
        over = _total([*found.values()]) - self.room
        while over > 0 and (loose := [i for i in loose if found[i] > least[i]]):
            # Level the widest with the next, or by as much as is over.
            top = max(found[i] for i in loose)
            widest = [i for i in loose if found[i] == top]
            floor = max([found[i] for i in loose if found[i] < top], default=0)
            step = max(1, min(top - floor, over // len(widest)))
            for i in widest[:over]:
                cut = min(step, found[i] - least[i])
                found[i] -= cut
                over -= cut
        if self.rest is not None and over < 0:
            found[self.rest] -= over
        return found


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
