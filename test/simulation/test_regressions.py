"""What seeds have found, each by itself and without chance: the smallest case in which it went wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.consumer import KafkaConsumer
from kafka.consumer.membership import InitialOffsets
from kafka.core.retry import Backoff
from kafka.core.share.session import ShareSession
from kafka.core.versions import NoAnswer, discover_versions
from kafka.errors import (
    InvalidRecordStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from kafka.share import KafkaShareConsumer
from kafka.structs import TopicPartition
from test.client.support import Fixed
from test.core.share.test_session import ACCEPT, P0, RELEASE, TOPIC, Broker
from test.simulation.world import World


@pytest.fixture
def session() -> ShareSession:
    session = ShareSession("g", "me")
    session.set_partitions([P0], {TOPIC: "t"})
    return session


@pytest.fixture
def world(tmp_path: Path) -> Any:
    world = World("found", 0, str(tmp_path))
    world.faults._spike = 0.0
    yield world
    world.close()


def test_an_acknowledgement_after_its_lock_ended_is_refused_when_the_record_comes_anew(session: ShareSession) -> None:
    """Sent later it would have released the new lock, and another member would have got what is worked on here."""
    broker = Broker(session)
    (record,) = broker.fetched(broker.ask(), (0, 3, 1)).records
    under_way = broker.ask()
    session.acknowledge(record, RELEASE)
    outcome = broker.fetched(under_way, (0, 3, 1))
    ((refused, kind, error),) = outcome.acknowledged
    assert (refused, kind, refused.lost) == (record, RELEASE, True)
    assert isinstance(error, InvalidRecordStateError)
    (anew,) = outcome.records
    assert not anew.lost
    assert not session.has_pending


def test_a_list_that_was_refused_is_not_sent_again_for_a_record_that_came_anew(session: ShareSession) -> None:
    broker = Broker(session)
    first, second = broker.fetched(broker.ask(), (0, 3, 2)).records
    session.acknowledge(first, ACCEPT)
    session.acknowledge(second, ACCEPT)
    with_acks = broker.ask()
    assert with_acks.acks
    outcome = broker.fetched(with_acks, (0, 3, 1), ack_code=InvalidRecordStateError.errno or 0)
    assert [each.record for each in outcome.acknowledged] == [first]
    (suspect,) = broker.ask().acks[P0].records
    assert suspect[1] is second


def test_a_record_whose_lock_ended_on_the_way_is_not_handed_out(session: ShareSession) -> None:
    broker = Broker(session)
    asked = broker.ask()
    broker.lock_ms = 0
    session.lock_s = 0.0
    assert not broker.fetched(asked, (0, 3, 1)).records


def test_records_that_come_while_closing_are_given_back_and_their_loss_is_not_reported(world: World) -> None:
    world.create_topic("t", 1)
    world.configure_group("g", share_auto_offset_reset="earliest", share_assignment_interval_ms=0)
    host = world.host("c1")
    lost: list[Any] = []
    consumer = KafkaShareConsumer(
        "t", client=host.client(), group_id="g", on_records=lambda records: None,
        on_lost=lambda records, error: lost.extend(records),
    )  # fmt: skip
    consumer.request_records(10)
    assert world.loop.run_until(lambda: consumer.has_joined, 10)
    world.loop.run_until(lambda: False, 1.0)
    done = consumer.close_async()
    world.produce("t", 0, [b"one"])  # a fetch is under way, and the end waits for it
    assert world.loop.run_until(done, 10)
    assert lost == []


def test_a_broker_that_stands_still_while_it_is_greeted_is_not_taken_for_an_old_one() -> None:
    closed, silent = (NoAnswer.CLOSED, NoAnswer.CLOSED), (NoAnswer.SILENT, NoAnswer.SILENT)
    for outcomes in ([closed, silent], [closed, closed, silent]):
        greeting = discover_versions(("us", "1"))
        next(greeting)
        with pytest.raises(KafkaConnectionError, match="does not answer any more"):
            for outcome in outcomes:
                greeting.send(outcome)


def test_what_was_fetched_while_paused_is_handed_out_after_resume_on_a_loop(world: World) -> None:
    world.create_topic("t", 1)
    got: list[int] = []
    consumer = KafkaConsumer(
        client=world.host("c1").client(),
        on_records=lambda found: got.extend(record.offset for records in found.values() for record in records),
        auto_offset_reset="earliest",
    )
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    world.loop.run_until(lambda: False, 1.0)
    consumer.pause(partition)
    world.produce("t", 0, [b"0:0", b"0:1"])
    world.loop.run_until(lambda: False, 2.0)
    assert got == []
    consumer.resume(partition)
    assert world.loop.run_until(lambda: got == [0, 1], 0.2)
    consumer.close()


def test_look_ups_of_committed_offsets_that_will_be_tried_again_are_no_error_of_the_users() -> None:
    errors: list[KafkaError] = []
    again: list[float] = []
    client = SimpleNamespace(
        retry_backoff=Backoff(0.1, 1.0, Fixed(0.5)),
        loop=SimpleNamespace(call_later=lambda seconds, *_: again.append(seconds)),
    )
    driver: Any = SimpleNamespace(client=client)
    starts = InitialOffsets.__new__(InitialOffsets)
    starts._driver, starts._client, starts._on_trouble = driver, client, errors.append  # type: ignore[assignment]
    partitions = [TopicPartition("t", number) for number in range(3)]
    denied = TopicAuthorizationFailedError()
    starts._complain(dict(zip(partitions, (KafkaTimeoutError(), UnknownMemberIdError(), denied), strict=True)))
    assert errors == [denied]
    assert again


def test_closing_while_the_coordinator_is_silent_ends_once_and_in_silence(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("t", 1)
    host = world.host("c1")
    consumer = KafkaConsumer("t", client=host.client(), group_id="g", on_records=lambda found: None)
    assert world.loop.run_until(consumer.assignment, 20)
    world.fabric_view.partition("c1", "broker")
    with caplog.at_level(logging.ERROR, "kafka"):
        assert world.loop.run_until(consumer.close_async(timeout_s=1.0), 5)
    assert not caplog.records
