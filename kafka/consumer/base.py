"""What all parts of KafkaConsumer have in common: where it lives, who may use it now, and how its calls get there.

    consumer.py      records: poll, wakeup                  positions.py    where is read
    iterating.py     records one by one
    subscribing.py   what is read                           committing.py   what is committed
    inquiries.py     what the cluster has                   closing.py      the end

Each part is a class of methods without state of its own; KafkaConsumer is all of them, and sets what they share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, TypeVar

from kafka.client import Host
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
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future

T = TypeVar("T")


class Turn:
    """Held while a call of the consumer runs: by one thread, any number of times. ``with`` refuses a second thread, as
    Java's ConcurrentModificationException does, where waiting would hide the mistake."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise IllegalStateError(
                "another thread is in a call of this consumer: it is for one thread at a time, but for wakeup() and "
                "close()"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Be the one to hold it, when the thread that does has left; whether it has in time. Then :meth:`leave`."""
        return self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def leave(self) -> None:
        """After :meth:`wait`."""
        self._lock.release()


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
    """Why no call is taken any more."""
    _closer: int | None
    """The thread that closes it, whose listener may still use it."""
    _turn: Turn
    _news: threading.Event
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
        if self._refusal is not None and threading.get_ident() != self._closer:
            raise IllegalStateError(self._refusal)

    def _changed(self) -> None:
        """The fetcher has something to reconsider. Any thread."""
        self._host.loop.call_soon_threadsafe(self._driver.pump)

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
        value: T = self._host.call(run, *args, timeout_s=timeout_s)
        return value

    def _finish_steps(self, timeout_s: float, what: str) -> None:
        """Carry out all that the group wants. KafkaTimeoutError when it takes too long."""
        if not self._may_block:
            return  # there it is carried out by itself
        if not self._membership.attend(self._host.loop.time() + timeout_s):
            raise KafkaTimeoutError(f"{what}: the group's rebalance was not carried out within {timeout_s:g} s")
