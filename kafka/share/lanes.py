"""The connection that carries one share session, and the next one while it is being made.

A broker ties a session to the connection that opened it and remembers one session for each, so the session has a lane
of the client's to itself: two members never share one, whatever client they live on. When the connection ends, the
broker frees the session's locks; so a connection that is about to be closed for having been idle is not let go before
its session was opened on another one (make before break). Measured on Apache Kafka 4.3.0: the locks belong to the
member, and closing the former connection afterwards frees none.

    in use --idle for long, something held--> a second is made --ready--> the session opens there --> the first ends

What goes over it is ``link.py``'s affair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.future import Future
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.wire.message import Request

IDLE_SHARE: Final = 0.8
"""Of ``connections_max_idle_ms``: when a connection that holds something is replaced."""

_OLDEST_VERSION: Final = 2
"""Of ShareFetch and ShareAcknowledge: record-limit mode and renewals came with Apache Kafka 4.2."""

_numbers = itertools.count()


class Lanes:
    """A session's connections to one node, on the loop's thread.

    ``on_lost``: the connection in use has ended, with or without a request on it. ``on_news``: the next one is ready,
    or could not be made.
    """

    def __init__(
        self,
        client: KafkaClient,
        node_id: int,
        on_lost: Callable[[KafkaError], object],
        on_news: Callable[[], object],
    ) -> None:
        self.replaced = 0
        """How many times a connection was exchanged for another."""
        self._client = client
        self._max_idle_s: float = client.config["connections_max_idle_ms"] / 1000
        self._node_id = node_id
        self._on_lost = on_lost
        self._on_news = on_news
        self._used_at = client.loop.time()
        self._next: str | None = None
        self._next_is_ready = False
        self._former: str | None = None
        self._name = self._open()

    def request(self, request: Request[Any]) -> Future[Any]:
        """Send it over the connection in use."""
        self._used_at = self._client.loop.time()
        try:
            return self._client.request(self._node_id, request, lane=self._name, min_version=_OLDEST_VERSION)
        except KafkaError as error:  # the client is closed
            return Future[Any]().failure(error)

    @property
    def used_at(self) -> float:
        """When the last request went out."""
        return self._used_at

    # -- the next one --------------------------------------------------------------------------------------------------

    def replace_at(self) -> float:
        """When the connection will have been idle for long."""
        return self._used_at + IDLE_SHARE * self._max_idle_s

    def prepare(self) -> None:
        """Make the next connection, while this one stays in use. Nothing when that is under way."""
        if self._next is not None:
            return
        name = self._next = self._open()
        try:
            made = self._client.request(self._node_id, ApiVersionsRequest(), lane=name)
        except KafkaError as error:
            made = Future[Any]().failure(error)
        made.add_callback(self._made, name=name)
        made.add_errback(self._not_made, name=name)

    @property
    def is_next_ready(self) -> bool:
        """The next connection may be used."""
        return self._next_is_ready

    def switch(self) -> None:
        """Use the next connection from now on; the former stays until :meth:`close_former`."""
        assert self._next is not None
        self._former, self._name, self._next = self._name, self._next, None
        self._next_is_ready = False
        self._used_at = self._client.loop.time()
        self.replaced += 1

    def close_former(self) -> None:
        """The session stands on the connection in use."""
        if self._former is not None:
            former, self._former = self._former, None
            self._shut(former)

    # -- the end -------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection in use, so that the broker frees what is held; the next request makes another."""
        self.close_former()
        self._client.close_lane(self._name, self._node_id)

    def close(self) -> None:
        """Close them all."""
        for name in (self._name, self._next, self._former):
            if name is not None:
                self._shut(name)
        self._next = self._former = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self) -> str:
        name = f"share-{next(_numbers)}"
        self._client.watch_lane(name, lambda error: self._lost(name, error))
        return name

    def _shut(self, name: str) -> None:
        self._client.watch_lane(name, None)
        self._client.close_lane(name, self._node_id)

    def _made(self, _: object, name: str) -> None:
        if self._next == name:
            self._next_is_ready = True
            self._on_news()

    def _not_made(self, error: BaseException, name: str) -> None:
        if self._next == name:
            self._next = None
            self._shut(name)
            self._used_at += (1 - IDLE_SHARE) / 4 * self._max_idle_s  # again a little later, and not at once
            self._on_news()

    def _lost(self, name: str, error: BaseException) -> None:
        if name == self._name:
            self._on_lost(error if isinstance(error, KafkaError) else KafkaConnectionError(repr(error)))
        elif name == self._next and self._next_is_ready:  # else the request that makes it fails, and says so
            self._next_is_ready = False
            self._not_made(error, name)
