"""What a notebook shows of the library: names behind Tab, and a line for each object."""

import pytest

import kafkalog

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
        log.lookup(offset=1000), next(iter(log.records())), next(iter(log.batches())),
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
