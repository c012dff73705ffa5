"""Reaching the first broker: rounds over all addresses of all ``bootstrap_servers``.

    idle --start()--> [find servers] --> round: one server after the other --one is ready--> bootstrapped(connection)
                                           |  none is: failures + 1, and the next round after a wait --> idle
                                           |  (reconnect_backoff_ms, doubled each time to reconnect_backoff_max_ms)

One server at a time, each with all its addresses. The order begins anywhere, so that the first in everybody's list does
not meet everybody.

The servers are a list, or are found anew for each round but the first (``find_servers``): ``embedded:DIR`` may have
another port by then, and its broker comes back only when somebody asks. With
``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` they are found anew for each round (``servers.py``).
Names are looked up at every attempt in any case, by the connection.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from kafka.client.connection import BrokerConnection
from kafka.client.link import Exchange, LinkSettings
from kafka.client.nodes import BOOTSTRAP
from kafka.client.servers import FindServers, Servers
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.versions import Discovery, Greeting
from kafka.errors import AuthenticationError, KafkaError
from kafka.future import Future
from kafka.net.transport import Network
from kafka.wire.message import Response

log = logging.getLogger(__name__)

LEAST_WAIT_S: Final = 0.01
"""Between two rounds, also with ``reconnect_backoff_ms=0``: a server that refuses at once would keep the loop busy."""

TOLD_AT: Final = 3
"""Failed rounds in a row, with ``is_told``: fewer are a broker that restarts."""


class BootstrapOwner(Protocol):
    """Who wants a first connection (``router.py``)."""

    def greeting(self) -> Greeting | Discovery: ...

    def bootstrapped(self, connection: BrokerConnection, discovery: Discovery) -> None: ...

    def bootstrap_failed(self) -> None: ...

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None: ...

    def on_answer(self, exchange: Exchange, response: Response) -> None: ...


class Bootstrap:
    """The rounds, one at a time. It is the owner of its connections until one is ready."""

    def __init__(
        self,
        servers: Servers,
        network: Network,
        settings: LinkSettings,
        rng: Rng,
        owner: BootstrapOwner,
        find_servers: FindServers | None = None,
        *,
        find_at_once: bool = False,
    ) -> None:
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
        self._is_first_round = not find_at_once
        self.errors: list[BaseException] = []
        """What happened at each server in the round under way, or in the last one."""
        self._former_errors: list[BaseException] = []
        self.failures = 0
        """Failed rounds in a row."""
        self.next_at = 0.0
        """The monotonic instant from which on the next round may begin."""
        self.is_told = False
        """Whether the log tells of failed rounds: once, until a server is reached."""

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
        """What is known is not believed any more: begin a round now, whatever became of the last ones."""
        self.failures, self.next_at = 0, 0.0
        self.start()

    def why(self) -> str:
        """What stands in the way, for messages to people."""
        errors = self._former_errors if self.is_under_way else self.errors
        if not errors:
            return "still connecting to the bootstrap servers"
        return "no bootstrap server can be reached: " + "; ".join(_text(error) for error in errors)

    def refusal(self) -> AuthenticationError | None:
        """Why the next round will come to the same as the last one: a server did not let us in, or we did not trust it,
        and none was better. None while a round is under way or due."""
        if self.is_under_way or self._network.loop.time() >= self.next_at:
            return None
        return next((error for error in self.errors if isinstance(error, AuthenticationError)), None)

    def close(self) -> None:
        """No more."""
        self._finding = None
        trying, self._trying = self._trying, None
        if trying is not None:
            trying.close()

    def _try_next(self) -> None:
        host, port = self._left.pop(0)
        owner = _Server(self, host, port)
        self._trying = BrokerConnection(BOOTSTRAP, self._network, self._settings, owner, self._rng)
        self._trying.failures = self.failures  # so that it begins with another address than in the last round
        self._trying.connect()

    def ready(self, connection: BrokerConnection, discovery: Discovery) -> None:
        if connection is self._trying:
            self._trying = None
            self.failures = 0
            self.owner.bootstrapped(connection, discovery)

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
        if self.is_told and self.failures == TOLD_AT:
            log.warning("%s; tried again until one can", self.why())
        self.owner.bootstrap_failed()


class _Server:
    """The owner of the connection to one server of the list."""

    def __init__(self, bootstrap: Bootstrap, host: str, port: int) -> None:
        self._bootstrap = bootstrap
        self._address = (host, port)

    def address_of(self, node_id: NodeId) -> tuple[str, int]:
        return self._address

    def greeting(self) -> Greeting | Discovery:
        return self._bootstrap.owner.greeting()

    def on_ready(self, connection: BrokerConnection, discovery: Discovery) -> None:
        self._bootstrap.ready(connection, discovery)

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        self._bootstrap.lost(connection, error)

    def on_retired(self, connection: BrokerConnection, error: BaseException) -> None:
        """It has no lane that somebody watches."""

    def on_answer(self, exchange: Exchange, response: Response) -> None:
        self._bootstrap.owner.on_answer(exchange, response)


def _text(error: BaseException) -> str:
    return str(error.args[0]) if isinstance(error, KafkaError) and error.args else str(error)
