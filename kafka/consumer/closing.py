"""The end of a consumer: committing, leaving its group, and letting go of what it has; waiting for that or not."""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial
from math import inf
from typing import Final

from kafka.client.telemetry import HasTelemetry
from kafka.consumer import checks
from kafka.consumer.base import CLOSED, ConsumerBase, Reads
from kafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kafka.future import Future

log = logging.getLogger(__name__)

LEAVING: Final = "the consumer was closed"
LOOP_S: Final = 1.0
"""What the loop has for ending its part when no time is left: it needs a turn, and may be in the midst of one."""


class Closing(ConsumerBase, HasTelemetry):
    """The part of KafkaConsumer about its end."""

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Stop reading, and let go of the connections; any number of times. A member of a group first commits (with
        auto-commit, unless ``autocommit`` is False), is told of the revocation, and leaves, so that others take over at
        once; a static member (``group_instance_id``) does not leave.

        At most ``timeout_ms`` (default: ``request_timeout_ms``) are spent on that; with 0 it leaves without waiting for
        anything, commits not among what it does. From another thread than the one that polls it ends that poll with
        IllegalStateError, and waits for it. In a signal handler that has broken into a call of this consumer, in a
        listener and in a callback, nothing is waited for: that call is ended, and the rest is done at its end. On a
        loop: as :meth:`close_async`.
        """
        if self._refusal is not None:
            if not self._is_within_call():
                self._turn.run_afterwards()
            return
        timeout_s = checks.timeout_s(timeout_ms, self._settings["request_timeout_ms"] / 1000)
        if not self._may_block or not self._host.loop.is_usable:
            self.close_async(autocommit, timeout_s)
            return
        give_up_at = self._host.loop.time() + timeout_s
        if self._is_within_call():
            self._turn.afterwards = partial(self._end_late, autocommit, give_up_at)
            self._refusal = CLOSED
            self._news.ring()
            return
        self._refusal = CLOSED
        self._news.ring()
        fault = self._end(autocommit, give_up_at)
        if fault is not None:
            raise fault

    def _end_late(self, autocommit: bool, give_up_at: float) -> None:
        fault = self._end(autocommit, give_up_at)
        if fault is not None:
            log.error("while the consumer was closed: %s", fault)

    def _end(self, autocommit: bool, give_up_at: float) -> KafkaError | None:
        """All that is left to do when calls are refused. What the listener raised."""
        clock = self._host.loop.time
        fault: KafkaError | None = None
        if self._turn.wait(max(give_up_at - clock(), 0.0)):
            self._closer = threading.get_ident()
            try:
                fault = self._leave(autocommit, give_up_at)
            finally:
                self._turn.leave()
                self._closer = None
                self._let_go(max(give_up_at - clock(), 0.0))
        else:
            self._let_go(0.0)
        return fault

    def _leave(self, autocommit: bool, give_up_at: float) -> KafkaError | None:
        """Commit, tell the listener, leave the group, as far as the time allows. What the listener raised."""
        group, commits, membership = self._group, self._commits, self._membership
        if group is None or commits is None:
            return None
        clock = self._host.loop.time
        fault: KafkaError | None = None
        if not autocommit:
            membership.commit_no_more()
        try:
            if group.has_begun and self._reads in (Reads.TOPICS, Reads.PATTERN):
                group.machine.polled_at = inf
                left = self._host.submit(group.leave, LEAVING)
                left.add_both(lambda _: self._news.ring())
                while not left.is_done and clock() < give_up_at:
                    self._news.silence()
                    try:
                        membership.attend(give_up_at)
                    except KafkaError as error:
                        fault = fault or error
                    if left.is_done:
                        break
                    if group.pending is None:
                        self._news.wait(max(give_up_at - clock(), 0.0))
            elif autocommit:
                self._commit_before_leaving(max(give_up_at - clock(), 0.0))
            settled = self._host.submit(commits.settled)
            settled.wait(max(give_up_at - clock(), 0.0))
        except IllegalStateError as error:  # the client that it lives on is closed
            log.info("the consumer could not leave its group: %s", error)
        membership.callbacks.run()
        return fault

    def _let_go(self, timeout_s: float) -> None:
        self._delivery.close()
        self._end_telemetry(timeout_s)
        # The loop may have ended; or it is held up, by what a signal handler that closes has broken into.
        with contextlib.suppress(IllegalStateError, KafkaTimeoutError):
            self._host.call(self._end_on_loop, timeout_s=timeout_s + LOOP_S)
        self._host.close(timeout_s + LOOP_S)

    def _end_on_loop(self) -> None:
        self._membership.commit_no_more()
        self._topics.close()
        if self._group is not None:
            if self._reads in (Reads.TOPICS, Reads.PATTERN):
                self._group.depart(LEAVING)
            self._group.close()
        if self._commits is not None:
            self._commits.close()
        self._driver.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._interceptors is not None:
            self._interceptors.close()

    def close_async(self, autocommit: bool = True, timeout_s: float | None = None) -> Future[None]:
        """On the loop: the same without waiting; done when the group is left and everything let go."""
        if self._closing is not None:
            return self._closing
        self._closing = done = Future[None]()
        if self._refusal is not None:
            return done.success(None)
        self._refusal = CLOSED
        self._news.ring()
        if not self._host.loop.is_usable:
            self._host.close()
            return done.success(None)
        group, commits = self._group, self._commits

        def end(_: object = None) -> None:
            self._finish_telemetry().add_both(finish)

        has_ended = False

        def finish(_: object = None) -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True  # what is ended here says that the group was left, which leads here again
                self._delivery.close()
                self._end_telemetry()
                self._end_on_loop()
                self._host.close()
                done.success(None)

        if group is None or commits is None:
            end()
            return done
        if not autocommit:
            self._membership.commit_no_more()
        limit_s = self._settings["request_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        timer = self._host.loop.call_later(limit_s, end)
        done.add_both(lambda _: timer.cancel())
        if group.has_begun and self._reads in (Reads.TOPICS, Reads.PATTERN):
            group.machine.polled_at = inf
            group.leave(LEAVING).add_both(lambda _: commits.settled().add_both(end))
        else:
            changed = self._membership.changed() if autocommit and self._settings["enable_auto_commit"] else {}
            commits.commit(changed, limit_s).add_both(end)
        return done
