"""Keeps the cluster's metadata fresh: asks whenever ``ClusterMetadata.ttl()`` says so.

    due --a node is free--> request --answer--> update_metadata --ttl passes, or request_update()--> due
                                    --failure-> failed_update   --back-off--> due

It also says when the brokers that are known are not to be believed any more (KIP-1102): when the metadata could not be
read for ``metadata_recovery_rebootstrap_trigger_ms``, counted from the first attempt after the last success, and when a
broker answers REBOOTSTRAP_REQUIRED. What follows is the router's (``Router.rebootstrap``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafka.client.cluster import ClusterMetadata
from kafka.core.dialogue import ByVersion
from kafka.errors import Cancelled, IllegalStateError, RebootstrapRequiredError
from kafka.future import Future
from kafka.net.loop import Loop, LoopTimer
from kafka.protocol.metadata import MetadataResponse

Ask = Callable[[ByVersion[MetadataResponse]], "Future[MetadataResponse]"]
"""Sends the request to some node."""

REBOOTSTRAP_REQUIRED: Final = RebootstrapRequiredError.errno


class MetadataRefresher:
    """One request at a time. ``rebootstrap(why)``: the known brokers are not to be believed; None: they always are.
    ``trigger_s``: how long metadata may be wanted in vain before that."""

    def __init__(
        self,
        loop: Loop,
        cluster: ClusterMetadata,
        ask: Ask,
        on_updated: Callable[[], object],
        rebootstrap: Callable[[str], object] | None = None,
        trigger_s: float = 300.0,
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._ask = ask
        self._on_updated = on_updated
        self._rebootstrap = rebootstrap
        self._trigger_s = trigger_s
        self._timer: LoopTimer | None = None
        self._patience: LoopTimer | None = None
        """Runs from the first attempt on until one succeeds."""
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
        self._end_patience()

    def _begin(self) -> None:
        self._timer = None
        if self._cluster.metadata_refresh_in_progress or self._cluster.ttl() > 0:
            self.check()
            return
        if self._patience is None and self._rebootstrap is not None:
            self._patience = self._loop.call_later(self._trigger_s, self._lose_patience)
        future = self._ask(self._cluster.metadata_request())
        future.add_callback(self._answered)
        future.add_errback(self._failed)

    def _answered(self, response: MetadataResponse) -> None:
        self._cluster.update_metadata(response)
        if response.error_code == REBOOTSTRAP_REQUIRED:
            self._recover("a broker said that it is required")
        elif not self._cluster.is_failing:
            self._end_patience()
            self._create(self._cluster.missing_topics())
        self._on_updated()
        self.check()

    def _create(self, topics: list[str]) -> None:
        """By a request of its own, since the one for everything names topics that are not to be made. One that fails
        is sent again after the next refresh, which whoever needs the topics asks for."""
        if topics and not self._is_closed:
            self._ask(self._cluster.creating_request(topics)).add_callback(self._cluster.created)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, (Cancelled, IllegalStateError)) and self._is_closed:
            return
        self._cluster.failed_update(error)
        self.check()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        self._recover(f"no metadata could be read for {self._trigger_s:g} s")

    def _recover(self, why: str) -> None:
        """Java's clients count from here anew; so does this, with the next attempt."""
        self._end_patience()
        if self._rebootstrap is not None and not self._is_closed:
            self._rebootstrap(why)
