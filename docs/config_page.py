"""`docs/configs.md`: the configs that `--config` and `--properties` understand."""

from __future__ import annotations

from formats.constants import INT64_MAX
from kafkalog.configs.definitions import DEFINITIONS, Definition

_HEAD = """# Configs

What a broker does with a log is decided by the configs of its topic. `simulate-retention`,
`simulate-roll` and `compact` look for each of them in this order, and show where they found it:

1. `--config NAME=VALUE`, by any of the names below;
2. `--properties FILE`, a broker's properties file, by any of the names below; of several names of
   a config the first that is set counts;
3. the topic's own configs in `__cluster_metadata-0` of the same log directory (or of
   `--metadata-dir`): the newest snapshot, then the log behind it;
4. dynamic configs of this broker there, then those of all brokers;
5. Kafka's defaults. Without a metadata log the topics of brokers count as they are created:
   `__consumer_offsets` and `__transaction_state` are compacted.

A broker puts its properties file behind 4: `--topic-first` does the same. Where the file came
before a topic's own config, a note says so.

What is noted at the end of a metadata log may not have been committed by the quorum; nothing in the
log tells. Log directories of brokers with ZooKeeper, and all but one of a broker with several, have
none.

`segment.bytes` may be as small as 14, as before Kafka 4.1; newer brokers want 1 MiB. Sizes may have
a unit in `--config`: `retention.bytes=512MiB`.

| config | default | values | in a broker's properties |
|---|---|---|---|
"""


def config_page() -> str:
    """The text of the page."""
    rows = "".join(_row(definition) for definition in DEFINITIONS.values())
    return _HEAD + rows


def _row(one: Definition) -> str:
    names = ", ".join(f"`{synonym.name}`" for synonym in one.synonyms)
    default = ",".join(one.default) if isinstance(one.default, tuple) else str(one.default)
    default = {str(INT64_MAX): "2^63 - 1", "True": "true", "False": "false"}.get(default, default)
    shown = f"`{default}`" if default else "empty"
    return f"| `{one.name}` | {shown} | {_values(one)} | {names or _home(one)} |\n"


def _home(one: Definition) -> str:
    return "this name" if one.is_of_broker else ""


def _values(one: Definition) -> str:
    if one.choices:
        return f"{one.kind}: {', '.join(f'`{word}`' for word in one.choices)}"
    bounds = []
    if one.low is not None:
        bounds.append(f"from {one.low}")
    if one.high is not None:
        bounds.append(f"to {one.high}")
    return f"{one.kind} {' '.join(bounds)}".strip()
