"""Resolves the configs of topics: the value of each, and its source.

Follows `java.util.Properties`, of whose equal keys the last counts. Precedence among a broker's own
sources follows `LogConfig.fromProps`, `KafkaConfig.extractLogConfigMap` and `DynamicBrokerConfig`
of Kafka.
"""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from formats import file_names, topic_names
from formats.file_names import parse_directory_name
from formats.late_classes import dataclass
from formats.releases import newest
from kafkalog.errors import (
    CorruptDataError,
    DataError,
    NotAKafkaFileError,
    Note,
    NotFoundError,
    UsageError,
)
from kafkalog.files.log_dir import open_partition
from kafkalog.files.text_files import properties_of, read_meta_properties
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import read_file
from kafkalog.node.configs.definitions import (
    DEFINITIONS,
    KNOWN_NAMES,
    Definition,
    Value,
    names_of,
    parse_value,
)
from kafkalog.node.identity import home_of, release_of_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from formats.releases import Release
    from kafkalog.model import Defect


@dataclass(frozen=True, slots=True)
class Setting:
    """A config's text, and the record that set it: `offset 15`, or the name of a snapshot."""

    text: str
    source: str


@dataclass
class MetadataConfigs:
    """The configs in the metadata log; the latest value counts.

    Attributes:
        settings: (resource type, resource name) to config name to setting. Resource types are
            `TOPIC` and `BROKER`; the broker with the name "" stands for all brokers.
        defects: damage on the way; anything after it may be missing.
        unknown: number of records that could not be read because this program is too old.
        known_from: the offset before which nothing is known, since no snapshot has it.
        release: the release of the node that has them.
    """

    settings: dict[tuple[int, str], dict[str, Setting]] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    unknown: int = 0
    known_from: int = 0
    release: Release = field(default_factory=newest)

    def of_topic(self, topic: str) -> dict[str, Setting]:
        """Return the topic's own configs."""
        from kafkalog.node.cluster_image.model import TOPIC

        return self.settings.get((TOPIC, topic), {})

    def of_broker(self, node_id: int | None) -> dict[str, Setting]:
        """Return the dynamic configs of a broker, which override those of all brokers."""
        from kafkalog.node.cluster_image.model import BROKER

        own = {} if node_id is None else self.settings.get((BROKER, str(node_id)), {})
        return self.settings.get((BROKER, ""), {}) | own


def read_metadata_configs(log_dir: str) -> MetadataConfigs | None:
    """Return the configs in `__cluster_metadata-0` of a log directory, None if it has none.

    The newest readable snapshot is applied, then the records after it. Nothing offline says how far
    the quorum had committed, so everything in the log counts.

    Cost:
        Memory for the metadata image; the log is read in chunks.

    Raises:
        UnreadableError: the directory cannot be listed.
    """
    try:
        directory = open_partition(os.path.join(log_dir, _METADATA))
    except (NotFoundError, NotAKafkaFileError):
        return None
    from kafkalog.node.cluster_image import ImageReader  # its schemas, only where there are records

    reader = ImageReader(directory)
    reader.begin()
    start = directory.segments[0].base_offset if directory.segments else 0
    known_from = start if reader.start < start else 0
    reader.advance()
    image = reader.image
    settings = {
        resource: {
            name: Setting(text, str(image.sources["config", *resource, name]))
            for name, text in configs.items()
        }
        for resource, configs in image.configs.items()
    }
    node = properties_of(log_dir)
    release = release_of_node(image, None if node is None else node.node_id)
    return MetadataConfigs(settings, image.defects, image.unknown, known_from, release)


@dataclass(frozen=True, slots=True)
class Property:
    """One entry; `line` counts from 1."""

    name: str
    value: str
    line: int


def read_property_lines(path: str) -> Iterator[Property]:
    """Yield the entries of a file in file order.

    Raises:
        CorruptDataError: an escape is malformed.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    import javaproperties

    text = read_file(path).decode("iso-8859-1")
    line = 1
    try:
        for part in javaproperties.parse(text):
            if isinstance(part, javaproperties.KeyValue):
                yield Property(part.key, part.value, line)
            source = part.source
            line += source.count("\n") + source.replace("\r\n", "\n").count("\r")
    except ValueError as error:
        raise CorruptDataError(f"{error}.", reference="file-malformed", path=path) from error


DEFAULT_SOURCE: Final = "default"
INTERNAL_SOURCE: Final = "as brokers create it"
OPTION_SOURCE: Final = "--config"
_METADATA: Final = f"{topic_names.CLUSTER_METADATA}-0"
# Values that a broker sets when it creates a topic of its own; used if no metadata log has them.
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_INTERNAL: Final = {
    topic_names.CONSUMER_OFFSETS: _COMPACTED,
    topic_names.TRANSACTION_STATE: _COMPACTED,
    topic_names.SHARE_GROUP_STATE: {"cleanup.policy": "delete", "segment.bytes": "104857600"},
    topic_names.REMOTE_LOG_METADATA: {"cleanup.policy": "delete"},
}
COMPACTED_TOPICS: Final = frozenset(name for name, one in _INTERNAL.items() if one is _COMPACTED)
"""The topics that brokers create compacted."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The effective value of a config for a topic.

    Attributes:
        name: the topic config's name.
        value: its value, in the topic config's unit.
        source: `--config`, `<file>:<line>`, `__cluster_metadata-0 offset 15`, or `default`.
        set_as: the name under which the source set it, None for a default.
    """

    name: str
    value: Value
    source: str
    set_as: str | None = None


@dataclass(frozen=True, slots=True)
class _Layer:
    """Settings of one source; a topic's own settings use only the topic config's name."""

    settings: Mapping[str, Setting]
    is_of_topic: bool = False


class TopicConfigs:
    """The configs of one topic.

    Args:
        layers: the settings of each source, highest precedence first.

    Attributes:
        release: the release of Kafka that follows them.
    """

    def __init__(self, layers: Iterable[_Layer], release: Release) -> None:
        self._layers = tuple(layers)
        self.release = release

    def __getitem__(self, name: str) -> ConfigValue:
        """Return the config of that name, with its source.

        Raises:
            CorruptDataError: a source holds a value that no broker would accept.
        """
        definition = DEFINITIONS[name]
        for layer in self._layers:
            if found := _look_up(layer, definition):
                return found
        return ConfigValue(name, definition.default, DEFAULT_SOURCE)

    def number(self, name: str) -> int:
        """Return the value of a config that is an integer."""
        value = self[name].value
        assert isinstance(value, int), name
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Return the value of a config that is a list."""
        value = self[name].value
        assert isinstance(value, tuple), name
        return value

    def is_set(self, name: str) -> bool:
        """Return whether any source sets it."""
        return self[name].source != DEFAULT_SOURCE


def _look_up(layer: _Layer, definition: Definition) -> ConfigValue | None:
    for name in names_of(definition) if layer.settings else ():
        if layer.is_of_topic and name.name not in (definition.name, definition.replaced_by):
            continue
        setting = layer.settings.get(name.name)
        if setting is None:
            continue
        try:
            value = parse_value(definition, setting.text, name)
        except ValueError as error:
            raise CorruptDataError(
                f"{name.name}={setting.text} of {setting.source} is not valid: {error}.",
                hint=f"Give --config {definition.name}=VALUE.",
            ) from error
        return ConfigValue(definition.name, value, setting.source, name.name)
    return None


class ConfigSources:
    """The sources of configs: options, a properties file, the metadata log, defaults.

    Args:
        given: name to text, as `--config`; broker-level names and units are understood, too.
        properties: path of a broker's properties file; a topic's own configs override it.

    Attributes:
        node_id: the id of the node in the properties file, None if it has none.

    Raises:
        UsageError: an unknown name, or a value that no broker would accept.
        NotFoundError, UnreadableError, CorruptDataError: the properties file cannot be read.
    """

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        properties: str | None = None,
        *,
        metadata_dir: str | None = None,
    ) -> None:
        self._metadata_dir = metadata_dir
        self._given = _checked_options(given or {})
        self._properties = {} if properties is None else _read_properties(properties)
        self.node_id = None if properties is None else _node_id_of(properties)

    @classmethod
    def of(cls, configs: Mapping[str, str] | ConfigSources | None) -> ConfigSources:
        """Make sources from configs by name; return given sources unchanged."""
        return configs if isinstance(configs, ConfigSources) else cls(configs)

    @property
    def has_given(self) -> bool:
        """Whether there is any source besides the log directory."""
        return bool(self._given or self._properties)

    def in_log_dir(self, path: str, metadata_dir: str | None = None) -> LogDirConfigs:
        """Return the configs of the topics in a log directory.

        Args:
            path: the directory.
            metadata_dir: the directory of its node that holds the metadata log; None for itself.
        """
        return LogDirConfigs(
            self._metadata_dir or metadata_dir or path,
            self._given,
            self._properties,
        )

    def without_given(self) -> ConfigSources:
        """Return the same sources without options and properties file."""
        return ConfigSources(metadata_dir=self._metadata_dir)


class ConfigsAround:
    """The configs of partitions in several log directories; each metadata log is read once.

    A directory without one has that of its node, if that is in another of them.

    Args:
        sources: what else sets configs.
        paths: the log directories, and partitions in others.
    """

    def __init__(self, sources: ConfigSources, paths: Iterable[str]) -> None:
        self._sources = sources
        inner = (os.path.dirname(path) if parse_directory_name(os.path.basename(path)) else path
                 for path in map(file_system.absolute, paths))  # fmt: skip
        self._log_dirs = tuple(dict.fromkeys(inner))
        self._homes: dict[str, str] = {}
        self._known: dict[str, LogDirConfigs] = {}

    def of_log_dir_of(self, partition: str) -> LogDirConfigs:
        """Return the configs around a partition's path."""
        log_dir = os.path.dirname(file_system.absolute(partition))
        if log_dir not in self._homes:
            self._homes[log_dir] = home_of(log_dir, self._log_dirs)
        home = self._homes[log_dir]
        if home not in self._known:
            self._known[home] = self._sources.in_log_dir(home)
        return self._known[home]


class LogDirConfigs:
    """The configs of the topics in one log directory; its metadata log is read on demand.

    Args:
        path: the log directory whose metadata log is read.
        given: settings that override all others.
        properties: settings of a properties file.
    """

    def __init__(
        self,
        path: str,
        given: Mapping[str, Setting],
        properties: Mapping[str, Setting],
    ) -> None:
        self.path = path
        self._given = given
        self._properties = properties

    @cached_property
    def metadata(self) -> MetadataConfigs | None:
        """The content of the metadata log, None if the directory has none."""
        try:
            file_system.stat(os.path.join(self.path, _METADATA))
        except (FileNotFoundError, NotADirectoryError):
            return None  # avoids loading the record decoder
        except OSError:
            pass  # its reader reports it

        return read_metadata_configs(self.path)

    def events(self) -> Iterator[Defect | Note]:
        """Yield what is to be said of the metadata log before the configs are used."""
        if self.metadata is None:
            where = f"{self.path} has no __cluster_metadata-0"
            yield Note(f"{where}: configs not given have Kafka's defaults")
            return
        yield from self.metadata.defects
        if self.metadata.known_from:
            where = f"{os.path.join(self.path, _METADATA)} has no snapshot of what was set before"
            yield Note(f"{where} offset {self.metadata.known_from}: Kafka's defaults are assumed")
        if self.metadata.unknown:
            yield Note(f"{self.metadata.unknown} metadata records are of an unknown version")

    @cached_property
    def _node_id(self) -> int | None:
        with suppress(DataError):
            return read_meta_properties(os.path.join(self.path, file_names.META_PROPERTIES)).node_id
        return None

    def of_topic(self, topic: str) -> TopicConfigs:
        own, dynamic = {}, {}
        if self.metadata is not None:
            own = _named(self.metadata.of_topic(topic))
            dynamic = _named(self.metadata.of_broker(self._node_id))
        created = _INTERNAL.get(topic, {})
        implied = {name: Setting(text, INTERNAL_SOURCE) for name, text in created.items()}
        of_topic = _Layer(own, is_of_topic=True)
        # A broker takes a topic's own config first, then dynamic ones, then its file.
        others = [_Layer(one) for one in (dynamic, self._properties, implied)]
        release = newest() if self.metadata is None else self.metadata.release
        return TopicConfigs([_Layer(self._given), of_topic, *others], release)


def _named(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {
        name: Setting(setting.text, f"{_METADATA} {setting.source}")
        for name, setting in settings.items()
    }


def _checked_options(given: Mapping[str, str]) -> dict[str, Setting]:
    for name in given:
        if name not in KNOWN_NAMES:
            near = difflib.get_close_matches(name, sorted(KNOWN_NAMES), 3, 0.5)
            raise UsageError(
                f"{name!r} is not a known config.",
                hint=f"Did you mean {', '.join(near)}?"
                if near
                else "docs/configs.md lists them all.",
            )
    settings = {name: Setting(text, OPTION_SOURCE) for name, text in given.items()}
    return _checked_settings(settings)


def _read_properties(path: str) -> dict[str, Setting]:
    settings = {
        entry.name: Setting(entry.value, f"{path}:{entry.line}")
        for entry in read_property_lines(path)
        if entry.name in KNOWN_NAMES
    }
    return _checked_settings(settings)


def _node_id_of(path: str) -> int | None:
    """Return the node's id in its properties file, None if it has none that is a number."""
    ids = {one.name: one.value.strip() for one in read_property_lines(path)}
    text = ids.get("node.id", ids.get("broker.id", ""))
    return int(text) if text.isdecimal() else None


def _checked_settings(settings: dict[str, Setting]) -> dict[str, Setting]:
    for definition in DEFINITIONS.values():
        for name in names_of(definition):
            setting = settings.get(name.name)
            if setting is not None:
                try:
                    parse_value(definition, setting.text, name)
                except ValueError as error:
                    raise UsageError(
                        f"{name.name}={setting.text} ({setting.source}): {error}."
                    ) from error
    return settings
