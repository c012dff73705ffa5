"""Dialogues over the loop: each step, errors thrown in, many at once."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.client.kafka_client import KafkaClient
from kafka.core.admin.responses import request_brokers
from kafka.core.dialogue import (
    All,
    Dialogue,
    Forget,
    RefreshMetadata,
    Send,
    Sleep,
    Wait,
    now,
    refresh_metadata,
    send,
    sleep,
    wait,
    within,
)
from kafka.core.retry import retrying
from kafka.core.routing import AnyNode, Coordinator
from kafka.errors import (
    Cancelled,
    KafkaConnectionError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from test.client.support import NONE, World
from test.support.scripted import CLOSE, SILENT, ScriptedBroker


@pytest.fixture
def client(world: World, broker: ScriptedBroker) -> KafkaClient:
    return world.settled(world.client())


def test_each_step_gives_its_result(world: World, client: KafkaClient) -> None:
    future: Future[str] = Future()

    def dialogue() -> Dialogue[list[Any]]:
        began = yield from now()
        response = yield from send(AnyNode(), NONE)
        yield from sleep(5)
        yield from refresh_metadata(["jobs"])
        yield Forget(Coordinator("g"))
        world.loop.call_later(1, future.success, "waited")
        waited = yield from wait(future)
        ended = yield from now()
        return [len(response.brokers), waited, ended - began]

    assert world.wait(client.run(dialogue())) == [1, "waited", pytest.approx(6)]


def test_a_broker_that_is_not_there_is_looked_for_twice_and_for_no_longer_the_next_time(
    world: World, client: KafkaClient
) -> None:
    taken_s = []
    for _ in range(5):
        began = world.now
        assert isinstance(world.failure(client.run(request_brokers([Send(99, NONE)]))), UnknownBrokerIdError)
        taken_s.append(world.now - began)
    assert max(taken_s) < 2.5, taken_s  # two refreshes, retry_backoff_max_ms after the last one each


def test_errors_are_thrown_in_and_let_out(world: World, client: KafkaClient) -> None:
    def caught() -> Dialogue[str]:
        try:
            yield Send(99, NONE)
        except UnknownBrokerIdError:
            return "caught"
        return "not thrown"

    def let_out() -> Dialogue[None]:
        yield Send(99, NONE)

    assert world.wait(client.run(caught())) == "caught"
    assert isinstance(world.failure(client.run(let_out())), UnknownBrokerIdError)


def test_many_steps_at_once_take_the_longest(world: World, client: KafkaClient) -> None:
    def dialogue() -> Dialogue[list[Any]]:
        results: list[Any] = yield All([Sleep(3), Send(AnyNode(), NONE), Sleep(5), All([])])
        return results

    began = world.now
    first, response, second, nothing = world.wait(client.run(dialogue()))
    assert (first, second, nothing) == (None, None, []) and response.brokers
    assert world.now - began == pytest.approx(5)


def test_many_steps_throw_the_first_error_or_list_it(world: World, client: KafkaClient) -> None:
    steps = [Send(AnyNode(), NONE), Send(99, NONE)]

    def thrown() -> Dialogue[Any]:
        return (yield All(steps))

    def listed() -> Dialogue[Any]:
        return (yield All(steps, return_errors=True))

    assert isinstance(world.failure(client.run(thrown())), UnknownBrokerIdError)
    response, error = world.wait(client.run(listed()))
    assert response.brokers and isinstance(error, UnknownBrokerIdError)


def test_on_a_lane_all_requests_of_a_dialogue_go_but_those_that_name_one(world: World, client: KafkaClient) -> None:
    def dialogue() -> Dialogue[None]:
        yield from send(AnyNode(), NONE)
        yield All([Send(1, NONE), Send(1, NONE, lane="own")])

    before = {connection.lane for connection in client.connections()}
    world.wait(client.run(dialogue(), "background"))
    assert before == {None}
    assert {connection.lane for connection in client.connections()} == {None, "background", "own"}


def test_what_is_no_step_is_the_dialogues_error(world: World, client: KafkaClient) -> None:
    def dialogue() -> Any:
        yield "not a step"

    assert isinstance(world.failure(client.run(dialogue())), TypeError)


def test_a_thousand_steps_that_are_done_at_once_do_not_recurse(world: World, client: KafkaClient) -> None:
    def dialogue() -> Dialogue[int]:
        for _ in range(5_000):
            yield Wait(Future[int]().success(1))
        return 1

    assert world.wait(client.run(dialogue())) == 1


def test_a_retried_dialogue_outlives_a_lost_connection(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    answer = broker.answers[ListGroupsRequest]
    assert callable(answer)
    broker.answers[ListGroupsRequest] = [lambda request, version: CLOSE, answer]

    def attempt() -> Dialogue[int]:
        return (yield from send(1, ListGroupsRequest())).error_code

    dialogue = retrying(attempt, what="listing", backoff=client.retry_backoff, timeout_s=30)
    assert world.wait(client.run(dialogue)) == 0


def test_closing_the_client_throws_cancelled_into_what_runs(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    seen: list[str] = []

    def sleeper() -> Dialogue[None]:
        try:
            yield Sleep(1000)
        except Cancelled:
            seen.append("woken")
            raise

    def sender() -> Dialogue[None]:
        yield Send(1, ListGroupsRequest())

    futures = [client.run(sleeper()), client.run(sender())]
    client.close()
    assert seen == ["woken"]
    assert all(isinstance(future.exception, Cancelled) for future in futures)


def test_a_refresh_that_fails_is_thrown_in(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    broker.answers[MetadataRequest] = [lambda request, version: CLOSE, broker.metadata]

    def dialogue() -> Dialogue[None]:
        yield RefreshMetadata()

    assert isinstance(world.failure(client.run(dialogue())), KafkaConnectionError)


@pytest.mark.parametrize(
    "step",
    [
        lambda at: Send(1, ListGroupsRequest(), timeout_s=30, give_up_at=at),
        lambda at: Send(1, ListGroupsRequest(), give_up_at=at),
        lambda at: RefreshMetadata(["t"], give_up_at=at),
        lambda at: All([RefreshMetadata(["t"], give_up_at=at), Send(1, ListGroupsRequest(), give_up_at=at)]),
    ],
    ids=["a request with a limit", "a request", "a refresh", "both"],
)
def test_a_step_is_not_waited_for_beyond_the_dialogues_own_time(
    world: World, client: KafkaClient, broker: ScriptedBroker, step: Any
) -> None:
    broker.answers[ListGroupsRequest] = broker.answers[MetadataRequest] = lambda request, version: SILENT

    def dialogue() -> Dialogue[None]:
        yield step((yield from now()) + 3)

    began = world.now
    error = world.failure(client.run(dialogue()))
    assert isinstance(error, RequestTimedOutError | KafkaTimeoutError)
    assert world.now - began == pytest.approx(3, abs=0.01)


def test_a_limit_that_is_later_than_the_steps_own_changes_nothing(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT

    def dialogue() -> Dialogue[None]:
        yield Send(1, ListGroupsRequest(), timeout_s=2, give_up_at=(yield from now()) + 500)

    began = world.now
    world.failure(client.run(dialogue()))
    assert world.now - began == pytest.approx(2, abs=0.01)


def test_within_limits_every_request_of_a_dialogue_and_changes_nothing_else(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    answers: list[Any] = [broker.answers[ListGroupsRequest], lambda request, version: SILENT]
    broker.answers[ListGroupsRequest] = answers

    def inner() -> Dialogue[str]:
        response = yield from send(1, ListGroupsRequest())
        assert response.groups == []
        yield from sleep(1)
        try:
            yield All([Send(1, ListGroupsRequest(), timeout_s=100)])
        except RequestTimedOutError:
            return "given up"
        return "answered"

    def outer() -> Dialogue[str]:
        return (yield from within((yield from now()) + 4, inner()))

    began = world.now
    assert world.wait(client.run(outer())) == "given up"
    assert world.now - began == pytest.approx(4, abs=0.01)


def test_a_retried_dialogue_is_not_longer_than_it_may_be(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    broker.answers[ListGroupsRequest] = broker.answers[MetadataRequest] = lambda request, version: SILENT
    dialogue = retrying(
        lambda: send(1, ListGroupsRequest()), what="listing", backoff=client.retry_backoff, timeout_s=10
    )
    began = world.now
    error = world.failure(client.run(dialogue))
    assert isinstance(error, KafkaTimeoutError)
    assert world.now - began <= 10.01
