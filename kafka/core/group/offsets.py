"""A group's offsets: OffsetCommit and OffsetFetch as dialogues, in all versions.

    commit_offsets   the errors of the partitions that were not committed
    fetch_offsets    the committed offset of each partition that has one, and errors

What an error code asks for is a row of :data:`COMMIT_REACTIONS` or :data:`FETCH_REACTIONS`; codes without one go by
their class's ``retriable``. Who commits is asked anew for each attempt (``who``): a member's epoch moves on while a
commit is on its way (KIP-848), and a member that lost its partitions must not commit any more, which ``who`` says by
raising.

The messages are in ``offset_messages.py``; version 0 stored offsets in ZooKeeper and is not spoken.

Source: KIP-211, KIP-320 (leader epochs), KIP-345 (instances), KIP-447 (stable offsets),
KIP-709 (several groups), KIP-848 (members' epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from kafka.core.dialogue import ByVersion, Dialogue, Forget, RefreshMetadata, Sleep, now, send, within
from kafka.core.group.offset_messages import (
    Errors,
    TopicIdOf,
    commit_errors,
    commit_request,
    fetch_request,
    ids_of,
    most_version,
    read_offsets,
)
from kafka.core.retry import Backoff, RetryAction, classify
from kafka.core.routing import Coordinator
from kafka.errors import (
    Cancelled,
    CommitFailedError,
    CommitInRebalanceError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
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
)
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

LEAST_VERSION: Final = 1
BRIEF_ATTEMPTS: Final = 5
"""How often a topic that the coordinator does not know is tried: it may be that new, or it was deleted."""

Who = Callable[[], ConsumerGroupMetadata]
"""As whom to speak. Raises what the dialogue is to end with."""


class Reaction(Enum):
    """What an error asks for."""

    FAIL = "final"
    RETRY = "wait"
    BRIEFLY = "wait, read the metadata, and try some times only"
    FIND = "wait, and look the coordinator up"
    EPOCH = "take the member's new epoch, when there is one"
    FENCED = "the member is not, or no longer, what it took itself for"
    NOTHING = "the same as no offset"


_AGAIN: Final = frozenset({Reaction.RETRY, Reaction.BRIEFLY, Reaction.FIND, Reaction.EPOCH})


COMMIT_REACTIONS: Final[Mapping[type[KafkaError], Reaction]] = {
    CoordinatorLoadInProgressError: Reaction.RETRY,
    CoordinatorNotAvailableError: Reaction.FIND,
    NotCoordinatorError: Reaction.FIND,
    RequestTimedOutError: Reaction.FIND,
    UnknownTopicOrPartitionError: Reaction.BRIEFLY,
    UnknownTopicIdError: Reaction.BRIEFLY,
    StaleMemberEpochError: Reaction.EPOCH,
    UnknownMemberIdError: Reaction.FENCED,
    IllegalGenerationError: Reaction.FENCED,
    RebalanceInProgressError: Reaction.FENCED,
    FencedInstanceIdError: Reaction.FENCED,
    FencedMemberEpochError: Reaction.FENCED,
}

FETCH_REACTIONS: Final[Mapping[type[KafkaError], Reaction]] = {
    **COMMIT_REACTIONS,
    UnknownTopicOrPartitionError: Reaction.NOTHING,
    UnstableOffsetCommitError: Reaction.RETRY,
}

_TURNED: Final[Mapping[type[KafkaError], type[KafkaError]]] = {
    UnknownMemberIdError: CommitFailedError,
    IllegalGenerationError: CommitInRebalanceError,  # a member still, which has joined the next generation meanwhile
    FencedMemberEpochError: CommitFailedError,
    RebalanceInProgressError: CommitInRebalanceError,
}
"""What users are told instead. FENCED_INSTANCE_ID stays: another consumer has this one's group_instance_id."""

_ADVICE: Final[Mapping[type[KafkaError], str]] = {
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


def reaction_to(error: KafkaError, table: Mapping[type[KafkaError], Reaction]) -> Reaction:
    """What the broker's error asks for."""
    found = table.get(type(error))
    if found is not None:
        return found
    return Reaction.RETRY if error.retriable else Reaction.FAIL


class Committed(NamedTuple):
    """``offsets``: of the partitions that have one; ``errors``: of those that could not be had."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    errors: Errors


_Attempt = Callable[[Iterable[TopicPartition], ConsumerGroupMetadata], Dialogue[Errors]]
"""One request for these partitions as this member: the errors of those that have one."""


class _Fault(NamedTuple):
    error: KafkaError
    reaction: Reaction


def commit_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    who: Who,
    *,
    topic_id_of: TopicIdOf,
    timeout_s: float,
    backoff: Backoff,
    on_fenced: Callable[[KafkaError], object] = lambda _: None,
    lane: str | None = None,
) -> Dialogue[Errors]:
    """Commit, and try again what is worth it for ``timeout_s``. The errors of those that were not committed.

    ``on_fenced`` is told each error that says something of the membership (``GroupMachine.fenced``). Raises Cancelled
    alone: what went wrong stands beside the partitions.
    """

    def attempt(left: Iterable[TopicPartition], speaker: ConsumerGroupMetadata) -> Dialogue[Errors]:
        ids = ids_of(left, topic_id_of)
        answer = yield from send(
            Coordinator(speaker.group_id or ""),
            ByVersion(
                OffsetCommitRequest,
                lambda version: commit_request({each: offsets[each] for each in left}, speaker, ids, version),
            ),
            lane=lane,
            min_version=LEAST_VERSION,
            max_version=most_version(ids),
        )
        return commit_errors(answer, left, ids)

    return (
        yield from _insist(
            offsets, attempt, who, COMMIT_REACTIONS, "commit", timeout_s=timeout_s, backoff=backoff, on_fenced=on_fenced
        )
    )


def fetch_offsets(
    partitions: Iterable[TopicPartition],
    who: Who,
    *,
    as_member: bool,
    topic_id_of: TopicIdOf,
    timeout_s: float,
    backoff: Backoff,
    on_fenced: Callable[[KafkaError], object] = lambda _: None,
    lane: str | None = None,
) -> Dialogue[Committed]:
    """The committed offsets. Raises Cancelled alone, as :func:`commit_offsets` does.

    ``as_member``: say member and epoch, as members of the new protocol do (KIP-848), so that who was fenced learns it.
    Offsets that an open transaction is about to commit are waited for (KIP-447, brokers since 2.5).
    """
    found: dict[TopicPartition, OffsetAndMetadata] = {}

    def attempt(left: Iterable[TopicPartition], speaker: ConsumerGroupMetadata) -> Dialogue[Errors]:
        ids = ids_of(left, topic_id_of)
        answer = yield from send(
            Coordinator(speaker.group_id or ""),
            ByVersion(OffsetFetchRequest, lambda version: fetch_request(left, speaker, as_member, ids, version)),
            lane=lane,
            min_version=LEAST_VERSION,
            max_version=most_version(ids),
        )
        return read_offsets(answer, left, ids, found)

    wanted = list(partitions)
    errors = yield from _insist(
        wanted, attempt, who, FETCH_REACTIONS, "fetch", timeout_s=timeout_s, backoff=backoff, on_fenced=on_fenced
    )
    return Committed(found, errors)


def _insist(
    partitions: Iterable[TopicPartition],
    attempt: _Attempt,
    who: Who,
    table: Mapping[type[KafkaError], Reaction],
    what: str,
    *,
    timeout_s: float,
    backoff: Backoff,
    on_fenced: Callable[[KafkaError], object],
) -> Dialogue[Errors]:
    """Attempts until nothing is left that another one could help; the errors of what failed."""
    give_up_at = (yield from now()) + timeout_s
    left = list(partitions)
    failed: Errors = {}
    attempts = 0
    while left:
        attempts += 1
        try:
            speaker = who()
        except KafkaError as refusal:
            failed.update(dict.fromkeys(left, refusal))
            break
        try:
            errors = yield from within(give_up_at, attempt(left, speaker))
            faults = {each: _Fault(error, reaction_to(error, table)) for each, error in errors.items()}
        except Cancelled:
            raise
        except KafkaError as error:  # no answer, or nobody knows who the coordinator is
            is_final = classify(error) is RetryAction.GIVE_UP
            faults = dict.fromkeys(left, _Fault(error, Reaction.FAIL if is_final else Reaction.FIND))
        for fault in {fault.reaction: fault for fault in faults.values()}.values():
            if fault.reaction in (Reaction.FENCED, Reaction.EPOCH):
                on_fenced(fault.error)
        left = [each for each in left if each in faults and faults[each].reaction in _AGAIN]
        reactions = {faults[each].reaction for each in left}
        if attempts >= BRIEF_ATTEMPTS:
            left = [each for each in left if faults[each].reaction is not Reaction.BRIEFLY]
        for each, fault in faults.items():
            if each not in left and fault.reaction is not Reaction.NOTHING:
                failed[each] = _told(fault.error, what, speaker)
        if not left:
            break
        wait_s = 0.0 if Reaction.EPOCH in reactions and _has_moved_on(who, speaker) else backoff.delay_s(attempts)
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


def _recover(
    reactions: set[Reaction],
    speaker: ConsumerGroupMetadata,
    left: Iterable[TopicPartition],
    wait_s: float,
    give_up_at: float,
) -> Dialogue[None]:
    if Reaction.FIND in reactions:
        yield Forget(Coordinator(speaker.group_id or ""))
    if wait_s:
        yield Sleep(wait_s)
    if Reaction.BRIEFLY in reactions:
        try:
            yield RefreshMetadata(sorted({each.topic for each in left}), give_up_at)
        except KafkaError as error:
            if not error.retriable or isinstance(error, Cancelled):
                raise


def _has_moved_on(who: Who, speaker: ConsumerGroupMetadata) -> bool:
    try:
        return who().generation_id != speaker.generation_id
    except KafkaError:
        return True  # which the next attempt reports


def _told(error: KafkaError, what: str, speaker: ConsumerGroupMetadata) -> KafkaError:
    """The error as users know it."""
    kind = _TURNED.get(type(error)) if what == "commit" else None
    if kind is None:
        return error
    found = kind(f"{_of(what, speaker)}: {_ADVICE[kind]}")
    found.__cause__ = error
    return found


def _of(what: str, speaker: ConsumerGroupMetadata) -> str:
    return f"{what} of offsets, group {speaker.group_id}"
