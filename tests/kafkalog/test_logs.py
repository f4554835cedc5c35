"""The front door: what `kafkalog.open` returns, and how damage reaches the caller."""

from __future__ import annotations

import dataclasses
import re
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.answers.logs import Wanted, selection_of
from kafkalog.errors import NotAKafkaFileError, NotFoundError, UnreadableError, UsageError
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Batch, Defect, Isolation, LogView, Record
from kafkalog.node.reader import read_batches, read_records
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.test_view import INTERRUPTED, killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ORDERS = "examples/log-dir/orders-0"
DAMAGED = "examples/damaged/orders-0"


@pytest.fixture
def damaged(tmp_path: Path) -> kafkalog.Log:
    """Three batches of ten records, the second with a wrong checksum."""
    made = [batch(first, [record(i) for i in range(10)]) for first in (0, 10, 20)]
    return kafkalog.Log(write_log(tmp_path / "t-0", made[0], flip(made[1], 8 * 17), made[2]).parent)


def test_a_log_directory_is_a_mapping_of_logs() -> None:
    """Its keys are the names of the partition directories."""
    log_dir = kafkalog.open("examples/log-dir")
    assert isinstance(log_dir, kafkalog.LogDir)
    assert [*log_dir][:2] == ["__cluster_metadata-0", "__consumer_offsets-0"]
    assert len(log_dir) == 7
    assert "orders-0" in log_dir
    assert "orders-1" not in log_dir
    log = log_dir["orders-0"]
    assert (log.path, log.name, log.topic, log.partition) == (ORDERS, "orders-0", "orders", 0)
    assert [segment.base_offset for segment in log.segments] == [0, 250, 500, 750]
    assert all(isinstance(one, kafkalog.Log) for one in log_dir.values())


def test_one_segment_is_a_log() -> None:
    """It has the topic and the partition of its directory."""
    path = f"{ORDERS}/00000000000000000250.log"
    log = kafkalog.open(path)
    assert isinstance(log, kafkalog.Log)
    assert (log.name, log.topic, log.partition) == ("00000000000000000250.log", "orders", 0)
    assert [found.offset for found in log.records()] == [*range(250, 500)]
    assert [segment.base_offset for segment in log.segments] == [250]
    with pytest.raises(UsageError, match="not a partition directory"):
        log.lookup(offset=250)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("examples/nowhere", NotFoundError),
        ("README.md", NotAKafkaFileError),
        (f"{ORDERS}/00000000000000000250.index", UsageError),
        ("examples/log-dir/meta.properties", UsageError),
    ],
)
def test_what_holds_no_records_is_not_opened(name: str, error: type[Exception]) -> None:
    """An index read as a log would be nothing but damage."""
    with pytest.raises(error):
        kafkalog.open(name)
    with pytest.raises(error):
        kafkalog.Log(name).records()


def test_a_log_directory_is_no_log_and_the_other_way_round() -> None:
    """`Log` and `LogDir` tell a type checker which of the two a path is."""
    with pytest.raises(UsageError, match="not a log directory"):
        kafkalog.LogDir(ORDERS)
    with pytest.raises(UsageError, match="name one of its partitions"):
        kafkalog.Log("examples/log-dir").records()


def test_a_partition_that_cannot_be_listed_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is listed; only using it raises the error."""
    from kafkalog.files import log_dir as listing

    for name in ("a-0", "b-0"):
        write_log(tmp_path / name, batch(0, [record()]))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    listed = listing.list_files

    def failing(path: str) -> Any:
        if path.endswith("a-0"):
            raise UnreadableError("Permission denied.", path=path)
        return listed(path)

    monkeypatch.setattr(listing, "list_files", failing)
    found = kafkalog.LogDir(tmp_path)
    assert [*found] == ["a-0", "b-0"]
    with pytest.raises(UnreadableError):
        found["a-0"].records()
    assert len(list(found["b-0"].records())) == 1


def test_records_and_batches_are_those_of_the_readers() -> None:
    """They come in the same order."""
    log = kafkalog.Log(ORDERS)
    assert list(log.records()) == list(read_records(ORDERS))
    assert list(log.batches()) == list(read_batches(ORDERS))
    assert log.scan().count_rows() == log.scan(["key"]).to_table().num_rows == 1000
    assert log.scan(batches=True).count_rows() == len(list(log.batches()))


def rows_of(read: Callable[..., Any], **options: Any) -> list[int]:
    return [found.offset for found in read(**options)]


def scanned(log: kafkalog.Log, **options: Any) -> list[int]:
    found: list[int] = log.scan(["offset"], **options).to_table()["offset"].to_pylist()
    return found


@pytest.mark.parametrize("size_min", [0, 1 << 30])
def test_damage_is_raised_where_it_is_met(
    damaged: kafkalog.Log, size_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader raises it with the details of the defect."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    seen: list[int] = []
    with pytest.raises(kafkalog.CorruptDataError) as caught:
        seen.extend(found.offset for found in damaged.records())
    assert seen == [*range(10)]
    [defect] = [one for one in read_records(damaged.path) if isinstance(one, Defect)]
    error = caught.value
    assert (error.reference, error.path, error.position, error.hint) == (
        "batch-crc-mismatch", defect.path, defect.position, defect.hint,
    )  # fmt: skip
    for read in (
        lambda: list(damaged.batches()),
        damaged.scan().to_table,
        damaged.scan().count_rows,
        damaged.scan().to_reader().read_all,
        damaged.scan(batches=True).to_table,
    ):
        with pytest.raises(Exception, match="does not match its checksum"):
            read()


@pytest.mark.parametrize("size_min", [0, 1 << 30])
def test_on_defect_is_given_the_damage_and_reading_goes_on(
    damaged: kafkalog.Log, size_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that can be decoded is returned; `sound` leaves out batches with a wrong checksum."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    sound = [*range(10), *range(20, 30)]
    for read in (lambda **options: rows_of(damaged.records, **options),
                 lambda **options: scanned(damaged, **options)):  # fmt: skip
        told: list[Defect] = []
        assert read(on_event=told.append) == [*range(30)]
        assert [defect.reference for defect in told] == ["batch-crc-mismatch"]
        assert read(on_event=told.append, sound=True) == sound
        assert len(told) == 2
    told.clear()
    assert len(list(damaged.batches(on_event=told.append))) == 3
    assert len(told) == 1


def test_what_a_start_would_cut_off_is_raised_first(tmp_path: Path) -> None:
    """Hidden records are never left out silently."""
    made = batch(2, [record()])
    path = killed(tmp_path, batch(0, [record(), record(1)]), made[:-2] + bytes([made[-2] ^ 1, 0]))
    log = kafkalog.Log(path)
    with pytest.raises(kafkalog.CorruptDataError, match="--view as-is") as caught:
        log.records()[0]
    assert caught.value.reference == "view-differs"
    with pytest.raises(kafkalog.CorruptDataError, match="--view as-is"):
        log.scan().to_table()
    told: list[Defect] = []
    assert rows_of(log.records, on_event=told.append) == scanned(log, on_event=told.append)
    assert [defect.reference for defect in told] == ["view-differs"] * 2
    assert rows_of(log.records, on_event=told.append) == [0, 1]


def test_a_view_that_hides_nothing_is_read(corpus_dir: Path, tmp_path: Path) -> None:
    """An interrupted swap is completed: all records are there."""
    states = corpus_dir / "kafka-4.3"
    path = states / "interrupted-1-swap" / INTERRUPTED
    wanted = list(read_records(states / "interrupted-2-swap-recovered" / INTERRUPTED))
    assert rows_of(kafkalog.Log(path).records) == [
        found.offset for found in wanted if isinstance(found, Record)
    ]
    told: list[Defect] = []
    copy = tmp_path / INTERRUPTED
    shutil.copytree(path, copy)
    list(kafkalog.Log(copy).records(on_event=told.append))
    assert [defect.reference for defect in told] == ["view-differs"]


def test_zeros_after_the_log_are_a_note(tmp_path: Path) -> None:
    """A preallocated file is not damaged."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]), bytes(200)).parent
    assert rows_of(kafkalog.Log(path).records) == [0]


def test_arguments_are_those_of_a_selection() -> None:
    """Each field of `Selection` is a keyword argument."""
    names = [field.name for field in dataclasses.fields(Selection)]
    assert [*Wanted.__annotations__] == names
    with pytest.raises(TypeError, match="'key_regx'"):
        kafkalog.Log(ORDERS).records(key_regx="x")  # type: ignore[call-arg]


def test_arguments_may_be_text_and_times() -> None:
    """Text and times mean the same as bytes and milliseconds."""
    at = datetime(2024, 1, 1, 0, 17, 40, tzinfo=UTC)
    found = selection_of({
        "from_time": at, "to_time": 1704067461000, "key": "user-1", "key_regex": "^u",
        "value_regex": b"x", "header": ("h", "é"), "isolation": "read_committed", "view": "as-is",
        "limit": None,
    })  # fmt: skip
    assert found == Selection(
        from_time=1704068260000, to_time=1704067461000, key=b"user-1", key_regex=re.compile(b"^u"),
        value_regex=re.compile(b"x"), header=(b"h", "é".encode()),
        isolation=Isolation.READ_COMMITTED, view=LogView.AS_IS,
    )  # fmt: skip
    assert selection_of({"header": "h"}) == Selection(header=(b"h", None))


@pytest.mark.parametrize(
    "wanted",
    [{"from_time": datetime(2024, 1, 1)}, {"isolation": "serializable"}, {"view": "none"},
     {"key_regex": "("}],
    ids=repr,
)  # fmt: skip
def test_arguments_without_a_meaning_are_refused(wanted: Any) -> None:
    """They are refused before anything is read."""
    with pytest.raises(UsageError):
        kafkalog.Log("examples/nowhere").records(**wanted)


def test_isolation_is_a_consumers(tmp_path: Path) -> None:
    """Up to the high watermark, or the whole log; read_committed as in Kafka's consumers."""
    write_log(tmp_path / "t-0", *(batch(i, [record()]) for i in range(10)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    log = kafkalog.Log(tmp_path / "t-0")
    assert rows_of(log.records) == [*range(10)]
    for isolation in ("read_uncommitted", "read_committed"):
        assert rows_of(log.records, isolation=isolation) == [4, 5, 6]
        assert scanned(log, isolation=isolation) == [4, 5, 6]
    assert rows_of(log.records, isolation="read_uncommitted", to_offset=6) == [4, 5]
    payments = kafkalog.Log("examples/log-dir/payments-0")
    counts = [payments.scan(isolation=one).count_rows() for one in ("log", "read_committed")]
    assert counts == [48, 27]


def test_offsets_have_sources(tmp_path: Path) -> None:
    """They come in the order of the log, with those that brokers keep in checkpoints last."""
    write_log(tmp_path / "t-0", *(batch(i, [record()]) for i in range(10)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    found = kafkalog.Log(tmp_path / "t-0").offsets
    assert [(one.name, one.value, one.source) for one in found] == [
        ("log start offset", 0, "log"),
        ("log end offset", 10, "log"),
        ("high watermark", 7, "checkpoint"),
        ("last stable offset", 7, "checkpoint"),
        ("recovery point", None, "checkpoint"),
        ("cleaner offset", None, "checkpoint"),
    ]


def test_lookups_answer_as_a_broker() -> None:
    """Lookups by offset, by time, and for the special timestamps of ListOffsets."""
    log = kafkalog.Log(ORDERS)
    found = log.lookup(offset=300).record
    assert found is not None
    wanted = log.records(from_offset=300)[0]
    assert (found.offset, found.key, found.value) == (300, wanted.key, wanted.value)
    at = datetime.fromtimestamp(1704067460, UTC)
    assert log.lookup(timestamp=at) == log.lookup(timestamp=1704067460000)
    assert log.lookup(timestamp=at).offset == 260
    specials = ("earliest", "latest", "max-timestamp")
    assert [log.lookup(timestamp=name).offset for name in specials] == [0, 1000, 999]
    assert log.lookup(timestamp="latest", high_watermark=400).offset == 400
    assert log.lookup(timestamp="latest", high_watermark=400, isolation="log").offset == 1000
    for wrong in ({}, {"offset": 1, "timestamp": 2}, {"timestamp": "newest"}):
        with pytest.raises(UsageError):
            log.lookup(**wrong)  # type: ignore[arg-type]


def test_a_log_is_read_as_it_is_now(tmp_path: Path) -> None:
    """A handle caches nothing."""
    path = write_log(tmp_path / "t-0", batch(0, [record()])).parent
    log = kafkalog.Log(path)
    assert len(list(log.records())) == 1
    write_log(path, batch(1, [record()]), name="00000000000000000001")
    assert [found.base_offset for found in log.batches() if isinstance(found, Batch)] == [0, 1]
    assert log.offsets.log_end_offset.value == 2


def test_arrow_readers_take_a_scan() -> None:
    """The C stream protocol passes only the columns and rows that were asked for."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(kafkalog.Log(ORDERS).scan(["offset", "key"], limit=3))
    assert frame["offset"].to_list() == [0, 1, 2]
    assert frame.columns == ["offset", "key"]


def test_verify_finds_what_reading_meets() -> None:
    """For one log and for a log directory."""
    references = ["batch-crc-mismatch", "batch-length-invalid"]
    for target in (kafkalog.Log(DAMAGED), kafkalog.LogDir("examples/damaged")):
        findings = target.verify(level="deep")
        assert [defect.reference for defect in findings] == references
        assert findings.summary.records == 230
    assert [defect.reference for defect in kafkalog.verify(DAMAGED)] == references
