"""Keeps the cluster's metadata fresh: asks whenever ``ClusterMetadata.ttl()`` says so.

    due --a node is free--> request --answer--> update_metadata --ttl passes, or request_update()--> due
                                    --failure-> failed_update   --back-off--> due
"""

from __future__ import annotations

from collections.abc import Callable

from kafka.client.cluster import ClusterMetadata
from kafka.core.dialogue import ByVersion
from kafka.errors import Cancelled, IllegalStateError
from kafka.future import Future
from kafka.net.loop import Loop, LoopTimer
from kafka.protocol.metadata import MetadataResponse

Ask = Callable[[ByVersion[MetadataResponse]], "Future[MetadataResponse]"]
"""Sends the request to some node."""


class MetadataRefresher:
    """One request at a time."""

    def __init__(self, loop: Loop, cluster: ClusterMetadata, ask: Ask, on_updated: Callable[[], object]) -> None:
        self._loop = loop
        self._cluster = cluster
        self._ask = ask
        self._on_updated = on_updated
        self._timer: LoopTimer | None = None
        self._is_closed = False
        cluster.on_request_update = self.check

    def check(self) -> None:
        """Ask now when it is due, else later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or self._cluster.metadata_refresh_in_progress:
            return
        wait_s = self._cluster.ttl() / 1000
        # By a timer even when it is due: who asks for an update is never called back inside that call.
        self._timer = self._loop.call_later(wait_s, self._begin)

    def close(self) -> None:
        """Ask no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if self._cluster.metadata_refresh_in_progress or self._cluster.ttl() > 0:
            self.check()
            return
        future = self._ask(self._cluster.metadata_request())
        future.add_callback(self._answered)
        future.add_errback(self._failed)

    def _answered(self, response: MetadataResponse) -> None:
        self._cluster.update_metadata(response)
        self._on_updated()
        self.check()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, (Cancelled, IllegalStateError)) and self._is_closed:
            return
        self._cluster.failed_update(error)
        self.check()
