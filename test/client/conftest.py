from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.future import Future
from test.client.support import World
from test.support.real_cluster import Cluster, two_brokers
from test.support.scripted import ScriptedBroker


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(Future, "error_on_callbacks", True)
    world = World()
    yield world
    world.close()


@pytest.fixture
def broker(world: World) -> ScriptedBroker:
    """A modern broker at kafka:9092, node 1."""
    return ScriptedBroker(world.network)


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Two real brokers, for the modules that are named after them."""
    with two_brokers() as made:
        yield made
