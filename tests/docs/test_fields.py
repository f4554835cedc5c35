"""`docs/output.md` explains every field of every object, on the spot or in the object it names."""

from __future__ import annotations

import re

import pytest

from docgen.output import OBJECT_TYPES
from docgen.pages import DOCS

SECTION = re.compile(r"^## `(\w+)`\n(.*?)(?=^## |\Z|^<!-- end)", re.MULTILINE | re.DOTALL)
OWN = re.compile(r"^- (`\w+`(?:, `\w+`)*) ([a-z, ]+\??)(?:: (.+))?$", re.MULTILINE)
SHARED = re.compile(r"^- \[`(\w+)`\]\(#\1\): ((?:`\w+`(?:, )?)+)$", re.MULTILINE)
EXTENDED = re.compile(r"^- all of \[`(\w+)`\]\(#\1\)(?: but ((?:`\w+`(?:, )?)+))?$", re.MULTILINE)
SECTIONS = dict(SECTION.findall((DOCS / "output.md").read_text()))


def names_in(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def lines_of(text: str) -> list[tuple[str, str, str]]:
    """Return each field that a section explains; neighbours may share a line."""
    return [(one, *said) for names, *said in OWN.findall(text) for one in names_in(names)]


def fields_of(name: str) -> dict[str, tuple[str, str]]:
    """Return type and meaning of the fields of an object, as a reader finds them on the page."""
    text = SECTIONS[name]
    found = {}
    for base, lacking in EXTENDED.findall(text):
        without = names_in(lacking)
        found |= {one: said for one, said in fields_of(base).items() if one not in without}
    for owner, names in SHARED.findall(text):
        own = {one: (kind, meaning) for one, kind, meaning in lines_of(SECTIONS[owner])}
        found |= {one: own[one] for one in names_in(names)}
    for one, kind, meaning in lines_of(text):
        assert one not in found, f"{name}.{one} is explained twice"
        found[one] = (kind, meaning)
    return found


@pytest.mark.parametrize("name", OBJECT_TYPES)
def test_every_field_is_explained(name: str) -> None:
    """A reader who follows the links of a section finds each field of its declaration, no other."""
    declared = {
        one.name: (re.sub(r" or null$", "?", one.kind.name), one.meaning)
        for one in OBJECT_TYPES[name].fields.values()
    }
    assert fields_of(name) == declared


def test_nothing_is_explained_twice() -> None:
    """A field with the same type and meaning in two objects has one line, unless it is short."""
    all_lines = [line for text in SECTIONS.values() for line in lines_of(text)]
    lines = [line for line in all_lines if len(line[2].split()) > 2]
    assert len(all_lines) > 500
    assert len(set(lines)) == len(lines)


def test_objects_extend_others() -> None:
    """`find` prints records, and says so."""
    assert EXTENDED.findall(SECTIONS["found"]) == [("record", "`decoded`")]
    assert set(SECTIONS) == set(OBJECT_TYPES)
