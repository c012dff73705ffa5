"""The heartbeats of one member, sent to its group's coordinator when they are due.

What they say and what an answer means is the membership's affair (``core/share/membership.py``), what follows from that
the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.client import KafkaClient
from kafka.core.routing import Coordinator
from kafka.core.share.membership import HeartbeatOutcome, ShareMembership
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.protocol.share import ShareGroupHeartbeatResponse


class Heartbeats:
    """On the loop's thread. ``on_outcome`` is called for each answer, and :meth:`beat` is to be called again by it.
    """

    def __init__(
        self,
        client: KafkaClient,
        membership: ShareMembership,
        on_outcome: Callable[[HeartbeatOutcome], object],
    ) -> None:
        self._client = client
        self._membership = membership
        self._on_outcome = on_outcome
        self._timer: LoopTimer | None = None

    def beat(self) -> None:
        """Send what is due now, or wait until something is."""
        self.stop()
        request = self._membership.next_request(self._client.loop.time())
        if request is None:
            due_at = self._membership.due_at()
            if due_at is not None:
                self._timer = self._client.loop.call_at(due_at, self.beat)
            return
        future: Future[ShareGroupHeartbeatResponse]
        try:
            future = self._client.request(Coordinator(self._membership.group_id), request)
        except KafkaError as error:  # the client is closed
            future = Future[ShareGroupHeartbeatResponse]().failure(error)
        future.add_callback(self._answered)
        future.add_errback(self._failed)

    def stop(self) -> None:
        """Wait for nothing; what is under way is still answered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, response: Any) -> None:
        self._settle(self._membership.on_response(response, self._client.loop.time()))

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"heartbeat of {self._membership.group_id}: {error!r}")
        self._settle(self._membership.on_failure(error, self._client.loop.time()))

    def _settle(self, outcome: HeartbeatOutcome) -> None:
        if outcome.lost_coordinator:
            self._client.coordinators.forget(Coordinator(self._membership.group_id))
        self._on_outcome(outcome)
