"""One question for many groups: how coordinators are looked for, and what is said of errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka.core.admin.routing import find_coordinators, request_coordinator, request_coordinators, result_or_raise
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Send
from kafka.core.routing import AnyNode, CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    NotCoordinatorError,
    TransactionalIdNotFoundError,
)
from kafka.protocol.coordinator import FindCoordinatorResponse
from kafka.wire.codec import encode
from test.core.admin.driving import BACKOFF, asked

DENIED = 30
OLD = IncompatibleBrokerVersion("too old")


def coordinators(**nodes: int) -> FindCoordinatorResponse:
    entry = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(coordinators=[entry(key=key, node_id=node) for key, node in nodes.items()])


def built(send: Send, version: int) -> Any:
    assert isinstance(send.request, ByVersion)
    request = send.request.build(version)
    encode(request, version)
    return request


def test_several_keys_are_one_request_since_version_4() -> None:
    """KIP-699."""
    found, (send,) = asked(find_coordinators(["a", "b"]), coordinators(a=1, b=0))
    assert found == {"a": 1, "b": 0}
    request: Any = send.request
    assert (send.target, send.min_version, request.key_type) == (AnyNode(), 4, 0)
    assert request.coordinator_keys == ["a", "b"]
    encode(request, 4)


@pytest.mark.parametrize(
    ("kind", "number", "least"), [(CoordinatorType.GROUP, 0, 0), (CoordinatorType.TRANSACTION, 1, 1)]
)
def test_one_key_is_asked_for_up_to_version_3_and_version_0_has_groups_alone(
    kind: CoordinatorType, number: int, least: int
) -> None:
    """The type of the key came with version 1 (KIP-98)."""
    answers = [FindCoordinatorResponse(node_id=1), FindCoordinatorResponse(error_code=DENIED)]
    found, (_, one, other) = asked(find_coordinators(["a", "b"], kind), OLD, *answers)
    assert found == {"a": 1, "b": GroupAuthorizationFailedError("")}
    for send, key in ((one, "a"), (other, "b")):
        assert (send.target, send.min_version, send.max_version) == (AnyNode(), least, 3)
        for version in range(least, 4):
            request = built(send, version)
            assert (request.key, request.key_type) == (key, number)


def ask(node: int, groups: Sequence[str]) -> Any:
    return dict.fromkeys(groups, node)
    yield


def test_groups_are_meant_unless_transactional_ids_are() -> None:
    for options, number in (({}, 0), ({"kind": CoordinatorType.TRANSACTION}, 1)):
        dialogue: Any = request_coordinators(["a"], ask, what="asking", backoff=BACKOFF, timeout_s=1.0, **options)
        found, (send,) = asked(dialogue, coordinators(a=0))
        assert found == {"a": 0}
        assert send.request.key_type == number  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "argument", "noun"),
    [
        (CoordinatorType.GROUP, "group_ids", "group"),
        (CoordinatorType.TRANSACTION, "transactional_ids", "transactional id"),
    ],
)
def test_what_are_no_names_is_refused_with_the_name_of_the_argument(
    kind: CoordinatorType, argument: str, noun: str
) -> None:
    for wrong, text in (("ab", f" {argument}='ab': a list of names"), ([7], f" 7: a {noun} is a text$")):
        dialogue: Any = request_coordinators(wrong, ask, what="asking", backoff=BACKOFF, timeout_s=1.0, kind=kind)
        with pytest.raises(IllegalArgumentError, match=text):
            asked(dialogue)


def test_errors_name_the_group_and_have_the_brokers_text() -> None:
    for error, text in (
        (GroupAuthorizationFailedError("no"), "group g: no"),
        (GroupAuthorizationFailedError(""), "group g"),
        (GroupAuthorizationFailedError(), "group g"),
    ):
        with pytest.raises(GroupAuthorizationFailedError) as caught:
            result_or_raise(error, "g")
        assert caught.value.args == (text,)
    with pytest.raises(TransactionalIdNotFoundError, match="^.*transactional id x$"):
        result_or_raise(TransactionalIdNotFoundError(""), "x", CoordinatorType.TRANSACTION)
    answer: int | BrokerResponseError = 0
    assert result_or_raise(answer, "g") == 0


@pytest.mark.parametrize(("said", "text"), [("no", "group x: no"), (None, "group x"), ("", "group x")])
def test_the_error_of_a_look_up_is_the_groups(said: str | None, text: str) -> None:
    entry = FindCoordinatorResponse.Coordinator(key="x", error_code=DENIED, error_message=said)

    def never(node: int) -> Any:
        raise AssertionError
        yield

    dialogue = request_coordinator("x", never, what="asking", backoff=BACKOFF, timeout_s=1.0)
    with pytest.raises(GroupAuthorizationFailedError) as caught:
        asked(dialogue, FindCoordinatorResponse(coordinators=[entry]))
    assert caught.value.args == (text,)


def test_an_answer_from_the_wrong_broker_is_raised_when_nothing_is_tried_again() -> None:
    def moved(node: int, groups: Sequence[str]) -> Any:
        return dict.fromkeys(groups, NotCoordinatorError("moved"))
        yield

    dialogue: Any = request_coordinators(["a"], moved, what="asking", backoff=BACKOFF, timeout_s=1.0, attempts=1)
    with pytest.raises(NotCoordinatorError, match="moved"):
        asked(dialogue, coordinators(a=1))
