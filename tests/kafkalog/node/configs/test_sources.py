"""Precedence of sources, names of broker configs, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.node.configs import ConfigSources
from tests.kafkalog.node.configs.test_metadata_configs import config, log_dir

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000


def value(given: dict[str, str], name: str) -> object:
    return ConfigSources(given).in_log_dir("/nowhere").of_topic("events")[name].value


@pytest.mark.parametrize(
    ("given", "name", "wanted"),
    [
        ({}, "retention.ms", 168 * HOUR),
        ({"log.retention.hours": "2"}, "retention.ms", 2 * HOUR),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, "retention.ms", 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, "retention.ms", 7),
        ({"log.retention.ms": "7", "retention.ms": "9"}, "retention.ms", 9),
        ({"log.retention.hours": "-3"}, "retention.ms", -1),
        ({"log.roll.hours": "1"}, "segment.ms", HOUR),
        ({"log.roll.hours": "1", "log.roll.ms": "4"}, "segment.ms", 4),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", HOUR),
        ({"log.flush.scheduler.interval.ms": "8"}, "flush.ms", 8),
        ({"log.index.size.max.bytes": "75"}, "segment.index.bytes", 75),
        ({"log.cleanup.policy": "compact, delete"}, "cleanup.policy", ("compact", "delete")),
        ({"cleanup.policy": ""}, "cleanup.policy", ()),
        ({"segment.bytes": "2000000", "internal.segment.bytes": "9"}, "segment.bytes", 9),
        ({"preallocate": "TRUE"}, "preallocate", True),
        ({"min.cleanable.dirty.ratio": "1.0E-4"}, "min.cleanable.dirty.ratio", 0.0001),
        ({"retention.bytes": "+5"}, "retention.bytes", 5),
    ],
)
def test_names_and_units_are_kafkas(given: dict[str, str], name: str, wanted: object) -> None:
    """The first name of a config that is set counts; minutes and hours become milliseconds."""
    assert value(given, name) == wanted


@pytest.mark.parametrize(
    "text",
    ["retention.ms=-2", "retention.ms=1e3", "retention.ms=", "log.retention.ms=0",
     "segment.index.bytes=3", "segment.bytes=2147483648", "segment.bytes=13", "segment.ms=0",
     "cleanup.policy=Delete", "cleanup.policy=delete,delete", "preallocate=yes",
     "min.cleanable.dirty.ratio=1.1", "min.cleanable.dirty.ratio=nan",
     "compression.gzip.level=0", "message.timestamp.type=createtime",
     "retention.ms=9223372036854775808", "log.retention.hours=2147483648"],
)  # fmt: skip
def test_values_that_no_broker_takes_are_refused(text: str) -> None:
    """The error comes at once, for any topic, and has the name."""
    name, _, text = text.partition("=")
    with pytest.raises(UsageError, match=name):
        ConfigSources({name: text})


def test_unknown_names_are_refused_with_their_neighbours() -> None:
    """A typo must not become a default."""
    with pytest.raises(UsageError) as refused:
        ConfigSources({"retention.mss": "1"})
    assert "retention.ms" in (refused.value.hint or "")


def test_sources_in_their_order(tmp_path: Path) -> None:
    """Options, then the topic's own, then the properties file: a broker's order."""
    path = log_dir(tmp_path, [config("retention.ms", "1"), config("segment.ms", "2")])
    file = tmp_path / "server.properties"
    file.write_text("# limits\nlisteners=PLAINTEXT://:9092\n\nlog.retention.ms=3\nlog.roll.ms=4\n")
    given = {"segment.ms": "5"}
    configs = ConfigSources(given, str(file)).in_log_dir(path).of_topic("events")
    assert configs["retention.ms"].value == 1
    assert (configs["segment.ms"].value, configs["segment.ms"].source) == (5, "--config")
    assert (configs["segment.bytes"].value, configs["segment.bytes"].source) == (1 << 30, "default")
    other = ConfigSources(given, str(file)).in_log_dir(path).of_topic("others")["retention.ms"]
    assert (other.value, other.source) == (3, f"{file}:4")


def test_topics_of_brokers_are_compacted_where_nothing_says_so(tmp_path: Path) -> None:
    """Without a metadata log, Kafka's default would be wrong for them, and would delete records."""
    configs = ConfigSources().in_log_dir(str(tmp_path))
    for topic in ("__consumer_offsets", "__transaction_state"):
        found = configs.of_topic(topic)["cleanup.policy"]
        assert (found.value, found.source) == (("compact",), "as brokers create it")
    assert configs.of_topic("events")["cleanup.policy"].value == ("delete",)


def test_lines_of_properties_are_counted(tmp_path: Path) -> None:
    """Over comments, blank lines, continued lines and all line ends."""
    file = tmp_path / "server.properties"
    file.write_bytes(b"! a\r\n\r\nlog.roll.\\\n  ms = 6\rlog.retention.ms: 8\nlog.roll.ms 7\n")
    configs = ConfigSources(properties=str(file)).in_log_dir(str(tmp_path)).of_topic("events")
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == (8, f"{file}:5")
    assert (configs["segment.ms"].value, configs["segment.ms"].source) == (7, f"{file}:6")


def test_bad_values_name_their_line(tmp_path: Path) -> None:
    """The error for a properties file names the line."""
    file = tmp_path / "server.properties"
    file.write_text("a=b\nlog.retention.ms=soon\n")
    with pytest.raises(UsageError, match=f"{file}:2"):
        ConfigSources(properties=str(file))


def test_a_bad_value_in_the_metadata_log_is_an_error_when_it_is_used(tmp_path: Path) -> None:
    """It is never guessed; the topic's other configs can still be read."""
    path = log_dir(tmp_path, [config("retention.ms", "soon"), config("segment.ms", "2")])
    configs = ConfigSources().in_log_dir(path).of_topic("events")
    assert configs["segment.ms"].value == 2
    with pytest.raises(CorruptDataError, match="offset 0"):
        configs["retention.ms"]
