"""The machine as a whole: unknown requests, held replies, restarts, time, connections that go."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from kafka.broker.broker import OPENED_AT_ONCE, Broker
from kafka.broker.log import DirectoryLockedError, flushing
from kafka.broker.responses import ConnectionContext
from kafka.errors import KafkaConfigurationError
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.framing import UnknownRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.transactions import InitProducerIdRequest
from test.broker.driver import HandBroker, batch, fetch_request, fetched, produce_request, values

FIRST_SWEEP_S = 30.0
"""When the broker looks for expired records at the earliest: it always has that to wake up for."""


@pytest.mark.parametrize(("key", "version"), [(3, 99), (999, 0), (11, 5)])
def test_an_unknown_request_ends_the_connection(hand: HandBroker, key: int, version: int) -> None:
    reply = hand.broker.handle(hand.connection, UnknownRequest(key, version, 1, None), hand.now)
    assert reply.done
    assert reply.hang_up


def test_a_version_below_the_served_ones_ends_the_connection(hand: HandBroker) -> None:
    assert hand.send(fetch_request("t"), 3).hang_up


def test_an_api_versions_from_the_future_gets_the_versions_of_api_versions_in_version_0(hand: HandBroker) -> None:
    reply = hand.broker.handle(hand.connection, UnknownRequest(18, 99, 1, None), hand.now)
    assert reply.version == 0
    answer = hand.answer(ApiVersionsRequest(), reply)
    assert answer.error_code == 35
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]


def test_a_fault_of_ours_ends_the_connection_and_not_the_broker(hand: HandBroker) -> None:
    with mock.patch.object(hand.broker, "endpoint", side_effect=ZeroDivisionError):
        assert hand.send(MetadataRequest(topics=[])).hang_up
    assert hand.ask(MetadataRequest(topics=[])).controller_id == 1


def test_with_fsync_always_replies_wait_for_one_sync_of_the_turn(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data", fsync="always")
    hand.create_topic("t")
    with mock.patch.object(flushing, "sync_files", wraps=flushing.sync_files) as sync:
        replies = [hand.send(produce_request("t", batch(b"%d" % at)), 9) for at in range(5)]
        assert not any(reply.done for reply in replies)
        assert sync.call_count == 0
        hand.tick()
        assert all(reply.done for reply in replies)
        assert sync.call_count == 1
    hand.broker.close()


def test_everything_is_there_after_a_restart(hand: HandBroker) -> None:
    topic_id = hand.create_topic("t", 2, retention_ms="5")
    hand.produce("t", batch(b"a", b"b"), partition=1)
    hand.set_group("g", share_auto_offset_reset="earliest")
    first = hand.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).producer_id
    hand.restart()
    assert hand.broker.topic("t").topic_id == topic_id
    assert hand.broker.metadata.config("topic", "t") == {"retention.ms": "5"}
    assert hand.broker.share.config("g").value("share.auto.offset.reset") == "earliest"
    answer = hand.ask(fetch_request(topic_id=topic_id, offsets=(0, 0)))
    assert values(fetched(answer)[1].records) == [b"a", b"b"]
    later = hand.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).producer_id
    assert later > first


def test_an_idempotent_producer_is_known_after_a_restart(hand: HandBroker) -> None:
    hand.create_topic("t")
    data = batch(b"a", producer=(5, 0, 0))
    assert hand.produce("t", data).base_offset == 0
    hand.restart()
    assert hand.produce("t", data).base_offset == 0, "a duplicate"
    assert hand.produce("t", batch(b"b", producer=(5, 0, 1))).base_offset == 1


def test_the_cluster_id_is_kept(hand: HandBroker) -> None:
    before = hand.broker.ids.cluster_id
    hand.restart()
    assert hand.broker.ids.cluster_id == before
    assert len(before) == 22


def test_a_second_broker_on_the_directory_is_refused_with_the_first_ones_pid(hand: HandBroker) -> None:
    with pytest.raises(DirectoryLockedError, match="process [0-9]+"):
        Broker(str(hand.data_dir))


def test_wrong_settings_leave_the_directory_free(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError):
        Broker(str(tmp_path), {"num.partitions": "none"})
    with pytest.raises(KafkaConfigurationError):
        Broker(str(tmp_path), fsync="sometimes")
    Broker(str(tmp_path)).close()


def test_a_parked_request_of_a_lost_connection_is_forgotten(hand: HandBroker) -> None:
    hand.create_topic("t")
    reply = hand.send(fetch_request("t", max_wait_ms=1000), 12)
    assert not reply.done
    hand.broker.disconnected(hand.connection, hand.now)
    hand.produce("t", batch())
    hand.advance(2)
    assert not reply.done
    assert (hand.tick() or FIRST_SWEEP_S) >= FIRST_SWEEP_S


def test_the_next_deadline_is_that_of_the_first_request_to_end(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert (hand.tick() or FIRST_SWEEP_S) >= FIRST_SWEEP_S
    request: FetchRequest = fetch_request("t", max_wait_ms=700)
    assert not hand.send(request, 12).done
    assert hand.tick() == pytest.approx(0.7)


# -- many partitions in one request ----------------------------------------------------------------------------------


def test_a_request_that_names_many_partitions_opens_their_logs_in_slices_and_then_waits_as_any_other(
    hand: HandBroker,
) -> None:
    count = 2 * OPENED_AT_ONCE + 1
    hand.create_topic("t", count)
    reader = ConnectionContext()
    reply = hand.send(fetch_request("t", [0] * count, max_wait_ms=60_000), 11, reader)
    opened = [len(hand.broker.logs.all_open_logs())]
    while len(hand.broker.logs.all_open_logs()) < count:
        hand.tick()
        opened.append(len(hand.broker.logs.all_open_logs()))
    assert [after - before for before, after in pairwise(opened)] == [OPENED_AT_ONCE, 1]
    hand.tick()
    assert not reply.done, "it waits for records"
    hand.produce("t", batch(b"v"), partition=7)
    hand.tick()
    assert values(fetched(hand.answer(fetch_request("t"), reply, 11))[7].records) == [b"v"]


def test_a_request_whose_connection_ends_while_it_waits_after_its_slices_is_forgotten(hand: HandBroker) -> None:
    count = OPENED_AT_ONCE + 1
    hand.create_topic("t", count)
    reader = ConnectionContext()
    reply = hand.send(fetch_request("t", [0] * count, max_wait_ms=60_000), 11, reader)
    hand.tick()
    hand.tick()
    assert len(hand.broker.purgatory) == 1
    hand.broker.disconnected(reader, hand.now)
    assert (len(hand.broker.purgatory), reply.done) == (0, False)


def test_a_request_that_fails_after_its_slices_is_answered_with_its_error(hand: HandBroker) -> None:
    """FETCH_SESSION_ID_NOT_FOUND (70): the handler raises it when the logs are open."""
    count = OPENED_AT_ONCE + 1
    hand.create_topic("t", count)
    request = fetch_request("t", [0] * count)
    request.session_id, request.session_epoch = 77, 5
    reply = hand.send(request, 11)
    assert not reply.done
    hand.tick()
    hand.tick()
    assert not reply.hang_up
    assert hand.answer(request, reply, 11).error_code == 70
