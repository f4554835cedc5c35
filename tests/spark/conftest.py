"""Provides a cluster and a session on it. Without Java, the tests fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import Cluster, standalone_cluster
from tests.spark.commands import CommandSession

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, for drivers in processes of their own."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def commands(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandSession]:
    """Run command lines with one session on the cluster, for tests that do not end the driver."""
    with CommandSession(cluster, tmp_path_factory.mktemp("commands")) as running:
        yield running
