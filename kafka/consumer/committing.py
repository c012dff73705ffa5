"""What a consumer commits, and what its group has committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, overload

from kafka.consumer import checks
from kafka.consumer.base import ConsumerBase
from kafka.consumer.callbacks import CommitCallback
from kafka.consumer.commits import Commits
from kafka.core.group.offsets import Committed, fetch_offsets
from kafka.errors import IllegalStateError, KafkaError
from kafka.future import Future
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, "OffsetAndMetadata | int"]


class Committing(ConsumerBase):
    """The part of KafkaConsumer about commits. All of it needs ``group_id``: IllegalStateError without one."""

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit, and wait for it: the positions of all that is assigned (behind what poll or iteration has handed
        out), or these ``offsets``, each the *next* one to read: OffsetAndMetadata, or a number.

        Tries again what may mend itself, for ``timeout_ms`` (default: ``default_api_timeout_ms``). Errors:
        CommitFailedError (the group has gone on without this member), RebalanceInProgressError (call poll(), and commit
        again what is still assigned), KafkaTimeoutError, GroupAuthorizationFailedError, TopicAuthorizationFailedError,
        OffsetMetadataTooLargeError. Callbacks of commits before it are called first.
        """
        commits = self._needs_group("commit")
        wanted = None if offsets is None else checks.offsets_to_commit(offsets)
        timeout_s = checks.timeout_s(timeout_ms, self._default_timeout_s)
        self._host.check_may_block()
        with self._turn:
            found = self._membership.consumed() if wanted is None else wanted
            try:
                self._wait_in_turn(self._host.submit(commits.commit, found, timeout_s), timeout_s, "commit")
            finally:
                self._membership.callbacks.run()

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> Future[None]:
        """Commit without waiting. The future ends on the loop's thread; ``callback(offsets, response)`` is called by a
        later poll, commit or close in the user's thread (on a loop: there), in the order of the calls. ``response`` is
        the error, or an OffsetCommitResponse.

        Commits go out one after the other, so none overtakes another, and those that wait for their turn go together.
        """
        self._needs_group("commit_async")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: a function (offsets, response), not {type(callback).__name__}")
        wanted = None if offsets is None else checks.offsets_to_commit(offsets)
        with self._turn:
            self._membership.callbacks.run()
            found = self._membership.consumed() if wanted is None else wanted
            done = self._membership.commit_async(found, callback)
            if not self._may_block:
                callbacks = self._membership.callbacks
                done.add_both(lambda _: callbacks.run())
            return done

    @overload
    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any: ...

    @overload
    def committed(
        self, partition: Iterable[TopicPartition], metadata: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(self, partition: Any, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """What the group has committed for a partition, or None: the offset, with ``metadata`` OffsetAndMetadata.

        Of several partitions, in a set or list, a dict of OffsetAndMetadata or None, as in Java. Asks the coordinator;
        waits for offsets that an open transaction is about to commit. KafkaTimeoutError after ``timeout_ms``.
        """
        self._needs_group("committed")
        is_one = isinstance(partition, tuple) and len(partition) == 2 and not isinstance(partition[0], tuple)
        wanted = [checks.partition(partition)] if is_one else checks.partitions(partition)
        timeout_s = checks.timeout_s(timeout_ms, self._default_timeout_s)
        self._host.check_may_block()
        with self._turn:
            found = self._fetch_committed(wanted, timeout_s)
        if not is_one:
            return {each: found.get(each) for each in wanted}
        one = found.get(wanted[0])
        return one if one is None or metadata else one.offset

    def _fetch_committed(
        self, partitions: list[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if not partitions:
            return {}
        client = self._host.client
        group_id = self._settings["group_id"]

        def fetch() -> Future[Committed]:
            client.cluster.add_topics({each.topic for each in partitions})
            return client.run(
                fetch_offsets(
                    partitions,
                    lambda: ConsumerGroupMetadata(group_id),
                    as_member=False,
                    topic_id_of=client.cluster.topic_id,
                    timeout_s=timeout_s,
                    backoff=client.retry_backoff,
                )
            )

        found = self._wait_in_turn(self._host.submit(fetch), timeout_s, "committed")
        for error in found.errors.values():
            raise error
        return found.offsets

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership now, for ``KafkaProducer.send_offsets_to_transaction`` (KIP-447); of no member
        without ``group_id``."""
        self._check_usable()
        group_id = self._settings["group_id"]
        if self._group is None or not self._group.is_member:
            return ConsumerGroupMetadata(group_id)
        return self._group.metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Let the group be rebalanced by the next polls (KIP-568, KIP-800). With ``group_protocol="consumer"`` the
        broker alone decides about that, and nothing happens."""
        self._check_usable()
        if self._group is None:
            raise IllegalStateError("enforce_rebalance: without group_id there is nothing to rebalance")
        self._on_loop(self._group.rejoin, reason or "the user has called enforce_rebalance()")

    def _needs_group(self, what: str) -> Commits:
        self._check_usable()
        if self._commits is None:
            raise IllegalStateError(f"{what}: offsets are committed for a group: give the consumer a group_id")
        return self._commits

    def _commit_before_leaving(self, timeout_s: float) -> None:
        """What was assigned by hand, and read: with auto-commit it counts as done. 0: without waiting for it."""
        commits = self._commits
        if commits is None or not self._settings["enable_auto_commit"]:
            return
        changed = self._membership.changed()
        if not changed:
            return
        done = self._host.submit(commits.commit, changed, timeout_s or self._default_timeout_s)
        if timeout_s and self._may_block:
            try:
                self._host.wait(done, timeout_s)
            except KafkaError as error:
                _warn(error)
        else:
            done.add_errback(_warn)


def _warn(error: BaseException) -> None:
    log.warning("auto-commit of the last positions: %s", error)
