"""What the broker has been asked: the last requests, in order, for tests to look at and to wait for.

Only the topics and partitions of a request are kept; its records would stay in memory with it. The log has a limit in
bytes, too (:data:`MOST_BYTES`), because a client may send thousands of long names. Recording begins with
:meth:`~kafka.broker.faults.Faults.record`, which ``kafka.testing`` calls.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final, NamedTuple

from kafka.broker.faults.targets import NameOf, Target, targets
from kafka.broker.responses import ConnectionContext
from kafka.protocol.framing import ReceivedRequest, UnknownRequest
from kafka.protocol.registry import NAMES

MOST_KEPT: Final = 10_000
MOST_TARGETS: Final = 1000
MOST_BYTES: Final = 8 << 20
"""Of all requests that are kept: their texts, and about what the objects around these take."""

_REQUEST_BYTES: Final = 256
_TARGET_BYTES: Final = 128


class SeenRequest(NamedTuple):
    """One request. ``number`` counts from 1; ``at`` is the broker's time of day in s; ``peer``: ``"host:port"``."""

    number: int
    api: str
    version: int
    client_id: str | None
    peer: str
    connection: int
    at: float
    partitions: tuple[Target, ...]
    """The topics and partitions that it names, the first thousand of them."""

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        texts = len(self.client_id or "") + sum(map(len, self.topics))
        return _REQUEST_BYTES + _TARGET_BYTES * len(self.partitions) + texts

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it names."""
        return tuple(dict.fromkeys(target.topic for target in self.partitions))

    def to_json(self) -> list[Any]:
        """As what ``json`` takes."""
        return list(self)

    @classmethod
    def from_json(cls, plain: list[Any]) -> SeenRequest:
        """The request that :meth:`to_json` was asked of."""
        return cls._make([*plain[:-1], tuple(Target(*each) for each in plain[-1])])


class RequestLog:
    """The last ``most`` requests, and fewer when they take more than ``most_bytes``."""

    def __init__(self, most: int = MOST_KEPT, most_bytes: int = MOST_BYTES) -> None:
        self.requests: deque[SeenRequest] = deque()
        self.most = most
        self.most_bytes = most_bytes
        self._bytes = 0
        self.count = 0
        """How many there were, since the beginning."""

    def add(
        self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest, epoch_s: float, name_of: NameOf
    ) -> None:
        """A request has come."""
        self.count += 1
        found: tuple[Target, ...] = ()
        if isinstance(received, ReceivedRequest):
            key, version = received.request.api_key, received.version
            found = tuple(islice(targets(received.request, name_of), MOST_TARGETS))
        else:
            key, version = received.api_key, received.api_version
        name = NAMES.get(key, str(key))
        peer = f"{connection.host}:{connection.port}"
        seen = SeenRequest(self.count, name, version, received.client_id, peer, connection.number, epoch_s, found)
        self.requests.append(seen)
        self._bytes += seen.size_bytes
        while len(self.requests) > self.most or (self._bytes > self.most_bytes and len(self.requests) > 1):
            self._bytes -= self.requests.popleft().size_bytes

    def clear(self) -> None:
        """Forget them; the count goes on."""
        self.requests.clear()
        self._bytes = 0
