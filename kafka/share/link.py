"""The share session with one leader, over a connection of its own.

What goes out when is the session's affair (``core/share/session.py``); here its requests meet a connection and a loop.
The connection is a lane of the client's that carries this member alone: a broker ties a session to the connection that
opened it, and remembers one session for each.
"""

from __future__ import annotations

from typing import Any, Protocol

from kafka.client import KafkaClient
from kafka.core.share.requests import Demand
from kafka.core.share.session import Exchange, Outcome, ShareSession
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.net.loop import LoopTimer


class LinkOwner(Protocol):
    """What a link asks of the engine and tells it."""

    def demand_for(self, link: ShareLink) -> Demand:
        """How much the link may fetch now."""

    def on_outcome(self, link: ShareLink, outcome: Outcome) -> None:
        """An answer came, or none will, or locks have run out."""


class ShareLink:
    """One leader's session on the loop. ``asked`` is what the request in flight may bring at most."""

    def __init__(self, client: KafkaClient, owner: LinkOwner, node_id: int, lane: str, session: ShareSession) -> None:
        self.node_id = node_id
        self.session = session
        self.asked = 0
        self._client = client
        self._owner = owner
        self._lane = lane
        self._timer: LoopTimer | None = None
        self._is_soon = False
        self._is_closed = False
        self._closing: Future[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._serial = 0  # of the last request sent
        self._says = False  # the request in flight carries acknowledgements
        self._waiters: list[tuple[int, Future[None]]] = []

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
            self._waiters.append((self._serial + 1, done))
            self.session.flush()
            self.pump_soon()
        elif self.session.in_flight and self._says:
            self._waiters.append((self._serial, done))
        else:
            done.success(None)
        return done

    def close(self) -> Future[None]:
        """Say the last acknowledgements, give back what is held, and close the connection."""
        if self._closing is None:
            self._closing = Future()
            if not (self.session.has_pending or self.session.held_count):
                self._end()  # the broker frees whatever a poll under way may still bring
            else:
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
        lost = self.session.expire(now)
        if lost:
            self._owner.on_outcome(self, Outcome([], [], lost, {}, None))
        if not self.session.in_flight:
            if now < self._not_before:
                exchange = None
            elif self._closing is not None:
                exchange = self.session.close_request()
                if exchange is None:
                    self._end()
                    return
            else:
                demand = self._owner.demand_for(self)
                exchange = self.session.next_request(now, demand)
                self.asked = demand.records
            if exchange is not None:
                self._send(exchange, now)
            else:
                self.asked = 0
                self._complete_waiters()
        self._arm(now)

    def _send(self, exchange: Exchange, now: float) -> None:
        self._serial += 1
        self._says = bool(exchange.acks)
        future: Future[Any] = self._client.request(self.node_id, exchange.request, lane=self._lane)
        future.add_callback(self._answered, exchange=exchange, sent_at=now)
        future.add_errback(self._failed, exchange=exchange)

    def _answered(self, response: Any, exchange: Exchange, sent_at: float) -> None:
        outcome = self.session.on_response(exchange, response, sent_at, self._client.loop.time())
        self._failures = 0 if outcome.error is None else self._failures + 1
        self._settle(outcome)

    def _failed(self, error: BaseException, exchange: Exchange) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"node {self.node_id}: {error!r}")
        self._failures += 1
        self._settle(self.session.on_failure(exchange, error))

    def _settle(self, outcome: Outcome) -> None:
        self.asked = 0
        if self._failures > 1:  # the first time, the session is opened anew at once
            self._not_before = self._client.loop.time() + self._client.retry_backoff.delay_s(self._failures - 1)
        if not self._is_closed:
            self._owner.on_outcome(self, outcome)
        self._complete_waiters()
        if self._closing is not None and (outcome.error is not None or not self.session.is_open):
            self._end()
        else:
            self.pump_soon()

    def _complete_waiters(self) -> None:
        left: list[tuple[int, Future[None]]] = []
        idle = not (self.session.has_pending or self.session.in_flight)
        for serial, done in self._waiters:
            if idle or (serial <= self._serial and not self.session.has_suspects):
                done.success(None)
            else:
                left.append((serial, done))
        self._waiters = left

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._disarm()
        self._client.close_lane(self._lane, self.node_id)
        for _, done in self._waiters:
            done.success(None)
        self._waiters = []
        if self._closing is not None and not self._closing.is_done:
            self._closing.success(None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        self._disarm()
        deadline = self.session.next_deadline()
        if self._not_before > now and (deadline is None or self._not_before < deadline):
            deadline = self._not_before
        if deadline is not None:
            self._timer = self._client.loop.call_at(deadline, self._pump)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


