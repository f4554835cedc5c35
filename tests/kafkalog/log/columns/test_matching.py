"""The text that every match of a regular expression contains."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from kafkalog.log.columns.scan_steps import keep_matching, text_in

ATOMS = (b"a", b"b", b"ab", b"abc", b"\\d", b"\\.", b"\\\\", b"\\x61", b"\\w", b".", b"^", b"$",
         b"\\bab", b"a?", b"b*", b"ab+", b"ab{0,2}", b"a{2}", b"{", b"[ab]", b"(ab)", b"ab|", b"1",
         b'"ab"', b"(?i:ab)", b"\\141")  # fmt: skip
ALPHABET = b'abAB1."{}\\,2 '


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(b'"item":"tea"', b'"item":"tea"'), (b"^user-", b"user-"), (b"user-\\d+x", b"user-"),
     (b"colou?r", b"colo"), (b"ab{2}cde", b"cde"), (b"a|bcd", None), (b"[abc]def", None),
     (b".*", None), (b"\\x41b", None), (b'{"id":7}', b'"id":7')],
)  # fmt: skip
def test_the_longest_text_is_taken(pattern: bytes, text: bytes | None) -> None:
    """Only required text counts; escapes, repetitions and choices do not."""
    found = text_in(re.compile(pattern))
    assert (found and found.pattern) == (text and re.escape(text))


def test_each_match_has_the_text_and_each_string_is_judged_by_the_expression() -> None:
    """Generated expressions on generated strings, even if a text spans two strings."""
    made = random.Random(5)
    prefiltered = 0
    for _ in range(3000):
        try:
            pattern = re.compile(b"".join(made.choices(ATOMS, k=made.randint(1, 4))))
        except re.error:
            continue
        strings = [bytes(made.choices(ALPHABET, k=made.randint(0, 6))) for _ in range(12)]
        sizes = np.array([-1 if made.random() < 0.1 else len(one) for one in strings])
        positions = np.cumsum([0, *map(len, strings[:-1])])
        arena = np.frombuffer(bytearray(b"".join(strings) + b"ab"), np.uint8)
        chosen = np.array([made.random() < 0.9 for _ in strings])
        wanted = [
            bool(was and size > 0 and pattern.search(one))
            for was, size, one in zip(chosen, sizes, strings, strict=True)
        ]
        keep_matching(arena, positions, sizes, pattern, chosen)
        assert chosen.tolist() == wanted, (pattern, strings)
        prefiltered += text_in(pattern) is not None
    assert prefiltered > 300
