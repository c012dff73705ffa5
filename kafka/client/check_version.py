"""Asking one server, on a connection of its own, what it speaks: ``check_version``.

The connection is made for the question and closed after it, so nothing else in the client notices. Releases before 0.10
need several connections, one after the other, which the greeting asks for by itself.
"""

from __future__ import annotations

from dataclasses import replace

from kafka.client.connection import BrokerConnection
from kafka.client.greeting import SOFTWARE
from kafka.client.link import Exchange, LinkSettings
from kafka.core.retry import Rng
from kafka.core.routing import NodeId
from kafka.core.versions import Discovery, Greeting, discover
from kafka.future import Future
from kafka.net.transport import Network
from kafka.wire.message import Response


class VersionCheck:
    """One question to one server. ``future`` gets what was found, or the error."""

    def __init__(
        self,
        node_id: NodeId,
        address: tuple[str, int],
        network: Network,
        settings: LinkSettings,
        rng: Rng,
        step_timeout_s: float,
        strict: bool,
    ) -> None:
        self.future: Future[Discovery] = Future()
        self.has_connected = False
        """Whether the server took a connection; it was lost, then, if this failed."""
        self._address = address
        self._strict = strict
        patient = replace(
            settings,
            greeting_step_s=step_timeout_s,
            options=settings.options._replace(
                connect_timeout_s=min(settings.options.connect_timeout_s, step_timeout_s)
            ),
        )
        self._connection = BrokerConnection(node_id, network, patient, self, rng)
        self._connection.connect()

    def address_of(self, node_id: NodeId) -> tuple[str, int]:
        return self._address

    def greeting(self) -> Greeting:
        self.has_connected = True
        return discover(SOFTWARE, strict=self._strict)

    def on_ready(self, connection: BrokerConnection, discovery: Discovery) -> None:
        connection.close()
        self.future.success(discovery)

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        connection.close()
        self.future.failure(error)

    def on_answer(self, exchange: Exchange, response: Response) -> None:
        """Nothing but the greeting is ever sent."""
