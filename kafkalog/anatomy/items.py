"""From a trace to fields with meanings, and the structures that they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.anatomy.meanings import value_of, varint_details

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from formats.trace import Path, TracedField
    from kafkalog.anatomy.model import Bytes, Field, Item


class Said(NamedTuple):
    """What is said of a field."""

    meaning: str = ""
    damage: str | None = None
    details: tuple[str, ...] = ()


def dotted(path: Path) -> str:
    """Return names and ordinals as text: `headers[0].key`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def items_of(
    space: Bytes,
    fields: Sequence[TracedField],
    prefix: str,
    describe: Callable[[TracedField], Said],
    structure: Callable[[Path], str] = lambda _: "",
) -> Iterator[Item]:
    """Yield traced fields, and before its first field each element of an array.

    Args:
        space: where the fields lie.
        fields: the fields of a trace.
        prefix: precedes their names, with its dot.
        describe: says what a field means.
        structure: says what an element is.
    """
    seen: set[Path] = set()
    for i, one in enumerate(fields):
        for size in range(1, len(one.path)):
            element = one.path[:size]
            if isinstance(element[-1], int) and element not in seen:
                seen.add(element)
                end = one.end
                for other in fields[i + 1 :]:
                    if other.path[:size] != element:
                        break
                    end = other.end
                name = prefix + dotted(element)
                yield space.structure(name, one.position, end, structure(element))
        yield item_of(space, one, prefix, describe(one))


def item_of(space: Bytes, field: TracedField, prefix: str, said: Said) -> Field:
    """Return a traced field with what is said of it."""
    raw = space.source.read(field.position, min(field.length, 16))
    return space.field(
        prefix + dotted(field.path),
        field.position,
        field.end,
        value_of(field),
        said.meaning,
        details=said.details or varint_details(field, raw),
        damage=said.damage,
    )
