"""What the user's side does for its group: carries out rebalance steps, commits by itself, calls back.

    thread    attend(), which poll() and other calls begin with: in the user's thread, until a time limit
    loop      by itself, in callbacks on the loop

Both run the same *steps*: a generator that yields futures to be waited for. Listeners and commit callbacks are called
here and nowhere else, between two polls' records. What the group wants is ``group.py``'s ``pending``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from math import inf
from typing import Any, Final

from kafka.client import Host
from kafka.consumer.callbacks import Callbacks, CommitCallback
from kafka.consumer.commits import Commits
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.group import GroupDriver, Pending
from kafka.consumer.iteration import Iteration
from kafka.consumer.listener import method_of
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.reports import Reports
from kafka.consumer.starts import Starts
from kafka.core.group.machine import Assign, Lose, Revoke
from kafka.errors import Cancelled, CommitInRebalanceError, IllegalStateError, KafkaError
from kafka.future import Future
from kafka.structs import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

SOON_S: Final = 0.1
"""When an auto-commit is tried again that a rebalance stood in the way of."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Steps = Generator[Future[Any], Any, None]


class Membership:
    """See the module. ``auto_commit_s``: between commits by itself, None for none. ``known``: what is committed, as
    far as was seen."""

    def __init__(
        self,
        host: Host,
        driver: ConsumerDriver,
        commits: Commits | None,
        starts: Starts | None,
        group: GroupDriver | None,
        iteration: Iteration,
        known: dict[TopicPartition, int],
        reports: Reports,
        *,
        auto_commit_s: float | None,
        timeout_s: float,
        default_callback: CommitCallback | None,
        wake: Callable[[], object],
    ) -> None:
        self.listener: Any = None
        self.metrics: ConsumerMetrics | None = None
        self._host = host
        self._driver = driver
        self._commits = commits
        self._starts = starts
        self._group = group
        self._iteration = iteration
        self._known = known
        self._auto_commit_s = auto_commit_s
        self._timeout_s = timeout_s
        self._default_callback = default_callback
        self._auto_commit_at = inf
        self._is_committing = False
        self._attending: int | None = None  # the thread in attend()
        self._steps: Steps | None = None
        self._waits_for: Future[Any] | None = None
        self.callbacks = Callbacks(wake)
        self._wake: Callable[[object], object] = lambda _: wake()  # the loop is not to hold this object
        self.on_soon = wake
        """Called when :meth:`auto_commit` is wanted earlier than it said."""
        self._reports = reports

    # -- in a thread ---------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """There is nothing for :meth:`attend` to do."""
        return self._steps is None and not self.callbacks and (self._group is None or self._group.pending is None)

    def attend(self, give_up_at: float) -> bool:
        """Do what there is to do, until the monotonic instant ``give_up_at``. Whether all of it is done: what is not
        goes on the next time, and until then no records may be taken.

        Raises KafkaError from what a listener raised, once the step that it belongs to is over.
        """
        self.refuse_within_attend()
        self._attending = threading.get_ident()
        try:
            self.callbacks.run()
            return self._attend(give_up_at)
        finally:
            self._attending = None

    @property
    def is_attending_here(self) -> bool:
        """This thread is in :meth:`attend`: in a listener or a callback, if it is in code of the user."""
        return self._attending == threading.get_ident()

    def refuse_within_attend(self) -> None:
        """IllegalStateError in a listener or a callback: what calls them cannot be begun again in its midst."""
        if self.is_attending_here:
            raise IllegalStateError("a rebalance listener or a commit's callback must not poll or unsubscribe")

    def _attend(self, give_up_at: float) -> bool:
        group = self._group
        while self._steps is not None or (group is not None and group.pending is not None):
            if self._steps is None:
                assert group is not None and group.pending is not None
                self._steps = self._carry_out(group.pending)
            if not self._advance(give_up_at):
                return False
        return True

    def _advance(self, give_up_at: float) -> bool:
        steps, wake = self._steps, self._wake
        assert steps is not None
        while True:
            waited = self._waits_for
            if waited is not None and not waited.wait(max(give_up_at - self._host.loop.time(), 0.0)):
                return False
            try:
                if waited is None:
                    following = next(steps)
                elif waited.exception is not None:
                    following = steps.throw(waited.exception)
                else:
                    following = steps.send(waited.value)
            except BaseException as end:
                self._steps = self._waits_for = None
                if isinstance(end, StopIteration):
                    return True
                raise
            self._waits_for = following
            if not following.is_done:
                following.add_both(wake)  # who polls waits for anything that may come

    # -- on a loop -----------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """A rebalance step is under way: no records are to be handed out."""
        return self._steps is not None

    def attend_on_loop(self, on_change: Callable[[], object]) -> None:
        """Carry out what is pending, on the loop's thread; then ``on_change()``."""
        group = self._group
        if self._steps is not None or group is None or group.pending is None:
            return
        self._steps = self._carry_out(group.pending)
        self._go_on(None, None, on_change)

    def _go_on(self, value: Any, error: BaseException | None, on_change: Callable[[], object]) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            waited = steps.throw(error) if error is not None else steps.send(value)
        except StopIteration:
            self._steps = None
        except KafkaError as fault:
            self._steps = None
            self._reports.put(fault)
        else:
            waited.add_callback(lambda found: self._go_on(found, None, on_change))
            waited.add_errback(lambda fault: self._go_on(None, fault, on_change))
            return
        on_change()
        self.attend_on_loop(on_change)

    # -- the steps of a rebalance --------------------------------------------------------------------------------------

    def _carry_out(self, effect: Pending) -> Steps:
        if isinstance(effect, Revoke):
            return self._revoke(effect)
        return self._lose(effect) if isinstance(effect, Lose) else self._assign(effect)

    def _revoke(self, effect: Revoke) -> Steps:
        commits = self._commits
        assert commits is not None
        log.info("revoked: %s", _names(effect.partitions))
        if self._auto_commit_s is not None:
            try:
                yield self._host.submit(commits.commit, self.changed(), self._timeout_s)
            except KafkaError as error:
                log.warning("the offsets of revoked partitions were not committed: %s", error)
        yield self._host.submit(commits.settled)
        fault = self._tell("on_partitions_revoked", effect.partitions)
        yield self._host.submit(commits.settled)  # what the listener has committed
        yield self._host.submit(self._take_away, effect)
        if fault is not None:
            raise fault

    def _lose(self, effect: Lose) -> Steps:
        log.warning("lost, as the group has gone on without this member: %s", _names(effect.partitions))
        fault = self._tell("on_partitions_lost", effect.partitions)
        yield self._host.submit(self._take_away, effect)
        if fault is not None:
            raise fault

    def _assign(self, effect: Assign) -> Steps:
        log.info("assigned: %s", _names(effect.owned))
        yield self._host.submit(self._driver.assign, sorted(effect.owned), effect.added)
        for partition in effect.added:
            self._known.pop(partition, None)
        fault = self._tell("on_partitions_assigned", effect.added)
        yield self._host.submit(self._begin, effect)
        if fault is not None:
            raise fault

    def _tell(self, name: str, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        method = method_of(self.listener, name)
        if method is None:
            return None
        began_at = self._host.loop.time()
        try:
            method(set(partitions))
        except Exception as error:
            log.exception("the rebalance listener's %s() raised", name)
            fault = KafkaError(f"the rebalance listener's {name}() raised {error!r}")
            fault.__cause__ = error
            return fault
        finally:
            if self.metrics is not None:
                self.metrics.told(name, self._host.loop.time() - began_at)
        return None

    def _take_away(self, effect: Revoke | Lose) -> None:
        assert self._group is not None and self._commits is not None
        with self._driver.lock:
            left = [each for each in self._driver.fetcher.positions if each not in effect.partitions]
        for partition in effect.partitions:
            self._iteration.drop(partition)
            self._known.pop(partition, None)
        self._commits.withdraw(effect.partitions)
        self._driver.assign(left)
        self._group.carried_out(effect)

    def _begin(self, effect: Assign) -> None:
        assert self._group is not None and self._starts is not None
        self._starts.look_up(sorted(effect.added))
        self._group.carried_out(effect)

    # -- commits -------------------------------------------------------------------------------------------------------

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each assigned partition was read to, by what was handed out."""
        with self._driver.lock:
            found = {
                partition: OffsetAndMetadata(position.position, "", position.leader_epoch)
                for partition, position in self._driver.fetcher.positions.items()
                if position.position is not None
            }
        for partition, what in self._iteration.consumed().items():
            if partition in found:
                found[partition] = what
        return found

    def changed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those of :meth:`consumed` that are not what is committed, as far as is known."""
        known = self._known
        return {each: what for each, what in self.consumed().items() if known.get(each) != what.offset}

    def note_committed(self, offsets: Offsets) -> None:
        """These were committed. Any thread."""
        for partition, what in offsets.items():
            self._known[partition] = what.offset

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> Future[None]:
        """Commit; the callback (default: that of the settings) is called by ``callbacks.run()``."""
        assert self._commits is not None
        done = self._host.submit(self._commits.commit, offsets, self._timeout_s)
        callback = callback or self._default_callback
        callbacks = self.callbacks  # the loop is not to hold this object
        if callback is not None:
            done.add_callback(lambda _: callbacks.put(callback, offsets))
            done.add_errback(lambda error: callbacks.put(callback, offsets, error))
        return done

    def commit_no_more(self) -> None:
        """No commits by itself from now on."""
        self._auto_commit_s = None

    def auto_commit(self, now: float) -> float:
        """Commit by itself when it is time. When it is the next time; infinity for never."""
        interval_s = self._auto_commit_s
        if interval_s is None or self._commits is None:
            return inf
        if self._auto_commit_at == inf:
            self._auto_commit_at = now + interval_s
        elif now >= self._auto_commit_at:
            self._auto_commit_at = now + interval_s
            offsets = {} if self._is_committing else self.changed()
            if offsets:
                self._is_committing = True
                done = self.commit_async(offsets, None)
                done.add_both(self._auto_committed)
                done.add_errback(self._auto_commit_failed)
        return self._auto_commit_at

    def _auto_committed(self, _: object) -> None:
        self._is_committing = False

    def _auto_commit_failed(self, error: BaseException) -> None:
        if isinstance(error, CommitInRebalanceError):  # soon over: then again, before the interval is
            self._auto_commit_at = min(self._auto_commit_at, self._host.loop.time() + SOON_S)
            self.on_soon()
        elif not isinstance(error, Cancelled):
            log.warning("auto-commit: %s", error)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "nothing"
