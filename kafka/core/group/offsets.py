"""A group's offsets: OffsetCommit and OffsetFetch as dialogues, in all versions.

    OffsetDialogues.commit    the errors of the partitions that were not committed
    OffsetDialogues.fetch     the committed offset of each partition that has one, and errors

What an error code asks for is a row of :data:`COMMIT_ERROR_ACTIONS` or :data:`OFFSET_FETCH_ERROR_ACTIONS`; codes
without one go by their class's ``retriable``. Who commits is asked anew for each attempt (``who``): a member's epoch
moves on while a commit is on its way (KIP-848), and a member that lost its partitions must not commit any more, which
``who`` says by raising.

Version 0 stored offsets in ZooKeeper and is not spoken.

Source: KIP-211, KIP-320 (leader epochs), KIP-345 (instances), KIP-447 (stable offsets),
KIP-709 (several groups), KIP-848 (members' epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, Forget, RefreshMetadata, Sleep, now, send, within
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, ErrorTable
from kafka.core.routing import Coordinator
from kafka.errors import (
    Cancelled,
    CommitFailedError,
    CommitInRebalanceError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorrelationIdError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    for_code,
)
from kafka.protocol.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.wire.types import ZERO_UUID

# OffsetCommit and OffsetFetch as bytes want them: by topic, in the fields of each version, by ids or by names.
#
# Versions 8 and later of OffsetFetch ask for several groups; 10 of both name topics by their ids, which takes that all
# are known. What the answers' errors mean is in the tables below.


FIRST_VERSION_WITH_IDS: Final = 10
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_STABLE: Final = 7
FIRST_VERSION_WITH_INSTANCE: Final = 7

TopicIdOf = Callable[[str], "UUID | None"]
OffsetErrors = dict[TopicPartition, KafkaError]


def ids_of(partitions: Iterable[TopicPartition], topic_id_of: TopicIdOf) -> dict[str, UUID]:
    """The ids of the topics, zero where unknown."""
    return {topic: topic_id_of(topic) or ZERO_UUID for topic in sorted({each.topic for each in partitions})}


def most_version(ids: Mapping[str, UUID]) -> int | None:
    """The highest version that may be spoken: topics go by ids only when all are known."""
    return FIRST_VERSION_WITH_IDS - 1 if ZERO_UUID in ids.values() else None


def commit_request(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    speaker: ConsumerGroupMetadata,
    ids: Mapping[str, UUID],
    version: int,
) -> OffsetCommitRequest:
    """What to commit, in ``version``."""
    return OffsetCommitRequest(
        group_id=speaker.group_id or "",
        generation_id_or_member_epoch=speaker.generation_id,
        member_id=speaker.member_id,
        group_instance_id=speaker.group_instance_id if version >= FIRST_VERSION_WITH_INSTANCE else None,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids[topic],
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


def commit_errors(
    answer: OffsetCommitResponse, left: Iterable[TopicPartition], ids: Mapping[str, UUID]
) -> OffsetErrors:
    """The error of each partition that has one, or that the answer leaves out."""
    return _errors_of(left, _entries(answer.topics, ids), "commit of")


def fetch_request(
    partitions: Iterable[TopicPartition],
    speaker: ConsumerGroupMetadata,
    as_member: bool,
    ids: Mapping[str, UUID],
    version: int,
) -> OffsetFetchRequest:
    """What to look up, in ``version``."""
    is_stable = version >= FIRST_VERSION_WITH_STABLE
    numbers = by_topic(partitions)
    if version < FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchRequest(
            group_id=speaker.group_id or "",
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=found)
                for topic, found in numbers.items()
            ],
            require_stable=is_stable,
        )
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=speaker.group_id or "",
        member_id=speaker.member_id if as_member else None,
        member_epoch=speaker.generation_id if as_member else -1,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, topic_id=ids[topic], partition_indexes=found)
            for topic, found in numbers.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=is_stable)


def read_offsets(
    answer: OffsetFetchResponse,
    left: Iterable[TopicPartition],
    ids: Mapping[str, UUID],
    found: dict[TopicPartition, OffsetAndMetadata],
) -> OffsetErrors:
    """Puts what was committed into ``found``; the error of each partition that has one, or that the answer leaves out:
    of that it is unknown whether it has an offset."""
    group = answer.groups[0] if answer.groups else None
    code = answer.error_code if group is None else group.error_code
    if code:
        return dict.fromkeys(left, for_code(code)("fetch of a group's offsets"))
    entries = _entries(answer.topics if group is None else group.topics, ids)
    for where, entry in entries.items():
        if not entry.error_code and entry.committed_offset >= 0:
            found[where] = OffsetAndMetadata(entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch)
    return _errors_of(left, entries, "committed offset of")


def _entries(topics: Iterable[Any], ids: Mapping[str, UUID]) -> dict[TopicPartition, Any]:
    """The answer's entry of each partition. Topics go by ids where they have no name."""
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        TopicPartition(topic.name or names.get(getattr(topic, "topic_id", ZERO_UUID), ""), entry.partition_index): entry
        for topic in topics
        for entry in topic.partitions
    }


def _errors_of(left: Iterable[TopicPartition], entries: Mapping[TopicPartition, Any], what: str) -> OffsetErrors:
    errors: OffsetErrors = {}
    for each in left:
        entry = entries.get(each)
        if entry is None:
            errors[each] = CoordinatorNotAvailableError("the answer leaves the partition out")
        elif entry.error_code:
            errors[each] = for_code(entry.error_code)(f"{what} {each.topic}-{each.partition}")
    return errors


LEAST_VERSION: Final = 1
BRIEF_ATTEMPTS: Final = 5
"""How often a topic that the coordinator does not know is tried: it may be that new, or it was deleted."""

MemberIdentity = Callable[[], ConsumerGroupMetadata]
"""As whom to speak. Raises what the dialogue is to end with."""


class OffsetErrorAction(Enum):
    """What an error asks for."""

    FAIL = "raise the error"
    RETRY = "wait and retry"
    BRIEFLY = "wait, refresh metadata, and retry a few times"
    FIND = "find the coordinator again, and retry"
    EPOCH = "retry with the member's new epoch, when there is one"
    FENCED = "no retry: the group has gone on without this member; the member sends a heartbeat"
    NOTHING = "as if no offset were committed"


_RETRYING_ACTIONS: Final = frozenset(
    {OffsetErrorAction.RETRY, OffsetErrorAction.BRIEFLY, OffsetErrorAction.FIND, OffsetErrorAction.EPOCH}
)


COMMIT_ERROR_ACTIONS: Final = ErrorTable(
    {
        CoordinatorLoadInProgressError: OffsetErrorAction.RETRY,
        CoordinatorNotAvailableError: OffsetErrorAction.FIND,
        NotCoordinatorError: OffsetErrorAction.FIND,
        RequestTimedOutError: OffsetErrorAction.FIND,
        UnknownTopicOrPartitionError: OffsetErrorAction.BRIEFLY,
        UnknownTopicIdError: OffsetErrorAction.BRIEFLY,
        StaleMemberEpochError: OffsetErrorAction.EPOCH,
        UnknownMemberIdError: OffsetErrorAction.FENCED,
        IllegalGenerationError: OffsetErrorAction.FENCED,
        RebalanceInProgressError: OffsetErrorAction.FENCED,
        FencedInstanceIdError: OffsetErrorAction.FENCED,
        FencedMemberEpochError: OffsetErrorAction.FENCED,
    },
    retry=OffsetErrorAction.RETRY,
    otherwise=OffsetErrorAction.FAIL,
    exact=True,
)

OFFSET_FETCH_ERROR_ACTIONS: Final = COMMIT_ERROR_ACTIONS.extended(
    {
        UnknownTopicOrPartitionError: OffsetErrorAction.NOTHING,
        UnstableOffsetCommitError: OffsetErrorAction.RETRY,
    }
)

_NO_RESPONSE_ACTIONS: Final = ErrorTable(
    {
        KafkaTimeoutError: OffsetErrorAction.FAIL,  # the caller's own limit
        CorrelationIdError: OffsetErrorAction.FAIL,  # the peer cannot be trusted with what we sent
    },
    retry=OffsetErrorAction.FIND,
    otherwise=OffsetErrorAction.FAIL,
)

REPLACED_ERRORS: Final[Mapping[type[KafkaError], type[KafkaError]]] = {
    UnknownMemberIdError: CommitFailedError,
    IllegalGenerationError: CommitInRebalanceError,  # a member still, which has joined the next generation meanwhile
    FencedMemberEpochError: CommitFailedError,
    RebalanceInProgressError: CommitInRebalanceError,
}
"""What is raised to users instead. FENCED_INSTANCE_ID stays: another consumer has this one's group_instance_id."""

_ERROR_ADVICE: Final[Mapping[type[KafkaError], str]] = {
    CommitFailedError: (
        "the offsets were not committed: the group has gone on without this member, whose partitions may be others' by "
        "now. Either it did not poll for max_poll_interval_ms (raise that, or lower max_poll_records), or its "
        "heartbeats did not come through for session_timeout_ms"
    ),
    CommitInRebalanceError: (
        "the offsets were not committed: the group is being rebalanced; call poll(), and commit again what is still "
        "assigned"
    ),
}


class CommittedOffsets(NamedTuple):
    """``offsets``: of the partitions that have one; ``errors``: of those that could not be had."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    errors: OffsetErrors


_Attempt = Callable[[Iterable[TopicPartition], ConsumerGroupMetadata], Dialogue[OffsetErrors]]
"""One request for these partitions as this member: the errors of those that have one."""


class _Fault(NamedTuple):
    error: KafkaError
    reaction: OffsetErrorAction


class OffsetDialogues:
    """Of one group. ``on_fenced`` is called with each error that says something of the membership
    (``GroupMachine.fenced``). The dialogues raise Cancelled alone: what went wrong stands beside the partitions."""

    def __init__(
        self,
        who: MemberIdentity,
        topic_id_of: TopicIdOf,
        backoff: Backoff,
        on_fenced: Callable[[KafkaError], object] = lambda _: None,
    ) -> None:
        self._who = who
        self._topic_id_of = topic_id_of
        self._backoff = backoff
        self._on_fenced = on_fenced

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> Dialogue[OffsetErrors]:
        """Commit, and try again what is worth it for ``timeout_s``. The errors of those that were not committed."""

        def attempt(left: Iterable[TopicPartition], speaker: ConsumerGroupMetadata) -> Dialogue[OffsetErrors]:
            ids = ids_of(left, self._topic_id_of)
            answer = yield from send(
                Coordinator(speaker.group_id or ""),
                ByVersion(
                    OffsetCommitRequest,
                    lambda version: commit_request({each: offsets[each] for each in left}, speaker, ids, version),
                ),
                min_version=LEAST_VERSION,
                max_version=most_version(ids),
            )
            return commit_errors(answer, left, ids)

        return (yield from self._retry(offsets, attempt, COMMIT_ERROR_ACTIONS, "commit", timeout_s))

    def fetch(
        self, partitions: Iterable[TopicPartition], timeout_s: float, *, as_member: bool
    ) -> Dialogue[CommittedOffsets]:
        """The committed offsets.

        ``as_member``: say member and epoch, as members of the consumer group protocol do (KIP-848), so that a member
        that was fenced learns it. Offsets that an open transaction is about to commit are waited for (KIP-447, brokers
        since 2.5).
        """
        found: dict[TopicPartition, OffsetAndMetadata] = {}

        def attempt(left: Iterable[TopicPartition], speaker: ConsumerGroupMetadata) -> Dialogue[OffsetErrors]:
            ids = ids_of(left, self._topic_id_of)
            answer = yield from send(
                Coordinator(speaker.group_id or ""),
                ByVersion(OffsetFetchRequest, lambda version: fetch_request(left, speaker, as_member, ids, version)),
                min_version=LEAST_VERSION,
                max_version=most_version(ids),
            )
            return read_offsets(answer, left, ids, found)

        errors = yield from self._retry(partitions, attempt, OFFSET_FETCH_ERROR_ACTIONS, "fetch", timeout_s)
        return CommittedOffsets(found, errors)

    def _retry(
        self,
        partitions: Iterable[TopicPartition],
        attempt: _Attempt,
        table: ErrorTable[OffsetErrorAction],
        what: str,
        timeout_s: float,
    ) -> Dialogue[OffsetErrors]:
        """Attempts until nothing is left that another one could help; the errors of what failed."""
        give_up_at = (yield from now()) + timeout_s
        left = list(partitions)
        failed: OffsetErrors = {}
        attempts = 0
        while left:
            attempts += 1
            try:
                speaker = self._who()
            except KafkaError as refusal:
                failed.update(dict.fromkeys(left, refusal))
                break
            try:
                errors = yield from within(give_up_at, attempt(left, speaker))
                faults = {each: _Fault(error, table.action_for(error)) for each, error in errors.items()}
            except Cancelled:
                raise
            except KafkaError as error:  # no response, or no coordinator known
                faults = dict.fromkeys(left, _Fault(error, _NO_RESPONSE_ACTIONS.action_for(error)))
            for fault in {fault.reaction: fault for fault in faults.values()}.values():
                if fault.reaction in (OffsetErrorAction.FENCED, OffsetErrorAction.EPOCH):
                    self._on_fenced(fault.error)
            left = [each for each in left if each in faults and faults[each].reaction in _RETRYING_ACTIONS]
            reactions = {faults[each].reaction for each in left}
            if attempts >= BRIEF_ATTEMPTS:
                left = [each for each in left if faults[each].reaction is not OffsetErrorAction.BRIEFLY]
            for each, fault in faults.items():
                if each not in left and fault.reaction is not OffsetErrorAction.NOTHING:
                    failed[each] = _error_text(fault.error, what, speaker)
            if not left:
                break
            is_renewed = OffsetErrorAction.EPOCH in reactions and self._has_moved_on(speaker)
            wait_s = 0.0 if is_renewed else self._backoff.delay_s(attempts)
            if (yield from now()) + wait_s > give_up_at:
                for each in left:
                    last = faults[each].error
                    late = KafkaTimeoutError(f"{_of(what, speaker)}: no success within {timeout_s:g} s; last: {last}")
                    late.__cause__ = last
                    failed[each] = late
                break
            try:
                yield from _recover(reactions, speaker, left, wait_s, give_up_at)
            except Cancelled:
                raise
            except KafkaError as error:
                failed.update(dict.fromkeys(left, error))
                break
        return failed

    def _has_moved_on(self, speaker: ConsumerGroupMetadata) -> bool:
        try:
            return self._who().generation_id != speaker.generation_id
        except KafkaError:
            return True  # which the next attempt reports


def _recover(
    reactions: set[OffsetErrorAction],
    speaker: ConsumerGroupMetadata,
    left: Iterable[TopicPartition],
    wait_s: float,
    give_up_at: float,
) -> Dialogue[None]:
    if OffsetErrorAction.FIND in reactions:
        yield Forget(Coordinator(speaker.group_id or ""))
    if wait_s:
        yield Sleep(wait_s)
    if OffsetErrorAction.BRIEFLY in reactions:
        try:
            yield RefreshMetadata(sorted({each.topic for each in left}), give_up_at)
        except KafkaError as error:
            if not error.retriable or isinstance(error, Cancelled):
                raise


def _error_text(error: KafkaError, what: str, speaker: ConsumerGroupMetadata) -> KafkaError:
    """The error as users know it."""
    kind = REPLACED_ERRORS.get(type(error)) if what == "commit" else None
    if kind is None:
        return error
    found = kind(f"{_of(what, speaker)}: {_ERROR_ADVICE[kind]}")
    found.__cause__ = error
    return found


def _of(what: str, speaker: ConsumerGroupMetadata) -> str:
    return f"{what} of offsets, group {speaker.group_id}"
