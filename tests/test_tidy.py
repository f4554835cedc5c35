"""The parts of the house style that no linter checks: sizes, names and first lines of modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.checkout import ROOT
from tests.statements import statements

PACKAGES = ("formats", "kafkalog", "kafkalog_cli")
MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 75
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}

# What may be longer, and why.
LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {
    "kafkalog/log/text/object_kernels.py:format_records": "calls in its loop cost speed",
    "kafkalog_cli/commands/compact.py:compact": "its signature is the list of options",
    "kafkalog_cli/commands/replay.py:replay": "mostly its options",
    "kafkalog_cli/commands/resurrect.py:resurrect": "mostly its options",
    "kafkalog_cli/commands/export.py:export": "its signature is the list of options",
    "kafkalog_cli/commands/find.py:find": "its signature is the list of options",
    "kafkalog_cli/commands/lookup_offset.py:lookup_offset": "its signature is the list of options",
    "kafkalog_cli/commands/metadata.py:metadata": "its signature is the list of options",
    "kafkalog_cli/commands/recover.py:recover": "its signature is the list of options",
    "kafkalog_cli/commands/serve.py:serve": "its signature is the list of options",
    "kafkalog_cli/commands/verify.py:verify": "its signature is the list of options",
}

SOURCES = sorted(
    str(path.relative_to(ROOT))
    for package in (*PACKAGES, "delivery", "docgen", "examples", "benchmarks", "tests")
    for path in (ROOT / package).rglob("*.py")
    if "target" not in path.parts
)
THOROUGH = re.compile(r'^@pytest\.mark\.thorough\("([^"]+)::(\w+)"\)$', re.MULTILINE)
# What is left to do belongs into an issue, not into the code.
WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def test_modules_are_tidy() -> None:
    """Short enough to read, described in the first line, with a meaningful name."""
    for name in SOURCES:
        text = (ROOT / name).read_text()
        assert Path(name).stem not in FORBIDDEN_NAMES, name
        assert name in LONG_MODULES or len(text.splitlines()) <= MODULE_LINES_MAX, name
        assert text.startswith(('"""', 'r"""')), f"{name}: the first line says what the module is"
        if name != "tests/test_tidy.py":
            assert not WORDS.search(text), name


def test_functions_are_short() -> None:
    """A function fits on a screen."""
    for name in (name for name in SOURCES if name.startswith(PACKAGES)):
        for function in functions(name):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            place = f"{name}:{function.name}"
            assert length <= FUNCTION_LINES_MAX or place in LONG_FUNCTIONS, place


def functions(name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in statements(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_exceptions_are_needed() -> None:
    """An exception that is no longer needed is removed from the list."""
    for name in LONG_MODULES:
        assert len((ROOT / name).read_text().splitlines()) > MODULE_LINES_MAX, name
    for place in LONG_FUNCTIONS:
        name, _, wanted = place.partition(":")
        [function] = [found for found in functions(name) if found.name == wanted]
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length > FUNCTION_LINES_MAX, place


def test_what_is_left_out_names_what_stands_for_it() -> None:
    """A `thorough` test names one that `make test` runs."""
    left_out: list[tuple[str, str]] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        left_out += THOROUGH.findall(path.read_text())
    assert len(left_out) > 20
    for name, test in left_out:
        before, _, _ = (ROOT / name).read_text().partition(f"def {test}(")
        marks = before.rpartition("\n\n\n")[2]
        assert (ROOT / name).read_text() != before, (name, test)
        assert "mark.thorough" not in marks, (name, test)


# What may catch any of our errors: it raises it later, or answers a client with it.
CATCH_ALL = {
    "kafkalog/log/columns/walk.py": "keeps it for the one who takes what was read before it",
    "kafkalog/wire/server/committed.py": "a server goes on",
    "kafkalog/wire/server/fetch.py": "a server goes on",
    "kafkalog/wire/server/offsets.py": "a server goes on",
    "kafkalog/wire/server/run.py": "a server goes on",
    "kafkalog/wire/server/transactions.py": "a server goes on",
}


def test_no_reader_passes_over_what_says_nothing_about_the_data() -> None:
    """A busy store and a lack of memory are no damage: who goes on catches `DataError`.

    Who catches more raises it again at the end, or lets `ShortageError` pass first.
    """
    used = set()
    for name in (name for name in SOURCES if name.startswith(PACKAGES)):
        text = (ROOT / name).read_text()
        if "except" not in text and "suppress(" not in text:
            continue
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.With):
                for item in node.items:
                    assert "suppress(KafkaLogError" not in ast.unparse(item), name
            if not isinstance(node, ast.Try) or name.startswith("kafkalog_cli/"):
                continue
            lets_pass = False
            for handler in node.handlers:
                caught = ast.unparse(handler.type) if handler.type else ""
                raises = isinstance(handler.body[-1], ast.Raise)
                lets_pass |= raises and re.search("ShortageError|RunError", caught) is not None
                if "KafkaLogError" in caught and not (raises or lets_pass):
                    assert name in CATCH_ALL, f"{name}:{handler.lineno}"
                    used.add(name)
                # An internal error would be made of it.
                others = [ast.unparse(one.type) for one in node.handlers if one.type]
                if caught == "Exception" and "DataError" in others and not raises:
                    assert lets_pass, f"{name}:{handler.lineno}"
    assert used == set(CATCH_ALL)
