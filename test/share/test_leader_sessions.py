"""A session over its own connection: flushes are done when everything has its answer, and the end is never a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka.core.share.records import AcquiredSlice
from kafka.protocol.share import ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest
from kafka.share import AcknowledgeType
from test.core.share.test_records import batch
from test.share.support import LATENCY_S, Leaders, Machine, Taker
from test.support.scripted import Answer

MakeLeaders = Callable[..., Leaders]


@pytest.fixture
def one(leaders: MakeLeaders) -> Leaders:
    """One leader that has handed out five records."""
    one = leaders(1)
    one.nodes[0].log.extend(range(5))
    one.consumer.request_records(5)
    one.wait(lambda: len(one.user.records) == 5)
    return one


def refuse_acks(one: Leaders, code: int = 0, top: int = 0) -> Callable[[Any, int], Answer]:
    def answer(request: Any, version: int) -> Answer:
        part = ShareAcknowledgeResponse.PartitionData(
            partition_index=0, error_code=code,
            current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        )  # fmt: skip
        topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(
            topic_id=request.topics[0].topic_id, partitions=[part]
        )
        return ShareAcknowledgeResponse(
            throttle_time_ms=0, error_code=top, acquisition_lock_timeout_ms=30_000,
            responses=[] if top else [topic], node_endpoints=[],
        )

    return answer


def hand_out_at_once(one: Leaders, count: int) -> None:
    """The next fetch gets so many records in one batch, and the ones after it nothing."""
    node = one.nodes[0]
    answer = node.fetched([(100, batch(100, count))])
    acquired = answer.responses[0].partitions[0].acquired_records[0]
    acquired.last_offset = 100 + count - 1

    def once(request: Any, version: int) -> Answer:
        if not request.max_records:
            return node.fetch(request, version)
        node.answers[ShareFetchRequest] = node.fetch
        return answer

    node.answers[ShareFetchRequest] = once


def test_what_a_whole_batch_brings_comes_as_it_is_requested_and_nothing_is_fetched_before(one: Leaders) -> None:
    count, slice_records = 20_000, AcquiredSlice().records_left
    hand_out_at_once(one, count)
    asked = len(one.nodes[0].asked)
    one.user.records.clear()
    for seen in (slice_records, 2 * slice_records, count):
        one.consumer.request_records(10)
        one.wait(lambda: len(one.user.records) == seen, 2)  # noqa: B023
        one.run(1)
        assert len(one.user.records) == seen, "the demand is over"
    assert len(one.nodes[0].asked) == asked, "by an answer of its own, the first of these"
    one.consumer.request_records(10)
    one.wait(lambda: len(one.nodes[0].asked) > asked, 2)
    assert [record.offset for record in one.user.records] == list(range(100, 100 + count))


def test_with_record_limit_all_that_was_acquired_comes_though_nothing_is_requested_any_more(one: Leaders) -> None:
    """Locks of what is unread would end: nobody renews them."""
    count = 20_000
    hand_out_at_once(one, count)
    one.user.records.clear()
    one.consumer.request_records(count, exactly=True)
    one.wait(lambda: one.user.records, 2)
    one.consumer.request_records(0, exactly=True)
    one.wait(lambda: len(one.user.records) == count, 2)
    assert [record.offset for record in one.user.records] == list(range(100, 100 + count))


def test_a_flush_is_done_when_all_acknowledgements_before_it_have_their_answers(one: Leaders) -> None:
    for record in one.user.records:
        one.consumer.acknowledge(record)
    done = one.consumer.commit_async()
    assert not done.is_done
    one.wait(lambda: done.is_done, 1)
    assert len(one.user.acknowledged) == 5
    assert one.nodes[0].acknowledged == [(0, 4, 1)]


def test_a_flush_waits_for_what_has_to_be_sent_again_in_a_new_session(one: Leaders) -> None:
    node = one.nodes[0]
    node.answers[ShareAcknowledgeRequest] = [refuse_acks(one, top=123), node.acknowledge]
    for record in one.user.records:
        one.consumer.acknowledge(record)
    done = one.consumer.commit_async()
    one.wait(lambda: done.is_done, 2)
    assert [each.error for each in one.user.acknowledged] == [None] * 5


def test_a_flush_waits_for_a_refused_list_that_is_sent_one_by_one(one: Leaders) -> None:
    node = one.nodes[0]
    node.answers[ShareAcknowledgeRequest] = [refuse_acks(one, 121), *([node.acknowledge] * 5)]
    for record in one.user.records:
        one.consumer.acknowledge(record)
    done = one.consumer.commit_async()
    one.wait(lambda: done.is_done, 2)
    assert len(one.user.acknowledged) == 5


def test_a_flush_whose_acknowledgements_went_with_the_connection_is_done_though_more_is_requested(one: Leaders) -> None:
    one.consumer.request_records(5)
    one.wait(lambda: len(one.nodes[0].asked) > 1)  # a fetch is out, and will be again and again
    for record in one.user.records:
        one.consumer.acknowledge(record)
    done = one.consumer.commit_async()
    one.network.cut("me", "node1")
    one.wait(lambda: done.is_done, 2)
    assert all(each.error is not None for each in one.user.acknowledged)


@pytest.mark.parametrize("is_cut", [False, True])
def test_without_demand_the_future_is_done_when_nothing_can_come(one: Leaders, is_cut: bool) -> None:
    node = one.nodes[0]
    node.log.append(5)
    one.consumer.request_records(5)
    one.wait(lambda: len(node.asked) > 1)
    done = one.consumer.quiet_async()
    assert not done.is_done
    if is_cut:
        one.network.cut("me", "node1")
    one.wait(lambda: done.is_done, 2)
    asked = len(node.asked)
    assert len(one.user.records) == (5 if is_cut else 6)
    one.run(2)
    assert len(node.asked) == asked
    assert one.consumer.quiet_async().is_done


def test_flushes_end_though_others_go_on_acknowledging(one: Leaders) -> None:
    one.nodes[0].log.extend(range(5, 1000))
    one.consumer.request_records(900)
    done = None
    for _ in range(200):
        one.wait(lambda: one.user.records, 5)
        while one.user.records:
            one.consumer.acknowledge(one.user.records.pop())
        done = done or one.consumer.commit_async()
        if done.is_done:
            return
    raise AssertionError("a flush waits for what was said after it")


def test_an_answer_that_cannot_be_taken_in_ends_the_session_and_not_the_link(
    one: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """The leader's session, but for its answers."""

        def __getattr__(self, name: str) -> Any:
            return getattr(leader_session, name)

        def on_response(self, *_: object) -> None:
            raise ZeroDivisionError("a bug of ours")

    (leader,) = one.consumer._driver._sessions.values()
    leader_session = leader.session
    one.nodes[0].log.extend(range(5, 8))
    with monkeypatch.context() as patch:
        patch.setattr(leader, "session", Failing())
        one.consumer.request_records(3)
        one.run(1)
    assert {record.offset for record in one.user.lost} == {0, 1, 2, 3, 4}
    one.nodes[0].log.extend(range(8, 11))
    one.wait(lambda: len(one.user.records) == 8, 10)


def test_an_error_in_a_callback_of_the_user_stops_nothing(leaders: MakeLeaders) -> None:
    one = leaders(1)
    seen: list[int] = []

    def take(records: list[Any]) -> None:
        seen.extend(record.offset for record in records)
        raise ValueError("the user's own fault")

    one.consumer._driver._events._callbacks["on_records"] = take
    for offset in range(3):
        one.nodes[0].log.append(offset)
        one.consumer.request_records(1)
        one.wait(lambda: len(seen) == offset + 1, 2)  # noqa: B023


def test_a_closed_client_ends_the_consumer_with_an_error_and_no_endless_retries(one: Leaders) -> None:
    one.consumer.request_records(5)
    one.run(0.1)
    one.client.close()
    one.wait(lambda: one.user.errors, 10)
    assert len(one.user.errors) == 1
    done = one.consumer.commit_async()
    one.wait(lambda: done.is_done, 2)


def test_closing_says_the_last_acknowledgements_before_the_session_ends(one: Leaders) -> None:
    node = one.nodes[0]
    node.answers[ShareAcknowledgeRequest] = [refuse_acks(one, 121), *([node.acknowledge] * 6)]
    for record in one.user.records[:3]:
        one.consumer.acknowledge(record)
    done = one.consumer.close_async()
    one.wait(lambda: done.is_done, 3)
    assert [each.error for each in one.user.acknowledged] == [None] * 3
    epochs = [request.share_session_epoch for request in node.requests(ShareAcknowledgeRequest)]
    assert epochs[-1] == -1


def test_closing_a_consumer_whose_broker_is_gone_takes_no_longer_than_the_time_limit(one: Leaders) -> None:
    one.consumer.acknowledge(one.user.records[0])
    one.network.partition("me", "node1")
    done = one.consumer.close_async(2.0)
    began = one.loop.time()
    one.wait(lambda: done.is_done, 10)
    assert one.loop.time() - began <= 2.1


def test_records_that_come_while_closing_are_given_back_and_handed_to_nobody(machine: Machine) -> None:
    user, other = Taker(), Taker()
    consumer = user.consumer(machine.client(), "t")
    consumer.request_records(10)
    machine.run(3)
    machine.produce("t", b"x")
    handed = list(user.records)
    done = consumer.close_async()
    machine.wait(lambda: done.is_done, 5)
    assert user.records == handed
    second = other.consumer(machine.client(), "t")
    second.request_records(10)
    machine.wait(lambda: other.records, 3)


def test_renewed_records_outlive_their_locks_and_others_are_reported_lost(machine: Machine) -> None:
    machine.configure_group(share_record_lock_duration_ms="1000")
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.produce("t", b"kept", b"left")
    consumer.request_records(2)
    machine.wait(lambda: len(user.records) == 2)
    kept, left = user.records
    consumer.request_records(0)
    for _ in range(10):
        consumer.renew([kept, left] if left.lost else [kept])
        machine.run(0.3)
    assert user.lost == [left]
    consumer.acknowledge(kept, AcknowledgeType.ACCEPT)
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    assert user.acknowledged[-1].error is None


def test_a_fetch_and_the_acknowledgements_of_one_turn_are_one_request(one: Leaders) -> None:
    before = len(one.nodes[0].received)
    for record in one.user.records:
        one.consumer.acknowledge(record)
    one.consumer.request_records(5)
    one.wait(lambda: len(one.user.acknowledged) == 5, 1)
    asked = [request for request, _ in one.nodes[0].received[before:] if isinstance(request, ShareFetchRequest)]
    assert asked
    assert not any(isinstance(request, ShareAcknowledgeRequest) for request, _ in one.nodes[0].received[before:])


def test_a_flush_waits_for_what_could_not_be_written_for_the_moment(one: Leaders) -> None:
    """Else a commit would return without a word of it, as if all were well."""
    node = one.nodes[0]
    node.answers[ShareAcknowledgeRequest] = [refuse_acks(one, 7), node.acknowledge]
    for record in one.user.records:
        one.consumer.acknowledge(record)
    done = one.consumer.commit_async()
    one.wait(lambda: done.is_done, 2)
    assert [each.error for each in one.user.acknowledged] == [None] * 5


def test_closing_says_what_rests_after_an_error_that_may_pass(one: Leaders) -> None:
    node = one.nodes[0]
    node.answers[ShareAcknowledgeRequest] = [refuse_acks(one, 7), node.acknowledge]
    for record in one.user.records:
        one.consumer.acknowledge(record)
    one.wait(lambda: len(node.requests(ShareAcknowledgeRequest)) == 1, 2)
    one.run(0.02)
    done = one.consumer.close_async()
    one.wait(lambda: done.is_done, 3)
    assert [each.error for each in one.user.acknowledged] == [None] * 5


@pytest.mark.parametrize("is_out", [True, False])
def test_what_is_not_answered_when_the_time_to_close_is_over_is_reported_as_refused(one: Leaders, is_out: bool) -> None:
    if not is_out:
        one.nodes[0].answers[ShareAcknowledgeRequest] = [refuse_acks(one, 7)]
    for record in one.user.records:
        one.consumer.acknowledge(record)
    flushed = one.consumer.commit_async()
    if not is_out:
        one.wait(lambda: len(one.nodes[0].requests(ShareAcknowledgeRequest)) == 1, 2)
        one.run(0.02)
    one.network.partition("me", "node1")
    done = one.consumer.close_async(2.0)
    one.wait(lambda: done.is_done and flushed.is_done, 10)
    assert len(one.user.acknowledged) == 5
    assert None not in [each.error for each in one.user.acknowledged]


# -- looks instead of polls that wait ----------------------------------------------------------------------------------


def test_with_look_every_s_no_poll_waits_and_one_that_finds_nothing_is_the_last_for_a_while(
    leaders: MakeLeaders
) -> None:
    one = leaders(1, look_every_s=0.5)
    node = one.nodes[0]
    one.consumer.request_records(3)
    one.run(2)  # at first something is expected: somebody may have died before us
    before = len(node.asked)
    one.run(2)
    assert (len(node.asked) - before, set(node.waits)) == (4, {0})
    one.consumer.request_records(0)
    one.run(2)
    assert len(node.asked) == before + 4


def test_after_records_and_after_a_look_more_is_expected_for_a_second(leaders: MakeLeaders) -> None:
    one = leaders(1, look_every_s=0.5)
    node = one.nodes[0]
    one.consumer.request_records(3)
    one.wait(lambda: node.asked)
    one.run(0.1)
    node.log.append(0)
    one.consumer.look()
    one.wait(lambda: one.user.records, 2.5 * LATENCY_S)
    for expects in (lambda: None, one.consumer.look):
        expects()
        before = len(node.asked)
        one.run(1.0)
        often = len(node.asked) - before
        one.run(2.0)
        assert often > 10 > len(node.asked) - before - often


def test_what_is_acknowledged_waits_for_no_look(leaders: MakeLeaders) -> None:
    one = leaders(1, look_every_s=60.0)
    one.nodes[0].log.append(0)
    one.consumer.request_records(3)
    one.wait(lambda: one.user.records)
    one.run(2)
    one.consumer.acknowledge(one.user.records[0])
    done = one.consumer.commit_async()
    one.wait(lambda: done.is_done, 1)
    assert one.nodes[0].acknowledged == [(0, 0, 1)]
