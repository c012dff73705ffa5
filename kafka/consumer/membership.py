"""What the user's side does for its group: carries out rebalance steps, commits by itself, calls back.

    thread    attend(), which poll() and other calls begin with: in the user's thread, until a time limit
    loop      by itself, in callbacks on the loop

Both run the same *steps*: a generator that yields futures to be waited for. Listeners and commit callbacks are called
here and nowhere else, between two polls' records. What the group wants is ``group_driver.py``'s ``pending``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping
from math import inf
from typing import Any, Final

from kafka.client import ClientHost
from kafka.consumer.commits import CommitCallback, CommitQueue, OffsetCommitCallbacks
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.group_driver import GroupDriver
from kafka.consumer.iteration import YieldedRecords
from kafka.consumer.listener import method_of
from kafka.consumer.metrics import ConsumerMetrics
from kafka.core.consume.partition import PartitionPosition
from kafka.core.group.machine import Assign, AssignmentStep, Lose, Revoke
from kafka.core.group.offsets import CommittedOffsets, OffsetDialogues
from kafka.errors import (
    Cancelled,
    CommitInRebalanceError,
    FencedMemberEpochError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from kafka.future import Future
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

# Where assigned partitions begin: at their group's committed offsets, else where ``auto_offset_reset`` says.
#
# A look-up that fails is made again for as long as its partitions wait for it. Its answer counts for the assignment
# that it was made for: a partition that was away meanwhile may have been read, and committed, by another member since.
# All on the loop's thread.


log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
"""After an error that is not retriable, but that an administrator may mend."""

StartingPositions = dict[TopicPartition, PartitionPosition]
"""What is looked up: the position that waits for it stands for the assignment."""

_TRANSIENT_ERRORS: Final = (KafkaTimeoutError, UnknownMemberIdError, StaleMemberEpochError, FencedMemberEpochError)
"""What is not retriable and passes all the same: the member is informed (``on_fenced``), and will join anew."""


class InitialOffsets:
    """``known`` is given the committed offsets; ``on_trouble`` gets errors that users should see."""

    def __init__(
        self,
        driver: ConsumerDriver,
        who: Callable[[], ConsumerGroupMetadata],
        *,
        is_member: Callable[[], bool],
        timeout_s: float,
        known: MutableMapping[TopicPartition, int],
        on_fenced: Callable[[KafkaError], object],
        on_trouble: Callable[[KafkaError], object],
    ) -> None:
        self._driver = driver
        self._client = driver.client
        client = driver.client
        self._dialogues = OffsetDialogues(who, client.cluster.topic_id, client.retry_backoff, on_fenced)
        self._is_member = is_member
        self._timeout_s = timeout_s
        self._known = known
        self._on_trouble = on_trouble
        # Partitions whose OffsetFetch is under way.
        self._asked: StartingPositions = {}

    def look_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Let these begin, as far as they still wait for it."""
        if self._driver.is_closed:
            return
        with self._driver.lock:
            positions = self._driver.fetcher.positions
            wanted = {
                each: position
                for each in partitions
                if (position := positions.get(each)) is not None
                and position.is_awaiting
                and self._asked.get(each) is not position
            }
        if not wanted:
            return
        self._asked.update(wanted)
        try:
            found = self._client.run(self._dialogues.fetch(wanted, self._timeout_s, as_member=self._is_member()))
        except KafkaError:  # the client is closed
            return
        found.add_callback(self._found, wanted)
        found.add_errback(self._failed, wanted)

    def _ended(self, wanted: StartingPositions) -> None:
        for partition, position in wanted.items():
            if self._asked.get(partition) is position:
                del self._asked[partition]

    def _found(self, wanted: StartingPositions, committed: CommittedOffsets) -> None:
        self._ended(wanted)
        offsets, errors = committed
        with self._driver.lock:
            positions = self._driver.fetcher.positions
            for partition, position in wanted.items():
                if partition in errors or positions.get(partition) is not position:
                    continue
                what = offsets.get(partition)
                if what is None:
                    self._driver.fetcher.start(partition, None)
                else:
                    self._known[partition] = what.offset
                    self._driver.fetcher.start(partition, what.offset, what.leader_epoch)
        self._driver.started()
        if errors:
            self._complain(errors)

    def _failed(self, wanted: StartingPositions, error: BaseException) -> None:
        self._ended(wanted)
        if not isinstance(error, KafkaError):
            error = KafkaError(f"the look-up of committed offsets failed: {error!r}")
        self._complain(dict.fromkeys(wanted, error))

    def _complain(self, errors: dict[TopicPartition, KafkaError]) -> None:
        """Tell each kind of error once that does not mend itself (Java's poll raises no other either), and try again
        those partitions that still wait."""
        told: set[type[KafkaError]] = set()
        retriable = True
        for error in errors.values():
            if isinstance(error, Cancelled):
                return
            retriable = retriable and (error.retriable or isinstance(error, _TRANSIENT_ERRORS))
            if type(error) in told:
                continue
            told.add(type(error))
            if error.retriable or isinstance(error, _TRANSIENT_ERRORS):
                log.info("fetching committed offsets failed, retrying: %s", error)
            else:
                self._on_trouble(error)
        wait_s = self._client.retry_backoff.delay_s(1) if retriable else RETRY_S
        self._client.loop.call_later(wait_s, self.look_up, list(errors))


# Errors for the user, which the next poll raises.


class PendingErrors:
    """``on_news`` is called when there is one. Errors come in on the loop, and go out where the user is."""

    def __init__(self, on_news: Callable[[], object]) -> None:
        self.fatal: KafkaError | None = None
        """Nothing comes any more, as every poll says; until another subscription."""
        self._on_news = on_news
        self._errors: deque[KafkaError] = deque()

    def clear_fatal(self) -> None:
        """Another subscription begins."""
        self.fatal = None

    def put(self, error: KafkaError, is_fatal: bool = False) -> None:
        """To be raised once; a fatal one again and again."""
        if is_fatal:
            self.fatal = error
        else:
            self._errors.append(error)
        self._on_news()

    @property
    def is_empty(self) -> bool:
        return not self._errors and self.fatal is None

    def raise_one(self) -> None:
        """Raise what there is, if anything."""
        if self._errors:
            raise self._errors.popleft()
        if self.fatal is not None:
            raise self.fatal


RETRY_COMMIT_S: Final = 0.1
"""When an auto-commit is tried again that a rebalance stood in the way of."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Steps = Generator[Future[Any], Any, None]


class GroupMembership:
    """See the module. ``auto_commit_s``: between commits by itself, None for none. ``known``: what is committed, as
    far as was seen."""

    def __init__(
        self,
        host: ClientHost,
        driver: ConsumerDriver,
        commits: CommitQueue | None,
        starts: InitialOffsets | None,
        group: GroupDriver | None,
        iteration: YieldedRecords,
        known: dict[TopicPartition, int],
        reports: PendingErrors,
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
        self._initial_offsets = starts
        self._group = group
        self._yielded = iteration
        self._known = known
        self._auto_commit_s = auto_commit_s
        self._timeout_s = timeout_s
        self._default_callback = default_callback
        self._auto_commit_at = inf
        self._is_committing = False
        self._attending: int | None = None  # the thread in attend()
        self._steps: Steps | None = None
        self._waits_for: Future[Any] | None = None
        self._is_listener_busy = False  # it gives partitions up, and says so when that is done
        self.callbacks = OffsetCommitCallbacks(wake)
        self._wake: Callable[[object], object] = lambda _: wake()  # the loop is not to hold this object
        self.on_soon = wake
        """Called when :meth:`auto_commit` is wanted earlier than it said."""
        self._pending_errors = reports

    # -- in a thread ---------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """There is nothing for :meth:`attend` to do."""
        return self._steps is None and not self.callbacks.due and (self._group is None or self._group.pending is None)

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

    def set_listener(self, listener: Any) -> None:
        """The user's rebalance listener, or None."""
        self.listener = listener

    def measure(self, metrics: ConsumerMetrics | None) -> None:
        """Count listeners' calls there."""
        self.metrics = metrics

    def call_when_commit_is_due(self, action: Callable[[], object]) -> None:
        """For consumers on a loop, without polls: ``action`` is called when the next commit by time comes earlier."""
        self.on_soon = action

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
        """A rebalance step is under way: no records are to be handed out, unless it waits for a listener."""
        return self._steps is not None and not self._is_listener_busy

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
            self._pending_errors.put(fault)
        else:
            waited.add_callback(lambda found: self._go_on(found, None, on_change))
            waited.add_errback(lambda fault: self._go_on(None, fault, on_change))
            if self._is_listener_busy:
                on_change()  # other partitions have records
            return
        on_change()
        self.attend_on_loop(on_change)

    # -- the steps of a rebalance --------------------------------------------------------------------------------------

    def _carry_out(self, effect: AssignmentStep) -> Steps:
        if isinstance(effect, Revoke):
            return self._revoke(effect)
        return self._lose(effect) if isinstance(effect, Lose) else self._assign(effect)

    def _revoke(self, effect: Revoke) -> Steps:
        commits = self._commits
        assert commits is not None
        log.info("revoked partitions: %s", _partitions_text(effect.partitions))
        if self._auto_commit_s is not None:
            try:
                yield self._host.submit(commits.commit, self.changed(), self._timeout_s)
            except KafkaError as error:
                log.warning(
                    "auto-commit before revocation failed, other members will read again what is not committed: %s",
                    error,
                )
        yield self._host.submit(commits.settled)
        fault, given_up = self._tell("on_partitions_revoked", effect.partitions)
        if given_up is not None:
            self._is_listener_busy = True
            try:
                yield given_up
            except Exception as error:
                fault = self._fault_of("on_partitions_revoked", error)
            finally:
                self._is_listener_busy = False
        # The partitions go to other members only when no commit is in flight. A later answer would be of a former
        # member, and a retry must not be sent under the new epoch.
        yield self._host.submit(commits.settled)  # what the listener has committed
        yield self._host.submit(self._take_away, effect)
        if fault is not None:
            raise fault

    def _lose(self, effect: Lose) -> Steps:
        log.warning(
            "lost partitions, the group has rebalanced without this member: %s", _partitions_text(effect.partitions)
        )
        fault, _ = self._tell("on_partitions_lost", effect.partitions)
        yield self._host.submit(self._take_away, effect)
        if fault is not None:
            raise fault

    def _assign(self, effect: Assign) -> Steps:
        log.info("assigned partitions: %s", _partitions_text(effect.owned))
        yield self._host.submit(self._driver.assign, sorted(effect.owned), effect.added)
        for partition in effect.added:
            self._known.pop(partition, None)
        fault, _ = self._tell("on_partitions_assigned", effect.added)
        yield self._host.submit(self._begin, effect)
        if fault is not None:
            raise fault

    def _tell(
        self, name: str, partitions: Iterable[TopicPartition]
    ) -> tuple[KafkaError | None, Future[Any] | None]:
        """Call the listener: what it raised, and what it returned if that is to be waited for."""
        method = method_of(self.listener, name)
        if method is None:
            return None, None
        began_at = self._host.loop.time()
        try:
            answer = method(set(partitions))
        except Exception as error:
            return self._fault_of(name, error), None
        finally:
            if self.metrics is not None:
                self.metrics.listener_called(name, self._host.loop.time() - began_at)
        return None, answer if isinstance(answer, Future) else None

    @staticmethod
    def _fault_of(name: str, error: Exception) -> KafkaError:
        log.error("the rebalance listener's %s() raised", name, exc_info=error)
        fault = KafkaError(f"the rebalance listener's {name}() raised {error!r}")
        fault.__cause__ = error
        return fault

    def _take_away(self, effect: Revoke | Lose) -> None:
        assert self._group is not None and self._commits is not None
        with self._driver.lock:
            left = [each for each in self._driver.fetcher.positions if each not in effect.partitions]
        for partition in effect.partitions:
            self._yielded.drop(partition)
            self._known.pop(partition, None)
        self._commits.withdraw(effect.partitions)
        self._driver.assign(left)
        self._group.carried_out(effect)

    def _begin(self, effect: Assign) -> None:
        assert self._group is not None and self._initial_offsets is not None
        # After the listener, which may commit or seek. A listener that asks for a position starts the look-up itself.
        self._initial_offsets.look_up(sorted(effect.added))
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
        for partition, what in self._yielded.consumed().items():
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
            self._auto_commit_at = min(self._auto_commit_at, self._host.loop.time() + RETRY_COMMIT_S)
            self.on_soon()
        elif not isinstance(error, Cancelled):
            log.warning("auto-commit failed, retrying at the next interval: %s", error)


def _partitions_text(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "nothing"
