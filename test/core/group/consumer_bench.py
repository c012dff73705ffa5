"""A member of a consumer group (KIP-848) on a bench: its clock, and answers by hand in the coordinator's place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.machine import Assign, GroupEffect, GroupSubscription, Lose, Revoke, SendToCoordinator
from kafka.core.retry import Backoff
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from test.core.group.classic_bench import NoChance, Seen, parts

JOBS, LOGS = UUID(int=1), UUID(int=2)
NAMES: Mapping[UUID, str] = {JOBS: "jobs", LOGS: "logs"}
BACKOFF_S = 0.2
INTERVAL_S = 5.0
MAX_POLL_S = 300.0


class Bench:
    """A member on a bench: its clock, its last request, and whoever carries out its steps."""

    def __init__(
        self, names: Mapping[UUID, str] | None = None, max_poll_interval_s: float = MAX_POLL_S, **options: Any
    ) -> None:
        self.now = 100.0
        self.names = dict(NAMES if names is None else names)
        self.member = ConsumerMember(
            "g",
            member_id="m",
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=30.0,
            retry_backoff=Backoff(BACKOFF_S, 1.0, NoChance()),
            topic_of_id=self.names.get,
            **options,
        )
        self.asked: SendToCoordinator | None = None

    def poll(self, after_s: float = 0.0) -> Seen:
        """All effects but requests, which are kept in ``asked``."""
        self.now += after_s
        effects = self.member.poll(self.now)
        asks = [each for each in effects if isinstance(each, SendToCoordinator)]
        assert len(asks) <= 1 and not (asks and self.asked), "one request in flight at a time"
        assert self.member.next_deadline > self.now, "or the loop would spin"
        if asks:
            self.asked = asks[0]
        return Seen(each for each in effects if not isinstance(each, SendToCoordinator))

    @property
    def request(self) -> ConsumerGroupHeartbeatRequest:
        assert self.asked is not None, "nothing was asked"
        request = self.asked.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def answer(
        self,
        epoch: int = 0,
        assigned: Mapping[UUID, Iterable[int]] | None = None,
        code: int = 0,
        text: str | None = None,
        interval_s: float = INTERVAL_S,
    ) -> Seen:
        ask, self.asked = self.asked, None
        assert ask is not None
        assignment = None
        if assigned is not None:
            each = [
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in assigned.items()
            ]
            assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=each)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=text,
            member_id=None if code else self.member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=int(interval_s * 1000),
            assignment=assignment,
        )
        self.member.answered(ask, response, self.now)
        return self.poll()

    def fail(self, error: BaseException) -> Seen:
        ask, self.asked = self.asked, None
        assert ask is not None
        self.member.failed(ask, error, self.now)
        return self.poll()

    def done(self, effects: Collection[GroupEffect]) -> Seen:
        """Carry out what there is to carry out; what comes next."""
        (step,) = (each for each in effects if isinstance(each, (Revoke, Lose, Assign)))
        self.member.carried_out(step, self.now)
        return self.poll()

    def join(self, numbers: Iterable[int] = (0, 1), epoch: int = 2, **subscription: Any) -> None:
        """Subscribe, join, take over partitions of ``jobs`` and acknowledge them."""
        self.member.subscribe(GroupSubscription(**(subscription or {"topics": frozenset({"jobs"})})), self.now)
        self.poll()
        self.done(self.answer(epoch, {JOBS: numbers}))
        self.answer(epoch)
        assert self.member.state_name == "stable"

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, when it is due."""
        assert not self.poll(self.member.next_deadline - self.now)
        return self.request

    def owned_partitions(self) -> dict[UUID, list[int]] | None:
        topic_partitions = self.request.topic_partitions
        return None if topic_partitions is None else {each.topic_id: each.partitions for each in topic_partitions}


__all__ = ["BACKOFF_S", "INTERVAL_S", "JOBS", "LOGS", "MAX_POLL_S", "NAMES", "Bench", "Seen", "parts"]
