"""Fetch and ListOffsets: what comes out, how long it waits, and what is wrong with the rest."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.broker.log import PartitionLog, TransactionMarker
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import OffsetForLeaderEpochRequest
from kafka.protocol.topics import CreatePartitionsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from kafka.records import iter_batches
from test.broker.driver import EPOCH_S, HandBroker, batch, fetch_request, fetched, plain, produce_request, values

EPOCH_MS = int(EPOCH_S * 1000)


@pytest.mark.parametrize("version", range(4, 19))
def test_records_come_back_as_they_were_sent_in_every_version(hand: HandBroker, version: int) -> None:
    topic_id = hand.create_topic("t")
    hand.produce("t", batch(b"a", b"b"))
    (partition,) = fetched(hand.ask(fetch_request("t", topic_id=topic_id), version))
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert values(partition.records) == [b"a", b"b"]


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.produce("t", batch(b"a", b"b", b"c"))
    (partition,) = fetched(hand.ask(fetch_request("t", (1,)), 12))
    assert values(partition.records) == [b"a", b"b", b"c"]


def test_limits_hold_but_one_batch_always_comes(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    for partition in (0, 1):
        for _ in range(4):
            hand.produce("t", batch(b"x" * 100), partition)
    size = len(batch(b"x" * 100))
    first, second = fetched(hand.ask(fetch_request("t", (0, 0), max_bytes=1), 12))
    assert (len(values(first.records)), len(values(second.records))) == (1, 0)
    first, second = fetched(hand.ask(fetch_request("t", (0, 0), partition_max_bytes=2 * size), 12))
    assert (len(values(first.records)), len(values(second.records))) == (2, 2)
    first, second = fetched(hand.ask(fetch_request("t", (0, 0), max_bytes=5 * size + 9), 12))
    assert (len(values(first.records)), len(values(second.records))) == (4, 1)


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (2, 1), (1, 0)])
def test_an_offset_out_of_range_is_reported_at_once(hand: HandBroker, offset: int, code: int) -> None:
    hand.create_topic("t")
    hand.produce("t", batch())
    reply = hand.send(fetch_request("t", (offset,), max_wait_ms=1000), 12)
    assert reply.done is bool(code)
    hand.advance(1)
    assert fetched(hand.answer(fetch_request(), reply, 12))[0].error_code == code


def test_an_unknown_topic_is_3_by_name_and_100_by_id(hand: HandBroker) -> None:
    assert fetched(hand.ask(fetch_request("nope", max_wait_ms=1000), 12))[0].error_code == 3
    assert fetched(hand.ask(fetch_request(topic_id=UUID(int=3), max_wait_ms=1000), 13))[0].error_code == 100


@pytest.mark.parametrize("session", [(0, 5), (55, 3)])
def test_a_missing_session_is_an_error(hand: HandBroker, session: tuple[int, int]) -> None:
    hand.create_topic("t")
    assert hand.ask(fetch_request("t", session=session), 12).error_code == 70


def test_a_fetch_at_the_end_waits_for_records(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    request = fetch_request("t", (0, 0), max_wait_ms=500)
    reply = hand.send(request, 12)
    hand.advance(0.3)
    assert not reply.done
    hand.send(produce_request("t", batch(b"a"), partition=1), 9)
    hand.send(produce_request("t", batch(b"b"), partition=1), 9)
    assert not reply.done, "it is woken when the turn ends, for all that came in it"
    hand.tick()
    first, second = fetched(hand.answer(request, reply, 12))
    assert (values(first.records), values(second.records)) == ([], [b"a", b"b"])


def test_a_fetch_that_nothing_wakes_is_answered_when_its_time_is_up(hand: HandBroker) -> None:
    hand.create_topic("t")
    request = fetch_request("t", max_wait_ms=500)
    reply = hand.send(request, 12)
    hand.advance(0.499)
    assert not reply.done
    hand.advance(0.001)
    assert values(fetched(hand.answer(request, reply, 12))[0].records) == []


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(hand: HandBroker) -> None:
    hand.create_topic("t")
    size = len(batch(b"x"))
    request = fetch_request("t", max_wait_ms=500, min_bytes=size + 1)
    reply = hand.send(request, 12)
    hand.produce("t", batch(b"x"))
    assert not reply.done
    hand.produce("t", batch(b"x"))
    assert len(values(fetched(hand.answer(request, reply, 12))[0].records)) == 2


def test_a_waiting_fetch_learns_that_its_topic_is_deleted(hand: HandBroker) -> None:
    hand.create_topic("t")
    request = fetch_request("t", max_wait_ms=500)
    reply = hand.send(request, 12)
    hand.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=0))
    assert fetched(hand.answer(request, reply, 12))[0].error_code == 3


def test_fetched_batches_carry_their_offsets(hand: HandBroker) -> None:
    hand.create_topic("t")
    for _ in range(3):
        hand.produce("t", batch(b"a", b"b"))
    (partition,) = fetched(hand.ask(fetch_request("t", (2,)), 12))
    assert [header.base_offset for header in iter_batches(plain(partition.records))] == [2, 4]


def test_a_fetch_for_many_bytes_reads_nothing_again_until_they_can_be_there(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t")
    size = len(batch(b"x"))
    request = fetch_request("t", max_wait_ms=500, min_bytes=10 * size)
    hand.produce("t", batch(b"x"))
    reply = hand.send(request, 12)
    reads: list[str] = []
    read = PartitionLog.read

    def counted(log: PartitionLog, *args: Any, **options: Any) -> bytes | memoryview:
        reads.append(log.name)
        return read(log, *args, **options)

    monkeypatch.setattr(PartitionLog, "read", counted)
    for _ in range(8):
        hand.produce("t", batch(b"x"))
    assert (reads, reply.done) == ([], False)
    hand.produce("t", batch(b"x"))
    assert len(values(fetched(hand.answer(request, reply, 12))[0].records)) == 10
    assert len(reads) == 1


def test_more_bytes_than_an_answer_may_have_are_not_waited_for(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.produce("t", batch(b"x"))
    assert hand.send(fetch_request("t", max_wait_ms=500, min_bytes=1 << 20, max_bytes=10), 12).done


def test_answers_shrink_to_one_batch_when_the_server_has_no_room_for_more(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    for partition in (0, 0, 1):
        hand.produce("t", batch(b"x"), partition)
    hand.broker.response_room = lambda: -5
    assert [len(values(one.records)) for one in fetched(hand.ask(fetch_request("t", (0, 0)), 12))] == [1, 0]


@pytest.mark.parametrize("level", [0, 1])
def test_readers_of_committed_records_stop_at_an_open_transaction(hand: HandBroker, level: int) -> None:
    hand.create_topic("t")
    hand.produce("t", batch(b"a"))
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    log.append(batch(b"b", producer=(7, 0, 0), transactional=True), now_ms=hand.epoch_ms)
    request = fetch_request("t", max_wait_ms=500)
    request.isolation_level = level
    (partition,) = fetched(hand.ask(request, 12))
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    assert values(partition.records) == [b"a", b"b"][: 2 - level]
    assert partition.aborted_transactions == ([] if level else None)
    assert [listed(hand, time, level=level).offset for time in (-1, -2, EPOCH_MS)] == [2 - level, 0, 0]


def test_aborted_transactions_are_listed_and_their_end_wakes_a_reader(hand: HandBroker) -> None:
    hand.create_topic("t")
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    log.append(batch(b"b", producer=(7, 0, 0), transactional=True), now_ms=hand.epoch_ms)
    request = fetch_request("t", max_wait_ms=500)
    request.isolation_level = 1
    waiting = hand.send(request, 12)
    assert not waiting.done
    log.append_marker(TransactionMarker(7, 0, False, 0), hand.epoch_ms)
    hand.broker.appended(log)
    hand.tick()
    (partition,) = fetched(hand.answer(request, waiting, 12))
    assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()] == [(7, 0)]
    assert partition.last_stable_offset == 2


def test_a_reader_of_committed_records_behind_the_stable_offset_need_not_wait(hand: HandBroker) -> None:
    hand.create_topic("t")
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    log.append(batch(b"b", producer=(7, 0, 0), transactional=True), now_ms=hand.epoch_ms)
    request = fetch_request("t", (1,), max_wait_ms=500)
    request.isolation_level = 1
    assert hand.send(request, 12).done


# -- leader epochs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def three_epochs(hand: HandBroker) -> HandBroker:
    """Offsets 0 and 1 of epoch 0, 2 of epoch 2, 3 and 4 of epoch 4; as measured on Apache Kafka over two restarts."""
    hand.create_topic("t", 2)
    for count in (2, 1, 2):
        if hand.broker.logs.log(hand.broker.topic("t"), 0).end_offset:
            hand.restart()
        for _ in range(count):
            hand.produce("t", batch())
    return hand


def test_each_start_raises_leader_epochs_by_two(three_epochs: HandBroker) -> None:
    names = [MetadataRequest.MetadataRequestTopic(name="t"), MetadataRequest.MetadataRequestTopic(name="u")]
    three_epochs.create_topic("u")
    answer = three_epochs.ask(MetadataRequest(topics=names))
    assert [[one.leader_epoch for one in topic.partitions] for topic in answer.topics] == [[4, 4], [0]]
    (partition,) = fetched(three_epochs.ask(fetch_request("t"), 12))
    assert [header.leader_epoch for header in iter_batches(plain(partition.records))] == [0, 0, 2, 4, 4]


def test_partitions_that_are_added_begin_at_epoch_0(three_epochs: HandBroker) -> None:
    topic_request = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    three_epochs.ask(CreatePartitionsRequest(topics=[topic_request], timeout_ms=0, validate_only=False))
    three_epochs.restart()
    answer = three_epochs.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]))
    assert [one.leader_epoch for one in answer.topics[0].partitions] == [6, 6, 2]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 2)),
        (1, (0, 2)),
        (2, (2, 3)),
        (3, (2, 3)),
        (4, (4, 5)),
        (5, (-1, -1)),
    ],
)
def test_epochs_end_where_the_next_one_begins(
    three_epochs: HandBroker, epoch: int, answer: tuple[int, int]
) -> None:
    E = OffsetForLeaderEpochRequest
    partition_request = E.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = E(topics=[E.OffsetForLeaderTopic(topic="t", partitions=[partition_request])])
    found = three_epochs.ask(request, 4).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *answer)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 74), (3, 74), (4, 0), (5, 75)])
@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_a_client_that_knows_another_leader_gets_the_current_one(
    three_epochs: HandBroker, version: int, epoch: int, code: int
) -> None:
    request = fetch_request("t", topic_id=three_epochs.broker.topic("t").topic_id, max_wait_ms=500)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    reply = three_epochs.send(request, version)
    answer = three_epochs.answer(request, reply, version)
    (partition,) = fetched(answer)
    assert partition.error_code == code
    is_named = code == 74 and version >= 16
    leader = partition.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((1, 4) if is_named else (-1, -1))
    assert [node.node_id for node in answer.node_endpoints] == ([1] if is_named else [])


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging", "code"),
    [
        (2, 0, None, 0),
        (3, 0, (0, 2), 0),
        (1, 1, (0, 2), 0),
        (3, 2, None, 0),
        (4, 3, (2, 3), 0),
        (9, 0, (0, 2), 0),
        (9, 4, (4, 5), 0),
        (5, 5, None, 1),
    ],
)
def test_a_client_with_a_diverging_log_gets_the_end_of_its_epoch(
    three_epochs: HandBroker, offset: int, epoch: int, diverging: tuple[int, int] | None, code: int
) -> None:
    request = fetch_request("t", (offset,), max_wait_ms=500)
    request.topics[0].partitions[0].last_fetched_epoch = epoch
    (partition,) = fetched(three_epochs.answer(request, three_epochs.send(request, 12), 12))
    assert partition.error_code == code
    found = partition.diverging_epoch
    assert (found.epoch, found.end_offset) == (diverging or (-1, -1))
    assert bool(plain(partition.records)) is (diverging is None and not code)


def test_offsets_come_with_the_epochs_that_they_have(three_epochs: HandBroker) -> None:
    assert [listed(three_epochs, time).leader_epoch for time in (-1, -2, -3)] == [4, 0, 0]
    assert [listed(three_epochs, time, partition=1).leader_epoch for time in (-1, -2)] == [4, 4]


# -- ListOffsets -----------------------------------------------------------------------------------------------------


def listed(
    hand: HandBroker, timestamp: int, version: int = 11, topic: str = "t", partition: int = 0, level: int = 0
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=level if version >= 2 else 0,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                ],
            )
        ],
    )
    return hand.ask(request, version).topics[0].partitions[0]


@pytest.fixture
def with_times(hand: HandBroker) -> HandBroker:
    """Offsets 0 to 5, of which 0 was deleted; times 10, 20, ... s after the epoch, the greatest at offset 3."""
    hand.create_topic("t")
    for at in (10, 20, 30, 60, 40, 50):
        hand.produce("t", batch(timestamp=EPOCH_MS + at * 1000))
    delete = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
    hand.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[delete])], timeout_ms=0
        )
    )
    return hand


@pytest.mark.parametrize(
    ("timestamp", "offset", "time"),
    [
        (-1, 6, -1),
        (-2, 1, -1),
        (-3, 3, EPOCH_MS + 60_000),
        (-4, 1, -1),
        (-5, -1, -1),
        (0, 1, EPOCH_MS + 20_000),
        (EPOCH_MS + 30_000, 2, EPOCH_MS + 30_000),
        (EPOCH_MS + 30_001, 3, EPOCH_MS + 60_000),
        (EPOCH_MS + 60_001, -1, -1),
    ],
)
def test_offsets_are_found_by_time(with_times: HandBroker, timestamp: int, offset: int, time: int) -> None:
    found = listed(with_times, timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, time)


@pytest.mark.parametrize("version", range(1, 12))
def test_the_end_is_known_in_every_version(with_times: HandBroker, version: int) -> None:
    found = listed(with_times, -1, version)
    assert (found.offset, found.leader_epoch) == (6, 0 if version >= 4 else -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_a_special_time_that_the_version_lacks_is_unsupported(
    with_times: HandBroker, timestamp: int, version: int
) -> None:
    assert listed(with_times, timestamp, version).error_code == 35


def test_an_empty_log_has_ends_and_no_times(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert [listed(hand, time).offset for time in (-1, -2, -3, 0)] == [0, 0, -1, -1]


@pytest.mark.parametrize(("topic", "partition"), [("nope", 0), ("t", 9)])
def test_offsets_of_what_is_not_there(with_times: HandBroker, topic: str, partition: int) -> None:
    assert listed(with_times, -1, topic=topic, partition=partition).error_code == 3


def test_a_partition_asked_for_twice_is_an_invalid_request(with_times: HandBroker) -> None:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition, partition])
    answer = with_times.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    assert [row.error_code for row in answer.topics[0].partitions] == [42]
