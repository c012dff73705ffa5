"""The next step of a member from what it has to what its group's target assignment gives it (KIP-848).

    STABLE ──target changed──> UNREVOKED_PARTITIONS    told to let go; it keeps its epoch until it said that it did
                                   │
                                   v
                               UNRELEASED_PARTITIONS   at the target's epoch, waits for what others hold
                                   │
                                   v
                               STABLE                  at the target's epoch, with all of it

No partition is assigned while anybody else holds it, also while its holder has only been told to let it go. What the
member is no longer subscribed to is taken at once, before there is a new target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from kafka.broker.groups.consumer_member import ConsumerMember, Partition
from kafka.broker.groups.states import MemberState
from kafka.errors import FencedMemberEpochError


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Set[Partition],
    owned: Collection[Partition] | None,
    is_free: Callable[[Partition], bool],
    is_subscribed: Callable[[Partition], bool],
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after one step. ``owned``: what it says that it has, None when it did not say; ``is_free``: nobody
    holds the partition, the member itself included: what it has just let go it gets back one step later."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return _drop_unsubscribed(member, owned, is_subscribed) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_has(owned, member.revoking):
            return _drop_unsubscribed(member, owned, is_subscribed) if subscription_changed else member
        return _next(member, member.epoch + 1, target_epoch, target, owned, is_free, is_subscribed)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpochError(
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin."
            )
        return _next(member, target_epoch, target_epoch, target, owned, is_free, is_subscribed)
    return _next(member, member.epoch, target_epoch, target, owned, is_free, is_subscribed)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Set[Partition],
    owned: Collection[Partition] | None,
    is_free: Callable[[Partition], bool],
    is_subscribed: Callable[[Partition], bool],
) -> ConsumerMember:
    kept = {one: since for one, since in member.assigned.items() if one in target and is_subscribed(one)}
    lost = {one: since for one, since in member.assigned.items() if one not in kept}
    if lost and _still_has(owned, lost):
        moved = member.at_epoch(min(epoch, target_epoch))
        return moved._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=lost)
    wanted = {one for one in target if one not in kept and is_subscribed(one)}
    free = {one for one in wanted if is_free(one)}
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    assigned = {**kept, **dict.fromkeys(sorted(free, key=lambda one: (one[0].bytes, one[1])), target_epoch)}
    return member.at_epoch(target_epoch)._replace(state=state, assigned=assigned, revoking={})


def _drop_unsubscribed(
    member: ConsumerMember, owned: Collection[Partition] | None, is_subscribed: Callable[[Partition], bool]
) -> ConsumerMember:
    lost = {one: since for one, since in member.assigned.items() if not is_subscribed(one)}
    if not lost:
        return member
    kept = {one: since for one, since in member.assigned.items() if one not in lost}
    revoking = {**member.revoking, **lost}
    if _still_has(owned, revoking):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return member._replace(assigned=kept)


def _still_has(owned: Collection[Partition] | None, lost: Collection[Partition]) -> bool:
    return owned is None or any(one in lost for one in owned)
