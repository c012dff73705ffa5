"""Fixtures of the task queue's tests."""

from __future__ import annotations

import pytest

from kafka.tasks import App
from kafka.tasks.backends.base import BACKENDS
from test.tasks.fakes import FakeBackend


@pytest.fixture(autouse=True)
def _fake_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "fake", "test.tasks.fakes:open_fake")


@pytest.fixture
def app() -> App:
    """An app over a back end in memory."""
    return App("shop", bootstrap_servers="fake://")


@pytest.fixture
def backend(app: App) -> FakeBackend:
    """The back end of ``app``."""
    found = app.backend()
    assert isinstance(found, FakeBackend)
    return found
