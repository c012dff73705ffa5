"""The two ends of a request inside the broker, its connection and its response.

A response is complete at once or later (long polls, group commit). A request ends in one of three ways: a response,
silence (Produce with acks=0), or a closed connection, which is what Apache Kafka does with requests that it does not
know.

There is no authorizer, so the broker's answer to "authorized operations" (KIP-430) is always all operations of a kind
of resource: bit fields of Kafka's ``AclOperation`` numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka.errors import KafkaError
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.core.sasl.server import SaslServer
    from kafka.net.transport import Transport

_numbers = itertools.count(1)


class ConnectionContext:
    """A client's connection as handlers see it; sessions and delayed requests end with it. Hashed by identity.

    ``listener``: the name of the listener that accepted it. ``sasl``: authenticates it, on a listener with SASL.
    ``software``: the client's name and version, from ApiVersions.
    """

    __slots__ = ("_cancel", "host", "listener", "local_host", "number", "port", "sasl", "software")

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        local_host: str | None = None,
        listener: str | None = None,
        sasl: SaslServer | None = None,
    ) -> None:
        self.number = next(_numbers)
        self.host = host
        self.port = port
        self.local_host = local_host
        self.listener = listener
        self.sasl = sasl
        self.software: tuple[str, str] = ("unknown", "unknown")
        self._cancel: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<ConnectionContext {self.number} from {self.host}:{self.port}>"

    def set_addresses(self, peer: tuple[str, int] | None, local_host: str | None) -> None:
        """The two ends of the connection, as far as they are known."""
        if peer is not None:
            self.host, self.port = peer
        if local_host is not None:
            self.local_host = local_host

    def set_software(self, name: str, version: str) -> None:
        """The client's name and version."""
        self.software = name, version

    @property
    def has_pending(self) -> bool:
        """Whether a request of this connection is delayed."""
        return self._cancel is not None

    def set_pending(self, cancel: Callable[[], None]) -> None:
        """A request is delayed; ``cancel`` is called if the connection ends before its response."""
        self._cancel = cancel

    def clear_pending(self, cancel: Callable[[], None] | None = None) -> None:
        """The delayed request has its response; with ``cancel``: only if that is still the one that was set."""
        if cancel is None or self._cancel is cancel:
            self._cancel = None

    def cancel_pending(self) -> None:
        """The connection has ended: cancel its delayed request, if there is one."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()


class PendingResponse:
    """The outcome of a request. Look at ``done`` first; if it is not set, :meth:`call_when_done`."""

    __slots__ = ("_on_done", "after_send", "done", "hang_up", "response", "token", "transform", "version")

    def __init__(self) -> None:
        self.done = False
        self.response: Response | None = None
        self.hang_up = False
        """Whether the connection is closed instead of a response."""
        self.version: int | None = None
        """The response's version where that is not the request's."""
        self.token: bytes | None = None
        """Instead of a response: bytes for a frame without a header (SASL)."""
        self.transform: Callable[[list[BytesLike]], list[BytesLike]] | None = None
        """A fault: changes the response's bytes."""
        self.after_send: Callable[[Transport], object] | None = None
        """Called with the transport after the response is written, or before the connection is closed instead."""
        self._on_done: Callable[[PendingResponse], None] | None = None

    @classmethod
    def of(cls, response: Response | None, version: int | None = None, token: bytes | None = None) -> PendingResponse:
        """A complete response; None: silence."""
        reply = cls()
        reply.response = response
        reply.version = version
        reply.token = token
        reply.done = True
        return reply

    @classmethod
    def hanging_up(cls) -> PendingResponse:
        """A complete response that closes the connection."""
        reply = cls()
        reply.hang_up = reply.done = True
        return reply

    def call_when_done(self, callback: Callable[[PendingResponse], None]) -> None:
        """Call ``callback`` once, when it is complete, which it is not yet."""
        self._on_done = callback

    def complete(self, response: Response | None, *, version: int | None = None, hang_up: bool = False) -> None:
        """End it with a response, with silence, or by closing the connection."""
        self.response = response
        self.version = self.version if version is None else version
        self.hang_up = self.hang_up or hang_up
        self.done = True
        if self._on_done is not None:
            self._on_done(self)

    def complete_like(self, other: PendingResponse, *, hang_up: bool = False) -> None:
        """End it as ``other`` has ended; ``hang_up``: close the connection in any case."""
        self.complete(other.response, version=other.version, hang_up=other.hang_up or hang_up)

    def close_after_send(self, close: Callable[[Transport], object], *, hang_up: bool = False) -> None:
        """Call ``close`` after the response is written, or, with ``hang_up``, instead of a response."""
        self.after_send = close
        self.hang_up = hang_up

    def transform_bytes(self, transform: Callable[[list[BytesLike]], list[BytesLike]]) -> None:
        """Send what ``transform`` makes of the response's bytes."""
        self.transform = transform


# -- error codes and authorized operations -----------------------------------------------------------------------------


def error_code(error: KafkaError | type[KafkaError] | None) -> int:
    """Kafka's code of an error or of a kind of errors: -1 (UNKNOWN_SERVER_ERROR) where it has none, 0 for no error."""
    if error is None:
        return 0
    code = getattr(error, "errno", None)
    return -1 if code is None else int(code)


def error_text(error: KafkaError) -> str:
    """The error's text for a response's error message."""
    return str(error.args[0]) if error.args else getattr(error, "message", "")


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""In a response to a client that did not request the authorized operations."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS: Final = _bits(
    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
ALL_CLUSTER_OPERATIONS: Final = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
ALL_GROUP_OPERATIONS: Final = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
