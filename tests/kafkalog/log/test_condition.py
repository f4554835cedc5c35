"""Conditions in CEL: the answers of Python, never an exception, and bounds that lose no record."""

from __future__ import annotations

import json
import operator
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import CorruptDataError, Listener, UsageError
from kafkalog.log.batches.condition import (
    _FUNCTIONS,
    _METHODS,
    DEPTH_MAX,
    Bounds,
    Condition,
    Content,
    _engine,
    condition_of,
    json_or_text,
)
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Header, Record, TimestampType
from kafkalog.node.targets import open_targets
from kafkalog.tables.model import Request, Split
from kafkalog.tables.moved import Losses
from kafkalog.tables.planning import plan_splits
from kafkalog.tables.reading import plan_of_split
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.log.columns.test_twins import logs
from tests.kafkalog.log.columns.twins import assert_twins, by_kernels, by_reference
from tests.sampling import examples, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Answer = Callable[[dict[str, Any]], Any]

SIGNS: Final = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
PATHS: Final = {
    "value.a": ("a",),
    "value.b": ("b",),
    'value["a b"]': ("a b",),
    "value.d.e": ("d", "e"),
    "value['d'][\"e\"].f": ("d", "e", "f"),
    "value.l[1]": ("l", 1),
    "value . l [ 0 ] . a": ("l", 0, "a"),
}
WORDS = st.sampled_from(("", "tea", "t", "coffee", "\u202eeat", "\U0001f375", "a b", "1"))
NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from((0.5, 1.0, 2.5, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 10**30))
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
NAMES = st.sampled_from(("a", "b", "a b", "d", "e", "f", "l"))
INNER = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
VALUES = st.dictionaries(NAMES, INNER, max_size=5)


class NoAnswerError(Exception):
    """CEL has no answer here."""


def reached(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if not isinstance(value, dict if isinstance(step, str) else list):
            raise NoAnswerError
        try:
            value = value[step]
        except LookupError:
            raise NoAnswerError from None
    return value


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_kind(one: Any, other: Any) -> bool:
    return (number(one) and number(other)) or type(one) is type(other)


def compared(sign: str, one: Any, other: Any) -> bool:
    """Compare as CEL does: numbers with numbers, else only what has one type has an order."""
    if number(one) and number(other) and float in (type(one), type(other)):
        one, other = float(one), float(other)  # the engine compares these as doubles
    if sign in ("==", "!="):
        return SIGNS[sign](one, other) if same_kind(one, other) else sign == "!="
    if not same_kind(one, other) or not isinstance(one, str | bool | int | float):
        raise NoAnswerError
    return bool(SIGNS[sign](one, other))


def literal(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**63:
        return f"{value}u" if value < 2**64 else literal(float(value))
    return json.dumps(value, ensure_ascii=False)


def comparison(path: str, sign: str, constant: Any) -> tuple[str, Answer]:
    if isinstance(constant, int) and constant >= 2**64:
        constant = float(constant)

    def answer(value: dict[str, Any]) -> bool:
        found = reached(value, PATHS[path])
        if number(found) and isinstance(found, int) and not -(2**63) <= found < 2**64:
            found = float(found)
        return compared(sign, found, constant)

    return f"{path} {sign} {literal(constant)}", answer


def text_test(path: str, method: str, word: str) -> tuple[str, Answer]:
    def answer(value: dict[str, Any]) -> bool:
        found = reached(value, PATHS[path])
        if not isinstance(found, str):
            raise NoAnswerError
        tests: dict[str, Callable[[str], bool]] = {
            "startsWith": found.startswith, "endsWith": found.endswith,
            "contains": found.__contains__,
        }  # fmt: skip
        return tests[method](word)

    return f"{path}.{method}({json.dumps(word, ensure_ascii=False)})", answer


def presence(path: str) -> tuple[str, Answer]:
    def answer(value: dict[str, Any]) -> bool:
        *before, last = PATHS[path]
        found = reached(value, tuple(before))
        if not isinstance(found, dict):
            raise NoAnswerError
        return last in found

    return f"has({path})", answer


def tried(answer: Answer, value: dict[str, Any]) -> bool | None:
    try:
        found = answer(value)
    except NoAnswerError:
        return None
    assert isinstance(found, bool)
    return found


def joined(one: tuple[str, Answer], sign: str, other: tuple[str, Answer]) -> tuple[str, Answer]:
    """Join as CEL does: what one side decides alone needs no answer of the other."""

    def answer(value: dict[str, Any]) -> bool:
        found = {tried(one[1], value), tried(other[1], value)}
        decides = sign == "||"
        if decides in found:
            return decides
        if None in found:
            raise NoAnswerError
        return not decides

    return f"({one[0]}) {sign} ({other[0]})", answer


def negated(one: tuple[str, Answer]) -> tuple[str, Answer]:
    return f"!({one[0]})", lambda value: not one[1](value)


EXPRESSIONS = st.recursive(
    st.builds(comparison, st.sampled_from(sorted(PATHS)), st.sampled_from(sorted(SIGNS)), SCALARS)
    | st.builds(
        text_test, st.sampled_from(sorted(PATHS)),
        st.sampled_from(("startsWith", "endsWith", "contains")), WORDS,
    )
    | st.builds(presence, st.sampled_from(("value.a", "value.d.e"))),
    lambda inner: st.builds(joined, inner, st.sampled_from(("&&", "||")), inner)
    | st.builds(negated, inner),
    max_leaves=4,
)  # fmt: skip


def content(value: Any, offset: int = 0) -> Content:
    return Content(offset, 0, b"k", json.dumps(value, ensure_ascii=False).encode())


@settings(max_examples=2000 if tries_everything() else 40)
@given(expression=EXPRESSIONS, values=st.lists(VALUES, min_size=1, max_size=8))
def test_the_answers_are_those_of_python(
    expression: tuple[str, Answer], values: list[dict[str, Any]]
) -> None:
    """On random JSON: what is missing or of another type is no match, and nothing is raised."""
    text, answer = expression
    condition = Condition(text)
    for value in values:
        assert condition.matches(content(value)) == (tried(answer, value) is True), value


@settings(max_examples=examples(500))
@given(expression=EXPRESSIONS, value=VALUES)
def test_variables_for_paths_change_no_answer(
    expression: tuple[str, Answer], value: dict[str, Any]
) -> None:
    """The engine gives the same answer if it gets the whole value."""
    try:
        whole = _engine().compile(expression[0]).execute({"value": value}) is True
    except Exception:  # noqa: BLE001 # as `Condition.matches`
        whole = False
    assert Condition(expression[0]).matches(content(value)) == whole


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("value.big == 9223372036854775807", True),
        ("value.big > 9223372036854775806", True),
        ("value.unsigned == 18446744073709551615u", True),
        ("value.huge > 18446744073709551615u", True),
        ("value.nothing == null && value.nothing != 1", True),
        ("value.nothing > 1", False),
        ('value["null"] == null', False),
        ("value.missing == null", False),
        ("value.missing != 1", False),
        ("!(value.missing == 1)", False),
        ("value.missing == 1 || offset == 7", True),
        ("value.list.exists(x, x.a == 2) && value.list.all(x, x.a > 0)", True),
        ("value.list.map(x, x.a) == [1, 2]", True),
        ("2 in value.list.map(x, x.a) && size(value.list) == 2", True),
        ("value.list[9].a == 1", False),
        ("value.list[-1].a == 1", False),
        ('value["with \\"quotes\\""] == 1', True),
        ('value[r"raw\\"] == 2', True),
        ("value.text.matches('^t.a$')", True),
        ("value.text.matches('(')", False),
        ("value.text.matches('((a{100}){100}){100}')", False),
        ("value.text", False),
        ("1", False),
        ("value.text == 'tea' // and a comment with && in it", True),
        ("(value.text == 'tea') ? offset == 7 : offset == 8", True),
        ("key == 'k' && key_size_bytes == 1 && value_size_bytes > 10", True),
        ("headers.source == 'web' && headers['twice'] == 'second'", True),
        ("headers['null'] == null && headers['bytes'] == b'\\xff'", True),
        ("headers['none'] == 'x'", False),
        ("time == timestamp('2024-01-01T00:00:00.005Z') && timestamp == 1704067200005", True),
        ("time.getFullYear() == 2024 && time - time == duration('0s')", True),
        ("topic == 'orders' && partition == 3 && producer_id == 5 && leader_epoch == 2", True),
        ("is_transactional || is_control || sequence != 9", False),
        ("offset / 0 == 1 || 9223372036854775807 + offset > 0", False),
        ("value._0 == 1 && value.list.exists(_0, _0.a == 1)", True),
    ],
)
def test_an_expression_sees_the_fields_of_a_record(expression: str, matches: bool) -> None:
    """Of the record, its batch, its headers, and of the value in it."""
    value = {
        "big": 2**63 - 1, "unsigned": 2**64 - 1, "huge": 10**30, "nothing": None, "text": "tea",
        "list": [{"a": 1}, {"a": 2}], 'with "quotes"': 1, "raw\\": 2, "_0": 1,
    }  # fmt: skip
    headers = [(b"source", b"web"), (b"twice", b"first"), (b"twice", b"second"), (b"null", None),
               (b"bytes", b"\xff")]  # fmt: skip
    found = Record(
        _batch("/logs/orders-3/00000000000000000000.log"), 7, 1704067200005,
        TimestampType.CREATE_TIME, b"k", json.dumps(value).encode(),
        headers=tuple(Header(*one) for one in headers), sequence=9,
    )  # fmt: skip
    assert Condition(expression).matches(found) is matches


def _batch(path: str) -> Any:
    from kafkalog.model import Batch

    return Batch(
        path=path, position=0, size_bytes=0, base_offset=0, last_offset=9, magic=2, attributes=0,
        crc=0, leader_epoch=2, base_timestamp=0, max_timestamp=0, producer_id=5,
        producer_epoch=0, base_sequence=2, records=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": 1}', {"a": 1}), (b' \n[1] ', [1]), (b"user-8", "user-8"), (b"42", "42"),
        (b"null", "null"), (b"", ""), (b"\xff{", b"\xff{"), (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a": 1} x', '{"a": 1} x'), (b'{"a":', '{"a":'), (b'{"a":1,"a":2}', {"a": 2}),
    ],
)  # fmt: skip
def test_what_is_no_object_stays_text(data: bytes, found: Any) -> None:
    """So a key has one type in all records of a topic."""
    assert json_or_text(data) == found


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1, 900, 5000, 200_000])
@pytest.mark.parametrize("ends", [("[", "]"), ('{"a":', "}")])
def test_deep_values_are_text(depth: int, ends: tuple[str, str]) -> None:
    """The engine would follow them on the stack of the thread, and end the process."""
    text = ends[0] * depth + ('"x"' if ends[0] == "[" else "1") + ends[1] * depth
    condition = Condition("value != 'x'")
    assert condition.matches(Content(0, 0, None, text.encode()))
    assert isinstance(json_or_text(text.encode()), str) == (depth > DEPTH_MAX)


@pytest.mark.sampled(14, each_value=True)
@pytest.mark.parametrize(
    "value",
    [
        b'{"a":"\\ud800"}', b'{"\\ud800":1}', b'{"a":' + b"9" * 400 + b"}",
        b'{"a":' + b"9" * 5000 + b"}", b'{"a":1e400}', b'{"a":-1e400}', b'{"a":{"b":[null]}}',
        b"\x00", b"\xff\xfe", '{"a":"\u202e\u0000"}'.encode(), None, b"", b'{"a":""}', b"[]",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "expression",
    [
        "value.a > 1", "value.a == 'x'", "value == 'x'", "value.a.b[0] == 1",
        "value.a.contains('')",
        "value.a.matches('^(a+)+$')", "size(value.a) > 0", "int(value.a) > 0", "value.a + 1 > 0",
        "has(value.a.b)", "value.a[0] == 1", "string(value) == ''", "value.a.all(x, x > 1)",
        "timestamp(value.a) > time", "-value.a > 0", "value.a % 0 == 1", "value[0] == 1",
        "duration(value.a) > duration('1h')", "value.a in value", "bytes(value.a) == b''",
    ],
)  # fmt: skip
def test_hostile_values_raise_nothing(expression: str, value: bytes | None) -> None:
    """Half surrogates, numbers of 400 digits, nulls, bytes: no match, or one."""
    assert Condition(expression).matches(Content(0, -(2**63), value, value)) in (True, False)


def test_a_regular_expression_takes_no_more_time_than_the_text_is_long() -> None:
    """RE2's promise: a backtracking engine would need 2**50,000 steps."""
    condition = Condition("value.a.matches('^(a+)+$')")
    assert not condition.matches(content({"a": "a" * 50_000 + "b"}))
    assert condition.matches(content({"a": "a" * 50_000}))


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("value.cents = 100", "character 13", "=="),
        ("value.cents > 1 and offset > 2", "character 17", "&&"),
        ("value.cents >", "character 14", "value.cents > 100"),
        ("", "character 1", "value.cents > 100"),
        ("offset > 1 &&\n&& offset > 2", "line 2, character 1", "value.cents"),
        ("'" + "x" * 20, "character 1", "value.cents"),
        ("cents > 100", "There is no field cents at character 1", "value.cents"),
        ("ofset > 100", "There is no field ofset at character 1", "Did you mean offset?"),
        ("value.item.lower() == ''", "no function lower at character 12", "startsWith"),
        ("value.item.startswith('t')", "no function startswith", "Did you mean startsWith?"),
        ("value.l.all(value, value > 1)", "value is a field", "variable of all"),
        ("(" * 10_000 + "true" + ")" * 10_000, "error at", "value.cents"),
        ("[" * 10_000, "error at", "value.cents"),
        ("true ? " * 10_000 + "true", "error at", "value.cents"),
        ("value.\u202e == 1", "character 7", "value.cents"),
        ("key == '\udcff'", "not a condition", "value.cents"),
    ],
)
def test_errors_say_where_and_what_to_write(expression: str, message: str, hint: str) -> None:
    """A condition that cannot match is refused before anything is read."""
    with pytest.raises(UsageError, match=message) as raised:
        Condition(expression)
    assert hint in str(raised.value.hint)


def test_long_expressions_are_taken() -> None:
    """As a program may write them."""
    assert Condition(" || ".join(["offset == 5"] * 2000)).matches(content({}, offset=5))
    assert Condition("!" * 10_000 + "true").matches(content({}))
    assert not Condition("value" + ".a" * 5000 + " == 1").matches(content({"a": 1}))


@pytest.mark.parametrize("name", sorted(_FUNCTIONS | _METHODS))
def test_the_engine_has_each_function_that_is_let_through(name: str) -> None:
    """Any other one would never match, which is said before reading."""
    calls = [f"{name}({argument})" for argument in ("1", "'1'", "'1h'", "time", "value.a")]
    calls.append(f"{name}('2024-01-01T00:00:00Z')")
    calls += [f"'1'.{name}({argument})" for argument in ("", "'1'")] + [f"time.{name}()"]
    calls += [f"[1].{name}(x, {answer})" for answer in ("x", "x == 1")]
    answers = []
    for call in calls:
        condition = None
        try:
            condition = Condition(f"type({call}) == type({call})")
        except UsageError:
            continue
        answers.append(condition.matches(Content(0, 0, None, b'{"a": 1}')))
    assert any(answers), calls


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        ("offset >= 5 && offset < 9", Bounds(from_offset=5, to_offset=9)),
        ("offset > 5 && 9 >= offset", Bounds(from_offset=6, to_offset=10)),
        ("offset == 5 && (offset < 100 && offset > 2)", Bounds(from_offset=5, to_offset=6)),
        ("(offset == 5)", Bounds(from_offset=5, to_offset=6)),
        ("offset > 5 || offset < 2", Bounds()),
        ("(offset > 5 || offset < 2) && timestamp < 7", Bounds(to_time=7)),
        ("offset > 5 ? true : false", Bounds()),
        ("!(offset > 5)", Bounds()),
        ("offset != 5 && offset + 1 > 5 && -offset < 5", Bounds()),
        ("offset > -1 && offset < 1.5 && offset < 9999999999999999999u", Bounds()),
        ("offset > 9223372036854775807", Bounds()),
        ("value.l.all(x, offset > 5)", Bounds()),
        ("time >= timestamp('1970-01-01T00:00:05Z')", Bounds(from_time=5000)),
        ("time < timestamp('1970-01-01T01:00:00.250+01:00')", Bounds(to_time=250)),
        ("time < timestamp('1970-01-01T00:00:00.0001Z')", Bounds()),
        ("time > timestamp('nonsense')", Bounds()),
        ("timestamp > timestamp('1970-01-01T00:00:05Z')", Bounds()),
        ("key == 'user-8'", Bounds(key=b"user-8")),
        ("'\u00e9' == key", Bounds(key="\u00e9".encode())),
        ("key == 'a\\n' && key != 'b'", Bounds()),
        ("headers['source'] == \"web\"", Bounds(header=(b"source", b"web"))),
        ("headers.source == 'web'", Bounds(header=(b"source", b"web"))),
        ("producer_id == 7 && leader_epoch == 0", Bounds(producer_id=7, leader_epoch=0)),
        ("producer_id > 7 && value.offset == 5 && has(value.key)", Bounds()),
    ],
)
def test_the_comparisons_of_a_conjunction_are_bounds(expression: str, bounds: Bounds) -> None:
    """They go to indexes, headers and kernels; nothing else does."""
    assert Condition(expression).bounds == bounds


def test_bounds_tighten_those_that_were_given() -> None:
    """Also if a plan replaces them later."""
    where = Condition("offset >= 5 && offset < 9 && key == 'k'")
    selection = Selection(from_offset=3, to_offset=7, key=b"other", where=where)
    assert (selection.from_offset, selection.to_offset, selection.key) == (5, 7, b"other")


PLAIN = st.sampled_from((
    "offset >= 3", "offset < 12", "offset == 7", "4 < offset", f"timestamp > {BASE_TIME + 2}",
    f"timestamp <= {BASE_TIME + 8}", "time >= timestamp('2024-01-01T00:00:00.004Z')",
    "key == 'a'", "key == '[1]'", "headers['h'] == 'x'", "headers.h == 'y'", "value.a > 1",
    "value.a == 'x'", "producer_id == 7", "leader_epoch == 1", "value == 'text'", "topic == 't'",
    "value == null",
))  # fmt: skip
WHERE = st.builds(Condition, st.lists(PLAIN, min_size=1, max_size=3).map(" && ".join))
KEYS = st.sampled_from((None, b"", b"a", b"[1]", b"\xff", b'"a"'))
TEXTS = st.sampled_from((
    None, b"", b"text", b'{"a":1}', b'{"a":2}', b'{"a":"x"}', b'{"a":"\\u0078"}', b'{"a":', b"\xff",
))  # fmt: skip
HEADERS = st.lists(
    st.tuples(st.sampled_from((b"h", b"i")), st.sampled_from((None, b"x", b"y"))), max_size=3
)


@st.composite
def sound_logs(draw: st.DrawFn) -> bytes:
    """Draw batches whose headers are right about their records."""
    made, offset = [], 0
    for _ in range(draw(st.integers(1, 5))):
        times = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
        rows = [
            record(i, draw(KEYS), draw(TEXTS), time_delta=time, headers=draw(HEADERS))
            for i, time in enumerate(times)
        ]
        made.append(batch(
            offset, rows, last_delta=len(rows) - 1, max_time=BASE_TIME + max(times),
            producer=draw(st.sampled_from(((-1, -1, -1), (7, 1, offset)))), epoch=1,
        ))  # fmt: skip
        offset += len(rows) + draw(st.integers(0, 2))
    return b"".join(made)


@settings(max_examples=examples(300))
@given(data=sound_logs(), where=WHERE)
def test_bounds_lose_no_record(tmp_path: Path, data: bytes, where: Condition) -> None:
    """Both decoders give what the condition says of each record of the whole log."""
    from kafkalog.node.reader import read_records

    path = write_log(tmp_path / "t-0", data)
    wanted = [one.offset for one in read_records(path) if where.matches(one)]
    rows, _ = assert_twins(path, Selection(where=where))
    assert [row["offset"] for row in rows] == wanted


@settings(max_examples=examples(300))
@given(data=logs(), where=WHERE, batch_rows=st.sampled_from((1, 3, 1000)))
def test_damaged_logs(tmp_path: Path, data: bytes, where: Condition, batch_rows: int) -> None:
    """Both decoders agree on any bytes."""
    path = write_log(tmp_path, data)
    assert_twins(path, Selection(where=where), batch_rows=batch_rows)


def test_values_that_do_not_decode_are_counted(tmp_path: Path) -> None:
    """Where they were needed for an answer; tombstones decode."""
    values = [b'{"a":1}', b'{"b":1}', b"text", b"\xff", None, b'{"a":']
    path = write_log(tmp_path, batch(0, [record(i, b"k", one) for i, one in enumerate(values)]))
    for read in (by_reference, by_kernels):
        where = Condition("value.a == 1 && offset < 5")
        rows, _ = read(path, Selection(where=where))
        assert ([row["offset"] for row in rows], where.undecodable) == ([0], 2)
        assert where.note == "--where has no answer for 2 values that did not decode"
    other = Condition("value == 'text' || value.a == 1")
    rows, _ = by_kernels(path, Selection(where=other))
    assert ([row["offset"] for row in rows], other.undecodable) == ([0, 2], 2)
    assert Condition("offset == 1").note is None


def test_other_readers_decode() -> None:
    """A key that one cannot read is counted, and only bounds that need no key are taken."""

    def half(data: bytes, headers: tuple[Header, ...]) -> Any:
        assert headers == ()
        if data == b"odd":
            raise CorruptDataError("It is odd.")
        return {"size": len(data)}

    where = Condition("key.size == 2 && value.size == 3 || key == 'xy'", read_key=half,
                      read_value=half)  # fmt: skip
    assert where.matches(Content(0, 0, b"xy", b"abc"))
    assert not where.matches(Content(0, 0, b"odd", b"abc"))
    assert where.undecodable == 1
    assert Condition("key == 'xy'", read_key=half).bounds == Bounds()


def test_a_condition_goes_to_other_processes(tmp_path: Path) -> None:
    """In a piece of work; in one process all pieces have the same one, which counts."""
    write_log(tmp_path / "t-0", batch(0, [record(i, None, b'{"a":%d}' % i) for i in range(9)]))
    request = Request(where="value.a > 6")
    [split] = plan_splits(open_targets([tmp_path / "t-0"]), request, Listener())
    again = Split.from_json(json.loads(json.dumps(split.as_json())))
    for one in (split, again):
        where = plan_of_split(one, Losses(one, Listener())).selection.where
        assert where is condition_of("value.a > 6")
    copied = pickle.loads(pickle.dumps(condition_of("value.a > 6")))  # noqa: S301 # made here
    assert copied.matches(content({"a": 7}))
    assert not copied.matches(content({"a": 6}))


def test_the_command_line_of_the_engine_is_not_loaded() -> None:
    """It takes half a second; who wants the package itself gets it after all."""
    program = """
import sys
from kafkalog.log.batches.condition import Condition
Condition("value.a == 1")
assert not {"rich", "typer", "prompt_toolkit", "numpy", "pyarrow"} & sys.modules.keys()
import cel
assert cel.evaluate("1 + 1") == 2
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_commands_show_what_meets_a_condition(kafkalog: Callable[..., Result]) -> None:
    """`find` and `dump-segment` say the same, and how many values did not decode."""
    where = ("--where", 'value.item == "tea" && offset < 10')
    offsets = []
    for command in (("find", "examples/log-dir/orders-0"),
                    ("dump-segment", "examples/log-dir/orders-0")):  # fmt: skip
        result = kafkalog(*command, *where, "--format", "ndjson")
        assert result.status == 0
        offsets.append([json.loads(line)["offset"] for line in result.stdout.splitlines()])
    assert offsets == [[4, 6, 8, 9], [4, 6, 8, 9]]
    nested = ("--where", "value.a.b == 1 && offset < 3")
    result = kafkalog("find", "examples/log-dir", "--internal", *nested)  # of bytes, too
    assert result.status == 8, "what did not decode may have been meant"
    assert "did not decode" in result.stderr
    assert kafkalog("find", "examples/log-dir", "--where", "value.a = 1").status == 2
    both = ("--key", "user-8", "--history", "--where", "value.a == 1")
    assert kafkalog("find", "examples/log-dir", *both).status == 2
