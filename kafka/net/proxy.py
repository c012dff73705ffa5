"""Connections through a proxy: a network on top of another, below TLS.

    connect(addresses) -> the proxy's address is looked up -> for each target: connect to the proxy, shake hands
                              the proxy opens the way --> connected(), and from there on bytes pass unchanged
                              it refuses, or is too slow -> the next target; none left: closed(ConnectFailed)

What is said to the proxy is in ``proxy_handshakes.py``. Names are the proxy's to look up for ``socks5h`` and ``http``:
then a target is an address of the family :data:`NAMED`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from typing import Final

from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.proxy_handshakes import HANDSHAKES, Handshake, Proxy, ProxyError, parse_proxy
from kafka.net.resolve import fault_of_server
from kafka.net.transport import (
    DEFAULT_OPTIONS,
    Accept,
    Address,
    BytesLike,
    ConnectFailed,
    ConnectionOptions,
    Listener,
    Network,
    PeerClosed,
    Transport,
    TransportHandler,
)

__all__ = ["NAMED", "Proxy", "ProxiedTransport", "ProxyError", "ProxyNetwork", "parse_proxy"]

NAMED: Final = -1
"""The family of an address whose host is a name that the proxy is to look up."""


class ProxyNetwork:
    """``network`` seen through ``proxy``: what connects goes through it, what listens does not."""

    def __init__(self, network: Network, proxy: Proxy) -> None:
        self.loop: Loop = network.loop
        self.network = network
        self.proxy = proxy

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        if self.proxy.resolves_names:
            fault = fault_of_server(host, port)
            if fault is not None:
                return Future[list[Address]]().failure(fault)
            return Future[list[Address]]().success([Address(NAMED, (host, port))])
        return self.network.resolve(host, port)

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> ProxiedTransport:
        transport = ProxiedTransport(self, handler, addresses, options)
        self.loop.call_soon(transport.try_next)
        return transport

    def listen(self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS) -> Listener:
        return self.network.listen(host, port, accept, options)

    def close(self) -> None:
        """End all that the network below has."""
        self.network.close()


class ProxiedTransport(Transport):
    """One connection through the proxy. ``peer`` is the proxy's address: the target's is the proxy's affair."""

    def __init__(
        self,
        network: ProxyNetwork,
        handler: TransportHandler,
        addresses: Sequence[Address],
        options: ConnectionOptions,
    ) -> None:
        self.handler: TransportHandler | None = handler
        self.network = network
        self.options = options
        self._left = deque(addresses)
        self._errors: list[tuple[Address, OSError]] = []
        self._attempt: _Attempt | None = None
        self._under: Transport | None = None
        """The way to the target, once it is open."""
        self._early: list[BytesLike] = []
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<ProxiedTransport through {self.network.proxy} {'open' if self._under else 'connecting'}>"

    @property
    def pending_bytes(self) -> int:  # type: ignore[override]  # an attribute elsewhere; here the other transport knows
        return sum(map(len, self._early)) if self._under is None else self._under.pending_bytes

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        if self.is_closing:
            return
        if self._under is not None:
            self._under.write(data)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            self._early.append(data)
        else:
            self._early += data

    def close(self) -> None:
        if self._under is not None:
            self.is_closing = True
            self._under.close()
        else:
            self.abort()

    def abort(self, error: BaseException | None = None) -> None:
        if self._under is not None:
            self.is_closing = True
            self._under.abort(error)
        elif not self.is_closing:
            self.is_closing = True
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                attempt.cancel()
            self.network.loop.call_soon(self.ended, error)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._under is not None:
            self._under.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._under is not None:
            self._under.resume_reading()

    # -- told by attempts, on the loop ---------------------------------------------------------------------------------

    def try_next(self) -> None:
        """Go for the next target."""
        if self.is_closing:
            return
        if not self._left:
            self.is_closing = True
            self.ended(ConnectFailed(self._errors))
            return
        target, proxy = self._left.popleft(), self.network.proxy
        try:
            handshake = HANDSHAKES[proxy.scheme](proxy, str(target.sockaddr[0]), target.port)
        except ProxyError as error:
            self.failed(target, error)
            return
        self._attempt = _Attempt(self, target, handshake)

    def failed(self, target: Address, error: OSError) -> None:
        """The proxy cannot be reached, refuses, or is too slow."""
        self._attempt = None
        self._errors.append((target, error))
        self.try_next()

    def opened(self, under: Transport, rest: bytes) -> None:
        """The proxy has opened the way."""
        handler = self.handler
        assert handler is not None
        self._under, self._attempt = under, None
        self.peer, self.local = under.peer, under.local
        if self._is_paused:
            under.pause_reading()
        early, self._early = self._early, []
        if early:
            under.write(early)
        handler.connected()
        if rest and not self.is_closing:
            handler.data_received(rest)

    def ended(self, error: BaseException | None) -> None:
        """This is over; the handler hears it, once."""
        self.is_closing = True
        self._early = []
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed(error)


class _Attempt(TransportHandler):
    """One connection to the proxy for one target; the handler of the network below."""

    def __init__(self, transport: ProxiedTransport, target: Address, handshake: Handshake) -> None:
        network = transport.network
        self._transport = transport
        self._target = target
        self._under: Transport | None = None
        self._handshake: Handshake | None = handshake
        self._is_over = False
        self._timer = network.loop.call_later(transport.options.connect_timeout_s, self._too_late)
        network.network.resolve(network.proxy.host, network.proxy.port).add_both(self._resolved)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._is_over = True
        self._timer.cancel()
        if self._under is not None:
            self._under.abort()

    def _resolved(self, outcome: list[Address] | BaseException) -> None:
        if self._is_over:
            return
        if isinstance(outcome, BaseException):
            self._transport.network.loop.call_soon(self._fail, _as_os_error(outcome))
            return
        self._under = self._transport.network.network.connect(outcome, self, self._transport.options)

    def _too_late(self) -> None:
        text = f"the proxy has not connected within {self._transport.options.connect_timeout_s:g} s"
        self._fail(TimeoutError(errno.ETIMEDOUT, text))

    def _fail(self, error: OSError) -> None:
        if not self._is_over:
            self.cancel()
            self._transport.failed(self._target, error)

    # -- from the network below ----------------------------------------------------------------------------------------

    def connected(self) -> None:
        if not self._is_over:
            assert self._under is not None and self._handshake is not None
            self._under.write(self._handshake.begin())

    def data_received(self, data: bytes) -> None:
        handshake = self._handshake
        if handshake is None:
            handler = self._transport.handler
            if handler is not None:
                handler.data_received(data)
            return
        if self._is_over:
            return
        assert self._under is not None
        try:
            answer = handshake.receive(data)
        except ProxyError as error:
            self._fail(error)
            return
        if answer:
            self._under.write(answer)
        if handshake.is_done:
            self._handshake = None
            self._timer.cancel()
            self._transport.opened(self._under, handshake.rest)

    def writable(self) -> None:
        handler = self._transport.handler
        if self._handshake is None and handler is not None:
            handler.writable()

    def closed(self, error: BaseException | None) -> None:
        if self._handshake is None:
            self._transport.ended(error)
        elif isinstance(error, PeerClosed):
            proxy = self._transport.network.proxy
            self._fail(ProxyError(f"proxy {proxy}: it closed the connection instead of connecting to {self._target}"))
        else:
            self._fail(_as_os_error(error))


def _as_os_error(error: BaseException | None) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(str(error))
