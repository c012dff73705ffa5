from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.broker.driver import HandBroker


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    """A broker with the topics ``t`` (three partitions) and ``u``."""
    driven = HandBroker(tmp_path / "data")
    driven.create_topic("t", 3)
    driven.create_topic("u")
    yield driven
    driven.broker.close()
