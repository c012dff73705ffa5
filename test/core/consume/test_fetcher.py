from __future__ import annotations

from math import inf

import pytest

from kafka.core.consume.fetcher import Fetcher, RefreshFetchMetadata, RequestOffsets
from kafka.core.consume.offsets import ResolvedOffset
from kafka.core.consume.partition import EARLIEST, LATEST, ReaderOptions
from kafka.core.consume.session import SendFetch
from kafka.errors import (
    CorruptRecordError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaProtocolError,
    NoOffsetForPartitionError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.fetch import FetchResponse
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID
from test.core.consume.rig import TOPIC_ID, A, B, C, Rig, session
from test.core.consume.test_partition import batch

OUT_OF_RANGE, NOT_LEADER, AUTHORIZATION = 1, 6, 29


def test_a_partition_without_a_position_is_looked_up_by_the_policy() -> None:
    for policy, timestamp in (("latest", LATEST), ("earliest", EARLIEST)):
        rig = Rig(A, reset_policy=policy)
        (effect,) = rig.poll()
        assert isinstance(effect, RequestOffsets)
        assert effect.timestamps == {A: timestamp}
        assert rig.poll() == [], "it was asked already"
        assert rig.fetcher.offsets_received(effect, {A: ResolvedOffset(42, -1, -1)}, rig.now)
        assert rig.asked(rig.fetch()) == {0: 42}


def test_a_partition_without_a_leader_waits_alone_and_is_looked_up_when_it_has_one() -> None:
    rig = Rig(A, C, backoff=float)
    rig.lead(C, None)
    find, refresh = rig.poll()
    assert (find.leader, list(find.timestamps)) == (1, [A])
    assert refresh == RefreshFetchMetadata(frozenset({"t"}))
    rig.fetcher.offsets_received(find, {A: ResolvedOffset(42, -1, -1)}, rig.now)
    assert rig.asked(rig.fetch()) == {0: 42}
    for look_at in (1.0, 2.0, 3.0):
        assert rig.fetcher.next_deadline == look_at
        rig.now = look_at
        assert RefreshFetchMetadata(frozenset({"t"})) in rig.poll(), "it is asked for again after a while"
    rig.lead(C, 2)
    assert rig.find().leader == 2


def test_each_leader_is_asked_for_positions_by_itself() -> None:
    """A silent one holds up its own partitions and no others."""
    rig = Rig(A, B, C)
    finds = {effect.leader: effect for effect in rig.poll() if isinstance(effect, RequestOffsets)}
    assert {leader: list(find.timestamps) for leader, find in finds.items()} == {1: [A, B], 2: [C]}
    rig.fetcher.offsets_received(finds[2], {C: ResolvedOffset(7, -1, -1)}, rig.now)
    assert rig.asked(rig.fetch()) == {2: 7}


def test_each_partition_has_its_own_error_of_a_look_up() -> None:
    rig = Rig(A, B, backoff=lambda failures: float(failures))
    results = {A: TopicAuthorizationFailedError("t-0"), B: ResolvedOffset(7, -1, -1)}
    assert rig.fetcher.offsets_received(rig.find(), results, rig.now)
    assert isinstance(rig.fetcher.positions[A].error, TopicAuthorizationFailedError)
    assert rig.fetcher.positions[B].error is None
    assert rig.asked(rig.fetch()) == {1: 7}


def test_a_look_up_that_failed_for_a_moment_is_made_again_after_a_while_or_at_another_leader_at_once() -> None:
    rig = Rig(A, B, backoff=lambda failures: float(failures))
    results = {A: ResolvedOffset(7, -1, -1), B: NotLeaderForPartitionError("t-1")}
    assert rig.fetcher.offsets_received(rig.find(), results, rig.now)
    effects = rig.poll()
    assert RefreshFetchMetadata(frozenset({"t"})) in effects
    assert not [effect for effect in effects if isinstance(effect, RequestOffsets)]
    rig.now = 1.0
    find = rig.find()
    assert (find.leader, list(find.timestamps)) == (1, [B])
    rig.fetcher.offsets_received(find, {B: NotLeaderForPartitionError("t-1")}, rig.now)
    rig.lead(B, 2)
    assert rig.find().leader == 2, "two seconds have not passed"


def test_without_a_policy_a_missing_position_is_an_error_for_the_reader() -> None:
    rig = Rig(A, reset_policy="none")
    assert rig.poll() == []
    position = rig.fetcher.ready()
    assert position is not None
    assert isinstance(position.error, NoOffsetForPartitionError)
    position.seek(5)
    assert rig.asked(rig.fetch()) == {0: 5}


def test_a_fetcher_with_defaults_asks_as_javas_does() -> None:
    """ConsumerConfig's fetch.max.wait.ms, fetch.min.bytes, max.partition.fetch.bytes, isolation.level, client.rack and
    auto.offset.reset; ListOffsetsRequest.LATEST_TIMESTAMP; FetchMetadata.INITIAL."""
    fetcher = Fetcher(leader_of=lambda _: 1, topic_id_of=lambda _: TOPIC_ID, wall_ms=lambda: 0)
    assert not fetcher.lacks_room
    fetcher.assign([A])
    (find,) = fetcher.poll(0.0)
    assert isinstance(find, RequestOffsets) and find.timestamps == {A: -1}
    fetcher.offsets_received(find, {A: ResolvedOffset(7, -1, -1)}, 0.0)
    (call,) = fetcher.poll(0.0)
    assert isinstance(call, SendFetch)
    request = call.request
    assert (request.max_wait_ms, request.min_bytes) == (500, 1)
    assert (request.isolation_level, request.rack_id, session(call)) == (0, "", (0, 0))
    (partition,) = request.topics[0].partitions
    assert (partition.fetch_offset, partition.current_leader_epoch) == (7, -1)
    assert partition.partition_max_bytes == 1_048_576


@pytest.mark.parametrize(("read_committed", "level"), [(False, 0), (True, 1)])
def test_the_isolation_level_is_the_protocols(read_committed: bool, level: int) -> None:
    """FetchRequest.json: 0 is READ_UNCOMMITTED, 1 READ_COMMITTED (KIP-98)."""
    rig = Rig(A, options=ReaderOptions(read_committed=read_committed))
    rig.seek_all()
    assert rig.fetch().request.isolation_level == level


def test_one_fetch_goes_to_each_leader_with_all_its_partitions() -> None:
    rig = Rig(A, B, C)
    rig.seek_all()
    assert {call.node: sorted(rig.asked(call)) for call in rig.fetches()} == {1: [0, 1], 2: [2]}
    assert rig.fetches() == [], "one in flight for each leader"


def test_the_next_fetch_goes_on_where_the_last_one_ended_before_anything_was_read() -> None:
    rig = Rig(A)
    rig.seek_all()
    assert rig.answer(rig.fetch(), p0=batch(0, b"a", b"b"))
    call = rig.fetch()
    assert rig.asked(call) == {0: 2}
    rig.answer(call, p0=batch(2, b"c"))
    assert rig.read() == [b"a", b"b", b"c"]
    assert rig.fetcher.positions[A].position == 3


def test_reading_ahead_is_bounded_for_each_partition() -> None:
    rig = Rig(A, B, max_partition_bytes=100)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"x" * 100))
    call = rig.fetch()
    assert sorted(rig.asked(call)) == [1], "partition 0 has enough"
    rig.read()
    rig.answer(call)
    assert sorted(rig.asked(rig.fetch())) == [0, 1]


def test_reading_ahead_is_bounded_in_all() -> None:
    rig = Rig(A, C, buffer_bytes=400)
    rig.seek_all()
    calls = {call.node: call for call in rig.fetches()}
    assert [call.request.max_bytes for call in calls.values()] == [100, 100], "two more may be under way"
    rig.answer(calls[1], p0=batch(0, b"x" * 150))
    rig.answer(calls[2])
    first = rig.fetch()
    assert rig.fetches() == [], "there is room for one"
    rig.read()
    assert {first.node, rig.fetch().node} == {1, 2}


def test_paused_partitions_are_not_asked_for_and_keep_what_they_have() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    rig.fetcher.positions[A].pause()
    assert rig.fetches() == []
    assert rig.read() == []
    rig.fetcher.positions[A].pause(False)
    assert rig.read() == [b"a"]


def test_an_answer_to_what_was_asked_before_a_seek_is_dropped() -> None:
    rig = Rig(A)
    rig.seek_all()
    call = rig.fetch()
    rig.fetcher.positions[A].seek(50)
    assert not rig.answer(call, p0=batch(0, b"a"))
    assert rig.read() == []
    assert rig.asked(rig.fetch()) == {0: 50}


def test_an_offset_looked_up_before_a_seek_is_dropped() -> None:
    rig = Rig(A)
    (effect,) = rig.poll()
    rig.fetcher.positions[A].seek(7)
    assert not rig.fetcher.offsets_received(effect, {A: ResolvedOffset(99, -1, -1)}, rig.now)
    assert rig.fetcher.positions[A].position == 7


def test_out_of_range_resets_by_the_policy() -> None:
    rig = Rig(A, reset_policy="earliest")
    rig.seek_all(1000)
    rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    (effect,) = rig.poll()
    assert effect.timestamps == {A: EARLIEST}


def test_out_of_range_without_a_policy_is_an_error_that_names_partition_and_offset() -> None:
    rig = Rig(A, reset_policy="none")
    rig.seek_all(1000)
    assert rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    error = rig.fetcher.positions[A].error
    assert isinstance(error, OffsetOutOfRangeError)
    assert "t-0 has no offset 1000" in str(error) and "seek" in str(error)


def test_out_of_range_does_not_take_away_what_is_buffered() -> None:
    rig = Rig(A, reset_policy="earliest")
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    assert rig.read() == [b"a"]


def test_a_moved_leader_is_looked_for_and_fetched_from_as_soon_as_it_is_known() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=NOT_LEADER)
    assert rig.poll() == [RefreshFetchMetadata(frozenset({"t"}))]
    assert rig.fetcher.next_deadline == pytest.approx(0.1)
    rig.lead(A, None)
    assert rig.fetches() == []
    rig.lead(A, 2)
    call = rig.fetch()
    assert call.node == 2
    rig.answer(call, p0=NOT_LEADER)
    rig.lead(A, 2)
    assert rig.fetches() == [], "who has just refused is asked after the back-off"
    rig.now = 0.3
    assert rig.fetch().node == 2


def test_a_lost_connection_is_tried_again_after_the_backoff() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), 0.0)
    assert rig.fetches() == []
    rig.now = 0.2
    assert rig.asked(rig.fetch()) == {0: 0}


def test_a_partition_without_a_leader_waits_for_metadata() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.lead(A, None)
    assert rig.poll() == [RefreshFetchMetadata(frozenset({"t"}))]
    assert rig.fetcher.next_deadline < inf


def test_an_error_that_will_not_go_away_is_the_readers() -> None:
    rig = Rig(A)
    rig.seek_all()
    assert rig.answer(rig.fetch(), p0=AUTHORIZATION)
    position = rig.fetcher.positions[A]
    assert isinstance(position.error, TopicAuthorizationFailedError)
    position.set_error(None)  # it has been read
    assert not rig.fetches(), "who goes on all the same asks the broker again after a while"
    rig.now += 0.1
    assert rig.asked(rig.fetch()) == {0: 0}


def test_a_broker_that_cannot_be_understood_is_reported_once_and_tried_again() -> None:
    """And not once for each partition."""
    rig = Rig(A, B)
    rig.seek_all()
    error = KafkaProtocolError("an answer that makes no sense")
    assert rig.fetcher.failed(rig.fetch(), error, rig.now)
    assert rig.fetcher.refusal is error
    assert not rig.fetcher.has_ready
    rig.now += 0.1
    assert rig.asked(rig.fetch()) == {0: 0, 1: 0}


def test_topics_without_an_id_are_asked_for_by_name() -> None:
    rig = Rig(A, topic_id=ZERO_UUID)
    rig.seek_all()
    assert rig.fetch().max_version == 12


def test_a_node_that_throttles_is_asked_when_it_is_free_again() -> None:
    rig = Rig(A, C, free_at=lambda node: 0.5 if node == 1 else 0.0)
    rig.seek_all()
    assert [call.node for call in rig.fetches()] == [2]
    assert rig.fetcher.next_deadline == 0.5
    rig.now = 0.5
    assert [call.node for call in rig.fetches()] == [1]


def test_an_old_broker_has_waited_before_it_answered_so_the_next_fetch_is_due_at_once() -> None:
    """Whether it has is the connection's to know: what it does not mute is free (KIP-219)."""
    rig = Rig(A)
    rig.seek_all()
    rig.fetcher.fetched(rig.fetch(), FetchResponse(responses=[], throttle_time_ms=500), 0.0)
    assert len(rig.fetches()) == 1


def test_a_partition_with_a_new_leader_is_fetched_there_at_once() -> None:
    rig = Rig(A)
    rig.seek_all()
    call = rig.fetch()
    rig.leaders[A] = 2  # the answer said so, too (KIP-951)
    assert not rig.answer(call, p0=NOT_LEADER)
    assert rig.fetch().node == 2


def test_a_partition_whose_leader_is_not_known_anew_waits_for_the_back_off() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=NOT_LEADER)
    assert rig.fetches() == []
    rig.now = 0.1
    assert rig.fetch().node == 1


def test_partitions_that_stay_assigned_keep_their_positions() -> None:
    rig = Rig(A, B)
    rig.seek_all(9)
    rig.fetcher.assign([B, C])
    assert rig.fetcher.positions[B].position == 9
    assert rig.fetcher.positions[C].position is None
    with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
        rig.fetcher.position_of(A)


def test_a_partition_that_is_taken_away_and_given_back_is_fetched_from_its_new_start() -> None:
    rig = Rig(A)
    rig.seek_all(9)
    rig.answer(rig.fetch())
    rig.fetcher.assign([])
    rig.fetcher.assign([A], awaiting={A})
    rig.fetcher.start(A, 20)
    assert rig.asked(rig.fetch()) == {0: 20}


def test_a_partition_that_had_no_turn_is_named_the_next_time() -> None:
    rig = Rig(A, B, C)
    rig.seek_all()
    for call in rig.fetches():
        rig.answer(call, p0=batch(0, b"a"), p1=batch(0, b"b"))
    first, second = rig.fetcher.ready(), rig.fetcher.ready()
    assert first is not None and second is not None
    rig.fetcher.put_first(second)
    rig.fetcher.put_first(rig.fetcher.positions[C])  # it has nothing
    assert [rig.fetcher.ready() for _ in range(3)] == [second, first, second]


def test_what_was_read_counts_while_it_is_the_first_that_is_buffered() -> None:
    rig = Rig(A)
    rig.seek_all()
    for offset in (0, 1):
        rig.answer(rig.fetch(), p0=batch(offset, b"x"))
    position = rig.fetcher.positions[A]
    first, second = position.buffered
    for fetched in (first, second):
        fetched.read(10, rig.fetcher.options)
    generation = position.generation
    assert not rig.fetcher.after_read(position, second, generation), "not the first"
    assert not rig.fetcher.after_read(position, first, generation - 1), "a seek came between"
    assert position.position == 0
    assert rig.fetcher.after_read(position, first, generation)
    assert rig.fetcher.after_read(position, second, generation)
    assert not rig.fetcher.after_read(position, second, generation), "nothing is buffered"
    assert position.position == 2


def test_partitions_with_records_take_turns() -> None:
    rig = Rig(A, B)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a"), p1=batch(0, b"b"))
    first = rig.fetcher.ready()
    second = rig.fetcher.ready()
    assert first is not second


def test_a_partition_goes_on_as_soon_as_its_leader_is_known_and_not_after_a_back_off() -> None:
    rig = Rig(A)
    rig.fetcher.position_of(A).seek(0)
    rig.lead(A, None)
    assert [type(effect) for effect in rig.poll()] == [RefreshFetchMetadata]
    rig.lead(A, 1)
    assert rig.fetch().node == 1


# -- a group's offsets -------------------------------------------------------------------------------------------------


def test_a_partition_whose_committed_offset_is_awaited_is_neither_fetched_nor_reset() -> None:
    rig = Rig()
    rig.fetcher.assign([A, B], awaiting={A, B})
    assert rig.poll() == []
    rig.fetcher.start(A, 7, leader_epoch=3)
    assert rig.asked(rig.fetch()) == {0: 7}
    assert rig.fetcher.positions[A].leader_epoch == 3
    rig.fetcher.start(B, None)
    (effect,) = rig.poll()
    assert effect.timestamps == {B: LATEST}


@pytest.mark.parametrize("waits_for", ["a group's offset", "an offset by time", "the end of an epoch"])
def test_new_metadata_changes_nothing_for_who_waits_for_an_answer(waits_for: str) -> None:
    rig = Rig()
    rig.lead(A, 1, 6)
    rig.fetcher.assign([A], awaiting={A})
    if waits_for == "an offset by time":
        rig.fetcher.start(A, None)
        rig.find()
    elif waits_for == "the end of an epoch":
        rig.fetcher.start(A, 10, leader_epoch=3)
        rig.ask_epochs()
    for _ in range(2):
        rig.fetcher.metadata_changed()
        assert rig.poll() == []


def test_a_committed_offset_without_an_epoch_has_none() -> None:
    rig = Rig()
    rig.fetcher.assign([A], awaiting={A})
    rig.fetcher.start(A, 7)
    assert rig.fetcher.positions[A].leader_epoch == -1


@pytest.mark.parametrize("awaiting", [{A}, set()])
def test_without_a_policy_a_partition_that_has_no_offset_waits_for_a_seek_alone(awaiting: set[TopicPartition]) -> None:
    rig = Rig(reset_policy="none")
    rig.fetcher.assign([A], awaiting=awaiting)
    for offset in (None, 70):  # the second is of a look-up that nobody waits for any more
        rig.fetcher.start(A, offset)
    position = rig.fetcher.positions[A]
    assert (position.position, type(position.error)) == (None, NoOffsetForPartitionError)


def test_what_the_user_says_goes_before_the_committed_offset() -> None:
    rig = Rig()
    rig.fetcher.assign([A, B, C], awaiting={A, B, C})
    rig.fetcher.position_of(A).seek(5)
    rig.fetcher.position_of(B).reset(EARLIEST)
    rig.fetcher.assign([A, B])
    for partition in (A, B, C):
        rig.fetcher.start(partition, 70)
    assert rig.fetcher.positions[A].position == 5
    assert rig.fetcher.positions[B].position is None


def test_partitions_that_stay_await_nothing_new() -> None:
    rig = Rig(A)
    rig.seek_all(9)
    rig.fetcher.assign([A, B], awaiting={A, B})
    rig.fetcher.start(A, 70)
    assert rig.fetcher.positions[A].position == 9


def test_the_position_has_the_leader_epoch_of_the_last_record_handed_out() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a", b"b"))
    assert rig.fetcher.positions[A].leader_epoch == -1
    rig.read()
    assert rig.fetcher.positions[A].leader_epoch == 4


def test_a_partition_without_a_leader_is_looked_at_no_more_often_the_longer_it_has_none() -> None:
    """New metadata finds it without a leader, too: the looks that follow from that do not add up."""
    rig = Rig(A)
    rig.seek_all()
    rig.lead(A, None)
    looks = 0
    metadata_at = 1.0137
    while rig.now < 60.0:
        rig.poll()
        looks += 1
        assert rig.fetcher.next_deadline > rig.now
        rig.now = min(rig.fetcher.next_deadline, metadata_at)
        if rig.now == metadata_at:
            metadata_at += 1.0137
            rig.fetcher.metadata_changed()
    assert looks < 60 / 0.1 + 2 * 60


def test_a_fault_in_what_was_fetched_is_met_before_it_is_fetched_again() -> None:
    """What comes from that place is the same again and again, and would be asked for as fast as the broker answers."""
    rig = Rig(A, B)
    rig.seek_all()
    damaged = bytearray(batch(1, b"b"))
    damaged[16] = 9  # a magic that there is not
    rig.answer(rig.fetch(), p0=batch(0, b"a") + bytes(damaged))
    call = rig.fetch()
    assert rig.asked(call) == {1: 0}
    rig.answer(call)
    position = rig.fetcher.positions[A]
    fetched = position.buffered[0]
    assert [record.value for record in fetched.read(10, rig.fetcher.options)] == [b"a"]
    assert rig.fetcher.after_read(position, fetched, position.generation)
    with pytest.raises(CorruptRecordError):
        fetched.read(10, rig.fetcher.options)
    rig.fetcher.after_fault(position, fetched, position.generation)
    assert rig.asked(rig.fetch()) == {0: 1, 1: 0}
