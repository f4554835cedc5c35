"""The tables in `formats/` that a release's definitions and facts give."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from releases.definitions import Definition, write_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Facts = dict[str, Any]
"""What `Facts.java` prints."""


_STORED: Final = (20, 3, 6, 43, 4, 0)
_ASKED: Final = (28, 2, 8, 35, 5, 0)
"""Widths of the columns of the two tables of messages."""


class _Family(NamedTuple):
    """Messages of one place: the jar that defines them, and their types there."""

    name: str
    jar: str
    frame: str
    types: tuple[str, ...]


_FAMILIES: Final = (
    _Family("offsets", "kafka-group-coordinator",
            "__consumer_offsets: i16 record type + key, i16 version + value",
            ("coordinator-key", "coordinator-value")),
    _Family("consumer-protocol", "kafka-clients",
            'members of GroupMetadataValue with protocolType "consumer": i16 version + message',
            ()),
    _Family("transaction-log", "kafka-transaction-coordinator",
            "__transaction_state: i16 record type + key, i16 version + value",
            ("coordinator-key", "coordinator-value")),
    _Family("share-group-state", "kafka-share-coordinator",
            "__share_group_state: i16 record type + key, i16 version + value",
            ("coordinator-key", "coordinator-value")),
    _Family("cluster-metadata", "kafka-metadata",
            "__cluster_metadata: uvarint frame version 1, uvarint apiKey, uvarint version, message",
            ("metadata",)),
    _Family("remote-log-metadata", "kafka-storage",
            "__remote_log_metadata: framed like __cluster_metadata, with its own apiKeys",
            ("metadata",)),
    _Family("control", "kafka-clients",
            "values of KRaft control records: always version 0, without any frame", ()),
)  # fmt: skip
_BY_NAME: Final[dict[str, dict[str, int | None]]] = {
    "consumer-protocol": {"ConsumerProtocolSubscription": None, "ConsumerProtocolAssignment": None},
    "control": {
        "LeaderChangeMessage": 2, "SnapshotHeaderRecord": 3, "SnapshotFooterRecord": 4,
        "KRaftVersionRecord": 5, "VotersRecord": 6,
    },
}  # fmt: skip
"""Messages without a type of their own, with the types of control records."""


def write_messages(definitions: Mapping[str, Mapping[str, Definition]]) -> dict[str, str]:
    """Return the entry of each stored message by its name, in the order of the table.

    Args:
        definitions: by jar and name.
    """
    entries = {}
    for family in _FAMILIES:
        names = _BY_NAME.get(family.name)
        of_jar = definitions[family.jar]
        if names is not None:
            listed = [(key, "value" if key else "-", of_jar[name]) for name, key in names.items()]
        else:
            listed = [
                (one["apiKey"], one["type"].removeprefix("coordinator-"), one)
                for one in of_jar.values()
                if one["type"] in family.types
            ]
            listed.sort(key=lambda found: (found[0], found[1]))
        for key, part, one in listed:
            part = "value" if part == "metadata" else part
            entries[one["name"]] = write_message(family.name, key, part, one, _STORED)
    return entries


def join_messages(head: str, entries: Mapping[str, str]) -> str:
    """Return the table of stored messages."""
    frames = {family.name: family.frame for family in _FAMILIES}
    pieces, before = [head.rstrip()], ""
    for entry in entries.values():
        family = entry.split()[0]
        pieces.append(entry if family == before else f"\n# {frames[family]}\n{entry}")
        before = family
    return "\n".join(pieces) + "\n"


def differences(newest: Mapping[str, str], older: Mapping[str, str]) -> Iterator[str]:
    """Yield what an older release knows otherwise: entries, and names of messages it lacks."""
    for name, entry in newest.items():
        if name not in older:
            yield f"- {name}"
        elif older[name] != entry:
            yield older[name]


def write_requests(definitions: Mapping[str, Definition], apis: Sequence[str]) -> Iterator[str]:
    """Yield a request's and its response's entries for each API."""
    for api in apis:
        for part in ("request", "response"):
            one = definitions[api + part.capitalize()]
            yield write_message(api, one["apiKey"], part, one, _ASKED)


def write_error_codes(module: str, facts: Facts) -> str:
    """Return the module with the release's errors."""
    lines = "".join(f"    {name} = {code}\n" for name, code in facts["errors"].items())
    return re.sub(r"(?m)(?:^    [A-Z_]+ = -?\d+\n)+", lines, module, count=1)


def write_features(facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the lines of levels and features, given each release's facts, the newest first."""
    newest = next(iter(facts.values()))
    yield from (f"level {level} {name}" for level, name in newest["metadata"].items())
    for release, one in facts.items():
        for name, levels in one["features"].items():
            if "test" not in name:
                yield " ".join(["feature", release, name, *map(str, levels)])


def write_configs(facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the lines of configs, given each release's facts, the newest first."""
    newest, *older = facts.values()
    for scope in ("topics", "groups"):
        known = [{one["name"] for one in release[scope]} for release in older]
        for one in newest[scope]:
            since = next(iter(facts)) if any(one["name"] not in names for names in known) else "-"
            yield " | ".join([
                scope, one["name"], one["type"], _value_text(one["default"]), one["valid"] or "-",
                ", ".join(map(_synonym, one["synonyms"])) or "-", since,
            ])  # fmt: skip


def _synonym(synonym: tuple[str, str]) -> str:
    """Return a broker's name for a topic config, with the factor of its unit."""
    name, seven = synonym
    factor = int(seven) // 7
    return name if factor == 1 else f"{name}*{factor}"


def _value_text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)
