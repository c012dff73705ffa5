"""Our end of a broker's remote control: commands out, answers in, from any thread.

The other end and the lines that pass are described in the broker's ``control.py``. One daemon thread reads; each caller
waits for the answer to its own command. A broker that ends takes the line along: who waits then gets
:class:`BrokerGoneError`, and who waits for something that cannot come any more need not sit out its time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError

ANSWER_TIMEOUT_S = 20.0
"""A broker that is stopped or hangs does not answer."""


class BrokerGoneError(IllegalStateError):
    """The broker has ended, so it cannot be asked."""


class _Pending:
    """One command that has no answer yet."""

    __slots__ = ("answer", "come")

    def __init__(self) -> None:
        self.come = threading.Event()
        self.answer: dict[str, Any] | None = None


class Channel:
    """``on_hits`` is called with ``{rule: (seen, hits)}`` on the reading thread."""

    def __init__(self, on_hits: Callable[[dict[int, tuple[int, int]]], object]) -> None:
        self._ours, self.theirs = socket.socketpair()
        """``theirs``: for the broker; the caller closes its copy when the broker has one."""
        self._on_hits = on_hits
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._reader = threading.Thread(target=self._read, name="embedded-broker-control", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def post(self, command: str, **values: Any) -> None:
        """Send a command and wait for nothing; a broker that has not begun to serve does it first."""
        self._send(command, values, None)

    def ask(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S, **values: Any) -> Any:
        """Send a command and wait for its answer. IllegalArgumentError: the broker refuses it; BrokerGoneError;
        KafkaTimeoutError: there is no answer within ``timeout_s``."""
        pending = _Pending()
        number = self._send(command, values, pending)
        if not pending.come.wait(timeout_s):
            with self._lock:
                self._pending.pop(number, None)
            if not pending.come.is_set():
                with contextlib.suppress(BrokerGoneError):
                    self.post("forget", what=number)
                raise KafkaTimeoutError(f"it has not come about within {timeout_s:g} s")
        if pending.answer is None:
            raise BrokerGoneError("the broker has ended")
        if "error" in pending.answer:
            raise IllegalArgumentError(pending.answer["error"])
        return pending.answer["is"]

    def close(self) -> None:
        """Let go. Any number of times."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._ours.close()
        self.theirs.close()

    def drain(self) -> None:
        """The broker has ended: take in what it said last, then let go."""
        self.theirs.close()
        self._reader.join(ANSWER_TIMEOUT_S)
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _send(self, command: str, values: dict[str, Any], pending: _Pending | None) -> int:
        number = next(self._numbers)
        line = json.dumps({"id": number, "do": command, "with": values}).encode() + b"\n"
        with self._lock:
            if not self._is_open:
                raise BrokerGoneError("the broker has ended")
            if pending is not None:
                self._pending[number] = pending
            with contextlib.suppress(OSError):  # it is gone: the reading thread says so
                self._ours.sendall(line)
        return number

    def _read(self) -> None:
        data = b""
        while True:
            try:
                more = self._ours.recv(65536)
            except OSError:
                more = b""
            if not more:
                break
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        with self._lock:
            self._is_open = False
            pending, self._pending = self._pending, {}
        for each in pending.values():
            each.come.set()

    def _take(self, message: dict[str, Any]) -> None:
        if "hits" in message:
            self._on_hits({int(number): (seen, hits) for number, (seen, hits) in message["hits"].items()})
            return
        with self._lock:
            pending = self._pending.pop(message["id"], None)
        if pending is not None:
            pending.answer = message
            pending.come.set()
