"""What connections are made of and belong to: their settings, the requests handed to them, and their owner.

Values and a protocol only; ``connection.py`` acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kafka._version import __version__
from kafka.client.security import PLAINTEXT, ClientSecurity
from kafka.core.dialogue import ByVersion
from kafka.core.routing import NodeId
from kafka.core.versions import Discovery, Greeting
from kafka.future import Future
from kafka.net.transport import ConnectionOptions
from kafka.protocol.registry import NAMES
from kafka.wire.large_frames import BufferPool
from kafka.wire.message import Request, Response

SOFTWARE = ("kafka-taskloop", __version__)

if TYPE_CHECKING:
    from kafka.client.connection import BrokerConnection


@dataclass(frozen=True)
class LinkSettings:
    """The settings of connections, in seconds and bytes."""

    client_id: str
    request_timeout_s: float
    greeting_step_s: float
    reconnect_backoff_s: float
    reconnect_backoff_max_s: float
    max_in_flight: int
    max_idle_s: float
    receive_max_bytes: int
    connect_timeout_max_s: float
    """What ``options.connect_timeout_s`` grows to with failures in a row (KIP-601)."""
    software: tuple[str, str]
    """Name and version that the broker is told (KIP-511)."""
    options: ConnectionOptions
    security: ClientSecurity = PLAINTEXT
    buffers: BufferPool = field(default_factory=BufferPool)
    """For large answers, shared by the client's connections."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], client_id: str) -> LinkSettings:
        """From the resolved settings of a client."""
        return cls(
            client_id=client_id,
            request_timeout_s=settings["request_timeout_ms"] / 1000,
            greeting_step_s=settings["api_version_auto_timeout_ms"] / 1000,
            reconnect_backoff_s=settings["reconnect_backoff_ms"] / 1000,
            reconnect_backoff_max_s=settings["reconnect_backoff_max_ms"] / 1000,
            max_in_flight=settings["max_in_flight_requests_per_connection"],
            max_idle_s=settings["connections_max_idle_ms"] / 1000,
            receive_max_bytes=settings["receive_message_max_bytes"],
            connect_timeout_max_s=settings["socket_connection_setup_timeout_max_ms"] / 1000,
            software=(
                settings["client_software_name"] or SOFTWARE[0],
                settings["client_software_version"] or SOFTWARE[1],
            ),
            security=ClientSecurity.of(settings),
            options=ConnectionOptions(
                connect_timeout_s=settings["socket_connection_setup_timeout_ms"] / 1000,
                receive_buffer_bytes=settings["receive_buffer_bytes"],
                send_buffer_bytes=settings["send_buffer_bytes"],
                more=settings["socket_options"] or (),
            ),
        )


class Exchange:
    """One request of a caller, and the future of its response."""

    __slots__ = ("deadline", "future", "is_internal", "max_version", "min_version", "request", "sent_at", "timeout_s")

    def __init__(
        self,
        request: Request[Any] | ByVersion[Any],
        deadline: float,
        timeout_s: float,
        min_version: int | None = None,
        max_version: int | None = None,
        is_internal: bool = False,
    ) -> None:
        self.request = request
        self.future: Future[Any] = Future()
        self.deadline = deadline
        self.timeout_s = timeout_s
        self.min_version = min_version
        self.max_version = max_version
        self.is_internal = is_internal
        self.sent_at = 0.0
        """The monotonic instant at which it was sent; kept where somebody counts (:class:`Traffic`)."""

    @property
    def api(self) -> str:
        """The API's name, for messages to people."""
        request = self.request
        key = request.request_type.api_key if isinstance(request, ByVersion) else request.api_key
        return NAMES.get(key, str(key))


class Traffic(Protocol):
    """Somebody who counts requests (``metrics.py``). Called for each of them, so little may be done."""

    def sent(self, connection: BrokerConnection, exchange: Exchange, size_bytes: int) -> None:
        """It is handed to the transport; who counts sets ``exchange.sent_at``."""
        ...

    def answered(self, connection: BrokerConnection, exchange: Exchange, response: Response) -> None:
        """Its answer has come; the future is completed afterwards."""
        ...


class Owner(Protocol):
    """Whom a connection belongs to (``nodes.py``, ``bootstrap.py``)."""

    def address_of(self, node_id: NodeId) -> tuple[str, int] | None:
        """Host and port, as known now."""
        ...

    def greeting(self) -> Greeting | Discovery:
        """How a connection begins."""
        ...

    def on_ready(self, connection: BrokerConnection, discovery: Discovery) -> None:
        """It may be used."""
        ...

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        """It ended, or did not come about; not called for :meth:`BrokerConnection.close`."""
        ...

    def on_retired(self, connection: BrokerConnection, error: BaseException) -> None:
        """It was ended since nobody used it for long, which is no failure."""
        ...

    def on_answer(self, exchange: Exchange, response: Response) -> None:
        """A response has come; its future is completed afterwards."""
        ...
