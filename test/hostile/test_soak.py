"""The soak, short: honest clients beside hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.hostile import soak

SLOWER = 10
"""How much slower than in the long run a request may be: a short one begins with imports, and CI has other work."""


@pytest.mark.deep("half a minute of two processors; kept by test/hostile/test_generator.py")
@pytest.mark.timeout(300)
def test_honest_clients_are_served_beside_hostile_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "MOST_P99_S", SLOWER * soak.MOST_P99_S)
    monkeypatch.setattr(soak, "MOST_GROWTH", 2.0)
    assert soak.soak(20.0, tmp_path) == []
