"""An idempotent producer on a cluster of three brokers, through each of the faults of ``faults.py``."""

from __future__ import annotations

import pytest

from test.faults.clusters.combinations import combinations
from test.faults.clusters.conftest import GoesThrough

pytestmark = [
    pytest.mark.deep("three brokers; kept by test/faults/test_producer_restarts.py"),
    pytest.mark.timeout(200),
]


@combinations("producer")
def test_no_acknowledged_record_is_lost_or_out_of_order(goes_through: GoesThrough, workload: str, fault: str) -> None:
    assert "0 lost" in goes_through(workload, fault)
