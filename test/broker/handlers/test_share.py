"""Share groups through requests: membership, sessions, records out, acknowledgements in, waiting, lost connections.

The rules of single machines are tested beside them (``test/broker/share``); here it is how they meet. Error codes as
measured on Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock
from uuid import UUID

import pytest

from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.protocol.groups import DeleteGroupsRequest, ListGroupsRequest
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kafka.protocol.topics import DeleteRecordsRequest
from test.broker.driver import HandBroker, batch, values
from test.broker.handlers.test_offsets import commit

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acks = Sequence[tuple[int, int, int]]


class Group:
    """A group ``g`` on a topic ``t`` that begins at the start, and its members' requests."""

    def __init__(self, hand: HandBroker, partitions: int = 1) -> None:
        self.hand = hand
        self.topic_id = hand.create_topic("t", partitions)
        hand.set_group("g", share_auto_offset_reset="earliest", share_record_lock_duration_ms="15000")

    def heartbeat(
        self, member: str = "m", epoch: int = 0, topics: Sequence[str] | None = ("t",), group: str = "g"
    ) -> ShareGroupHeartbeatResponse:
        return self.hand.ask(
            ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                subscribed_topic_names=None if topics is None else list(topics),
            )
        )

    def fetch_request(
        self,
        epoch: int,
        member: str = "m",
        acks: Acks = (),
        *,
        max_records: int = 100,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        mode: int = 0,
        partitions: Sequence[int] = (0,),
        forgotten: Sequence[int] = (),
        topic_id: UUID | None = None,
        is_renew: bool = False,
        min_bytes: int = 1,
    ) -> ShareFetchRequest:
        topic_id = topic_id or self.topic_id
        batches = [
            ShareFetchRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        return ShareFetchRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=100,
            share_acquire_mode=mode,
            is_renew_ack=is_renew,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareFetchRequest.FetchPartition(
                            partition_index=number, acknowledgement_batches=batches if number == partitions[0] else []
                        )
                        for number in partitions
                    ],
                )
            ]
            if partitions
            else [],
            forgotten_topics_data=[ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )

    def park(self, request: ShareFetchRequest, connection: ConnectionContext | None = None) -> PendingResponse:
        reply = self.hand.send(request, connection=connection)
        self.hand.tick()
        assert not reply.done
        return reply

    def acknowledge(
        self, epoch: int, acks: Acks, member: str = "m", *, is_renew: bool = False, partition: int = 0
    ) -> tuple[int, int | None]:
        """The errors of the whole and of the partition."""
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=is_renew,
            topics=[
                ShareAcknowledgeRequest.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        ShareAcknowledgeRequest.AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                ShareAcknowledgeRequest.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in acks
                            ],
                        )
                    ],
                )
            ],
        )
        answer = self.hand.ask(request)
        found = [row.error_code for topic in answer.responses for row in topic.partitions]
        return answer.error_code, found[0] if found else None


def acquired(answer: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """First, last and count of everything that was acquired."""
    return [
        (row.first_offset, row.last_offset, row.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for row in partition.acquired_records
    ]


@pytest.fixture
def group(hand: HandBroker) -> Group:
    made = Group(hand)
    made.heartbeat()
    return made


# -- membership ------------------------------------------------------------------------------------------------------


def test_a_member_joins_stays_and_leaves(hand: HandBroker) -> None:
    group = Group(hand, 3)
    joined = group.heartbeat()
    assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 5000)
    assert joined.assignment is not None
    assert [(row.topic_id, row.partitions) for row in joined.assignment.topic_partitions] == [
        (group.topic_id, [0, 1, 2])
    ]
    stays = group.heartbeat(epoch=joined.member_epoch, topics=None)
    assert (stays.error_code, stays.assignment) == (0, None)
    assert group.heartbeat(epoch=-1, topics=None).error_code == 0
    assert group.heartbeat(epoch=joined.member_epoch, topics=None).error_code == 25


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "name", "code"),
    [
        ("m", 0, None, "g", 42),
        ("m", 0, (), "g", 42),
        ("m" * 37, 0, ("t",), "g", 42),
        ("", 0, ("t",), "g", 42),
        ("m", -2, ("t",), "g", 42),
        ("m", 0, ("t",), "", 42),
        ("m", 5, ("t",), "nobody", 69),
        ("m", -1, None, "nobody", 69),
    ],
)
def test_a_wrong_heartbeat_is_refused(
    hand: HandBroker, member: str, epoch: int, topics: Sequence[str] | None, name: str, code: int
) -> None:
    assert Group(hand).heartbeat(member, epoch, topics, name).error_code == code


def test_the_name_of_another_kind_of_group_is_refused(hand: HandBroker) -> None:
    group = Group(hand)
    assert commit(hand, group="classic") == 0
    assert group.heartbeat(group="classic").error_code == 69


def test_a_topic_that_is_made_later_is_assigned(hand: HandBroker) -> None:
    group = Group(hand)
    joined = group.heartbeat(topics=("t", "later"))
    hand.create_topic("later")
    hand.advance(1.5)
    again = group.heartbeat(epoch=joined.member_epoch, topics=None)
    assert again.assignment is not None
    assert len(again.assignment.topic_partitions) == 2


def test_groups_are_described_listed_and_deleted_when_empty(group: Group) -> None:
    hand = group.hand
    known, unknown = hand.ask(
        ShareGroupDescribeRequest(group_ids=["g", "nobody"], include_authorized_operations=True)
    ).groups
    assert (known.error_code, known.group_state, known.assignor_name) == (0, "Stable", "simple")
    assert [(row.member_id, row.subscribed_topic_names) for row in known.members] == [("m", ["t"])]
    assert known.members[0].client_host == "/127.0.0.1"
    assert unknown.error_code == 69
    (listed,) = hand.ask(ListGroupsRequest(types_filter=["share"])).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "share", "share")
    assert hand.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 68
    group.heartbeat(epoch=-1, topics=None)
    assert hand.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    assert hand.ask(ListGroupsRequest()).groups == []


# -- records ---------------------------------------------------------------------------------------------------------


def test_records_are_handed_out_once_and_done_when_accepted(group: Group) -> None:
    group.hand.produce("t", batch(b"a", b"b", b"c"))
    first = group.hand.ask(group.fetch_request(0))
    assert first.acquisition_lock_timeout_ms == 15000
    (partition,) = first.responses[0].partitions
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (0, 0)
    assert values(partition.records) == [b"a", b"b", b"c"]
    assert acquired(first) == [(0, 2, 1)]
    second = group.hand.ask(group.fetch_request(1, acks=[(0, 2, ACCEPT)]))
    assert [row.acknowledge_error_code for topic in second.responses for row in topic.partitions] == [0]
    assert acquired(second) == []


def test_an_answer_holds_the_batches_of_what_was_acquired_and_no_others(group: Group) -> None:
    for name in (b"a", b"b", b"c", b"d"):
        group.hand.produce("t", batch(name, name))
    one = group.hand.ask(group.fetch_request(0, max_records=3, mode=1))
    assert acquired(one) == [(0, 2, 1)]
    assert values(one.responses[0].partitions[0].records) == [b"a", b"a", b"b", b"b"]
    two = group.hand.ask(group.fetch_request(1, max_records=3))
    assert acquired(two) == [(3, 3, 1), (4, 5, 1)]
    assert values(two.responses[0].partitions[0].records) == [b"b", b"b", b"c", b"c"]


def test_a_released_record_comes_again_with_a_higher_count(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    assert group.acknowledge(1, [(0, 0, RELEASE)]) == (0, 0)
    assert acquired(group.hand.ask(group.fetch_request(2))) == [(0, 0, 2)]
    assert group.acknowledge(3, [(0, 0, REJECT)]) == (0, 0)
    assert acquired(group.hand.ask(group.fetch_request(4))) == []


def test_a_lock_that_ends_gives_the_record_to_who_waits(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    other = ConnectionContext()
    request = group.fetch_request(0, "other", max_wait_ms=60_000)
    reply = group.park(request, other)
    group.hand.advance(14.9)
    assert not reply.done
    group.hand.advance(0.2)
    assert acquired(group.hand.answer(request, reply)) == [(0, 0, 2)]


def test_a_renewed_lock_lasts_from_the_renewal_on(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    for epoch in (1, 2, 3):
        group.hand.advance(10)
        assert group.acknowledge(epoch, [(0, 0, RENEW)], is_renew=True) == (0, 0)
    assert group.acknowledge(4, [(0, 0, ACCEPT)]) == (0, 0)


def test_new_records_wake_a_waiting_fetch(group: Group) -> None:
    request = group.fetch_request(0, max_wait_ms=500)
    reply = group.park(request)
    group.hand.produce("t", batch(b"a"))
    assert acquired(group.hand.answer(request, reply)) == [(0, 0, 1)]


def test_a_release_wakes_nobody_as_in_kafka(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    request = group.fetch_request(0, "other", max_wait_ms=1000)
    reply = group.park(request, ConnectionContext())
    group.acknowledge(1, [(0, 0, RELEASE)])
    group.hand.advance(0.9)
    assert not reply.done
    group.hand.advance(0.1)
    assert acquired(group.hand.answer(request, reply)) == [(0, 0, 2)], "the last attempt finds it"


def test_a_fetch_that_finds_nothing_ends_in_time(group: Group) -> None:
    request = group.fetch_request(0, max_wait_ms=500)
    reply = group.park(request)
    group.hand.advance(0.5)
    answer = group.hand.answer(request, reply)
    assert len(answer.responses[0].partitions) == 1, "a new session hears of all its partitions"
    assert group.hand.ask(group.fetch_request(1)).responses == [], "later only news"


@pytest.mark.parametrize(("max_records", "max_bytes"), [(0, 1000), (1000, 0)])
def test_a_fetch_for_acknowledgements_alone_is_answered_at_once(
    group: Group, max_records: int, max_bytes: int
) -> None:
    group.hand.produce("t", batch(b"a", b"b"))
    group.hand.ask(group.fetch_request(0, max_records=1, mode=1))
    request = group.fetch_request(
        1, acks=[(0, 0, ACCEPT)], max_wait_ms=1000, max_records=max_records, max_bytes=max_bytes
    )
    answer = group.hand.ask(request)
    assert acquired(answer) == []
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0


def test_the_answer_that_closes_a_new_session_names_what_was_acknowledged_alone(group: Group) -> None:
    # Java: FinalContext has no partitions of its own. Found by a walk of test_compare_random_walks.py.
    group.hand.ask(group.fetch_request(0))
    assert group.hand.ask(group.fetch_request(-1, partitions=())).responses == []
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    (topic,) = group.hand.ask(group.fetch_request(-1, acks=[(0, 0, ACCEPT)])).responses
    assert [(one.partition_index, one.acknowledge_error_code) for one in topic.partitions] == [(0, 0)]


def test_all_partitions_of_a_session_are_served_in_turn(hand: HandBroker) -> None:
    group = Group(hand, 2)
    for partition in (0, 1):
        for _ in range(3):
            hand.produce("t", batch(b"x"), partition)
    seen = []
    answer = hand.ask(group.fetch_request(0, partitions=(0, 1), max_records=1, mode=1))
    for epoch in (1, 2, 3):
        seen += [row.partition_index for row in answer.responses[0].partitions if row.acquired_records]
        answer = hand.ask(group.fetch_request(epoch, partitions=(), max_records=1, mode=1))
    assert set(seen) == {0, 1}


def test_a_forgotten_partition_gives_nothing_more(group: Group) -> None:
    group.hand.ask(group.fetch_request(0))
    group.hand.produce("t", batch(b"a"))
    assert group.hand.ask(group.fetch_request(1, partitions=(), forgotten=(0,))).responses == []


def test_what_is_not_there_is_reported_by_partition(group: Group) -> None:
    answer = group.hand.ask(group.fetch_request(0, partitions=(0, 7), max_wait_ms=1000))
    assert {row.partition_index: row.error_code for row in answer.responses[0].partitions} == {0: 0, 7: 3}
    answer = group.hand.ask(group.fetch_request(0, topic_id=UUID(int=5), max_wait_ms=1000))
    assert answer.responses[0].partitions[0].error_code == 100


def test_a_group_without_a_setting_begins_at_the_end(hand: HandBroker) -> None:
    group = Group(hand)
    hand.set_group("g", share_auto_offset_reset="latest")
    hand.produce("t", batch(b"old"))
    assert acquired(hand.ask(group.fetch_request(0))) == []
    hand.produce("t", batch(b"new"))
    assert acquired(hand.ask(group.fetch_request(1))) == [(1, 1, 1)]


def test_records_deleted_from_the_log_are_done_for_the_group(group: Group) -> None:
    for _ in range(3):
        group.hand.produce("t", batch(b"x"))
    group.hand.ask(group.fetch_request(0, max_records=1, mode=1))
    cut = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    group.hand.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[cut])], timeout_ms=0
        )
    )
    assert acquired(group.hand.ask(group.fetch_request(1))) == [(2, 2, 1)]


def test_acknowledgements_hold_after_a_restart(group: Group) -> None:
    for _ in range(3):
        group.hand.produce("t", batch(b"x"))
    group.hand.ask(group.fetch_request(0))
    assert group.acknowledge(1, [(0, 0, ACCEPT), (2, 2, ACCEPT)]) == (0, 0)
    group.hand.restart()
    assert acquired(group.hand.ask(group.fetch_request(0))) == [(1, 1, 1)], "a count that was never written begins anew"


# -- sessions and errors ---------------------------------------------------------------------------------------------


def test_session_numbers_are_held_to(group: Group) -> None:
    assert group.hand.ask(group.fetch_request(3)).error_code == 122
    assert group.acknowledge(1, []) == (122, None)
    assert group.hand.ask(group.fetch_request(-1)).error_code == 122
    assert group.hand.ask(group.fetch_request(0, acks=[(0, 0, ACCEPT)])).error_code == 42
    assert group.hand.ask(group.fetch_request(0)).error_code == 0
    assert group.hand.ask(group.fetch_request(7)).error_code == 123
    assert group.acknowledge(0, []) == (123, None)
    assert group.hand.ask(group.fetch_request(1, "m" * 37)).error_code == 42


@pytest.mark.parametrize(
    ("acks", "code"),
    [
        ([(0, 0, 9)], 42),
        ([(3, 3, ACCEPT), (1, 1, ACCEPT)], 42),
        ([(3, 1, ACCEPT)], 42),
        ([(0, 99, ACCEPT)], 42),
        ([(0, 0, RENEW)], 42),
        ([(0, 0, ACCEPT)], 0),
    ],
)
def test_wrong_acknowledgements_are_refused_for_the_partition(group: Group, acks: Acks, code: int) -> None:
    group.hand.produce("t", batch(b"a", b"b", b"c", b"d"))
    group.hand.ask(group.fetch_request(0))
    assert group.acknowledge(1, acks) == (0, code)


def test_another_ones_record_cannot_be_acknowledged(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    group.hand.ask(group.fetch_request(0, "other"), connection=ConnectionContext())
    assert group.acknowledge(1, [(0, 0, ACCEPT)], "other") == (0, 121)
    assert group.acknowledge(1, [(0, 0, ACCEPT)]) == (0, 0)


def test_a_partition_that_was_never_fetched_cannot_be_acknowledged(group: Group) -> None:
    group.hand.ask(group.fetch_request(0, partitions=()))
    assert group.acknowledge(1, [(0, 0, ACCEPT)]) == (0, 3)


def test_a_fetch_that_renews_may_fetch_nothing(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    group.hand.ask(group.fetch_request(0))
    acks = [(0, 0, RENEW)]
    assert group.hand.ask(group.fetch_request(1, acks=acks, is_renew=True)).error_code == 42
    nothing = group.fetch_request(1, acks=acks, is_renew=True, max_records=0, max_bytes=0, min_bytes=0)
    assert group.hand.ask(nothing).responses[0].partitions[0].acknowledge_error_code == 0


def test_closing_a_session_applies_its_acknowledgements_and_releases_the_rest(group: Group) -> None:
    group.hand.produce("t", batch(b"a", b"b"))
    group.hand.ask(group.fetch_request(0))
    closed = group.hand.ask(group.fetch_request(-1, acks=[(0, 0, ACCEPT)]))
    assert (closed.error_code, acquired(closed)) == (0, [])
    assert acquired(group.hand.ask(group.fetch_request(0, "other"))) == [(1, 1, 2)]


def test_a_lost_connection_releases_at_once_what_its_member_held(group: Group) -> None:
    group.hand.produce("t", batch(b"a"))
    lost = ConnectionContext()
    group.hand.ask(group.fetch_request(0), connection=lost)
    group.hand.broker.disconnected(lost, group.hand.now)
    assert acquired(group.hand.ask(group.fetch_request(0, "other"))) == [(0, 0, 2)]
    assert group.acknowledge(1, [(0, 0, ACCEPT)]) == (122, None)


def test_a_waiting_fetch_of_a_lost_connection_acquires_nothing(group: Group) -> None:
    lost = ConnectionContext()
    group.park(group.fetch_request(0, max_wait_ms=1000), lost)
    group.hand.broker.disconnected(lost, group.hand.now)
    group.hand.produce("t", batch(b"a"))
    assert acquired(group.hand.ask(group.fetch_request(0, "other"))) == [(0, 0, 1)]


def test_an_acknowledgement_meanwhile_takes_the_session_from_a_waiting_fetch(group: Group) -> None:
    request = group.fetch_request(0, max_wait_ms=1000)
    reply = group.park(request)
    group.acknowledge(1, [])
    group.hand.produce("t", batch(b"a"))
    assert group.hand.answer(request, reply).error_code == 123
    assert acquired(group.hand.ask(group.fetch_request(0, "other"))) == [(0, 0, 1)]


def test_too_many_sessions_are_reported_after_the_wait(hand: HandBroker) -> None:
    group = Group(hand)
    hand.broker.sessions.max_sessions = 1
    hand.ask(group.fetch_request(0))
    request = group.fetch_request(0, "other", max_wait_ms=300)
    reply = group.park(request, ConnectionContext())
    hand.advance(0.3)
    assert hand.answer(request, reply).error_code == 133


# -- offsets ---------------------------------------------------------------------------------------------------------


def offsets(group: Group) -> list[tuple[int, int]]:
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    )
    found = group.hand.ask(request).groups[0]
    return [(row.start_offset, row.lag) for topic in found.topics for row in topic.partitions]


def test_offsets_are_described_with_their_lag_and_altered_while_nobody_is_there(group: Group) -> None:
    hand = group.hand
    for _ in range(5):
        hand.produce("t", batch(b"x"))
    hand.ask(group.fetch_request(0))
    group.acknowledge(1, [(0, 0, ACCEPT), (3, 3, ACCEPT)])
    assert offsets(group) == [(0, 3)]  # the start that was written; offset 3 and the new start come with the next one
    partition = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
    change = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition])
            for name in ("t", "nope")
        ],
    )
    assert hand.ask(change).error_code == 68
    group.heartbeat(epoch=-1, topics=None)
    answer = hand.ask(change)
    assert [row.error_code for topic in answer.responses for row in topic.partitions] == [3, 0]  # refused first
    assert offsets(group) == [(4, 1)]
    forget = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    )
    assert hand.ask(forget).responses[0].error_code == 0
    assert offsets(group) == []


def test_the_lag_leaves_out_what_is_done_also_before_the_first_fetch_after_a_restart(group: Group) -> None:
    """Apache Kafka stores the number with the state (KIP-1226)."""
    for _ in range(5):
        group.hand.produce("t", batch(b"x"))
    group.hand.ask(group.fetch_request(0))
    group.acknowledge(1, [(1, 1, ACCEPT), (3, 3, ACCEPT)])
    assert offsets(group) == [(0, 3)]
    group.hand.restart()
    assert offsets(group) == [(0, 3)]


def test_of_a_partition_whose_offset_is_altered_twice_the_last_counts_and_is_written_once(hand: HandBroker) -> None:
    hand.create_topic("twice")
    kind = AlterShareGroupOffsetsRequest
    partitions = [
        kind.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset % 7) for offset in range(500)
    ]
    topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name="twice", partitions=partitions)
    with mock.patch.object(hand.broker.share, "alter_offset", wraps=hand.broker.share.alter_offset) as altered:
        answer = hand.ask(kind(group_id="g", topics=[topic]))
    assert [row.error_code for row in answer.responses[0].partitions] == [0] * 500
    assert [call.args[3] for call in altered.call_args_list] == [499 % 7]
