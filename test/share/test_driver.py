"""One member on a loop, against the broker's machine and against several scripted leaders: nothing starves, nothing is
kept for ever, and it recovers from whatever a broker does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kafka.broker.share.states import AckBatch
from kafka.core.routing import Leader
from kafka.errors import (
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    InvalidRecordStateError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.share import ShareFetchRequest, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kafka.share import AcknowledgeType
from kafka.share.driver import LEADER_SEARCH_S
from kafka.structs import TopicPartition
from test.share.support import SHARE_RANGES, Leaders, Machine, Taker

MakeLeaders = Callable[[int], Leaders]


# -- demand -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [0, 1, 2])
def test_a_demand_of_one_record_finds_it_on_whichever_leader_it_is(leaders: MakeLeaders, full: int) -> None:
    three = leaders(3)
    three.nodes[full].log.extend(range(5))
    for count in range(1, 6):
        three.consumer.request_records(1, exactly=True)
        three.wait(lambda: len(three.user.records) == count, 2)  # noqa: B023
    three.run(1)
    assert len(three.user.records) == 5


def test_an_exact_demand_is_never_exceeded_and_never_left_unasked(leaders: MakeLeaders) -> None:
    three = leaders(3)
    for node in three.nodes:
        node.log.extend(range(100))
    wanted = 0
    for count in (1, 2, 7, 50):
        wanted += count
        three.consumer.request_records(count, exactly=True)
        three.wait(lambda: len(three.user.records) == wanted)  # noqa: B023
        three.run(1)
        assert len(three.user.records) == wanted


def test_a_demand_for_some_is_over_with_the_first_that_come(leaders: MakeLeaders) -> None:
    one = leaders(1)
    one.nodes[0].log.extend(range(3))
    one.consumer._driver.request_records(5, until_some=True)
    one.wait(lambda: one.user.records, 2)
    assert len(one.user.records) == 3
    assert one.consumer._driver.demand == 0


def test_a_full_leader_gets_the_demand_that_empty_ones_do_not_use(leaders: MakeLeaders) -> None:
    three = leaders(3)
    three.nodes[2].log.extend(range(60))
    three.consumer.request_records(60, exactly=True)
    three.wait(lambda: len(three.user.records) == 60, 2)


def test_a_dead_leader_keeps_no_demand_from_the_others(leaders: MakeLeaders) -> None:
    three = leaders(3)
    three.consumer.request_records(1, exactly=True)
    three.run(1)
    three.nodes[1].stop()
    three.nodes[2].log.append(0)
    three.wait(lambda: three.user.records, 3)


def test_a_silent_leader_keeps_no_demand_from_the_others(leaders: MakeLeaders) -> None:
    three = leaders(3)
    first, second, third = three.nodes
    first.answers[ShareFetchRequest] = silent
    three.consumer.request_records(1, exactly=True)
    three.wait(lambda: first.requests(ShareFetchRequest), 2)
    second.log.append(0)
    three.wait(lambda: three.user.records, 2)
    third.log.append(1)
    three.consumer.request_records(1, exactly=True)
    three.wait(lambda: len(three.user.records) == 2, 1)
    assert len(first.requests(ShareFetchRequest)) == 1, "it has not answered yet"


def test_nor_does_one_that_was_asked_for_whole_batches(leaders: MakeLeaders) -> None:
    two = leaders(2)
    first, second = two.nodes
    first.answers[ShareFetchRequest] = silent
    two.consumer.request_records(100)
    two.wait(lambda: first.requests(ShareFetchRequest), 2)
    two.consumer.request_records(4, exactly=True)
    second.log.extend(range(10))
    two.wait(lambda: len(two.user.records) == 4, 3)


def test_of_what_others_were_asked_for_in_its_stead_a_late_answer_brings_more(leaders: MakeLeaders) -> None:
    two = leaders(2)
    late, other = two.nodes
    two.consumer.request_records(1, exactly=True)
    two.wait(lambda: late.asked and other.asked)
    late.log.extend(range(9))
    other.log.extend(range(100, 200))
    two.network.link("me", "node1").delay_s = 3.0
    two.consumer.request_records(4, exactly=True)
    two.wait(lambda: two.consumer._driver.demand == 0, 2.5)
    in_time = len(two.user.records)
    two.run(10)
    asked = late.asked[-1]
    assert asked > 0
    assert (len(two.user.records), two.consumer._driver.demand) == (in_time + asked, 0)


def test_a_leader_of_nothing_that_is_requested_keeps_no_demand_from_the_others(leaders: MakeLeaders) -> None:
    two = leaders(2)
    first, second = two.nodes
    first.answers[ShareFetchRequest] = silent
    two.consumer.request_records(1, exactly=True)
    two.wait(lambda: first.requests(ShareFetchRequest), 2)
    for node in two.nodes:
        node.topics = {"t": {0: 2, 1: 2}}
    two.client.cluster.request_update()
    second.log.append(0)
    two.wait(lambda: two.user.records, 0.5)


def test_a_leader_that_has_failed_is_asked_after_the_others(leaders: MakeLeaders) -> None:
    two = leaders(2)
    two.nodes[0].answers[ShareFetchRequest] = silent
    two.consumer.request_records(1, exactly=True)
    two.wait(lambda: two.nodes[0].requests(ShareFetchRequest), 2)
    links = two.consumer._driver._sessions
    two.wait(lambda: links[1].failures, 60)
    assert links[1].turn > links[2].turn


def test_without_exactness_every_leader_is_asked_at_once_for_its_part(leaders: MakeLeaders) -> None:
    three = leaders(3)
    three.consumer.request_records(30)
    three.wait(lambda: all(node.asked for node in three.nodes), 2)
    assert {node.asked[0] for node in three.nodes} == {10}
    three.nodes[0].log.extend(range(30))
    three.wait(lambda: len(three.user.records) >= 30, 2)
    assert len(three.nodes[0].asked) < 30, "not by the record, though the others still look for theirs"


def test_nothing_is_fetched_without_demand(leaders: MakeLeaders) -> None:
    two = leaders(2)
    two.nodes[0].log.append(0)
    two.run(5)
    assert two.nodes[0].asked == []
    two.consumer.request_records(5)
    two.wait(lambda: two.user.records)
    two.consumer.request_records(0)
    two.run(1)
    asked = len(two.nodes[1].asked)
    two.run(5)
    assert len(two.nodes[1].asked) == asked


def test_a_throttled_member_sends_nothing_for_the_throttle_time(leaders: MakeLeaders) -> None:
    one = leaders(1)
    one.nodes[0].throttle_ms = 1000
    one.consumer.request_records(5)
    one.run(10)
    assert 5 <= len(one.nodes[0].asked) <= 11


def test_one_bad_partition_beside_a_good_one_costs_no_turns_of_the_loop(leaders: MakeLeaders) -> None:
    one = leaders(1)
    node = one.nodes[0]
    node.topics = {"t": {0: 1, 1: 1}}
    node.answers[ShareFetchRequest] = lambda request, version: node.fetched([], code=9)
    one.network.link("me", "node1").delay_s = 0.3  # longer than the bad one rests
    one.consumer.request_records(5)
    turns = 0
    end = one.loop.time() + 10
    while one.loop.time() < end:
        one.loop.run_once(0.5)
        turns += 1
        assert turns < 5000, "it spins"


# -- how long ago the brokers answered ---------------------------------------------------------------------------------


def silent(request: object, version: int) -> None:
    return None


def test_a_member_knows_when_the_brokers_last_answered(leaders: MakeLeaders) -> None:
    one = leaders(1)
    assert one.consumer.answered_at is None
    one.wait(lambda: one.consumer.has_joined)
    for _ in range(60):
        one.run(1)
        assert one.consumer.answered_at is not None
        assert one.loop.time() - one.consumer.answered_at < one.consumer.heartbeat_interval_s + 1


def test_heartbeats_do_not_wait_behind_what_the_broker_holds(machine: Machine) -> None:
    """As a Produce with ``acks="all"`` is held while a replica lags, here a Fetch is."""
    client = machine.client()
    consumer = Taker().consumer(client, "t")
    machine.wait(lambda: consumer.has_joined)
    place = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[place])
    fetch = FetchRequest(max_wait_ms=25_000, min_bytes=1, topics=[topic])
    held = client.request(Leader(TopicPartition("t", 0)), fetch, max_version=12)
    for _ in range(20):
        machine.run(1)
        assert machine.loop.time() - consumer.answered_at < consumer.heartbeat_interval_s + 1
    assert not held.is_done


def test_a_broker_that_is_gone_shows_as_an_answer_that_ages(leaders: MakeLeaders) -> None:
    one = leaders(1)
    one.consumer.request_records(5)
    one.run(3)
    one.nodes[0].stop()
    gone_at = one.loop.time()
    one.run(30)
    assert one.consumer.answered_at is not None
    assert one.consumer.answered_at <= gone_at


def test_a_broker_that_is_gone_is_reported_once_in_the_log_and_not_with_every_attempt(
    leaders: MakeLeaders, caplog: pytest.LogCaptureFixture
) -> None:
    one = leaders(1)
    one.consumer.request_records(5)
    one.run(3)
    with caplog.at_level(logging.DEBUG, "kafka.share"):
        one.nodes[0].stop()
        one.run(30)
    levels = [record.levelname for record in caplog.records if "share session with node" in record.getMessage()]
    assert levels[0] == "INFO"
    assert len(levels) > 2
    assert set(levels[1:]) == {"DEBUG"}
    beats = [record.levelname for record in caplog.records if "heartbeat of member" in record.getMessage()]
    assert beats.count("INFO") <= 1


def test_lost_locks_are_one_line_in_a_minute_however_many_brokers_go(
    leaders: MakeLeaders, caplog: pytest.LogCaptureFixture
) -> None:
    three = leaders(3)
    for node in three.nodes:
        node.log.extend(range(5))
    three.consumer.request_records(15)
    three.wait(lambda: len(three.user.records) == 15, 10)
    for node in three.nodes:
        node.stop()
        three.run(3)
    assert len(three.user.lost) == 15
    assert len([line for line in caplog.messages if "lost the acquisition locks" in line]) == 1


def test_a_leader_that_takes_requests_and_answers_none_shows_too(leaders: MakeLeaders) -> None:
    one = leaders(1)
    one.consumer.request_records(5)
    one.run(3)
    for kind in (ShareFetchRequest, ShareGroupHeartbeatRequest):
        one.nodes[0].answers[kind] = silent
    silent_at = one.loop.time()
    one.run(30)
    assert one.consumer.answered_at is not None
    assert one.consumer.answered_at <= silent_at + 1, "the request that was under way, and no other"


def test_fetches_that_are_answered_count_while_the_coordinator_is_silent(leaders: MakeLeaders) -> None:
    one = leaders(1)
    one.wait(lambda: one.consumer.has_joined)
    one.nodes[0].answers[ShareGroupHeartbeatRequest] = refusing(16)
    one.consumer.request_records(5)
    for _ in range(30):
        one.run(1)
        assert one.consumer.answered_at is not None
        assert one.loop.time() - one.consumer.answered_at < 2


# -- the group --------------------------------------------------------------------------------------------------------


def refusing(code: int) -> Callable[[object, int], ShareGroupHeartbeatResponse]:
    return lambda request, version: ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=5000
    )


def test_a_broker_without_share_groups_is_named_in_the_error(leaders: MakeLeaders) -> None:
    old = leaders(1)
    old.nodes[0].ranges = {key: span for key, span in SHARE_RANGES.items() if key < 76}
    old.wait(lambda: old.user.errors, 5)
    (error,) = old.user.errors
    assert isinstance(error, IncompatibleBrokerVersion)
    assert "share groups need Apache Kafka 4.2" in str(error)
    assert "ShareGroupHeartbeat" in str(error)


def test_a_broker_that_speaks_only_the_preview_of_share_groups_is_refused(leaders: MakeLeaders) -> None:
    old = leaders(1)
    old.nodes[0].ranges = {**SHARE_RANGES, 78: (1, 1), 79: (1, 1)}
    old.consumer.request_records(1)
    old.wait(lambda: old.user.errors, 5)
    assert isinstance(old.user.errors[0], IncompatibleBrokerVersion)


def test_a_feature_that_is_off_is_named_in_the_error(leaders: MakeLeaders) -> None:
    off = leaders(1)
    off.nodes[0].answers[ShareGroupHeartbeatRequest] = refusing(35)
    off.wait(lambda: off.user.errors, 5)
    assert isinstance(off.user.errors[0], UnsupportedVersionError)
    assert "share.version" in str(off.user.errors[0])


def test_a_group_of_another_type_is_named_in_the_error(leaders: MakeLeaders) -> None:
    other = leaders(1)
    other.nodes[0].answers[ShareGroupHeartbeatRequest] = refusing(69)
    other.wait(lambda: other.user.errors, 5)
    assert isinstance(other.user.errors[0], GroupIdNotFoundError)
    assert "no share group" in str(other.user.errors[0])


def test_a_coordinator_that_always_says_it_is_none_is_not_asked_without_a_pause(leaders: MakeLeaders) -> None:
    lost = leaders(1)
    lost.nodes[0].answers[ShareGroupHeartbeatRequest] = refusing(16)
    lost.run(10)
    assert len(lost.nodes[0].requests(ShareGroupHeartbeatRequest)) < 25


def test_a_coordinator_that_moved_is_found(leaders: MakeLeaders) -> None:
    two = leaders(2)
    two.wait(lambda: two.consumer.has_joined)
    first, second = two.nodes
    first.answers[ShareGroupHeartbeatRequest] = refusing(16)
    first.brokers = dict(reversed(first.brokers.items()))  # FindCoordinator tells of the first
    second.brokers = first.brokers
    two.run(12)
    assert second.requests(ShareGroupHeartbeatRequest)


def test_closing_during_the_join_leaves_no_ghost_and_stays_closed(machine: Machine) -> None:
    client = machine.client()
    consumer = Taker().consumer(client, "t")
    machine.wait(lambda: machine.members() == 1)  # the answer is on its way
    done = consumer.close_async()
    machine.wait(lambda: done.is_done, 5)
    machine.run(20)
    assert machine.members() == 0


def test_closing_while_a_heartbeat_is_out_leaves_the_group(machine: Machine) -> None:
    client = machine.client()
    consumer = Taker().consumer(client, "t")
    machine.wait(lambda: consumer.has_joined and consumer._driver._membership._in_flight is not None, 20)
    done = consumer.close_async()
    machine.wait(lambda: done.is_done, 5)
    machine.run(1)
    assert machine.members() == 0


# -- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_yet_is_read_soon_after_it_does(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(allow_auto_create_topics=False), "later")
    consumer.request_records(10)
    machine.run(60)
    machine.create_topic("later")
    machine.produce("later", b"x")
    machine.wait(lambda: user.records, 2 * LEADER_SEARCH_S + 6)


@pytest.mark.parametrize("all_topics", [False, True])
def test_a_topic_that_is_missing_is_reported_once_each_time(
    machine: Machine, caplog: pytest.LogCaptureFixture, all_topics: bool
) -> None:
    caplog.set_level(logging.WARNING, "kafka.share.driver")
    Taker().consumer(machine.client(allow_auto_create_topics=False, all_topics=all_topics), "t", "later")
    machine.run(60)
    assert caplog.messages == ["topic later does not exist yet; waiting for it"]
    machine.create_topic("later")
    machine.run(10)
    machine.delete_topic("later")
    machine.run(400)
    assert len(caplog.messages) == 2


def test_a_topic_that_was_deleted_and_made_again_is_read_on(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(allow_auto_create_topics=False), "t")
    machine.produce("t", b"old")
    consumer.request_records(10)
    machine.wait(lambda: user.records)
    machine.delete_topic("t")
    machine.run(3)
    assert user.lost == user.records
    machine.create_topic("t", 2)
    machine.produce("t", b"new")
    machine.wait(lambda: b"new" in user.values, 20)


def test_what_is_held_when_the_subscription_changes_can_still_be_acknowledged(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.create_topic("u")
    machine.produce("t", b"a", b"b")
    machine.produce("u", b"c")
    consumer.request_records(10)
    machine.wait(lambda: len(user.records) == 2)
    held, other = user.records
    consumer.subscribe(["u"])
    consumer.request_records(10)
    machine.wait(lambda: b"c" in user.values)
    consumer.unsubscribe()
    machine.run(5)
    assert user.lost == []
    consumer.acknowledge(held)
    consumer.acknowledge(other, AcknowledgeType.RELEASE)
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    assert [(each.record, each.error) for each in user.acknowledged] == [(held, None), (other, None)]
    consumer.subscribe(["t"])
    consumer.request_records(10)
    machine.wait(lambda: len(user.records) == 4)
    assert (user.records[3].value, user.records[3].delivery_count) == (b"b", 2)


def test_nothing_of_a_topic_comes_after_it_was_unsubscribed(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    consumer.request_records(10)
    machine.wait(lambda: consumer.has_joined)
    machine.run(1)
    consumer.unsubscribe()
    machine.produce("t", b"a")
    machine.run(3)
    assert user.records == []
    assert machine.members() == 0, "it has left, so that others get its partitions"


# -- brokers that go --------------------------------------------------------------------------------------------------


def test_a_broker_that_dies_and_comes_back_is_used_again_and_what_was_held_is_reported_lost(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.produce("t", b"held")
    consumer.request_records(10)
    machine.wait(lambda: user.records)
    machine.stop()
    machine.run(5)
    assert user.lost == user.records
    with pytest.raises(IllegalStateError, match="lock is gone"):
        consumer.acknowledge(user.records[0])
    machine.start()
    machine.wait(lambda: len(user.records) == 2, 10)
    consumer.acknowledge(user.records[1])
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    assert user.acknowledged[-1].error is None


def test_a_record_refused_is_reported_and_the_others_are_not(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.produce("t", b"a", b"b", b"c")
    consumer.request_records(10)
    machine.wait(lambda: len(user.records) == 3)
    (key,) = [key for key in sorted(machine.broker.share.keys()) if key.partition == user.records[0].partition]
    partition = machine.broker.share.loaded(*key)
    assert partition is not None
    partition.acknowledge(consumer.member_id, [AckBatch(1, 1, (int(AcknowledgeType.REJECT),))], now=machine.loop.time())
    for record in user.records[1:]:  # the first holds the window: below it, everything is answered with success
        consumer.acknowledge(record)
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    outcomes = {each.record.value: type(each.error) for each in user.acknowledged}
    assert outcomes == {b"b": InvalidRecordStateError, b"c": type(None)}


def test_a_partition_whose_leader_is_away_is_fetched_soon_after_it_has_one_again(leaders: MakeLeaders) -> None:
    two = leaders(2)
    two.consumer.request_records(10)
    two.wait(lambda: all(node.requests(ShareFetchRequest) for node in two.nodes))
    for node in two.nodes:
        node.topics = {"t": {0: 1, 1: -1}}
    two.client.cluster.request_update()
    two.wait(lambda: len(two.consumer._driver._sessions) == 1)
    two.run(30)
    for node in two.nodes:
        node.topics = {"t": {0: 1, 1: 2}}
    two.nodes[1].log.append(7)
    two.wait(lambda: two.user.records, 2 * LEADER_SEARCH_S)


# -- the table of heartbeats, as the user hears of it -----------------------------------------------------------------


def test_a_full_group_is_one_line_a_minute_that_says_what_to_set(
    leaders: MakeLeaders, caplog: pytest.LogCaptureFixture
) -> None:
    full = leaders(1)
    full.nodes[0].answers[ShareGroupHeartbeatRequest] = [refusing(81)] * 100
    full.run(30)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 1 and "raise group.share.max.size" in lines[0] and "server.properties" in lines[0]
    full.run(40)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2


@pytest.mark.parametrize(("code", "told"), [(29, TopicAuthorizationFailedError), (81, GroupMaxSizeReachedError)])
def test_errors_that_others_can_fix_are_reported_and_retried(
    leaders: MakeLeaders, code: int, told: type[Exception]
) -> None:
    full = leaders(1)
    node = full.nodes[0]
    node.answers[ShareGroupHeartbeatRequest] = [refusing(code), node.heartbeat, *[node.heartbeat] * 10]
    troubles: list[KafkaError] = []
    full.consumer._events.on_trouble = troubles.append  # type: ignore[method-assign]
    full.run(1)
    assert [type(error) for error in troubles] == [told]
    assert not full.consumer.has_joined
    full.wait(lambda: full.consumer.has_joined, 10)
    assert full.user.errors == [], "it went on by itself"
