"""`docs/configs.md`: the configs that `--config` and `--properties` understand."""

from __future__ import annotations

from formats.constants import INT64_MAX
from kafkalog.node.configs.definitions import DEFINITIONS, Definition

_TABLE_HEAD = """| config | default | values | in a broker's properties |
|---|---|---|---|
"""


def config_table() -> str:
    """Write a row per config."""
    rows = "".join(_row(definition) for definition in DEFINITIONS.values())
    return _TABLE_HEAD + rows


def _row(one: Definition) -> str:
    names = ", ".join(f"`{synonym.name}`" for synonym in one.synonyms)
    default = ",".join(one.default) if isinstance(one.default, tuple) else str(one.default)
    default = {str(INT64_MAX): "2^63 - 1", "True": "true", "False": "false"}.get(default, default)
    shown = f"`{default}`" if default else "empty"
    return f"| `{one.name}` | {shown} | {_values(one)} | {names or _home(one)} |\n"


def _home(one: Definition) -> str:
    return "this name" if one.is_of_broker else ""


def _values(one: Definition) -> str:
    if one.choices:
        return f"{one.kind}: {', '.join(f'`{word}`' for word in one.choices)}"
    bounds = []
    if one.low is not None:
        bounds.append(f"from {one.low}")
    if one.high is not None:
        bounds.append(f"to {one.high}")
    return f"{one.kind} {' '.join(bounds)}".strip()
