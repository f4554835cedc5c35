"""The types that a topic has: columns whose types the ids in the data decide.

The subject `TOPIC-value` names the type of a topic whose schemas are registered by topic. If they
are registered by record, a topic can have several types, and only the ids in its data say which.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kafkalog.errors import Deaf, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.prefixes import typed_rows
from kafkalog.log.typed.several_types import NULL, field_names
from kafkalog.log.typed.type_names import TypeName, TypeNames, Written
from kafkalog.tables.connect_columns import ConnectByData
from kafkalog.tables.model import TableName
from kafkalog.tables.reading import read_split
from kafkalog.tables.schema_columns import (
    FORMS,
    column_of_topic,
    other_names,
    require_one,
    writers_of,
)
from kafkalog.tables.schema_registry import read_registry
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.registered import Registered, SchemaRegistry
    from kafkalog.tables.model import Split

_NO_TYPE: Final = TypeName(TypedForm.AVRO, "")


class ByData(Protocol):
    """A typed column whose types the data decides."""

    @property
    def source(self) -> str:
        """Of what: `key` or `value`."""

    @property
    def form(self) -> TypedForm | None:
        """The form of the data; None for any."""

    @property
    def framing(self) -> Framing:
        """What precedes the data."""

    def decided(
        self, splits: Sequence[Split], *, of_each: bool, takes_each: bool = False
    ) -> TypedColumn | None:
        """Return the column, given the splits of the table; None if nothing decides it.

        Args:
            of_each: whether to look at the first records of each split, not only each partition.
            takes_each: whether the column has `types` in any case: each is to have its own table.

        Raises:
            UsageError, UnsupportedError, KafkaLogError: it cannot be decided.
        """

    def of_topic(self, topic: str) -> ByData:
        """Return the column of a table of one topic."""

    def nothing(self) -> UsageError:
        """Return the error of a table without typed columns."""


@dataclass(frozen=True)
class ColumnByData:
    """A typed column whose types are those that the data has.

    With the subject `TOPIC-value`, or `TOPIC-key`, it has the type of that if the first records
    have no other; else the types of all records.

    Attributes:
        source: `key` or `value`.
        registry: the schemas.
        topics: those that are read: one, or more that will be split.
        form: the form of the schemas; None for any.
        framing: what precedes the data.
    """

    source: str
    registry: SchemaRegistry
    topics: tuple[str, ...]
    form: TypedForm | None = None
    framing: Framing = Framing.CONFLUENT

    @property
    def name(self) -> str:
        """The column's name."""
        return f"{self.source}_decoded"

    def decided(
        self, splits: Sequence[Split], *, of_each: bool, takes_each: bool = False
    ) -> TypedColumn | None:
        """Return the column; None if no value has the id of a known schema.

        Keys have a column only if all of them have such an id: those of other serializers can begin
        like one.

        Args:
            splits: of the table of records.
            of_each: whether to look at the first records of each split, not only each partition.
            takes_each: whether the column has `types` in any case: each is to have its own table.

        Raises:
            UsageError: the registry does not decide what the column is.
            UnsupportedError: a package is missing.
            KafkaLogError: as `read_split` with a listener.
        """
        names = TypeNames(self._written, self.framing)
        by_subject = None
        if self.form is None and not takes_each:
            by_subject = column_of_topic(self.registry, self.topics, self.source)
        if by_subject is not None:
            firsts = self._seen(_first_batches(splits, self.source, of_each=of_each), names)
            if self._are_others(firsts):
                return None
            own = {one.id for one in self.registry.versions(f"{self.topics[0]}-{self.source}")}
            known = [one for one in firsts if one[1] is not _NO_TYPE]
            messages = {one.name for _, one in known if one.form == TypedForm.PROTOBUF}
            if {schema_id for schema_id, _ in known} <= own and len(messages) <= 1:
                message = messages.pop() if messages else by_subject.message
                return _of_its_types(replace(by_subject, message=message), own, names)
        seen = self._seen(_batches(splits, self.source), names)
        types = [one for one in seen if one[1] is not _NO_TYPE]
        if self._are_others(seen):
            return None
        if not types:
            return by_subject
        return self._of_types(types, names, takes_each=takes_each)

    def of_topic(self, topic: str) -> ColumnByData:
        """See `ByData`."""
        return replace(self, topics=(topic,))

    def nothing(self) -> UsageError:
        """Return the error of a registry that has no schema for a table."""
        return UsageError(
            f"{self.registry.place} has no subject {self.topics[0]}-{self.source}, and no "
            f"{self.source} of the topic has the id of one of its schemas.",
            hint="--value-format avro --value-schema FILE",
        )

    def _are_others(self, seen: set[tuple[SchemaId | None, TypeName]]) -> bool:
        """Return whether there are keys of other serializers, which can begin like an id."""
        return self.source == "key" and any(one is _NO_TYPE for _, one in seen)

    def _seen(
        self, batches: Iterable[Any], names: TypeNames
    ) -> set[tuple[SchemaId | None, TypeName]]:
        """Return the ids that keys or values have, each with its type; what has none likewise."""
        guids = tuple(self.registry.guids().items())
        probe = TypedColumn(
            self.source, TypedForm.PROTOBUF, b"", framing=self.framing, guids=guids,
            place=self.registry.remote_place,
        )  # fmt: skip
        found: set[tuple[SchemaId | None, TypeName]] = set()
        for batch in batches:
            data = batch.column(self.source)
            types, rows, ids, places = typed_rows(probe, names, data, batch.column("headers"))
            pairs = np.unique(places * (len(types) + 1) + rows + 1)
            for place, row in zip(*divmod(pairs, len(types) + 1), strict=True):
                if place < len(ids):
                    found.add((ids[place], types[row - 1] if row else _NO_TYPE))
            if self._are_others(found):
                break  # no column
        return found

    def _of_types(
        self, seen: Iterable[tuple[SchemaId | None, TypeName]], names: TypeNames, *,
        takes_each: bool,
    ) -> TypedColumn:  # fmt: skip
        """Return the column of the types that occur."""
        ids: dict[TypeName, set[SchemaId]] = {}
        for schema_id, one in seen:
            assert schema_id is not None, "it says the type"
            # A union has all its branches, also those that are yet to come.
            is_union = one.form == TypedForm.AVRO and names.has_index(schema_id)
            for each in names.all_of(schema_id) if is_union else (one,):
                ids.setdefault(each, set()).add(schema_id)
        ids.pop(NULL, None)
        occurring = set().union(*ids.values())
        unions = [one for one in occurring if self._is_union(one, names)]
        if len(unions) == len(occurring) and not takes_each:
            return self._column(TypedForm.AVRO, None, unions, names)
        ordered = sorted(ids, key=lambda one: (one.name, one.form))
        columns = [self._column(one.form, one.name, ids[one], names) for one in ordered]
        if len(columns) == 1 and not unions and not takes_each:
            return columns[0]
        fields = field_names(one.name for one in ordered)
        schemas = [self.registry.by_id[one] for one in unions]
        return several(
            tuple(zip(fields, columns, strict=True)),
            writers_of(self.registry, schemas),
        )

    def _column(
        self, form: TypedForm, name: str | None, ids: Iterable[SchemaId], names: TypeNames
    ) -> TypedColumn:
        """Return the column of one type; without a name, that of unions of Avro."""
        versions = self._versions(form, name, {*ids}, names)
        texts: dict[SchemaId, tuple[str, ...]] = {}
        for one in versions:
            found = writers_of(self.registry, [one])
            if name is not None and one.id in found and self._is_union(one.id, names):
                found = {one.id: _of_branch(found[one.id], names.all_of(one.id), name)}
            texts |= found
        guids = tuple(pair for pair in self.registry.guids().items() if pair[1] in texts)
        return TypedColumn(
            self.source, form, b"", name if form == TypedForm.PROTOBUF else None, self.framing,
            writers=tuple(texts.items()), versions=tuple(texts), guids=guids,
            names=other_names(form, versions), type_name=name, place=self.registry.remote_place,
        )  # fmt: skip

    def _versions(
        self, form: TypedForm, name: str | None, ids: set[SchemaId], names: TypeNames
    ) -> list[Registered]:
        """Return the schemas of a type, the newest first: those that occur, and of their subjects.

        So the column does not depend on which versions occur.
        """
        subjects = self._subjects(ids)
        every = [one for subject in subjects for one in self.registry.all_versions(subject)]
        found = {
            one.id: one for one in every
            if one.form == form.upper() and (one.id in ids or not one.is_deleted)
            and (self._is_union(one.id, names) if name is None
                 else TypeName(form, name) in names.all_of(one.id))
        }  # fmt: skip
        found |= {one: self.registry.by_id[one] for one in ids - found.keys()}
        # Ids of files can be UUIDs, which have no order.
        return sorted(found.values(), key=lambda one: (
            one.version if len(subjects) == 1 else 0, one.id if isinstance(one.id, int) else 0,
        ), reverse=True)  # fmt: skip

    def _subjects(self, ids: set[SchemaId]) -> list[str]:
        """Return the subjects of schemas: the one that has all of them, if any has."""
        found: dict[str, set[SchemaId]] = {}
        for one in self.registry.by_version.values():
            if one.id in ids and one.subject is not None:
                found.setdefault(one.subject, set()).add(one.id)
        whole = sorted(subject for subject, its in found.items() if its == ids)
        return whole[:1] or sorted(found)

    def _is_union(self, schema_id: SchemaId, names: TypeNames) -> bool:
        return self.registry.by_id[schema_id].form == "AVRO" and names.has_index(schema_id)

    def _written(self, schema_id: SchemaId) -> Written | None:
        one = self.registry.in_subject(schema_id)
        if one is None or one.form not in (FORMS if self.form is None else {self.form.upper()}):
            return None
        form = TypedForm(one.form.lower())
        texts = writers_of(self.registry, [one]).get(schema_id)
        return None if texts is None else Written(form, texts, one.subject or "")


def columns_by_data(
    registry: str | os.PathLike[str] | None,
    topics: Iterable[str],
    connect: Sequence[str] = (),
    *,
    are_split: bool = False,
) -> tuple[ByData, ...]:
    """Return the columns of keys and of values that data decides.

    Args:
        registry: where the schemas of the one topic are, as `read_registry` takes it; None without.
        topics: the topics that are read.
        are_split: whether each topic will have its own columns.
        connect: `key`, `value`: what Kafka Connect wrote, with a schema in each message.

    Raises:
        UsageError: as `require_one`, with a registry; or `connect` has another word.
        as `read_registry`.
    """
    for one in connect:
        if one not in ("key", "value"):
            raise UsageError(f"{one!r} is neither key nor value.")
    found: dict[str, ByData] = {one: ConnectByData(one) for one in connect}
    if registry is not None:
        names = tuple(topics)
        if not are_split:
            require_one(names)
        schemas = read_registry(os.fspath(registry))
        for source in ("key", "value"):
            found.setdefault(source, ColumnByData(source, schemas, names))
    return tuple(found[one] for one in ("key", "value") if one in found)


def _of_its_types(column: TypedColumn, own: set[SchemaId], names: TypeNames) -> TypedColumn:
    """Return a column with the writers, of JSON only those of its types.

    Records and messages have names that decoders compare; other objects would lose their fields.
    """
    if column.form != TypedForm.JSON:
        return column
    wanted = {name for one in own for name in names.all_of(one)}
    writers = tuple(
        (one, texts) for one, texts in column.writers
        if one in own or not wanted.isdisjoint(names.all_of(one))
    )  # fmt: skip
    return replace(column, writers=writers, place=None)


def several(
    types: tuple[tuple[str, TypedColumn], ...], unions: Mapping[SchemaId, tuple[str, ...]]
) -> TypedColumn:
    """Return the column of several types, from their fields and columns.

    Args:
        unions: the texts of unions of Avro, by id.
    """
    columns = [one for _, one in types]
    is_protobuf = any(one.form == TypedForm.PROTOBUF for one in columns)
    first = columns[0]
    return TypedColumn(
        first.source, TypedForm.PROTOBUF if is_protobuf else first.form, b"",
        framing=first.framing, writers=tuple(unions.items()), types=types,
        guids=tuple(dict.fromkeys(pair for one in columns for pair in one.guids)),
        place=first.place,
    )  # fmt: skip


def _of_branch(texts: tuple[str, ...], branches: Sequence[TypeName], name: str) -> tuple[str, ...]:
    """Return the texts of a branch of a union of Avro: the others first, it may refer to them."""
    tree = json.loads(texts[-1])
    while isinstance(tree, dict):
        tree = tree["type"]
    parts = [json.dumps(one) for one in tree]
    own = parts.pop([one.name for one in branches].index(name))
    return (*texts[:-1], *parts, own)


def _batches(splits: Iterable[Split], source: str) -> Iterator[Any]:
    schema = table_schema(TableName.RECORDS, [source, "headers"])
    for split in splits:
        # What is wrong with the data is said when it is read for the table.
        yield from read_split(split, schema, Deaf(), threads=None)


def _first_batches(splits: Iterable[Split], source: str, *, of_each: bool) -> Iterator[Any]:
    """Yield the first records of each split, or of each partition."""
    seen: set[tuple[str, int | None]] = set()
    for split in splits:
        if of_each or (split.topic, split.partition) not in seen:
            for batch in islice(_batches([split], source), 1):
                seen.add((split.topic, split.partition))
                yield batch
