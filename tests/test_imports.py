"""No module imports itself through others, even by imports within functions."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.statements import statements

ROOT = Path(__file__).parents[1]
PACKAGES = ("formats", "kafkalog", "kafkalog_cli")


def imports() -> dict[str, set[str]]:
    """Return what each module imports when it runs, at its beginning or later."""
    modules = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    found: dict[str, set[str]] = {}
    for name, tree in modules.items():
        for_types = {
            id(part)
            for node in statements(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for part in statements(node)
        }
        wanted: set[str] = set()
        for node in statements(tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and id(node) not in for_types:
                paths = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {path if path in modules else str(node.module) for path in paths}
        found[name] = wanted & set(modules) - {name}
    return found


def test_there_is_no_circle() -> None:
    """A reader cannot start anywhere in a circle."""
    graph = imports()
    assert len(graph) > 200
    assert graph["kafkalog.node.reader"] > {"kafkalog.log.batches.selection"}
    assert list(TopologicalSorter(graph).static_order())
