"""Workers on a cluster of three brokers, through each of the faults of ``faults.py``."""

from __future__ import annotations

import pytest

from test.faults.clusters.combinations import combinations
from test.faults.clusters.conftest import GoesThrough

pytestmark = [
    pytest.mark.deep("three brokers; kept by test/faults/test_broker_killed.py"),
    pytest.mark.timeout(200),
]


@combinations("worker, share", "worker, group")
def test_each_job_ends_once_and_starts_within_seconds(goes_through: GoesThrough, workload: str, fault: str) -> None:
    assert "0 lost" in goes_through(workload, fault)
