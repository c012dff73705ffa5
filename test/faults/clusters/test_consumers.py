"""Members of groups on a cluster of three brokers, through each of the faults of ``faults.py``."""

from __future__ import annotations

import pytest

from test.faults.clusters.combinations import combinations
from test.faults.clusters.conftest import GoesThrough

pytestmark = [
    pytest.mark.deep("three brokers; kept by test/faults/test_consumer_groups.py"),
    pytest.mark.timeout(200),
]


@combinations("consumer, classic", "consumer, KIP-848")
def test_every_acknowledged_record_is_read_in_the_order_of_its_partition(
    goes_through: GoesThrough, workload: str, fault: str
) -> None:
    assert "0 lost" in goes_through(workload, fault)
