from __future__ import annotations

import inspect
from collections.abc import Iterator
from math import inf, nan
from typing import Any, get_type_hints
from unittest import mock

import pytest

from kafka import KafkaAdminClient
from kafka.admin import NewTopic, dialogues
from kafka.admin.client import timeout_seconds
from kafka.errors import IllegalArgumentError
from kafka.testing import EmbeddedBroker

DIALOGUES_WITHOUT_A_METHOD = {"share_group_offsets"}
OF_THE_CLIENT = {"backoff", "timeout_s", "software", "leader_of", "now_ms", "attempts", "raise_errors", "node_id"}
"""Parameters of dialogues that methods need not have."""
TRANSLATED = {"timeout_ms": "timeout_s", "group_coordinator_id": "node_id"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"events": 1}) as broker:
        yield broker


def methods() -> dict[str, Any]:
    """Those that are made from dialogues, by name."""
    return {name: method for name, method in vars(KafkaAdminClient).items() if hasattr(method, "__wrapped__")}


def test_there_is_a_method_for_each_dialogue() -> None:
    missing = {name for name in dialogues.__all__ if not hasattr(KafkaAdminClient, name)}
    assert missing == DIALOGUES_WITHOUT_A_METHOD
    assert len(methods()) > 35


@pytest.mark.parametrize("name", sorted(methods().keys() - {"delete_consumer_groups"}))
def test_a_method_takes_what_its_dialogue_takes(name: str) -> None:
    taken = inspect.signature(getattr(dialogues, name)).parameters
    parameters = inspect.signature(methods()[name]).parameters
    given = {TRANSLATED.get(each, each): parameter for each, parameter in parameters.items() if each != "self"}
    assert given.keys() <= taken.keys()
    assert taken.keys() - given.keys() <= OF_THE_CLIENT
    for each in given.keys() - {"timeout_s"}:
        assert given[each].default == taken[each].default, each
        if each != "alterations":  # the dialogue takes a credential with any salt, the method one that makes its own
            assert given[each].annotation == taken[each].annotation, each


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_made_method_looks_like_one_that_is_written(name: str) -> None:
    method = methods()[name]
    assert inspect.isfunction(method)
    assert (method.__name__, method.__qualname__) == (name, f"KafkaAdminClient.{name}")
    assert method.__module__ == KafkaAdminClient.__module__
    assert inspect.getdoc(method)
    assert "Result" not in str(inspect.signature(method).return_annotation)
    assert "return" in get_type_hints(method)


def test_the_docstring_is_the_declarations_or_the_dialogues() -> None:
    assert KafkaAdminClient.list_topics.__doc__ == dialogues.list_topics.__doc__
    assert "``{group: \"OK\"}``" in str(KafkaAdminClient.delete_groups.__doc__)


def test_wrong_arguments_are_refused_as_by_any_method(broker: EmbeddedBroker) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        unknown: Any = admin.describe_topics
        with pytest.raises(TypeError, match=r"describe_topics\(\) got an unexpected keyword argument 'timeout_ms'"):
            unknown(timeout_ms=5)
        with pytest.raises(TypeError, match=r"delete_topics\(\) missing 1 required positional argument: 'topics'"):
            admin.delete_topics()  # type: ignore[call-arg]


def test_arguments_are_taken_by_position_and_by_name(broker: EmbeddedBroker) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("jobs", 1, 1)])
        by_name = admin.create_partitions(topic_partitions={"jobs": 2}, validate_only=True, timeout_ms=10000)
        assert by_name == admin.create_partitions({"jobs": 2}, 10000, True)
        refused = admin.create_partitions({"jobs": 1}, None, False, False)
        assert [topic["error_code"] for topic in refused["results"]] == [37]
        (node,) = (each["broker_id"] for each in admin.describe_cluster()["brokers"])
        assert admin.describe_groups(["readers"], node) == admin.describe_groups(["readers"], group_coordinator_id=node)


def test_a_subclass_may_override_a_made_method(broker: EmbeddedBroker) -> None:
    class Prefixed(KafkaAdminClient):
        def list_topics(self) -> list[str]:
            return [f"the {name}" for name in super().list_topics()]

        def list_groups(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
            return [{"group_id": "readers", "protocol_type": "consumer"}]

    with Prefixed(bootstrap_servers=broker.bootstrap) as admin:
        assert "the events" in admin.list_topics()
        assert admin.list_consumer_groups() == [("readers", "consumer")]


@pytest.mark.parametrize("autospec", [None, True])
def test_a_made_method_may_be_patched(broker: EmbeddedBroker, autospec: bool | None) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        with mock.patch.object(KafkaAdminClient, "list_topics", autospec=autospec, return_value=["none"]) as patched:
            assert admin.list_topics() == ["none"]
        assert patched.call_count == 1
        assert "events" in admin.list_topics()


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
