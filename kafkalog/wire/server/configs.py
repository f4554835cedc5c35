"""DescribeConfigs: the configs of topics, as the metadata log has them, else the defaults."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from kafkalog.errors import CorruptDataError, DataError
from kafkalog.node.cluster_image.model import BROKER, TOPIC
from kafkalog.node.configs import ConfigSources, ConfigValue
from kafkalog.node.configs.definitions import DEFINITIONS, KNOWN_NAMES, Kind, value_text
from kafkalog.node.configs.sources import DEFAULT_SOURCE, INTERNAL_SOURCE
from kafkalog.node.identity import newest_metadata
from kafkalog.wire.server.model import NODE_ID

if TYPE_CHECKING:
    from kafkalog.node.configs import LogDirConfigs
    from kafkalog.wire.server.catalog import Catalog
    from kafkalog.wire.server.model import Client, Fields, ServeListener

_OF_TOPIC, _OF_ALL_BROKERS, _DEFAULT = 1, 3, 5
"""`ConfigSource`: who set a config."""
_TYPES: Final = {
    Kind.BOOLEAN: 1, Kind.STRING: 2, Kind.INT: 3, Kind.LONG: 5, Kind.DOUBLE: 6, Kind.LIST: 7,
}  # fmt: skip
"""`DescribeConfigsResponse.ConfigType`."""
_REPLACEMENTS: Final = {one.replaced_by: one for one in DEFINITIONS.values() if one.replaced_by}


class Configs:
    """Answers DescribeConfigs; nothing can be altered."""

    def __init__(self, catalog: Catalog, listener: ServeListener) -> None:
        self._catalog = catalog
        self._listener = listener
        self._configs: LogDirConfigs | None = None
        self._reading = asyncio.Lock()

    async def describe_configs(self, request: Fields, version: int, client: Client) -> Fields:
        async with self._reading:
            if self._configs is None:
                self._configs = await asyncio.to_thread(self._read)
        configs = self._configs
        results = [
            self._described(one, configs, synonyms=request["includeSynonyms"])
            for one in request["resources"]
        ]
        return {"throttleTimeMs": 0, "results": results}

    def _read(self) -> LogDirConfigs:
        """Return the configs by the newest metadata log, else those of the first log directory."""
        found = None
        newest = newest_metadata(self._catalog.metadata_logs())
        first = [] if newest is None else [newest.log_dir]
        for log_dir in dict.fromkeys([*first, *self._catalog.log_dirs]):
            configs = ConfigSources().in_log_dir(log_dir)
            try:
                if configs.metadata is not None:
                    return configs  # a broker without metadata on its disk has none
            except DataError as error:
                self._listener.hear(error)
                continue
            found = found or configs
        return found or ConfigSources().in_log_dir("")

    def _described(self, resource: Fields, configs: LogDirConfigs, *, synonyms: bool) -> Fields:
        kind, name = resource["resourceType"], resource["resourceName"]
        answer = {"errorCode": ErrorCode.NONE, "errorMessage": None, "resourceType": kind,
                  "resourceName": name, "configs": []}  # fmt: skip
        try:
            if kind == TOPIC and name not in self._catalog.topics:
                answer["errorCode"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return answer
            if kind == TOPIC:
                found = _of_topic(configs, name)
            elif kind == BROKER and name in ("", str(NODE_ID)):
                found = _of_broker(configs)
            else:
                found = []
        except CorruptDataError as error:
            return answer | {"errorCode": ErrorCode.INVALID_CONFIG, "errorMessage": error.message}
        wanted = resource["configurationKeys"]
        answer["configs"] = [
            _entry(value, source, synonyms=synonyms)
            for value, source in found
            if not wanted or value.name in wanted
        ]
        return answer


def _of_topic(configs: LogDirConfigs, topic: str) -> list[tuple[ConfigValue, int]]:
    of_topic = configs.of_topic(topic)
    own = {} if configs.metadata is None else configs.metadata.of_topic(topic)
    found = []
    for name, definition in DEFINITIONS.items():
        if definition.is_of_broker:
            continue
        value = of_topic[name]
        if definition.since is not None and value.source == DEFAULT_SOURCE:
            continue  # an older broker has no such config
        other = definition.replaced_by
        if other is not None and value.set_as == other and other in own:
            found.append((replace(value, name=other), _OF_TOPIC))
            value = ConfigValue(name, definition.default, DEFAULT_SOURCE)
        source = _OF_ALL_BROKERS
        if value.source == DEFAULT_SOURCE:
            source = _DEFAULT
        elif value.source == INTERNAL_SOURCE or name in own:
            source = _OF_TOPIC
        found.append((value, source))
    return found


def _of_broker(configs: LogDirConfigs) -> list[tuple[ConfigValue, int]]:
    """Return what the metadata log sets for all brokers; their files are not here."""
    settings = {} if configs.metadata is None else configs.metadata.of_broker(None)
    return [
        (ConfigValue(name, setting.text, setting.source, name), _OF_ALL_BROKERS)
        for name, setting in settings.items()
    ]


def _entry(value: ConfigValue, source: int, *, synonyms: bool) -> Fields:
    definition = DEFINITIONS.get(value.name) or _REPLACEMENTS.get(value.name)
    is_known = value.name in KNOWN_NAMES  # others may be passwords
    text = value_text(value.value) if is_known else None
    known = [{"name": value.set_as or value.name, "value": text, "source": source}]
    if definition is not None and source != _DEFAULT:
        default = value_text(definition.default)
        known.append({"name": value.name, "value": default, "source": _DEFAULT})
    return {
        "name": value.name,
        "value": text,
        "readOnly": True,
        "configSource": source,
        "isSensitive": not is_known,
        "synonyms": known if synonyms else [],
        "configType": 0 if definition is None else _TYPES[definition.kind],
        "documentation": None,
    }
