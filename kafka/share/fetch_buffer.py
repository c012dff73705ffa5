"""Records, acknowledgements and their outcomes between the loop's thread and the users' threads of one share consumer.

    loop's thread    put(), lose(), fail() ---> records, errors --> take()                              users' threads
                     add_outcomes() ----------> outcomes ---------> take_outcomes(), take_answered()
                     take_acknowledgements() <- acknowledgements <- acknowledge_later(), accept_polled()

One lock guards everything; no user code runs under it. The buffer knows neither brokers nor loops: the result of a
method says whether the loop must be notified.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final

from kafka.client import ClientHost
from kafka.core.share.acknowledgements import Acknowledged, AcknowledgementResult, acknowledged_of
from kafka.core.share.records import ShareRecord, consecutive_runs, mark_acknowledged, without_lost
from kafka.errors import IllegalStateError, InvalidRecordStateError, KafkaError
from kafka.future import Future
from kafka.protocol.constants import AcknowledgeType
from kafka.share.driver import ShareConsumerDriver
from kafka.share.metrics import ShareMetrics
from kafka.structs import TopicPartition
from kafka.validation import deserializer_for


class ShareFetchBuffer:
    """See the module. Any thread may call the methods; only :meth:`take` blocks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._records: deque[ShareRecord] = deque()
        self._arrivals = 0  # how often records have come
        self._polled: list[ShareRecord] = []  # returned by polls, to be accepted by the next one
        self._acknowledgements: list[tuple[list[ShareRecord], AcknowledgeType]] = []
        self._is_notified = False  # the loop will take the acknowledgements
        self._outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._answered: list[AcknowledgementResult] = []  # for the callback that a user's thread calls
        self._error: KafkaError | None = None
        self._is_final = False
        self._is_woken = False
        self.is_closed = False

    # -- records -------------------------------------------------------------------------------------------------------

    def put(self, records: Sequence[ShareRecord]) -> None:
        """Add acquired records."""
        with self._changed:
            self._records += records
            self._arrivals += 1
            self._changed.notify_all()

    def put_back(self, records: Sequence[ShareRecord]) -> None:
        """Put taken records back in front of the others."""
        with self._changed:
            self._records.extendleft(reversed(records))
            self._changed.notify_all()

    def lose(self, records: Iterable[ShareRecord]) -> list[ShareRecord]:
        """The locks of these records are lost. Records that were not taken are dropped; the others are returned."""
        lost = set(records)
        with self._changed:
            waiting = lost.intersection(self._records)
            if waiting:
                self._records = deque(record for record in self._records if record not in waiting)
                self._changed.notify_all()
        return [record for record in lost if record not in waiting]

    def take(self, count: int, timeout_s: float, want: Callable[[], object]) -> list[ShareRecord] | None:
        """At most ``count`` records, as soon as there are some; none after ``timeout_s``, :meth:`wake` or the end; None
        when there is something for :meth:`take_answered`, before it goes on to wait.

        ``want`` is called when there are none, and again when other threads took the new ones. Raises the error
        of :meth:`fail`.
        """
        give_up_at = time.monotonic() + timeout_s
        asked_at = -1
        with self._changed:
            while True:
                if self._is_woken:
                    self._is_woken = False
                    return []
                if self._records:
                    taken = [self._records.popleft() for _ in range(min(count, len(self._records)))]
                    held = without_lost(taken)
                    if held:
                        return held
                    continue
                if self._answered:
                    return None
                if self._error is not None:
                    error = self._error
                    if not self._is_final:
                        self._error = None
                    raise error
                if self.is_closed:
                    return []
                if asked_at != self._arrivals:
                    asked_at = self._arrivals
                    want()
                    continue
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    return []
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))

    def pass_on(self, accepts: bool) -> tuple[ShareRecord | None, bool]:
        """For reading record by record: the next one; None when there is none, or something is to be done
        first (:meth:`take` knows what). With ``accepts`` it is to be accepted by the next call, as the one before is
        now. When the loop has to be notified of that, there is no record yet: notify it, and call again."""
        with self._lock:  # which is entered in a quarter of the condition's time
            records = self._records
            if not records or self._is_woken or self._answered:
                return None, False
            if accepts and self._accept():
                return None, True
            while records:
                record = records.popleft()
                if record.lost:
                    continue
                if accepts:
                    self._polled.append(record)
                return record, False
            return None, False

    def has(self, record: ShareRecord) -> bool:
        """It is in the buffer, not taken yet."""
        with self._changed:
            return record in self._records

    def wake(self) -> None:
        """Make the waiting :meth:`take`, or else the next one, return at once."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def mark_closed(self) -> None:
        """:meth:`close` in a forked child, where the lock may be held by a thread of the parent."""
        self.is_closed = True

    def close(self) -> bool:
        """No more records will come. Returns whether this was the first call."""
        with self._changed:
            was_open = not self.is_closed
            self.is_closed = True
            self._changed.notify_all()
        return was_open

    def fail(self, error: KafkaError, is_final: bool) -> None:
        """Let :meth:`take` raise ``error`` when it has no records: once, or with ``is_final`` from now on."""
        with self._changed:
            if not self._is_final:
                self._error, self._is_final = error, is_final
            self._changed.notify_all()

    def forget_error(self) -> None:
        """Clear the error of the former subscription."""
        with self._changed:
            self._error, self._is_final = None, False

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def returned(self, records: Sequence[ShareRecord]) -> None:
        """Remember records that a poll returns, for :meth:`accept_polled`."""
        with self._changed:
            self._polled += records

    def forget_polled(self) -> None:
        """Do not accept the records that polls have returned, because they were not processed."""
        with self._changed:
            self._polled = []

    def accept_polled(self) -> bool:
        """Accept what polls returned and the user did not acknowledge; as :meth:`acknowledge_later`, but a lock that
        is gone is no error here: the loop finds it when it carries this out, and calls :meth:`add_outcomes`."""
        with self._changed:
            return self._accept()

    def _accept(self) -> bool:
        polled, self._polled = self._polled, []
        ready = mark_acknowledged(polled)
        if not ready:
            return False
        self._add(ready, AcknowledgeType.ACCEPT)
        return self._is_first()

    def _add(self, records: list[ShareRecord], kind: AcknowledgeType) -> None:
        if self._acknowledgements and self._acknowledgements[-1][1] is kind:
            self._acknowledgements[-1][0].extend(records)
        else:
            self._acknowledgements.append((records, kind))

    def _is_first(self) -> bool:
        was_notified, self._is_notified = self._is_notified, True
        return not was_notified

    def not_notified(self) -> None:
        """The loop was not notified (an interrupt, say): the next acknowledgement has to do it."""
        with self._changed:
            self._is_notified = False

    def acknowledge_later(self, record: ShareRecord, kind: AcknowledgeType) -> bool:
        """Acknowledge ``record``. Returns whether the loop has to be notified.

        IllegalStateError when it was acknowledged before or its lock is gone.
        """
        with self._changed:
            if record.lost or record.is_settled:
                where = f"{record.topic}:{record.partition}:{record.offset}"
                why = "its lock is gone" if record.lost else "it was acknowledged before"
                raise IllegalStateError(f"{where} cannot be acknowledged: {why}")
            if kind is not AcknowledgeType.RENEW:
                record._settle()
            self._add([record], kind)
            return self._is_first()

    def acknowledge_all_later(
        self, records: Sequence[ShareRecord], kind: AcknowledgeType
    ) -> tuple[list[ShareRecord], bool]:
        """:meth:`acknowledge_later` for many: those that were acknowledged before or whose locks are gone, and
        whether the loop has to be told."""
        is_final = kind is not AcknowledgeType.RENEW
        ready: list[ShareRecord] = []
        refused: list[ShareRecord] = []
        with self._changed:
            for record in records:
                if record.lost or record.is_settled:
                    refused.append(record)
                    continue
                if is_final:
                    record._settle()
                ready.append(record)
            if not ready:
                return refused, False
            self._add(ready, kind)
            return refused, self._is_first()

    def take_acknowledgements(self) -> list[tuple[list[ShareRecord], AcknowledgeType]]:
        """The acknowledgements since the last call, in order."""
        with self._changed:
            taken, self._acknowledgements = self._acknowledgements, []
            self._is_notified = False
        return taken

    def add_outcomes(self, answered: Sequence[AcknowledgementResult], keep: bool = False) -> None:
        """What became of acknowledgements. For one partition an error overrides success. ``keep`` them for
        :meth:`take_answered`, too, and let a :meth:`take` that waits return for it.
        """
        with self._changed:
            for _, records, error in answered:
                partition = TopicPartition(records[0].topic, records[0].partition)
                if error is not None or partition not in self._outcomes:
                    self._outcomes[partition] = error
            if keep:
                self._answered += answered
                self._changed.notify_all()

    def take_answered(self) -> list[AcknowledgementResult]:
        """The kept outcomes since the last call."""
        with self._changed:
            answered, self._answered = self._answered, []
        return answered

    def take_outcomes(self) -> dict[TopicPartition, KafkaError | None]:
        """The outcome of each partition since the last call."""
        with self._changed:
            outcomes, self._outcomes = self._outcomes, {}
        return outcomes


# What the loop's thread reports: to the buffer of the users' threads, if there is one, and to the user's callbacks.
#
# It does not know the consumer: the loop's thread lives as long as the consumer's host is referenced.


log = logging.getLogger(__name__)

OnRecords = Callable[[list[ShareRecord]], object]
OnAcknowledged = Callable[[list[Acknowledged]], object]
OnLost = Callable[[list[ShareRecord], "KafkaError | None"], object]
OnError = Callable[[KafkaError], object]
CommitCallback = Callable[[dict[TopicPartition, set[int]], "KafkaError | None"], object]
"""``callback(offsets, exception)``: the offsets of one partition whose acknowledgements got a response, and None or the
error that refused them. Source: Java's ``AcknowledgementCommitCallback``."""


class ShareEventDispatcher:
    """The driver's events, on the loop's thread. ``inbox`` None: the user is on the loop, too."""

    def __init__(
        self, inbox: ShareFetchBuffer | None, commit_callback: CommitCallback | None, **callbacks: Any
    ) -> None:
        self.commit_callback = commit_callback
        """Called here without an inbox, else by the user's thread."""
        self.metrics: ShareMetrics | None = None
        self._buffer = inbox
        self._callbacks: dict[str, Callable[..., object] | None] = callbacks

    def set_commit_callback(self, callback: CommitCallback | None) -> None:
        """Called with outcomes of acknowledgements."""
        self.commit_callback = callback

    def measure(self, metrics: ShareMetrics | None) -> None:
        """Count records and acknowledgements there; None: no more."""
        self.metrics = metrics

    def on_records(self, records: list[ShareRecord]) -> None:
        if self.metrics is not None:
            self.metrics.came(records)
        if self._buffer is not None:
            self._buffer.put(records)
        else:
            self._call("on_records", records)

    def on_acknowledged(self, answered: list[AcknowledgementResult]) -> None:
        if self.metrics is not None:
            self.metrics.acknowledged(answered)
        if self._buffer is not None:
            self._buffer.add_outcomes(answered, keep=self.commit_callback is not None)
        elif self.commit_callback is not None:
            try:
                call_back(self.commit_callback, answered)
            except Exception:
                log.exception("acknowledgement commit callback raised; ignoring it")
        if self._callbacks.get("on_acknowledged") is not None:
            self._call("on_acknowledged", acknowledged_of(answered))

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        if self._buffer is not None:
            records = self._buffer.lose(records)
        if records:
            self._call("on_lost", records, error)

    def on_trouble(self, error: KafkaError) -> None:
        if self._buffer is not None:
            self._buffer.fail(error, is_final=False)
        self._call("on_trouble", error)

    def on_error(self, error: KafkaError) -> None:
        if self._buffer is not None:
            self._buffer.fail(error, is_final=True)
        self._call("on_error", error)

    def _call(self, name: str, *args: object) -> None:
        callback = self._callbacks.get(name)
        if callback is None:
            return
        try:
            callback(*args)
        except Exception:
            log.exception("share consumer's %s callback raised; ignoring it", name)


def call_back(callback: CommitCallback, answered: Iterable[AcknowledgementResult]) -> None:
    """Call it, once for each partition and error. The first error that it raises is raised after all calls."""
    outcomes: dict[tuple[TopicPartition, int], tuple[set[int], KafkaError | None]] = {}
    for _, records, error in answered:
        key = TopicPartition(records[0].topic, records[0].partition), id(error)
        outcomes.setdefault(key, (set(), error))[0].update([record.offset for record in records])
    fault: BaseException | None = None
    for (partition, _), (offsets, error) in outcomes.items():
        try:
            callback({partition: offsets}, error)
        except BaseException as raised:
            fault = fault or raised
    if fault is not None:
        raise fault


# Deserializers of a share consumer: bytes of records that were taken become values, one record after the other.
#
# A record whose deserializer fails is given back to the group; those before it are handed out first, those behind it
# next time. Nothing that was taken is lost, whatever is raised.


class Deserializers:
    """``key``, ``value``: the user's settings. Falsy when both are None."""

    def __init__(self, key: Any, value: Any, inbox: ShareFetchBuffer) -> None:
        self._key = deserializer_for(key)
        self._value = deserializer_for(value)
        self._buffer = inbox

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def read(self, taken: list[ShareRecord], release: Callable[[ShareRecord], object]) -> list[ShareRecord]:
        """The records up to the first that cannot be deserialized; that one goes to ``release``, the rest is put back.
        Exceptions of a deserializer are raised."""
        if not self:
            return taken
        for count, record in enumerate(taken):
            try:
                if record.sizes is None:  # else it was read before, and put back
                    key, value = record.key, record.value
                    record.replace(
                        key if self._key is None else self._key(record.topic, record.headers, key),
                        value if self._value is None else self._value(record.topic, record.headers, value),
                    )
            except Exception:
                if count:
                    self._buffer.put_back(taken[count:])
                    return taken[:count]
                self._buffer.put_back(taken[1:])
                log.error("cannot deserialize %r; releasing it", record)
                release(record)
                raise
            except BaseException:
                self._buffer.put_back(taken)
                raise
        return taken


# What users' threads do with the buffer: take records, acknowledge them, take the answers to that.
#
# The public class checks arguments and states; this is the way from there to the loop and back.


ACKNOWLEDGE_AFTER_S: Final = 0.02
"""Acceptances of iteration are collected for so long. Passed one by one, each record cost a turn of the loop and often
a request: 13 us of CPU for each of 100 bytes, for 5 now (compiled; 18 for 7 in plain Python)."""

COUNT_AFTER_S: Final = 1.0
"""Interval at which iteration counts as a poll in metrics while it has records."""


class ThreadedPolling:
    """Any thread but the loop's. ``is_implicit``: the next :meth:`take`, commit or close accepts the taken records.
    ``exactly``: never fetch more than the demand (record-limit mode).
    """

    def __init__(
        self,
        host: ClientHost,
        engine: ShareConsumerDriver,
        inbox: ShareFetchBuffer,
        events: ShareEventDispatcher,
        deserializers: Deserializers,
        metrics: ShareMetrics | None,
        *,
        is_implicit: bool,
        exactly: bool,
    ) -> None:
        self.is_implicit = is_implicit
        self._host = host
        self._driver = engine
        self._buffer = inbox
        self._events = events
        self._deserializers = deserializers
        self._metrics = metrics
        self._exactly = exactly
        # A call of _acknowledge_scheduled() is scheduled.
        self._is_scheduled = False
        self._took_at = 0.0

    def take(self, count: int, demand: int, timeout_s: float) -> list[ShareRecord]:
        """At most ``count`` records, deserialized; when there are none, ``demand`` records are requested and waited
        for."""
        self._took_at = monotonic()
        give_up_at = self._took_at + timeout_s
        began = self._metrics.poll_began() if self._metrics is not None else 0.0
        has_to_say = self.is_implicit and self._buffer.accept_polled()

        def want() -> None:
            nonlocal has_to_say
            self._host.submit(self._after_acknowledgements, self._driver.request_records, demand, self._exactly, True)
            has_to_say = False

        try:
            while True:
                self.call_back()
                left_s = max(give_up_at - monotonic(), 0.0)
                taken = self._buffer.take(count, left_s, want)
                if taken is not None:
                    break
            found = self._deserializers.read(taken, self._release)
        finally:
            if has_to_say:  # records were at hand: what was accepted goes by itself, and not with a fetch
                self._submit(self._acknowledge_on_loop if count > 1 else self._schedule_acknowledgements)
            if self._metrics is not None:
                self._metrics.poll_ended(began)
        if self.is_implicit:
            self._buffer.returned(found)
        return found

    def take_one(self) -> ShareRecord | None:
        """The next record, when there is one and nothing must be done before; else call :meth:`take`."""
        if self._deserializers or monotonic() - self._took_at > COUNT_AFTER_S:
            return None
        while True:
            record, has_to_say = self._buffer.pass_on(self.is_implicit)
            if not has_to_say:
                return record
            self._submit(self._schedule_acknowledgements)

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call it on the loop after all acknowledgements so far; in implicit mode, taken records are accepted first."""
        if self.is_implicit:
            self._buffer.accept_polled()
        return self._submit(self._after_acknowledgements, fn, *args)

    def acknowledge_later(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a record. IllegalStateError as of :meth:`ShareFetchBuffer.acknowledge_later`."""
        if self._buffer.acknowledge_later(record, kind):
            self._submit(self._acknowledge_on_loop)

    def acknowledge_all_later(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> list[ShareRecord]:
        """Acknowledge records; returns those whose locks are lost."""
        refused, is_first = self._buffer.acknowledge_all_later(records, kind)
        if is_first:
            self._submit(self._acknowledge_on_loop)
        return refused

    def _submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        try:
            return self._host.submit(fn, *args)
        except BaseException:  # an interrupt, say: else the flag would say that the loop was notified
            self._buffer.not_notified()
            raise

    def call_back(self) -> None:
        """Call the commit callback with the outcomes, in this thread; its exceptions are raised."""
        answered = self._buffer.take_answered()
        callback = self._events.commit_callback
        if answered and callback is not None:
            call_back(callback, answered)

    def _release(self, record: ShareRecord) -> None:
        self.acknowledge_later(record, AcknowledgeType.RELEASE)

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def _after_acknowledgements(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Runs in one turn of the loop, so acceptances are sent with the next fetch."""
        self._acknowledge_on_loop()
        return fn(*args)

    def _schedule_acknowledgements(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._host.loop.call_later(ACKNOWLEDGE_AFTER_S, self._acknowledge_scheduled)

    def _acknowledge_scheduled(self) -> None:
        self._is_scheduled = False
        self._acknowledge_on_loop()

    def _acknowledge_on_loop(self) -> None:
        for records, kind in self._buffer.take_acknowledgements():
            for others, _ in self._driver.acknowledge_all(records, kind):
                # The locks expired during processing, or before this call. The broker would respond with the same
                # error.
                error = InvalidRecordStateError("the lock ended before the record was acknowledged")
                answered = [AcknowledgementResult(kind, run, error) for run in consecutive_runs(others)]
                self._buffer.add_outcomes(answered, self._events.commit_callback is not None)
