"""Protobuf messages by a descriptor set, with Google's own library."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.column_steps import UnsupportedSchemaError
from kafkalog.log.typed.framing import Framing
from kafkalog.log.typed.proto_builtin import builtin_file
from kafkalog.log.typed.proto_columns import MessageColumns, is_complete
from kafkalog.log.typed.proto_files import compiled_texts
from kafkalog.log.typed.proto_wire import ProtobufColumns
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS
from kafkalog.log.typed.schema_size import brief

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId

_VARINT_SIZE_MAX: Final = 5  # of 32 bits
_INDEXES_MAX: Final = 64


class ProtobufDecoder:
    """Decodes Protobuf: messages become structs, enums strings, an unnamed enum number its digits.

    A field with presence that is not set is null; a field without presence has its default, as
    usual. Fields that the descriptor does not know are skipped, as in Protobuf, and counted.
    Extensions that the descriptor set has are fields. Messages that Google and Confluent define are
    what they mean, such as times; those that have no type are JSON.

    Args:
        schema: a `FileDescriptorSet`.
        name: the message's full name; None for the first message of the last file.
        framing: which name or number of the message precedes the data.
        names: as `MessageColumns` has them after other versions: a number keeps its column.

    Attributes:
        type: of the column.
        name: the message's full name.
        messages: reads which message data is of; None without a framing.
        names: as `MessageColumns` has them after this version.
        remarks: the parts that are JSON.
        losses: how many values have what the column lacks, since the decoder was made.

    Raises:
        UsageError: the schema is not a descriptor set, lacks the message, or has messages in
            messages beyond what Google's library can build.
        ModuleNotFoundError: protobuf is missing.
    """

    def __init__(
        self,
        schema: bytes,
        name: str | None,
        framing: Framing = Framing.NONE,
        names: Mapping[tuple[str, int], tuple[str, str]] | None = None,
    ) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            files = _added(pool, schema)
            if name is None:
                name = _first_message(files)
            descriptor = pool.FindMessageTypeByName(name)
        except KeyError as error:
            raise UsageError(f"The descriptor set has no message {name!r}.") from error
        except TypeError as error:
            raise UsageError(f"The descriptor set cannot be built: {brief(error)}.") from error
        except message.DecodeError as error:
            raise UsageError(
                f"This is not a descriptor set: {brief(error)}.",
                hint="protoc --include_imports -o FILE NAME.proto",
            ) from error
        try:
            self._parse = message_factory.GetMessageClass(descriptor).FromString
        except RecursionError as error:
            raise UsageError(
                f"Google's library cannot build {name}: too many messages are in each other."
            ) from error
        self._has_required = any(file.syntax != "proto3" for file in files)
        self.messages = None if framing == Framing.NONE else MessageNames(descriptor.file, framing)
        self.name = name
        self.names = dict(names or {})
        self._descriptor = descriptor
        self._columns = columns = MessageColumns(pool, self.names)
        self.type, self._convert = columns.column(descriptor)
        self.remarks = columns.remarks
        self.losses: Counter[str] = Counter()
        self._seen = columns.seen

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # one schema
        """Return the message as a dictionary, or what it means if it is one of Google's."""
        if self.messages is not None:
            name, data = self.messages.split(data)
            if name != self.name:
                raise ValueError(f"not {self.name}, but the message {name:.100}")
        seen = self._seen
        seen.has_unknown = seen.has_lost_digits = False
        try:
            self._columns.cells.require_few(self._descriptor, data)
            found = self._parse(data)
            # Google's library for Python leaves this to its caller.
            if self._has_required and not is_complete(found):
                raise ValueError("a required field is missing")
            value = self._convert(found)
        except message.Error as error:
            raise ValueError(str(error)) from error
        except RecursionError as error:
            raise ValueError("the message is nested too deeply") from error
        if seen.has_unknown:
            self.losses[UNKNOWN_FIELDS] += 1
        if seen.has_lost_digits:
            self.losses[LOST_DIGITS] += 1
        return value

    def by_columns(self, schema_id: SchemaId | None) -> ProtobufColumns | None:  # noqa: ARG002 # one schema
        """Return what decodes many messages at once; None if that is impossible."""
        return self._by_columns

    @cached_property
    def _by_columns(self) -> ProtobufColumns | None:
        if kernels_work():
            with suppress(UnsupportedSchemaError):
                return ProtobufColumns(
                    self._descriptor, self.type, self._columns, self.losses,
                    has_required=self._has_required,
                    split=None if self.messages is None else self.messages.split,
                )  # fmt: skip
        return None


class ProtobufVersions:
    """Makes decoders for versions of a message; a field keeps the name that the newest gives it.

    Args:
        schema: a `FileDescriptorSet` with the message that the column has; empty if the first
            version that is asked for decides.
        message: its full name; None for the first one.
        framing: as for `ProtobufDecoder`.
    """

    def __init__(self, schema: bytes, message: str | None, framing: Framing) -> None:
        self._message = message
        self._framing = framing
        self._names: dict[tuple[str, int], tuple[str, str]] = {}
        self.column = self._made(schema) if schema else None

    def __call__(self, texts: Sequence[str]) -> ProtobufDecoder:
        """Return the decoder of a version, from names and texts as `compiled_texts` takes them."""
        return self._made(compiled_texts(texts))

    def _made(self, schema: bytes) -> ProtobufDecoder:
        made = ProtobufDecoder(schema, self._message, self._framing, self._names)
        self._message = made.name
        self._names = made.names
        return made


def main_file(texts: Sequence[str]) -> Any:
    """Return the descriptor of the file of a version. Args and errors as for `compiled_texts`."""
    pool = descriptor_pool.DescriptorPool()
    return pool.FindFileByName(_added(pool, compiled_texts(texts))[-1].name)


def _added(pool: Any, schema: bytes) -> Any:
    """Add the files of a `FileDescriptorSet`, and the builtin ones that they import; return them.

    Raises:
        TypeError, message.DecodeError: they cannot be built.
    """
    files = descriptor_pb2.FileDescriptorSet.FromString(schema).file
    for file in files:
        for known in file.dependency:
            _add_builtin(pool, known)
        pool.AddSerializedFile(file.SerializeToString())
    return files


def _first_message(files: Any) -> str:
    if not files or not files[-1].message_type:
        raise UsageError("The schema has no message.")
    package = files[-1].package
    return f"{package}.".lstrip(".") + str(files[-1].message_type[0].name)


def _add_builtin(pool: Any, name: str) -> None:
    """Add a file that schemas import without having it, if the pool lacks it, and what it imports.

    Raises:
        TypeError: it does not go with a file that the pool has.
    """
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = builtin_file(name)
        if file is not None:
            for inner in file.dependency:
                _add_builtin(pool, inner)
            pool.AddSerializedFile(file.SerializeToString())


class MessageNames:
    """Reads which message data is of, from what serializers write between the id and the message.

    Args:
        file: the descriptor of the file that the id stands for.
        framing: whose serializers.
    """

    def __init__(self, file: Any, framing: Framing) -> None:
        self._messages = file.message_types_by_name
        self._framing = framing

    def split(self, data: bytes) -> tuple[str, bytes]:
        """Return the full name of a message, and its bytes.

        Raises:
            ValueError: nothing names a message there, or one that the file lacks.
        """
        if self._framing == Framing.CONFLUENT:
            return self._by_indexes(data)
        return self._by_number(data) if self._framing == Framing.GLUE else self._by_name(data)

    def _by_indexes(self, data: bytes) -> tuple[str, bytes]:
        """Read ordinals from the outermost message to that one; a lone zero is the first."""
        count, position = _zigzag(data, 0)
        indexes = [] if count else [0]
        if not 0 <= count <= _INDEXES_MAX:
            raise ValueError("no indexes of a message")
        for _ in range(count):
            index, position = _zigzag(data, position)
            indexes.append(index)
        found, inner = None, list(self._messages.values())
        for index in indexes:
            if not 0 <= index < len(inner):
                raise ValueError(f"the file has no message {indexes}")
            found = inner[index]
            inner = list(found.nested_types)
        assert found is not None, "there is at least one index"
        return found.full_name, data[position:]

    def _by_name(self, data: bytes) -> tuple[str, bytes]:
        """Read the name, a message with one field, as Apicurio's serializers write it."""
        size, start = _varint(data, 0)
        end = start + size
        if end > len(data) or data[start : start + 1] != b"\x0a":  # field 1 with a size: the name
            raise ValueError("no name of a message")
        length, position = _varint(data, start + 1)
        name = data[position:end].decode("utf-8", "replace")
        if position + length != end:
            raise ValueError("no name of a message")
        there = self._messages.get(name)
        if there is None and name not in self.names:
            raise ValueError(f"the file has no message {name:.100}")
        return (name if there is None else there.full_name), data[end:]

    def _by_number(self, data: bytes) -> tuple[str, bytes]:
        """Read the place among the sorted names of all messages of the file."""
        number, position = _varint(data, 0)
        if number >= len(self.names):
            raise ValueError(f"the file has no message {number}")
        return self.names[number], data[position:]

    @cached_property
    def names(self) -> list[str]:
        """The full names of all messages of the file, sorted."""
        waiting = list(self._messages.values())
        for one in waiting:
            waiting += one.nested_types
        return sorted(one.full_name for one in waiting)


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Read a signed varint; return it and the position after it."""
    number, position = _varint(data, position)
    return number >> 1 ^ -(number & 1), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a varint; return it and the position after it."""
    number = 0
    for i in range(_VARINT_SIZE_MAX):
        if position + i >= len(data):
            break
        byte = data[position + i]
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:  # the last byte
            return number, position + i + 1
    raise ValueError("no indexes of a message")
