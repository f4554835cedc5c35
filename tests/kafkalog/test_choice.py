"""Which directories of one name are one topic, beyond the matrix of `test_identity.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.check.verify import Verification
from kafkalog.errors import UsageError
from kafkalog.files.log_dir import PartitionDir, list_partition
from kafkalog.model import Level
from kafkalog.node.choice import live_id, paths_of_others
from kafkalog.node.cluster_image import ClusterImage
from tests.builders import flip
from tests.kafkalog_cli.test_identity import (
    DEAD,
    LIVE,
    NDJSON,
    TOPICS,
    another,
    image,
    node,
    stale_image,
    with_image,
    without_image,
)
from tests.metadata_logs import value_of
from tests.packed_tiers import uploaded

ORDERS = "orders-0"
SEGMENT = f"{0:020d}.log"


def partitions(*log_dirs: Path, name: str = ORDERS) -> list[PartitionDir]:
    return [list_partition(str(one / name)) for one in log_dirs]


def chosen(*log_dirs: Path) -> set[str]:
    """Return the log directories whose `orders-0` is left out."""
    metadata = [one for one in log_dirs if (one / "__cluster_metadata-0").exists()]
    others = paths_of_others(
        partitions(*log_dirs), lambda: partitions(*metadata, name="__cluster_metadata-0")
    )
    return {Path(one).parent.name for one in others}


def test_verify_and_readers_go_by_the_newest_metadata(tmp_path: Path) -> None:
    """The broker that was down has metadata of its own, by which its directories are right."""
    paths = stale_image(tmp_path)
    with pytest.warns(UserWarning, match="another topic orders"):
        assert chosen(*paths) == {"b"}
    defects = Verification(Level.QUICK).verify(*paths)
    wrong = [one.path for one in defects if one.reference == "topic-id-mismatch"]
    assert sorted(wrong) == sorted(
        str(tmp_path / "b" / f"{name}-0" / "partition.metadata") for name in TOPICS
    )


def test_damaged_metadata_decide_nothing(tmp_path: Path) -> None:
    """What cannot be read may be the deletion of what an older log still names."""
    paths = stale_image(tmp_path)
    log = paths[0] / "__cluster_metadata-0" / SEGMENT
    data = log.read_bytes()
    log.write_bytes(data + data[:70])  # a broker was killed while it wrote
    with pytest.warns(UserWarning, match="another topic orders"):
        assert chosen(*paths) == {"b"}
    log.write_bytes(flip(data, len(data) * 8 - 1))
    with pytest.raises(UsageError, match="different topic ids"):
        chosen(*paths)


def test_a_deleted_topic_is_left_out(tmp_path: Path, kafkalog: Any) -> None:
    """No directory of another topic is needed to know that it is gone."""
    [here] = without_image(tmp_path)
    image(here, value_of("RemoveTopicRecord", topicId=LIVE["orders"]))
    other = node(tmp_path / "b", LIVE)
    result = kafkalog("sql", "-c", "select count(*) from records", here, other)
    assert result.stdout.split()[-1] == b"0"
    assert (
        f"the deleted topic orders with the id {LIVE['orders']} left out: {here}" in result.stderr
    )


def test_single_logs_are_of_one_topic_too(tmp_path: Path, kafkalog: Any) -> None:
    """Only what shows bytes as they are takes files of several."""
    files = [one / ORDERS / SEGMENT for one in another(tmp_path)]
    assert kafkalog("sql", "-c", "select * from records", *files).status == UsageError.exit_code
    assert kafkalog("find", *files, "--value-regex", ".").status == UsageError.exit_code
    assert kafkalog("dump-segment", *files).status == 0


def test_a_topic_of_a_tier_is_another_one(tmp_path: Path, kafkalog: Any) -> None:
    """It outlives the topic; what a broker has counts."""
    [here] = without_image(tmp_path)
    other = node(tmp_path / "b", DEAD)
    (other / ORDERS / f"{4:020d}.snapshot").touch()
    tier = uploaded(other / ORDERS, tmp_path / "tier").parent
    for paths in ((here, tier), (tier, here)):
        result = kafkalog("sql", "-c", "select count(*) from records", *paths)
        assert (result.status, result.stdout.split()[-1]) == (0, b"3")
        assert f"left out: {tier}" in result.stderr


def test_leftovers_are_no_copies_of_the_live_log(tmp_path: Path, kafkalog: Any) -> None:
    """`--view all` shows both, as `find` does."""
    paths = [*with_image(tmp_path), node(tmp_path / "b", DEAD, suffix=f".{'ab' * 16}-delete")]
    result = kafkalog("sql", "-c", "select count(*) from records", *paths, "--view", "all")
    assert (result.status, result.stdout.split()[-1]) == (0, b"7")


def test_the_metadata_of_several_nodes_are_the_newest(tmp_path: Path, kafkalog: Any) -> None:
    """Also where the PATH is a parent of their log directories, and an older one comes first."""
    new, old = stale_image(tmp_path)
    (tmp_path / "a").rename(tmp_path / "c")
    for places in ((tmp_path,), (old, tmp_path / "c")):
        found = kafkalog(
            "sql", "-c", "select distinct topic_id from topics", *places
        ).stdout.decode()
        assert (LIVE["orders"] in found, DEAD["orders"] in found) == (True, False)
    found = kafkalog("metadata", tmp_path, "--topic", "orders", *NDJSON).stdout.decode()
    assert (LIVE["orders"] in found, DEAD["orders"] in found) == (True, False)
    assert not new.exists()


def test_metadata_that_do_not_know_the_ids_decide_nothing() -> None:
    known = ClusterImage()
    known.topics["t"] = "third"
    assert live_id("t", {"one", "two"}, [known]) is None
    assert live_id("t", {"one"}, [known]) == "one"
    known.topics["t"] = "two"
    assert live_id("t", {"one", "two"}, [known]) == "two"
