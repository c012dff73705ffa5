"""A share group on a cluster of three brokers, through each of the faults of ``faults.py``."""

from __future__ import annotations

import pytest

from test.faults.clusters.combinations import combinations
from test.faults.clusters.conftest import GoesThrough

pytestmark = [
    pytest.mark.deep("three brokers; kept by test/conformance/test_share.py"),
    pytest.mark.timeout(200),
]


@combinations("share consumer")
def test_every_acknowledged_record_is_delivered_to_a_share_group(
    goes_through: GoesThrough, workload: str, fault: str
) -> None:
    assert "0 lost" in goes_through(workload, fault)
