"""The fixtures of the cluster tests: a cluster for the session, in good health before and after each test."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Protocol

import pytest

from test.faults.clusters.faults import FAULTS
from test.faults.clusters.workloads import WORKLOADS
from test.support.apache_kafka import LATEST
from test.support.real_cluster import Cluster, three_brokers


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers, by their name in ``either_broker.py``."""
    with three_brokers(request.param.partition(" ")[2] or LATEST) as made:
        yield made


class GoesThrough(Protocol):
    """``goes_through(workload, fault)``, by their names: the workload keeps its promises, which are printed."""

    def __call__(self, workload: str, fault: str) -> str: ...


@pytest.fixture
def goes_through(cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[GoesThrough]:
    cluster.recover()
    prefixes: list[str] = []

    def run(workload: str, fault: str) -> str:
        load = WORKLOADS[workload].make(cluster, tmp_path)
        prefixes.append(load.name)
        try:
            FAULTS[fault](cluster, load)
            said = load.check()
            print(f"{workload}, {fault}: {said}")
            print(f"most lines of a kind in a minute: {load.check_troubles()}")
            return said
        finally:
            load.close()

    yield run
    cluster.recover()
    if prefixes:
        cluster.delete(*prefixes)
