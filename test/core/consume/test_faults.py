from __future__ import annotations

from kafka.core.consume.fetched import has_error_location, set_error_location
from test.core.consume.rig import A


class Narrow(Exception):
    """An error of a user's that takes no attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def test_an_error_says_where_it_was_once_that_is_known() -> None:
    error = ValueError("x")
    assert not has_error_location(error)
    set_error_location(error, A, 7)
    assert has_error_location(error)
    assert (error.topic_partition, error.offset) == (A, 7)  # type: ignore[attr-defined]


def test_an_error_that_takes_no_attributes_stays_as_it_is() -> None:
    error = Narrow("x")
    set_error_location(error, A, 7)
    assert not has_error_location(error)
