"""The table of APIs: what is answered, and how everything that would write is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from formats.error_codes import ErrorCode
from kafkalog.wire.server.connection import NO_ANSWER
from kafkalog.wire.server.model import NODE_ID, Api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.wire.server.model import Client, Fields, Handler

_REFUSED: Final = ErrorCode.POLICY_VIOLATION
_NAMES_NODE: Final = 5
"""From this version of ApiVersions on, clients say which node of which cluster they expect."""
_NO_NODE: Final = -1


def api_table(cluster_id: str, offered: Iterable[Api]) -> dict[int, Api]:
    table = {api.key: api for api in offered}
    for name in REFUSALS:
        api = Api(name, _refuse(name))
        table.setdefault(api.key, api)
    versions = Api("ApiVersions", _api_versions(table, cluster_id))
    table[versions.key] = versions
    return dict(sorted(table.items()))


def _api_versions(table: Mapping[int, Api], cluster_id: str) -> Handler:
    async def answer(request: Fields, version: int, client: Client) -> Fields:
        if version >= 3:
            name, release = request["clientSoftwareName"], request["clientSoftwareVersion"]
            client.software = f"{name} {release}"
        if version >= _NAMES_NODE:
            error = _node_error(request["clusterId"], request["nodeId"], cluster_id)
            if error:
                return {"errorCode": error, "apiKeys": []}
        return {"errorCode": ErrorCode.NONE, "apiKeys": [
            {"apiKey": api.key, "minVersion": api.versions.start,
             "maxVersion": api.versions.stop - 1}
            for api in table.values()
        ]}  # fmt: skip

    return answer


def _node_error(wanted: str | None, node_id: int, cluster_id: str) -> ErrorCode:
    """Return what is wrong with the node of a cluster that a client expects here (KIP-1242)."""
    if (wanted is None) != (node_id == _NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if wanted is not None and (wanted, node_id) != (cluster_id, NODE_ID):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def _refuse(name: str) -> Handler:
    async def answer(request: Fields, version: int, client: Client) -> Fields:
        # A producer that wants no answer would take one for that of its next request.
        if name == "Produce" and request["acks"] == 0:
            return NO_ANSWER
        return REFUSALS[name](request)

    return answer


def read_only_text() -> str:
    return "read-only: these are files of a log directory, served by kafkalog"


def _error(**fields: Any) -> Fields:
    return {"errorCode": _REFUSED, "errorMessage": read_only_text(), **fields}


def _produce(request: Fields) -> Fields:
    return {"responses": [
        {"name": topic["name"], "topicId": topic["topicId"], "partitionResponses": [
            {**_error(), "index": one["index"], "baseOffset": -1}
            for one in topic["partitionData"]
        ]} for topic in request["topicData"]
    ]}  # fmt: skip


def _named(results: str, items: str, name: str) -> Callable[..., Fields]:
    """Answer each item of a request with its name and the error."""

    def answer(request: Fields) -> Fields:
        return {results: [
            _error(**{name: one if isinstance(one, str) else one[name]})
            for one in request[items] or ()
        ]}  # fmt: skip

    return answer


def _delete_topics(request: Fields) -> Fields:
    # Older versions name topics in a field of their own.
    named = request["topics"] or [{"name": name} for name in request["topicNames"]]
    return {"responses": [_error(**one) for one in named]}


def _delete_records(request: Fields) -> Fields:
    return {"topics": [
        {"name": one["name"], "partitions": [
            {"partitionIndex": found["partitionIndex"], "lowWatermark": -1, "errorCode": _REFUSED}
            for found in one["partitions"]
        ]} for one in request["topics"]
    ]}  # fmt: skip


def _configs(request: Fields) -> Fields:
    return {"responses": [
        _error(resourceType=one["resourceType"], resourceName=one["resourceName"])
        for one in request["resources"]
    ]}  # fmt: skip


def _init_producer_id(_request: Fields) -> Fields:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {"errorCode": code, "producerId": -1, "producerEpoch": -1}


REFUSALS: Final[dict[str, Callable[[Fields], Fields]]] = {
    "Produce": _produce,
    "CreateTopics": _named("topics", "topics", "name"),
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "InitProducerId": _init_producer_id,
    "AlterConfigs": _configs,
    "CreatePartitions": _named("results", "topics", "name"),
    "DeleteGroups": _named("results", "groupsNames", "groupId"),
    "IncrementalAlterConfigs": _configs,
}
"""How each API is refused that would write; clients learn that others are not supported."""
