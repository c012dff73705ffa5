"""Reaching the first broker: rounds over all addresses of all ``bootstrap_servers``.

    idle --start()--> [find servers] --> round: one server after the other --one is ready--> bootstrapped(connection)
                                           |  none is: failures + 1, and the next round after a wait --> idle
                                           |  (reconnect_backoff_ms, doubled each time to reconnect_backoff_max_ms)

One server at a time, each with all its addresses. The order begins at a random server, so that not all clients connect
to the first of their common list.

:func:`server_finder` says which servers there are: a fixed list; or servers that are found again before each round but
the first, since ``embedded:DIR`` may have another port by then, and its broker is started by asking for it; or, with
``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` (KIP-235), the canonical names of all addresses, found
before each round. Finding may block, so it happens in a thread of its own, which ends with it. Names are looked up at
every attempt in any case, by the connection.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafka.client.connection import BOOTSTRAP, BrokerConnection, ConnectionSettings, PendingRequest
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.versions import NegotiatedVersions, VersionsDialogue
from kafka.errors import AuthenticationError, KafkaError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.resolve import canonical_names, parse_servers
from kafka.net.transport import Network
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.client.router import Router

Servers = Sequence[tuple[str, int]]
FindServers = Callable[[], "Future[Servers]"]
"""Looks up the servers without blocking; the future is completed on the loop."""


def find_in_thread(loop: Loop, find: Callable[[], Servers]) -> Future[Servers]:
    """``find()``, which may block, in a thread; its outcome on the loop."""
    found: Future[Servers] = Future()

    def work() -> None:
        try:
            done: Callable[[Any], object] = found.success
            outcome: Any = find()
        except Exception as error:
            done, outcome = found.failure, error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(done, outcome)

    threading.Thread(target=work, name="kafka-servers", daemon=True).start()
    return found


def server_finder(
    loop: Loop, servers: Servers, resolve_servers: Callable[[], Sequence[str]] | None, is_canonical: bool
) -> FindServers | None:
    """How to find the servers; None for a fixed list."""

    def current() -> Servers:
        return servers if resolve_servers is None else parse_servers(resolve_servers())

    if is_canonical:
        return lambda: find_in_thread(loop, lambda: canonical_servers(current()))
    return None if resolve_servers is None else lambda: find_in_thread(loop, current)


def canonical_servers(servers: Servers) -> Servers:
    """Each server's name replaced by those of its addresses. OSError when none of the servers has an address."""
    found: list[tuple[str, int]] = []
    errors: list[OSError] = []
    for host, port in servers:
        try:
            found += [(name, port) for name in canonical_names(host)]
        except OSError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return list(dict.fromkeys(found))


log = logging.getLogger(__name__)

LEAST_WAIT_S: Final = 0.01
"""Between two rounds, also with ``reconnect_backoff_ms=0``: a server that refuses connections would keep the loop
busy."""

LOGGED_FAILURES: Final = 3
"""Failed rounds in a row that are logged: fewer are a broker that restarts."""


class Bootstrap:
    """The rounds, one at a time. It owns its connection until that is ready."""

    def __init__(
        self,
        servers: Servers,
        network: Network,
        settings: ConnectionSettings,
        rng: Rng,
        owner: Router,
        find_servers: FindServers | None = None,
        *,
        find_at_once: bool = False,
    ) -> None:
        """``find_servers``: finds the servers before each round but the first; ``find_at_once``: before that, too."""
        self._servers = list(servers)
        self._network = network
        self._settings = settings
        self._rng = rng
        self._backoff = Backoff(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, rng)
        self.owner = owner
        self._left: list[tuple[str, int]] = []
        self._trying: BrokerConnection | None = None
        self._find_servers = find_servers
        self._finding: Future[Servers] | None = None
        # The first round takes the servers as they were given; `find_servers` is asked before each later one.
        self._is_first_round = not find_at_once
        self.errors: list[BaseException] = []
        """The error of each server in the round under way, or in the last one."""
        self._former_errors: list[BaseException] = []
        self.failures = 0
        """Failed rounds in a row."""
        self.next_at = 0.0
        """The monotonic instant from which on the next round may begin."""
        self._is_logged = False

    @property
    def is_under_way(self) -> bool:
        return self._trying is not None or self._finding is not None

    def start(self) -> None:
        """Begin a round, unless one is under way or the back-off is not over."""
        if self.is_under_way or self._network.loop.time() < self.next_at:
            return
        if self._find_servers is None or self._is_first_round:
            self._is_first_round = False
            self._begin_round()
            return
        self._finding = self._find_servers()
        self._finding.add_both(self._found)

    def _found(self, outcome: Servers | BaseException) -> None:
        if self._finding is None:
            return  # closed
        self._finding = None
        if isinstance(outcome, BaseException):
            self._former_errors, self.errors = self.errors, [outcome]
            self._end_failed_round()
        else:
            self._servers = list(outcome)
            self._begin_round()

    def _begin_round(self) -> None:
        first = int(self._rng.random() * len(self._servers)) % len(self._servers)
        self._left = self._servers[first:] + self._servers[:first]
        self._former_errors, self.errors = self.errors, []
        self._try_next()

    def start_anew(self) -> None:
        """Begin a round now, without the back-off of the last ones (KIP-1102)."""
        self.failures, self.next_at = 0, 0.0
        self.start()

    def why(self) -> str:
        """Why there is no connection, for logs and errors."""
        errors = self._former_errors if self.is_under_way else self.errors
        if not errors:
            return "still connecting to the bootstrap servers"
        return "no bootstrap server can be reached: " + "; ".join(_text(error) for error in errors)

    def refusal(self) -> AuthenticationError | None:
        """The authentication error (TLS or SASL) of a server in the last round, which the next round would meet
        again. None when there was none, or while a round is under way or due."""
        if self.is_under_way or self._network.loop.time() >= self.next_at:
            return None
        return next((error for error in self.errors if isinstance(error, AuthenticationError)), None)

    def log_when_unreachable(self) -> None:
        """Log failed rounds, once until a server is reached."""
        self._is_logged = True

    def close(self) -> None:
        """Stop."""
        self._finding = None
        trying, self._trying = self._trying, None
        if trying is not None:
            trying.close()

    def _try_next(self) -> None:
        host, port = self._left.pop(0)
        owner = _Server(self, host, port)
        # ``failures``: the connection begins with another address than in the last round.
        self._trying = BrokerConnection(
            BOOTSTRAP, self._network, self._settings, owner, self._rng, failures=self.failures
        )
        self._trying.connect()

    def ready(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        if connection is self._trying:
            self._trying = None
            self.failures = 0
            self.owner.bootstrapped(connection, negotiated)

    def lost(self, connection: BrokerConnection, error: BaseException) -> None:
        if connection is not self._trying:
            self.owner.on_lost(connection, error)
            return
        connection.close()
        self._trying = None
        self.errors.append(error)
        if self._left:
            self._try_next()
        else:
            self._end_failed_round()

    def _end_failed_round(self) -> None:
        self.failures += 1
        self.next_at = self._network.loop.time() + max(self._backoff.delay_s(self.failures), LEAST_WAIT_S)
        if self._is_logged and self.failures == LOGGED_FAILURES:
            log.warning("%s; retrying with back-off", self.why())
        self.owner.bootstrap_failed()


class _Server:
    """The owner of the connection to one server of the list."""

    def __init__(self, bootstrap: Bootstrap, host: str, port: int) -> None:
        self._bootstrap = bootstrap
        self._address = (host, port)

    def address_of(self, node_id: NodeId) -> tuple[str, int]:
        return self._address

    def versions_dialogue(self) -> VersionsDialogue | NegotiatedVersions:
        return self._bootstrap.owner.versions_dialogue()

    def on_ready(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        self._bootstrap.ready(connection, negotiated)

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        self._bootstrap.lost(connection, error)

    def on_idle_closed(self, connection: BrokerConnection, error: BaseException) -> None:
        """It has no lane, and so no watcher."""

    def on_unreachable(self, connection: BrokerConnection) -> None:
        """Its requests wait for the next server."""

    def on_silent(self, connection: BrokerConnection) -> None:
        """Its requests time out."""

    def on_answer(self, pending: PendingRequest, response: Response) -> None:
        self._bootstrap.owner.on_answer(pending, response)


def _text(error: BaseException) -> str:
    return str(error.args[0]) if isinstance(error, KafkaError) and error.args else str(error)
