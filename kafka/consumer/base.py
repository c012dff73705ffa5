"""What all parts of KafkaConsumer have in common: where it lives, who may use it now, and how its calls get there.

    consumer.py      records: poll, wakeup                  positions.py    where is read
    iterating.py     records one by one
    subscribing.py   what is read                           committing.py   what is committed
    inquiries.py     what the cluster has                   closing.py      the end

Each part is a class of methods without state of its own; KafkaConsumer is all of them, and sets what they share.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

from kafka.client import Host
from kafka.consumer.bell import Bell
from kafka.consumer.commits import Commits
from kafka.consumer.delivery import Delivery
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.group import GroupDriver
from kafka.consumer.interceptors import ConsumerInterceptors
from kafka.consumer.iteration import Iteration
from kafka.consumer.membership import Membership
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.reports import Reports
from kafka.consumer.starts import Starts
from kafka.consumer.topics import TopicWatch
from kafka.core.consume.fetcher import Fetcher
from kafka.errors import Cancelled, IllegalStateError, KafkaTimeoutError, WakeupError
from kafka.future import Future

T = TypeVar("T")

CLOSED: Final = "the consumer is closed"

GRACE_S: Final = 0.05
"""What is waited for beyond a time limit that somebody else keeps, who says better what was in the way."""


class Turn:
    """Held while a call of the consumer runs: by one thread, any number of times. ``with`` refuses a second thread, as
    Java's ConcurrentModificationException does, where waiting would hide the mistake.

    ``afterwards``: called once, when the call under way has ended.
    """

    __slots__ = ("_depth", "_lock", "afterwards")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.afterwards: Callable[[], object] | None = None

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise IllegalStateError(
                "another thread is in a call of this consumer: it is for one thread at a time, but for wakeup() and "
                "close()"
            )
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        is_over = not self._depth
        self._lock.release()
        if is_over and self.afterwards is not None:
            self.run_afterwards()

    @property
    def is_taken(self) -> bool:
        """A call is under way."""
        return self._depth > 0

    def run_afterwards(self) -> None:
        """Do what was put off, if it was not done yet."""
        afterwards, self.afterwards = self.afterwards, None
        if afterwards is not None:
            afterwards()

    def wait(self, timeout_s: float) -> bool:
        """Be the one to hold it, when the thread that does has left; whether it has in time. Then :meth:`leave`."""
        return self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def leave(self) -> None:
        """After :meth:`wait`."""
        self._lock.release()


_ENDS: Final = frozenset({"__exit__", "close"})
"""Methods that close the consumer themselves."""


class Reads(Enum):
    """How it was said what is read: one way until ``unsubscribe``."""

    NOTHING = "nothing"
    PARTITIONS = "partitions, by assign()"
    TOPICS = "topics, by subscribe()"
    PATTERN = "a pattern, by subscribe()"


class ConsumerBase:
    """See the module. ``KafkaConsumer.__init__`` sets all of these."""

    _settings: dict[str, Any]
    _default_timeout_s: float
    _refusal: str | None
    """Why no call is taken any more; :data:`CLOSED` or another reason."""
    _is_woken: bool
    """:meth:`wakeup` was called, and nobody has heard of it yet."""
    _closer: int | None
    """The thread that closes it, whose listener may still use it."""
    _turn: Turn
    _news: Bell
    _host: Host
    _fetcher: Fetcher
    _driver: ConsumerDriver
    _iteration: Iteration
    _topics: TopicWatch
    _membership: Membership
    _reports: Reports
    _reads: Reads
    _delivery: Delivery
    _closing: Future[None] | None
    _metrics: ConsumerMetrics | None
    _interceptors: ConsumerInterceptors | None
    _group: GroupDriver | None
    """None without ``group_id``."""
    _commits: Commits | None
    _starts: Starts | None

    def _commit_before_leaving(self, timeout_s: float) -> None:
        """What was assigned by hand, and read: with auto-commit it counts as done. 0: without waiting for it."""
        raise NotImplementedError  # in committing.py

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _check_usable(self) -> None:
        # A listener that is being called finishes its work with the consumer, whoever closes that meanwhile.
        if self._refusal is not None and not (
            threading.get_ident() == self._closer or self._membership.is_attending_here
        ):
            raise IllegalStateError(self._refusal)

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _is_within_call(self) -> bool:
        """Whether this thread is in the midst of a call of this consumer, into which a signal handler has broken (or
        which has called a listener or a deserialiser). The stack says that, and no counter: an interrupt may leave one
        of those wrong, and then nothing would ever be closed."""
        frame: FrameType | None = sys._getframe(2)  # whoever called the method that asks
        while frame is not None:
            is_ours = frame.f_globals.get("__package__") == __package__ and frame.f_code.co_name not in _ENDS
            whose: object = frame.f_locals.get("self") if is_ours else None
            if whose is self:
                return self._turn.is_taken
            frame = frame.f_back
        return False

    def _changed(self) -> None:
        """The fetcher has something to reconsider. Any thread."""
        self._tell_loop(self._driver.pump)

    def _tell_loop(self, action: Callable[[], object]) -> None:
        """Have it done on the loop's thread, and do not wait for it."""
        try:
            self._host.loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop has ended: a signal handler has closed the consumer in the midst of the call
            self._check_usable()
            raise

    def _on_loop(self, action: Callable[..., object], *args: Any) -> None:
        """Run it on the loop's thread, and wait for it unless this is that thread."""
        if self._may_block:
            self._host.call(action, *args)
        else:
            action(*args)

    def _wait_for(self, ask: Callable[..., Future[T]], *args: Any, timeout_s: float | None = None) -> T:
        """Run ``ask`` on the loop's thread and wait for its future. Refused on that thread."""
        self._host.check_may_block()
        run: Callable[..., Any] = ask
        try:
            value: T = self._host.call(run, *args, timeout_s=timeout_s)
        except Cancelled:
            self._check_usable()  # another thread has closed it
            raise
        return value

    def _wait_in_turn(self, future: Future[T], timeout_s: float, what: str) -> T:
        """The future's result, for a call that has its turn: close() ends the wait with IllegalStateError, and whoever
        closes need not wait for it. KafkaTimeoutError after ``timeout_s``."""
        self._host.check_may_block()
        news, clock = self._news, self._host.loop.time
        give_up_at = clock() + timeout_s
        future.add_both(lambda _: news.ring())
        while True:
            news.silence()
            if future.is_done:
                return future.result()
            self._check_usable()
            left_s = give_up_at + GRACE_S - clock()
            if left_s <= 0:
                raise KafkaTimeoutError(f"{what}: no answer within {timeout_s:g} s")
            news.wait(left_s)

    def _finish_steps(self, timeout_s: float, what: str) -> None:
        """Carry out all that the group wants. KafkaTimeoutError when it takes too long."""
        if not self._may_block:
            return  # there it is carried out by itself
        if not self._membership.attend(self._host.loop.time() + timeout_s):
            raise KafkaTimeoutError(f"{what}: the group's rebalance was not carried out within {timeout_s:g} s")
