"""Draws mutants of the library, and shows which of them the tests kill.

    python -m tests.mutants --count 40 --seed 12
    python -m tests.mutants --only 7 -- tests/kafkalog/node/state

First the tests run once in a copy of the checkout, with a probe before each statement that was
drawn, which notes the tests that reach it. Tests that fail then are left out. After that each
mutant is applied alone, in the copy, and those tests run, the quickest first, until one fails;
that one has to pass without the mutant.

A statement at module level runs on import: its mutants meet the tests that name the module or
mirror its directory. What a fixture of the session reaches counts for the first test with it.

Modules of kernels are left out, and so is what else they are built from: each mutant of those needs
them compiled again, 84 CPU seconds.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

from kafkalog.io.jit import library
from tests.checkout import ROOT

PACKAGES = ("formats", "kafkalog", "kafkalog_cli")
TESTS = ["-mnot kafka and not soak", "tests/docs", *(f"tests/{package}" for package in PACKAGES)]
HANG_SECONDS = 120
MEMORY_MAX = 8 << 30  # a mutant may have no end
OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
}  # fmt: skip
# It imports the functions, because tests replace those of `os`.
PROBE = """from os import O_APPEND, O_CREAT, O_WRONLY, close, environ, fsencode, open, write
seen = set()
def reached(number):
    test = environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("[")[0]
    if (number, test) not in seen:
        seen.add((number, test))
        file = open({path!r}, O_WRONLY | O_CREAT | O_APPEND)
        write(file, fsencode(f"{{number}}\\t{{test}}\\n"))
        close(file)
"""


@dataclass(frozen=True)
class Mutant:
    """A change of some bytes of a module; `probe` is where the line of its statement starts."""

    module: str
    start: int
    end: int
    after: str
    probe: int | None

    @property
    def source(self) -> bytes:
        return (ROOT / self.module).read_bytes()

    @property
    def changed(self) -> bytes:
        return self.source[: self.start] + self.after.encode() + self.source[self.end :]

    def __str__(self) -> str:
        number = self.source.count(b"\n", 0, self.start)
        line = self.source.decode().split("\n")[number].strip()
        before = " ".join(self.source[self.start : self.end].decode().split())
        return f"{self.module}:{number + 1}: {before} → {self.after or 'nothing'} in: {line}"

    def compiles(self) -> bool:
        with suppress(SyntaxError):
            return bool(compile(self.changed, self.module, "exec"))
        return False


class Finder:
    """Collects the mutants of a module."""

    def __init__(self, module: str, rng: random.Random) -> None:
        self.module, self.rng = module, rng
        self.source = (ROOT / module).read_bytes()
        self.lines = [0, *(one.end() for one in re.finditer(b"\n", self.source))]
        self.found: list[Mutant] = []
        self.visit(ast.parse(self.source), None, is_inside=False)

    def visit(self, node: ast.AST, probe: int | None, *, is_inside: bool) -> None:
        """Collect those of a node, except in f-strings, whose positions Python 3.11 gets wrong."""
        if isinstance(node, ast.JoinedStr | ast.Assert):
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if is_inside and isinstance(node, ast.stmt):
            line = self.lines[node.lineno - 1]
            if not self.source.startswith(b"elif", line + node.col_offset):
                probe = line
        changes = self.changes(node)
        self.found += [Mutant(self.module, *span, after, probe) for *span, after in changes]
        is_inside = is_inside or isinstance(node, ast.FunctionDef)
        for name, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST) and name not in ("annotation", "returns"):
                    self.visit(one, probe, is_inside=is_inside)

    def changes(self, node: ast.AST) -> list[tuple[int, int, str]]:
        match node:
            case ast.Return(value=ast.Constant(value=None | False)):
                return [(*self.span(node), "return True")]
            case ast.Return(value=ast.Constant(value=True)):
                return [(*self.span(node), "return False")]
            case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
                return [(*self.span(node), "pass")]
            case ast.Compare(left=first, ops=operators, comparators=others):
                return self.swaps(operators, [first, *others])
            case ast.BoolOp(op=operator, values=values):
                return self.swaps([operator] * len(values), values)
            case ast.BinOp(op=operator, left=left, right=right):
                return self.swaps([operator], [left, right])
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return [(*self.span(node), f"({value + self.rng.choice((-1, 1))})")]
            case ast.UnaryOp(op=ast.Not()):
                start = self.span(node)[0]
                return [(start, start + len("not "), "")]
        return []

    def swaps(self, operators: list[ast.AST], operands: list[ast.expr]) -> list:
        """Replace operators, except those beside a comment."""
        found = []
        for operator, (left, right) in zip(operators, pairwise(operands), strict=False):
            before, after = OPERATORS.get(type(operator), ("", ""))
            start, end = self.span(left)[1], self.span(right)[0]
            if before and self.source[start:end].strip(b" ()\n") == before.encode():
                start = self.source.index(before.encode(), start)
                found.append((start, start + len(before), after))
        return found

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self.lines[node.lineno - 1] + node.col_offset
        return start, self.lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def drawn(count: int, seed: int) -> dict[int, Mutant]:
    """Return mutants by number; all are equally likely."""
    kernels = {f"kafkalog/{name.replace('.', '/')}.py" for name in library.MODULES}
    names = {str(path.relative_to(ROOT)) for one in PACKAGES for path in (ROOT / one).rglob("*.py")}
    rng = random.Random(seed)
    modules = sorted(names - kernels - set(library._OTHER_SOURCES))
    mutants = [mutant for name in modules for mutant in Finder(name, rng).found]
    rng.shuffle(mutants)
    return dict(enumerate(islice(filter(Mutant.compiles, mutants), count), 1))


class Copy:
    """A copy of the checkout, in which mutants run."""

    def __init__(self, place: Path) -> None:
        self.place, self.path = place, place / "copy"
        left_out = shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", ".*_cache", "target", "build", "*.egg-info"
        )
        shutil.copytree(ROOT, self.path, ignore=left_out, symlinks=True)

    def write(self, module: str, source: bytes) -> None:
        """Write a module, and remove its bytecode, for which time and size may be equal."""
        path = self.path / module
        path.write_bytes(source)
        for one in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            one.unlink()

    def pytest(self, *arguments: str) -> str:
        """Run tests; return what pytest prints, and its status."""
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "--basetemp=../tmp"]
        command += [f"-ofaulthandler_timeout={HANG_SECONDS}", "-ofaulthandler_exit_on_timeout=true"]
        output = self.place / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                [*command, *arguments], cwd=self.path, stdout=file, stderr=file,
                env={**os.environ, "PYTHONPATH": str(self.path)}, start_new_session=True,
            )  # fmt: skip
            status = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what the tests have started
        return f"{output.read_text(errors='replace')}\nstatus {status}"

    def reached(self, mutants: dict[int, Mutant], tests: list[str]) -> dict[int, list[str]]:
        """Return the tests that reach each mutant, the quickest first."""
        log, results = self.place / "reached", self.place / "results.xml"
        log.touch()
        (self.path / "mutants_probe.py").write_text(PROBE.format(path=str(log)))
        for _, number in sorted(((one.probe or 0, n) for n, one in mutants.items()), reverse=True):
            place, path = mutants[number].probe, self.path / mutants[number].module
            if place is not None:
                source = path.read_bytes()
                indent = source[place : len(source) - len(source[place:].lstrip())]
                probe = f"from mutants_probe import reached; reached({number})\n".encode()
                path.write_bytes(source[:place] + indent + probe + source[place:])
        print(self.pytest(*tests, f"--junit-xml={results}"), flush=True)
        seconds = passed(results)
        found = {
            number: {test for test in seconds if mutant.probe is None and names(test, mutant)}
            for number, mutant in mutants.items()
        }
        for line in log.read_text(errors="replace").splitlines():
            number, _, test = line.partition("\t")
            found[int(number)] |= seconds.keys() & {test}
        for mutant in mutants.values():
            self.write(mutant.module, mutant.source)
        return {number: sorted(tests, key=seconds.__getitem__) for number, tests in found.items()}

    def fate(self, mutant: Mutant, tests: list[str]) -> str:
        """Return what kills a mutant, or that it survives."""
        if not tests:
            return "SURVIVED: no test reaches it"
        self.write(mutant.module, mutant.changed)
        (self.path / "tests.txt").write_text("\n".join(tests))
        output = self.pytest("-x", "@tests.txt")
        self.write(mutant.module, mutant.source)
        if output.endswith("\nstatus 0"):
            return f"SURVIVED: {len(tests)} tests pass"
        killer = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        sound = self.pytest("@tests.txt" if killer is None else killer[1].partition("[")[0])
        if not sound.endswith("\nstatus 0"):
            return f"UNCLEAR: the tests fail without it, too\n{sound}"
        return f"killed by {killer[1] if killer else output[-900:]}"


def passed(results: Path) -> dict[str, float]:
    """Return the seconds of each test function of which no case failed."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(results).iter("testcase"):  # noqa: S314 # pytest wrote it
        file = case.get("classname", "").replace(".", "/")
        test = f"{file}.py::{case.get('name')}".partition("[")[0]
        has_failed = {one.tag for one in case} & {"failure", "error"}
        seconds[test] += float("inf") if has_failed else float(case.get("time", 0))
    return {test: spent for test, spent in seconds.items() if spent < float("inf")}


def names(test: str, mutant: Mutant) -> bool:
    """Return whether the file of a test names the module, or mirrors its directory."""
    file = test.partition("::")[0]
    room, _, name = mutant.module.removesuffix(".py").rpartition("/")
    package = room.replace("/", ".")
    is_named = rf"\b{package}\.{name}\b|\b{package} import .*\b{name}\b"
    return ("/" in room and f"/{room}/" in file) or bool(
        re.search(is_named, (ROOT / file).read_text())
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--list", action="store_true", help="draw only")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants")
    parser.add_argument("tests", nargs="*", default=TESTS, help="what pytest gets, after --")
    chosen = parser.parse_args()
    mutants = drawn(chosen.count, chosen.seed)
    if chosen.only:
        mutants = {number: mutants[number] for number in chosen.only}
    if chosen.list:
        print("\n".join(f"{number:3} {mutant}" for number, mutant in mutants.items()))
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    killed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copy = Copy(Path(place))
        reached = copy.reached(mutants, chosen.tests)
        for number, mutant in mutants.items():
            started = time.monotonic()
            fate = copy.fate(mutant, reached[number])
            killed += fate.startswith("killed")
            seconds = time.monotonic() - started
            print(f"{number:3} {mutant}\n    {fate}, {seconds:.0f} s", flush=True)
    print(f"{killed} of {len(mutants)} mutants killed")


if __name__ == "__main__":
    main()
