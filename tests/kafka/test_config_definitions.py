"""The table of configs against Kafka's own: names, kinds, defaults, synonyms, bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.node.configs.definitions import DEFINITIONS, Synonym, parse_value
from tests.kafka import broker_data

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

TEXTS = ("", " ", "0", "1", "-1", "-2", "-3", "3", "4", "9", "10", "13", "14", "17", "18", "22",
         "23", "+5", " 7 ", "1048575", "1048576", "2147483647", "2147483648", "-131072", "-131073",
         "9223372036854775807", "9223372036854775808", "0.5", "1.0", "1.5", "1e-3", ".5", "5.",
         "true", "TRUE", "yes", "delete", "compact", "Delete", "delete,compact", "delete , compact",
         "delete,delete", "producer", "gzip", "none", "CreateTime", "LogAppendTime", "createtime",
         "0x10", "1_0", "abc")  # fmt: skip
# The internal name has a place of its own, and old topics have segments below 1 MiB.
OURS_ALONE = {("segment.bytes", text) for text in ("14", "17", "18", "22", "23", "1048575")}
# Lists of replicas: nothing here reads them.
UNCHECKED = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}


def ours(name: str, text: str) -> Any:
    try:
        value = parse_value(DEFINITIONS[name], text, Synonym(name))
    except ValueError:
        return None
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.usefixtures("harness")
def test_configs_are_kafkas(tmp_path: Path) -> None:
    """Every config of a topic, with the values that it allows."""
    lines = broker_data.java("kafkalog.harness.TopicConfigs", *TEXTS, cwd=tmp_path).splitlines()
    kafkas = {line["name"]: line for line in map(json.loads, lines)}
    of_topics = {
        name
        for name, one in DEFINITIONS.items()
        if not one.is_of_broker and one.since in (None, *broker_data.KNOWN)
    }
    assert set(kafkas) - {"internal.segment.bytes"} == of_topics
    wrong = []
    for name in sorted(of_topics):
        one, kafka = DEFINITIONS[name], kafkas[name]
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        assert (one.kind, default) == (kafka["type"], kafka["default"]), name
        assert [synonym.name for synonym in one.synonyms] == kafka["synonyms"], name
        for synonym, seven in zip(one.synonyms, kafka["sevens"], strict=True):
            assert str(7 * synonym.factor) == seven, synonym
        if name in UNCHECKED:
            continue
        wrong += [
            (name, text, ours(name, text), kafka["taken"].get(text))
            for text in TEXTS
            if (name, text) not in OURS_ALONE and ours(name, text) != kafka["taken"].get(text)
        ]
    assert not wrong


@pytest.mark.parametrize(("name", "text"), sorted(OURS_ALONE))
def test_exceptions_are_needed(name: str, text: str) -> None:
    """Brokers before 4.1 accepted these values, so we do, too."""
    assert ours(name, text) == int(text)
