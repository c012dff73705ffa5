"""What users' threads do with the inbox: take records, say what became of them, hear the answers.

The public class checks arguments and states; this is the way from there to the loop and back.
"""

from __future__ import annotations

from time import monotonic

from kafka.client import Host
from kafka.core.share.holding import Acknowledged
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.errors import IllegalStateError
from kafka.share.engine import ShareEngine
from kafka.share.events import Events, call_back
from kafka.share.inbox import Inbox
from kafka.share.metrics import ShareMetrics
from kafka.share.reading import Deserializers


class Polling:
    """Any thread but the loop's. ``is_implicit``: what was taken is accepted by the next :meth:`take`, commit or close.

    ``exactly``: never ask for more than is wanted (record-limit mode).
    """

    def __init__(
        self,
        host: Host,
        engine: ShareEngine,
        inbox: Inbox,
        events: Events,
        deserializers: Deserializers,
        metrics: ShareMetrics | None,
        *,
        is_implicit: bool,
        exactly: bool,
    ) -> None:
        self.is_implicit = is_implicit
        self._host = host
        self._engine = engine
        self._inbox = inbox
        self._events = events
        self._deserializers = deserializers
        self._metrics = metrics
        self._exactly = exactly

    def take(self, count: int, wanted: int, timeout_s: float) -> list[ShareRecord]:
        """At most ``count`` records, deserialized; when there is none, ``wanted`` are asked for and waited for."""
        self.accept_polled()
        give_up_at = monotonic() + timeout_s
        began = self._metrics.poll_began() if self._metrics is not None else 0.0
        try:
            while True:
                self.call_back()
                left_s = max(give_up_at - monotonic(), 0.0)
                taken = self._inbox.take(count, left_s, lambda: self._want(wanted))
                if taken is not None:
                    break
            found = self._deserializers.read(taken, self._release)
        finally:
            if self._metrics is not None:
                self._metrics.poll_ended(began)
        if self.is_implicit:
            self._inbox.returned(found)
        return found

    def accept_polled(self) -> None:
        """In implicit mode: accept what was taken and is not settled."""
        if self.is_implicit and self._inbox.accept_polled():
            self._host.submit(self._say_on_loop)

    def say(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a record. IllegalStateError as of :meth:`Inbox.say`."""
        if self._inbox.say(record, kind):
            self._host.submit(self._say_on_loop)

    def call_back(self) -> None:
        """Tell the commit callback what has been answered, in this thread; what it raises comes through."""
        answered = self._inbox.take_answered()
        callback = self._events.commit_callback
        if answered and callback is not None:
            call_back(callback, answered)

    def _want(self, count: int) -> None:
        self._host.submit(self._engine.request_records, count, self._exactly)

    def _release(self, record: ShareRecord) -> None:
        self.say(record, AcknowledgeType.RELEASE)

    def _say_on_loop(self) -> None:
        for record, kind in self._inbox.take_said():
            try:
                self._engine.acknowledge(record, kind)
            except IllegalStateError as error:  # the lock went while it was on its way here
                self._inbox.heard([Acknowledged(record, kind, error)], self._events.commit_callback is not None)
