"""The statements of a module's source: a tenth of what `ast.walk` visits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

_HOLDERS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node, and the statements below it."""
    yield node
    for name in _HOLDERS:
        held = getattr(node, name, ())
        for one in held if isinstance(held, list) else ():
            yield from statements(one)
