"""A producer's life: flushing, closing, being used after its end or after a fork.

:class:`Lifecycle` is the base of :class:`~kafka.producer.producer.KafkaProducer`, and owns ``_refusal``. What is
between the two in the chain of classes (not beside: compiled classes have one base) adds calls of its own.

Closing, and a fork in the child, take the table of topics away, so that ``send`` notices without looking: a topic that
is not there leads to ``KafkaProducer._admit``, which knows why.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from kafka.client import Host
from kafka.core.produce.accumulator import CLOSED, TopicQueues
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future
from kafka.producer.driver import FORKED, Driver
from kafka.producer.edge import check_seconds
from kafka.producer.sending import Sending

Self = TypeVar("Self", bound="Lifecycle")

_living: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_living):
        producer._renew_lock()  # the thread that held it, if one did, is not there to let it go
        producer._refuse(FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Lifecycle(Sending):
    """The end of a producer, and waiting for what it has sent."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._refusal: str | None = None
        self._driver: Driver
        self._topics = {}
        self._known_topics: dict[str, TopicQueues] = {}
        """What ``_topics`` is while records may be sent."""
        _living.add(self)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything that is here, and wait until each record was delivered or has failed.

        ``timeout`` in seconds: KafkaTimeoutError when it passes, and the rest goes on. Errors of records are their
        futures', not this call's. After :meth:`close` there is nothing to wait for. IllegalStateError on the thread of
        the loop: see :meth:`flush_async`.
        """
        check_seconds(timeout)
        if self._is_over():
            return
        self._check_usable()
        self._guard()
        run: Callable[..., Any] = self._driver.when_answered
        try:
            self._host.call(run, timeout_s=timeout)
        except KafkaTimeoutError:
            count = len(self._accumulator.incomplete)
            raise KafkaTimeoutError(f"flush: {count} batches were not answered within {timeout} s") from None

    def flush_async(self) -> Future[None]:
        """On the loop: send everything that is here; done when each record was delivered or has failed."""
        if self._is_over():
            return Future[None]().success(None)
        self._check_usable()
        return self._driver.when_answered()

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, deliver what is here, for at most ``timeout`` seconds (None: as long as it takes), and
        stop. What is left then fails with Cancelled. Any number of times.

        On the thread of a loop that was given it does not wait: only ``timeout=0`` is taken there, and
        :meth:`close_async` closes in good order.
        """
        check_seconds(timeout)
        if self._refusal is not None:
            return
        if not self._may_block:
            if timeout != 0:
                self._guard()
            self._finish()
            return
        self._refuse(CLOSED)
        run: Callable[..., Any] = self._driver.when_answered
        try:
            if timeout != 0:
                self._host.call(run, timeout_s=timeout)
        except KafkaTimeoutError:
            pass
        finally:
            self._end_watching(timeout)
            self._host.call(self._driver.close)
            self._host.close()
            self._closed()

    def close_async(self) -> Future[None]:
        """On the loop: take no more records, deliver what is here, and stop. The future is done then."""
        done: Future[None] = Future()
        if self._refusal is not None:
            return done.success(None)
        answered = self._driver.when_answered()
        self._refuse(CLOSED)
        last: Future[None] = Future()
        answered.add_both(lambda _: self._watched_out().chain(last))

        def finish(_: object) -> None:
            self._driver.close()
            self._host.close()
            self._closed()
            done.success(None)

        last.add_both(finish)
        return done

    def _finish(self) -> None:
        self._refuse(CLOSED)
        self._driver.close()
        self._host.close()
        self._closed()

    def _end_watching(self, timeout_s: float | None) -> None:
        """What was sent is answered: for who measures it, and may wait for so long."""

    def _watched_out(self) -> Future[None]:
        """The same on the loop."""
        return Future[None]().success(None)

    def _closed(self) -> None:
        """Everything has ended: for what users handed in, and wants to know."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _guard(self) -> None:
        """Raise where waiting would wait for ever."""
        self._host.check_may_block()

    def _is_over(self) -> bool:
        """Closed, and every record has its end. (In the child of a fork, none of them has.)"""
        return self._refusal == CLOSED and not self._accumulator.incomplete

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise IllegalStateError(self._refusal)

    def _renew_lock(self) -> None:
        self._accumulator.lock = self._make_lock()

    def _refuse(self, why: str) -> None:
        if self._refusal is None:
            self._refusal = why
            self._topics = {}
