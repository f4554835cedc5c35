"""Profiles of partitions and topics: planned here, counted by an engine, merged here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkaLogError, Listener
from kafkalog.io.engine import Engine, told_error
from kafkalog.io.paths import file_system
from kafkalog.log.defects import Tolerant
from kafkalog.model import present_ms
from kafkalog.node.targets import path_of
from kafkalog.tables.planning import Target, each_planned, find_targets, tell_differences
from kafkalog.tables.profiles.model import CodecUse, Profile, SchemaUse, TimeBucket
from kafkalog.tables.profiles.part import Part, profile_part
from kafkalog.tables.schema_registry import read_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.errors import Event
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.targets import AnyPath
    from kafkalog.tables import Request


HOUR_MS: Final = 3_600_000
HOT_KEYS: Final = 10


def profile_logs(
    engine: Engine,
    paths: Sequence[AnyPath],
    request: Request,
    *,
    bucket_ms: int = HOUR_MS,
    hot_keys: int = HOT_KEYS,
    registry: str | None = None,
    done: Callable[[int], None] | None = None,
    listener: Listener | None = None,
) -> list[Profile]:
    """Return the profiles of all partitions; that of a topic comes after its partitions.

    Args:
        engine: runs the counting tasks.
        paths: as for `plan_splits`.
        request: which records; its table must be that of records.
        bucket_ms: minimum length of the intervals of the histogram.
        hot_keys: maximum number of frequent keys.
        registry: where the schemas are whose uses are counted, as for `read_registry`.
        done: called with the number of tasks that ended.
        listener: as for `plan_splits`; also hears if kafkalog itself fails on a log. The partition
            and topic of a log that cannot be read have no profile.

    Raises:
        KafkaLogError: as `plan_splits` and the engine.

    Cost:
        Memory here: about 300 KiB per partition, and the frequent keys.
    """
    at_ms = present_ms()
    schemas = None if registry is None else read_registry(registry)
    known = {"ids": [*schemas.by_id] if schemas else [],
             "guids": [*schemas.guids().items()] if schemas else [],
             "place": schemas.remote_place if schemas else None}  # fmt: skip
    tasks = []
    owners = []
    heard = _Heard(listener)
    with file_system.listings_held(map(path_of, paths)):
        targets = {one.partition.path: one for one in find_targets(paths, request, heard)}
        tell_differences(targets.values(), listener)
        planned = each_planned(list(targets.values()), lambda _: request, at_ms, heard)
        # Before anything is counted: the result would lack them unnoticed.
        for path, log in zip(targets, planned, strict=True):
            for some, size_bytes in _grouped(log.splits, request.split_bytes):
                tasks.append({"splits": some, "bucket_ms": bucket_ms, "size_bytes": size_bytes,
                              **known})  # fmt: skip
                owners.append(path)
    parts = {path: Part(bucket_ms) for path in targets}
    for partition in heard.lacking:
        targets.setdefault(partition.path, Target(partition, (), partition))
        parts.pop(partition.path, None)
    for number, result in _in_order(engine.run(profile_part, tasks, done=done)):
        for failure in result["failures"]:
            if parts.pop(owners[number], None) is not None:
                heard.hear(told_error(failure))
        if owners[number] in parts:
            parts[owners[number]].merge(Part.from_json(result["part"]))
    return list(_profiles(targets, parts, bucket_ms, hot_keys))


class _Heard(Listener):
    """Collects the partitions that cannot be read."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self.lacking: list[PartitionDir] = []

    def hear(self, event: Event) -> None:
        """Pass an event on; without a listener raise the first error or grave defect."""
        if self._listener is not None:
            self._listener.hear(event)
        else:
            Tolerant().hear(event)
        if isinstance(event, KafkaLogError) and event.partition is not None:
            self.lacking.append(event.partition)


def _grouped(splits: Iterable[Any], size: int) -> Iterator[tuple[list[Any], int]]:
    some: list[Any] = []
    room = size
    for split in splits:
        if some and split.size_bytes > room:
            yield some, size - room
            some, room = [], size
        some.append(split.as_json())
        room -= split.size_bytes
    if some:
        yield some, size - room


def _in_order(results: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield results by number: merged in another order, sketches would differ."""
    waiting: dict[int, Any] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield following, waiting.pop(following)
            following += 1


def _profiles(
    targets: dict[str, Target], parts: dict[str, Part], bucket_ms: int, hot_keys: int
) -> Iterator[Profile]:
    by_topic: dict[str, dict[int, list[str]]] = {}
    for path, one in targets.items():
        number = -1 if one.partition.partition is None else one.partition.partition
        by_topic.setdefault(one.partition.topic, {}).setdefault(number, []).append(path)
    for topic, unordered in sorted(by_topic.items()):
        found = dict(sorted(unordered.items()))
        for number, paths in found.items():
            if any(path not in parts for path in paths):
                continue
            chosen = [targets[path] for path in paths]
            merged = _merged([parts[path] for path in paths], bucket_ms)
            yield _profile(topic, number, chosen, merged, hot_keys)
        paths = [path for some in found.values() for path in some]
        # The profile of the only partition is that of the topic.
        if len(found) > 1 and all(path in parts for path in paths):
            chosen = [targets[path] for path in paths]
            merged = _merged([parts[path] for path in paths], bucket_ms)
            yield _profile(topic, None, chosen, merged, hot_keys)


def _merged(parts: Sequence[Part], bucket_ms: int) -> Part:
    if len(parts) == 1:
        return parts[0]
    whole = Part(bucket_ms)
    for part in parts:
        whole.merge(part)
    return whole


def _profile(
    topic: str, number: int | None, targets: Sequence[Target], part: Part, hot_keys: int
) -> Profile:
    counts, largest, smallest = part.counts, part.largest, part.smallest
    producers, keys = part.producers.bounds, part.keys.bounds
    sums = {
        name: counts[name]
        for name in (
            "batches", "control_batches", "transactional_batches", "idempotent_batches", "records",
            "null_keys", "tombstones", "key_size_bytes", "value_size_bytes", "header_size_bytes",
            "unasked", "defects",
        )
    }  # fmt: skip
    return Profile(
        topic=topic,
        partition=number,
        copies=len(targets),
        segments=sum(len(one.segments) for one in targets),
        size_bytes=sum(one.partition.size_bytes for one in targets),
        first_offset=smallest.get("offset"),
        last_offset=largest.get("offset"),
        min_timestamp=smallest.get("timestamp"),
        max_timestamp=largest.get("timestamp"),
        max_batch_records=largest.get("batch_records", 0),
        max_batch_bytes=largest.get("batch_size", 0),
        codecs=tuple(_codecs(counts)),
        schemas=tuple(_schemas(counts)),
        producers=producers[0],
        producers_at_least=producers[1],
        producers_at_most=producers[2],
        keys=keys[0],
        keys_at_least=keys[1],
        keys_at_most=keys[2],
        hot_keys=part.frequent.most(hot_keys),
        bucket_ms=part.histogram.bucket_ms,
        histogram=tuple(
            TimeBucket(start, *both) for start, both in sorted(part.histogram.buckets.items())
        ),
        **sums,
    )


def _schemas(counts: dict[str, int]) -> list[SchemaUse]:
    found = []
    for name, number in counts.items():
        kind, _, rest = name.partition("/")
        if kind == "schema":
            source, _, schema_id = rest.partition("/")
            found.append(SchemaUse(source, schema_id, number))
    return sorted(found, key=lambda one: (one.source, -one.records, one.schema_id))


def _codecs(counts: dict[str, int]) -> Iterator[CodecUse]:
    names = {name.split("/")[1] for name in counts if name.startswith("codec/")}
    for name in sorted(names):
        batches, size, data = (
            counts.get(f"codec/{name}/{what}", 0)
            for what in ("batches", "size_bytes", "data_bytes")
        )
        yield CodecUse(name, batches, size, data)
