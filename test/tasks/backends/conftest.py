"""Fixtures of the back ends' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker in this process, of the module's own. A module that needs other settings has another fixture."""
    with EmbeddedBroker(in_process=True) as running:
        yield running
