from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.future import Future
from test.share.support import Leaders, Machine


@pytest.fixture(autouse=True)
def _callbacks_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Future, "error_on_callbacks", True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The real broker machine with the topic ``t`` of two partitions and a group ``g`` that starts at the earliest."""
    machine = Machine(tmp_path)
    machine.create_topic("t", 2)
    machine.configure_group()
    yield machine
    machine.close()


@pytest.fixture
def leaders() -> Iterator[Callable[..., Leaders]]:
    made: list[Leaders] = []

    def make(count: int, **configs: Any) -> Leaders:
        made.append(Leaders(count, **configs))
        return made[-1]

    yield make
    for each in made:
        each.close()
