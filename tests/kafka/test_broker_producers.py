"""The checks of producers over what a real broker wrote a moment ago: nothing to be found."""

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
    """Transactions, aborts, compaction, deleted heads; an open transaction is a note."""
    print("seed", broker.facts["seed"])
    found = list(Verification(Level.DEEP).verify(broker.log_dir(state)))
    assert [defect for defect in found if defect.severity != Severity.NOTE] == []
    assert "transaction-open" in {defect.reference for defect in found}
