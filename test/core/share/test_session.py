"""A share session against scripted answers: epochs, what goes into which request, and whose locks are gone when."""

from __future__ import annotations

import uuid

import pytest

from kafka.core.share.acknowledgements import AcknowledgementResult, AcquiredRecords
from kafka.core.share.records import (
    AcquiredRange,
    AcquiredReader,
    AcquiredSlice,
    ShareRecord,
    TopicIdPartition,
)
from kafka.core.share.session import (
    BACKOFF_S,
    MAX_EPOCH,
    UNREADABLE_BACKOFF_S,
    FetchDemand,
    ShareExchange,
    ShareResponseOutcome,
    ShareSession,
)
from kafka.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidRecordStateError,
    KafkaConnectionError,
    NotLeaderForPartitionError,
    ShareSessionNotFoundError,
    UnsupportedCodecError,
)
from kafka.protocol.constants import AcknowledgeType
from kafka.protocol.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kafka.records import CODECS, GZIP
from test.core.share.test_records import batch

TOPIC = uuid.UUID(int=7)
P0, P1 = TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
DEMAND = FetchDemand(500)


def acquired(first: int, last: int) -> ShareFetchResponse.AcquiredRecords:
    return ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)


class Broker:
    """Answers by hand, and keeps what was asked."""

    def __init__(self, session: ShareSession) -> None:
        self.session = session
        self.now = 0.0
        self.lock_ms = 30_000

    def ask(self, demand: FetchDemand = DEMAND) -> ShareExchange:
        exchange = self.session.next_request(self.now, demand)
        assert exchange is not None
        return exchange

    def fetched(
        self, exchange: ShareExchange, *parts: tuple[int, int, int], code: int = 0, top: int = 0, ack_code: int = 0,
        leader: tuple[int, int] = (0, 0),
    ) -> ShareResponseOutcome:  # fmt: skip
        """``parts``: (partition, base offset, count)."""
        partitions = [
            ShareFetchResponse.PartitionData(
                partition_index=index, error_code=code, acknowledge_error_code=ack_code,
                current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
                records=batch(base, count) if count else b"",
                acquired_records=[acquired(base, base + count - 1)] if count else [],
            )
            for index, base, count in parts
        ]  # fmt: skip
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=partitions)
        response = ShareFetchResponse(
            throttle_time_ms=0, error_code=top, acquisition_lock_timeout_ms=self.lock_ms,
            responses=[topic] if partitions else [], node_endpoints=[],
        )  # fmt: skip
        assert self.session.exchange is exchange
        return self.session.on_response(response, self.now, self.now)

    def answered(
        self, exchange: ShareExchange, parts: dict[int, tuple[bytes, list[ShareFetchResponse.AcquiredRecords]]]
    ) -> ShareResponseOutcome:
        """``parts``: partition -> records and what of them is acquired."""
        partitions = [
            ShareFetchResponse.PartitionData(
                partition_index=index, error_code=0, acknowledge_error_code=0, records=records,
                current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                acquired_records=ranges,
            )
            for index, (records, ranges) in parts.items()
        ]  # fmt: skip
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=partitions)
        response = ShareFetchResponse(
            throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=self.lock_ms, responses=[topic],
            node_endpoints=[],
        )  # fmt: skip
        assert self.session.exchange is exchange
        return self.session.on_response(response, self.now, self.now)

    def acknowledged(
        self, exchange: ShareExchange, codes: dict[int, int] | None = None, top: int = 0
    ) -> ShareResponseOutcome:
        partitions = [
            ShareAcknowledgeResponse.PartitionData(
                partition_index=index, error_code=code,
                current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
            for index, code in (codes or {}).items()
        ]  # fmt: skip
        topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=partitions)
        response = ShareAcknowledgeResponse(
            throttle_time_ms=0, error_code=top, acquisition_lock_timeout_ms=self.lock_ms,
            responses=[topic] if partitions else [], node_endpoints=[],
        )  # fmt: skip
        assert self.session.exchange is exchange
        return self.session.on_response(response, self.now, self.now)

    def give(self, count: int) -> list[ShareRecord]:
        return self.fetched(self.ask(), (0, 0, count)).records


@pytest.fixture
def broker() -> Broker:
    session = ShareSession("g", "m")
    session.set_partitions([P0, P1], {TOPIC: "t"})
    return Broker(session)


def partitions(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[int]:
    return [part.partition_index for topic in request.topics for part in topic.partitions]


def acknowledgements_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[tuple[int, int, list[int]]]:
    return [
        (each.first_offset, each.last_offset, [int(kind) for kind in each.acknowledge_types])
        for topic in request.topics
        for part in topic.partitions
        for each in part.acknowledgement_batches
    ]


def test_the_first_request_opens_with_every_partition_and_later_ones_list_only_what_is_new(broker: Broker) -> None:
    first = broker.ask()
    assert isinstance(first.request, ShareFetchRequest)
    assert first.request.share_session_epoch == 0
    assert partitions(first.request) == [0, 1]
    assert broker.session.next_request(0.0, DEMAND) is None, "one request in flight"
    broker.fetched(first)
    second = broker.ask()
    assert second.request.share_session_epoch == 1
    assert partitions(second.request) == []


def test_acknowledgements_go_with_the_next_fetch_as_ranges(broker: Broker) -> None:
    for record in broker.give(4):
        broker.session.acknowledge(record, ACCEPT)
    exchange = broker.ask()
    assert isinstance(exchange.request, ShareFetchRequest)
    assert acknowledgements_of(exchange.request) == [(0, 3, [1])]
    outcome = broker.fetched(exchange, (0, 4, 0))
    assert [(each.record.offset, each.error) for each in outcome.acknowledged] == [(n, None) for n in range(4)]
    assert broker.session.held_count == 0


@pytest.mark.parametrize("kind", [RELEASE, RENEW])
def test_releases_and_renewals_go_by_themselves(broker: Broker, kind: AcknowledgeType) -> None:
    broker.session.acknowledge(broker.give(1)[0], kind)
    exchange = broker.ask()
    assert isinstance(exchange.request, ShareAcknowledgeRequest)
    assert exchange.request.is_renew_ack == (kind is RENEW)


def test_without_demand_acknowledgements_still_go_and_nothing_is_fetched(broker: Broker) -> None:
    records = broker.give(2)
    assert broker.session.next_request(0.0, FetchDemand(0)) is None
    broker.session.acknowledge(records[0], ACCEPT)
    assert isinstance(broker.ask(FetchDemand(0)).request, ShareAcknowledgeRequest)


def test_a_poll_is_short_while_something_is_held(broker: Broker) -> None:
    exchange = broker.ask()
    assert isinstance(exchange.request, ShareFetchRequest)
    assert exchange.request.max_wait_ms == 500
    broker.fetched(exchange, (0, 0, 1))
    holding = broker.ask().request
    assert isinstance(holding, ShareFetchRequest)
    assert holding.max_wait_ms == 100


def test_record_limit_is_asked_for_when_the_demand_is_exact(broker: Broker) -> None:
    request = broker.ask(FetchDemand(3, exactly=True)).request
    assert isinstance(request, ShareFetchRequest)
    assert (request.share_acquire_mode, request.max_records) == (1, 3)


def test_a_renewal_moves_the_deadline_from_when_it_was_sent(broker: Broker) -> None:
    (record,) = broker.give(1)
    assert record.lock_deadline == 30.0
    broker.now = 20.0
    broker.session.acknowledge(record, RENEW)
    broker.acknowledged(broker.ask(), {0: 0})
    assert record.lock_deadline == 50.0
    assert broker.session.expire(49.9) == []
    assert broker.session.expire(50.0) == [record]
    assert record.lost


def test_one_bad_offset_does_not_lose_the_other_acknowledgements(broker: Broker) -> None:
    for record in broker.give(3):
        broker.session.acknowledge(record, ACCEPT)
    broker.session.flush()
    assert broker.acknowledged(broker.ask(), {0: 121}).acknowledged == []
    results = []
    for code in (0, 121, 0):
        exchange = broker.ask()
        assert isinstance(exchange.request, ShareAcknowledgeRequest)
        assert len(acknowledgements_of(exchange.request)) == 1
        results += broker.acknowledged(exchange, {0: code}).acknowledged
    assert [(each.record.offset, type(each.error)) for each in results] == [
        (0, type(None)), (1, InvalidRecordStateError), (2, type(None)),
    ]  # fmt: skip
    assert results[1].record.lost


def test_a_lost_connection_loses_everything_that_was_held_and_nothing_is_sent_for_it(broker: Broker) -> None:
    first, second, third = broker.give(3)
    broker.session.acknowledge(first, ACCEPT)
    broker.ask()
    broker.session.acknowledge(second, ACCEPT)
    outcome = broker.session.on_failure(KafkaConnectionError("gone"))
    # Sent or not, the broker will never tell what became of them, and whoever waits for them has to hear it.
    assert [(each.record, type(each.error)) for each in outcome.acknowledged] == [
        (first, KafkaConnectionError), (second, KafkaConnectionError),
    ]  # fmt: skip
    assert outcome.lost == [third]
    again = broker.ask()
    assert (again.request.share_session_epoch, acknowledgements_of(again.request)) == (0, [])
    with pytest.raises(IllegalStateError, match="t:0:2 cannot be acknowledged: its lock is gone"):
        broker.session.acknowledge(third, ACCEPT)


def test_a_session_that_the_broker_forgot_is_opened_anew_and_its_records_are_lost(broker: Broker) -> None:
    broker.give(2)
    outcome = broker.fetched(broker.ask(), top=122)
    assert isinstance(outcome.error, ShareSessionNotFoundError)
    assert [record.offset for record in outcome.lost] == [0, 1]
    assert broker.ask().request.share_session_epoch == 0


def test_after_a_wrong_epoch_the_locks_stay_and_the_acknowledgement_is_sent_again(broker: Broker) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    outcome = broker.fetched(broker.ask(), top=123)
    assert (outcome.lost, outcome.acknowledged) == ([], [])
    opening = broker.ask()
    assert (opening.request.share_session_epoch, acknowledgements_of(opening.request)) == (0, [])
    broker.fetched(opening)
    assert acknowledgements_of(broker.ask().request) == [(0, 0, [1])]
    broker.session.acknowledge(second, ACCEPT)


def test_a_partition_that_errs_rests_and_is_listed_again(broker: Broker) -> None:
    outcome = broker.fetched(broker.ask(), (1, 0, 0), code=6)
    assert {p: type(e) for p, e in outcome.partition_errors.items()} == {P1: NotLeaderForPartitionError}
    exchange = broker.ask()
    request = exchange.request
    assert isinstance(request, ShareFetchRequest)
    assert [each.partitions for each in request.forgotten_topics_data] == [[1]]
    assert exchange == ShareExchange(request, {}, frozenset(), frozenset([P1]), frozenset([P0]))
    broker.fetched(exchange)
    assert broker.session.next_deadline(0.0) == BACKOFF_S
    broker.now = BACKOFF_S
    assert partitions(broker.ask().request) == [1]


def test_a_partition_that_moved_away_loses_its_records(broker: Broker) -> None:
    records = broker.give(2)
    assert broker.session.lose([P0], NotLeaderForPartitionError("moved")).lost == records
    assert all(record.lost for record in records)


def test_gaps_are_acknowledged_as_gaps(broker: Broker) -> None:
    broker.ask()
    part = ShareFetchResponse.PartitionData(
        partition_index=0, error_code=0, acknowledge_error_code=0, records=batch(0, 1),
        current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        acquired_records=[acquired(0, 2)],
    )  # fmt: skip
    topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
    response = ShareFetchResponse(
        throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=1, responses=[topic], node_endpoints=[]
    )
    assert len(broker.session.on_response(response, 0.0, 0.0).records) == 1
    assert acknowledgements_of(broker.ask().request) == [(1, 2, [0])]


def test_damaged_records_are_released_and_reported(broker: Broker) -> None:
    broker.ask()
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    part = ShareFetchResponse.PartitionData(
        partition_index=0, error_code=0, acknowledge_error_code=0, records=bytes(damaged),
        current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        acquired_records=[acquired(0, 1)],
    )  # fmt: skip
    topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
    response = ShareFetchResponse(
        throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=1, responses=[topic], node_endpoints=[]
    )
    outcome = broker.session.on_response(response, 0.0, 0.0)
    assert (outcome.records, list(outcome.partition_errors)) == ([], [P0])
    assert acknowledgements_of(broker.ask().request) == [(0, 1, [2])]


def test_closing_says_the_last_acknowledgements_and_gives_the_rest_back(broker: Broker) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    exchange = broker.session.close_request()
    assert exchange is not None
    assert (exchange.request.share_session_epoch, acknowledgements_of(exchange.request)) == (-1, [(0, 0, [1])])
    outcome = broker.acknowledged(exchange, {0: 0})
    assert [each.record for each in outcome.acknowledged] == [first]
    assert outcome.lost == [second]
    assert broker.session.close_request() is None


def test_acknowledging_twice_is_an_error_at_the_call(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    with pytest.raises(IllegalStateError, match="acknowledged before"):
        broker.session.acknowledge(record, ACCEPT)


def test_the_epoch_wraps_to_one(broker: Broker) -> None:
    broker.fetched(broker.ask())
    broker.session._epoch = MAX_EPOCH
    broker.fetched(broker.ask())
    assert broker.ask().request.share_session_epoch == 1


def test_a_rest_that_is_over_asks_for_no_attention_while_a_request_is_out(broker: Broker) -> None:
    broker.fetched(broker.ask(), (1, 0, 0), code=6)
    broker.ask()
    assert broker.session.next_deadline(BACKOFF_S / 2) == BACKOFF_S
    assert broker.session.next_deadline(BACKOFF_S) is None, "or the loop would spin until the answer comes"


def test_a_partition_that_errs_again_and_again_rests_longer_each_time(broker: Broker) -> None:
    rests = []
    for _ in range(6):
        broker.fetched(broker.ask(), (1, 0, 0), code=-1)
        until = broker.session.next_deadline(broker.now)
        assert until is not None
        rests.append(round(until - broker.now, 6))
        broker.now = until
    assert rests == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    broker.fetched(broker.ask())
    broker.fetched(broker.ask(), (1, 0, 0), code=-1)
    assert broker.session.next_deadline(broker.now) == pytest.approx(broker.now + BACKOFF_S)


def test_an_acknowledgement_by_itself_puts_no_partition_into_the_session(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.fetched(broker.ask(), (0, 0, 0), code=-1)
    forgetting = broker.ask()
    assert forgetting.forgotten == {P0}
    broker.fetched(forgetting)
    broker.session.acknowledge(record, RELEASE)
    broker.acknowledged(broker.ask(), {0: 0})
    broker.now = 60.0
    assert partitions(broker.ask().request) == [0], "it has to be listed again, or it is never fetched again"


def test_what_is_held_of_a_partition_that_is_no_longer_needed_is_acknowledged_by_itself(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.set_partitions([P1], {TOPIC: "t"})
    assert not record.lost
    broker.session.acknowledge(record, ACCEPT)
    exchange = broker.ask()
    assert isinstance(exchange.request, ShareAcknowledgeRequest), "a fetch would put the partition back"
    outcome = broker.acknowledged(exchange, {0: 0})
    assert [each.error for each in outcome.acknowledged] == [None]
    assert broker.session.in_use == []
    forgetting = broker.ask().request
    assert isinstance(forgetting, ShareFetchRequest)
    assert [each.partitions for each in forgetting.forgotten_topics_data] == [[0]]


def test_records_that_come_when_their_partition_is_no_longer_needed_are_given_back(broker: Broker) -> None:
    exchange = broker.ask()
    broker.session.set_partitions([P1], {TOPIC: "t"})
    assert broker.fetched(exchange, (0, 0, 3)).records == []
    assert acknowledgements_of(broker.ask().request) == [(0, 2, [2])]


def test_what_is_given_back_does_not_wait_for_a_poll_of_its_partition(broker: Broker) -> None:
    """Which would not see it, and would be answered at its end only (measured on Apache Kafka 4.3.0)."""
    exchange = broker.ask()
    broker.session.set_partitions([P1], {TOPIC: "t"})
    broker.fetched(exchange, (0, 0, 3))
    broker.session.set_partitions([P0, P1], {TOPIC: "t"})
    released = broker.ask()
    assert (type(released.request), acknowledgements_of(released.request)) == (ShareAcknowledgeRequest, [(0, 2, [2])])


def test_a_gap_refused_with_its_neighbours_is_sent_again(broker: Broker) -> None:
    (record,) = broker.give(1)
    record.owner.acks.add_ranges([(1, 4)], AcknowledgeType.GAP)  # type: ignore[attr-defined]
    broker.session.acknowledge(record, ACCEPT)
    broker.session.flush()
    assert broker.acknowledged(broker.ask(), {0: 121}).acknowledged == []
    (accepted,) = broker.acknowledged(broker.ask(), {0: 0}).acknowledged
    assert accepted.error is None
    gap = broker.ask()
    assert acknowledgements_of(gap.request) == [(1, 4, [0])]
    assert broker.acknowledged(gap, {0: 121}).acknowledged == []
    assert not broker.session.has_pending


def test_renewals_that_are_sent_one_by_one_say_that_they_are_renewals(broker: Broker) -> None:
    for record in broker.give(2):
        broker.session.acknowledge(record, RENEW)
    broker.acknowledged(broker.ask(), {0: 121})
    for _ in range(2):
        exchange = broker.ask()
        assert isinstance(exchange.request, ShareAcknowledgeRequest)
        assert exchange.request.is_renew_ack
        broker.acknowledged(exchange, {0: 0})


def test_after_an_error_of_the_whole_answer_the_locks_stay_unless_the_session_was_not_found(broker: Broker) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    outcome = broker.fetched(broker.ask(), top=-1)
    assert [(each.record, each.error) for each in outcome.acknowledged] == [(first, outcome.error)]
    assert outcome.lost == []
    assert not second.lost
    broker.fetched(broker.ask())
    broker.session.acknowledge(second, ACCEPT)
    assert acknowledgements_of(broker.ask().request) == [(1, 1, [1])]


def test_what_a_wrong_epoch_kept_from_being_looked_at_is_sent_again_as_one_list(broker: Broker) -> None:
    for record in broker.give(5):
        broker.session.acknowledge(record, ACCEPT)
    broker.fetched(broker.ask(), top=123)
    broker.fetched(broker.ask())
    assert acknowledgements_of(broker.ask().request) == [(0, 4, [1])]


def test_a_record_whose_time_is_up_is_not_renewed_any_more(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, RENEW)
    assert broker.session.expire(30.0) == [record]
    assert not broker.session.has_pending


def test_a_renewal_that_comes_through_after_the_time_was_up_is_given_back(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, RENEW)
    exchange = broker.ask()
    broker.now = 30.0
    assert broker.session.expire(30.0) == [record]
    broker.acknowledged(exchange, {0: 0})
    assert acknowledgements_of(broker.ask().request) == [(0, 0, [2])]


@pytest.mark.parametrize("code", [3, 6, 74, 100])
def test_a_leader_that_gave_the_partition_up_has_no_locks_of_ours(broker: Broker, code: int) -> None:
    (record,) = broker.give(1)
    assert broker.fetched(broker.ask(), (0, 0, 0), code=code).lost == [record]
    assert record.lost


def test_records_in_a_codec_that_is_not_installed_are_given_back_and_left_to_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = batch(0, 2, GZIP)
    monkeypatch.setitem(CODECS, GZIP, CODECS[GZIP]._replace(library="one_that_nobody_has"))
    outcome = broker.answered(broker.ask(), {0: (compressed, [acquired(0, 1)])})
    assert [type(error) for error in outcome.partition_errors.values()] == [UnsupportedCodecError]
    released = broker.ask()
    assert acknowledgements_of(released.request) == [(0, 1, [2])]
    broker.acknowledged(released, {0: 0})
    assert broker.session.next_deadline(0.0) == UNREADABLE_BACKOFF_S, "each hand-out counts, and five drop the record"


# -- more than is read at once ----------------------------------------------------------------------------------------


SLICE = AcquiredSlice().records_left
MANY = 2 * SLICE + 1


def offsets(outcome: ShareResponseOutcome) -> list[int]:
    return [record.offset for record in outcome.records]


def test_what_a_large_batch_brings_is_read_in_slices(broker: Broker) -> None:
    first = broker.fetched(broker.ask(), (0, 0, MANY), (1, 0, 3))
    assert offsets(first) == list(range(SLICE))
    assert broker.session.has_unread and broker.session.in_use == [P0, P1]
    second, third = broker.session.read(1.0), broker.session.read(2.0)
    assert offsets(second) == list(range(SLICE, 2 * SLICE))
    assert offsets(third) == [MANY - 1, 0, 1, 2], "the rest of it, and another partition"
    assert not broker.session.has_unread
    assert broker.session.held_count == MANY + 3
    assert {record.lock_deadline for record in third.records} == {30.0}, "since the answer came"


def test_several_partitions_are_read_at_once_up_to_a_slice(broker: Broker) -> None:
    assert len(broker.fetched(broker.ask(), (0, 0, 5), (1, 0, SLICE)).records) == SLICE
    assert offsets(broker.session.read(0.0)) == list(range(SLICE - 5, SLICE))


def test_what_is_unread_is_forgotten_when_its_locks_end(broker: Broker) -> None:
    broker.fetched(broker.ask(), (0, 0, MANY))
    broker.session.acknowledge_all(*all_held(broker), RELEASE)
    assert broker.session.held_count == 0
    assert broker.session.next_deadline(10.0) == 30.0
    assert (broker.session.expire(29.9), broker.session.expire_unread(29.9)) == ([], 0)
    assert (broker.session.expire(30.0), broker.session.expire_unread(30.0)) == ([], MANY - SLICE)
    assert not broker.session.has_unread and broker.session.next_deadline(30.0) is None


def all_held(broker: Broker) -> tuple[AcquiredRecords, list[ShareRecord]]:
    record = broker.session.held(TOPIC, 0, 0)
    assert record is not None and isinstance(record.owner, AcquiredRecords)
    return record.owner, list(record.owner.held.values())


def test_what_is_unread_of_a_partition_that_is_no_longer_needed_is_given_back(broker: Broker) -> None:
    broker.fetched(broker.ask(), (0, 0, MANY))
    broker.session.set_partitions([P1], {TOPIC: "t"})
    assert not broker.session.has_unread
    assert acknowledgements_of(broker.ask().request) == [(SLICE, MANY - 1, [2])]


def test_what_is_unread_ends_with_its_session_or_its_partition(broker: Broker) -> None:
    broker.fetched(broker.ask(), (0, 0, MANY), (1, 0, MANY))
    broker.session.lose([P0], NotLeaderForPartitionError("moved"))
    assert broker.session.has_unread, "of the other one"
    broker.session.on_failure(KafkaConnectionError("gone"))
    assert not broker.session.has_unread and not broker.session.has_pending


def test_what_is_unread_is_released_by_name_when_the_session_does_not_list_its_partition(broker: Broker) -> None:
    broker.fetched(broker.ask(), (0, 0, MANY))
    for record in all_held(broker)[1]:
        broker.session.acknowledge(record, ACCEPT)
    broker.acknowledged(broker.ask(FetchDemand(0)), {0: 0})
    reopened = broker.session.reopening_request()
    assert reopened is not None
    broker.fetched(reopened, top=-1)  # the session is not open, and lists nothing
    broker.session.set_partitions([P1], {TOPIC: "t"})
    broker.fetched(broker.ask(FetchDemand(0)))
    closing = broker.session.close_request()
    assert closing is not None
    assert acknowledgements_of(closing.request) == [(SLICE, MANY - 1, [2])]


def test_what_cannot_be_read_later_on_is_given_back_and_what_came_before_stays(broker: Broker) -> None:
    damaged = bytearray(batch(SLICE, 5))
    damaged[-1] ^= 1
    first = broker.answered(broker.ask(), {0: (batch(0, SLICE) + damaged, [acquired(0, SLICE + 4)])})
    assert offsets(first) == list(range(SLICE))
    outcome = broker.session.read(0.0)
    assert [type(error) for error in outcome.partition_errors.values()] == [CorruptRecordError]
    assert not broker.session.has_unread and broker.session.held_count == SLICE
    assert acknowledgements_of(broker.ask().request) == [(SLICE, SLICE + 4, [2])]


def test_ranges_that_end_before_they_begin_are_not_acknowledged(broker: Broker) -> None:
    exchange = broker.ask()
    outcome = broker.answered(exchange, {0: (batch(0, 20), [acquired(1, 2), acquired(10, 5)])})
    assert [type(error) for error in outcome.partition_errors.values()] == [CorruptRecordError]
    assert acknowledgements_of(broker.ask().request) == [(1, 2, [2])]


def test_a_batch_that_cannot_be_opened_counts_as_a_slice(broker: Broker) -> None:
    """It may have been inflated up to the bound to find that out, and other partitions may have such ones."""
    damaged = bytearray(batch(0, 5))
    damaged[-1] ^= 1
    parts = {0: (bytes(damaged), [acquired(0, 4)]), 1: (batch(0, 5), [acquired(0, 4)])}
    outcome = broker.answered(broker.ask(), parts)
    assert outcome.records == [] and list(outcome.partition_errors) == [P0]
    assert offsets(broker.session.read(0.0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_held", [True, False])
def test_what_was_given_back_unread_is_not_sent_when_it_has_come_anew(broker: Broker, is_held: bool) -> None:
    """It waits for a broker that cannot write acknowledgements, until its locks end and it is handed out again."""
    broker.fetched(broker.ask(), (0, 0, MANY))
    broker.session.set_partitions([P1], {TOPIC: "t"})
    broker.session.set_partitions([P0, P1], {TOPIC: "t"})
    failed = broker.ask()
    assert acknowledgements_of(failed.request) == [(SLICE, MANY - 1, [2])]
    if is_held:
        held = broker.session.held(TOPIC, 0, 0)
        assert held is not None and isinstance(held.owner, AcquiredRecords)
        held.owner.held[MANY - 1] = broker_record(held)
    broker.acknowledged(failed, {0: 15})
    fetch = broker.session.reopening_request()
    assert fetch is not None
    broker.fetched(fetch, (0, SLICE, 5))
    broker.now += 10.0
    left = (SLICE + 5, MANY - 2 if is_held else MANY - 1, [2])
    assert acknowledgements_of(broker.ask(FetchDemand(0)).request) == [left]


def test_what_comes_anew_and_is_not_read_yet_ends_what_was_held_there(broker: Broker) -> None:
    held, accepted = broker.fetched(broker.ask(), (0, SLICE, 2)).records
    broker.session.acknowledge(accepted, ACCEPT)
    fetch = broker.session.reopening_request()
    assert fetch is not None
    outcome = broker.fetched(fetch, (0, 0, MANY))
    assert offsets(outcome) == list(range(SLICE)) and outcome.lost == [held]
    assert [(each.record, type(each.error)) for each in outcome.acknowledged] == [(accepted, InvalidRecordStateError)]
    assert not broker.session.has_pending


def test_acknowledgements_that_go_with_a_poll_are_answered_soon(broker: Broker) -> None:
    broker.session.acknowledge(broker.give(1)[0], ACCEPT)
    request = broker.ask().request
    assert isinstance(request, ShareFetchRequest)
    assert request.max_wait_ms == 100


def limits(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[str, int]:
    assert isinstance(request, ShareFetchRequest)
    names = ("max_wait_ms", "min_bytes", "max_bytes", "max_records", "batch_size", "share_acquire_mode")
    return {name: getattr(request, name) for name in names}


FETCHES_NOTHING = {
    "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 1, "share_acquire_mode": 0,
}  # fmt: skip


def test_a_fetch_waits_for_a_byte_within_its_limits(broker: Broker) -> None:
    assert limits(broker.ask(FetchDemand(1)).request) == {
        "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 52_428_800, "max_records": 1, "batch_size": 1,
        "share_acquire_mode": 0,
    }  # fmt: skip
    session = ShareSession("g", "m", fetch_max_bytes=7, max_wait_ms=90)
    session.set_partitions([P0], {TOPIC: "t"})
    exchange = session.next_request(0.0, FetchDemand(3, exactly=True, max_wait_ms=60))
    assert exchange is not None
    assert limits(exchange.request) == {
        "max_wait_ms": 60, "min_bytes": 1, "max_bytes": 7, "max_records": 3, "batch_size": 3, "share_acquire_mode": 1,
    }  # fmt: skip


def test_a_session_is_opened_anew_with_all_its_partitions_and_fetches_nothing_by_that(broker: Broker) -> None:
    opening = broker.ask()
    assert broker.session.reopening_request() is None, "one request in flight"
    (record,) = broker.fetched(opening, (0, 0, 1)).records
    exchange = broker.session.reopening_request()
    assert exchange is not None
    assert (exchange.request.share_session_epoch, partitions(exchange.request)) == (0, [0, 1])
    assert limits(exchange.request) == FETCHES_NOTHING
    assert (broker.session.reopening_request(), broker.session.in_flight) == (None, True)
    broker.fetched(exchange)
    assert not record.lost
    assert broker.ask().request.share_session_epoch == 1


@pytest.mark.parametrize(("wanted", "demand"), [([P0, P1], FetchDemand(0, exactly=True)), ([], FetchDemand(5))])
def test_a_session_that_is_opened_to_acknowledge_fetches_nothing(
    broker: Broker, wanted: list[TopicIdPartition], demand: FetchDemand
) -> None:
    broker.session.acknowledge(broker.give(1)[0], ACCEPT)
    broker.fetched(broker.ask(), top=123)
    broker.session.set_partitions(wanted, {TOPIC: "t"})
    opening = broker.ask(demand).request
    assert (opening.share_session_epoch, acknowledgements_of(opening)) == (0, [])
    assert partitions(opening) == [each[1] for each in wanted]
    assert limits(opening) == FETCHES_NOTHING


def test_the_epoch_wraps_behind_the_greatest_number_there_is(broker: Broker) -> None:
    assert MAX_EPOCH == 2_147_483_647
    broker.fetched(broker.ask())
    broker.session._epoch = MAX_EPOCH - 1
    broker.fetched(broker.ask())
    assert broker.ask().request.share_session_epoch == 2_147_483_647


def test_the_length_of_a_lock_is_what_the_last_answer_that_has_one_says(broker: Broker) -> None:
    assert broker.session.lock_s == 30.0
    for lock_ms, lock_s in ((1, 0.001), (15_000, 15.0), (0, 15.0)):
        broker.lock_ms = lock_ms
        broker.fetched(broker.ask())
        assert broker.session.lock_s == lock_s


def test_damaged_batches_are_noticed_unless_the_user_wants_no_checks() -> None:
    for check_crcs in (True, False):
        session = ShareSession("g", "m", **({} if check_crcs else {"check_crcs": False}))  # type: ignore[arg-type]
        session.set_partitions([P0], {TOPIC: "t"})
        broker = Broker(session)
        broker.ask()
        damaged = bytearray(batch(0, 1))
        damaged[-2] ^= 1  # within the value
        part = ShareFetchResponse.PartitionData(
            partition_index=0, error_code=0, acknowledge_error_code=0, records=bytes(damaged),
            current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            acquired_records=[acquired(0, 0)],
        )  # fmt: skip
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
        response = ShareFetchResponse(
            throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=9, responses=[topic], node_endpoints=[]
        )
        outcome = session.on_response(response, 0.0, 0.0)
        assert (list(outcome.partition_errors), len(outcome.records)) == (([P0], 0) if check_crcs else ([], 1))


@pytest.mark.parametrize(("kind", "by"), [(ACCEPT, ShareFetchRequest), (RELEASE, ShareAcknowledgeRequest)])
def test_a_release_goes_by_itself_and_what_is_released_again_hurries_nothing(
    broker: Broker, kind: AcknowledgeType, by: type
) -> None:
    first, second = broker.give(2)
    assert isinstance(first.owner, AcquiredRecords)
    assert broker.session.acknowledge_all(first.owner, [first], kind) == []
    exchange = broker.ask()
    assert isinstance(exchange.request, by)
    answered = broker.fetched(exchange) if by is ShareFetchRequest else broker.acknowledged(exchange)
    assert [each.record for each in answered.acknowledged] == [first]
    assert broker.session.acknowledge_all(first.owner, [first], RELEASE) == [first]
    broker.session.acknowledge(second, ACCEPT)
    assert isinstance(broker.ask().request, ShareFetchRequest)


def test_what_somebody_waits_for_goes_by_itself_once(broker: Broker) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    broker.session.flush()
    exchange = broker.ask()
    assert isinstance(exchange.request, ShareAcknowledgeRequest)
    broker.acknowledged(exchange, {0: 0})
    broker.session.acknowledge(second, ACCEPT)
    assert isinstance(broker.ask().request, ShareFetchRequest)


def test_what_is_held_is_found_by_its_offset(broker: Broker) -> None:
    (record,) = broker.give(1)
    assert broker.session.held(TOPIC, 0, 0) is record
    assert broker.session.held(TOPIC, 0, 1) is None
    assert broker.session.held(TOPIC, 1, 0) is None


def test_a_partition_is_in_use_while_it_has_locked_records_or_unsent_acknowledgements(broker: Broker) -> None:
    (record,) = broker.give(1)
    assert broker.session.in_use == [P0]
    broker.session.acknowledge(record, ACCEPT)
    assert broker.session.in_use == [P0]
    broker.fetched(broker.ask(), (0, 1, 0))
    assert broker.session.in_use == []


@pytest.mark.parametrize("code", [0, 15])
def test_only_a_closing_request_says_what_waits_for_the_coordinator(broker: Broker, code: int) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    broker.acknowledged(broker.ask(FetchDemand(0)), {0: 15})
    broker.session.acknowledge(second, ACCEPT)
    assert broker.session.next_request(0.0, FetchDemand(0)) is None
    fetch = broker.ask()
    assert acknowledgements_of(fetch.request) == []
    broker.fetched(fetch)
    closing = broker.session.close_request()
    assert closing is not None
    assert acknowledgements_of(closing.request) == [(0, 1, [1])]
    broker.acknowledged(closing, {0: code})
    assert not broker.session.is_open


def test_records_end_with_the_first_lock_that_ends(broker: Broker) -> None:
    (early,) = broker.give(1)
    broker.now = 10.0
    (late,) = broker.fetched(broker.ask(), (1, 0, 1)).records
    assert (broker.session.next_deadline(10.0), broker.session.expire(29.9)) == (30.0, [])
    broker.lock_ms = 5_000
    (short,) = broker.fetched(broker.ask(), (1, 1, 1)).records
    assert broker.session.next_deadline(10.0) == 15.0
    assert broker.session.expire(15.0) == [short]
    assert (broker.session.expire(30.0), broker.session.next_deadline(30.0)) == ([early], 40.0)
    assert (broker.session.expire(40.0), broker.session.next_deadline(40.0)) == ([late], None)


def test_a_fetch_that_is_not_answered_by_partition_has_no_error(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    outcome = broker.fetched(broker.ask())
    assert [(each.record, each.error) for each in outcome.acknowledged] == [(record, None)]


def test_a_connection_that_is_closed_or_lost_leaves_a_session_that_can_be_opened(broker: Broker) -> None:
    first, second = broker.give(2)
    broker.session.acknowledge(first, ACCEPT)
    error = KafkaConnectionError("closed")
    broker.ask()
    outcome = broker.session.abandon(error)
    assert ([each.record for each in outcome.acknowledged], outcome.lost, outcome.error) == ([first], [second], None)
    assert (broker.session.in_flight, broker.session.is_open) == (False, False)
    assert broker.session.abandon(error) == ShareResponseOutcome([], [], [], {}, None)
    (third,) = broker.give(1)
    broker.session.acknowledge(third, RELEASE)
    outcome = broker.session.on_failure(error)
    assert ([each.record for each in outcome.acknowledged], outcome.error) == ([third], error)
    (fourth,) = broker.fetched(broker.ask(), (0, 5, 1)).records
    broker.session.acknowledge(fourth, ACCEPT)
    assert isinstance(broker.ask().request, ShareFetchRequest), "the release that was lost hurries nothing"


def test_the_text_of_an_error_is_the_brokers(broker: Broker) -> None:
    response = ShareFetchResponse(
        throttle_time_ms=0, error_code=42, error_message="a bad one", acquisition_lock_timeout_ms=0, responses=[],
        node_endpoints=[],
    )  # fmt: skip
    broker.ask()
    outcome = broker.session.on_response(response, 0.0, 0.0)
    assert "a bad one" in str(outcome.error)
    assert not outcome.says_again
    part = ShareFetchResponse.PartitionData(
        partition_index=0, error_code=6, error_message="no leader", acknowledge_error_code=42,
        acknowledge_error_message="no ack", records=b"", acquired_records=[],
        current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
    )  # fmt: skip
    topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
    response = ShareFetchResponse(
        throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=0, responses=[topic], node_endpoints=[]
    )
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    broker.ask()
    outcome = broker.session.on_response(response, 0.0, 0.0)
    assert "no leader" in str(outcome.partition_errors[P0])
    assert "no ack" in str(outcome.acknowledged[0].error)


# -- partitions that rest ---------------------------------------------------------------------------------------------


def test_a_rest_is_over_at_its_end_and_not_before(broker: Broker) -> None:
    broker.session.set_partitions([P0], {TOPIC: "t"})
    assert broker.session.can_fetch(0.0)
    broker.fetched(broker.ask(), (0, 0, 0), code=-1)
    assert not broker.session.can_fetch(BACKOFF_S - 0.001)
    assert broker.session.can_fetch(BACKOFF_S)
    broker.now = BACKOFF_S
    broker.ask()
    assert not broker.session.can_fetch(BACKOFF_S), "a request is out"


def test_a_partition_that_is_no_longer_needed_begins_anew_and_the_others_do_not(broker: Broker) -> None:
    for _ in range(2):
        broker.fetched(broker.ask(), (0, 0, 0), (1, 0, 0), code=-1)
        broker.now += 1.0
    broker.session.set_partitions([P1], {TOPIC: "t"})
    broker.session.set_partitions([P0, P1], {TOPIC: "t"})
    broker.fetched(broker.ask(), (0, 0, 0), (1, 0, 0), code=-1)
    assert broker.session.next_deadline(broker.now) == pytest.approx(broker.now + BACKOFF_S), "P0's first"
    assert broker.session.next_deadline(broker.now + BACKOFF_S) == pytest.approx(broker.now + 4 * BACKOFF_S), (
        "P1's third"
    )


# -- what came too late, and what came anew ---------------------------------------------------------------------------


def test_records_whose_locks_have_ended_when_they_come_are_nobodys(broker: Broker) -> None:
    for now, count in ((29.999, 1), (30.0, 0)):
        session = ShareSession("g", "m")
        session.set_partitions([P0], {TOPIC: "t"})
        slow = Broker(session)
        part = ShareFetchResponse.PartitionData(
            partition_index=0, error_code=0, acknowledge_error_code=0, records=batch(0, 1),
            current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            acquired_records=[acquired(0, 0)],
        )  # fmt: skip
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
        response = ShareFetchResponse(
            throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=30_000, responses=[topic], node_endpoints=[]
        )
        slow.ask()
        assert len(session.on_response(response, 0.0, now).records) == count


def test_an_outcome_is_something_when_any_of_it_is(broker: Broker) -> None:
    (record,) = broker.give(1)
    nothing = ShareResponseOutcome([], [], [], {}, None)
    assert not nothing
    error = KafkaConnectionError("gone")
    some = [
        nothing._replace(records=[record]), nothing._replace(lost=[record]), nothing._replace(error=error),
        nothing._replace(partition_errors={P0: error}), nothing._replace(answered=[AcknowledgementResult(ACCEPT,
        [record], None)]),
    ]  # fmt: skip
    assert all(some)


def test_a_newly_acquired_record_ends_the_former_lock_and_its_acknowledgement(broker: Broker) -> None:
    held, accepted, renewed, said_alone, untouched = broker.give(5)
    broker.session.acknowledge(said_alone, ACCEPT)
    broker.session.acknowledge(renewed, RENEW)
    exchange = broker.ask()
    assert broker.acknowledged(exchange, {0: 121}).acknowledged == [], "now each by itself"
    broker.session.acknowledge(accepted, ACCEPT)
    fetch = broker.session.reopening_request()
    assert fetch is not None
    outcome = broker.fetched(fetch, (0, 0, 4))
    assert [record.offset for record in outcome.records] == [0, 1, 2, 3]
    assert sorted(record.offset for record in outcome.lost) == [0, 2]
    refused = {each.record.offset: type(each.error) for each in outcome.acknowledged}
    assert refused == {1: InvalidRecordStateError, 3: InvalidRecordStateError}, "renewals need no answer"
    assert all(record.lost for record in (held, accepted, renewed, said_alone)) and not untouched.lost
    assert not broker.session.has_pending and not broker.session.has_suspects
    assert broker.session.held_count == 5


@pytest.mark.parametrize("is_read", [True, False])
def test_what_was_refused_together_is_not_sent_for_records_that_came_anew_meanwhile(
    broker: Broker, is_read: bool
) -> None:
    first, second = broker.give(2)
    for record in (first, second):
        broker.session.acknowledge(record, ACCEPT)
    exchange = broker.ask(FetchDemand(0))
    anew = broker_record(first)
    assert isinstance(first.owner, AcquiredRecords)
    if is_read:
        first.owner.held[0] = anew
    else:
        first.owner.unread.append(AcquiredReader("t", 0, batch(0, 1), [AcquiredRange(0, 0, 2)], 30.0, first.owner))
    outcome = broker.acknowledged(exchange, {0: 121})
    assert [(each.record, type(each.error)) for each in outcome.acknowledged] == [(first, InvalidRecordStateError)]
    assert first.lost and not anew.lost
    assert acknowledgements_of(broker.ask(FetchDemand(0)).request) == [(1, 1, [1])]


def broker_record(of: ShareRecord) -> ShareRecord:
    """The record of ``of`` as it is handed out anew."""
    return ShareRecord(of.topic, of.partition, 4, of.offset, 0, 0, None, b"", [], 2, 60.0, of.owner)


@pytest.mark.parametrize(("now", "is_again"), [(29.999, True), (30.0, False)])
def test_what_the_broker_could_not_write_is_sent_again_while_the_lock_lasts(
    broker: Broker, now: float, is_again: bool
) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    exchange = broker.ask(FetchDemand(0))
    broker.now = now
    outcome = broker.acknowledged(exchange, {0: 15})
    assert [each.record for each in outcome.acknowledged] == ([] if is_again else [record])
    assert broker.session.has_pending is is_again


def test_closing_releases_by_name_what_is_held_of_partitions_that_the_session_does_not_have(broker: Broker) -> None:
    (record,) = broker.give(1)
    (other,) = broker.fetched(broker.ask(), (1, 7, 1)).records
    broker.session.set_partitions([P1], {TOPIC: "t"})
    forgetting = broker.ask()
    assert forgetting.forgotten == {P0}
    broker.fetched(forgetting)
    broker.session.acknowledge(record, RENEW)
    closing = broker.session.close_request()
    assert closing is not None and isinstance(closing.request, ShareAcknowledgeRequest)
    assert (acknowledgements_of(closing.request), closing.request.is_renew_ack) == ([(0, 0, [2])], False)
    outcome = broker.acknowledged(closing, {0: 0})
    assert sorted(each.offset for each in outcome.lost) == [0, 7]
    assert other.lost and not broker.session.has_pending


def test_a_renewal_that_is_out_when_the_connection_ends_needs_no_answer_beside_the_loss(broker: Broker) -> None:
    renewed, accepted = broker.give(2)
    broker.session.acknowledge(renewed, RENEW)
    broker.session.acknowledge(accepted, ACCEPT)
    broker.ask()
    outcome = broker.session.on_failure(KafkaConnectionError("gone"))
    assert [each.record for each in outcome.acknowledged] == [accepted]
    assert outcome.lost == [renewed] and renewed.lost and accepted.lost
