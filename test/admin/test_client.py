from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from kafka.admin.client import timeout_seconds
from kafka.errors import IllegalArgumentError


@pytest.mark.parametrize(
    ("timeout_ms", "expected_s"),
    [(None, 30.0), (0, 30.0), (0.0, 30.0), (1, 0.001), (2500.0, 2.5), (2**40, 2147483.647), (inf, 2147483.647)],
)
def test_time_limits_are_seconds_and_nothing_is_the_default(timeout_ms: float | None, expected_s: float) -> None:
    assert timeout_seconds(timeout_ms, 30.0) == expected_s


@pytest.mark.parametrize("timeout_ms", [-5, -inf, nan, "5", True, [1]])
def test_a_time_limit_that_is_none_is_refused_by_its_name(timeout_ms: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="timeout_ms=.*: a number of milliseconds, 0 or more"):
        timeout_seconds(timeout_ms, 30.0)
