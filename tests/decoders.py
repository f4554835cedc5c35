"""Runs command lines by one decoder, in a process of its own that has it from its environment.

`python -m tests.decoders` reads one job a line and answers with one result a line, in JSON. Under
`KAFKALOG_DECODER=schema` each fast decoder raises there, and what the schemas parse is counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from formats import decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
COPY = "copy"


@dataclass(frozen=True)
class Job:
    """A command line, run in an empty directory.

    Attributes:
        argv: its words.
        copied: a directory that is copied there first, as `copy`; None for none.
        dropped: what is removed of the copy: a pattern of file names.
        kernels: whether fast code reads small logs by kernels, too.
    """

    argv: Sequence[str]
    copied: str | None = None
    dropped: str | None = None
    kernels: bool = True


@dataclass(frozen=True)
class Done:
    """What a job did.

    Attributes:
        status, stdout, stderr: of the command.
        files: the files in its directory after it, with their digests.
        parsed: how many of each structure the schemas parsed.
    """

    status: int
    stdout: str
    stderr: str
    files: dict[str, str]
    parsed: dict[str, int] = field(compare=False)


class Decoder:
    """A process that runs jobs by one decoder.

    Args:
        name: what `KAFKALOG_DECODER` says.
        place: an empty directory for it.
    """

    def __init__(self, name: str, place: Path) -> None:
        place.mkdir()
        variables = {decoder.VARIABLE: name, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.decoders"], cwd=place, env={**os.environ, **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def begin(self, job: Job) -> None:
        """Let it run a job."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()

    def end(self) -> Done:
        """Return what the job did."""
        assert self._process.stdout is not None
        return Done(**json.loads(self._process.stdout.readline()))


def serve() -> None:
    """Run jobs until the input ends."""
    from kafkalog.io.jit import fast_path
    from kafkalog_cli.main import run

    place = Path.cwd()
    answers = os.fdopen(os.dup(1), "w")
    parsed: Counter[str] = Counter()
    if decoder.BY_SCHEMA:
        _refuse_fast_code()
        _count_parsed(parsed)
    size_min = fast_path.FAST_SIZE_MIN
    for line in sys.stdin:
        job = Job(**json.loads(line))
        for old in place.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        if job.copied is not None:
            subprocess.run(["cp", "-a", "--sparse=always", job.copied, COPY], check=True)
        for dropped in Path(COPY).rglob(job.dropped) if job.dropped else ():
            dropped.unlink()
        fast_path.FAST_SIZE_MIN = 0 if job.kernels else size_min
        parsed.clear()
        with _Redirected(1) as out, _Redirected(2) as err:
            status = run(list(job.argv))
        files = {
            str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(place.rglob("*")) if path.is_file()
        }  # fmt: skip
        texts = [one.text.replace(str(place), ".") for one in (out, err)]
        answers.write(json.dumps(asdict(Done(status, *texts, files, dict(parsed)))) + "\n")
        answers.flush()


class _Redirected:
    """Collects what is written to a file descriptor."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.text = ""

    def __enter__(self) -> Self:
        self._flush()
        self._kept = os.dup(self._number)
        self._file = os.memfd_create("output")
        os.dup2(self._file, self._number)
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        os.dup2(self._kept, self._number)
        os.lseek(self._file, 0, os.SEEK_SET)
        with os.fdopen(self._file, "rb") as file:
            self.text = file.read().decode("utf-8", "surrogateescape")
        os.close(self._kept)

    @staticmethod
    def _flush() -> None:
        sys.stdout.flush()
        sys.stderr.flush()


def _refuse_fast_code() -> None:
    """Let all code raise that decodes batches, records, varints or index entries otherwise."""
    import struct

    import numpy as np

    from formats import constants
    from kafkalog.files.payloads import offset_commits
    from kafkalog.io.jit.native import Kernel
    from kafkalog.log.batches import records

    def refuse(*_: object) -> Any:
        raise AssertionError("this is decoded without a schema")

    from_buffer = np.frombuffer

    def of_plain_numbers(data: Any, dtype: Any = float, *rest: Any) -> Any:
        return refuse() if np.dtype(dtype).names else from_buffer(data, dtype, *rest)

    np.frombuffer = of_plain_numbers
    Kernel.__call__ = refuse  # type: ignore[method-assign]
    records.record_at = refuse
    offset_commits._flexible = refuse
    for layout in vars(constants).values():
        if isinstance(layout, constants.Layout):
            assert not isinstance(layout.struct, struct.Struct)


def _count_parsed(parsed: Counter[str]) -> None:
    from formats import primitives, record_batch, side_files

    schemas = {
        "header": record_batch.RecordBatchHeader,
        "record": record_batch.Record,
        "message": record_batch.Message,
        "varint": primitives.Varint,
        "offset index entry": side_files.OffsetIndexEntry,
        "time index entry": side_files.TimeIndexEntry,
    }
    names = {id(schema): name for name, schema in schemas.items()}
    for kind in {type(schema) for schema in schemas.values()}:
        kind._parse = _counted(parsed, names, kind._parse)
    # The first fields of a message are its header.
    unpack = decoder.SchemaStruct.unpack_from

    def unpack_from(self: decoder.SchemaStruct, data: Any, position: int = 0) -> tuple[Any, ...]:
        parsed[self._home] += 1
        return unpack(self, data, position)

    decoder.SchemaStruct.unpack_from = unpack_from  # type: ignore[method-assign]


def _counted(parsed: Counter[str], names: dict[int, str], parse: Any) -> Any:
    def counted(schema: Any, *arguments: Any) -> Any:
        if id(schema) in names:
            parsed[names[id(schema)]] += 1
        return parse(schema, *arguments)

    return counted


if __name__ == "__main__":
    serve()
