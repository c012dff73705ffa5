"""The share session with one leader, over a connection of its own.

What goes out when is the session's affair (``core/share/session.py``); here its requests meet a connection and a loop.
The connection is a lane of the client's that carries this member alone: a broker ties a session to the connection that
opened it, and remembers one session for each.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any, Final, Protocol

from kafka.client import KafkaClient
from kafka.core.share.requests import Demand
from kafka.core.share.session import Exchange, Outcome, ShareSession
from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.protocol.share import ShareFetchRequest

log = logging.getLogger(__name__)

_turns = itertools.count()

_OLDEST_VERSION: Final = 2
"""Of ShareFetch and ShareAcknowledge: record-limit mode and renewals came with Apache Kafka 4.2."""


class LinkOwner(Protocol):
    """What a link asks of the engine and tells it."""

    def demand_for(self, link: ShareLink) -> Demand:
        """How much the link may fetch now."""

    def on_outcome(self, link: ShareLink, outcome: Outcome) -> None:
        """An answer came, or none will, or locks have run out. ``link.asked`` is 0 again."""


class ShareLink:
    """One leader's session on the loop. ``asked`` is what the request in flight may bring at most; ``turn`` is lower
    the longer ago the last fetch went out.
    """

    def __init__(self, client: KafkaClient, owner: LinkOwner, node_id: int, lane: str, session: ShareSession) -> None:
        self.node_id = node_id
        self.session = session
        self.asked = 0
        self.turn = next(_turns)
        self._client = client
        self._owner = owner
        self._lane = lane
        self._timer: LoopTimer | None = None
        self._is_soon = False
        self._is_closed = False
        self._closing: Future[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._unsaid: list[Future[None]] = []  # flushes of what no request has carried yet
        self._unanswered: list[Future[None]] = []  # flushes of what the request in flight carries
        self._says = False  # the request in flight carries acknowledgements

    # -- what the engine says ------------------------------------------------------------------------------------------

    def pump_soon(self) -> None:
        """Look once more at the end of this turn of the loop: what is said until then goes out together."""
        if not self._is_soon and not self._is_closed:
            self._is_soon = True
            self._client.loop.call_soon(self._pump_now)

    def flush(self) -> Future[None]:
        """Done when every acknowledgement handed in so far has its answer."""
        done: Future[None] = Future()
        if self.session.has_pending:
            self._unsaid.append(done)
            self.session.flush()
            self.pump_soon()
        elif self.session.in_flight and self._says:
            self._unanswered.append(done)
        else:
            done.success(None)
        return done

    def can_fetch(self, now: float) -> bool:
        """A fetch could go out now, if there were demand."""
        return not self._is_closed and self._closing is None and now >= self._not_before and self.session.can_fetch(now)

    def close(self) -> Future[None]:
        """Say the last acknowledgements, give back what is held, and close the connection.

        A poll under way is waited for. Measured on Apache Kafka 4.3.0: one whose connection is closed still acquires
        what comes until its time is over, and such a record comes to the next member with one more delivery counted.
        """
        if self._closing is None:
            self._closing = Future()
            self.pump_soon()
        return self._closing

    def abandon(self) -> None:
        """Close the connection at once; the broker frees what is held."""
        self._end()

    # -- the session's requests ----------------------------------------------------------------------------------------

    def _pump_now(self) -> None:
        self._is_soon = False
        self._pump()

    def _pump(self) -> None:
        if self._is_closed:
            return
        now = self._client.loop.time()
        session = self.session
        lost = session.expire(now)
        if lost:
            self._owner.on_outcome(self, Outcome([], [], lost, {}, None))
        if not session.in_flight:
            self.asked = 0
            exchange = self._closing_request(now) if self._closing is not None else self._next_request(now)
            if exchange is not None:
                self._send(exchange, now)
            elif self._closing is not None:
                self._end()
                return
            elif not session.has_pending:
                _complete(self._unsaid)
        self._arm(now)

    def _next_request(self, now: float) -> Exchange | None:
        if now < self._not_before:
            return None
        exchange = self.session.next_request(now, self._owner.demand_for(self))
        if exchange is not None and isinstance(exchange.request, ShareFetchRequest):
            self.asked = exchange.request.max_records
            self.turn = next(_turns)
        return exchange

    def _closing_request(self, now: float) -> Exchange | None:
        """The last acknowledgements first: in the request that closes, one bad offset would refuse them all."""
        if now >= self._not_before and self.session.has_pending:
            return self.session.next_request(now, Demand(0))
        return self.session.close_request()

    def _send(self, exchange: Exchange, now: float) -> None:
        self._says = bool(exchange.acks)
        if self._says and not self.session.has_pending:
            self._unanswered, self._unsaid = self._unsaid, []
        future: Future[Any]
        try:
            future = self._client.request(
                self.node_id, exchange.request, lane=self._lane, min_version=_OLDEST_VERSION
            )
        except KafkaError as error:  # the client is closed
            future = Future[Any]().failure(error)
        future.add_callback(self._answered, exchange=exchange, sent_at=now)
        future.add_errback(self._failed, exchange=exchange)

    def _answered(self, response: Any, exchange: Exchange, sent_at: float) -> None:
        now = self._client.loop.time()
        try:
            outcome = self.session.on_response(exchange, response, sent_at, now)
        except Exception as error:
            log.exception("node %s: an answer of %s cannot be taken in", self.node_id, type(response).__name__)
            self._failed(error, exchange)
            return
        self._not_before = now + response.throttle_time_ms / 1000
        self._failures = 0 if outcome.error is None else self._failures + 1
        self._settle(outcome)

    def _failed(self, error: BaseException, exchange: Exchange) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"node {self.node_id}: {error!r}")
        if not isinstance(error, (KafkaConnectionError, RequestTimedOutError)):
            # The connection may stand, and while it does the broker keeps the locks that are given up here.
            self._client.close_lane(self._lane, self.node_id)
        self._failures += 1
        self._settle(self.session.on_failure(exchange, error))

    def _settle(self, outcome: Outcome) -> None:
        self.asked = 0
        if self._failures > 1:  # the first time, the session is opened anew at once
            wait_s = self._client.retry_backoff.delay_s(self._failures - 1)
            self._not_before = max(self._not_before, self._client.loop.time() + wait_s)
        if self.session.has_pending and (outcome.error is not None or self.session.has_suspects):
            # Some of what was said has to be said again.
            self._unsaid, self._unanswered = self._unanswered + self._unsaid, []
        if not self._is_closed:
            self._owner.on_outcome(self, outcome)
        _complete(self._unanswered)
        self.pump_soon()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._disarm()
        self._client.close_lane(self._lane, self.node_id)
        _complete(self._unanswered)
        _complete(self._unsaid)
        if self._closing is not None and not self._closing.is_done:
            self._closing.success(None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        self._disarm()
        deadline = self.session.next_deadline(now)
        if self._not_before > now and (deadline is None or self._not_before < deadline):
            deadline = self._not_before
        if deadline is not None:
            self._timer = self._client.loop.call_at(deadline, self._pump)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _complete(waiting: list[Future[None]]) -> None:
    done, waiting[:] = list(waiting), []
    for each in done:
        each.success(None)
