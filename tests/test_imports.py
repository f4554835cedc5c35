"""No module of the packages imports itself by way of others, imports within functions included."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("formats", "kafkalog", "kafkalog_cli")

READING_AND_STARTING = frozenset(
    {
        "kafkalog.batches.reader",
        "kafkalog.cluster_image",
        "kafkalog.columns.pipeline",
        "kafkalog.columns.scan_steps",
        "kafkalog.columns.to_objects",
        "kafkalog.configs",
        "kafkalog.configs.cluster_metadata",
        "kafkalog.configs.sources",
        "kafkalog.recovery",
        "kafkalog.recovery.log_dir_start",
        "kafkalog.unified_log",
        "kafkalog.view",
    }
)
"""The one circle left: what a start would make of a log decides what readers show of an unclean
directory, the configs of that start are read from `__cluster_metadata`, and that is a log."""


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
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for part in ast.walk(node)
        }
        wanted: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and id(node) not in for_types:
                paths = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {path if path in modules else str(node.module) for path in paths}
        found[name] = wanted & set(modules) - {name}
    return found


def test_there_is_one_circle_and_no_other() -> None:
    """A circle is where nobody can begin to read. This one may become smaller, never larger."""
    graph = imports()
    assert len(graph) > 200
    inside = {
        name: [
            one
            for one in wanted
            if one not in READING_AND_STARTING or name not in READING_AND_STARTING
        ]
        for name, wanted in graph.items()
    }
    assert list(TopologicalSorter(inside).static_order())
    try:
        TopologicalSorter({name: graph[name] for name in READING_AND_STARTING}).prepare()
    except CycleError:
        return
    raise AssertionError("the circle is gone: remove READING_AND_STARTING")
