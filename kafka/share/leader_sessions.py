"""The share session with one leader, over a connection of its own.

``core/share/session.py`` decides which request is sent when, :class:`LeaderConnections` over which connection; this
module sends the requests on a loop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from kafka.client import KafkaClient
from kafka.core.share.session import FetchDemand, ShareExchange, ShareResponseOutcome, ShareSession
from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.message import Request

# The connection that carries one share session, and the next one while it is being made.
#
# A broker ties a session to the connection that opened it and remembers one session for each, so the session has a lane
# of the client's to itself: two members never share one, whatever client they live on. When the connection ends, the
# broker frees the session's locks; so a connection that is about to be closed for having been idle is not let go before
# its session was opened on another one (make before break). Measured on Apache Kafka 4.3.0: the locks belong to the
# member, and closing the former connection afterwards frees none.
#
#     in use --idle for long, something held--> a second is made --ready--> the session opens there --> the first ends
#
# Which requests go over it is decided by :class:`LeaderSession`.


IDLE_SHARE: Final = 0.8
"""The part of ``connections_max_idle_ms`` after which a connection with locked records is replaced."""

_OLDEST_VERSION: Final = 2
"""Of ShareFetch and ShareAcknowledge: record-limit mode and renewals came with Apache Kafka 4.2."""

_numbers = itertools.count()


class LeaderConnections:
    """A session's connections to one node, on the loop's thread.

    ``on_lost``: the connection in use has ended, with or without a request on it. ``on_news``: the next one is ready,
    or could not be made.
    """

    def __init__(
        self,
        client: KafkaClient,
        node_id: int,
        on_lost: Callable[[KafkaError], object],
        on_news: Callable[[], object],
    ) -> None:
        self.replaced = 0
        """How many times the connection was replaced."""
        self._client = client
        self._max_idle_s: float = client.config["connections_max_idle_ms"] / 1000
        self._node_id = node_id
        self._on_lost = on_lost
        self._on_news = on_news
        self._used_at = client.loop.time()
        self._next: str | None = None
        self._next_is_ready = False
        self._former: str | None = None
        self._name = self._open()

    def request(self, request: Request[Any]) -> Future[Any]:
        """Send it over the connection in use."""
        self._used_at = self._client.loop.time()
        try:
            return self._client.request(self._node_id, request, lane=self._name, min_version=_OLDEST_VERSION)
        except KafkaError as error:  # the client is closed
            return Future[Any]().failure(error)

    @property
    def used_at(self) -> float:
        """When the last request went out."""
        return self._used_at

    # -- the next one --------------------------------------------------------------------------------------------------

    def replace_at(self) -> float:
        """When the connection will have been idle for long."""
        return self._used_at + IDLE_SHARE * self._max_idle_s

    def prepare(self) -> None:
        """Make the next connection while this one stays in use; no effect when that has begun."""
        if self._next is not None:
            return
        name = self._next = self._open()
        try:
            made = self._client.request(self._node_id, ApiVersionsRequest(), lane=name)
        except KafkaError as error:
            made = Future[Any]().failure(error)
        made.add_callback(self._made, name=name)
        made.add_errback(self._not_made, name=name)

    @property
    def is_next_ready(self) -> bool:
        """Whether the next connection is ready."""
        return self._next_is_ready

    def switch(self) -> None:
        """Use the next connection; the former stays open until :meth:`close_former`."""
        assert self._next is not None
        self._former, self._name, self._next = self._name, self._next, None
        self._next_is_ready = False
        self._used_at = self._client.loop.time()
        self.replaced += 1

    def close_former(self) -> None:
        """The session stands on the connection in use."""
        if self._former is not None:
            former, self._former = self._former, None
            self._shut(former)

    # -- the end -------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection in use, so that the broker releases held records; the next request makes another."""
        self.close_former()
        self._client.close_lane(self._name, self._node_id)

    def close(self) -> None:
        """Close them all."""
        for name in (self._name, self._next, self._former):
            if name is not None:
                self._shut(name)
        self._next = self._former = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self) -> str:
        name = f"share-{next(_numbers)}"
        self._client.watch_lane(name, lambda error: self._lost(name, error))
        return name

    def _shut(self, name: str) -> None:
        self._client.watch_lane(name, None)
        self._client.close_lane(name, self._node_id)

    def _made(self, _: object, name: str) -> None:
        if self._next == name:
            self._next_is_ready = True
            self._on_news()

    def _not_made(self, error: BaseException, name: str) -> None:
        if self._next == name:
            self._next = None
            self._shut(name)
            self._used_at += (1 - IDLE_SHARE) / 4 * self._max_idle_s  # again a little later, and not at once
            self._on_news()

    def _lost(self, name: str, error: BaseException) -> None:
        if name == self._name:
            self._on_lost(error if isinstance(error, KafkaError) else KafkaConnectionError(repr(error)))
        elif name == self._next and self._next_is_ready:  # else the request that makes it fails, and says so
            self._next_is_ready = False
            self._not_made(error, name)


log = logging.getLogger(__name__)

_turns = itertools.count()

RECHECK_S = 0.02
RECORDS_EXPECTED_S = 1.0
"""For so long after some records there may be more, although a fetch without a wait returns none: the broker returns
nothing of a partition that another member's fetch is reading."""
OVERDUE_S: Final = 1.0
"""A fetch without a response for so long after its wait does not reserve its demand any more."""


class LeaderSessionListener(Protocol):
    """The interface of the driver to leader sessions."""

    def demand_for(self, leader: LeaderSession) -> FetchDemand:
        """How much the leader may fetch now."""

    def on_outcome(self, leader: LeaderSession, outcome: ShareResponseOutcome) -> None:
        """A response came, failed, was read further or is overdue, or locks have expired. ``leader.asked`` is 0 again.
        """


class LeaderSession:
    """One leader's session on the loop. ``asked`` is what the request in flight may bring at most, and 0 once it is
    overdue; ``turn`` is lower the longer ago the last fetch went out, or failed; ``failures`` counts errors in a row.
    ``look_every_s``: after an empty fetch the next one follows after so long, since the broker does not wait;
    :data:`RECHECK_S` while more is to be expected.
    """

    def __init__(
        self,
        client: KafkaClient,
        owner: LeaderSessionListener,
        node_id: int,
        session: ShareSession,
        look_every_s: float = 0.0,
    ) -> None:
        self.node_id = node_id
        self.session = session
        self._look_every_s = look_every_s
        self._next_look = 0.0
        # the successor of a consumer that died finds records soon
        self._expects_until = client.loop.time() + RECORDS_EXPECTED_S
        self.lanes = LeaderConnections(client, node_id, self._connection_lost, self.pump_soon)
        self.asked = 0
        self.turn = next(_turns)
        self._client = client
        self._owner = owner
        self._timer: LoopTimer | None = None
        self._is_soon = False
        self._is_closed = False
        self._closing: Future[None] | None = None
        self.failures = 0
        self._not_before = 0.0
        self._overdue_at = 0.0  # 0: nothing was asked for
        self._unquiet: list[Future[None]] = []  # those who wait for a request that may bring records
        self._unsaid: list[Future[None]] = []  # flushes of what no request has carried yet
        self._unanswered: list[Future[None]] = []  # flushes of what the request in flight carries
        self._says = False  # the request in flight carries acknowledgements

    # -- what the driver says ------------------------------------------------------------------------------------------

    def pump_soon(self) -> None:
        """Send what is due at the end of this turn of the loop: acknowledgements until then are sent together."""
        if not self._is_soon and not self._is_closed:
            self._is_soon = True
            self._client.loop.call_soon(self._pump_now)

    def flush(self) -> Future[None]:
        """Done when every acknowledgement so far has its response."""
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

    def quiet(self) -> Future[None]:
        """Done when no fetch is in flight."""
        done: Future[None] = Future()
        exchange = self.session.exchange
        if exchange is not None and _requests_records(exchange):
            self._unquiet.append(done)
        else:
            done.success(None)
        return done

    def look(self) -> None:
        """Fetch now, however little the last fetch has brought, and expect to find something."""
        self._next_look = 0.0
        self._expects_until = self._client.loop.time() + RECORDS_EXPECTED_S
        self.pump_soon()

    def looks(self, now: float) -> bool:
        """Whether ``look_every_s`` allows a fetch now."""
        return now >= self._next_look

    def can_fetch(self, now: float) -> bool:
        """Whether a fetch could be sent now, if there were demand."""
        is_open = not self._is_closed and self._closing is None
        return is_open and now >= self._not_before and self.looks(now) and self.session.can_fetch(now)

    @property
    def answered_at(self) -> float | None:
        """An instant up to which the leader is known to have answered; None when its last answer was an error.

        That of the last request: it went out because the one before had been answered, and has not failed since. So
        nothing has to be taken down for each fetch; a leader that is silent shows as an instant that stands still.
        """
        return self.lanes.used_at if self.session.is_open and not self.failures else None

    def close(self) -> Future[None]:
        """Send the last acknowledgements, give back held records, and close the connection, after the fetch in flight.
        Measured on Apache Kafka 4.3.0: a fetch whose connection is closed still acquires new records until its wait is
        over, and the next member gets them with one more delivery counted.
        """
        if self._closing is None:
            self._closing = Future()
            self.pump_soon()
        return self._closing

    def abandon(self) -> None:
        """Close the connection at once; the broker releases held records."""
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
        lost, unread = session.expire(now), session.expire_unread(now)
        if lost or unread:
            self._owner.on_outcome(self, ShareResponseOutcome([], [], lost, {}, None, expired_unread=unread))
        if self._is_idle_while_holding(now):
            self.lanes.prepare()
        if not session.in_flight:
            self.asked = 0
            if not session.has_pending:  # also what went with a connection: the next request may be a fetch
                _complete(self._unsaid)
            self._read_on(now)
            if self._is_closed:
                return
            exchange = self._closing_request(now) if self._closing is not None else self._next_request(now)
            if exchange is not None:
                self._send(exchange, now)
            elif self._closing is not None:
                self._end()
                return
        elif self._overdue_at and now >= self._overdue_at:
            self.asked, self._overdue_at = 0, 0.0
            self._owner.on_outcome(self, ShareResponseOutcome([], [], [], {}, None))
        self._arm(now)

    def _read_on(self, now: float) -> None:
        """Read the next slice of unread records before fetching more. In record-limit mode without demand, too: the
        caller renews only the locks of records that it holds, so the locks of unread ones would expire."""
        session = self.session
        if not session.has_unread or self._closing is not None:
            return
        demand = self._owner.demand_for(self)
        if demand.records or demand.exactly:
            self._owner.on_outcome(self, session.read(now))
            if session.has_unread:
                self.pump_soon()

    def _is_idle_while_holding(self, now: float) -> bool:
        """The client would close the idle connection soon, and the broker would release held records."""
        return now >= self.lanes.replace_at() and self._closing is None and bool(self.session.in_use)

    def _next_request(self, now: float) -> ShareExchange | None:
        if self.lanes.is_next_ready:
            if not self.session.is_open:
                self.lanes.switch()  # lost meanwhile: no records are held
                self.lanes.close_former()
            else:
                exchange = self.session.reopening_request()
                if exchange is not None:
                    self.lanes.switch()
                return exchange
        if now < self._not_before:
            return None
        demand = FetchDemand(0) if self.session.has_unread else self._owner.demand_for(self)
        exchange = self.session.next_request(now, demand)
        if exchange is not None and isinstance(exchange.request, ShareFetchRequest):
            self.asked = exchange.request.max_records
            self.turn = next(_turns)
            if self.asked:
                self._overdue_at = now + exchange.request.max_wait_ms / 1000 + OVERDUE_S
        return exchange

    def _closing_request(self, now: float) -> ShareExchange | None:
        """The last acknowledgements first: in the request that closes, one bad offset would refuse them all."""
        if now >= self._not_before and self.session.has_pending:
            exchange = self.session.next_request(now, FetchDemand(0))
            if exchange is not None:  # else all of it rests, after errors that may pass: there is no later any more
                return exchange
        return self.session.close_request()

    def _send(self, exchange: ShareExchange, now: float) -> None:
        self._says = bool(exchange.acks)
        if self._says and not self.session.has_pending:
            self._unanswered, self._unsaid = self._unsaid, []
        future = self.lanes.request(exchange.request)
        future.add_callback(self._answered, sent_at=now)
        future.add_errback(self._failed)

    def _answered(self, response: Any, sent_at: float) -> None:
        now, exchange = self._client.loop.time(), self.session.exchange
        if exchange is None:
            return  # given up since
        try:
            outcome = self.session.on_response(response, sent_at, now)
        except Exception as error:
            log.exception("node %s: cannot process a response of %s", self.node_id, type(response).__name__)
            self._failed(error)
            return
        self.lanes.close_former()
        self._not_before = now + response.throttle_time_ms / 1000
        if self._look_every_s and _requests_records(exchange) and outcome.error is None:
            if outcome.records or self.session.has_unread:
                self._expects_until = now + RECORDS_EXPECTED_S
            else:
                self._next_look = now + (self._look_every_s if now >= self._expects_until else RECHECK_S)
        self.failures = 0 if outcome.error is None else self.failures + 1
        self._settle(outcome)

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"node {self.node_id}: {error!r}")
        if not isinstance(error, (KafkaConnectionError, RequestTimedOutError)):
            # The connection may stand, and while it does the broker keeps the locks that are given up here.
            self.lanes.drop()
        self.lanes.close_former()
        self.failures += 1
        self._settle(self.session.on_failure(error))

    def _connection_lost(self, error: KafkaError) -> None:
        """With a request in flight, that has failed and reported it."""
        if not self.session.in_flight and self.session.is_open and not self._is_closed:
            self.failures += 1
            self._settle(self.session.on_failure(error))

    def _settle(self, outcome: ShareResponseOutcome) -> None:
        self.asked, self._overdue_at = 0, 0.0
        if outcome.error is not None:
            self.turn = next(_turns)
        if self.failures > 1:  # the first time, the session is opened anew at once
            wait_s = self._client.retry_backoff.delay_s(self.failures - 1)
            self._not_before = max(self._not_before, self._client.loop.time() + wait_s)
        if self.session.has_pending and (outcome.error is not None or outcome.says_again or self.session.has_suspects):
            # Some acknowledgements must be sent again.
            self._unsaid, self._unanswered = self._unanswered + self._unsaid, []
        try:
            if not self._is_closed:
                self._owner.on_outcome(self, outcome)
        finally:
            _complete(self._unanswered)
            _complete(self._unquiet)
            self.pump_soon()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._disarm()
        error = KafkaConnectionError(f"node {self.node_id}: the share session was ended before this was answered")
        outcome = self.session.abandon(error)
        self.lanes.close()
        if outcome:
            self._owner.on_outcome(self, outcome)
        _complete(self._unanswered)
        _complete(self._unsaid)
        _complete(self._unquiet)
        if self._closing is not None and not self._closing.is_done:
            self._closing.success(None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        self._disarm()
        deadline = self.session.next_deadline(now)
        for instant in (self._not_before, self._next_look, self._overdue_at):
            if instant > now and (deadline is None or instant < deadline):
                deadline = instant
        if self._closing is None and self.session.in_use:
            replace_at = self.lanes.replace_at()
            if replace_at > now and (deadline is None or replace_at < deadline):
                deadline = replace_at
        if deadline is not None:
            self._timer = self._client.loop.call_at(deadline, self._pump)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _requests_records(exchange: ShareExchange) -> bool:
    """Whether the request was to bring records."""
    return isinstance(exchange.request, ShareFetchRequest) and exchange.request.max_records > 0


def _complete(waiting: list[Future[None]]) -> None:
    done, waiting[:] = list(waiting), []
    for each in done:
        each.success(None)
