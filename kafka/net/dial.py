"""Reaching a TCP server: the attempts on its addresses, one after the other, and the options of a socket.

    attempt --connected--> on_connected        attempt --refused, or too slow--> next address --none left--> on_failed

Addresses are not tried side by side ("happy eyeballs", RFC 8305): brokers have one address mostly, and a second
connection would count against the broker's quotas. Probably right; the place to change it is :meth:`Dial._try_next`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from kafka.net.loop import Loop, LoopTimer, Watch
from kafka.net.transport import Address, ConnectFailed, ConnectionOptions

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


class Dial:
    """The attempts to reach one of ``addresses``, in their order, each for ``options.connect_timeout_s``.

    Ends, on the loop, with one call: ``on_connected(socket, peer)``, or ``on_failed(ConnectFailed)``. The socket is the
    dial's until then.
    """

    def __init__(
        self,
        loop: Loop,
        addresses: Sequence[Address],
        options: ConnectionOptions,
        on_connected: Callable[[socket.socket, Address], object],
        on_failed: Callable[[ConnectFailed], object],
    ) -> None:
        self._loop = loop
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._left = deque(addresses)
        self._options = options
        self._errors: list[tuple[Address, OSError]] = []
        self._sock: socket.socket | None = None
        self._watch: Watch | None = None
        self._timer: LoopTimer | None = None
        self._try_next()

    def cancel(self) -> None:
        """Let go of the attempt under way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._left.clear()

    def _try_next(self) -> None:
        while self._left:
            address = self._left.popleft()
            try:
                self._attempt(address)
            except OSError as error:
                self._drop(address, error)
            else:
                return
        self._loop.call_soon(self._give_up)

    def _attempt(self, address: Address) -> None:
        self._sock = sock = socket.socket(address.family, socket.SOCK_STREAM)
        configure(sock, self._options)
        code = sock.connect_ex(address.sockaddr)
        if code and code not in _IN_PROGRESS:
            raise OSError(code, os.strerror(code))
        self._watch = self._loop.watch(sock, on_writable=lambda: self._decided(address))
        self._timer = self._loop.call_later(self._options.connect_timeout_s, self._timed_out, address)

    def _decided(self, address: Address) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            if code:
                raise OSError(code, os.strerror(code))
            peer = sock.getpeername()
            if peer == sock.getsockname():
                # Nobody listens, and the kernel chose that very port for our end: TCP then connects to itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself: nobody listens there")
        except OSError as error:
            self._drop(address, error)
            self._try_next()
            return
        self._sock = None
        self.cancel()
        self._on_connected(sock, Address(address.family, peer))

    def _timed_out(self, address: Address) -> None:
        text = f"no connection within {self._options.connect_timeout_s:g} s"
        self._drop(address, TimeoutError(errno.ETIMEDOUT, text))
        self._try_next()

    def _drop(self, address: Address, error: OSError) -> None:
        self._errors.append((address, error))
        left, self._left = self._left, deque()
        self.cancel()
        self._left = left

    def _give_up(self) -> None:
        self._on_failed(ConnectFailed(self._errors))


def configure(sock: socket.socket, options: ConnectionOptions) -> None:
    """Make a new socket non-blocking and give it its options."""
    sock.setblocking(False)
    set_buffers(sock, options)
    if options.no_delay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.keep_alive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in options.more:
        sock.setsockopt(*option)


def set_buffers(sock: socket.socket, options: ConnectionOptions) -> None:
    """The buffer sizes: before ``connect`` or ``listen``, since the window's scale is settled with the first packet."""
    if options.receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
    if options.send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
