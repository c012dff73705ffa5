from __future__ import annotations

from kafka.broker.handlers.refused_first import refused_first


def test_what_is_refused_comes_before_what_the_coordinator_answers_for_the_same_topic() -> None:
    assert refused_first({"b": [9], "a": [7]}, [("a", [0]), ("c", [1])]) == [("b", [9]), ("a", [7, 0]), ("c", [1])]


def test_a_topic_that_is_named_twice_stays_twice_unless_something_is_refused() -> None:
    assert refused_first({}, [("a", [0]), ("a", [1])]) == [("a", [0]), ("a", [1])]
    assert refused_first({"b": []}, [("a", [0]), ("a", [1])]) == [("b", []), ("a", [0, 1])]
