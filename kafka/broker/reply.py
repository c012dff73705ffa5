"""The two ends of a request inside the broker: the connection that it came on, the reply that goes back.

A reply is done at once or later (long polls, group commit). It ends in one of three ways: a response, silence (Produce
with acks=0), or hanging up, which is what Apache Kafka does with requests that it does not know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.core.sasl.server import SaslServer
    from kafka.net.transport import Transport

_numbers = itertools.count(1)


class Connection:
    """A client's connection as handlers see it; sessions and parked requests end with it. Hashed by identity.

    ``parked``: what is to be called when the connection ends before its pending request is answered. ``listener``: the
    name of the one that it came to. ``sasl``: what lets its requests pass, on a listener with SASL. ``software``: the
    client's name and version, as ApiVersions has told them.
    """

    __slots__ = ("host", "listener", "local_host", "number", "parked", "port", "sasl", "software")

    def __init__(self, host: str = "127.0.0.1", port: int = 0, local_host: str | None = None) -> None:
        self.number = next(_numbers)
        self.host = host
        self.port = port
        self.local_host = local_host
        self.parked: Callable[[], None] | None = None
        self.listener: str | None = None
        self.sasl: SaslServer | None = None
        self.software: tuple[str, str] = ("unknown", "unknown")

    def __repr__(self) -> str:
        return f"<Connection {self.number} from {self.host}:{self.port}>"


class Reply:
    """What becomes of a request. ``on_done`` is called once, when it is set before the end; look at ``done`` first."""

    __slots__ = ("and_then", "done", "hang_up", "mangle", "on_done", "response", "token", "version")

    def __init__(self) -> None:
        self.done = False
        self.response: Response | None = None
        self.hang_up = False
        self.version: int | None = None
        """The response's version where that is not the request's."""
        self.token: bytes | None = None
        """Instead of a response: bytes for a frame without a header (SASL)."""
        self.on_done: Callable[[Reply], None] | None = None
        self.mangle: Callable[[list[BytesLike]], list[BytesLike]] | None = None
        """A fault: what becomes of the answer's bytes."""
        self.and_then: Callable[[Transport], object] | None = None
        """A fault: what becomes of the connection behind the answer, or instead of a good end."""

    @classmethod
    def of(cls, response: Response | None, version: int | None = None) -> Reply:
        """A reply that is there at once; None: silence."""
        reply = cls()
        reply.response = response
        reply.version = version
        reply.done = True
        return reply

    @classmethod
    def hanging_up(cls) -> Reply:
        """A reply that ends the connection."""
        reply = cls()
        reply.hang_up = reply.done = True
        return reply

    def complete(self, response: Response | None) -> None:
        """End it with a response, or with silence."""
        self.response = response
        self.done = True
        if self.on_done is not None:
            self.on_done(self)
