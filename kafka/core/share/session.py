"""One member's share session with one broker: which request comes next, and what its answer means.

    epoch 0 --ShareFetch--> 1 --ShareFetch or ShareAcknowledge--> 2 ... 2**31-1 -> 1
       ^                                                          |
       +---- connection lost, or an error of the whole answer ----+        -1: close, with the last acknowledgements

The rules that shape it (KIP-932; "measured" is on Apache Kafka 4.3.0):

* One request in flight. A second one, on whatever connection, moves the epoch under the first (measured: the first then
  fails with INVALID_SHARE_SESSION_EPOCH, and what it acquired reaches no consumer).
* The request that opens a session carries no acknowledgements.
* The session lives as long as its connection. When that ends, or the broker says SHARE_SESSION_NOT_FOUND, every lock of
  ours on this broker is gone, and so are the records held: they are reported as lost and no acknowledgement is sent for
  them. After any other error the locks stay, since they belong to the member id: only the session is opened anew. What
  INVALID_SHARE_SESSION_EPOCH kept the broker from looking at is said again; with other errors it counts as refused.
* A partition that is wanted no more is forgotten, and what is held of it stays ours to acknowledge, by ShareAcknowledge
  (a ShareFetch would put it back into the session). Only the driver, which knows that the leader has moved, says that
  it is lost.
* A broker that ends a session frees the locks on the session's partitions only: a closing request releases by
  name what is held of others.
* Partitions are listed when they are new to the session; all of the subscription's, not only the assigned ones (see
  ``kafka/share/consumer.py``).
* A long poll that finds nothing answers acknowledgements sent with it only at its end, and does not see records that it
  released itself. So renewals, releases and all acknowledgements that a caller waits for go by ShareAcknowledge.
* What was acquired is read in slices: whole batches are acquired, and a few kB may hold millions of records. When the
  next slice is read is the caller's affair. Before, nothing is fetched; what is unread when its locks end is forgotten.
* Acknowledgements that the broker could not write for the moment are said again while their locks last.

What each error asks for is a table, and :class:`ShareResponseHandler` takes in what an answer brings. A partition that
answered with an error is left alone for a moment (:class:`PartitionBackoff`). Records that cannot be read are given
back, and the partition rests long enough for others to take them: each hand-out counts, and after some the broker drops
them. What an error says about the cluster's metadata is for the caller, who finds it in :class:`ShareResponseOutcome`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar, cast
from uuid import UUID

from kafka.core.partitions import by_topic
from kafka.core.retry import ErrorTable
from kafka.core.share.acknowledgements import (
    Acknowledged,
    AcknowledgementResult,
    AcquiredRecords,
    SentAcknowledgements,
    acknowledged_of,
    failed_results,
)
from kafka.core.share.records import (
    AcquiredRange,
    AcquiredReader,
    AcquiredSlice,
    SharedBatch,
    ShareRecord,
    TopicIdPartition,
)
from kafka.errors import (
    AuthenticationError,
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    FencedLeaderEpochError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InconsistentTopicIdError,
    InvalidRecordStateError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    KafkaError,
    KafkaStorageError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    RetriableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.constants import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, AcknowledgeType
from kafka.protocol.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

B = TypeVar("B", ShareFetchRequest.AcknowledgementBatch, ShareAcknowledgeRequest.AcknowledgementBatch)


class FetchDemand(NamedTuple):
    """What a fetch may bring. ``records`` 0: nothing. ``exactly``: no more than that (record-limit mode, KIP-1206).
    ``max_wait_ms``: do not wait longer, because other brokers have to be asked for the same records.
    """

    records: int
    exactly: bool = False
    max_wait_ms: int | None = None


def _batches(kind: type[B], taken: SentAcknowledgements | None) -> list[B]:
    """The ranges as one request or the other has them."""
    return [
        kind(first_offset=each.first, last_offset=each.last, acknowledge_types=[each.type])
        for each in (taken.ranges if taken is not None else ())
    ]


# What each error of a share session's answers asks for, one row for each (KIP-932; kafka.common.protocol.Errors).
#
# Three places of an answer have a code, and the same error means different things there:
#
#     the whole answer          SHARE_FETCH_ERRORS      the session is opened anew; locks, acknowledgements: see the row
#     a fetched partition       SHARE_PARTITION_ERRORS  it is left alone, and the cluster's metadata is read again
#     its acknowledgements      ACKNOWLEDGE_ERRORS      refused, or sent again: one by one, or later
#
# Retriable errors without a row are tried again and kept from the user, others are reported. Heartbeats have tables of
# their own in ``core/group/heartbeat.py``. The documentation draws these.


BACKOFF_S: Final = 0.1
"""How long a partition that answered with an error is left out; doubled for each in a row."""
BACKOFF_MAX_S: Final = 1.0
UNREADABLE_BACKOFF_S: Final = 30.0
"""The same after records that cannot be read: each hand-out counts, and others may be able to."""


class ShareFetchErrorHandling(NamedTuple):
    """``locks_gone``: nothing on this broker is locked for us any more; else all of it is, whatever the session is.
    ``again``: it did not look at the acknowledgements, so they are sent again. ``is_reported``: the error is raised to
    the user. ``final``: no later attempt succeeds.
    """

    locks_gone: bool = False
    again: bool = False
    is_reported: bool = False
    final: bool = False


class SharePartitionErrorHandling(NamedTuple):
    """``locks_gone``: this broker does not lead it, and so has none of our locks on it. ``rest_s``: how long the
    partition is left out the first time, at most ``rest_max_s``.
    """

    locks_gone: bool = False
    is_reported: bool = False
    rest_s: float = BACKOFF_S
    rest_max_s: float = BACKOFF_MAX_S


class AcknowledgeErrorHandling(NamedTuple):
    """``one_by_one``: one bad offset failed the list, so each is said by itself. ``again``: later, while the locks
    last. With neither the broker has not taken them, and will not.
    """

    one_by_one: bool = False
    locks_gone: bool = False
    again: bool = False


SHARE_FETCH_ERRORS: Final = ErrorTable(
    {
        ShareSessionNotFoundError: ShareFetchErrorHandling(locks_gone=True),  # the broker saw the connection end
        InvalidShareSessionEpochError: ShareFetchErrorHandling(again=True),  # an answer was lost
        ShareSessionLimitReachedError: ShareFetchErrorHandling(),  # a place may become free
        TopicAuthorizationFailedError: ShareFetchErrorHandling(is_reported=True),  # rights may be granted
        InvalidRequestError: ShareFetchErrorHandling(is_reported=True),  # a fault of ours
        GroupAuthorizationFailedError: ShareFetchErrorHandling(is_reported=True, final=True),
        # the feature share.version is off, or the broker too old
        UnsupportedVersionError: ShareFetchErrorHandling(is_reported=True, final=True),
        AuthenticationError: ShareFetchErrorHandling(is_reported=True, final=True),  # not let in
        IllegalStateError: ShareFetchErrorHandling(is_reported=True, final=True),  # the client is closed
        UnknownError: ShareFetchErrorHandling(),
        RetriableError: ShareFetchErrorHandling(),
        BrokerResponseError: ShareFetchErrorHandling(is_reported=True),
    },
    otherwise=ShareFetchErrorHandling(),
)
"""Also for an error that comes in place of an answer."""

_UNREADABLE: Final = SharePartitionErrorHandling(
    is_reported=True, rest_s=UNREADABLE_BACKOFF_S, rest_max_s=UNREADABLE_BACKOFF_S
)
SHARE_PARTITION_ERRORS: Final = ErrorTable(
    {
        NotLeaderForPartitionError: SharePartitionErrorHandling(locks_gone=True),
        FencedLeaderEpochError: SharePartitionErrorHandling(locks_gone=True),
        UnknownTopicOrPartitionError: SharePartitionErrorHandling(locks_gone=True),
        # deleted; a topic made anew has another id
        UnknownTopicIdError: SharePartitionErrorHandling(locks_gone=True),
        InconsistentTopicIdError: SharePartitionErrorHandling(),
        KafkaStorageError: SharePartitionErrorHandling(),
        ReplicaNotAvailableError: SharePartitionErrorHandling(),
        OffsetNotAvailableError: SharePartitionErrorHandling(),
        UnknownLeaderEpochError: SharePartitionErrorHandling(),
        UnknownError: SharePartitionErrorHandling(),
        TopicAuthorizationFailedError: SharePartitionErrorHandling(is_reported=True),
        CorruptRecordError: _UNREADABLE,
        RetriableError: SharePartitionErrorHandling(),
        BrokerResponseError: SharePartitionErrorHandling(is_reported=True),
    },
    otherwise=_UNREADABLE,  # no broker's error: our own trouble with its records
)

ACKNOWLEDGE_ERRORS: Final = ErrorTable(
    {
        # a lock is gone, or renewals are switched off
        InvalidRecordStateError: AcknowledgeErrorHandling(one_by_one=True),
        InvalidRequestError: AcknowledgeErrorHandling(one_by_one=True),  # an offset was never acquired
        # the leader has moved, or the topic is gone
        NotLeaderForPartitionError: AcknowledgeErrorHandling(locks_gone=True),
        FencedLeaderEpochError: AcknowledgeErrorHandling(locks_gone=True),
        UnknownTopicOrPartitionError: AcknowledgeErrorHandling(locks_gone=True),
        UnknownTopicIdError: AcknowledgeErrorHandling(locks_gone=True),
        # the group's state could not be written in time, or not now
        RequestTimedOutError: AcknowledgeErrorHandling(again=True),
        CoordinatorLoadInProgressError: AcknowledgeErrorHandling(again=True),
        CoordinatorNotAvailableError: AcknowledgeErrorHandling(again=True),
        NotCoordinatorError: AcknowledgeErrorHandling(again=True),
        UnknownError: AcknowledgeErrorHandling(),  # it may have been written
        TopicAuthorizationFailedError: AcknowledgeErrorHandling(),
    },
    retry=AcknowledgeErrorHandling(again=True),
    otherwise=AcknowledgeErrorHandling(),
)


# Backing off from partitions that were answered with an error.
#
# Without that the broker would answer the next request at once with the same error. Each error in a row makes the wait
# twice as long; the first answer without one ends the count.


class PartitionBackoff:
    """Until when which partition rests. Instants are ``now`` of one monotonic clock, in seconds."""

    __slots__ = ("_counts", "_until")

    def __init__(self) -> None:
        self._until: dict[TopicIdPartition, float] = {}
        self._counts: dict[TopicIdPartition, int] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._until

    def begin(self, partition: TopicIdPartition, now: float, first_s: float, most_s: float) -> None:
        """One more error of the partition."""
        self._counts[partition] = count = self._counts.get(partition, 0) + 1
        self._until[partition] = now + min(first_s * 2.0 ** min(count - 1, 10), most_s)

    def went_well(self, partition: TopicIdPartition) -> None:
        """An answer without an error: the next one is the first again."""
        self._counts.pop(partition, None)

    def keep_only(self, partitions: Iterable[TopicIdPartition]) -> None:
        """The others matter no more."""
        kept = set(partitions)
        self._counts = {each: count for each, count in self._counts.items() if each in kept}

    def is_over(self, partition: TopicIdPartition, now: float) -> bool:
        """It does not rest (any more)."""
        return self._until.get(partition, now) <= now

    def end_those_over(self, now: float) -> None:
        """Forget rests that are over."""
        if self._until:
            self._until = {partition: until for partition, until in self._until.items() if until > now}

    def next_end(self, now: float) -> float | None:
        """When the next of them is over; a rest that is over matters no more until there is a request to be made."""
        return min((until for until in self._until.values() if until > now), default=None)


# What one answer of a share session brings: records, the fate of acknowledgements, locks that are gone.
#
# :class:`ShareResponseHandler` takes in an answer partition by partition and changes what is held accordingly; what
# each error asks for is read from the tables above. It knows nothing of the session's epoch and of requests.


_NO_ACKNOWLEDGEMENTS: Final = SentAcknowledgements([], [], [])


class ShareResponseOutcome(NamedTuple):
    """What an answer, or its absence, brought. ``lost``: held records whose locks are gone. ``error``: of the whole.
    ``partition_errors``: of fetched partitions, and of acknowledgements that came to the wrong broker. ``says_again``:
    some of the acknowledgements have no outcome yet, and are said again. ``expired_unread``: offsets whose locks ended
    before they were read."""

    records: list[ShareRecord]
    answered: list[AcknowledgementResult]
    lost: list[ShareRecord]
    partition_errors: dict[TopicIdPartition, KafkaError]
    error: KafkaError | None
    says_again: bool = False
    expired_unread: int = 0

    @property
    def acknowledged(self) -> list[Acknowledged]:
        """What was answered, record by record."""
        return acknowledged_of(self.answered)

    def __bool__(self) -> bool:
        return bool(self.records or self.answered or self.lost or self.partition_errors or self.error)


class ShareResponseHandler:
    """One answer to ``session``. ``deadline``: when the locks end that it gives; ``gives_back``: something has to be
    said at once; ``has_acquired``: something is there to be read."""

    def __init__(self, session: ShareSession, deadline: float, now: float) -> None:
        self.gives_back = False
        self.has_acquired = False
        self._says_again = False
        self.records: list[ShareRecord] = []
        self.answered: list[AcknowledgementResult] = []
        self.lost: list[ShareRecord] = []
        self.errors: dict[TopicIdPartition, KafkaError] = {}
        self._session = session
        self._deadline = deadline
        self._now = now

    def outcome(self) -> ShareResponseOutcome:
        """All of it."""
        for record in self.lost:
            record._lose()
        return ShareResponseOutcome(self.records, self.answered, self.lost, self.errors, None, self._says_again)

    # -- records -------------------------------------------------------------------------------------------------------

    def fetched(self, partition: TopicIdPartition, part: ShareFetchResponse.PartitionData) -> None:
        """A partition's part of a ShareFetch answer, but for what it says of acknowledgements."""
        if part.error_code:
            self._failed(partition, for_code(part.error_code)(part.error_message or ""))
        elif part.acquired_records:
            self._acquired(partition, part)

    def _failed(self, partition: TopicIdPartition, error: KafkaError) -> None:
        reaction = SHARE_PARTITION_ERRORS.action_for(error)
        if partition not in self.errors:
            self._session._backoffs.begin(partition, self._now, reaction.rest_s, reaction.rest_max_s)
        self.errors[partition] = error
        if reaction.locks_gone:
            self._drop(partition, error)

    def _drop(self, partition: TopicIdPartition, error: KafkaError) -> None:
        held, said = self._session._holding(partition).drop(error)
        self.lost += held
        self.answered += said

    def _acquired(self, partition: TopicIdPartition, part: ShareFetchResponse.PartitionData) -> None:
        session = self._session
        if partition not in session._wanted:  # not since the request went out
            self._give_back(partition, part)
            return
        if self._deadline <= self._now:
            return  # the answer was under way for longer than the locks last: who began to work would do so for nothing
        ranges = [AcquiredRange(*_offset_range(each), each.delivery_count) for each in part.acquired_records]
        holding = session._holding(partition)
        try:
            reader = AcquiredReader(
                session._topics[partition.topic_id], partition.partition, cast(memoryview, part.records), ranges,
                self._deadline, holding, session._check_crcs, session._open_batch,
            )  # fmt: skip
        except KafkaError as error:
            self._give_back(partition, part)
            self._failed(partition, error)
            return
        self.has_acquired = True
        lost, said = holding.acquired(reader)
        self.lost += lost
        self.answered += said

    def read(self, holding: AcquiredRecords, part: AcquiredSlice) -> None:
        """Some of what is unread of a partition."""
        try:
            self.records += holding.read(part)
        except KafkaError as error:
            # Given back, not dropped: another member may have the codec, or read what a network or disk damaged here.
            part.use_up()
            self.gives_back = holding.give_back() or self.gives_back
            self._failed(holding.partition, error)

    def _give_back(self, partition: TopicIdPartition, part: ShareFetchResponse.PartitionData) -> None:
        spans = [(first, last) for first, last in map(_offset_range, part.acquired_records) if first <= last]
        self._session._holding(partition).acks.add_ranges(spans, AcknowledgeType.RELEASE)
        self.gives_back = True

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def said(
        self, partition: TopicIdPartition, taken: SentAcknowledgements | None, code: int, text: str | None
    ) -> None:
        """What the broker answers to a partition's acknowledgements; ``taken`` None: none went out."""
        if not code:
            if taken is not None:
                self._taken_by_broker(partition, taken)
            return
        error = for_code(code)(text or "")
        reaction = ACKNOWLEDGE_ERRORS.action_for(error)
        holding = self._session._holding(partition)
        taken = taken or _NO_ACKNOWLEDGEMENTS
        if reaction.locks_gone:
            self.answered += holding.refuse(taken, error)
            self._failed(partition, error)
        elif reaction.one_by_one and not taken.is_single:
            self.answered += holding.say_one_by_one(taken)
            self.gives_back = self._says_again = True
        elif reaction.again:
            self._session._ack_rests.begin(partition, self._now, BACKOFF_S, BACKOFF_MAX_S)
            self.answered += holding.say_again(taken, error, self._now)
            self._says_again = True
        else:
            self.answered += holding.refuse(taken, error)

    def _taken_by_broker(self, partition: TopicIdPartition, taken: SentAcknowledgements) -> None:
        self._session._ack_rests.went_well(partition)
        for kind, records in taken.said:
            self.answered.append(AcknowledgementResult(kind, records, None))
            if kind is not AcknowledgeType.RENEW:
                continue
            for record in records:
                record._renew(self._deadline)
                if record.lost:  # its time was up here while the renewal was on its way
                    offsets = (record.offset, record.offset)
                    self._session._holding(partition).acks.add_ranges([offsets], AcknowledgeType.RELEASE)


def _offset_range(acquired: ShareFetchResponse.AcquiredRecords) -> tuple[int, int]:
    return acquired.first_offset, acquired.last_offset


WAIT_IDLE_MS: Final = 500
"""Longest long poll: a record released elsewhere wakes no waiting fetch, it is found by the next one. New records, an
expired lock and a start offset that moved do wake it."""
WAIT_HOLDING_MS: Final = 100
"""Longest long poll while something is held: an acknowledgement has to wait for it."""


class ShareExchange(NamedTuple):
    """A request as :meth:`ShareSession.next_request` made it."""

    request: ShareFetchRequest | ShareAcknowledgeRequest
    acks: dict[TopicIdPartition, SentAcknowledgements]
    listed: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]
    fetched: frozenset[TopicIdPartition]


class ShareSession:
    """See the module. All instants are ``now`` of one monotonic clock, in seconds."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        fetch_max_bytes: int = 52_428_800,
        check_crcs: bool = True,
        max_wait_ms: int = WAIT_IDLE_MS,
    ) -> None:
        self.member_id = member_id
        self._group_id = group_id
        self._fetch_max_bytes = fetch_max_bytes
        self._open_batch = SharedBatch()
        self._check_crcs = check_crcs
        self._max_wait_ms = min(max_wait_ms, WAIT_IDLE_MS)
        self._epoch = INITIAL_EPOCH
        self.exchange: ShareExchange | None = None
        """The request that is out; the next one has to wait."""
        self._topics: dict[UUID, str] = {}
        self._wanted: dict[TopicIdPartition, None] = {}  # in the order in which they are listed
        self._listed: set[TopicIdPartition] = set()
        self._backoffs = PartitionBackoff()  # of fetches
        self._ack_rests = PartitionBackoff()
        self._acquired: dict[TopicIdPartition, AcquiredRecords] = {}
        self._next_expiry: float | None = None
        self._flush = False
        self.lock_s = 30.0
        """Length of a lock in seconds, by the broker's last response."""

    # -- what the owner says ------------------------------------------------------------------------------------------

    def set_partitions(self, wanted: Sequence[TopicIdPartition], topics: dict[UUID, str]) -> None:
        """The partitions to fetch from this broker from now on, and the names of their topics."""
        self._topics = topics
        self._wanted = dict.fromkeys(wanted)
        self._backoffs.keep_only(self._wanted)
        for partition, holding in self._acquired.items():
            if partition not in self._wanted and holding.give_back():
                self._flush = True

    def lose(self, partitions: Iterable[TopicIdPartition], error: KafkaError) -> ShareResponseOutcome:
        """This broker leads these no more, so our locks on them are gone, and acknowledgements that wait are refused
        with ``error``."""
        gone = [self._acquired.pop(partition) for partition in partitions if partition in self._acquired]
        held, said = _drop_records(gone, error)
        return ShareResponseOutcome([], said, held, {}, None)

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of a record that is held. Raises IllegalStateError when it is not, or not any more."""
        holding = record.owner
        if not isinstance(holding, AcquiredRecords) or self.acknowledge_all(holding, [record], kind):
            where = f"{record.topic}:{record.partition}:{record.offset}"
            why = "its lock is gone" if record.lost else "it was acknowledged before"
            raise IllegalStateError(f"{where} cannot be acknowledged: {why}")

    def acknowledge_all(
        self, holding: AcquiredRecords, records: Sequence[ShareRecord], kind: AcknowledgeType
    ) -> list[ShareRecord]:
        """Say ``kind`` of records of one holding; those that are not held (any more)."""
        others = holding.settle(records, kind)
        if kind is AcknowledgeType.RELEASE and len(others) < len(records):
            self._flush = True
        return others

    def flush(self) -> None:
        """A caller waits for the acknowledgements: send them by themselves, before the next fetch."""
        self._flush = True

    @property
    def held_count(self) -> int:
        """Records that are locked for us and not acknowledged."""
        return sum(len(holding.held) for holding in self._acquired.values())

    def held(self, topic_id: UUID, partition: int, offset: int) -> ShareRecord | None:
        """One of them."""
        holding = self._acquired.get(TopicIdPartition(topic_id, partition))
        return None if holding is None else holding.held.get(offset)

    @property
    def has_pending(self) -> bool:
        """There are acknowledgements to be sent."""
        return any(holding.acks for holding in self._acquired.values())

    @property
    def has_suspects(self) -> bool:
        """There are acknowledgements that were refused as a list and are said one by one now."""
        return any(holding.acks.has_suspects for holding in self._acquired.values())

    @property
    def in_use(self) -> list[TopicIdPartition]:
        """The partitions of which something is held, or to be said."""
        return [partition for partition, holding in self._acquired.items() if holding.in_use]

    @property
    def has_unread(self) -> bool:
        """Something was acquired and not read yet (:meth:`read`)."""
        return any(holding.unread for holding in self._acquired.values())

    @property
    def is_wanted(self) -> bool:
        """There are partitions to fetch, though all may rest now."""
        return bool(self._wanted)

    @property
    def is_open(self) -> bool:
        """The broker has it, as far as we know."""
        return self._epoch != INITIAL_EPOCH

    def can_fetch(self, now: float) -> bool:
        """No request is out, and there is a partition that does not rest."""
        return not self.in_flight and any(self._backoffs.is_over(partition, now) for partition in self._wanted)

    @property
    def in_flight(self) -> bool:
        """A request is out."""
        return self.exchange is not None

    def next_deadline(self, now: float) -> float | None:
        """When :meth:`expire` or :meth:`next_request` should be looked at again though nothing came. Always after
        ``now``.
        """
        instants = (self._backoffs.next_end(now), self._ack_rests.next_end(now), self._next_expiry)
        return min((instant for instant in instants if instant is not None), default=None)

    def expire(self, now: float) -> list[ShareRecord]:
        """Held records whose lock time has passed: lost, whatever the broker thinks by now."""
        if self._next_expiry is None or now < self._next_expiry:
            return []
        lost: list[ShareRecord] = []
        deadlines: list[float] = []
        for holding in self._acquired.values():
            over = [record for record in holding.held.values() if record.lock_deadline <= now]
            for record in over:
                del holding.held[record.offset]
                holding.acks.take_back(record)  # a renewal now would lock what no consumer processes
                record._lose()
            lost += over
            deadlines += [record.lock_deadline for record in holding.held.values()]
            deadlines += [reader.lock_deadline for reader in holding.unread if reader.lock_deadline > now]
        self._next_expiry = min(deadlines) if deadlines else None
        return lost

    def expire_unread(self, now: float) -> int:
        """Forget what was acquired and not read before the locks ended; how many offsets that were."""
        return sum([holding.expire_unread(now) for holding in self._acquired.values()])

    # -- requests -----------------------------------------------------------------------------------------------------

    def next_request(self, now: float, demand: FetchDemand) -> ShareExchange | None:
        """The request to send now, or None: one is out already, or there is nothing to say."""
        if self.in_flight:
            return None
        self._backoffs.end_those_over(now)
        self._ack_rests.end_those_over(now)
        wanted = [partition for partition in self._wanted if partition not in self._backoffs]
        if self._may_speak():
            if self._epoch != INITIAL_EPOCH and (not demand.records or self._goes_by_itself(wanted)):
                return self._out(self._acknowledge_request())
            if not (demand.records and wanted):
                return self._out(self._fetch_request(wanted, FetchDemand(0)))
        elif not (demand.records and wanted):
            return None
        return self._out(self._fetch_request(wanted, demand))

    def reopening_request(self) -> ShareExchange | None:
        """Open the session anew while it stands, over another connection (make before break): the locks belong to the
        member and stay. Of what is to be fetched nothing is asked yet. None while a request is out.
        """
        if self.in_flight:
            return None
        self._epoch = INITIAL_EPOCH
        self._listed = set()
        return self._out(self._fetch_request(list(self._wanted), FetchDemand(0)))

    def close_request(self) -> ShareExchange | None:
        """The last request: ends the session and frees whatever is still held. What is waiting to be said goes with it,
        but is better said before: one bad offset would refuse it all.
        """
        if self.in_flight or self._epoch == INITIAL_EPOCH:
            return None
        for partition, holding in self._acquired.items():
            if partition not in self._listed:
                for record in holding.held.values():
                    holding.acks.take_back(record)
                holding.give_back()
                holding.acks.add_ranges([(offset, offset) for offset in holding.held], AcknowledgeType.RELEASE)
        return self._out(self._acknowledge_request(FINAL_EPOCH))

    def _may_speak(self) -> bool:
        """There are acknowledgements to be sent now."""
        return any(holding.acks and each not in self._ack_rests for each, holding in self._acquired.items())

    def _goes_by_itself(self, wanted: Sequence[TopicIdPartition]) -> bool:
        """What is to be said cannot go with a fetch of these partitions, or should not wait for it."""
        return self._flush or any(
            holding.acks.renewals or (holding.acks and partition not in wanted)
            for partition, holding in self._acquired.items()
        )

    def _out(self, exchange: ShareExchange) -> ShareExchange:
        self.exchange = exchange
        return exchange

    def _take(self, everything: bool = False) -> dict[TopicIdPartition, SentAcknowledgements]:
        taken = {
            partition: holding.acks.take()
            for partition, holding in self._acquired.items()
            if holding.acks and (everything or partition not in self._ack_rests)
        }
        if not self.has_pending:
            self._flush = False
        return taken

    def _fetch_request(self, wanted: list[TopicIdPartition], demand: FetchDemand) -> ShareExchange:
        """The next ShareFetch (KIP-932) with what differs from the session that the leader knows: partitions that it
        does not have yet, those to be forgotten, and the acknowledgements that are due. A request that opens a session
        may not carry acknowledgements. While records are held, the long poll is short, because acknowledgements wait
        for its answer."""
        opening = self._epoch == INITIAL_EPOCH
        acks = {} if opening else self._take()
        fetched = frozenset(wanted)
        listed = [partition for partition in wanted if opening or partition not in self._listed]
        forgotten = frozenset() if opening else self._listed - fetched
        wait_ms = self._max_wait_ms if demand.max_wait_ms is None else min(demand.max_wait_ms, self._max_wait_ms)
        if acks or self.held_count:
            wait_ms = min(wait_ms, WAIT_HOLDING_MS)
        if not wanted:
            demand = FetchDemand(0)
        waits = demand.records > 0
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms if waits else 0,
            min_bytes=1 if waits else 0,
            max_bytes=self._fetch_max_bytes if waits else 0,
            max_records=demand.records,
            batch_size=max(1, demand.records),
            share_acquire_mode=1 if demand.exactly else 0,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareFetchRequest.FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=_batches(
                                ShareFetchRequest.AcknowledgementBatch, acks.get(TopicIdPartition(topic_id, number))
                            ),
                        )
                        for number in numbers
                    ],
                )
                for topic_id, numbers in by_topic(dict.fromkeys([*listed, *acks])).items()
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(forgotten).items()
            ],
        )
        return ShareExchange(request, acks, frozenset(listed), frozenset(forgotten), fetched)

    def _acknowledge_request(self, epoch: int | None = None) -> ShareExchange:
        """A ShareAcknowledge; it says so when there are renewals among the acknowledgements (KIP-1222)."""
        acks = self._take(everything=epoch == FINAL_EPOCH)
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=self._epoch if epoch is None else epoch,
            is_renew_ack=any(each.type is AcknowledgeType.RENEW for taken in acks.values() for each in taken.ranges),
            topics=[
                ShareAcknowledgeRequest.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareAcknowledgeRequest.AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=_batches(
                                ShareAcknowledgeRequest.AcknowledgementBatch, acks[TopicIdPartition(topic_id, number)]
                            ),
                        )
                        for number in numbers
                    ],
                )
                for topic_id, numbers in by_topic(acks).items()
            ],
        )
        nothing: frozenset[TopicIdPartition] = frozenset()  # unlike a fetch, it puts no partition into the session
        return ShareExchange(request, acks, nothing, nothing, nothing)

    # -- answers ------------------------------------------------------------------------------------------------------

    def on_response(
        self, response: ShareFetchResponse | ShareAcknowledgeResponse, sent_at: float, now: float
    ) -> ShareResponseOutcome:
        """What the answer to :attr:`exchange`, sent at ``sent_at``, brought. After an error of ours
        :meth:`on_failure` is owed."""
        exchange = self.exchange
        assert exchange is not None, "nothing was asked"
        if response.error_code:
            self.exchange = None
            return self._refused(exchange, for_code(response.error_code)(response.error_message or ""))
        closing = exchange.request.share_session_epoch == FINAL_EPOCH
        self._epoch = INITIAL_EPOCH if closing else 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        self._listed = set() if closing else (self._listed | exchange.listed) - exchange.forgotten
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_s = response.acquisition_lock_timeout_ms / 1000
        deadline = sent_at + self.lock_s
        intake = ShareResponseHandler(self, deadline, now)
        answered: set[TopicIdPartition] = set()
        for topic in response.responses:
            for part in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, part.partition_index)
                answered.add(partition)
                if isinstance(part, ShareFetchResponse.PartitionData):
                    intake.fetched(partition, part)
                    code, text = part.acknowledge_error_code, part.acknowledge_error_message
                else:
                    code, text = part.error_code, part.error_message
                intake.said(partition, exchange.acks.get(partition), code, text)
        for partition in exchange.acks.keys() - answered:
            intake.said(partition, exchange.acks[partition], 0, None)
        if closing:
            held, said = self._drop_everything(IllegalStateError("the share session was closed"))
            intake.lost += held
            intake.answered += said
        if intake.has_acquired:
            self._read(intake)
        self._flush = self._flush or intake.gives_back
        for partition in exchange.fetched.difference(intake.errors):
            self._backoffs.went_well(partition)
        if (intake.records or self.has_unread) and (self._next_expiry is None or deadline < self._next_expiry):
            self._next_expiry = deadline
        self.exchange = None
        return intake.outcome()

    def read(self, now: float) -> ShareResponseOutcome:
        """The next records of what was acquired and is unread, a slice of them."""
        intake = ShareResponseHandler(self, now, now)
        self._read(intake)
        self._flush = self._flush or intake.gives_back
        return intake.outcome()

    def _read(self, intake: ShareResponseHandler) -> None:
        part = AcquiredSlice()
        for holding in self._acquired.values():
            while holding.unread and not part.is_used_up:
                intake.read(holding, part)

    def on_failure(self, error: KafkaError) -> ShareResponseOutcome:
        """No answer came to what is out, if anything is, or none that can be read: the connection is gone, and with it
        session and locks."""
        exchange, self.exchange = self.exchange, None
        return self._session_lost({} if exchange is None else exchange.acks, error)

    def abandon(self, error: KafkaError) -> ShareResponseOutcome:
        """Its connection is closed without another word: what was said and not answered, or not said, is refused with
        ``error``: a ``commit()`` that saw neither would pass for success."""
        return self.on_failure(error)._replace(error=None)

    def _refused(self, exchange: ShareExchange, error: BrokerResponseError) -> ShareResponseOutcome:
        reaction = SHARE_FETCH_ERRORS.action_for(error)
        if reaction.locks_gone:
            return self._session_lost(exchange.acks, error)
        self._epoch = INITIAL_EPOCH
        self._listed = set()
        answered: list[AcknowledgementResult] = []
        for partition, taken in exchange.acks.items():
            holding = self._holding(partition)
            if reaction.again:
                holding.acks.put_back(taken)
            else:
                answered += holding.refuse(taken, error)
        return ShareResponseOutcome([], answered, [], {}, error)

    def _session_lost(
        self, taken: dict[TopicIdPartition, SentAcknowledgements], error: KafkaError
    ) -> ShareResponseOutcome:
        self._epoch = INITIAL_EPOCH
        self._listed = set()
        self._flush = False
        answered = failed_results([said for each in taken.values() for said in each.said], error)
        held, said = self._drop_everything(error)
        return ShareResponseOutcome([], answered + said, held, {}, error)

    def _drop_everything(self, error: KafkaError) -> tuple[list[ShareRecord], list[AcknowledgementResult]]:
        self._next_expiry = None
        return _drop_records(self._acquired.values(), error)

    def _holding(self, partition: TopicIdPartition) -> AcquiredRecords:
        found = self._acquired.get(partition)
        if found is None:
            found = self._acquired[partition] = AcquiredRecords(self, partition)
        return found


def _drop_records(
    acquired: Iterable[AcquiredRecords], error: KafkaError
) -> tuple[list[ShareRecord], list[AcknowledgementResult]]:
    held: list[ShareRecord] = []
    said: list[AcknowledgementResult] = []
    for holding in acquired:
        lost, refused = holding.drop(error)
        held += lost
        said += refused
    return held, said
