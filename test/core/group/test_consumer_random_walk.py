"""Members of the consumer group protocol and the embedded broker's machine, with everything that can happen between
them: requests and answers that are lost or late, users who dawdle, crashes, static members that come back, a broker
that is restarted.

What is promised: no partition is with two members whose commits the broker takes; and when everybody behaves again,
each partition is with exactly one member, and nothing moves any more.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from math import inf
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.machine import (
    Assign,
    AssignmentStep,
    GroupSubscription,
    Left,
    Lose,
    ReportError,
    Revoke,
    SendToCoordinator,
)
from kafka.core.retry import Backoff
from kafka.errors import BrokerResponseError, KafkaConnectionError, StaleMemberEpochError
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest
from kafka.structs import TopicPartition
from kafka.wire.message import Response
from test.broker.driver import HandBroker

TOPICS = ("a", "b")
PARTITIONS = 3
MAX_POLL_S = 30.0
SETTINGS = {"group.consumer.session.timeout.ms": "10000", "group.consumer.heartbeat.interval.ms": "3000"}
BOTH = GroupSubscription(frozenset(TOPICS))
SUBSCRIPTIONS = (BOTH, GroupSubscription(frozenset({"a"})), GroupSubscription(pattern="a|b"), GroupSubscription())


class User:
    """A member, its user and its connection."""

    def __init__(self, walk: ConsumerWalk, name: str, instance: str | None) -> None:
        self.walk = walk
        self.wanted = BOTH
        self.member = ConsumerMember(
            "g",
            group_instance_id=instance,
            member_id=name,
            max_poll_interval_s=MAX_POLL_S,
            request_timeout_s=30.0,
            retry_backoff=Backoff(0.1, 1.0, random.Random(1)),
            topic_of_id={topic_id: topic for topic, topic_id in walk.ids.items()}.get,
        )
        self.asked: SendToCoordinator | None = None
        self.answer: Response | None = None
        self.step: AssignmentStep | None = None
        self.is_over = False
        self.member.subscribe(BOTH, walk.hand.now)
        self.poll()

    def poll(self) -> None:
        for effect in self.member.poll(self.walk.hand.now):
            if isinstance(effect, SendToCoordinator):
                assert self.asked is None, "two requests in flight"
                self.asked, self.answer = effect, None
            elif isinstance(effect, (Revoke, Lose, Assign)):
                assert self.step is None, "two steps at a time"
                self.step = effect
            elif isinstance(effect, Left) or (isinstance(effect, ReportError) and effect.is_fatal):
                self.is_over = True

    def arrive(self) -> None:
        """The broker gets the request."""
        if self.asked is not None and self.answer is None:
            request = self.asked.request
            assert isinstance(request, ConsumerGroupHeartbeatRequest)
            self.answer = self.walk.hand.ask(request)

    def come_back(self) -> None:
        """The answer gets here."""
        if self.asked is not None and self.answer is not None:
            asked, self.asked = self.asked, None
            self.member.answered(asked, self.answer, self.walk.hand.now)
            self.poll()

    def drop(self) -> None:
        """The connection breaks."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            self.member.failed(asked, KafkaConnectionError("broken"), self.walk.hand.now)
            self.poll()

    def carry_out(self) -> None:
        """The user polls."""
        step, self.step = self.step, None
        now = self.walk.hand.now
        if step is not None:
            self.member.carried_out(step, now)
        self.member.polled_at = now
        self.poll()

    def may_commit(self, partition: TopicPartition) -> bool:
        """Whether the broker takes a commit of it."""
        place = (self.walk.ids[partition.topic], partition.partition)
        member = self.member
        if member.generation < 0:
            return False  # who is no member commits nothing
        try:
            self.walk.hand.broker.groups.consumer("g").check_commit(
                member.member_id, member.generation, 10, False, [place]
            )
        except BrokerResponseError:
            return False
        return True


class ConsumerWalk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.hand = HandBroker(Path(self.directory.name), SETTINGS)
        self.ids = {topic: self.hand.create_topic(topic, PARTITIONS) for topic in TOPICS}
        self.users: list[User] = []
        self.names = map("member-{}".format, itertools.count())

    @initialize()
    def begin(self) -> None:
        self.users = [User(self, next(self.names), None), User(self, next(self.names), "i")]

    def teardown(self) -> None:
        self.settle()
        self.hand.broker.close()
        self.directory.cleanup()

    # -- what happens --------------------------------------------------------------------------------------------------

    def pick(self, number: int) -> User | None:
        return self.users[number % len(self.users)] if self.users else None

    @rule(static=st.booleans())
    def join(self, static: bool) -> None:
        if len(self.users) < 5:
            self.users.append(User(self, next(self.names), "i" if static else None))

    @rule(number=st.integers(0, 4))
    def crash(self, number: int) -> None:
        user = self.pick(number)
        if user is not None:
            self.users.remove(user)

    @rule(number=st.integers(0, 4), what=st.sampled_from(["arrive", "come_back", "drop", "carry_out"]))
    def move(self, number: int, what: str) -> None:
        user = self.pick(number)
        if user is not None:
            getattr(user, what)()

    @rule(number=st.integers(0, 4), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, number: int, subscription: GroupSubscription) -> None:
        user = self.pick(number)
        if user is not None:
            user.wanted = subscription
            user.member.subscribe(subscription, self.hand.now)
            user.poll()

    @rule(number=st.integers(0, 4))
    def leave(self, number: int) -> None:
        user = self.pick(number)
        if user is not None:
            user.member.leave(self.hand.now)
            user.poll()

    @rule(number=st.integers(0, 4))
    def have_a_commit_refused(self, number: int) -> None:
        user = self.pick(number)
        if user is not None:
            user.member.fenced(StaleMemberEpochError(""), self.hand.now)
            user.poll()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 11.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.hand.advance(seconds)
        for user in self.users:
            user.poll()

    @rule()
    def behave(self) -> None:
        """Everybody does what there is to do."""
        for user in self.users:
            for _ in range(3):
                user.arrive()
                user.come_back()
                user.carry_out()
        self.users = [user for user in self.users if not user.is_over]

    @rule()
    def restart(self) -> None:
        for user in self.users:
            if user.answer is None:
                user.drop()
        self.hand.restart()

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners_who_both_can_commit(self) -> None:
        owners: dict[TopicPartition, list[str]] = {}
        for user in self.users:
            for partition in user.member.owned:
                if user.may_commit(partition):
                    owners.setdefault(partition, []).append(user.member.member_id)
        assert all(len(each) == 1 for each in owners.values()), owners

    def settle(self) -> None:
        for _ in range(60):
            self.behave()
            self.hand.advance(1.0)
            for user in self.users:
                user.member.polled_at = self.hand.now
                user.poll()
            self.no_partition_has_two_owners_who_both_can_commit()
        reading = [user for user in self.users if user.wanted != GroupSubscription()]
        assert all(user.member.state_name == "stable" for user in reading), [u.member.state_name for u in reading]
        owned = [partition for user in self.users for partition in user.member.owned]
        assert len(owned) == len(set(owned))
        topics = {"a", "b"} if any(user.wanted != SUBSCRIPTIONS[1] for user in reading) else {"a"} if reading else set()
        assert set(owned) == {TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)}
        assert all(user.member.next_deadline < inf for user in reading)


TestConsumerWalk = ConsumerWalk.TestCase
TestConsumerWalk.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
