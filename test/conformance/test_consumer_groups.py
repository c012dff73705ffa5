"""KafkaConsumer in groups, as a user uses it: subscribing, committing, listeners, leaving. Every release since 0.11.

What rebalances is as small as it can be, since a rebalance takes a heartbeat. What members decide is tested without a
broker in ``test/core/group``; groups of the consumer group protocol have a suite of their own,
``test_consumer_group_protocol.py``.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    OffsetMetadataTooLargeError,
    WakeupError,
)
from test.conformance import reading
from test.conformance.reading import poll_until
from test.support.either_broker import every_release_with_batches
from test.support.waiting import until

DEADLINE_S = 40.0
pytestmark = every_release_with_batches

Make = Callable[..., KafkaConsumer]


class Listener:
    """Notes what it is told, and what ``then`` has to say to that."""

    def __init__(self, then: Callable[[str, set[TopicPartition]], object] = lambda what, partitions: None) -> None:
        self.heard: list[tuple[str, set[TopicPartition]]] = []
        self.then = then

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._hear("assigned", assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._hear("revoked", revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._hear("lost", lost)

    def _hear(self, what: str, partitions: set[TopicPartition]) -> None:
        self.heard.append((what, set(partitions)))
        self.then(what, set(partitions))


@pytest.fixture
def make(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Make]:
    """``make(topic..., **configs)``: a consumer of the test's own group, from the start, closed at the end."""
    group = unique("group")
    with ExitStack() as stack:

        def consumer(*topics: str, **configs: Any) -> KafkaConsumer:
            settings: dict[str, Any] = {
                "bootstrap_servers": bootstrap,
                "group_id": group,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "heartbeat_interval_ms": 200,
                "session_timeout_ms": 10_000,
            }
            return stack.enter_context(KafkaConsumer(*topics, **settings | configs))

        yield consumer


@pytest.fixture
def send(bootstrap: str) -> Iterator[Callable[..., None]]:
    """``send(topic, 5, partition=1)``: five records, numbered on in each partition."""
    counts: dict[TopicPartition, int] = {}
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:

        def some(topic: str, count: int, partition: int = 0) -> None:
            where = TopicPartition(topic, partition)
            for _ in range(count):
                producer.send(topic, b"%d" % counts.get(where, 0), partition=partition)
                counts[where] = counts.get(where, 0) + 1
            producer.flush()

        yield some


def take(consumer: KafkaConsumer, count: int) -> list[int]:
    """The offsets of the next ``count`` records, or of a few more."""
    return [record.offset for record in reading.take(consumer, count)]


def test_a_group_goes_on_where_its_last_member_has_committed(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)
    send(topic, 10)
    with make(topic, max_poll_records=4) as first:
        assert first.assignment() == set() and first.committed(where) is None
        assert take(first, 4) == [0, 1, 2, 3]
        assert first.subscription() == {topic} and first.assignment() == {where}
        first.commit()
        assert first.committed(where) == first.position(where) == 4
        assert take(first, 4) == [4, 5, 6, 7]
        metadata = first.group_metadata()
        assert metadata.generation_id >= 1 and metadata.member_id and metadata.state == "<stable>"
    second = make(topic)
    assert take(second, 6) == [4, 5, 6, 7, 8, 9]
    second.commit({where: OffsetAndMetadata(6, "by hand")})
    assert second.committed(where) == 6
    assert second.committed(where, metadata=True)[:2] == (6, "by hand")
    other = TopicPartition(topic, 7)
    assert second.committed({where}) == {where: second.committed(where, metadata=True)}
    assert second.committed([other]) == {other: None}
    second.commit({where: 3})
    assert second.committed(where) == 3


def test_auto_commit_is_of_what_earlier_polls_returned_and_of_all_when_closed(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)
    send(topic, 6)
    onlooker = make()
    calls: list[Any] = []
    consumer = make(
        topic,
        max_poll_records=2,
        enable_auto_commit=True,
        auto_commit_interval_ms=0,
        default_offset_commit_callback=lambda offsets, response: calls.append((offsets, response)),
    )
    assert take(consumer, 1) == [0, 1]
    assert onlooker.committed(where) in (None, 0)
    consumer.pause(where)  # one poll may find the commit of the poll before still under way, and begin none
    poll_until(lambda: onlooker.committed(where) == 2, consumer)
    consumer.resume(where)
    assert take(consumer, 1) == [2, 3]
    assert onlooker.committed(where) == 2
    consumer.close()
    assert onlooker.committed(where) == 4
    assert calls and not any(isinstance(response, Exception) for _, response in calls)
    with make(topic, max_poll_records=1, enable_auto_commit=True) as last:
        assert take(last, 1) == [4]
        last.close(autocommit=False)
    assert onlooker.committed(where) == 4


def test_commits_amid_an_iteration_cover_what_was_yielded_and_nothing_else(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    send(topic, 5, 0)
    send(topic, 5, 1)
    consumer = make(topic)
    seen = []
    for record in consumer:
        seen.append(record)
        if len(seen) == 7:
            break
    consumer.commit()
    counts = {TopicPartition(topic, n): sum(r.partition == n for r in seen) for n in (0, 1)}
    for where, count in counts.items():
        assert consumer.position(where) == count
        assert (consumer.committed(where) or 0) == count
    assert len({(r.partition, r.offset) for r in [*seen, *(next(consumer) for _ in range(3))]}) == 10


def test_iteration_follows_a_seek_and_keeps_what_pause_holds_back(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)
    send(topic, 6)
    consumer = make(topic, consumer_timeout_ms=1000)

    def following(count: int) -> list[int]:
        """The next offsets, however often iteration ends before they are here."""
        found: list[Any] = []
        until(
            lambda: len(found) == count,
            meanwhile=lambda: found.extend(itertools.islice(consumer, count - len(found))),
            shown=lambda: found,
        )
        return [record.offset for record in found]

    assert following(3) == [0, 1, 2]
    consumer.seek(where, 1)
    assert following(2) == [1, 2]
    consumer.pause(where)
    assert list(consumer) == [] and consumer.position(where) == 3
    consumer.resume(where)
    assert following(3) == [3, 4, 5]
    assert list(consumer) == []
    send(topic, 1)
    assert following(1) == [6]


def test_two_members_share_the_partitions_and_the_listener_is_called(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    send(topic, 3, 0)
    send(topic, 3, 1)
    committed: list[Any] = []
    first = make(enable_auto_commit=True, auto_commit_interval_ms=60_000)
    onlooker = make()
    listener = Listener(
        lambda what, partitions: committed.append(onlooker.committed(partitions)) if what == "revoked" else None
    )
    first.subscribe([topic], listener=listener)
    assert sorted(take(first, 6)) == [0, 0, 1, 1, 2, 2]
    assert listener.heard[-1] == ("assigned", both)
    second = make(topic)
    assert poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second) == []
    assert first.assignment() | second.assignment() == both
    assert ("revoked", both) in listener.heard
    assert {where: what.offset for where, what in committed[0].items()} == dict.fromkeys(both, 3)  # before it was told
    (theirs,) = second.assignment()
    second.close()
    poll_until(lambda: first.assignment() == both, first)
    send(topic, 1, theirs.partition)
    assert take(first, 1) == [3]
    first.unsubscribe()
    assert first.assignment() == set() and first.subscription() is None
    assert listener.heard[-1] == ("revoked", both)
    assert onlooker.committed(theirs) == 4


def test_cooperative_members_give_up_only_what_moves(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    settings = {"partition_assignment_strategy": ["cooperative-sticky"]}
    listener = Listener()
    first = make(**settings)
    first.subscribe([topic], listener=listener)
    poll_until(lambda: first.assignment() == both, first)
    second = make(topic, **settings)
    poll_until(lambda: len(second.assignment()) == 1 and len(first.assignment()) == 1, first, second)
    assert [partitions for what, partitions in listener.heard if what == "revoked"] == [second.assignment()]


def test_a_listener_may_seek_and_ask_for_positions(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    send(topic, 5, 0)
    send(topic, 5, 1)
    moved, kept = TopicPartition(topic, 0), TopicPartition(topic, 1)
    positions: list[int] = []
    consumer = make()

    def then(what: str, partitions: set[TopicPartition]) -> None:
        if what == "assigned":
            consumer.seek(moved, 4)
            positions.append(consumer.position(kept))

    consumer.commit({kept: 2, moved: 1})
    consumer.subscribe([topic], listener=Listener(then))
    assert sorted(take(consumer, 4)) == [2, 3, 4, 4]
    assert positions == [2]


def test_what_a_listener_raises_comes_out_of_poll_and_the_group_goes_on(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    send(topic, 1)
    consumer = make()
    raised: list[str] = []

    def fail(what: str, partitions: set[TopicPartition]) -> None:
        if partitions and what not in raised:
            raised.append(what)
            raise ValueError("no such table")

    consumer.subscribe([topic], listener=Listener(fail))
    with pytest.raises(KafkaError, match="no such table") as caught:
        take(consumer, 1)
    assert isinstance(caught.value.__cause__, ValueError)
    assert take(consumer, 1) == [0]
    with pytest.raises(KafkaError, match="on_partitions_revoked"):
        consumer.close()


def test_partitions_assigned_by_hand_are_committed_without_a_membership(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    send(topic, 4)
    where = TopicPartition(topic, 0)
    consumer = make(enable_auto_commit=True, max_poll_records=3)
    consumer.assign([where])
    assert take(consumer, 3) == [0, 1, 2]
    assert consumer.group_metadata().generation_id == -1
    consumer.commit()
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.subscribe([topic])
    assert take(consumer, 1) == [3]
    consumer.close()
    again = make(max_poll_records=1)
    again.assign([where])
    assert again.position(where) == again.committed(where) == 4
    again.unsubscribe()
    again.subscribe([topic])
    poll_until(lambda: len(again.assignment()) == 2, again)
    with pytest.raises(CommitFailedError):  # a stranger, while the group has members
        consumer = make()
        consumer.assign([where])
        consumer.commit({where: 0})


def test_asynchronous_commits_are_reported_in_their_order_before_a_synchronous_one_returns(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)
    consumer = make(topic)
    calls: list[Any] = []
    poll_until(lambda: consumer.assignment(), consumer)
    for offset in range(20):
        consumer.commit_async(
            {where: offset}, lambda offsets, response: calls.append((offsets[where].offset, response))
        )
    consumer.commit({where: 20})
    assert [offset for offset, _ in calls] == list(range(20))
    assert not any(isinstance(response, Exception) for _, response in calls)
    assert consumer.committed(where) == 20
    with pytest.raises(OffsetMetadataTooLargeError):
        consumer.commit({where: OffsetAndMetadata(21, "x" * 5000)})
    failed = consumer.commit_async({where: OffsetAndMetadata(21, "x" * 5000)}, lambda *told: calls.append(told))
    assert failed.wait(DEADLINE_S)
    consumer.poll(0)
    assert isinstance(calls[-1][1], OffsetMetadataTooLargeError)
    assert consumer.committed(where) == 20


def test_a_pattern_reads_topics_as_they_come(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = new_topic()
    send(topic, 1)
    consumer = make(metadata_max_age_ms=300)
    consumer.subscribe(pattern=f"{topic[:-2]}.*")
    assert take(consumer, 1) == [0]
    consumer.commit()
    send(f"{topic[:-2]}-later", 1)  # is created by that
    assert take(consumer, 1) == [0]
    assert consumer.subscription() == {topic, f"{topic[:-2]}-later"}
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.subscribe([topic])


def test_wakeup_ends_a_poll_that_waits_from_another_thread(
    make: Make, send: Callable[..., None], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    consumer = make(topic)
    poll_until(lambda: consumer.assignment(), consumer)
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    began = time.monotonic()
    with pytest.raises(WakeupError):
        consumer.poll(DEADLINE_S * 1000)
    assert time.monotonic() - began < DEADLINE_S / 2
    consumer.wakeup()
    with pytest.raises(WakeupError):
        next(consumer)
    timer.join()
    send(topic, 1)
    assert take(consumer, 1) == [0], "each call ends one wait, and no record is lost"


def test_a_second_thread_is_refused_and_may_close(make: Make, new_topic: Callable[..., str]) -> None:
    consumer = make(new_topic())
    poll_until(lambda: consumer.assignment(), consumer)
    outcome: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(DEADLINE_S * 1000)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: consumer._thread_guard.is_held, "a poll under way")
    with pytest.raises(IllegalStateError, match="another thread"):
        consumer.commit()
    consumer.close()
    thread.join(DEADLINE_S)
    assert [str(error) for error in outcome] == ["IllegalStateError: the consumer is closed"]


def test_enforce_rebalance_begins_one(make: Make, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    listener = Listener()
    consumer = make()
    consumer.subscribe([topic], listener=listener)
    poll_until(lambda: consumer.assignment(), consumer)
    before = consumer.group_metadata().generation_id
    consumer.enforce_rebalance("for a test")
    poll_until(lambda: consumer.group_metadata().generation_id > before, consumer)
    poll_until(lambda: [what for what, _ in listener.heard][-2:] == ["revoked", "assigned"], consumer)
