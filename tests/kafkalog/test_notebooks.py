"""What a notebook shows of the library: names behind Tab, and a line for each object."""

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

import kafkalog
from kafkalog.errors import UsageError
from kafkalog.io.times import Time

LOG_DIR = "examples/log-dir"
LINE_MAX = 100


def test_tab_offers_the_public_names() -> None:
    """And nothing else: `dir` of a module lists what it has loaded, here nothing."""
    assert dir(kafkalog) == kafkalog.__all__
    assert {"open", "verify", "Log"} <= set(dir(kafkalog))


@pytest.fixture(scope="module")
def objects() -> list[object]:
    """One of each kind that functions return."""
    log_dir = kafkalog.LogDir(LOG_DIR)
    log = log_dir["orders-0"]
    findings = kafkalog.verify("examples/damaged")
    cluster = kafkalog.groups(LOG_DIR)
    return [
        log_dir, log, log.segments[0], log.offsets, *log.offsets, log.lookup(offset=260),
        log.lookup(offset=1000), log.records()[0], log.batches()[0],
        log.scan(), log.scan(batches=True), *findings, findings, findings.summary,
        cluster, *cluster.groups.values(), kafkalog.transactions(LOG_DIR),
        kafkalog.metadata(LOG_DIR), *kafkalog.profile(log), kafkalog.report(LOG_DIR),
        kafkalog.dataset(LOG_DIR), *kafkalog.simulate_retention(log), *kafkalog.simulate_roll(log),
        *kafkalog.find(LOG_DIR, key="order-7"),
    ]  # fmt: skip


def test_each_object_is_shown_on_one_line(objects: list[object]) -> None:
    """Of at most 100 characters, with its class, whatever is in it."""
    for one in objects:
        line = repr(one)
        assert len(line) <= LINE_MAX, line
        assert "\n" not in line
        assert "object at" not in line
    assert repr(objects[0]) == "LogDir('examples/log-dir', 7 logs)"
    [lookup] = [one for one in objects if repr(one).startswith("Lookup(offset")]
    assert repr(lookup) == "Lookup(offset=260, position=471, segment=250)"


@pytest.mark.parametrize(
    "time",
    [
        1704067460000,
        np.int64(1704067460000),
        datetime(2024, 1, 1, 1, 4, 20, tzinfo=timezone(timedelta(hours=1))),
        "2024-01-01T00:04:20Z",
        "@1704067460",
    ],
)
def test_a_time_is_given_in_each_form(time: Time) -> None:
    """Milliseconds, as numpy has them too, a `datetime` with a zone, or the command line's text."""
    log = kafkalog.Log(f"{LOG_DIR}/orders-0")
    assert log.lookup(timestamp=time).offset == 260
    assert log.records(from_time=time, limit=1)[0].offset == 260
    moments = [kafkalog.transactions(LOG_DIR, at=one).ids for one in (time, "+1d")]
    assert [len(ids) for ids in moments] == [0, 1]


@pytest.mark.parametrize("time", [datetime(2024, 1, 1), "noon", 1.5])  # on purpose
def test_what_is_no_time_is_refused(time: Any) -> None:
    """A `datetime` without a zone, too: it would be read in that of the machine."""
    with pytest.raises(UsageError, match=r"no time zone|not a time"):
        kafkalog.Log(f"{LOG_DIR}/orders-0").records(from_time=time)


def test_a_wrong_word_is_refused_with_those_that_there_are() -> None:
    """As on the command line, and in each function alike."""
    log = kafkalog.Log(f"{LOG_DIR}/orders-0")
    for call in (
        lambda: log.records(isolation="commited"),  # type: ignore[typeddict-item]
        lambda: log.verify(level="deepest"),
        lambda: [*kafkalog.find(log, replicas="one")],
        lambda: [*kafkalog.diff(log, log, view="now")],
        lambda: kafkalog.recover(log, mode="dirty"),
        lambda: kafkalog.dataset(log, end="start"),
    ):
        with pytest.raises(UsageError, match="is not known") as caught:
            call()
        assert "There are " in str(caught.value.hint)
