"""What the loop's thread and the users' threads of one share consumer hand one another.

    loop's thread    put(), lose(), fail() ------> records to be polled, errors ------> take()           users' threads
                     heard() --------------------> outcomes --------------------------> take_outcomes(), take_answered()
                     take_said() <---------------- acknowledgements <------------------ say(), accept_polled()

One lock guards it all; no code of users runs under it. It knows neither brokers nor loops: who has to be told that
something was said sees it in the result.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from kafka.core.share.holding import Answered
from kafka.core.share.records import AcknowledgeType, ShareRecord, settle, without_lost
from kafka.errors import IllegalStateError, KafkaError
from kafka.structs import TopicPartition


class Inbox:
    """See the module. Every method from any thread; :meth:`take` alone blocks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._records: deque[ShareRecord] = deque()
        self._arrivals = 0  # how often records have come
        self._polled: list[ShareRecord] = []  # returned by polls, to be accepted by the next one
        self._said: list[tuple[list[ShareRecord], AcknowledgeType]] = []
        self._is_told = False  # the loop will ask for what was said
        self._outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._answered: list[Answered] = []  # for the callback that a user's thread calls
        self._error: KafkaError | None = None
        self._is_final = False
        self._is_woken = False
        self.is_closed = False

    # -- records -------------------------------------------------------------------------------------------------------

    def put(self, records: Sequence[ShareRecord]) -> None:
        """Records have come."""
        with self._changed:
            self._records += records
            self._arrivals += 1
            self._changed.notify_all()

    def put_back(self, records: Sequence[ShareRecord]) -> None:
        """Records that were taken are to be taken again, before others."""
        with self._changed:
            self._records.extendleft(reversed(records))
            self._changed.notify_all()

    def lose(self, records: Iterable[ShareRecord]) -> list[ShareRecord]:
        """The locks of these are gone. Those that nobody has taken are dropped; the others."""
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

        ``want`` is called when there are none at hand, and again when some came and others took them. Raises the error
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
        """For who wants one record after the other: the next one; None when there is none, or something is to be done
        first (:meth:`take` knows what). With ``accepts`` it is to be accepted by the next call, as the one before is
        now. When the loop has to be told of that, there is no record yet: tell it, and call again."""
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
        """It has come, and nobody has taken it."""
        with self._changed:
            return record in self._records

    def wake(self) -> None:
        """Let the :meth:`take` that waits, or else the next one, return at once."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def close(self) -> bool:
        """Nothing more will come. Whether this was the first call."""
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
        """Another subscription: the error was about the former one."""
        with self._changed:
            self._error, self._is_final = None, False

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def returned(self, records: Sequence[ShareRecord]) -> None:
        """A poll returns these, and :meth:`accept_polled` is to accept them."""
        with self._changed:
            self._polled += records

    def forget_polled(self) -> None:
        """Do not accept what polls have returned: it was not worked on."""
        with self._changed:
            self._polled = []

    def accept_polled(self) -> bool:
        """Accept what polls returned and nobody acknowledged; as :meth:`say`, but a lock that is gone is no error here:
        who carries out what was said finds it, and tells :meth:`heard`."""
        with self._changed:
            return self._accept()

    def _accept(self) -> bool:
        polled, self._polled = self._polled, []
        ready = settle(polled)
        if not ready:
            return False
        self._add(ready, AcknowledgeType.ACCEPT)
        return self._is_first()

    def _add(self, records: list[ShareRecord], kind: AcknowledgeType) -> None:
        if self._said and self._said[-1][1] is kind:
            self._said[-1][0].extend(records)
        else:
            self._said.append((records, kind))

    def _is_first(self) -> bool:
        was_told, self._is_told = self._is_told, True
        return not was_told

    def not_told(self) -> None:
        """The loop could not be told (an interrupt, say): whoever says something next has to."""
        with self._changed:
            self._is_told = False

    def say(self, record: ShareRecord, kind: AcknowledgeType) -> bool:
        """Acknowledge ``record``. Whether the loop has to be told that there is something for it.

        IllegalStateError when it was acknowledged before or its lock is gone.
        """
        with self._changed:
            if record.lost or record.is_settled:
                where = f"{record.topic}:{record.partition}:{record.offset}"
                why = "its lock is gone" if record.lost else "it was acknowledged before"
                raise IllegalStateError(f"{where} cannot be acknowledged: {why}")
            if kind is not AcknowledgeType.RENEW:
                record.is_settled = True
            self._add([record], kind)
            return self._is_first()

    def say_all(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> tuple[list[ShareRecord], bool]:
        """:meth:`say` for many: those that were acknowledged before or whose locks are gone, and whether the loop has
        to be told."""
        is_final = kind is not AcknowledgeType.RENEW
        ready: list[ShareRecord] = []
        refused: list[ShareRecord] = []
        with self._changed:
            for record in records:
                if record.lost or record.is_settled:
                    refused.append(record)
                    continue
                if is_final:
                    record.is_settled = True
                ready.append(record)
            if not ready:
                return refused, False
            self._add(ready, kind)
            return refused, self._is_first()

    def take_said(self) -> list[tuple[list[ShareRecord], AcknowledgeType]]:
        """What was said since the last call, in its order."""
        with self._changed:
            said, self._said = self._said, []
            self._is_told = False
        return said

    def heard(self, answered: Sequence[Answered], keep: bool = False) -> None:
        """What became of acknowledgements. Of one partition an error counts more than success. ``keep`` them for
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

    def take_answered(self) -> list[Answered]:
        """What was kept since the last call."""
        with self._changed:
            answered, self._answered = self._answered, []
        return answered

    def take_outcomes(self) -> dict[TopicPartition, KafkaError | None]:
        """The outcome of each partition since the last call."""
        with self._changed:
            outcomes, self._outcomes = self._outcomes, {}
        return outcomes
