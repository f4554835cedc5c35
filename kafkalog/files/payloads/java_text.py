"""Text as Java reads and writes it: UTF-8, lines, doubles and JSON, to match Kafka's tools.

Follows `String(byte[], UTF_8)`, `BufferedReader.readLine` over a `StreamDecoder`, `Double.toString`
(of JDK 19 and later, which prints the shortest digits) and Jackson's `JsonNode.toString` as of
Kafka.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from formats.late_patterns import pattern

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


_PIECE_SIZE: Final = 1 << 18
_LINE_END: Final = pattern(r"\r\n|\r|\n")
_DECODED_AT_ONCE: Final = 8192  # chars, the buffer size of a BufferedReader
_SURROGATE: Final = pattern(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ESCAPED: Final = pattern(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def java_text(data: bytes) -> str:
    """Decode UTF-8 with U+FFFD for malformed input, in the same number as Java.

    Python differs from Java only for encoded surrogates: Java puts one U+FFFD, Python several.
    """
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def java_utf8(data: bytes) -> Iterator[bytes]:
    """Do what `java_text` does, as pieces of UTF-8, so that no large text is in memory."""
    start = 0
    while start < len(data):
        end = start + _PIECE_SIZE
        # No sequence is longer than four bytes, so a cut before a first byte, or after three other
        # bytes, splits none.
        for _ in range(3):
            if data[end : end + 1] < b"\x80" or data[end : end + 1] >= b"\xc0":
                break
            end += 1
        yield java_text(data[start:end]).encode()
        start = end


def java_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of a file as Java reads them; raise where Java's reader would meet an error.

    Java decodes ahead of the lines: it meets malformed bytes with the first line that is decoded
    together with them, and a character cut off by the end of the file after the last whole line.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    try:
        *lines, last = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        text = data[: error.start].decode()
        if not _is_cut_off(error):
            text = _decoded_before(text)
        yield from _LINE_END.split(text)[:-1]
        raise
    yield from lines
    if last:
        yield last


def _is_cut_off(error: UnicodeDecodeError) -> bool:
    """Return whether more bytes could complete a character; Java checks surrogates at the end."""
    found = error.object[error.start :]
    is_short = len(found) == 2 and _SURROGATE.match(found) is not None
    return is_short or error.reason == "unexpected end of data"


def _decoded_before(text: str) -> str:
    """Return what a reader gets before Java reaches malformed bytes after this text: full buffers.

    Surrogate pairs are not split. Directly after a full buffer the bytes count as not decoded with
    it, which is true for ASCII.
    """
    units = text.encode("utf-16-le")
    start, end = 0, len(units) // 2
    while end - start >= _DECODED_AT_ONCE:
        start += _DECODED_AT_ONCE
        # The high half of a pair, whose low half would come next.
        if start < end and 0xDC <= units[2 * start + 1] < 0xE0:
            start -= 1
    return units[: 2 * start].decode("utf-16-le")


def java_double(number: float) -> str:
    """Format as `Double.toString`: plain from 0.001 up to 10 million, else scientific."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "-0.0" if math.copysign(1.0, number) < 0 else "0.0"
    sign, digits, exponent = _shortest_decimal(number)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 2, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _shortest_decimal(number: float) -> tuple[str, str, int]:
    """Return sign, digits and the first digit's power of ten.

    If one digit would do, Java prints the nearest number with two: `4.9E-324`, not `5E-324`.
    """
    shortest = repr(number)
    two_digits = f"{number:.1e}"
    if float(two_digits) == number:
        shortest = two_digits
    from decimal import Decimal  # few texts have fractions

    negative, digits, exponent = Decimal(shortest).as_tuple()
    power = len(digits) - 1 + int(exponent)
    return "-" if negative else "", "".join(map(str, digits)).rstrip("0"), power


def java_json(value: object) -> str:
    """Return compact JSON, with members in their order, as Jackson writes a tree.

    Args:
        value: None, bool, int, float, str, or lists and dicts of these. NaN and infinities are
            written as strings, `"NaN"`.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _json_string(value)
    if isinstance(value, float):
        text = java_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if isinstance(value, dict):
        members = (f"{_json_string(name)}:{java_json(item)}" for name, item in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(java_json, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no JSON")


def _json_string(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"  # Jackson writes upper-case hex
