"""Compiles the text of Protobuf schemas to descriptor sets, with Google's own compiler."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UnreadableError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAIN: Final = "kafkalog-schema.proto"  # the schema itself: no reference has this name
_TIMEOUT_S: Final = 60
_SETS_KEPT: Final = 1024
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


def compiled_texts(texts: Sequence[str]) -> bytes:
    """Return the descriptor set of a schema, the last of some texts; names are before the others.

    Raises:
        as `compiled`.
    """
    return compiled((*zip(texts[:-1:2], texts[1::2], strict=True), (_MAIN, texts[-1])))


@lru_cache(_SETS_KEPT)
def compiled(files: tuple[tuple[str, str], ...]) -> bytes:
    """Return the descriptor set of a schema.

    Args:
        files: name and text of its files, each after those that it imports. A text can also be a
            `FileDescriptorProto` in Base64, as some clients register it.

    Raises:
        UsageError: it does not compile.
        UnsupportedError: the compiler is not installed.
        UnreadableError: it does not end.
    """
    as_set = _descriptor_set([text for _, text in files])
    if as_set is not None:
        return as_set
    found = _COMPILER.ask(files)
    if "set" in found:
        return b64decode(found["set"])
    raise UsageError(_words(str(found["error"])))


def _words(said: str) -> str:
    """Return what the compiler said about a schema, without what it said about itself."""
    lines = [line for line in said.splitlines() if not _OWN.match(line)]
    return f"{' '.join(lines).replace(f'{_MAIN}:', 'line '):.300}"


def _descriptor_set(texts: Sequence[str]) -> bytes | None:
    """Return the set of some descriptors in Base64; None if these are texts."""
    try:
        files = [b64decode("".join(text.split()), validate=True) for text in texts]
    except (Base64Error, ValueError):
        return None
    if not all(files):
        return None
    # `FileDescriptorSet` is only `repeated FileDescriptorProto file = 1`.
    # Each is a field of the set: its number and kind, its size, its bytes.
    return b"".join(b"\x0a" + _varint(len(one)) + one for one in files)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


class _Compiler:
    """A process that compiles one schema after another, from the first one on to our end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, files: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Return `set` of a schema, in Base64, or `error`. Raises as `compiled`."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None, "it has pipes"
            assert process.stdout is not None, "it has pipes"
            # It does not end by itself on a schema that takes it forever.
            timer = threading.Timer(_TIMEOUT_S, process.kill)
            timer.daemon = True
            timer.start()
            try:
                process.stdin.write(f"{json.dumps(files)}\n".encode())
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:  # it has ended
                line = b""
            finally:
                timer.cancel()
            if line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line)
                return found
            status = self.end()
        if status == -SIGKILL:
            raise UnreadableError(
                f"A Protobuf schema is not compiled after {_TIMEOUT_S} s, or without more memory."
            )
        if status > 0:
            raise UnreadableError(f"The compiler of Protobuf ended with {status}.")
        return {"error": f"the compiler ended with {status}"}  # by a signal: it crashed on this one

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        if find_spec("grpc_tools") is None:
            raise UnsupportedError(
                "Protobuf schemas are compiled by grpcio-tools, which is not installed.",
                hint="pip install 'kafkalog[schemas]'",
            )
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        from kafkalog.log.typed.proto_builtin import builtin_files

        builtin = b64encode(FileDescriptorSet(file=builtin_files()).SerializeToString())
        try:
            self._process = subprocess.Popen(  # noqa: S603 # our own program
                # -P: no module of the current directory is imported.
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
            )
            assert self._process.stdin is not None, "it has pipes"
            self._process.stdin.write(builtin + b"\n")
        except OSError as error:
            raise UnreadableError(f"The Protobuf schemas cannot be compiled: {error}.") from error
        return self._process

    def end(self) -> int:
        """End the process, if there is one; return its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(OSError):  # what it did not take is lost with it
            process.communicate()
        return process.wait()


_COMPILER: Final = _Compiler()
atexit.register(_COMPILER.end)
