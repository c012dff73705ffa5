"""The machine of telemetry (KIP-714), step by step."""

from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

import pytest

from kafka.core.states import TelemetryState
from kafka.core.telemetry import (
    DEFAULT_INTERVAL_S,
    MAX_IMMEDIATE_RETRIES,
    TELEMETRY_ERROR_ACTIONS,
    NextTelemetryRequest,
    Push,
    TelemetryErrorAction,
    TelemetryMachine,
)
from kafka.errors import KafkaConnectionError, UnsupportedCompressionTypeError
from kafka.protocol.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from kafka.wire.types import ZERO_UUID

ID = UUID("12345678-1234-4234-8234-123456789abc")


class Chance:
    """Always the same."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def subscriptions_response(**values: Any) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        **{
            "throttle_time_ms": 0, "error_code": 0, "client_instance_id": ID, "subscription_id": 7,
            "accepted_compression_types": [4, 3, 1, 2], "push_interval_ms": 10_000, "telemetry_max_bytes": 1000,
            "delta_temporality": True, "requested_metrics": ["org.apache.kafka.producer."], **values,
        }
    )  # fmt: skip


def answer(error_code: int = 0) -> PushTelemetryResponse:
    return PushTelemetryResponse(throttle_time_ms=0, error_code=error_code)


def subscribed(chance: float = 0.5, **values: Any) -> TelemetryMachine:
    machine = TelemetryMachine(Chance(chance), {1, 3})
    assert isinstance(machine.poll(0.0), NextTelemetryRequest)
    machine.subscribed(subscriptions_response(**values), 0.0)
    return machine


def test_it_asks_at_once_without_an_id_and_later_with_the_one_that_it_was_given() -> None:
    machine = TelemetryMachine(Chance())
    asked = machine.poll(0.0)
    assert isinstance(asked, NextTelemetryRequest) and asked.request.client_instance_id == ZERO_UUID
    assert machine.next_deadline == inf and machine.poll(100.0) is None, "one request at a time"
    machine.subscribed(subscriptions_response(requested_metrics=[]), 1.0)
    assert machine.state is TelemetryState.SUBSCRIPTION_NEEDED and machine.next_deadline == 11.0, (
        "nothing is wanted now"
    )
    again = machine.poll(11.0)
    assert isinstance(again, NextTelemetryRequest) and again.request.client_instance_id == ID


@pytest.mark.parametrize(("chance", "first_s"), [(0.0, 5.0), (0.5, 10.0), (0.999, 14.99)])
def test_the_first_push_is_spread_over_half_to_one_and_a_half_intervals_and_the_next_are_not(
    chance: float, first_s: float
) -> None:
    machine = subscribed(chance)
    assert machine.next_deadline == pytest.approx(first_s)
    assert machine.poll(first_s - 0.01) is None
    push = machine.poll(machine.next_deadline)
    assert isinstance(push, Push) and not push.is_terminating
    machine.pushed(answer(), 20.0)
    assert machine.next_deadline == 30.0


def test_the_codec_is_the_first_of_the_brokers_that_works_here() -> None:
    push = subscribed().poll(10.0)
    assert isinstance(push, Push) and push.compression_type == 3
    machine = TelemetryMachine(Chance())
    machine.poll(0.0)
    machine.subscribed(subscriptions_response(), 0.0)
    plain = machine.poll(10.0)
    assert isinstance(plain, Push) and plain.compression_type == 0


def test_a_subscription_wants_names_by_their_beginnings_or_all() -> None:
    some = subscribed(requested_metrics=["org.apache.kafka.producer.record.", "a."]).subscription
    every = subscribed(requested_metrics=["*"]).subscription
    assert some is not None and every is not None
    assert some.wants("org.apache.kafka.producer.record.size.avg") and some.wants("a.b")
    assert not some.wants("org.apache.kafka.producer.byte.rate")
    assert every.wants("anything")


@pytest.mark.parametrize("error", TELEMETRY_ERROR_ACTIONS.rows)
def test_each_error_has_its_reaction(error: Any) -> None:
    machine = subscribed()
    machine.poll(10.0)
    machine.pushed(answer(error.errno), 11.0)
    reaction = TELEMETRY_ERROR_ACTIONS.rows[error]
    if reaction is TelemetryErrorAction.STOP:
        assert machine.is_terminated and machine.next_deadline == inf and isinstance(machine.error, error)
    else:
        assert machine.state is TelemetryState.SUBSCRIPTION_NEEDED
        assert machine.next_deadline == (11.0 if reaction is TelemetryErrorAction.AT_ONCE else 21.0)
        assert isinstance(machine.poll(21.0), NextTelemetryRequest)


def test_an_error_that_nobody_thought_of_ends_telemetry() -> None:
    machine = subscribed()
    machine.poll(10.0)
    machine.pushed(answer(-1), 11.0)
    assert machine.is_terminated


def test_an_error_before_any_subscription_is_waited_out_for_five_minutes() -> None:
    machine = TelemetryMachine(Chance())
    machine.poll(0.0)
    machine.subscribed(subscriptions_response(error_code=89), 1.0)
    assert machine.next_deadline == 1.0 + DEFAULT_INTERVAL_S and machine.subscription is None


def test_errors_in_a_row_do_not_make_it_ask_without_a_pause() -> None:
    machine = subscribed()
    machine.poll(10.0)
    machine.pushed(answer(117), 11.0)
    for _ in range(MAX_IMMEDIATE_RETRIES - 1):
        machine.poll(11.0)
        machine.subscribed(subscriptions_response(error_code=117), 11.0)
        assert machine.next_deadline == 11.0
    machine.poll(11.0)
    machine.subscribed(subscriptions_response(error_code=117), 11.0)
    assert machine.next_deadline == 21.0


def test_a_codec_that_was_refused_is_not_used_again() -> None:
    machine = subscribed()
    machine.poll(10.0)
    machine.pushed(answer(UnsupportedCompressionTypeError.errno), 10.0)
    machine.poll(10.0)
    machine.subscribed(subscriptions_response(), 10.0)
    push = machine.poll(20.0)
    assert isinstance(push, Push) and push.compression_type == 1


def test_a_request_without_an_answer_is_followed_by_another_question_after_the_interval() -> None:
    machine = subscribed()
    machine.poll(10.0)
    machine.failed(KafkaConnectionError("lost"), 12.0)
    assert machine.state is TelemetryState.SUBSCRIPTION_NEEDED and machine.next_deadline == 22.0


@pytest.mark.parametrize(("told_ms", "s"), [(1, 0.1), (2**31 - 1, 3600.0)])
def test_an_interval_is_as_long_as_a_broker_can_be_set_to(told_ms: int, s: float) -> None:
    found = subscribed(push_interval_ms=told_ms).subscription
    assert found is not None and found.interval_s == s


def test_an_impossible_interval_is_five_minutes() -> None:
    found = subscribed(push_interval_ms=0).subscription
    assert found is not None and found.interval_s == DEFAULT_INTERVAL_S


@pytest.mark.parametrize("is_pushing", [False, True])
def test_closing_pushes_a_last_time_and_then_it_is_over(is_pushing: bool) -> None:
    machine = subscribed()
    if is_pushing:
        machine.poll(10.0)
    machine.close()
    push = machine.poll(10.0)
    assert isinstance(push, Push) and push.is_terminating
    machine.close()
    machine.pushed(answer(), 10.0)
    assert machine.is_terminated and machine.poll(100.0) is None


def test_closing_without_a_subscription_pushes_nothing() -> None:
    machine = TelemetryMachine(Chance())
    machine.close()
    assert machine.is_terminated and machine.poll(0.0) is None
    asking = TelemetryMachine(Chance())
    asking.poll(0.0)
    asking.close()
    asking.subscribed(subscriptions_response(), 1.0)
    assert asking.is_terminated and asking.subscription is None, "the answer comes too late"


def test_a_last_push_that_is_lost_is_the_last_all_the_same() -> None:
    machine = subscribed()
    machine.close()
    machine.poll(10.0)
    machine.failed(KafkaConnectionError("lost"), 11.0)
    assert machine.is_terminated
