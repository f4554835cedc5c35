"""Rows as blocks, by a template, and with the columns that somebody asked for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import UsageError
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Batch, Record
from kafkalog.node.reader import plan_reading, read_records
from kafkalog.node.targets import open_targets
from kafkalog_cli.output import blocks
from kafkalog_cli.output.bulk import read_rows
from kafkalog_cli.output.dump import DumpStyle
from kafkalog_cli.output.layout import Format, Layout
from kafkalog_cli.output.listing import FILE, file_view
from kafkalog_cli.output.objects import PLAIN, Column, Style
from kafkalog_cli.output.records import RECORD, batch_view, record_view
from kafkalog_cli.output.text import ColourChoice
from kafkalog_cli.output.writer import Writer, write_all
from kafkalog_cli.session import session
from tests.builders import batch, record, write_log

NOW_MS = 1_767_225_600_000  # 2026-01-01
START_MS = 1_704_067_200_000
ORDER = b'{"user":"u-1","cents":0.10,"big":12345678901234567890.5,"tags":["a",null],"in":{"x":{}}}'
EVIL = "\x1b[31m\u202e\n".encode()
Write = Callable[..., str]


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    rows = [
        record(0, b"k-0", ORDER, headers=[(b"source", b"web"), (b"none", None)]),
        record(1, None, None, time_delta=1_500),
        record(2, EVIL, EVIL, headers=[(EVIL, EVIL)]),
    ]
    write_log(tmp_path / "orders-0", batch(0, rows, base_time=START_MS, producer=(7, 1, 5)))
    return list(records_of(tmp_path / "orders-0"))


def records_of(path: Path) -> Iterator[Record]:
    (target,) = open_targets([str(path)])
    for one in read_records(plan_reading(target, Selection())):  # type: ignore[arg-type]
        assert isinstance(one, Record), one
        yield one


@pytest.fixture
def write(capfdbinary: pytest.CaptureFixture[bytes], records: list[Record]) -> Write:
    """Return what is printed for some records."""

    def text(form: Format, style: Style = PLAIN, first: int = 0, **more: Any) -> str:
        style = replace(style, layout=Layout(now_ms=NOW_MS, **more))
        write_all(records[first : first + 1] if first else records, record_view(style), form)
        return capfdbinary.readouterr().out.decode()

    return text


def test_a_record_is_a_block(write: Write) -> None:
    """Its JSON is indented, with its digits; nothing is cut, nothing acts on a terminal."""
    blocks = write(Format.LINE).split("── ")
    assert (
        blocks[1]
        == """\
orders-0, offset 0 ────────────────────────────────────────
time       2024-01-01 00:00:00 UTC, CreateTime (2 years ago)
key        k-0
value      {
             "user": "u-1",
             "cents": 0.10,
             "big": 12345678901234567890.5,
             "tags": [
               "a",
               null
             ],
             "in": {
               "x": {}
             }
           }
headers    source=web
           none=null
producer   7, epoch 1, sequence 5
batch      at 0, none, leader epoch 0
"""
    )
    assert "time       2024-01-01 00:00:01.500 UTC, CreateTime (2 years ago)\n" in blocks[2]
    assert "key        null\nvalue      null\nproducer" in blocks[2]
    assert rf"headers    \x1b[31m\u202e\n=0x{EVIL.hex()}" in blocks[3]
    assert "\x1b" not in blocks[3]


def test_any_row_is_a_block(capfdbinary: pytest.CaptureFixture[bytes], kafkalog: Any) -> None:
    """All of its fields, by the names of the formats for programs."""
    rows = kafkalog("ls", "--files", "examples/log-dir/payments-0", "--format", "ndjson").stdout
    fields = json.loads(rows.splitlines()[0])
    from kafkalog.node.inventory import FileRow

    row = FileRow(**dict.fromkeys(FileRow.__dataclass_fields__) | {"path": "a/b"})
    with Writer(file_view(Style()), Format.LINE) as writer:
        writer.write(replace(row, size_bytes=2048))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0].startswith("── file a/b ──")
    assert [line.split(" ")[0] for line in lines[1:]] == [name for name in fields if name != "type"]
    assert [*FILE.fields] == [name for name in fields if name != "type"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "text",
        '"a"',
        "1",
        '{"a":1} x',
        "[" * 99_999,
        '{"a":' * 9999 + "1" + "}" * 9999,
    ],
)
def test_what_is_no_json_object_is_left_as_it_is(text: str) -> None:
    """Nor is what is nested so deeply that nothing reads it."""
    lines = blocks.indent_json(text)
    assert lines is None or json.loads("\n".join(lines)) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "[[]]", '{"a":[],"b":{}}', '[1,2,{"a":"b,{\\"}"}]', ' {"a" : 1 }'.strip(),
             '{"a":1,"a":2}', '{"é":"\\u001b[31m"}', "[1.0,1e400,-0,true,null]"]
)  # fmt: skip
def test_indented_json_is_the_same_json(text: str) -> None:
    """Including a name that comes twice, which a parser would drop."""
    lines = blocks.indent_json(text)
    assert lines is not None
    pairs = json.JSONDecoder(object_pairs_hook=list)
    assert pairs.decode("\n".join(lines)) == pairs.decode(text)
    assert json.dumps(json.loads(text), indent=2, ensure_ascii=False).count("\n") <= len(lines)


def test_json_has_colours_by_meaning() -> None:
    """Names are cyan, null is dim."""
    try:
        session().colours = ColourChoice.ALWAYS
        assert blocks.indent_json('{"a":null,"b":"c"}') == [
            "{", '  \x1b[36m"a"\x1b[0m: \x1b[2mnull\x1b[0m,', '  \x1b[36m"b"\x1b[0m: "c"', "}",
        ]  # fmt: skip
    finally:
        session().colours = ColourChoice.AUTO


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (r"{partition}\t{offset}\t{value.user}\n", "0\t0\tu-1\n"),
        ("{topic}-{partition}", "orders-0\n"),
        (r"{offset}\0", "0\0"),
        (
            "{value.cents} {value.big} {value.tags.0} {value.tags}",
            '0.10 12345678901234567890.5 a ["a",null]\n',
        ),
        ("[{value.none}{value.user.x}{value.tags.9}{value.tags.1}{key.a}{control_type}]", "[]\n"),
        ("[{value.tags.²}]", "[]\n"),
        ("{value.in}", '{"x":{}}\n'),
        ("{headers.source} {headers.0.key} {headers.none}.", "web source .\n"),
        ("{key} {key:hex} {key:base64} {key:text}", "k-0 6b2d30 ay0w k-0\n"),
        ("{timestamp} {timestamp:iso}", "1704067200000 2024-01-01T00:00:00.000Z\n"),
        ("{{{is_control}}} \\\\ é", "{false} \\ é\n"),
        ("no field", "no field\n"),
        ("", "\n"),
    ],
)
def test_templates(write: Write, template: str, line: str) -> None:
    """One line per row, unless the template ends its rows itself."""
    text = write(Format.TEMPLATE, template=template)
    assert text.startswith(line)
    assert text.count(line[-1]) == 3


def test_null_is_empty_and_nothing_is_raw_in_a_template(write: Write) -> None:
    assert write(Format.TEMPLATE, first=1, template="{key}|{value}|{value:hex}|") == "|||\n"
    text = write(Format.TEMPLATE, first=2, template="{value:text}{headers}")
    assert r"\x1b[31m\u202e\n" in text
    assert not {"\x1b", "\u202e"} & {*text}
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("template", "message", "hint"),
    [
        ("{ofset}", "There is no field 'ofset'.", "Did you mean offset?"),
        ("{valu.user}", "There is no field 'valu'.", "value"),
        ("{}", "There is no field ''.", "There are type, path"),
        ("{offset:hex}", "{offset:hex} is no form of 'offset'.", "Leave it out."),
        ("{key:hx}", "{key:hx} is no form of 'key'.", "There are key:text, key:hex, key:base64."),
        ("{value.user:hex}", "{value.user:hex} is no form of 'value'.", "Leave it out."),
        ("a } b", "A '}' in the template stands alone.", "Write }}."),
        ("a { b", "A '{' in the template stands alone.", "Write {{."),
        (r"\d", r"'\d' in the template means nothing.", r"There are \t, \n, \0 and \\."),
    ],
)
def test_what_no_template_may_say(write: Write, template: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        write(Format.TEMPLATE, template=template)
    assert raised.value.message == message
    assert hint in (raised.value.hint or "")


def test_a_template_is_needed(write: Write) -> None:
    with pytest.raises(UsageError, match="There is no template"):
        write(Format.TEMPLATE)


def test_columns_are_the_same_in_every_format(write: Write) -> None:
    """In the order in which they are given."""
    asked = ("offset", "key_size_bytes", "partition")
    assert write(Format.TABLE, columns=asked, width=80).splitlines() == [
        "OFFSET  KEY SIZE BYTES  PARTITION",
        "     0               3          0",
        "     1               -          0",
        "     2               9          0",
    ]
    assert json.loads(write(Format.JSON, columns=asked)) == [
        {"offset": 0, "key_size_bytes": 3, "partition": 0},
        {"offset": 1, "key_size_bytes": None, "partition": 0},
        {"offset": 2, "key_size_bytes": 9, "partition": 0},
    ]
    assert write(Format.CSV, columns=asked).splitlines()[:2] == [
        "offset,key_size_bytes,partition",
        "0,3,0",
    ]
    assert write(Format.NDJSON, columns=asked).startswith(
        '{"offset":0,"key_size_bytes":3,"partition":0}\n'
    )
    assert write(Format.LINE, columns=asked).splitlines()[1:4] == [
        "offset           0", "key_size_bytes   3", "partition        0",
    ]  # fmt: skip


def test_columns_are_added_and_left_out(write: Write) -> None:
    """`+NAME` and `-NAME` change what is there anyway; `all` is every field."""
    table = write(Format.TABLE, columns=("+sequence", "-headers"))
    assert table.split("\n")[0].split() == ["OFFSET", "TIME", "(UTC)", "KEY", "VALUE", "SEQUENCE"]
    (row, *_) = csv.DictReader(
        io.StringIO(write(Format.CSV, columns=("-value", "-type", "+offset")))
    )
    assert [*row] == [
        name for name, one in RECORD.fields.items() if one.only_if is None and name != "value"
    ]
    everything = write(Format.NDJSON, columns=("all",))
    assert everything == write(Format.NDJSON)
    assert write(Format.NDJSON, columns=("offset", "type")).startswith(
        '{"offset":0,"type":"record"}'
    )


def test_no_column_precedes_those_that_are_named() -> None:
    """A listing of several logs names them, but not to somebody who names the columns."""
    first = Column[Record]("LOG", str)
    for columns, has_label in [((), True), (("+sequence",), True), (("offset",), False)]:
        view = record_view(Style(layout=Layout(columns=columns))).preceded(first)
        assert (view.columns[0] is first) == has_label


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("ofset",), "There is no column 'ofset'."),
        (("+ofset",), "There is no column 'ofset'."),
        (("-ofset",), "There is no column 'ofset'."),
        (("time",), "There is no column 'time'."),
        (("offset", "-offset"), "No column is left."),
    ],
)
@pytest.mark.parametrize("form", [Format.TABLE, Format.NDJSON])
def test_unknown_columns(
    write: Write, columns: tuple[str, ...], message: str, form: Format
) -> None:
    """They are wrong in all formats: titles of tables are no names of fields."""
    with pytest.raises(UsageError, match=message):
        write(form, columns=columns)


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("form", [Format.NDJSON, Format.JSON, Format.CSV])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    "columns",
    [("offset", "type"), ("+sequence", "-value"), ("topic",), ("compression", "path"), ("all",)],
)
def test_kernels_write_the_columns_that_are_asked_for(
    records: list[Record],
    capfdbinary: pytest.CaptureFixture[bytes],
    form: Format,
    batches: bool,
    columns: tuple[str, ...],
) -> None:
    """Their lines are those of the plain path, in the same order."""
    if batches:
        renamed = {"offset": "base_offset", "+sequence": "+base_sequence", "-value": "-crc"}
        columns = tuple(renamed.get(one, one) for one in columns)
    shown = Style(layout=Layout(columns=columns))
    view: Any = batch_view(shown) if batches else record_view(shown)
    values: list[Any] = [records[0].batch] if batches else records
    write_all(values, view, form)
    plain = capfdbinary.readouterr().out
    path = str(Path(records[0].batch.path).parent)
    (target,) = open_targets([path])
    plan = plan_reading(target, Selection())  # type: ignore[arg-type]
    style = DumpStyle(form, not batches, shown, decode=False, progress=False, labels={})
    with Writer(view, form) as writer:
        for block in read_rows(plan, view, style, None, batches=batches):
            writer.write_text(block)
    assert capfdbinary.readouterr().out == plain


def test_words_between_rows_are_for_screens(
    records: list[Record], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A template and CSV have rows alone."""
    for form in Format:
        style = Style(layout=Layout(template="{offset}"))
        with Writer(record_view(style), form) as writer:
            writer.write(records[0])
            writer.write_lines(["a line"])
            writer.total("3 records")
        out = capfdbinary.readouterr().out
        assert (b"a line" in out, b"3 records" in out) == (form.is_screen, form.is_screen), form


def test_decoded_records_are_blocks_with_their_fields(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Keys and values of internal topics are JSON, which is indented."""
    found = list(records_of(Path("examples/log-dir/__consumer_offsets-1")))
    style = Style(decoder=PayloadKind.OFFSETS, layout=Layout(now_ms=NOW_MS))
    write_all(found[-1:], record_view(style), Format.LINE)
    text = capfdbinary.readouterr().out.decode()
    assert text.startswith("── __consumer_offsets-1, offset 2 ──")
    assert '"group": "billing"' in text


def test_a_batch_has_a_block_too(records: list[Record], capfdbinary: Any) -> None:
    batches: list[Batch] = [records[0].batch]
    write_all(batches, batch_view(Style(exact=True)), Format.LINE)
    text = capfdbinary.readouterr().out.decode()
    assert f"base_timestamp             {START_MS}\n" in text
