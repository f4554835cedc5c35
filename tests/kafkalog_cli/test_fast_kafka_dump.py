"""Kafka's text from the kernels equals the reference decoder's: lines, reports and status."""

from __future__ import annotations

import random
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.io.jit import fast_path
from kafkalog.log.text import kafka_text
from kafkalog_cli.main import run
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.kafkalog.log.columns.test_twins import logs
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

DEEP = ("--deep-iteration", "--print-data-log")
OPTIONS = (
    (), ("--deep-iteration",), DEEP, (*DEEP, "--max-bytes", "300"),
    (*DEEP, "--skip-record-metadata"), ("--deep-iteration", "--skip-record-metadata"),
)  # fmt: skip


def outputs(
    capture: pytest.CaptureFixture[bytes], *argv: object, command: str = "kafka-dump-log"
) -> list[Any]:
    """Return status, stdout and stderr without and with the kernels."""
    found = []
    for size_min in (1 << 40, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
            patch.setattr(kafka_text.KafkaText, "rows_max", 50)
            capture.readouterr()
            status = run([command, *map(str, argv)])
            found.append((status, *capture.readouterr()))
    return found


def assert_same(capture: pytest.CaptureFixture[bytes], *argv: object) -> bytes:
    slow, fast = outputs(capture, *argv)
    assert fast == slow
    return fast[1]


@pytest.mark.sampled(43)
def test_the_corpus_reads_the_same(any_state: State, capfdbinary: pytest.CaptureFixture[bytes]):
    """Every log of every broker, sound and torn."""
    paths = [path for log_dir in any_state.log_dirs for path in sorted(log_dir.glob("*/*.log"))]
    for options in OPTIONS:
        assert_same(capfdbinary, *options, "--files", ",".join(map(str, paths)))


@settings(max_examples=examples(100))
@given(data=logs(), options=st.sampled_from(OPTIONS))
def test_generated_and_damaged_logs_read_the_same(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], data: bytes, options: tuple[str, ...]
):
    """Gaps, wrong checksums, undecodable records and tails."""
    assert_same(capfdbinary, *options, "--files", write_log(tmp_path, data))


def test_a_control_batch_of_which_no_record_can_be_told_has_one_line(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    """The batch of as many malformed control records as are reported at a time appears once."""
    marker = bytes(4)
    for malformed in (b"", b"\xdb\x0b\0\0"):
        for count in (49, 50, 51):
            records = [record(i, malformed, marker) for i in range(count)]
            log = write_log(tmp_path, batch(0, records, attributes=0x20, producer=(1, 0, -1)))
            slow, fast = outputs(capfdbinary, log, "--format", "kafka", command="dump-segment")
            assert fast == slow
            assert fast[1].count(b"baseOffset: 0 ") == 1


def test_numbers_of_every_length(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Around every power of ten, of both signs, up to 64 bits."""
    numbers = {0, 2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63}
    numbers |= {sign * (10**i + d) for i in range(19) for d in (-1, 0, 1) for sign in (1, -1)}
    numbers |= {int(digits * 18) for digits in "123456789"}
    times = sorted(numbers)
    deltas = [(number - BASE_TIME + 2**63) % 2**64 - 2**63 for number in times]
    records = [record(i, time_delta=delta) for i, delta in enumerate(deltas)]
    path = write_log(tmp_path, batch(0, records))
    printed = assert_same(capfdbinary, *DEEP, "--files", path)
    found = re.findall(rb"^\| offset: (\d+) CreateTime: (-?\d+) ", printed, re.MULTILINE)
    assert [(int(offset), int(time)) for offset, time in found] == list(enumerate(times))


def test_text_that_is_no_utf_8(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """Java's replacement characters, for surrogates, overlong forms and cut characters, too."""
    rng = random.Random(3)
    pieces = [b"a", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xff",
              b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xed\x9f\xbf", b"\xe2\x82",
              b"\xf0\x8f\xbf\xbf", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf", b"\x80", b"\0",
              b"\n"]  # fmt: skip
    texts = [b"".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(900)]
    records = [
        record(i, texts[3 * i], texts[3 * i + 1], headers=[(texts[3 * i + 2], b"x"), (b"n", None)])
        for i in range(300)
    ]
    path = write_log(tmp_path, batch(0, records))
    printed = assert_same(capfdbinary, *DEEP, "--files", path)
    assert printed.count(b"| offset: ") == 300


def test_lines_longer_than_a_block(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    """A value of several megabytes, a longer key, many headers."""
    many = [(b"header-%d" % i, bytes(20)) for i in range(90_000)]
    data = [
        batch(0, [record(0, b"k", b"v" * (3 << 20)), record(1, b"k" * (2 << 20), None)]),
        batch(2, [record(0, b"k", b"v", headers=many)]),
        flip(batch(3, [record(0)]), 8 * 17),
    ]
    path = write_log(tmp_path, *data)
    assert len(assert_same(capfdbinary, *DEEP, "--files", path)) > 6 << 20


def test_a_small_log_needs_no_engine(corpus_dir: Path, capfdbinary: Any):
    """Small logs are printed without it; so is text for decoders or on a terminal."""
    sys.modules.pop("kafkalog.log.text.kafka_text", None)
    [path] = sorted((corpus_dir / "kafka-4.3" / "txn").glob("txn-0/*.log"))[:1]
    assert run(["kafka-dump-log", *DEEP, "--files", str(path)]) == 0
    assert "kafkalog.log.text.kafka_text" not in sys.modules
    capfdbinary.readouterr()
