"""Avro's resolution: values that one schema wrote become those of another one, as Java does it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafkalog.log.typed.avro_defaults import Defaults
from kafkalog.log.typed.avro_types import Shape, branch_names, conversion, is_struct
from kafkalog.log.typed.avro_values import (
    PRIMITIVE_READERS,
    Cursor,
    Skips,
    index,
    read_blocks,
    read_text,
)
from kafkalog.log.typed.cells import COUNTER, cells_of_items, cells_of_text
from kafkalog.log.typed.lake_types import PRESENT, json_text
from kafkalog.log.typed.reasons import step
from kafkalog.log.typed.remarks import LOST_DIGITS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from kafkalog.log.typed.avro_schema import Field, Node
    from kafkalog.log.typed.avro_values import Reader

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_PARTS_MAX: Final = 100_000
_FLOAT: Final = struct.Struct("<f")


class Names:
    """The names that the types and fields of a writer have by the aliases of a reader."""

    def __init__(self, reader: Node | None) -> None:
        self._types: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        seen: set[int] = set()
        rest = [] if reader is None else [reader]
        while rest:
            node = rest.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            self._types.update(dict.fromkeys(node.aliases, node.name))
            for one in node.fields:
                for alias in one.aliases:
                    self._fields.setdefault(node.name, {})[alias] = one.name
            rest += [*node.parts, *(one.type for one in node.fields)]

    def full(self, writer: Node) -> str:
        return self._types.get(writer.name, writer.name)

    def short(self, writer: Node) -> str:
        return self.full(writer).rpartition(".")[2]

    def fields(self, writer: Node) -> list[tuple[str, Node]]:
        """Return the names and types of a record's fields."""
        aliases = self._fields.get(self.full(writer), {})
        return [(aliases.get(one.name, one.name), one.type) for one in writer.fields]


class Resolution:
    """Reads values of a writer as a reader has them.

    Args:
        reader: its schema.
        shape: what the column has for it.
        losses: notes what loses digits.
        has_aliases: whether the reader's aliases count; not for values that it wrote itself.
        has_conflicts: whether the shape has places for values that do not fit, which JSON always
            has; else they are refused.
    """

    def __init__(
        self,
        reader: Node,
        shape: Shape,
        losses: Counter[str],
        *,
        has_aliases: bool,
        has_conflicts: bool = False,
    ) -> None:
        self.names = Names(reader if has_aliases else None)
        self.plain = Resolution(reader, shape, losses, has_aliases=False) if has_aliases else self
        self._has_conflicts = has_conflicts
        self._strict = (
            Resolution(reader, shape, losses, has_aliases=has_aliases) if has_conflicts else self
        )
        self._defaults = Defaults()
        self.root = (reader, shape)
        self.losses = losses
        self._made: dict[tuple[int, int, int], Reader] = {}
        self._fits: dict[tuple[int, int], bool] = {}
        self._kept: list[Node] = []  # writers, whose ids `_made` has
        self.skips = Skips()

    def of(self, writer: Node) -> Reader:
        """Return what reads values of a writer.

        Raises:
            ValueError: the two schemas together are too large.
        """
        self._kept.append(writer)
        return self.read(writer, *self.root)

    def read(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        """Return what reads a part, as a column of the shape has it, or for JSON without one."""
        key = (id(writer), id(reader), id(shape))
        made = self._made
        if key not in made:
            if len(made) > _PARTS_MAX:
                raise ValueError("the two schemas are too large to be resolved")
            made[key] = lambda cursor: made[key](cursor)  # noqa: PLW0108 # not made yet
            made[key] = self._made_for(writer, reader, shape)
        return made[key]

    def _made_for(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        if shape is not None and shape.main is not None:
            return self._one_of(writer, reader, shape)
        if shape is not None and shape.is_json:
            plain = self.read(writer, reader, None)
            return lambda cursor: json_text(plain(cursor))
        if reader.logical and reader.kind == "record":
            if self._strict is not self:  # its fields are parts of one value
                return self._strict.read(writer, reader, None)
            shape = None
        if writer.kind == "union":
            return self._union(writer, reader, shape)
        if reader.kind == "union":
            found = self.branch(writer, reader)
            if found is None:
                return self._misfit(writer, reader, shape)
            return self._as_branch(writer, reader, found, shape)
        if not self.fits_at(writer, reader):
            return self._misfit(writer, reader, shape)
        if writer.kind in ("record", "array", "map"):
            return {"record": self._record, "array": self._array, "map": self._map}[writer.kind](
                writer, reader, shape
            )
        read = self._scalar(writer, reader)
        convert = conversion(writer, reader, self.losses, is_json=shape is None)
        return read if convert is None else lambda cursor: convert(read(cursor))

    def _scalar(self, writer: Node, reader: Node) -> Reader:
        if writer.kind == "enum":
            symbols = [one if one in reader.symbols else reader.default for one in writer.symbols]

            def symbol(cursor: Cursor) -> str:
                number = index(cursor, len(symbols))
                found = symbols[number]
                if found is None:
                    raise ValueError(f"{writer.symbols[number]!r:.40} is no symbol of the column")
                return COUNTER.add_text(found)

            return symbol
        if writer.kind == "fixed":
            size = writer.size
            return lambda cursor: cursor.take(size)
        read = PRIMITIVE_READERS[writer.kind]
        if writer.kind == reader.kind:
            return read
        if reader.kind == "float":
            return self._nearest(read, _single)
        if reader.kind == "double" and writer.kind != "float":
            return self._nearest(read, float)
        # Text and bytes have one encoding; so have the numbers, of which the writer's are shorter.
        return PRIMITIVE_READERS[reader.kind] if writer.kind in ("bytes", "string") else read

    def _nearest(self, read: Reader, convert: Callable[[int], float]) -> Reader:
        """Return what reads integers as floating-point numbers, which may have fewer digits."""
        losses = self.losses

        def nearest(cursor: Cursor) -> float:
            number = read(cursor)
            found = convert(number)
            if found != number:
                losses[LOST_DIGITS] += 1
            return found

        return nearest

    def _record(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        places = {one.name: i for i, one in enumerate(reader.fields)}
        written = self.names.fields(writer)
        names = shape.names if shape else [one.name for one in reader.fields]
        parts = shape.parts if shape else [None] * len(names)
        if len({name for name, _ in written}) < len(written):
            raise ValueError("two fields have one name by the aliases of the column")
        steps: list[tuple[str, Reader]] = []
        for name, node in written:
            place = places.get(name)
            if place is None:
                steps.append(("", self.skips.of(node)))
            elif shape is not None and parts[place] is None:
                steps.append((names[place], self.nothing(node, reader.fields[place].type)))
            else:
                read = self.read(node, reader.fields[place].type, parts[place])
                steps.append((names[place], read))
        known = {name for name, _ in written}
        missing = [
            (names[i], self.default(one, parts[i]))
            for i, one in enumerate(reader.fields)
            if one.name not in known and names[i]
        ]
        is_empty = shape is not None and not any(names)
        # JSON has the fields in the order of the schema.
        order = dict.fromkeys(names) if shape is None else {}
        kinds = {name: part.type for name, part in zip(names, parts, strict=True) if part}
        width = sum(1 + cells_of_text(len(name)) for name in order)

        def record(cursor: Cursor) -> dict[str, Any]:
            if width:
                COUNTER.add(1, width)
            found: dict[str, Any] = order.copy()
            name = ""
            try:
                for name, read in steps:
                    if name:
                        found[name] = read(cursor)
                    else:
                        read(cursor)
                for name, read in missing:
                    found[name] = read(cursor)
            except ValueError as error:
                error.add_note(step(name, kinds.get(name)))
                raise
            if is_empty:
                found[PRESENT] = True
            return found

        if not reader.logical:
            return record
        convert = conversion(writer, reader, self.losses, is_json=shape is None)
        return record if convert is None else lambda cursor: convert(record(cursor))

    def nothing(self, writer: Node, reader: Node) -> Reader:
        """Return what reads a part that the column lacks, as it can only be null there."""
        return self._strict.read(writer, reader, None)

    def _array(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        item = self.read(writer.parts[0], reader.parts[0], shape and shape.parts[0])
        width = cells_of_items(shape.type) if shape else 1

        def array(cursor: Cursor) -> list[Any]:
            found: list[Any] = []
            read_blocks(cursor, item, found.append, width)
            return found

        return array

    def _map(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        value = self.read(writer.parts[0], reader.parts[0], shape and shape.parts[0])
        is_json = shape is None
        width = cells_of_items(shape.type) if shape else 2

        def entry(cursor: Cursor) -> tuple[str, Any]:
            return read_text(cursor), value(cursor)

        def entries(cursor: Cursor) -> Any:
            pairs: list[tuple[str, Any]] = []
            read_blocks(cursor, entry, pairs.append, width)
            found = dict(pairs)  # the last one of equal keys
            return found if is_json else list(found.items())

        return entries

    def _union(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        is_same = reader.kind == "union" and self.is_same(writer, reader)
        branches = [
            self._as_branch(one, reader, i, shape) if is_same else self.read(one, reader, shape)
            for i, one in enumerate(writer.parts)
        ]
        count = len(branches)
        return lambda cursor: branches[index(cursor, count)](cursor)

    def _as_branch(self, writer: Node, reader: Node, place: int, shape: Shape | None) -> Reader:
        """Return what reads a value as a branch of the reader's union."""
        part = reader.parts[place]
        if part.kind == "null":
            return PRIMITIVE_READERS["null"]
        below = shape and shape.parts[place]
        read = self.read(writer, part, below)
        if not is_struct(reader):
            return read
        if shape is None:
            branch = branch_names(reader)[place]
            return lambda cursor: {COUNTER.add_text(branch): read(cursor)}
        name = shape.names[place]
        return lambda cursor: {name: read(cursor)}

    # Which types fit, as in `org.apache.avro.Resolver` ------------------------------------------

    def fits_at(self, writer: Node, reader: Node) -> bool:
        """Return whether a value can be resolved, whatever there is below its fields or items."""
        if writer.kind == "union":
            return True
        if reader.kind == "union":
            return self.branch(writer, reader) is not None
        if writer.kind != reader.kind:
            return reader.kind in _PROMOTIONS.get(writer.kind, ())
        if writer.kind == "enum":
            return self.names.short(writer) == reader.short
        if writer.kind == "fixed":
            return self.names.short(writer) == reader.short and writer.size == reader.size
        if writer.kind == "record":
            names = {name for name, _ in self.names.fields(writer)}
            return all(one.has_default or one.name in names for one in reader.fields)
        return True

    def branch(self, writer: Node, reader: Node) -> int | None:
        """Return the branch of the reader's union that takes the writer's values."""
        alike: int | None = None
        for i, one in enumerate(reader.parts):
            if one.kind != writer.kind:
                continue
            if not one.name or self.names.full(writer) == one.name:
                return i
            if (
                one.kind == "record"
                and (alike is None or self.names.short(writer) == one.short)
                and self._is_alike(writer, one)
            ):
                alike = i
        if alike is not None:
            return alike
        wider = _PROMOTIONS.get(writer.kind, ())
        return next((i for i, one in enumerate(reader.parts) if one.kind in wider), None)

    def _one_of(self, writer: Node, reader: Node, shape: Shape) -> Reader:
        """Return what reads a value as the column has it or, if it does not fit, as its own."""
        if writer.kind == "union" and any(id(one) in shape.others for one in writer.parts):
            branches = [self._one_of(one, reader, shape) for one in writer.parts]
            count = len(branches)
            return lambda cursor: branches[index(cursor, count)](cursor)
        main = self.read(writer, reader, shape.main)
        if id(writer) not in shape.others:
            return lambda cursor: {"": main(cursor)}
        name, own = shape.others[id(writer)]
        read = self.plain.read(writer, writer, own)
        losses = self.losses

        def one_of(cursor: Cursor) -> dict[str, Any]:
            at, before = cursor.at, losses[LOST_DIGITS]
            try:
                return {"": main(cursor)}
            except MisfitError:
                cursor.at, losses[LOST_DIGITS] = at, before
                return {name: read(cursor)}

        return one_of

    def _misfit(self, writer: Node, reader: Node, shape: Shape | None) -> Reader:
        if self._has_conflicts and (shape is None or writer.kind == "null"):
            return self.plain.read(writer, writer, None)
        if writer.kind != "record" or reader.kind != "record":
            return _refusal(f"{_named(writer)} is not {_named(reader)}, which the column has")
        known = {name for name, _ in self.names.fields(writer)}
        lost = [one.name for one in reader.fields if one.name not in known and not one.has_default]
        return _refusal(f"{writer.short} lacks {', '.join(lost):.80}, which has no default")

    def _is_alike(self, writer: Node, reader: Node) -> bool:
        """Return whether all fields of a record of another name fit."""
        key = (id(writer), id(reader))
        if key not in self._fits:
            self._fits[key] = True  # for a record within itself
            fields = {one.name: one.type for one in reader.fields}
            self._fits[key] = self.fits_at(writer, reader) and all(
                self.fits_at(node, fields[name])
                for name, node in self.names.fields(writer)
                if name in fields
            )
        return self._fits[key]

    def is_same(
        self, writer: Node, reader: Node, above: set[tuple[int, int]] | None = None
    ) -> bool:
        """Return whether two unions have the same branches in the same order."""
        above = set() if above is None else above
        if (id(writer), id(reader)) in above:
            return True
        above.add((id(writer), id(reader)))
        if writer.kind != reader.kind:
            return False
        if writer.name and self.names.short(writer) != reader.short:
            return False
        if writer.kind == "enum":
            return writer.symbols == reader.symbols
        if writer.kind == "record":
            fields = self.names.fields(writer)
            return [name for name, _ in fields] == [one.name for one in reader.fields] and all(
                self.is_same(node, one.type, above)
                for (_, node), one in zip(fields, reader.fields, strict=True)
            )
        return (
            writer.size == reader.size
            and len(writer.parts) == len(reader.parts)
            and all(map(self.is_same, writer.parts, reader.parts, [above] * len(writer.parts)))
        )

    # Defaults ------------------------------------------------------------------------------------

    def default(self, field: Field, shape: Shape | None) -> Reader:
        """Return what gives the default of a field, by way of the bytes that it would be."""
        try:
            data = self._defaults.encoded(field)
        except ValueError as error:
            return _refusal(f"the default of {field.name!r:.40} is wrong: {error}")
        read = self.plain.read(field.type, field.type, shape)
        cells = cells_of_text(len(data))

        def default(_: Cursor) -> Any:
            COUNTER.add(1, cells)
            return read(Cursor(data))

        return default


def _named(node: Node) -> str:
    return " or ".join(map(_named, node.parts)) if node.kind == "union" else node.name or node.kind


class MisfitError(ValueError):
    """A value that cannot be resolved to the column's schema."""


def _refusal(reason: str) -> Reader:
    def refuse(_: Cursor) -> Any:
        raise MisfitError(reason)

    return refuse


def _single(number: int) -> Any:
    """Return the float32 that is nearest to an integer of 64 bits.

    By way of a double it would be rounded twice: its last 20 bits become one that says whether
    there are any.
    """
    if abs(number) >> 53:
        rest = number & 0xFFFFF
        number = (number - rest) | (0x80000 if rest else 0)
    return _FLOAT.unpack(_FLOAT.pack(number))[0]
