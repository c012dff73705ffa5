"""Share groups (KIP-932, 1206, 1222, 1226): ShareFetch acquires records and carries acknowledgements, ShareAcknowledge
carries acknowledgements alone, ShareGroupHeartbeat and -Describe serve the members, and the group's offsets can be
described, altered and deleted.

``share/partition.py`` has the state of records, ``share/sessions.py`` the share sessions; here they meet the logs and
the connections. A fetch that finds nothing waits until Apache Kafka's wakeups: new records, a start offset that moved,
an acquisition lock that timed out; not a RELEASE, unless ``Broker.wake_policy`` says so. If another connection uses the
session meanwhile, the waiting fetch fails with INVALID_SHARE_SESSION_EPOCH (123). Acknowledgements of one partition are
applied all or none, and are durable when the response goes out. A RENEW restarts the acquisition lock.

With ``share.isolation.level`` read_committed an open transaction blocks its partition for the group, and aborted
records are archived when they are reached; control batches are handed out, as to all, and the client skips them. The
start offset that DescribeShareGroupOffsets returns is the one that was written last, with an acknowledgement.

Different from Apache Kafka 4.3.0: neighbouring acquired ranges come back as one; a group that never had a member can be
fetched from; a topic id that is unknown gives UNKNOWN_TOPIC_ID (100) for its partitions alone, as KIP-932 has it (there
the whole request gets -1, and one deleted topic would stop the fetches of all others); acknowledging offsets from below
the start on, while nothing is in flight, is INVALID_RECORD_STATE (121) for their partition (there the whole request
fails with -1); partitions that are new to a group are assigned with the response to the heartbeat that names them, not
with the next one; with several partitions who gets which may differ; a group without members does not wait for the
assignment interval; offsets of a partition that a topic does not have get error 3 (there the request is not answered);
racks are stored and not used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.error_responses import ALL_GROUP_OPERATIONS, answer_each, error_code, error_text, failed, operations
from kafka.broker.group_settings import GroupConfig
from kafka.broker.handlers.groups import described_assignment, heartbeat_response
from kafka.broker.handlers.offsets import errors_first
from kafka.broker.log import PartitionLog, Topic, batch_bounds, batch_positions
from kafka.broker.log.producer_state import aborted_batches
from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import PendingResponse
from kafka.broker.share.coordinator import ASSIGNOR, ShareGroup, ShareHeartbeat
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.sessions import ShareSession
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import AckBatch, Acquired, AcquireMode, check_ack_batches
from kafka.broker.topics import TopicIdPartition, distinct_partitions, values_by_key
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.constants import FINAL_EPOCH
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

# -- acknowledgements -------------------------------------------------------------------------------------------------


class PartitionError(NamedTuple):
    """The error of one partition."""

    code: int
    text: str | None


NO_ERROR: Final = PartitionError(0, None)


@handles(ShareAcknowledgeRequest)
def share_acknowledge(broker: Broker, call: RequestContext[ShareAcknowledgeRequest]) -> ShareAcknowledgeResponse:
    """Acknowledges within the member's share session; the epoch -1 then closes it, which releases what the member
    still holds. Errors of the session fail the whole request, those of records are their partitions'."""
    request = call.request
    group_id, member_id = request.group_id or "", request.member_id or ""
    broker.sessions.acknowledge(request.group_id, member_id, request.share_session_epoch)
    errors = acknowledge(broker, group_id, member_id, ack_batches(request.topics), request.is_renew_ack, call.now)
    if request.share_session_epoch == FINAL_EPOCH:
        close_session(broker, group_id, member_id, call.now)
    leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    row = ShareAcknowledgeResponse.PartitionData
    topics = values_by_key(
        (topic_id, row(partition_index=number, error_code=one.code, error_message=one.text, current_leader=leader))
        for (topic_id, number), one in errors.items()
    )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share.config(group_id).number("share.record.lock.duration.ms"),
        responses=[
            ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[],
    )


def ack_batches(topics: Sequence[Any]) -> dict[TopicIdPartition, list[AckBatch]]:
    """What is acknowledged, by partition; partitions without acknowledgements are left out."""
    return {
        (topic.topic_id, one.partition_index): [
            AckBatch(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


def acknowledge(
    broker: Broker,
    group_id: str,
    member_id: str,
    acks: dict[TopicIdPartition, list[AckBatch]],
    is_renew: bool,
    now: float,
) -> dict[TopicIdPartition, PartitionError]:
    """Apply the acknowledgements of each partition: all or none of them."""
    errors: dict[TopicIdPartition, PartitionError] = {}
    for name, batches in acks.items():
        result = NO_ERROR
        try:
            check_ack_batches(batches, is_renew_ack=is_renew)
            broker.topic_by_id(name[0])
            key = ShareKey(group_id, *name)
            partition = broker.share.loaded(*key)
            if partition is None:
                raise UnknownTopicOrPartitionError("the group has not fetched from this partition")
            event = partition.acknowledge(member_id, batches, now)
            if event:
                broker.share_events({key: event})
        except BrokerResponseError as error:
            result = PartitionError(error_code(error), error_text(error))
        errors[name] = result
    return errors


def close_session(broker: Broker, group_id: str, member_id: str, now: float) -> None:
    session = broker.sessions.close(group_id, member_id)
    broker.share_events(broker.share.release(group_id, member_id, session.partitions, now))


# -- group membership -------------------------------------------------------------------------------------------------

_DescribedGroup = ShareGroupDescribeResponse.DescribedGroup


@handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(
    broker: Broker, call: RequestContext[ShareGroupHeartbeatRequest]
) -> ShareGroupHeartbeatResponse:
    request = call.request
    group_id = request.group_id
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.subscribed_topic_names,
        request.rack_id,
        call.client_id or "",
        "/" + call.connection.host,
    )
    heartbeat.check(group_id)  # before the group is looked for, as in Kafka
    _check_is_share_group(broker, group_id)
    group = broker.share.groups.get(group_id)
    known = set(request.subscribed_topic_names or ())
    if group is not None:
        known |= group.subscribed_topics()
    answer = broker.share.heartbeat(group_id, heartbeat, broker.topics_image.infos(known), call.now)
    return heartbeat_response(
        ShareGroupHeartbeatResponse,
        request.member_id,
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        answer.assignment,
    )


def _check_is_share_group(broker: Broker, group_id: str) -> None:
    if group_id in broker.groups.groups:
        raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")


@handles(ShareGroupDescribeRequest)
def share_group_describe(broker: Broker, call: RequestContext[ShareGroupDescribeRequest]) -> ShareGroupDescribeResponse:
    """Each group has an error of its own."""
    allowed = operations(call.request.include_authorized_operations, ALL_GROUP_OPERATIONS)
    return ShareGroupDescribeResponse(
        groups=answer_each(
            call.request.group_ids,
            lambda group_id: _described_group(broker, broker.share.describe(group_id), allowed),
            lambda group_id, error: failed(_DescribedGroup, error, group_id=group_id),
        )
    )


def _described_group(broker: Broker, group: ShareGroup, allowed: int) -> _DescribedGroup:
    """The group and its members. ``allowed``: the authorized operations."""
    return _DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        authorized_operations=allowed,
        members=[
            ShareGroupDescribeResponse.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscription),
                assignment=described_assignment(broker, ShareGroupDescribeResponse, member.assignment),
            )
            for member in group.members.values()
        ],
    )


# -- offsets ---------------------------------------------------------------------------------------------------------

_Altered = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
_Offset = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
_GroupOffsets = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup


@handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(
    broker: Broker, call: RequestContext[DescribeShareGroupOffsetsRequest]
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=answer_each(
            call.request.groups,
            lambda wanted: _group_offsets(broker, wanted),
            lambda wanted, error: failed(_GroupOffsets, error, group_id=wanted.group_id),
        )
    )


def _group_offsets(
    broker: Broker, wanted: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
) -> _GroupOffsets:
    named: list[tuple[str, list[int]]] = []
    unknown: list[tuple[str, list[int]]] = []
    if wanted.topics is None:
        for topic_id, number in broker.share.initialized(wanted.group_id):
            topic = broker.metadata.topic_by_id(topic_id)
            if topic is not None:
                named.append((topic.name, [number]))
    else:
        for one in wanted.topics:
            if broker.metadata.topic(one.topic_name) is None:
                unknown.append((one.topic_name, list(one.partitions)))
                continue
            if not wanted.group_id or not one.partitions:  # as in Kafka
                raise UnknownError("offsets of a topic in no group, or of no partition")
            named.append((one.topic_name, one.partitions))
    topics = [
        DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=known.topic_id if (known := broker.metadata.topic(name)) is not None else ZERO_UUID,
            partitions=[partition_offset(broker, wanted.group_id, known, number) for number in numbers],
        )
        for name, numbers in (*distinct_partitions(named).items(), *unknown)
    ]
    return _GroupOffsets(group_id=wanted.group_id, topics=topics)


def partition_offset(broker: Broker, group_id: str, topic: Topic | None, number: int) -> _Offset:
    if topic is not None and not 0 <= number < topic.partitions:
        return failed(_Offset, UnknownTopicOrPartitionError(), partition_index=number, start_offset=-1)
    start = None if topic is None else broker.share.start_offset(group_id, topic.topic_id, number)
    if topic is None or start is None:  # no error, as in Kafka
        return _Offset(partition_index=number, start_offset=-1, leader_epoch=0)
    position, done = broker.share.place_and_done(group_id, topic.topic_id, number) or (start, 0)
    lag = -1 if start == -1 else broker.logs.log(topic, number).end_offset - position - done
    lag = (lag + 2**63) % 2**64 - 2**63  # an offset may be set to any number, and Apache Kafka's lag wraps around
    return _Offset(partition_index=number, start_offset=start, leader_epoch=0, lag=lag)


@handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(
    broker: Broker, call: RequestContext[AlterShareGroupOffsetsRequest]
) -> AlterShareGroupOffsetsResponse:
    request = call.request
    if not request.group_id:
        raise InvalidGroupIdError("")
    _check_is_share_group(broker, request.group_id)
    group = broker.share.groups.get(request.group_id)
    if group is not None and group.members:
        raise NonEmptyGroupError(f"The group {request.group_id} is not empty.")
    for wanted in request.topics:
        lowest = min((one.partition_index for one in wanted.partitions), default=0)
        if lowest < 0 and broker.metadata.topic(wanted.topic_name) is not None:  # fails the request, as in Kafka
            raise UnknownError(f"{wanted.topic_name} has no partition {lowest}")
    refused: dict[str, list[_Altered]] = {}
    answered: dict[str, list[_Altered]] = {}
    last = {(topic.topic_name, one.partition_index): one for topic in request.topics for one in topic.partitions}
    for wanted in request.topics:
        topic = broker.metadata.topic(wanted.topic_name)
        if topic is not None:
            answered.setdefault(topic.name, [])
        for one in wanted.partitions:
            code = 0
            try:
                if topic is None or not 0 <= one.partition_index < topic.partitions:
                    raise UnknownTopicOrPartitionError("")
                if one is last[wanted.topic_name, one.partition_index]:  # of a partition named twice the last counts
                    broker.share.alter_offset(request.group_id, topic.topic_id, one.partition_index, one.start_offset)
            except BrokerResponseError as error:
                code = error_code(error)
            rows = refused if topic is None else answered
            rows.setdefault(wanted.topic_name, []).append(
                _Altered(partition_index=one.partition_index, error_code=code)
            )
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=known.topic_id if (known := broker.metadata.topic(name)) is not None else ZERO_UUID,
                partitions=partitions,
            )
            for name, partitions in errors_first(refused, answered.items())
        ],
    )


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    broker: Broker, call: RequestContext[DeleteShareGroupOffsetsRequest]
) -> DeleteShareGroupOffsetsResponse:
    request = call.request
    row = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
    responses = []
    if broker.share.describe(request.group_id).members:
        raise NonEmptyGroupError(f"The group {request.group_id} is not empty.")
    known = {topic_id for topic_id, _ in broker.share.initialized(request.group_id)}
    for name in dict.fromkeys(wanted.topic_name for wanted in request.topics):
        topic = broker.metadata.topic(name)
        if topic is None or topic.topic_id not in known:  # nothing to delete
            responses.append(failed(row, error_code(UnknownTopicOrPartitionError), topic_name=name))
        else:
            broker.share.delete_offsets(request.group_id, topic.topic_id)
            responses.append(row(topic_name=name, topic_id=topic.topic_id))
    return DeleteShareGroupOffsetsResponse(responses=responses)


# -- fetches ---------------------------------------------------------------------------------------------------------


def _named_partitions(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]


@handles(ShareFetchRequest, opens=_named_partitions, most_opened=2_400)
def share_fetch(broker: Broker, call: RequestContext[ShareFetchRequest]) -> ShareFetchResponse | PendingResponse:
    request = call.request
    group_id, member_id = request.group_id or "", request.member_id or ""
    acks = ack_batches(request.topics)
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
            partitions=_named_partitions(request),
            forgotten=forgotten,
            has_acknowledgements=bool(acks),
        )
    except ShareSessionLimitReachedError as error:
        # Answered after the request's wait, so that the client does not retry at once.
        refused = failed(ShareFetchResponse, error)
        return broker.park(call.connection, (), _waits_until(call), lambda is_last: refused)
    if session.partitions and request.share_acquire_mode not in tuple(AcquireMode):  # the session has counted it
        raise UnknownError(f"there is no acquire mode {request.share_acquire_mode}")
    ack_errors = acknowledge(broker, group_id, member_id, acks, request.is_renew_ack, call.now)
    fetch = _ShareFetch(broker, call, group_id, member_id, session, ack_errors)
    if request.share_session_epoch == FINAL_EPOCH:
        close_session(broker, group_id, member_id, call.now)
        return fetch.response({})
    if request.max_records <= 0 or request.max_bytes <= 0:
        return fetch.response({})
    try:
        response = fetch.attempt(is_last=request.max_wait_ms <= 0)
    except BrokerResponseError:
        # Its end releases what was acquired before; after an error that would stay locked, and no member know of it.
        log.exception("%r: a share fetch failed; closing the connection", call.connection)
        return PendingResponse.hanging_up()
    if response is not None:
        return response
    return broker.park(call.connection, fetch.watched(), _waits_until(call), fetch.attempt)


def _waits_until(call: RequestContext[ShareFetchRequest]) -> float:
    return call.now + call.request.max_wait_ms / 1000


class _FetchedPartition(NamedTuple):
    """What a fetch found on one partition."""

    records: bytes | memoryview
    acquired: list[Acquired]
    error: PartitionError


class _Candidate(NamedTuple):
    """A partition with records that may be acquired, read but not acquired yet."""

    name: TopicIdPartition
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
        call: RequestContext[ShareFetchRequest],
        group_id: str,
        member_id: str,
        session: ShareSession[TopicIdPartition],
        ack_errors: dict[TopicIdPartition, PartitionError],
    ) -> None:
        self._broker = broker
        self._request = call.request
        self._group_id = group_id
        self._member_id = member_id
        self._session = session
        # If the session's epoch differs when the fetch is tried again, another request has used it.
        self._epoch = session.epoch
        self._is_new = session.is_new and call.request.share_session_epoch != FINAL_EPOCH
        self._ack_errors = ack_errors
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
            return failed(ShareFetchResponse, ShareSessionNotFoundError("the share session has ended"))
        if current.epoch != self._epoch:
            error = InvalidShareSessionEpochError("another request has used the share session")
            return failed(ShareFetchResponse, error)
        found: dict[TopicIdPartition, _FetchedPartition] = {}
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
                batch_bounds(data),
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
                found[name] = _FetchedPartition(records, acquired, NO_ERROR)
                left -= sum(last - first + 1 for first, last, _ in acquired)
                left_bytes -= len(records)
        if not found and has_archived:
            return self.attempt(is_last)  # there may be more behind the aborted records
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

    def _candidates(self, found: dict[TopicIdPartition, _FetchedPartition]) -> list[_Candidate]:
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
                found[name] = _FetchedPartition(b"", [], PartitionError(error_code(error), error_text(error)))
                continue
            if one is not None:
                candidates.append(one)
                left_bytes -= len(one.data)
                left_records -= sum(last - base + 1 for base, last in batch_bounds(one.data)[:1])
        return candidates

    def _read(self, name: TopicIdPartition, max_bytes: int) -> _Candidate | None:
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
        aborted = log.aborted_transactions(offset, batch_bounds(data)[-1][1]) if is_committed else []
        return _Candidate(name, partition, offset, data, aborted_batches(data, aborted) if aborted else [])

    def response(self, found: dict[TopicIdPartition, _FetchedPartition]) -> ShareFetchResponse:
        """The answer: every partition for a new session, else those with news."""
        names = dict.fromkeys((*self._ack_errors, *found))
        if self._is_new:
            names = dict.fromkeys((*self._session.partitions, *names))
        topics: dict[UUID, list[ShareFetchResponse.PartitionData]] = {}
        for name in names:
            records, acquired, error = found.get(name) or _FetchedPartition(b"", [], NO_ERROR)
            ack_error = self._ack_errors.get(name, NO_ERROR)
            topics.setdefault(name[0], []).append(
                ShareFetchResponse.PartitionData(
                    partition_index=name[1],
                    error_code=error.code,
                    error_message=error.text,
                    acknowledge_error_code=ack_error.code,
                    acknowledge_error_message=ack_error.text,
                    current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                    records=records,
                    acquired_records=[
                        ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in acquired
                    ],
                )
            )
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._lock_ms,
            responses=[
                ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[],
        )


def _start(broker: Broker, config: GroupConfig, log: PartitionLog) -> int:
    """Where a group begins on a partition that it has no state of."""
    strategy, back_ms = config.offset_reset()
    if strategy == "earliest":
        return log.start_offset
    if strategy == "by_duration":
        found = log.offset_for_timestamp(broker.epoch_ms() - back_ms)
        if found is not None:
            return found.offset
    return log.end_offset


def _cut(data: bytes | memoryview, first: int, last: int) -> bytes | memoryview:
    """The whole batches that hold an offset from ``first`` to ``last``."""
    start = end = 0
    for base, batch_last, batch_end in batch_positions(data):
        if batch_last < first:
            start = batch_end
        if base <= last:
            end = batch_end
    return data if start == 0 and end == len(data) else memoryview(data)[start:end]
