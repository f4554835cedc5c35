"""Which logs are replayed, where their records go, and whether the cluster can take them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kafkalog.answers.search.scanning import logs_of
from kafkalog.errors import RefusedError, UsageError
from kafkalog.files.payloads.kinds import payload_kind
from kafkalog.files.topics import is_meant
from kafkalog.io.wording import some_of
from kafkalog.model import Replicas
from kafkalog.node.choice import metadata_logs
from kafkalog.node.cluster_image.model import TOPIC
from kafkalog.node.cluster_image.reader import read_image
from kafkalog.node.configs import ConfigSources
from kafkalog.node.configs.definitions import DEFINITIONS, value_text
from kafkalog.node.configs.sources import DEFAULT_SOURCE, INTERNAL_SOURCE
from kafkalog.node.identity import newest_metadata
from kafkalog.tables.model import Bounds
from kafkalog.tables.model import Request as Rows
from kafkalog.wire.producing.model import Route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.errors import Listener
    from kafkalog.node.configs import TopicConfigs
    from kafkalog.node.targets import Target
    from kafkalog.wire.producing.cluster import Cluster
    from kafkalog.wire.producing.model import Request

_OF_REPLICAS: Final = ("leader.replication.throttled.replicas",
                       "follower.replication.throttled.replicas")  # fmt: skip
"""Configs that are about the brokers of one cluster."""
_OF_REPLICATION: Final = ("min.insync.replicas", "unclean.leader.election.enable", *_OF_REPLICAS)
"""Those that a new topic has from the brokers of its own cluster, unless its old one set them."""
_INTERNAL: Final = "internal."
"""What Kafka's own tests set."""


def routes_of(
    targets: Sequence[Target], request: Request, listener: Listener
) -> tuple[list[Route], int]:
    """Return the routes by topic and partition, and how many internal partitions are left out.

    Of several replicas of a partition the best one is taken.

    Raises:
        NothingFoundError: a topic or a partition that is named is not there.
        UsageError: two topics would become one, or an internal one keeps its name.
    """
    bounds = Bounds(request.topics, request.partitions)
    every = Rows(
        bounds=bounds, replicas=Replicas.BEST, internal=True,
        view=request.selection.view, named=bounds,
    )  # fmt: skip
    logs = logs_of(targets, every, listener)
    routes, left_out = [], 0
    for target in logs:
        partition = target.partition
        if not is_meant(partition.topic, request.topics, internal=request.internal):
            left_out += 1
            continue
        path = target.segments[0].log.path if target.is_file else target.listed.path
        routes.append(
            Route(
                target,
                path,
                partition.topic,
                partition.partition,
                request.topic_map.get(partition.topic, partition.topic),
                partition.partition if request.keep_partitions else None,
            )
        )
    _require_sense(routes, request)
    return routes, left_out


def _require_sense(routes: Sequence[Route], request: Request) -> None:
    """Raise `UsageError` for routes that lead to a mixture, or into a cluster's own topics."""
    topics = {route.topic for route in routes}
    if unknown := sorted(set(request.topic_map) - topics):
        raise UsageError(
            f"--topic-map names {', '.join(unknown)}, which is not replayed.",
            hint=f"Topics are {', '.join(sorted(topics))}." if topics else None,
        )
    origins: defaultdict[str, set[str]] = defaultdict(set)
    for route in routes:
        origins[route.to_topic].add(route.topic)
        if payload_kind(route.to_topic) is not None:
            raise UsageError(
                f"{route.to_topic} is a topic that brokers write themselves.",
                hint=f"--topic-map {route.topic}=NEW replays it under another name.",
            )
        if request.keep_partitions and route.partition is None:
            raise UsageError(
                f"{route.path} has no partition number that records could keep.",
                hint="Leave --keep-partitions out.",
            )
    for name, names in sorted(origins.items()):
        if len(names) > 1:
            raise UsageError(
                f"The topics {', '.join(sorted(names))} would become one, {name}.",
                hint="Give --topic-map another name.",
            )
    seen: dict[tuple[str, int | None], Route] = {}
    for route in routes:
        key = route.topic, route.partition
        if key in seen and not (route.target.is_file and seen[key].target.is_file):
            raise UsageError(
                f"Two PATHs hold {route.name}: {seen[key].path} and {route.path}.",
                hint="Give one of them.",
            )
        seen[key] = route


def require_topics_in(
    cluster: Cluster, routes: Sequence[Route], request: Request, targets: Sequence[Target]
) -> list[str]:
    """Make sure that the cluster has the topics and partitions; create topics if that is wanted.

    Returns:
        The topics that were created.

    Raises:
        RefusedError, ClusterError: as `missing_topics_in`; or a topic may not be created.
    """
    missing, needed = missing_topics_in(cluster, routes, request)
    if missing:
        cluster.create_topics(_as_in_files(missing, needed, routes, targets))
    return missing


def missing_topics_in(
    cluster: Cluster, routes: Sequence[Route], request: Request
) -> tuple[list[str], dict[str, int]]:
    """Return the topics that are to be created in the cluster, and the partitions of all topics.

    Raises:
        RefusedError: a topic is missing that is not to be created, or has too few partitions.
        ClusterError: a topic may not be seen.
    """
    needed: dict[str, int] = {}
    # Where keys decide, one partition is enough.
    for route in routes:
        number = -1 if route.to_partition is None else route.to_partition
        needed[route.to_topic] = max(needed.get(route.to_topic, 1), number + 1)
    present = cluster.partitions()
    missing = sorted(set(needed) - set(present))
    for name in missing:
        cluster.require_access(name)
    short = [name for name in sorted(needed) if present.get(name, needed[name]) < needed[name]]
    if short:
        words = [f"{name} has {present[name]} of {needed[name]}" for name in short]
        raise RefusedError(
            f"The cluster has too few partitions: {some_of(words)}.",
            hint="Add partitions with kafka-topics.sh --alter, or leave --keep-partitions out.",
        )
    if missing and not request.create_topics:
        raise RefusedError(
            f"The cluster has no topic {some_of(missing)}.",
            hint="--create-topics creates what is missing; --topic-map OLD=NEW names another one.",
        )
    return missing, needed


def _as_in_files(
    names: Sequence[str],
    needed: Mapping[str, int],
    routes: Sequence[Route],
    targets: Sequence[Target],
) -> dict[str, tuple[int, dict[str, str]]]:
    """Return partitions and configs of new topics, by the metadata log where there is one."""
    origins = {route.to_topic: route.topic for route in routes}
    counts = {
        name: max(
            (route.partition or 0) + 1 for route in routes if route.to_topic == name
        )
        for name in names
    }  # fmt: skip
    found = {name: (max(needed[name], counts[name]), dict[str, str]()) for name in names}
    metadata = newest_metadata(metadata_logs(targets))
    image = None if metadata is None else read_image(metadata)
    if image is None:
        return found
    assert metadata is not None, "it has the image"
    around = ConfigSources().in_log_dir(metadata.log_dir)
    for name, (count, _) in found.items():
        own = image.configs.get((TOPIC, origins[name]), {})
        told = _of_brokers(around.of_topic(origins[name])) | {
            key: value
            for key, value in own.items()
            if key not in _OF_REPLICAS and not key.startswith(_INTERNAL)
        }
        count = max(count, image.partition_count(origins[name]) or 0)
        found[name] = count, told
    return found


def _of_brokers(configs: TopicConfigs) -> dict[str, str]:
    """Return the configs that a topic had by the dynamic defaults of its brokers, or by its own."""
    values = [
        configs[name]
        for name, one in DEFINITIONS.items()
        if not one.is_of_broker and name not in _OF_REPLICATION
    ]
    return {
        one.name: value_text(one.value)
        for one in values
        if one.source not in (DEFAULT_SOURCE, INTERNAL_SOURCE)
        and not (one.set_as or "").startswith(_INTERNAL)
    }
