"""The transport of a connection: its server looked up, dialled with what security wants around it, and dropped.

One at a time. What a former transport still has to say is not heard: each has a number, and only the last one counts.
When to dial again is ``connection.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka.client.faults import reason
from kafka.client.inquiry import Inquiry
from kafka.client.link import LinkSettings
from kafka.core.retry import Backoff, Rng
from kafka.errors import AuthenticationError, KafkaConnectionError, KafkaError
from kafka.net.transport import Address, Network, TlsCutOff, Transport, TransportHandler


class LineUser(Protocol):
    """What a line tells its connection: a transport handler's calls, and that there will be none."""

    @property
    def name(self) -> str: ...

    def stands(self) -> None:
        """The transport is connected."""
        ...

    def data_received(self, data: bytes) -> None: ...

    def get_buffer(self) -> memoryview | None: ...

    def buffer_updated(self, count: int) -> None: ...

    def missing_bytes(self) -> int: ...

    def writable(self) -> None: ...

    def closed(self, error: BaseException | None, refusal: AuthenticationError | None = None) -> None:
        """The transport has ended. ``refusal``: why it will again, if that could be found out."""
        ...

    def not_dialled(self, error: KafkaError) -> None:
        """The server's name could not be looked up. On the loop."""
        ...


class Line:
    """``transport`` is None while there is none; ``where`` is the server of the last attempt."""

    def __init__(self, user: LineUser, network: Network, settings: LinkSettings, rng: Rng) -> None:
        self.transport: Transport | None = None
        self.where: tuple[str, int] | None = None
        self._user = user
        self._network = network
        self._settings = settings
        self._setup_time = Backoff(settings.options.connect_timeout_s, settings.connect_timeout_max_s, rng)
        self._number = 0
        self._addresses: list[Address] = []

    def dial(self, where: tuple[str, int], failures: int) -> None:
        """Begin a transport to ``where``, after so many failures in a row."""
        self.where = where
        self._number += 1
        number = self._number
        self._network.resolve(*where).add_both(lambda outcome: self._resolved(number, where[0], failures, outcome))

    def _resolved(self, number: int, host: str, failures: int, outcome: list[Address] | BaseException) -> None:
        if number != self._number:
            return
        if isinstance(outcome, BaseException):
            error = KafkaConnectionError(f"{self._user.name}: {reason(outcome)}")
            self._network.loop.call_soon(self._not_dialled, number, error)
            return
        timeout_s = self._setup_time.delay_s(failures + 1)  # longer after each failure in a row (KIP-601)
        # Another address first after each failure: one may take connections and serve none (KIP-302, KIP-602).
        first = failures % len(outcome)
        self._addresses = outcome[first:] + outcome[:first]
        options = self._settings.options._replace(connect_timeout_s=timeout_s)
        network = self._settings.security.network_for(self._network, host)
        self.transport = network.connect(self._addresses, _Handler(self, self._user, number), options)

    def inquire(self, tell: Callable[[AuthenticationError | None], object]) -> bool:
        """Ask the server what it wants, unless it has let us in before; whether that is done. ``tell`` is called once,
        with an error that says what does not fit, or None; never, when the line was closed or dialled meanwhile."""
        if self._settings.security.is_proven or not self._addresses:
            return False
        number = self._number

        def told(found: AuthenticationError | None) -> None:
            if number == self._number:
                tell(found)

        protocol = self._settings.security.protocol
        Inquiry(self._network, self._addresses, self._settings.options, protocol, told)
        return True

    def _ended(self, error: BaseException | None) -> None:
        """The transport has ended. A TLS handshake that was cut off is what a listener without TLS does."""
        self.forget()
        if not isinstance(error, TlsCutOff) or not self.inquire(lambda found: self._user.closed(error, found)):
            self._user.closed(error)

    def _not_dialled(self, number: int, error: KafkaError) -> None:
        if number == self._number:
            self._user.not_dialled(error)

    def forget(self) -> None:
        """The transport has ended by itself."""
        self.transport = None
        self._number += 1

    def drop(self) -> None:
        """End it now: what is on its way is lost."""
        transport = self.transport
        self.forget()
        if transport is not None:
            transport.abort()

    def close(self) -> None:
        """End it in good order."""
        transport = self.transport
        self.forget()
        if transport is not None:
            transport.close()


class _Handler(TransportHandler):
    """One transport's way to its connection."""

    __slots__ = ("_line", "_number", "_user")

    def __init__(self, line: Line, user: LineUser, number: int) -> None:
        self._line = line
        self._user = user
        self._number = number

    def connected(self) -> None:
        if self._number == self._line._number:
            self._user.stands()

    def data_received(self, data: bytes) -> None:
        if self._number == self._line._number:
            self._user.data_received(data)

    def get_buffer(self) -> memoryview | None:
        return self._user.get_buffer() if self._number == self._line._number else None

    def buffer_updated(self, count: int) -> None:
        if self._number == self._line._number:
            self._user.buffer_updated(count)

    def missing_bytes(self) -> int:
        return self._user.missing_bytes() if self._number == self._line._number else 0

    def writable(self) -> None:
        if self._number == self._line._number:
            self._user.writable()

    def closed(self, error: BaseException | None) -> None:
        if self._number == self._line._number:
            self._line._ended(error)
