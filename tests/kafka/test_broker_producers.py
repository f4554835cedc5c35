"""The checks of producers find nothing in what a real broker has just written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.model import Level, Severity

if TYPE_CHECKING:
    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("state", ["clean", "live"])
def test_nothing_is_held_against_a_broker(broker: BrokerData, state: str) -> None:
    """The log has transactions, aborts, compaction and deleted heads; an open one is a note."""
    print("seed", broker.facts["seed"])
    found = list(Verification(Level.DEEP).verify(broker.log_dir(state)))
    assert [defect for defect in found if defect.severity != Severity.NOTE] == []
    assert "transaction-open" in {defect.reference for defect in found}
