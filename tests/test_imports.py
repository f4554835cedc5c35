"""No module imports itself through others, even by imports within functions."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter

from tests.checkout import ROOT
from tests.statements import statements

PACKAGES = ("formats", "kafkalog", "kafkalog_cli")
OPENING = {"open_path", "open_one", "open_any", "open_targets", "look_at", "look_at_targets"}
OPENERS = {
    "the PATHs of a run of the command line": """
        kafkalog_cli.commands.salvage kafkalog_cli.commands.sql kafkalog_cli.outcome
        kafkalog_cli.output.kafka_dump kafkalog_cli.schemas""",
    "the PATHs of a run of the library, unless they are open": """
        kafkalog.answers.anatomy.dissect kafkalog.answers.disk_usage.run kafkalog.answers.logs
        kafkalog.answers.overview.gathering kafkalog.answers.search.run
        kafkalog.answers.verification kafkalog.change.audit.run kafkalog.change.rescue
        kafkalog.change.resurrection.home kafkalog.change.resurrection.sources
        kafkalog.change.retention.simulation kafkalog.check.comparison.run kafkalog.check.verify
        kafkalog.node.quorum.quorum kafkalog.node.reader kafkalog.node.state.groups
        kafkalog.node.state.metadata kafkalog.node.state.transactions kafkalog.node.targets
        kafkalog.tables.datasets.state_tables kafkalog.tables.planning kafkalog.wire.producing
        kafkalog.wire.server.catalog""",
    "other places than the PATHs: tiers, a registry": """
        kafkalog.node.remote_logs kafkalog.tables.schema_registry""",
    "again: behind a lock, after a write or a change": """
        kafkalog.change.compaction.log_dirs kafkalog.change.journal.run
        kafkalog.change.journal.runs kafkalog.change.repair.run kafkalog.change.rescue.run
        kafkalog.change.resurrection.in_place kafkalog.change.resurrection.quorum
        kafkalog.check.moments
        kafkalog.wire.server.group_apis kafkalog.wire.server.transactions""",
    "what is around a file or a partition, or who hosts it": """
        kafkalog.check.identity kafkalog.log.batches.selection""",
}
"""Which modules may open something, and what."""


@cache
def imports_of_modules() -> dict[str, list[tuple[ast.Import | ast.ImportFrom, bool]]]:
    """Return the imports of each module, and whether each is for types only.

    Their trees are not kept: the garbage collector would walk over them again and again.
    """
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            nodes = list(statements(ast.parse(path.read_text())))
            for_types = {
                id(part)
                for node in nodes
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                for part in statements(node)
            }
            found[name.removesuffix(".__init__")] = [
                (node, id(node) in for_types)
                for node in nodes
                if isinstance(node, ast.Import | ast.ImportFrom)
            ]
    return found


def imports() -> dict[str, set[str]]:
    """Return what each module imports when it runs, at its beginning or later."""
    found: dict[str, set[str]] = {}
    modules = imports_of_modules()
    for name, nodes in modules.items():
        wanted: set[str] = set()
        for node, is_for_types in nodes:
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif not is_for_types:
                paths = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {path if path in modules else str(node.module) for path in paths}
        found[name] = wanted & set(modules) - {name}
    return found


def test_what_is_open_is_passed_on() -> None:
    """A room that opens a path again sees another moment than the room before it."""
    openers = set()
    for name, nodes in imports_of_modules().items():
        for node, _ in nodes:
            if isinstance(node, ast.ImportFrom) and OPENING & {one.name for one in node.names}:
                openers.add(name)
    assert openers == {name for names in OPENERS.values() for name in names.split()}


def test_there_is_no_circle() -> None:
    """A reader cannot start anywhere in a circle."""
    graph = imports()
    assert len(graph) > 200
    assert graph["kafkalog.node.reader"] > {"kafkalog.log.batches.selection"}
    assert list(TopologicalSorter(graph).static_order())
