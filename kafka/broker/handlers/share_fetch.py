"""ShareFetch (KIP-932, KIP-1206, KIP-1222): hand out records with locks, and take acknowledgements on the way.

The rules of records are ``share/partition.py``'s, those of sessions ``share/sessions.py``'s; here the two meet the logs
and the connections. A fetch that finds nothing waits; what wakes it is Apache Kafka's choice (new records, a start
that moved, a lock that expired; not a RELEASE), unless ``Broker.wake_policy`` says otherwise. A request that
acknowledges on another connection meanwhile takes its session away: it then fails with INVALID_SHARE_SESSION_EPOCH
(123).

With ``share.isolation.level`` read_committed an open transaction blocks its partition for the group, and what was
aborted is archived when it is met; markers are handed out, as to all, and the client passes over them.

Different from Apache Kafka 4.3.0: neighbouring acquired ranges come back as one; a group that nobody ever joined can be
fetched from; a topic id that is unknown gives UNKNOWN_TOPIC_ID (100) for its partitions alone, as KIP-932 has it (there
the whole request gets -1, and one deleted topic would stop the fetches of all others).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka.broker.codes import error_code, error_text
from kafka.broker.handlers.share_acknowledge import FINE, Fault, Name, ack_batches, acknowledge, close_session
from kafka.broker.log import PartitionLog
from kafka.broker.registry import Call, Named, handles
from kafka.broker.reply import Reply
from kafka.broker.share.group_configs import ShareGroupConfig
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.sessions import FINAL_EPOCH, ShareSession
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import Acquired, AcquireMode
from kafka.broker.transactions.visibility import aborted_batches
from kafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    OffsetOutOfRangeError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownError,
    UnknownTopicIdError,
)
from kafka.protocol.share import (
    ShareFetchRequest,
    ShareFetchResponse,
)
from kafka.records.header import FRAME_BYTES

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_BATCH: Final = struct.Struct(">qi11xi")
"""base offset, size, last offset delta"""
_LAST_DELTA_END: Final = 27


def _named(request: ShareFetchRequest) -> list[Named]:
    return [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]


@handles(ShareFetchRequest, versions=(1, 2), opens=_named, most_opened=2_400)
def share_fetch(broker: Broker, call: Call[ShareFetchRequest]) -> ShareFetchResponse | Reply:
    request = call.request
    group_id, member_id = request.group_id or "", request.member_id or ""
    acks = ack_batches(request.topics)
    named = [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]
    forgotten = [(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions]
    try:
        if request.is_renew_ack and (
            request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
        ):
            raise InvalidRequestError("a fetch that renews has no MaxWaitMs, MinBytes, MaxBytes or MaxRecords")
        session = broker.sessions.fetch(
            request.group_id,
            member_id,
            request.share_session_epoch,
            call.connection,
            partitions=named,
            forgotten=forgotten,
            has_acknowledgements=bool(acks),
        )
    except ShareSessionLimitReachedError as error:
        refused = _failed_fetch(error)  # told only after the request's wait, so that nobody asks without a pause
        return broker.park(call.connection, (), _waits_until(call), lambda is_last: refused)
    except BrokerResponseError as error:
        return _failed_fetch(error)
    if session.partitions and request.share_acquire_mode not in tuple(AcquireMode):  # the session has counted it
        return _failed_fetch(UnknownError(f"there is no acquire mode {request.share_acquire_mode}"))
    ack_faults = acknowledge(broker, group_id, member_id, acks, request.is_renew_ack, call.now)
    fetch = _ShareFetch(broker, call, group_id, member_id, session, ack_faults)
    if request.share_session_epoch == FINAL_EPOCH:
        close_session(broker, group_id, member_id, call.now)
        return fetch.response({})
    if request.max_records <= 0 or request.max_bytes <= 0:
        return fetch.response({})
    response = fetch.attempt(is_last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    return broker.park(call.connection, fetch.watched(), _waits_until(call), fetch.attempt)


def _waits_until(call: Call[ShareFetchRequest]) -> float:
    return call.now + call.request.max_wait_ms / 1000


class _Found(NamedTuple):
    """What a fetch found on one partition."""

    records: bytes | memoryview
    acquired: list[Acquired]
    fault: Fault


class _Candidate(NamedTuple):
    """A partition with records that may be acquired, read but not acquired yet."""

    name: Name
    partition: SharePartition
    fetch_offset: int
    data: bytes | memoryview
    aborted: list[tuple[int, int]]
    """First and last offset of each batch that readers of committed records do not see."""


class _ShareFetch:
    """One share fetch that may be tried several times."""

    def __init__(
        self,
        broker: Broker,
        call: Call[ShareFetchRequest],
        group_id: str,
        member_id: str,
        session: ShareSession[Name],
        ack_faults: dict[Name, Fault],
    ) -> None:
        self._broker = broker
        self._request = call.request
        self._group_id = group_id
        self._member_id = member_id
        self._session = session
        self._epoch = session.epoch
        self._is_new = session.is_new and call.request.share_session_epoch != FINAL_EPOCH
        self._ack_faults = ack_faults
        self._order = session.rotated()
        mode = call.request.share_acquire_mode
        self._mode = AcquireMode(mode) if session.partitions else AcquireMode.BATCH_OPTIMIZED
        self._lock_ms = broker.share.config(group_id).number("share.record.lock.duration.ms")

    def watched(self) -> list[PartitionLog | ShareKey]:
        """What to wait on: new records, and news of the share partitions."""
        keys: list[PartitionLog | ShareKey] = []
        for topic_id, number in self._order:
            keys.append(ShareKey(self._group_id, topic_id, number))
            topic = self._broker.metadata.topic_by_id(topic_id)
            if topic is not None and 0 <= number < topic.partitions:
                keys.append(self._broker.logs.log(topic, number))
        return keys

    def attempt(self, is_last: bool) -> ShareFetchResponse | None:
        """The answer, or None when it is better to wait."""
        now = self._broker.now
        current = self._broker.sessions.get(self._group_id, self._member_id)
        if current is not self._session:
            return _failed_fetch(ShareSessionNotFoundError("the share session has ended"))
        if current.epoch != self._epoch:
            return _failed_fetch(InvalidShareSessionEpochError("another request has used the share session"))
        found: dict[Name, _Found] = {}
        candidates = self._candidates(found)
        has_archived = False
        if not is_last and not found and sum(len(one.data) for one in candidates) < self._request.min_bytes:
            return None
        left = self._request.max_records
        left_bytes = self._request.max_bytes
        for name, partition, fetch_offset, data, aborted in candidates:
            if left <= 0 or left_bytes <= 0:
                break
            acquired = partition.acquire(
                self._member_id,
                _bounds(data),
                fetch_offset=fetch_offset,
                max_records=left,
                batch_size=self._request.batch_size,
                mode=self._mode,
                now=now,
            )
            if acquired and aborted:
                acquired = self._without(partition, acquired, aborted)
                has_archived = True
            if acquired:
                records = _cut(data, acquired[0].first, acquired[-1].last)
                found[name] = _Found(records, acquired, FINE)
                left -= sum(last - first + 1 for first, last, _ in acquired)
                left_bytes -= len(records)
        if not found and has_archived:
            return self.attempt(is_last)  # there may be more behind what nobody is to see
        if not found and not is_last and self._order:
            return None
        return self.response(found)

    def _without(
        self, partition: SharePartition, acquired: list[Acquired], aborted: list[tuple[int, int]]
    ) -> list[Acquired]:
        """What is left of the acquired ranges when aborted batches are archived."""
        for first, last in aborted:
            partition.archive(self._member_id, first, last)
            left: list[Acquired] = []
            for one in acquired:
                if one.first < first:
                    left.append(Acquired(one.first, min(one.last, first - 1), one.delivery_count))
                if one.last > last:
                    left.append(Acquired(max(one.first, last + 1), one.last, one.delivery_count))
            acquired = left
        return acquired

    def _candidates(self, found: dict[Name, _Found]) -> list[_Candidate]:
        """The partitions with something to read, in turn; errors go into ``found``."""
        candidates: list[_Candidate] = []
        left_bytes = self._request.max_bytes
        left_records = self._request.max_records
        for name in self._order:
            if left_bytes <= 0 or left_records <= 0:
                break
            try:
                one = self._read(name, left_bytes)
            except BrokerResponseError as error:
                found[name] = _Found(b"", [], Fault(error_code(error), error_text(error)))
                continue
            if one is not None:
                candidates.append(one)
                left_bytes -= len(one.data)
                left_records -= sum(last - base + 1 for base, last in _bounds(one.data)[:1])
        return candidates

    def _read(self, name: Name, max_bytes: int) -> _Candidate | None:
        topic_id, number = name
        topic = self._broker.metadata.topic_by_id(topic_id)
        if topic is None:
            raise UnknownTopicIdError("")
        log = self._broker.logs.log(topic, number)
        if not self._group_id:
            raise UnknownError("a group without a name has no share partitions")  # as in Kafka
        partition = self._broker.share.partition(
            self._group_id, topic_id, number, lambda config: _start(self._broker, config, log)
        )
        if partition.start_offset < log.start_offset:
            partition.log_start_moved(log.start_offset)
        if not partition.can_acquire():
            return None
        offset = partition.next_fetch_offset()
        is_committed = partition.settings.read_committed
        end = log.last_stable_offset if is_committed else log.end_offset
        if offset >= end:
            return None
        # Nothing behind these many offsets can be acquired, so it need not be read.
        below = min(end, max(offset, partition.end_offset) + self._request.max_records)
        try:
            data = log.read(offset, max_bytes, below=below)
        except OffsetOutOfRangeError:
            return None
        if not len(data):
            return None
        aborted = log.aborted_transactions(offset, _bounds(data)[-1][1]) if is_committed else []
        return _Candidate(name, partition, offset, data, aborted_batches(data, aborted) if aborted else [])

    def response(self, found: dict[Name, _Found]) -> ShareFetchResponse:
        """The answer: every partition for a new session, else those with news."""
        names = dict.fromkeys((*self._ack_faults, *found))
        if self._is_new:
            names = dict.fromkeys((*self._session.partitions, *names))
        topics: dict[UUID, list[ShareFetchResponse.PartitionData]] = {}
        for name in names:
            records, acquired, fault = found.get(name) or _Found(b"", [], FINE)
            ack_fault = self._ack_faults.get(name, FINE)
            topics.setdefault(name[0], []).append(
                ShareFetchResponse.PartitionData(
                    partition_index=name[1],
                    error_code=fault.code,
                    error_message=fault.text,
                    acknowledge_error_code=ack_fault.code,
                    acknowledge_error_message=ack_fault.text,
                    current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                    records=records,
                    acquired_records=[
                        ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in acquired
                    ],
                )
            )
        return ShareFetchResponse(
            throttle_time_ms=0,
            error_code=0,
            acquisition_lock_timeout_ms=self._lock_ms,
            responses=[
                ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[],
        )


def _failed_fetch(error: BrokerResponseError) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=error_code(error),
        error_message=error_text(error),
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def _start(broker: Broker, config: ShareGroupConfig, log: PartitionLog) -> int:
    """Where a group begins on a partition that it has no state of."""
    strategy, back_ms = config.offset_reset()
    if strategy == "earliest":
        return log.start_offset
    if strategy == "by_duration":
        found = log.offset_for_timestamp(broker.epoch_ms() - back_ms)
        if found is not None:
            return found.offset
    return log.end_offset


def _bounds(data: bytes | memoryview) -> list[tuple[int, int]]:
    """Base and last offset of each batch."""
    return [(base, last) for base, last, _ in _walk(data)]


def _cut(data: bytes | memoryview, first: int, last: int) -> bytes | memoryview:
    """The whole batches that hold an offset from ``first`` to ``last``."""
    start = end = 0
    for base, batch_last, batch_end in _walk(data):
        if batch_last < first:
            start = batch_end
        if base <= last:
            end = batch_end
    return data if start == 0 and end == len(data) else memoryview(data)[start:end]


def _walk(data: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Base offset, last offset and end position of each batch."""
    found = []
    at, size = 0, len(data)
    while at + _LAST_DELTA_END <= size:
        base, length, delta = _BATCH.unpack_from(data, at)
        at += length + FRAME_BYTES
        if at > size:
            break
        found.append((base, base + delta, at))
    return found
