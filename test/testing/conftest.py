"""Fixtures of the tests of ``kafka.testing``. The fixture ``broker`` is each module's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    """A connection to the module's broker."""
    with RawClient(broker.port) as client:
        yield client
