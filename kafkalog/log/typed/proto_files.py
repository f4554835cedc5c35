"""Compiles the text of Protobuf schemas to descriptor sets, with Google's own compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UnreadableError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId

MAIN: Final = "kafkalog-schema.proto"
"""The name of the file that is the schema itself: no reference has it."""
_TIMEOUT_S: Final = 600  # for all schemas of a registry together
# The log lines of Abseil, which the compiler uses.
_OWN: Final = re.compile(r"WARNING: |[IWEF][0-9]{4} ")
# The compiler is native code, and schemas come from anywhere: it runs in a process of its own,
# which has no need of kafkalog.
# The compiler writes to descriptor 2 itself, past `sys.stderr`. Names that lead out of the
# directory are not written.
_PROGRAM: Final = """
import base64, json, os, sys, tempfile
import grpc_tools
from grpc_tools import protoc
known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")

def compile(files, place):
    root, out, said, more = (os.path.join(place, name) for name in ("in", "out", "said", "more"))
    with open(more, "wb") as file:
        file.write(builtin)
    for name, text in files:
        path = os.path.normpath(os.path.join(root, name))
        if path.startswith(root + os.sep):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    kept = os.dup(2)
    with open(said, "wb") as file:
        os.dup2(file.fileno(), 2)
        status = protoc.main(["protoc", "-I", root, "-I", known, "--descriptor_set_in", more,
                              "--include_imports", "-o", out, files[-1][0]])
        os.dup2(kept, 2)
        os.close(kept)
    if status == 0:
        with open(out, "rb") as file:
            return {"set": base64.b64encode(file.read()).decode()}
    with open(said, encoding="utf-8", errors="replace") as file:
        return {"error": file.read(5000).replace(root + os.sep, "")}

builtin = base64.b64decode(sys.stdin.readline())
for line in sys.stdin:
    with tempfile.TemporaryDirectory(prefix="kafkalog-") as place:
        try:
            found = compile(json.loads(line), place)
        except Exception as error:  # the text of one schema; others are compiled
            found = {"error": str(error)}
    print(json.dumps(found), flush=True)
"""


def compiled(
    schemas: Mapping[SchemaId, Sequence[tuple[str, str]]],
) -> dict[SchemaId, tuple[str, ...]]:
    """Return a descriptor set for each schema, in Base64; or `!` and why there is none.

    Args:
        schemas: name and text of the files of each schema, each after those that it imports. A
            text can also be a `FileDescriptorProto` in Base64, as some clients register it.

    Raises:
        UnsupportedError: the compiler is not installed.
        UnreadableError: it does not end, or crashes.
    """
    found: dict[SchemaId, tuple[str, ...]] = {}
    texts: dict[SchemaId, list[tuple[str, str]]] = {}
    for number, files in schemas.items():
        as_set = _descriptor_set([text for _, text in files])
        if as_set is None:
            texts[number] = list(files)
        else:
            found[number] = (as_set,)
    if texts:
        told = _compile(list(texts.values()))
        for number, one in zip(texts, told, strict=True):
            found[number] = (str(one["set"]),) if "set" in one else (f"!{_words(one['error'])}",)
    return found


def _words(said: str) -> str:
    """Return what the compiler said about a schema, without what it said about itself."""
    lines = [line for line in said.splitlines() if not _OWN.match(line)]
    return f"{' '.join(lines).replace(f'{MAIN}:', 'line '):.300}"


def _descriptor_set(texts: Sequence[str]) -> str | None:
    """Return the set of descriptors in Base64; None if these are texts."""
    try:
        files = [b64decode("".join(text.split()), validate=True) for text in texts]
    except (Base64Error, ValueError):
        return None
    if not all(files):
        return None
    # `FileDescriptorSet` is only `repeated FileDescriptorProto file = 1`.
    # Each is a field of the set: its number and kind, its size, its bytes.
    return b64encode(b"".join(b"\x0a" + _varint(len(one)) + one for one in files)).decode()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _compile(schemas: Sequence[Sequence[tuple[str, str]]]) -> list[Any]:
    if find_spec("grpc_tools") is None:
        raise UnsupportedError(
            "Protobuf schemas are compiled by grpcio-tools, which is not installed.",
            hint="pip install 'kafkalog[schemas]'",
        )
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from kafkalog.log.typed.proto_builtin import builtin_files

    builtin = b64encode(FileDescriptorSet(file=builtin_files()).SerializeToString()).decode()
    found: list[Any] = []
    while len(found) < len(schemas):
        lines = "".join(f"{json.dumps(files)}\n" for files in schemas[len(found) :])
        try:
            done = subprocess.run(  # noqa: S603 # our own program
                # -P: no module of the current directory is imported.
                [sys.executable, "-P", "-c", _PROGRAM],
                input=f"{builtin}\n{lines}".encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
                cwd=os.sep,
                check=False,
            )
            found += [json.loads(line) for line in done.stdout.splitlines()]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            words = " ".join(str(error).split())[:200]
            raise UnreadableError(f"The Protobuf schemas cannot be compiled: {words}.") from error
        # Negative is a signal: the compiler crashed on one schema, and goes on after it.
        if done.returncode > 0:
            raise UnreadableError(f"The compiler of Protobuf ended with {done.returncode}.")
        if len(found) < len(schemas):
            found.append({"error": f"the compiler ended with {done.returncode}"})
    return found
