"""Manifests of Aiven's plugin are not trusted: their claims are compared with the objects."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from tests.kafkalog.test_tiers import SEGMENT_ID, packed

if TYPE_CHECKING:
    from pathlib import Path


def damaged(manifest: dict[str, Any], change: str) -> dict[str, Any]:
    """A manifest with nonsense in it."""
    index = manifest["chunkIndex"]
    if change == "huge":
        index |= {"originalFileSize": (1 << 31) - 1, "originalChunkSize": 1}
    elif change == "bomb":
        packed_sizes = zstandard.ZstdCompressor().compress(bytes(1 << 26))
        index["transformedChunks"] = base64.b64encode(packed_sizes).decode()
    elif change == "negative":
        manifest["segmentIndexes"]["offset"]["position"] = -5
    elif change == "no-index":
        del manifest["chunkIndex"]
    elif change == "list":
        manifest["segmentIndexes"] = []
    elif change == "sizes":
        index["transformedChunks"] = base64.b64encode(b"none").decode()
    return manifest


@pytest.mark.parametrize("change", ["huge", "bomb", "negative", "no-index", "list", "sizes"])
def test_manifests_are_not_trusted(tmp_path: Path, kafkalog: Any, change: str) -> None:
    """No traceback and little memory: the segment is not read, and the status is not 0."""
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    path = min(directory.glob("*.rsm-manifest"))
    path.write_text(json.dumps(damaged(json.loads(path.read_text()), change)))
    result = kafkalog("verify", directory)
    assert result.status not in (0, 70), result.stderr
    assert "Traceback" not in result.stderr


CONTRADICTIONS = {
    "log-short": [".log"],
    "log-gone": [".log"],
    "indexes-long": [".indexes"],
    "other-name": [".rsm-manifest"],
    "other-partition": [".rsm-manifest"],
    "prefix": [],
    "claims-nonsense": [],
    "nothing": [],
}


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_a_manifest_that_contradicts_its_objects(
    tmp_path: Path, kafkalog: Any, change: str
) -> None:
    """Object sizes, and the name of the segment, checked even at the quickest level."""
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    path = sorted(directory.glob("*.rsm-manifest"))[1]
    found = json.loads(path.read_text())
    claims = found["remoteLogSegmentMetadata"]
    place = claims["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]
    if change == "log-short":
        log = path.with_suffix(".log")
        log.write_bytes(log.read_bytes()[:-1])
    elif change == "log-gone":
        path.with_suffix(".log").unlink()
    elif change == "indexes-long":
        with path.with_suffix(".indexes").open("ab") as file:
            file.write(b"1")
    elif change == "other-name":
        claims["remoteLogSegmentId"]["id"] = SEGMENT_ID
    elif change == "other-partition":
        place["partition"] += 1
    elif change == "prefix":
        place["topic"] = place["topic"][2:]
    elif change == "claims-nonsense":
        found["remoteLogSegmentMetadata"] = {"startOffset": "x", "remoteLogSegmentId": [1]}
    path.write_text(json.dumps(found))
    result = kafkalog("verify", directory, "--level", "quick", "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    told = [row["path"] for row in rows if row.get("reference") == "remote-manifest-contradicts"]
    assert told == [str(path.with_suffix(suffix)) for suffix in CONTRADICTIONS[change]]
    assert result.status == int(bool(told))
