"""Schemas of Protobuf are compiled when data has their ids, by one process after another."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from kafkalog.errors import UnreadableError, UsageError
from kafkalog.log.typed import proto_files
from kafkalog.log.typed.proto_files import compiled
from kafkalog.tables.schema_columns import column_of_topic
from kafkalog.tables.schema_registry import read_registry
from tests.kafkalog.log.typed.test_serialized import as_topic, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def text_of(name: str) -> str:
    return f'syntax = "proto3"; message {name} {{ int64 n = 1; }}'


def messages(files: tuple[tuple[str, str], ...]) -> list[str]:
    found = FileDescriptorSet.FromString(compiled(files))
    return [one.name for one in found.file[-1].message_type]


def test_only_what_occurs_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand schemas those of the subject, and one that a value has."""
    versions: list[dict[str, Any]] = [
        {"subject": "t-value" if n < 2 else f"s{n}", "version": n, "id": n, "schemaType":
         "PROTOBUF", "schema": text_of("M") + f" // {n}"} for n in range(1000)
    ]  # fmt: skip
    asked: list[str] = []
    ask = proto_files._COMPILER.ask

    def noted(files: Sequence[tuple[str, str]]) -> dict[str, Any]:
        asked.append(files[-1][1].rpartition(" ")[2])
        return ask(files)

    monkeypatch.setattr(proto_files._COMPILER, "ask", noted)
    column = column_of_topic(read_registry(str(as_topic(tmp_path, versions))), ["t"], "value")
    assert column is not None
    assert asked == []
    values = [b"\0\0\0" + n.to_bytes(2, "big") + b"\0\x08\7" for n in (1, 700, 0, 700)]
    assert decoded(column, values) == ([{"n": 7}] * 4, [])
    assert asked == ["1", "0", "700"]


def test_a_compiler_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashed, it costs one schema; what is wrong with its machine is no word about a schema."""
    assert messages((("a.proto", text_of("Before")),)) == ["Before"]
    process = proto_files._COMPILER._process
    assert process is not None
    os.kill(process.pid, signal.SIGSEGV)
    process.wait()
    with pytest.raises(UsageError, match=f"the compiler ended with {-signal.SIGSEGV}"):
        compiled((("a.proto", text_of("Between")),))
    assert messages((("a.proto", text_of("After")),)) == ["After"]
    assert proto_files._COMPILER._process is not process
    monkeypatch.setattr(proto_files, "_PROGRAM", "raise SystemExit(3)")
    proto_files._COMPILER.end()
    with pytest.raises(UnreadableError, match="ended with 3"):
        compiled((("a.proto", text_of("Never")),))
    monkeypatch.setattr(proto_files, "_PROGRAM", "input(); input(); input()")
    monkeypatch.setattr(proto_files, "_TIMEOUT_S", 0.2)
    with pytest.raises(UnreadableError, match=r"not compiled after 0\.2 s"):
        compiled((("a.proto", text_of("Late")),))
