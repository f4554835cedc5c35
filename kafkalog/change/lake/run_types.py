"""The types of a run's typed columns: what its data has, and what the table has already.

A table with one type has the fields of that at the top of `value_decoded`; one with several types
has a struct for each of them there, and gets another with each new type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.change.lake.evolution import delta_named
from kafkalog.change.lake.of_type import RecordsOfType, columns_of
from kafkalog.change.lake.options import options_of
from kafkalog.errors import DestinationExistsError, UsageError
from kafkalog.log.typed import TypedForm
from kafkalog.log.typed.evolution import column_field
from kafkalog.log.typed.lake_types import NAME_KEY, as_json_text, given_name
from kafkalog.log.typed.merging import kept, paired, sources
from kafkalog.log.typed.placing import PlacedDecoder
from kafkalog.log.typed.prefixes import schema_ids, type_names
from kafkalog.log.typed.remarks import placed
from kafkalog.log.typed.several_types import SeveralTypes, field_names
from kafkalog.log.typed.type_names import TypeName, TypeNames, Written, names_of
from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import SCHEMAS
from kafkalog.tables.topic_types import several

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.change.lake.plan import Plan
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.remarks import Remark

_DECODED: Final = ("decoded", "schema_id", "type")


def with_types(
    asked: ExportRequest, plan: Plan, before: Sequence[TypedColumn], place: str
) -> tuple[ExportRequest, Plan]:
    """Return a request and its plan with typed columns as the data and the table decide them.

    Args:
        before: the typed columns of the last run of a table that grows.
        place: the table, for messages.

    Raises:
        DestinationExistsError: the table has one type, and the data another.
        UsageError: the registry does not decide what a column is, or no value has a schema there;
            or fields are to be columns, and values have no fields, or several types.
        KafkaLogError: as `ColumnByData.decided`.
    """
    if asked.of_type:
        return _with_one_type(asked, plan, before, place)
    splits = [split for part in plan.parts for split in part.splits]
    found = {one.source: one for one in asked.typed}
    earlier = {one.source: one for one in before if one.has_ids or one.form == TypedForm.CONNECT}
    for one in asked.by_data:
        takes_each = asked.of_type is not None and one.source == "value"
        column = one.decided(splits, of_each=True, takes_each=takes_each)
        column = column or earlier.get(one.source)
        if column is not None:
            found[one.source] = column
    if asked.of_type is not None and "value" not in found:
        error = asked.by_data[-1].nothing()
        error.hint = "Name topics whose values have schemas: --topic NAME."
        raise error
    if asked.by_data and not found:
        raise asked.by_data[-1].nothing()
    for source, column in found.items():
        found[source] = joined(earlier.get(source), column, place)
    typed = tuple(found[source] for source in ("key", "value") if source in found)
    if asked.flat:
        typed = tuple(_flat(one) if one.source == "value" else one for one in typed)
        if not any(one.is_flat for one in typed):
            raise asked.by_data[-1].nothing()
        if "value" in earlier:
            _require_same_names(earlier["value"], typed[-1], place)
    if typed == asked.typed and not asked.by_data:
        return asked, plan
    return _decided(replace(asked, typed=typed, by_data=()), plan)


def _decided(asked: ExportRequest, plan: Plan) -> tuple[ExportRequest, Plan]:
    columns = columns_of(asked.typed, asked.of_type)
    remarks = placed({one.name: one.decoder().remarks for one in columns})
    return asked, replace(plan, options=options_of(asked), remarks=remarks)


def _with_one_type(
    asked: ExportRequest, plan: Plan, before: Sequence[TypedColumn], place: str
) -> tuple[ExportRequest, Plan]:
    """Do what `with_types` does for a table of one type, whose columns are known."""
    earlier, now = (
        [one for one in columns_of(typed, asked.of_type) if one.source == "value"]
        for typed in (before, asked.typed)
    )
    for old, new in zip(earlier, now, strict=False):  # before the first run there is no old one
        if _names(old) != _names(new):
            raise _other_type(_names(old), _names(new), place)
        if old.is_flat and new.is_flat:
            _require_same_names(old, new, place)
    return _decided(asked, plan)


# What the table has ------------------------------------------------------------------------------


def joined(before: TypedColumn | None, now: TypedColumn, place: str) -> TypedColumn:
    """Return a column with the types that a table has, and those of a run.

    Args:
        before: the column of the last run; None without one.
        now: that of this run.
        place: the table, for messages.

    Raises:
        DestinationExistsError: the table has one type at the top of the column, and it is another.
    """
    if before is None or now.form == TypedForm.CONNECT:  # whose values name no types
        return now
    names, here = _names(now) if now.has_ids else [], _names(before)
    if before.types or _is_union(before):
        if not names:
            raise _other_type(here, names, place)
        if _is_union(now):
            return now
        types = now.types or _as_types(now)
        return _with_new_types(before, types, now) if before.types else several(types, _unions(now))
    is_decided = bool(before.type_name or now.type_name or now.types or _is_union(now))
    if is_decided and names and names != here:
        raise _other_type(here, names, place)
    return now


def _with_new_types(
    before: TypedColumn, new: Iterable[tuple[str, TypedColumn]], now: TypedColumn
) -> TypedColumn:
    mine = {_name(one): one for _, one in new}
    types = [(field, mine.pop(_name(one), one)) for field, one in before.types]
    taken = [(one.type_name or "", field) for field, one in types]
    fields = field_names((one.name for one in mine), taken)
    unions = {**dict(before.writers), **_unions(now)}
    return several((*types, *zip(fields, mine.values(), strict=True)), unions)


def _unions(column: TypedColumn) -> dict[SchemaId, tuple[str, ...]]:
    return dict(column.writers) if column.types else {}


def _as_types(column: TypedColumn) -> tuple[tuple[str, TypedColumn], ...]:
    """Return the types of a column with one."""
    name, *_ = _names(column)
    return ((*field_names([name]), replace(column, type_name=name)),)  # type: ignore[return-value] # one


def _name(column: TypedColumn) -> TypeName:
    return TypeName(column.form, column.type_name or "")


def _names(column: TypedColumn) -> list[str]:
    """Return the full names of the types that a column has."""
    if column.types:
        return [one.type_name or "" for _, one in column.types]
    name = column.type_name or column.message
    return [name] if name else [one.name for one in _newest(column)]


def _newest(column: TypedColumn) -> tuple[TypeName, ...]:
    """Return the types of the schema that decides the type of a column."""
    if column.versions:
        return names_of(column).all_of(column.versions[0])
    written = Written(column.form, (column.schema.decode("utf-8", "replace"),))
    if column.form == TypedForm.PROTOBUF:  # a descriptor set, of which a message is named
        return ()
    return TypeNames(lambda _: written, column.framing).all_of(0)


def _is_union(column: TypedColumn) -> bool:
    is_one = not (column.types or column.type_name)
    return is_one and column.form == TypedForm.AVRO and len(_newest(column)) > 1


def _other_type(here: Sequence[str], now: Sequence[str], place: str) -> DestinationExistsError:
    new = [one for one in now if one not in here] or ["values without a type"]
    return DestinationExistsError(
        f"The table has values of {', '.join(here)}, and the run {', '.join(new)}.",
        path=place,
        hint="Export into another table, where each type has a field, or with --split-by-type, "
        "where each has a table.",
    )


# Fields as columns -------------------------------------------------------------------------------


def _flat(column: TypedColumn) -> TypedColumn:
    if column.types:
        raise UsageError(
            f"--flatten is about one type, and the topic has {', '.join(_names(column))}.",
            hint="Leave it out: value_decoded has a field for each type, and value_type its name.",
        )
    if not pa.types.is_struct(column.decoder().type):
        raise UsageError(
            f"--flatten is about fields, and the {column.source}s have none.", hint="Leave it out."
        )
    return replace(column, is_flat=True)


def _require_same_names(before: TypedColumn, now: TypedColumn, place: str) -> None:
    """Raise `DestinationExistsError` if fields are called otherwise than in the last run."""
    here, names = _new_names(before), _new_names(now)
    if names != here:
        raise DestinationExistsError(
            f"The fields {', '.join(sorted({*here, *names}))} would be other columns now.",
            path=place,
            hint="Export into another table, or into one without --flatten.",
        )


def _new_names(column: TypedColumn) -> dict[str, str]:
    """Return the names that columns have in place of those of fields."""
    kind = column.decoder().type
    pairs = zip(map(given_name, kind), _flat_fields(kind), strict=True)
    return {name: one.name for name, one in pairs if name != one.name}


def fields_of(column: TypedColumn, decoder: Decoder) -> list[Any]:
    """Return the fields of Arrow that a table has for a typed column, and what JSON as text is.

    Args:
        decoder: what decodes it.
    """
    field = column_field(column.name, decoder)
    if column.form == TypedForm.JSON and not (column.schema or column.has_ids):
        field = as_json_text(field)
    found = _flat_fields(field.type) if column.is_flat else [field]
    return [*found, *(pa.field(name, pa.string()) for name in column.id_columns)]


def decoded_names(typed: Iterable[TypedColumn]) -> set[str]:
    """Return the columns of a table that get conflict fields."""
    return {one.name for one in typed if not one.is_flat}


def arrays_of(column: TypedColumn, decoded: Any, data: Any, headers: Any) -> list[Any]:
    """Return the arrays of these fields.

    Args:
        decoded: the values.
        data, headers: as for `typed_column`.
    """
    found = decoded.flatten() if column.is_flat else [decoded]
    if column.has_ids:
        found += [schema_ids(column, data, headers), type_names(column, data, headers)]
    return found


def _flat_fields(kind: Any) -> list[Any]:
    """Return the fields of a struct as columns of a table, which has some already.

    Their names are those that Delta allows, too. What is called like another column gets `_`, also
    if this table lacks that one: later runs may have it.
    """
    names = [one.name for one in delta_named(pa.schema([pa.field("", kind)])).field(0).type]
    taken = {one.casefold() for one in SCHEMAS[TableName.RECORDS].names}
    taken |= {f"{source}_{what}" for source in ("key", "value") for what in _DECODED}
    found = []
    for one, wanted in zip(kind, names, strict=True):
        name = wanted
        while name.casefold() in taken or (name != wanted and name in names):
            name += "_"
        # As a column it has this name: it is no other one's that a schema calls so.
        more = {key: value for key, value in (one.metadata or {}).items() if key != NAME_KEY}
        found.append(one.with_name(name).with_metadata(more))
    return found


# As the table has them ---------------------------------------------------------------------------


class TableColumns:
    """The typed columns of a run as a table has them.

    Args:
        typed: the typed columns of the run.
        schema: the `pyarrow.Schema` of the table.
        of_type: as `ExportRequest.of_type`.

    Attributes:
        records: chooses the records that the table gets.
        decoders: of the columns, which decode to what the table has.
        fields: the fields of the table for the arrays that `arrays_of` returns.
    """

    def __init__(
        self, typed: Sequence[TypedColumn], schema: Any, of_type: str | None = None
    ) -> None:
        self.records = RecordsOfType(typed, of_type)
        self.decoders: dict[TypedColumn, Decoder] = {}
        self.fields: dict[TypedColumn, list[Any]] = {}
        for one in columns_of(typed, of_type):
            decoder = one.decoder()
            targets = _targets(list(schema), fields_of(one, decoder))
            made = _placed(one, decoder, targets)
            kinds = [field.type for field in made.type] if one.is_flat else [made.type]
            kinds += [pa.string() for _ in one.id_columns]
            self.decoders[one] = made
            self.fields[one] = [
                pa.field(target.name, kind) for target, kind in zip(targets, kinds, strict=True)
            ]

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What the columns have another type for than one may expect."""
        return placed({
            one.name if one.is_flat else self.fields[one][0].name: made.remarks
            for one, made in self.decoders.items()
        })  # fmt: skip


def _targets(table: list[Any], wanted: list[Any]) -> list[Any]:
    """Return the fields of a table that have the values of others; it was evolved for them."""
    places = paired(table, sources(wanted), kept)
    return [table[place] for place in places if place is not None]


def _placed(column: TypedColumn, decoder: Decoder, targets: list[Any]) -> Decoder:
    """Return a decoder to what the fields of a table have.

    Args:
        targets: the fields for what `fields_of` returns.
    """
    source = column_field(column.name, decoder)
    if column.is_flat:
        fields = [
            one.with_type(target.type)
            for one, target in zip(source.type, targets[: source.type.num_fields], strict=True)
        ]
        return PlacedDecoder(decoder, source, source.with_type(pa.struct(fields)), kept)
    if isinstance(decoder, SeveralTypes):
        own = list(source.type)
        others = _targets(list(targets[0].type), own)
        decoders = [
            PlacedDecoder(made, one, other, kept)
            for (_, made), one, other in zip(decoder.parts, own, others, strict=True)
        ]
        return SeveralTypes(column, decoders, [one.name for one in others])
    return PlacedDecoder(decoder, fields_of(column, decoder)[0], targets[0], kept)
