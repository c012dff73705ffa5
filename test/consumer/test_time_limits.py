"""A look-up of offsets keeps to its time limit, whatever it was doing when that passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.structs import TopicPartition
from test.consumer.test_consumer import NOT_LEADER, A, Rig, rig
from test.support.scripted import SILENT, Answer


def dead(made: Rig) -> None:
    made.broker.stop()


def deaf(made: Rig) -> None:
    """Takes connections and requests, and answers none."""
    for request in (ListOffsetsRequest, MetadataRequest):
        made.broker.answers[request] = lambda request, version: SILENT


def slow_to_fail(made: Rig) -> None:
    """Nothing comes back from the host at all, so that connecting takes its whole time."""
    made.broker._network.partition("kafka", "client")  # type: ignore[attr-defined]


def refuses(made: Rig) -> None:
    """NOT_LEADER_OR_FOLLOWER, from the one that metadata calls the leader."""

    def refuse(request: Any, version: int) -> Answer:
        answer = made.list_offsets(request, version)
        assert isinstance(answer, ListOffsetsResponse)
        for entry in answer.topics[0].partitions:
            entry.error_code = NOT_LEADER
        return answer

    made.broker.answers[ListOffsetsRequest] = refuse


@pytest.mark.parametrize("trouble", [dead, deaf, slow_to_fail, refuses], ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("timeout_s", [1, 7, 15])
def test_the_end_is_not_looked_for_longer_than_it_may_be(trouble: Callable[[Rig], None], timeout_s: int) -> None:
    with rig() as made:
        consumer = made.consumer()
        consumer.assign([A])
        made.run(1)
        trouble(made)
        began = made.loop.time()
        found = consumer._driver.find_offsets({A: -1}, timeout_s)
        assert made.loop.run_until(found, 100)
        assert isinstance(found.exception, KafkaTimeoutError)
        assert f"no offsets for t-0 within {timeout_s} s" in str(found.exception)
        assert made.loop.time() - began <= timeout_s + 0.01
        consumer.close()


def test_the_text_says_what_stood_in_the_way_and_not_that_time_was_up_twice() -> None:
    with rig() as made:
        consumer = made.consumer()
        consumer.assign([A])
        made.run(1)
        made.broker.stop()
        found = consumer._driver.find_offsets({A: -1, TopicPartition("t", 1): -2}, 15)
        assert made.loop.run_until(found, 100)
        error = found.exception
        assert isinstance(error, KafkaError)
        assert "no offsets for t-0, t-1 within 15 s; last: KafkaConnectionError" in str(error)
        consumer.close()
