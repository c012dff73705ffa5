"""What a broker without google-re2 says to regular expressions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from kafka.broker.groups import regex
from kafka.broker.groups.regex import check_regex, is_available, resolve
from kafka.broker.telemetry import MATCH, check_client_metrics
from kafka.errors import InvalidConfigurationError, InvalidRegularExpressionError


@pytest.fixture(autouse=True)
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    regex._program.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    yield
    regex._program.cache_clear()


def test_an_expression_is_refused_with_what_to_install() -> None:
    assert not is_available()
    with pytest.raises(InvalidRegularExpressionError, match=r"pip install 'kafka-taskloop\[re2\]'") as caught:
        check_regex("a.*")
    assert caught.value.errno == 128


def test_expressions_of_an_earlier_start_are_not_resolved() -> None:
    assert resolve(["a.*"], ["a"]) == {"a.*": None}


def test_a_pattern_of_clients_is_refused_with_what_to_install() -> None:
    with pytest.raises(InvalidConfigurationError, match="google-re2"):
        check_client_metrics("some", {MATCH: "client_id=a.*"})
