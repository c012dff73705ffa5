"""A broker by hand for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.broker.driver import HandBroker


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    broker = HandBroker(tmp_path / "data")
    yield broker
    broker.broker.close()
