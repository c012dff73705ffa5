"""Fetch: whole batches from the logs; waits for ``min_bytes`` up to ``max_wait_ms``. Versions 0 to 3 get message sets
(``log_validator.py``).

The first partition that has records gives at least one batch, whatever the limits say (KIP-74). Incremental sessions
(KIP-227) are ``fetch_sessions.py``'s; they outlive connections. Readers of committed records get those before the last
stable offset, and which transactions among them were aborted. Leader epochs are checked (KIP-320), and a client whose
``last_fetched_epoch`` ended before its offset gets the diverging epoch (KIP-595). A fetch that waits is answered at
once for a partition with an error or such a divergence, but not for one that was unknown from the start.

Different from Apache Kafka 4.3.0: no batch is cut at the end of an answer; partitions of no topic at all (no name, no
id) are simply unknown, where there they may fail the whole request (-1); all sessions together have at most 250,000
partitions; there are no followers, so the high watermark is the end of the log.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka.broker.error_responses import error_code
from kafka.broker.fetch_sessions import IDS_SINCE, FetchContext, FetchPartitionState, Row, grouped
from kafka.broker.log import PartitionLog, Topic, batch_bounds
from kafka.broker.log_validator import MAGIC_OF_FETCH, read_message_set
from kafka.broker.registry import PartitionRef, RequestContext, handles
from kafka.broker.responses import PendingResponse
from kafka.errors import (
    BrokerResponseError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_NONE: Final = -1
_FENCED: Final = error_code(FencedLeaderEpochError)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
LEADERS_SINCE: Final = 16
"""The first version with leader hints (KIP-951)."""

_PartitionData = FetchResponse.PartitionData


def _named(request: FetchRequest) -> list[PartitionRef]:
    return [(topic.topic or topic.topic_id, one.partition) for topic in request.topics for one in topic.partitions]


@handles(FetchRequest, opens=_named, most_opened=10_000)
def fetch(broker: Broker, call: RequestContext[FetchRequest]) -> FetchResponse | PendingResponse:
    request = call.request
    context = broker.fetch_sessions.begin(request, call.version, call.now)
    waiting = _Fetch(broker, call, context)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and waiting.logs():
        return _of_no_isolation_level(call)
    response = waiting.attempt(is_last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    waiting.measure()
    return broker.park(call.connection, waiting.logs(), call.now + request.max_wait_ms / 1000, waiting.attempt)


def check_leader_epoch(log: PartitionLog, epoch: int) -> None:
    """Raise FencedLeaderEpochError (74) or UnknownLeaderEpochError (75) for a client that knows another leader; -1
    says nothing."""
    if epoch != _NONE and epoch != log.leader_epoch:
        kind = FencedLeaderEpochError if epoch < log.leader_epoch else UnknownLeaderEpochError
        raise kind(f"{log.name} is at leader epoch {log.leader_epoch}, not {epoch}")


class _Absent(NamedTuple):
    """What most partitions have not; shared by all of them, so it is replaced and never changed."""

    divergence: FetchResponse.EpochEndOffset
    leader: FetchResponse.LeaderIdAndEpoch
    snapshot: FetchResponse.SnapshotId


@functools.cache
def _absent() -> _Absent:
    """Made at the first fetch: messages compile their constructors when they are first used."""
    return _Absent(FetchResponse.EpochEndOffset(), FetchResponse.LeaderIdAndEpoch(), FetchResponse.SnapshotId())


class _Found(NamedTuple):
    """A partition that is there."""

    wanted: FetchPartitionState
    topic: Topic
    log: PartitionLog


class _Fetch:
    """One fetch that may be tried several times."""

    def __init__(self, broker: Broker, call: RequestContext[FetchRequest], context: FetchContext) -> None:
        self._broker = broker
        self._call = call
        self._context = context
        request = call.request
        self._isolation = request.isolation_level
        self._max_bytes = min(request.max_bytes, broker.config.number("fetch.max.bytes"))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._found: list[_Found] = []
        self._anew: list[Row] = []
        self._unknown: list[Row] = []
        self._topics: dict[UUID | str, Topic] = {}
        for wanted in context.wanted:
            try:
                # INCONSISTENT_TOPIC_ID is answered at once, so that the client reads the metadata; other errors wait
                # like no data.
                self._found.append(self._resolve(wanted))
            except InconsistentTopicIdError as error:
                self._anew.append((wanted, _failed(wanted, error, aborted=None)))
            except BrokerResponseError as error:
                self._unknown.append((wanted, _failed(wanted, error, aborted=[])))
        self._idle: list[_PartitionData | None] = [None] * len(self._found)
        self._read_bytes = 0
        self._ends: list[tuple[PartitionLog, int, int]] | None = None

    def _resolve(self, wanted: FetchPartitionState) -> _Found:
        """Errors: UnknownTopicIdError (100), UnknownTopicOrPartitionError (3), InconsistentTopicIdError (103)."""
        by_id = self._call.version >= IDS_SINCE
        name: UUID | str = wanted.topic_id if by_id else wanted.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topic_by_id(wanted) if by_id else self._broker.topic(wanted.topic)
            self._topics[name] = topic
        wanted.topic = topic.name
        return _Found(wanted, topic, self._broker.logs.log(topic, wanted.number))

    def _topic_by_id(self, wanted: FetchPartitionState) -> Topic:
        metadata = self._broker.metadata
        found = metadata.topic_by_id(wanted.topic_id)
        if found is not None:
            return found
        if not wanted.topic:
            raise UnknownTopicIdError(f"no topic with the id {wanted.topic_id}")
        if metadata.topic(wanted.topic) is not None:
            raise InconsistentTopicIdError(f"{wanted.topic} was made anew: its id is not {wanted.topic_id}")
        raise UnknownTopicOrPartitionError(f"no topic {wanted.topic}")

    def logs(self) -> list[PartitionLog]:
        """What to wait on."""
        return [found.log for found in self._found]

    def measure(self) -> None:
        """Note where the logs end: so that what wakes a fetch which waits for many bytes, and brings few, costs
        little."""
        self._ends = [(log, log.segments[-1].base_offset, log.segments[-1].size) for _, _, log in self._found]

    def attempt(self, is_last: bool) -> FetchResponse | None:
        """The answer, or None when it is better to wait."""
        if not is_last and self._ends is not None and self._is_too_little(self._ends):
            return None
        rows, is_due = self._read_all()
        if is_last or is_due or not self._found or self._read_bytes >= self._min_bytes:
            return self._answer(rows)
        return None

    def _is_too_little(self, ends: list[tuple[PartitionLog, int, int]]) -> bool:
        """Whether what has been appended since the logs were measured cannot be enough."""
        missing = self._min_bytes - self._read_bytes
        if missing <= 1:
            return False
        if self._deleted():
            return False
        for log, base, size in ends:
            last = log.segments[-1]
            if last.base_offset != base or last.size < size:
                return False
            missing -= last.size - size
        return missing > 0

    def _deleted(self) -> set[UUID]:
        """Topics that have gone while the fetch waited."""
        metadata = self._broker.metadata
        return {one.topic_id for one in self._topics.values() if metadata.topic_by_id(one.topic_id) is None}

    def _read_all(self) -> tuple[list[Row], bool]:
        """What each partition gives, and whether something is among it that has to be sent at once. In a session,
        partitions without news are left out; of what had nothing last time and has not moved, nothing is read."""
        left = min(self._max_bytes, max(0, self._broker.response_room())) if self._max_bytes >= 0 else self._max_bytes
        read_bytes = 0
        is_due = bool(self._anew)
        is_incremental = self._context.is_incremental
        is_committed = self._isolation == READ_COMMITTED
        deleted = self._deleted() if self._ends is not None else ()
        rows = list(self._anew)
        for at, (wanted, topic, log) in enumerate(self._found):
            asked = wanted.asked
            idle = self._idle[at]
            end = log.end_offset
            if deleted and topic.topic_id in deleted:
                gone = UnknownTopicOrPartitionError(f"no topic {topic.name}")
                rows.append((wanted, _failed(wanted, gone, aborted=None)))
                is_due = True
                continue
            if is_incremental:
                if (
                    asked.fetch_offset == end
                    and asked.current_leader_epoch < 0
                    and asked.last_fetched_epoch < 0
                    and wanted.client_knows(end, log.start_offset)
                ):
                    continue
            elif (
                idle is not None
                and idle.high_watermark == end
                and idle.log_start_offset == log.start_offset
                and idle.last_stable_offset == log.last_stable_offset
            ):
                rows.append((wanted, idle))
                continue
            try:
                data = self._read(wanted, log, end, left, min_one=not read_bytes)
            except BrokerResponseError as error:
                is_due = True
                data = _failed(wanted, error, aborted=None)
            if data.records:
                size = len(data.records)
                read_bytes += size
                left = max(0, left - size)
            elif data.diverging_epoch.epoch >= 0 or (is_committed and asked.fetch_offset > data.last_stable_offset):
                is_due = True  # what the client has read cannot be; it need not wait to learn that
            elif not data.error_code and asked.fetch_offset == (data.last_stable_offset if is_committed else end):
                self._idle[at] = data
            rows.append((wanted, data))
        self._read_bytes = read_bytes
        return rows, is_due

    def _read(
        self, wanted: FetchPartitionState, log: PartitionLog, end: int, left: int, min_one: bool
    ) -> _PartitionData:
        asked = wanted.asked
        offset = asked.fetch_offset
        if asked.current_leader_epoch >= 0:
            check_leader_epoch(log, asked.current_leader_epoch)
        is_committed = self._isolation == READ_COMMITTED
        start, stable = log.start_offset, log.last_stable_offset
        absent = _absent()
        data = _PartitionData(
            partition_index=wanted.number,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=start,
            diverging_epoch=absent.divergence,
            current_leader=absent.leader,
            snapshot_id=absent.snapshot,
            aborted_transactions=[] if is_committed else None,
            records=b"",
        )
        if asked.last_fetched_epoch >= 0:
            epoch, epoch_end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < 0 or epoch_end < 0 or offset < start:
                raise OffsetOutOfRangeError(f"{log.name} knows no leader epoch {asked.last_fetched_epoch}")
            if epoch < asked.last_fetched_epoch or epoch_end < offset:
                data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=epoch_end)
                data.aborted_transactions = None
                return data
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(f"{log.name} has offsets {start} to {end}, not {offset}")
        limit = min(left, asked.partition_max_bytes)
        if limit < 0:
            raise UnknownError("a limit of bytes is negative")  # -1: Kafka's answer
        below = stable if is_committed else end
        if offset >= below:
            return data
        version = self._call.version
        if version in MAGIC_OF_FETCH:
            data.records = read_message_set(log, offset, limit, version=version, below=below, min_one=min_one)
        elif limit > 0 or min_one:
            data.records = records = log.read(offset, limit, below=below, min_one=min_one)
            if is_committed and len(records):
                self._list_aborted(data, log, offset, records)
        return data

    def _list_aborted(self, data: _PartitionData, log: PartitionLog, offset: int, records: bytes | memoryview) -> None:
        if log.has_aborted(offset, data.last_stable_offset - 1):  # seldom, so that the walk is worth it
            last = batch_bounds(records)[-1][1]
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in log.aborted_transactions(offset, last)
            ]

    def _answer(self, rows: list[Row]) -> FetchResponse:
        call = self._call
        for wanted, data in rows:
            if data.error_code == _FENCED and call.version >= LEADERS_SINCE:
                self._name_leader(wanted, data)
        try:
            session_id, told = self._context.finish(rows + self._unknown, self._broker.now)
        except BrokerResponseError as error:
            return FetchResponse(error_code=error_code(error), session_id=call.request.session_id, responses=[])
        response = FetchResponse(session_id=session_id, responses=grouped(told))
        if any(data.current_leader.leader_id >= 0 for _, data in told):
            host, port = self._broker.endpoint(call.connection)
            node = FetchResponse.NodeEndpoint(node_id=self._broker.config.node_id, host=host, port=port)
            response.node_endpoints = [node]
        return response

    def _name_leader(self, wanted: FetchPartitionState, data: _PartitionData) -> None:
        for found in self._found:
            if found.wanted is wanted:
                data.current_leader = FetchResponse.LeaderIdAndEpoch(
                    leader_id=self._broker.config.node_id, leader_epoch=found.log.leader_epoch
                )


def _of_no_isolation_level(call: RequestContext[FetchRequest]) -> FetchResponse:
    """Kafka's answer is UNKNOWN_SERVER_ERROR (-1), before version 13 to each partition, too."""
    error = UnknownError(f"there is no isolation level {call.request.isolation_level}")
    topics = call.request.topics if call.version < IDS_SINCE else []
    wanted = [FetchPartitionState(topic.topic, topic.topic_id, one) for topic in topics for one in topic.partitions]
    rows = [(one, _failed(one, error, aborted=[])) for one in wanted]
    return FetchResponse(error_code=error_code(error), session_id=call.request.session_id, responses=grouped(rows))


def _failed(
    wanted: FetchPartitionState, error: BrokerResponseError, aborted: list[FetchResponse.AbortedTransaction] | None
) -> _PartitionData:
    return _PartitionData(
        partition_index=wanted.number,
        error_code=error_code(error),
        high_watermark=_NONE,
        aborted_transactions=aborted,
        records=b"",
    )
