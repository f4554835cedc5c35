"""Tables on terminals and pipes: what is left out, cut, wrapped, and said about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from kafkalog_cli.output import kinds as k
from kafkalog_cli.output import table
from kafkalog_cli.output.layout import Fit, Format, Layout
from kafkalog_cli.output.objects import PLAIN, Column, Field, ObjectType, Style
from kafkalog_cli.output.text import ColourChoice, cell_width
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import session
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Result

NAME_WIDTH = 237


@dataclass(frozen=True)
class Thing:
    name: str = "orders-0"
    size: int | None = 1
    at: int = 1_704_067_200_000
    value: bytes | None = b"v"
    note: str = ""


THING = ObjectType[Thing](
    "thing",
    "no command",
    "A row of these tests.",
    Field("name", k.TEXT, ""),
    Field("size", k.INT | None, ""),
    Field("at", k.RECORD_TIME, ""),
    Field("value", k.VALUE, ""),
    Field("note", k.TEXT, ""),
)
COLUMNS: tuple[Column[Thing], ...] = (
    Column("NAME", "name", least=8),
    Column("SIZE", "size", weight=4),
    Column("TIME", "at", weight=3),
    Column("VALUE", "value", least=10, weight=9),
    Column("NOTE", "note", below=True),
)
Show = Callable[..., list[str]]


@pytest.fixture
def show(capfdbinary: pytest.CaptureFixture[bytes]) -> Show:
    """Return the lines of a table."""

    def lines(
        rows: Sequence[Thing], style: Style = PLAIN, total: str = "", **more: Any
    ) -> list[str]:
        style = replace(style, layout=Layout(**more))
        with Writer(THING.view(style, *COLUMNS), Format.TABLE) as writer:
            for row in rows:
                writer.write(row)
            if total:
                writer.total(total)
        return capfdbinary.readouterr().out.decode().splitlines()

    return lines


def test_on_a_pipe_all_columns_are_whole(show: Show) -> None:
    """One header, no note at the end, nothing left out; a very long value widens no other row."""
    assert show([Thing(value=b"x" * 99)]) == [
        "NAME      SIZE  TIME (UTC)           VALUE  NOTE",
        "orders-0     1  2024-01-01 00:00:00  " + "x" * 99,
    ]


def test_columns_without_a_value_are_left_out(show: Show) -> None:
    """Null, `-` and empty text are no values, and nothing is said about them."""
    assert show([Thing(size=None)], width=80) == [
        "NAME      TIME (UTC)           VALUE",
        "orders-0  2024-01-01 00:00:00  v",
    ]


def test_the_least_weight_goes_first_then_the_widest_data_are_cut(show: Show) -> None:
    """TIME has less weight than SIZE; VALUE is wider than NAME."""
    rows = [Thing("a" * 30, value=b"v" * 50)]
    assert show(rows, width=66) == [
        "NAME                SIZE  TIME (UTC)           VALUE",
        "aaaaaaaaaaaaaaaaa…     1  2024-01-01 00:00:00  vvvvvvvvvvvvvvvvvv…",
        "(cut: …; -x shows a row as a block, -w wraps)",
    ]
    assert show(rows, width=40) == [
        "NAME              SIZE  VALUE",
        "aaaaaaaaaaaaaaa…     1  vvvvvvvvvvvvvvv…",
        "(not shown: time; cut: …; -x shows a row",
        " as a block, -w wraps)",
    ]


@pytest.mark.parametrize("width", range(20, 140, 3))
def test_no_line_is_wider_than_the_terminal(show: Show, width: int) -> None:
    """Whatever the width is; each row is one line, and its words may be more below it."""
    rows = [
        Thing("ü" * NAME_WIDTH, 7, value="日本語テキスト".encode() * 30, note="why it is so"),
        Thing(value=None, note="x"),
    ]
    lines = show(rows, width=width)
    assert max(map(cell_width, lines)) <= width
    assert sum(line.startswith(("ü", "orders-0")) for line in lines) == 2


def test_our_words_go_below_their_row(show: Show) -> None:
    """Each where it does not fit; the title stays."""
    words = "truncate to offset 290, losing 200 records (9800 bytes) of this partition"
    assert show([Thing(note=words), Thing(note="nothing")], width=60) == [
        "NAME      SIZE  TIME (UTC)           VALUE  NOTE",
        "orders-0     1  2024-01-01 00:00:00  v",
        "    truncate to offset 290, losing 200 records (9800 bytes)",
        "    of this partition",
        "orders-0     1  2024-01-01 00:00:00  v      nothing",
    ]


def test_a_value_that_comes_late_is_appended(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its column was empty in the first rows; without room it goes below."""
    monkeypatch.setattr(table, "_CHUNK", 2)
    rows = [Thing(size=None)] * 2 + [Thing(size=9), Thing(size=9, note="y" * 40)]
    assert show(rows, width=50) == [
        "NAME      TIME (UTC)           VALUE",
        *["orders-0  2024-01-01 00:00:00  v"] * 2,
        "orders-0  2024-01-01 00:00:00  v  size=9",
        "orders-0  2024-01-01 00:00:00  v",
        "    size=9",
        f"    note={'y' * 40}",
    ]


def test_rows_stay_aligned_with_wide_letters(show: Show) -> None:
    """A letter of two cells that would be halved is left out."""
    lines = show([Thing("語" * 10, value=b"1"), Thing("a", value=b"2")], width=46)
    assert lines[1].startswith("語語語語語…  ")
    assert {cell_width(line[: line.index("2024")]) for line in lines[1:3]} == {20}


def test_wrapped_cells_lose_nothing(show: Show) -> None:
    """`-w`: no letter is cut off, and there is no column less."""
    lines = show([Thing("a" * 30, value=b"v" * 50, note="words")], width=60, wrap=True)
    text = "".join(lines[1:])
    assert (text.count("a"), text.count("v"), "words" in text) == (30, 50, True)
    assert max(map(len, lines)) <= 60
    assert "…" not in text


def test_whole_lines_however_long(show: Show) -> None:
    """`--no-trunc`: only what is empty is left out."""
    assert show([Thing(size=None, value=b"v" * 99)], width=20, no_trunc=True) == [
        "NAME      TIME (UTC)           VALUE",
        "orders-0  2024-01-01 00:00:00  " + "v" * 99,
    ]


def test_milliseconds_are_shown_if_a_row_needs_them(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are shown, rows that come later have them, too: they stay aligned."""
    monkeypatch.setattr(table, "_CHUNK", 2)
    times = [1_704_067_200_000, 1_704_067_201_000, 1_704_067_202_005, 1_704_067_203_000,
             1_704_067_204_000]  # fmt: skip
    for width in (None, 80):
        lines = show([Thing(at=at) for at in times], width=width)
        assert [re.findall(r"2024-01-01 (\S+)", line)[0] for line in lines[1:]] == [
            "00:00:00", "00:00:01", "00:00:02.005", "00:00:03.000", "00:00:04.000",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "cell"),
    [
        (946_684_799_999, "1999-12-31 23:59:59.999 odd"),
        (946_684_800_000, "2000-01-01 00:00:00"),
        (4_133_980_799_000, "2100-12-31 23:59:59"),
        (4_133_980_800_000, "2101-01-01 00:00:00 odd"),
        (1_704_067_200, "1970-01-20 17:21:07.200 odd"),
        (-1, "-"),
        (2**62, f"{2**62} odd"),
    ],
)
def test_odd_times_of_records_are_marked(show: Show, at: int, cell: str) -> None:
    """Outside 2000 to 2100: most are seconds in place of milliseconds."""
    assert re.split(r"  +", show([Thing(at=at)])[1].strip())[2] == cell


@pytest.mark.parametrize(
    "command",
    ["dump-segment", "dump-segment --batches", "find --key k", "ls --segments", "lookup-offset 0",
     "profile", "retention", "simulate-roll"],
)  # fmt: skip
def test_commands_mark_odd_times(
    kafkalog: Callable[..., Result], tmp_path: Path, command: str
) -> None:
    """That of 2286 keeps retention from deleting the segment for centuries."""
    time = 10**13
    write_log(tmp_path / "t-0", batch(0, [record(0, b"k", b"v")], base_time=time, max_time=time))
    name, *options = command.split()
    shown = kafkalog(name, tmp_path / "t-0", *options).stdout
    assert re.search(rb"2286-11-20.17:46:40(\.000Z)? odd", shown)


def test_exact_times_are_numbers_under_a_title_without_zone(show: Show) -> None:
    lines = show([Thing()], Style(exact=True), width=80)
    assert lines == [
        "NAME      SIZE  TIME           VALUE",
        "orders-0     1  1704067200000  v",
    ]


def test_an_hour_that_comes_twice_has_its_offset(show: Show) -> None:
    """The zone's name in the title does not say which of the two is meant."""
    style = Style(zone=ZoneInfo("Europe/Berlin"))
    times = [1_729_987_200_000, 1_729_990_800_000, 1_729_994_400_000]
    lines = show([Thing(at=at) for at in times], style)
    assert "TIME (Europe/Berlin)" in lines[0]
    assert [re.findall(r"2024-10-27 (\S+)", line)[0] for line in lines[1:]] == [
        "02:00:00+02:00", "02:00:00+01:00", "03:00:00",
    ]  # fmt: skip


def test_the_total_comes_after_the_note(show: Show) -> None:
    """What the rows come to is the last line of a listing."""
    assert show([Thing(value=b"v" * 99)], width=70, total="1 thing")[-2:] == [
        "(cut: …; -x shows a row as a block, -w wraps)",
        "1 thing",
    ]


def test_colours_are_asked_for_even_on_a_pipe(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over the environment, and NO_COLOR over FORCE_COLOR."""
    rows = [Thing(size=None)]
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in "".join(show(rows))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[2m-\x1b[0m" in "".join(show(rows)), "null is dim"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "".join(show(rows))
    try:
        session().colours = ColourChoice.ALWAYS
        assert "\x1b" in "".join(show(rows))
        session().colours = ColourChoice.NEVER
        monkeypatch.delenv("NO_COLOR")
        assert "\x1b" not in "".join(show(rows))
    finally:
        session().colours = ColourChoice.AUTO


def test_values_cannot_act_on_the_terminal(show: Show) -> None:
    """Escapes and bidirectional text are shown as text, within the width."""
    rows = [Thing("\x1b[31m\u202e" * 20, value="\x1b]0;x\x07\u202e".encode() * 50)]
    text = "\n".join(show(rows, width=60))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert r"\x1b[31m\u202e" in text


def test_memory_of_cells_on_a_terminal_is_bounded() -> None:
    """Of data no more characters wait for the widths than a row can show."""
    column = Column[Thing]("VALUE", lambda one: "v" * one.size, least=10)  # type: ignore[operator]
    assert len(column.toned(Thing(size=1 << 20), 80)) == 81


def test_the_first_column_stays() -> None:
    """However narrow the terminal is."""
    fit = Fit.of([Column[Thing](title, str) for title in "ab"], [9, 9], (), 4)
    assert (fit.inline, fit.hidden) == ([0], [1])


def test_what_somebody_asked_for_is_shown_even_if_it_is_empty(show: Show) -> None:
    assert show([Thing(size=None)], width=80, columns=("size", "name")) == [
        "SIZE  NAME",
        "   -  orders-0",
    ]
