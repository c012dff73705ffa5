"""Workloads by faults, as parameters of a test."""

from __future__ import annotations

import pytest

from test.faults.clusters.faults import FAULTS
from test.faults.clusters.workloads import WORKLOADS


def combinations(*workloads: str) -> pytest.MarkDecorator:
    """Each of these with each fault, on each release that it runs on."""
    rows = [
        pytest.param(broker, workload, fault, id=f"{broker}-{workload}-{fault}")
        for workload in workloads
        for broker in WORKLOADS[workload].brokers
        for fault in FAULTS
    ]
    return pytest.mark.parametrize(("cluster", "workload", "fault"), rows, indirect=["cluster"], scope="session")
