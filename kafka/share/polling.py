"""What users' threads do with the inbox: take records, say what became of them, hear the answers.

The public class checks arguments and states; this is the way from there to the loop and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from kafka.client import Host
from kafka.core.share.holding import Answered
from kafka.core.share.records import AcknowledgeType, ShareRecord, runs
from kafka.errors import InvalidRecordStateError
from kafka.future import Future
from kafka.share.engine import ShareEngine
from kafka.share.events import Events, call_back
from kafka.share.inbox import Inbox
from kafka.share.metrics import ShareMetrics
from kafka.share.reading import Deserializers

SAY_AFTER_S: Final = 0.02
"""What iteration accepts is gathered for so long. Handed over one by one, each record cost a turn of the loop and often
a request: 13 us of CPU for each of 100 bytes, for 5 now (compiled; 18 for 7 in plain Python)."""

COUNT_AFTER_S: Final = 1.0
"""As often iteration counts as a poll, in metrics, while records are at hand."""


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
        self._is_say_due = False
        self._took_at = 0.0

    def take(self, count: int, wanted: int, timeout_s: float) -> list[ShareRecord]:
        """At most ``count`` records, deserialized; when there is none, ``wanted`` are asked for and waited for."""
        self._took_at = monotonic()
        give_up_at = self._took_at + timeout_s
        began = self._metrics.poll_began() if self._metrics is not None else 0.0
        has_to_say = self.is_implicit and self._inbox.accept_polled()

        def want() -> None:
            nonlocal has_to_say
            self._host.submit(self._after_said, self._engine.request_records, wanted, self._exactly, True)
            has_to_say = False

        try:
            while True:
                self.call_back()
                left_s = max(give_up_at - monotonic(), 0.0)
                taken = self._inbox.take(count, left_s, want)
                if taken is not None:
                    break
            found = self._deserializers.read(taken, self._release)
        finally:
            if has_to_say:  # records were at hand: what was accepted goes by itself, and not with a fetch
                self._tell(self._say_on_loop if count > 1 else self._say_later)
            if self._metrics is not None:
                self._metrics.poll_ended(began)
        if self.is_implicit:
            self._inbox.returned(found)
        return found

    def take_one(self) -> ShareRecord | None:
        """The next record, when one is at hand and nothing is to be done before; else :meth:`take` has to be asked."""
        if self._deserializers or monotonic() - self._took_at > COUNT_AFTER_S:
            return None
        while True:
            record, has_to_say = self._inbox.pass_on(self.is_implicit)
            if not has_to_say:
                return record
            self._tell(self._say_later)

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call it on the loop when all that was said is there; in implicit mode, what was taken is accepted first."""
        if self.is_implicit:
            self._inbox.accept_polled()
        return self._tell(self._after_said, fn, *args)

    def say(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a record. IllegalStateError as of :meth:`Inbox.say`."""
        if self._inbox.say(record, kind):
            self._tell(self._say_on_loop)

    def say_all(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> list[ShareRecord]:
        """Acknowledge records; those that it is too late for."""
        refused, is_first = self._inbox.say_all(records, kind)
        if is_first:
            self._tell(self._say_on_loop)
        return refused

    def _tell(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        try:
            return self._host.submit(fn, *args)
        except BaseException:  # an interrupt, say: else everybody would think that the loop knows
            self._inbox.not_told()
            raise

    def call_back(self) -> None:
        """Tell the commit callback what has been answered, in this thread; what it raises comes through."""
        answered = self._inbox.take_answered()
        callback = self._events.commit_callback
        if answered and callback is not None:
            call_back(callback, answered)

    def _release(self, record: ShareRecord) -> None:
        self.say(record, AcknowledgeType.RELEASE)

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def _after_said(self, fn: Callable[..., Any], *args: Any) -> Any:
        """In one turn of the loop: so what was accepted goes with the fetch that follows."""
        self._say_on_loop()
        return fn(*args)

    def _say_later(self) -> None:
        if not self._is_say_due:
            self._is_say_due = True
            self._host.loop.call_later(SAY_AFTER_S, self._say_what_came)

    def _say_what_came(self) -> None:
        self._is_say_due = False
        self._say_on_loop()

    def _say_on_loop(self) -> None:
        for records, kind in self._inbox.take_said():
            for others, _ in self._engine.acknowledge_all(records, kind):
                # Their locks ended while they were worked on, or this was on its way here. What the broker would say.
                error = InvalidRecordStateError("the lock ended before the record was acknowledged")
                answered = [Answered(kind, run, error) for run in runs(others)]
                self._inbox.heard(answered, self._events.commit_callback is not None)
