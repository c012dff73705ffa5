"""The half of the share consumer that says what became of records; the other half is ``consumer.py``."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.client import Host
from kafka.core import arguments
from kafka.core.share.holding import Holding
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaError
from kafka.future import Future
from kafka.share.engine import ShareEngine
from kafka.share.events import CommitCallback, Events
from kafka.share.inbox import Inbox
from kafka.share.polling import Polling
from kafka.structs import TopicPartition


class Acknowledging:
    """The consumer makes what is declared here. ``_has_thread``: its loop is one of its own, in a thread."""

    _host: Host
    _engine: ShareEngine
    _inbox: Inbox
    _events: Events
    _polling: Polling
    _has_thread: bool

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what became of a record. Sent soon, together with others; :meth:`commit` waits for it.

        IllegalStateError when the record was acknowledged before or its lock is gone, and in implicit mode, where the
        next poll accepts it; IllegalArgumentError for a type that is none.
        """
        kind = _kind(type)
        self._check_open()
        if not self._has_thread:
            self._engine.acknowledge(record, kind)
            return
        self._check_explicit()
        self._check_ours(record)
        self._polling.say(record, kind)

    def acknowledge_all(
        self, records: Sequence[ShareRecord], type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> list[ShareRecord]:
        """:meth:`acknowledge` for many at once, at a fraction of its cost; returns those of which nothing can be said,
        since they were acknowledged before or their locks are gone. Errors as there for everything else.
        """
        kind = _kind(type)
        self._check_open()
        if not self._has_thread:
            return [record for refused, _ in self._engine.acknowledge_all(records, kind) for record in refused]
        self._check_explicit()
        for record in records:
            self._check_ours(record)
        return self._polling.say_all(records, kind)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """:meth:`acknowledge` for a record of which only the place is known. IllegalStateError when none is held
        there."""
        self._check_open()
        find = self._engine.find
        record = self._host.call(find, topic, partition, offset) if self._has_thread else find(topic, partition, offset)
        if record is None or self._inbox.has(record):
            raise IllegalStateError(f"{topic}:{partition}:{offset} cannot be acknowledged: it is not held")
        self.acknowledge(record, type)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Call ``callback(offsets, exception)`` when acknowledgements have been answered, instead of the former one.

        ``offsets``: ``{partition: {offset, ...}}`` of one partition; ``exception``: None, or the KafkaError that
        refused them (they are handed out again). Called in the thread that polls, commits or closes, within that call,
        which raises what it raises; on a loop, there, and what it raises is logged. Source: KIP-932, Java's
        ``setAcknowledgementCommitCallback``.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: {callback!r} cannot be called")
        self._events.commit_callback = callback

    def renew(self, records: Sequence[ShareRecord]) -> Future[None]:
        """Start the locks of these anew (KIP-1222); the future is done when the broker has answered.

        Those that it refused are lost: ``record.lost``, and ``on_acknowledged`` has the error. What was lost before is
        passed over.
        """
        if self._has_thread:
            self._check_explicit()
        for record in records:
            if not record.lost:
                self.acknowledge(record, AcknowledgeType.RENEW)
        return self.commit_async()

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (in implicit mode: all that was polled), and wait for the answers.

        Returns the outcome of each partition since the last call: None, or the error of a record whose acknowledgement
        was refused (it will be handed out again): InvalidRecordStateError where the lock had ended before.
        KafkaTimeoutError when ``timeout_ms`` passes first.
        """
        timeout_s = None if timeout_ms is None else arguments.timeout_s(timeout_ms, 0.0)
        self._check_open()
        self._host.check_may_block()
        self._host.wait(self.commit_async(), timeout_s)
        self._polling.call_back()
        return self._inbox.take_outcomes()

    commit_sync = commit

    def commit_async(self) -> Future[None]:
        """Send what was acknowledged (in implicit mode: all that was polled); the future is done when all of it has
        been answered."""
        self._check_open()
        if not self._has_thread:
            return self._engine.flush()
        return self._polling.submit(self._engine.flush)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._inbox.is_closed:
            raise IllegalStateError("the share consumer is closed")
        if not self._host.loop.is_usable:
            why = "its loop is closed, or belongs to the parent process; after a fork, make a new one in the child"
            raise IllegalStateError(f"the share consumer cannot be used: {why}")

    def _check_ours(self, record: ShareRecord) -> None:
        if not isinstance(record.owner, Holding) or record.owner.session.member_id != self._engine.member_id:
            raise IllegalStateError(f"{record!r} was handed out by another consumer")

    def _check_explicit(self) -> None:
        if self._polling.is_implicit:
            raise IllegalStateError(
                "records are acknowledged by the next poll: share_acknowledgement_mode is implicit; set it to explicit"
            )


def _kind(type: AcknowledgeType) -> AcknowledgeType:
    try:
        kind = AcknowledgeType(type)
    except ValueError:
        raise IllegalArgumentError(f"{type!r}: ACCEPT, RELEASE, REJECT or RENEW") from None
    if kind is AcknowledgeType.GAP:
        raise IllegalArgumentError("GAP is for offsets without a record")
    return kind
