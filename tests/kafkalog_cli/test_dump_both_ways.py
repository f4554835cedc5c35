"""`dump-segment` prints the same with the kernels and without: bytes, messages and status."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.io.jit import fast_path
from kafkalog.log.columns import pipeline
from kafkalog.log.text import kafka_text, objects, plain_rows
from kafkalog_cli.main import run
from kafkalog_cli.output import bulk, table
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.records import BATCH, RECORD
from tests.builders import BASE_TIME, batch, flip, frames, record, write_log
from tests.kafkalog.log.columns.test_twins import logs
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog_cli.output.objects import ObjectType
    from tests.conftest import State

FORMS = (kafka_text.KafkaText, objects.RecordLines, pipeline.Restored, plain_rows.PlainCells)
FORMATS = ("ndjson", "json", "csv", "kafka", "table")
BYTES = ("auto", "text", "hex", "base64")
SELECTIONS: tuple[tuple[object, ...], ...] = (
    (), ("--batches",), ("--from-offset", 5, "--to-offset", 40), ("--limit", 7),
    ("--batches", "--limit", 2), ("--isolation", "read_committed",), ("--control",),
    ("--value-format", "text"),
    ("--from-position", 100), ("--key-regex", "[1-5]$"),
    ("--value-regex", "a", "--limit", 3), ("--header", "source"), ("--producer-id", 1),
)  # fmt: skip


def outputs(capture: pytest.CaptureFixture[bytes], *argv: object) -> list[Any]:
    """Return status, stdout and stderr without and with the kernels."""
    found = []
    for size_min in (1 << 60, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
            patch.setattr(bulk, "_FEW_ROWS", -1)
            for form in FORMS:
                patch.setattr(form, "rows_max", 50)
            capture.readouterr()
            status = run(["dump-segment", *map(str, argv)])
            found.append((status, *capture.readouterr()))
    return found


def assert_same(capture: pytest.CaptureFixture[bytes], *argv: object) -> Any:
    slow, fast = outputs(capture, *argv)
    assert fast[0] == slow[0]
    assert fast[2] == slow[2]
    assert fast[1] == slow[1]
    return fast


def command_lines(seed: str, count: int) -> Iterator[tuple[object, ...]]:
    """Draw from all combinations. Each format and selection occurs several times in the corpus."""
    rng = random.Random(seed)
    for _ in range(count):
        form, how = rng.choice(FORMATS), rng.choice(BYTES)
        yield (
            "--format",
            form,
            "--key-format",
            how,
            "--value-format",
            how,
            *rng.choice(SELECTIONS),
        )


@pytest.mark.sampled(60)
def test_the_corpus_reads_the_same(any_state: State, capfdbinary: pytest.CaptureFixture[bytes]):
    """Every partition of every broker, as NDJSON and as Kafka's text."""
    for partition in any_state.partitions():
        lines = [("--format", "ndjson"), ("--format", "kafka"), *command_lines(partition.name, 6)]
        for line in lines:
            assert_same(capfdbinary, partition, *line)


def test_a_log_that_cannot_be_planned_is_an_empty_array(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    """Finding out what is committed reads its marker, which has a wrong count of headers."""
    marker = record(0, b"\0\0\0\1", bytes(6))[:-1] + b"\1"  # -1
    data = batch(0, [marker], attributes=0x30, producer=(7, 0, -1))
    copy = write_log(tmp_path / "orders-0", data)
    argv = ("--format", "json", "--isolation", "read_committed")
    assert assert_same(capfdbinary, copy.parent, *argv)[:2] == (6, b"[]\n")


@pytest.mark.sampled(30)
def test_damaged_logs_read_the_same(
    any_state: State, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    """Defects come at the same place between the rows, and the gravest status is the same."""
    rng = random.Random(any_state.name)
    paths = [path for log_dir in any_state.log_dirs for path in sorted(log_dir.glob("*/*.log"))]
    paths = [path for path in paths if 0 < path.stat().st_size < 100_000]
    for path in rng.sample(paths, min(2, len(paths))):
        data = path.read_bytes()
        at = rng.randrange(len(data))
        position, size = rng.choice(frames(data)) if any_state.name != "crash-1-torn" else (0, 50)
        hurt = {
            "flip": flip(data, rng.randrange(8 * len(data))),
            "content": flip(data, 8 * (position + size - 1)),
            "cut": data[:at],
            "hole": data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :],
            "length": flip(data, 8 * position + 8 * 8 + rng.randrange(32)),
        }
        for kind, changed in hurt.items():
            copy = write_log(tmp_path / kind / path.parent.name, changed, name=path.stem)
            for line in command_lines(f"{path}{kind}", 4):
                assert_same(capfdbinary, copy.parent, *line)
                assert_same(capfdbinary, copy, *line)


@settings(max_examples=examples(120))
@given(
    data=logs(),
    form=st.sampled_from(FORMATS),
    how=st.sampled_from(BYTES),
    chosen=st.sampled_from(
        (*SELECTIONS, ("--limit", 1), ("--from-time", BASE_TIME + 3), ("--key", "0x"))
    ),
)
def test_generated_logs_read_the_same(
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    data: bytes,
    form: str,
    how: str,
    chosen: tuple[object, ...],
):
    """Any content of the file."""
    path = write_log(tmp_path, data)
    assert_same(
        capfdbinary, path, "--format", form, "--key-format", how, "--value-format", how, *chosen
    )


PIECES = [
    b"a", b'"', b"\\", b",", b"\n", b"\r", b"\t", b"\0", b"\x1b", b"\x7f", b"'", b" ", b"\b\f",
    b"\xc2\x85", b"\xc2\xad", b"\xd8\x9c", b"\xe2\x80\x8b", b"\xe2\x80\x90", b"\xe2\x80\xa8",
    b"\xe2\x80\xaf", b"\xe2\x81\xa0", b"\xe2\x81\xb0", b"\xef\xbb\xbf", b"\xef\xbf\xb9",
    b"\xef\xbf\xbc", b"\xef\xbf\xbe", b"\xf3\xa0\x80\x81", b"\xf3\xa0\x82\x80", b"\xc2\xa0",
    b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xff", b"\xc0\x80",
    b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xed\x9f\xbf", b"\xe2\x82", b"\xf0\x8f\xbf\xbf",
    b"\xf4\x8f\xbf\xbf", b"\x80", b"plain text of some length",
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", BYTES)
@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table"])
def test_texts_are_escaped_the_same(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], form: str, how: str
):
    """Quotes, control characters, terminal sequences, every kind of invalid UTF-8; any length."""
    rng = random.Random(7)

    def field() -> bytes | None:
        pieces = PIECES if rng.random() < 0.5 else PIECES[:12]
        chosen = rng.choices(pieces, k=rng.randrange(6))
        return None if rng.random() < 0.1 else b"".join(chosen)

    records = [record(0, piece, b"abcdefg"[:i] + piece) for i, piece in enumerate(PIECES)]
    records += [
        record(i, field(), field(), time_delta=rng.choice((0, -5, 2**40)),
               headers=[(field() or b"", field()) for _ in range(rng.randrange(3))])
        for i in range(1500)
    ]  # fmt: skip
    path = write_log(tmp_path, batch(0, records), batch(2**62, records[:300], base_time=-(2**63)))
    assert_same(capfdbinary, path, "--format", form, "--key-format", how, "--value-format", how)


@pytest.mark.sampled(4, each_value=True)
@pytest.mark.parametrize("how", BYTES)
@pytest.mark.parametrize(
    "odd",
    [None, b"", b"null", b'""', b'"null"', b"\t", b"\xff", "漢字".encode(), b"\xc2\xad", b"0x"],
)
def test_cells_of_plain_columns(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], odd: bytes | None, how: str
):
    """One odd key or value among plain ones, and a marker or a header near plain records."""
    plain = [record(i, b"key-%d" % i, b"value %d" % i) for i in range(60)]
    path = write_log(
        tmp_path,
        batch(0, [*plain[:20], record(20, odd, b"v"), *plain[21:]]),
        batch(60, [*plain[:59], record(59, b"k", odd)], base_time=-5),
        batch(120, plain, base_time=10**15),
        batch(180, [record(0, b"\0\0\0\1", bytes(6))], attributes=0x30, producer=(7, 0, -1)),
        batch(181, [*plain[:59], record(59, b"k", b"v", headers=[(b"h", odd)])]),
    )
    assert assert_same(capfdbinary, path.parent, "--key-format", how, "--value-format", how)[1]
    assert_same(
        capfdbinary,
        path.parent,
        "--key-format",
        how,
        "--value-format",
        how,
        "--limit",
        75,
        "--exact",
    )


CELLS = (
    None, b"", b"null", b'""', b'"null"', b"nul", b'"nul"', b" ends in blanks  ", b"   ", b"x",
    b"{" + bytes(range(32, 127)) + b"}", b"y" * 64, b"z" * 65, "Zürich 東京".encode(), b"\x1b[31m",
)  # fmt: skip
TIMES = (1_700_000_000_000, 1_698_539_400_000, 1_711_846_800_000, 951_782_400_000)
"""An autumn day, when clocks go back and when they go forward, a day of a leap year."""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
def test_rows_of_tables(
    zone: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """Widths grow, times get milliseconds, and some rows are not plain; of two partitions."""
    monkeypatch.setattr(table, "_CHUNK", 40)
    monkeypatch.setattr(table, "_CHUNK_SIZE", 6000)
    rng = random.Random(zone)
    for name, first in (("orders-0", 97), ("orders-1", 999_990)):
        offset, batches = first, []
        for _ in range(60):
            plain = rng.random() < 0.7
            cells = CELLS[:2] + CELLS[-6:-2] if plain else CELLS
            step = rng.choice((1, 1000, 1000, 3_600_000))
            records = [
                record(i, rng.choice(cells), rng.choice(cells), time_delta=i * step,
                       headers=() if plain or rng.random() < 0.9 else ((b"h", b"1"),))
                for i in range(rng.randrange(1, 40))
            ]  # fmt: skip
            start = rng.choice((*TIMES, *TIMES, -1 if not plain else TIMES[0]))
            batches.append(batch(offset, records, base_time=start, max_time=start))
            offset += len(records)
        write_log(tmp_path / name, *batches)
    _, out, _ = assert_same(capfdbinary, tmp_path, "--tz", zone)
    assert out.count(b"\n") > 1500


def test_every_size_of_text_ends_where_it_should(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    """Texts are copied eight bytes at a time: one special character at each place of each size."""
    texts = [
        b"x" * before + special + b"x" * behind
        for special in (b"", b'"', b"\x1f", b"\x20", b"\xc3\xa9", b"\xff")
        for before in range(18)
        for behind in (0, 1, 7, 8, 9)
    ]
    records = [record(i, text_, text_) for i, text_ in enumerate(texts)]
    path = write_log(tmp_path, batch(0, records))
    for form in ("ndjson", "csv"):
        assert_same(capfdbinary, path, "--format", form)


NUMBERS = [0, 9, 10, 99, 100, 101, 999_999_99, 10**8, 10**9 - 1, 10**18, 10**18 - 1, 2**63 - 1]


def test_numbers_of_every_length(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Positive and negative numbers, including the 64-bit extremes."""
    made = [
        batch(first, [record(0)], base_time=time, max_time=time, producer=(first, 2**15 - 1, 2**31
              - 1), epoch=-(2**31), attributes=64)
        for first in (*NUMBERS, *(-number - 1 for number in NUMBERS))
        for time in (first, ~first)
    ]  # fmt: skip
    path = write_log(tmp_path, *made)
    for form in FORMATS:
        for what in ((), ("--batches",)):
            assert_same(capfdbinary, path, what, "--format", form)


def test_lines_longer_than_a_block(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Values of megabytes, one that grows sixfold, many headers, and an odd line of any size."""
    many = [(b"header-%d" % i, bytes(20)) for i in range(20_000)]
    data = [
        batch(0, [record(0, b"k", b"v" * (3 << 20)), record(1, b"\0" * (1 << 20), None)]),
        batch(2, [record(0, b"k", b"v", headers=many)]),
        batch(3, [record(0, b"k", b"v" * (2 << 20), headers=[(b"\xff", b"")])]),
        flip(batch(4, [record(0)]), 8 * 17),
    ]
    path = write_log(tmp_path, *data)
    for form in ("ndjson", "csv", "kafka"):
        assert_same(capfdbinary, path, "--format", form)


def test_a_segment_that_cannot_be_read_ends_its_partition(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    """Rows before it are printed. Chunks are read ahead, but errors are not reported ahead."""
    partition = tmp_path / "orders-0"
    for base in (0, 5):
        write_log(partition, batch(base, [record(i) for i in range(5)]), name=f"{base:020}")
    (partition / f"{10:020}.log").symlink_to("nowhere")
    for form in FORMATS:
        found = assert_same(capfdbinary, partition, "--format", form)
        assert found[0] == 3
        assert b"path-not-found" in found[2]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [(), ("--batches",)], ids=["records", "batches"])
def test_a_limit_before_a_lost_segment_is_reached_without_a_finding(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], form: str, kind: tuple[str, ...]
):
    """All wanted rows are shown; the first row after the gap makes it matter."""
    partition = tmp_path / "orders-0"
    for base in (0, 10):
        data = [batch(base + i, [record(0)]) for i in range(5)]
        write_log(partition, *data, name=f"{base:020}")
    argv = (partition, "--format", form, *kind, "--limit")
    assert [assert_same(capfdbinary, *argv, limit)[0] for limit in (3, 5, 6)] == [0, 0, 8]


def test_a_few_rows_of_a_large_log_need_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They are printed before the kernels could be loaded; a search may have to read everything."""
    from kafkalog.files.log_dir import open_path
    from kafkalog.log.batches.selection import Selection
    from kafkalog.node.reader import plan_reading

    path = write_log(tmp_path, batch(0, [record(0, None, bytes(5000))]))
    entry: Any = open_path(str(path))
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 5000)
    assert bulk.is_bulk(plan_reading(entry, Selection()))
    assert not bulk.is_bulk(plan_reading(entry, Selection(limit=10)))
    assert bulk.is_bulk(plan_reading(entry, Selection(limit=10, key=b"k")))
    assert bulk.is_bulk(plan_reading(entry, Selection(limit=10_000)))
    assert not bulk.is_bulk(plan_reading(entry, Selection(max_bytes=4999)))
    assert not bulk.is_bulk(plan_reading(entry, Selection(from_position=100)))
    assert not bulk.is_bulk(plan_reading(entry, Selection(from_offset=1, to_offset=1, limit=0)))


def test_sequences_of_offsets_that_wrap(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Offset and sequence come from the same delta, even if the offset overflows 64 bits."""
    data = batch(2**63 - 1, [record(0), record(1), record(2)], producer=(7, 1, 2**31 - 2))
    path = write_log(tmp_path / "__cluster_metadata-0", data)
    for form in FORMATS:
        assert_same(capfdbinary, path, "--format", form)
    output = assert_same(capfdbinary, path, "--format", "ndjson")[1]
    rows = [json.loads(line) for line in output.splitlines()]
    defect, *rows = rows
    assert defect["reference"] == "batch-offset-not-increasing"
    assert [row["sequence"] for row in rows] == [2**31 - 2, 2**31 - 1, 0]


@pytest.mark.parametrize("kind", [RECORD, BATCH], ids=lambda kind: kind.name)
def test_kernels_write_every_field(kind: ObjectType[Any]) -> None:
    """A field without a kernel would slow large logs down, or end the run: its name is here."""
    names = set(kind.view(Style()).names)
    assert names
    assert names - objects.FIELDS.keys() - bulk.CONSTANTS == set()
