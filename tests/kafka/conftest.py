"""Kafka's own broker and tools as fixtures; started once a session, also with pytest-xdist."""

from __future__ import annotations

import os
import random

import pytest

from tests.kafka import broker_data

SEED_VARIABLE = "KAFKALOG_SEED"


@pytest.fixture(scope="session")
def harness() -> None:
    """The compiled Java side. Missing tools skip a test at home, but fail it in CI."""
    missing = broker_data.missing_tool()
    if missing and os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)  # at home only, with the missing tool as the reason shown
    broker_data.build()


@pytest.fixture(scope="session")
def broker(harness: None, tmp_path_factory: pytest.TempPathFactory) -> broker_data.BrokerData:  # noqa: ARG001
    """What a real broker left: fresh data, whose seed is printed (KAFKALOG_SEED repeats it)."""
    base = tmp_path_factory.getbasetemp()
    if base.name.startswith("popen-"):
        base = base.parent  # one broker for all workers
    root = base / "live-broker"
    with broker_data.locked(base / "live-broker.lock"):
        seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
        return broker_data.run_live_broker(root, seed)
