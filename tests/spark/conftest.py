"""A cluster for the tests here. Where Java is missing they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import Cluster, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, for drivers in processes of their own."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
