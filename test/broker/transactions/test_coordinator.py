"""Transactions through requests: codes by version, what readers see, timeouts, restarts."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from kafka.broker.log import FilePool
from kafka.broker.log.producer_state import aborted_batches
from kafka.broker.state.records import TransactionLogValue, decode_value
from kafka.broker.state.state_topic import TRANSACTION_STATE
from kafka.errors import KafkaStorageError
from kafka.protocol.topics import DeleteTopicsRequest
from kafka.protocol.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from kafka.records import COMMIT, ControlMarker, control_batch
from test.broker.driver import HandBroker, produce_request
from test.broker.state.keys import TRANSACTION_KEYS
from test.broker.transactions.txn import (
    NEW,
    OLD,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Answer,
    add,
    add_group,
    commit_offset,
    committed,
    describe,
    end,
    init,
    listed,
    mark,
    produce,
    producers,
    read,
    state,
    verify,
)
from test.support.optional import needs_re2

HOUR_S = 3600.0


def begun(hand: HandBroker, name: str = "x", *values: bytes, timeout_ms: int = 60_000) -> tuple[int, int]:
    """A producer with an ongoing transaction in partition 0 of ``t``."""
    answer = init(hand, name, timeout_ms=timeout_ms)
    assert answer.code == 0
    assert produce(hand, name, answer[1:], 0, "t", *(values or (b"v",))).error_code == 0
    return answer[1:]


# -- InitProducerId ---------------------------------------------------------------------------------------------------


def test_idempotent_producers_get_an_id_each_and_ask_no_coordinator(hand: HandBroker) -> None:
    first, second = init(hand, None, timeout_ms=-5), init(hand, None)
    assert (first.code, first.epoch, second.epoch) == (0, 0, 0)
    assert first.producer_id != second.producer_id
    assert not hand.broker.transactions.all


@pytest.mark.parametrize(
    ("name", "timeout_ms", "code"),
    [("", 1, 42), ("x", 0, 50), ("x", -1, 50), ("x", 900_000, 0), ("x", 900_001, 50)],
)
def test_what_a_transactional_id_and_its_timeout_may_be(
    hand: HandBroker, name: str, timeout_ms: int, code: int
) -> None:
    assert init(hand, name, timeout_ms=timeout_ms).code == code


@pytest.mark.parametrize("expected", [(5, -1), (-1, 5)])
def test_a_producer_id_comes_with_its_epoch_or_not_at_all(hand: HandBroker, expected: tuple[int, int]) -> None:
    assert init(hand, "x", expected) == Answer(42)
    assert init(hand, None, expected) == Answer(42)


def test_the_older_words_for_a_fenced_producer(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    init(hand, "x")
    assert init(hand, "x", (producer[0], 7)).code == 90
    assert init(hand, "x", (producer[0], 7), version=3).code == 47
    late = (producer[0], 0)
    assert [end(hand, "x", late, True, version).code for version in (1, 2, 4, 5)] == [47, 90, 90, 90]
    assert [add(hand, "x", late, "t", version=version) for version in (1, 2)] == [[47], [90]]
    assert [add_group(hand, "x", late, "g", version) for version in (1, 2)] == [47, 90]
    assert commit_offset(hand, "x", late, "g", "t", 1) == 47
    assert produce(hand, "x", late, 0, "t").error_code == 47


def test_who_comes_while_a_transaction_is_ongoing_aborts_it_and_has_to_come_again(hand: HandBroker) -> None:
    producer = begun(hand)
    assert init(hand, "x").code == 51
    assert state(hand, "x") == "CompleteAbort"
    assert read(hand, "t", READ_COMMITTED) == []
    assert init(hand, "x") == Answer(0, producer[0], 2)
    assert produce(hand, "x", producer, 1, "t").error_code == 47
    assert end(hand, "x", producer, True).code == 90


# -- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code", "text"),
    [
        (7, 48, None),
        (10, 48, "Partition was not added to the transaction"),
        (11, 120, None),
        (12, 0, None),
        (13, 0, None),
    ],
)
def test_a_partition_that_was_not_added(hand: HandBroker, version: int, code: int, text: str | None) -> None:
    producer = init(hand, "x")[1:]
    if version == 13:
        assert produce(hand, "x", producer, 0, "t").error_code == 0
        return
    answer = produce(hand, "x", producer, 0, "t", version=version)
    assert (answer.error_code, answer.error_message if version >= 8 else None) == (code, text)
    assert state(hand, "x") == ("Ongoing" if code == 0 else "Empty")


def test_without_verification_old_clients_may_forget_to_add(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data", {"transaction.partition.verification.enable": "false"})
    hand.create_topic("t")
    producer = init(hand, "x")[1:]
    assert produce(hand, "x", producer, 0, "t", version=OLD).error_code == 0
    hand.broker.close()


def test_a_transactional_batch_names_its_transaction(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    for version in (OLD, NEW):
        assert produce(hand, None, producer, 0, "t", version=version).error_code == 53
        assert produce(hand, "", producer, 0, "t", version=version).error_code == 42
        assert produce(hand, "y", producer, 0, "t", version=version).error_code == 49
        assert produce(hand, "x", (producer[0] + 9, 0), 0, "t", version=version).error_code == 49
        assert produce(hand, "x", (producer[0], 1), 0, "t", version=version).error_code == 47


def test_the_transaction_is_asked_for_before_the_batch_is_looked_at(hand: HandBroker) -> None:
    """Apache Kafka: ReplicaManager.handleProduceAppend verifies before LogValidator sees the batch."""
    producer = init(hand, "x")[1:]
    marker = control_batch(ControlMarker(COMMIT, 0), hand.epoch_ms, *producer, 0, 0)
    request = produce_request("t", marker)
    for transactional_id, code in (("y", 49), ("x", 87)):
        request.transactional_id = transactional_id
        assert hand.ask(request, NEW).responses[0].partition_responses[0].error_code == code


def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused(hand: HandBroker) -> None:
    producer = begun(hand)
    answer = produce(hand, "x", producer, 1, "t", transactional=False)
    assert (answer.error_code, answer.log_start_offset) == (48, 0)


def test_with_the_new_protocol_each_transaction_begins_with_sequence_0(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    assert produce(hand, "x", producer, 3, "t").error_code == 45, "also in a partition that does not know it"
    assert produce(hand, "x", producer, 0, "t").error_code == 0
    following = end(hand, "x", producer, True)[1:]
    assert following == (producer[0], 1)
    assert produce(hand, "x", following, 1, "t").error_code == 45
    assert produce(hand, "x", following, 0, "t").error_code == 0


def test_with_the_old_protocol_sequences_go_on(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    for sequence in (0, 1):
        assert add(hand, "x", producer, "t") == [0]
        assert produce(hand, "x", producer, sequence, "t", version=OLD).error_code == 0
        assert end(hand, "x", producer, True, 4) == Answer(0)
    assert read(hand, "t", READ_COMMITTED) == [b"v", b"v"]
    assert producers(hand, "t")[producer[0]].last_sequence == 1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_no_batch_takes_the_place_of_an_earlier_one_that_failed(hand: HandBroker, version: int) -> None:
    producer = init(hand, "x")[1:]
    with mock.patch.object(FilePool, "write", side_effect=KafkaStorageError("no space left")):
        if version == OLD:
            assert produce(hand, "x", producer, 0, "t", version=OLD).error_code == 120
        else:
            assert produce(hand, "x", producer, 0, "t").error_code == 19
    add(hand, "x", producer, "t")
    assert produce(hand, "x", producer, 1, "t", version=version).error_code == 45
    assert produce(hand, "x", producer, 0, "t", version=version).error_code == 0
    assert produce(hand, "x", producer, 1, "t", version=version).error_code == 0


def test_readers_of_committed_records_stop_at_the_first_open_transaction(hand: HandBroker) -> None:
    a, b = begun(hand, "a", b"a"), begun(hand, "b", b"b")
    assert read(hand, "t", READ_UNCOMMITTED) == [b"a", b"b"]
    end(hand, "b", b, True)
    assert read(hand, "t", READ_COMMITTED) == []
    end(hand, "a", a, False)
    assert read(hand, "t", READ_COMMITTED) == [b"b"]
    assert read(hand, "t", READ_UNCOMMITTED) == [b"a", b"b"]


def test_partitions_are_added_all_or_none(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    assert add(hand, "x", producer, "t", (0, 7)) == [55, 3]
    assert state(hand, "x") == "Empty"
    assert add(hand, "x", producer, "t", (0, 2)) == [0, 0]
    assert describe(hand, "x").topics[0].partitions == [0, 2]
    assert add(hand, "", producer, "t") == [42]
    assert add(hand, "y", producer, "t") == [49]


def test_verification_by_other_brokers_changes_nothing(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]

    assert verify(hand, "x", producer, "t", (0, 1)) == [120, 120]
    add(hand, "x", producer, "t")
    assert verify(hand, "x", producer, "t", (0, 1)) == [0, 120]
    assert verify(hand, "x", (producer[0], 4), "t") == [90]
    assert verify(hand, "x", producer, "nope") == [3]
    assert state(hand, "x") == "Ongoing"


# -- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
def test_offsets_of_a_group_that_was_not_added(hand: HandBroker, version: int, code: int) -> None:
    producer = init(hand, "x")[1:]
    assert commit_offset(hand, "x", producer, "g", "t", 5, version=version) == code
    assert add_group(hand, "x", producer, "g") == 0
    assert commit_offset(hand, "x", producer, "g", "t", 5, version=version) == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction_hold_when_it_is_committed(hand: HandBroker, is_committed: bool) -> None:
    producer = init(hand, "x")[1:]
    assert commit_offset(hand, "x", producer, "g", "t", 5) == 0
    assert committed(hand, "g", "t") == (0, -1)
    assert committed(hand, "g", "t", stable=True) == (88, -1)
    end(hand, "x", producer, is_committed)
    assert committed(hand, "g", "t", stable=True) == (0, 5 if is_committed else -1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_pending_offsets_survive_a_restart(hand: HandBroker, is_committed: bool) -> None:
    producer = init(hand, "x")[1:]
    commit_offset(hand, "x", producer, "g", "t", 5)
    hand.restart()
    assert committed(hand, "g", "t", stable=True) == (88, -1)
    assert end(hand, "x", producer, is_committed).code == 0
    hand.restart()
    assert committed(hand, "g", "t", stable=True) == (0, 5 if is_committed else -1)


def test_what_an_offset_of_a_transaction_may_be(hand: HandBroker) -> None:
    producer = init(hand, "x")[1:]
    assert commit_offset(hand, "x", producer, "", "t", 5) == 24
    assert commit_offset(hand, "x", producer, "g", "nope", 5) == 3
    assert commit_offset(hand, "x", producer, "g", "t", 5, partition=9) == 3
    assert commit_offset(hand, "x", producer, "g", "t", 5, metadata="x" * 5000) == 12
    assert commit_offset(hand, "x", producer, "g", "t", 5, generation=1) == 25
    assert commit_offset(hand, "x", (producer[0] + 9, 0), "g", "t", 5) == 49
    assert commit_offset(hand, "x", (producer[0], 1), "g", "t", 5) == 47


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(hand: HandBroker) -> None:
    producer = begun(hand, timeout_ms=5000)
    hand.advance(4.9)
    assert state(hand, "x") == "Ongoing"
    hand.advance(0.2)
    assert (state(hand, "x"), describe(hand, "x").producer_epoch) == ("CompleteAbort", 1)
    assert produce(hand, "x", producer, 1, "t").error_code == 47
    assert end(hand, "x", producer, True).code == 48
    assert end(hand, "x", producer, False) == Answer(0, producer[0], 1), "what it wants has happened"
    assert init(hand, "x", producer) == Answer(0, producer[0], 1)


def test_time_goes_on_over_a_restart(hand: HandBroker) -> None:
    begun(hand, timeout_ms=5000)
    hand.now += 3
    hand.restart()
    hand.advance(1.9)
    assert state(hand, "x") == "Ongoing"
    hand.advance(0.2)
    assert state(hand, "x") == "CompleteAbort"


def test_a_new_transaction_has_its_own_time(hand: HandBroker) -> None:
    producer = begun(hand, timeout_ms=5000)
    hand.advance(4)
    following = end(hand, "x", producer, True)[1:]
    assert produce(hand, "x", following, 0, "t").error_code == 0
    hand.advance(4)
    assert state(hand, "x") == "Ongoing"
    hand.advance(1.1)
    assert state(hand, "x") == "CompleteAbort"


def test_ids_that_nobody_uses_are_forgotten_and_ongoing_ones_are_not(tmp_path: Path) -> None:
    hours = 12
    settings = {
        "transactional.id.expiration.ms": str(hours * 3600 * 1000), "transaction.max.timeout.ms": str(2**31 - 1),
        "producer.id.expiration.ms": str(hours * 3600 * 1000),
    }  # fmt: skip
    hand = HandBroker(tmp_path / "data", settings)
    hand.create_topic("t")
    init(hand, "idle")
    begun(hand, "busy", timeout_ms=2**31 - 1)
    gone = begun(hand, "done")
    end(hand, "done", gone, True)
    hand.advance((hours - 1) * HOUR_S)
    assert set(hand.broker.transactions.all) == {"idle", "busy", "done"}
    hand.advance(2 * HOUR_S)
    assert set(hand.broker.transactions.all) == {"busy"}
    assert describe(hand, "idle").error_code == 105
    busy = describe(hand, "busy").producer_id
    assert list(producers(hand, "t")) == [busy], "an open transaction keeps its producer"
    hand.restart()
    assert set(hand.broker.transactions.all) == {"busy"}
    hand.broker.close()


# -- markers by hand, descriptions, lists ------------------------------------------------------------------------------


def test_an_operator_may_abort_what_hangs(hand: HandBroker) -> None:
    producer = begun(hand)
    assert mark(hand, "t", producer, False, coordinator_epoch=-1) == 0
    assert read(hand, "t", READ_COMMITTED) == []
    assert producers(hand, "t")[producer[0]].current_txn_start_offset == -1
    assert mark(hand, "nope", producer, False) == 3
    assert mark(hand, "t", producer, False, partition=9) == 3
    assert mark(hand, "t", (producer[0], -1), False) == -1


def test_markers_are_fenced_by_epochs_of_producers_and_coordinators(hand: HandBroker) -> None:
    producer = begun(hand)
    newer = (producer[0], 1)
    assert mark(hand, "t", producer, True, transaction_version=2) == 47, "it needs an epoch of its own"
    assert mark(hand, "t", newer, True, coordinator_epoch=7, transaction_version=2) == 0
    assert mark(hand, "t", newer, True, coordinator_epoch=7, transaction_version=2) == 0, "it ends nothing"
    assert mark(hand, "t", newer, True, coordinator_epoch=6) == 52
    assert mark(hand, "t", producer, True, coordinator_epoch=7) == 47
    assert end(hand, "x", producer, True).code == 0, "the transaction itself is not stuck"
    assert state(hand, "x") == "CompleteCommit"


def test_what_a_partition_returns_of_its_producers(hand: HandBroker) -> None:
    producer = begun(hand)

    def row() -> tuple[int, int, int, int]:
        one = producers(hand, "t")[producer[0]]
        return one.producer_epoch, one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset

    assert row() == (0, 0, -1, 0)
    end(hand, "x", producer, True)
    assert row() == (1, -1, 0, -1)
    for topic, number, code in (("nope", 0, 3), ("t", 9, 3), ("a b", 0, 17)):
        request = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[number])]
        )
        assert hand.ask(request).topics[0].partitions[0].error_code == code


def test_a_transaction_is_described(hand: HandBroker) -> None:
    assert describe(hand, "x").error_code == 105
    assert describe(hand, "").error_code == 42
    init(hand, "x")
    assert describe(hand, "x").transaction_start_time_ms == -1
    begun(hand)
    found = describe(hand, "x")
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert found.transaction_start_time_ms == hand.epoch_ms
    assert [(row.topic, row.partitions) for row in found.topics] == [("t", [0])]


@needs_re2
def test_transactions_are_listed_by_state_producer_age_and_pattern(hand: HandBroker) -> None:
    busy = begun(hand, "busy")
    init(hand, "idle")
    assert listed(hand) == (0, [], ["busy", "idle"])
    assert listed(hand, state_filters=["Ongoing"]) == (0, [], ["busy"])
    assert listed(hand, state_filters=["Nope", "ongoing"]) == (0, ["Nope", "ongoing"], [])
    assert listed(hand, producer_id_filters=[busy[0]]) == (0, [], ["busy"])
    hand.now += 5
    assert listed(hand, duration_filter=4999) == (0, [], ["busy", "idle"])
    assert listed(hand, duration_filter=5000) == (0, [], ["idle"])
    assert listed(hand, transactional_id_pattern="b.*") == (0, [], ["busy"])
    assert listed(hand, transactional_id_pattern="bus") == (0, [], [])
    assert listed(hand, transactional_id_pattern="") == (0, [], ["busy", "idle"])
    assert listed(hand, transactional_id_pattern="([") == (128, [], [])


# -- restarts and deletions -------------------------------------------------------------------------------------------


def test_ids_epochs_and_open_transactions_survive_a_restart(hand: HandBroker) -> None:
    producer = begun(hand, "x", b"one")
    hand.restart()
    assert (state(hand, "x"), read(hand, "t", READ_COMMITTED)) == ("Ongoing", [])
    assert produce(hand, "x", producer, 1, "t", b"two").error_code == 0
    assert end(hand, "x", producer, True) == Answer(0, producer[0], 1)
    hand.restart()
    assert read(hand, "t", READ_COMMITTED) == [b"one", b"two"]
    assert init(hand, "x") == Answer(0, producer[0], 2)


def test_a_deleted_topic_does_not_keep_a_transaction_from_its_end(hand: HandBroker) -> None:
    producer = begun(hand)
    assert produce(hand, "x", producer, 0, "u", b"u").error_code == 0
    hand.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000))
    assert end(hand, "x", producer, True).code == 0
    assert read(hand, "u", READ_COMMITTED) == [b"u"]


def test_the_records_are_kafkas(hand: HandBroker) -> None:
    producer = begun(hand)
    topic = hand.broker.state.topic(TRANSACTION_STATE)
    found = [(partition, event.key or b"", event.value) for partition, event in topic.replay()]
    end(hand, "x", producer, True)
    assert {partition for partition, _, _ in found} == {topic.partition_of("x")}
    key, value = found[-1][1:]
    assert TRANSACTION_KEYS.decode(key).transactional_id == "x"  # type: ignore[union-attr]
    row = decode_value(TransactionLogValue, value or b"")
    assert (row.transaction_status, row.client_transaction_version, row.producer_id) == (1, 2, producer[0])
    assert [(part.topic, part.partition_ids) for part in row.transaction_partitions or ()] == [("t", [0])]


# -- older releases ---------------------------------------------------------------------------------------------------


def test_a_release_before_kip_890_keeps_epochs_until_somebody_fences(tmp_path: Path) -> None:
    """Measured on Apache Kafka 3.9.1."""
    hand = HandBroker(tmp_path / "data", release="3.9")
    hand.create_topic("t")
    producer = init(hand, "x")[1:]
    assert produce(hand, "x", producer, 0, "t", version=OLD).error_code == 120
    add(hand, "x", producer, "t")
    assert produce(hand, "x", producer, 0, "t", b"lost", version=OLD).error_code == 0
    assert init(hand, "x", producer).code == 51
    assert (state(hand, "x"), describe(hand, "x").producer_epoch) == ("CompleteAbort", 1)
    assert init(hand, "x", producer).code == 90, "with the consumer group protocol it would get the epoch of the fence"
    assert init(hand, "x") == Answer(0, producer[0], 2)
    newer = (producer[0], 2)
    add(hand, "x", newer, "t")
    assert produce(hand, "x", newer, 0, "t", b"kept", version=OLD).error_code == 0
    assert end(hand, "x", newer, True, 4) == Answer(0)
    hand.restart()
    assert read(hand, "t", READ_COMMITTED) == [b"kept"]
    assert producers(hand, "t")[producer[0]].producer_epoch == 2
    topic = hand.broker.state.topic(TRANSACTION_STATE)
    versions = {int.from_bytes((event.value or b"")[:2], "big") for _, event in topic.replay()}
    assert versions == {0}
    hand.broker.close()


def test_a_release_before_kip_890_lets_old_clients_forget_to_add(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data", release="2.8")
    hand.create_topic("t")
    producer = init(hand, "x", version=4)[1:]
    assert produce(hand, "x", producer, 0, "t", version=9).error_code == 0
    hand.broker.close()


# -- share groups -----------------------------------------------------------------------------------------------------


def test_batches_of_aborted_transactions_are_distinguished(hand: HandBroker) -> None:
    a, b = begun(hand, "a", b"a1"), begun(hand, "b", b"b1", b"b2")
    end(hand, "a", a, False)
    end(hand, "b", b, True)
    c = begun(hand, "a", b"a2")
    assert produce(hand, None, (-1, -1), -1, "t", b"plain", transactional=False).error_code == 0
    end(hand, "a", c, False)
    found = hand.broker.logs.log(hand.broker.topic("t"), 0)
    data = found.read(0, 1 << 20)
    aborted = found.aborted_transactions(0, found.end_offset - 1)
    assert aborted_batches(bytes(data), aborted) == [(0, 0), (5, 5)]
    assert aborted_batches(bytes(data), []) == []


@needs_re2
@pytest.mark.timeout(20)
def test_a_pattern_that_backtracks_for_ever_elsewhere_takes_no_time(hand: HandBroker) -> None:
    init(hand, "a" * 60)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(a+)+b")
    answer = hand.ask(request)
    assert (answer.error_code, answer.transaction_states) == (0, [])


def test_a_partition_twice_in_a_marker_gets_one(hand: HandBroker) -> None:
    hand.create_topic("twice")
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="twice", partition_indexes=[0] * 90)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    answer = hand.ask(WriteTxnMarkersRequest(markers=[marker]))
    assert [one.error_code for one in answer.markers[0].topics[0].partitions] == [0]
    assert hand.broker.logs.log(hand.broker.topic("twice"), 0).end_offset == 1
