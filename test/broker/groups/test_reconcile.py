"""One step of a member at a time. What is expected is CurrentAssignmentBuilder's (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest

from kafka.broker.groups.consumer_group import ConsumerMember, ConsumerMemberState, reconcile
from kafka.broker.topics import TopicIdPartition
from kafka.errors import FencedMemberEpochError

TOPIC, OTHER = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED = ConsumerMemberState.STABLE, ConsumerMemberState.UNREVOKED_PARTITIONS
UNRELEASED, UNKNOWN = ConsumerMemberState.UNRELEASED_PARTITIONS, ConsumerMemberState.UNKNOWN


def parts(*numbers: int) -> set[TopicIdPartition]:
    return {(TOPIC, number) for number in numbers}


def member(
    state: ConsumerMemberState, epoch: int, assigned: dict[int, int], revoking: dict[int, int] | None = None
) -> ConsumerMember:
    return ConsumerMember(
        "m",
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned={(TOPIC, number): since for number, since in assigned.items()},
        revoking={(TOPIC, number): since for number, since in (revoking or {}).items()},
    )


def step(
    before: ConsumerMember,
    target_epoch: int,
    target: set[TopicIdPartition],
    owned: Collection[TopicIdPartition] | None = None,
    held: Collection[TopicIdPartition] = (),
    subscribed: Collection[UUID] = (TOPIC,),
    changed: bool = False,
) -> ConsumerMember:
    return reconcile(
        before, target_epoch, target, owned, lambda one: one not in held, lambda one: one[0] in subscribed, changed
    )


def shown(found: ConsumerMember) -> tuple[ConsumerMemberState, int, int, dict[int, int], dict[int, int]]:
    assigned = {number: since for (_, number), since in found.assigned.items()}
    revoking = {number: since for (_, number), since in found.revoking.items()}
    return found.state, found.epoch, found.previous_epoch, assigned, revoking


def test_a_member_at_its_target_stays_as_it_is() -> None:
    before = member(STABLE, 5, {0: 3, 1: 5})
    assert step(before, 5, parts(0, 1)) is before
    assert step(before, 5, parts(0, 1), changed=True) is before
    assert step(before, 5, parts(0, 1), subscribed=()) is before, "the subscription is the one that the target is of"


def test_a_new_target_that_takes_nothing_is_taken_up_at_once() -> None:
    assert shown(step(member(STABLE, 5, {0: 3}), 6, parts(0, 1, 2))) == (STABLE, 6, 5, {0: 3, 1: 6, 2: 6}, {})


def test_what_others_hold_is_waited_for() -> None:
    after = step(member(STABLE, 5, {0: 3}), 6, parts(0, 1, 2), held=parts(2))
    assert shown(after) == (UNRELEASED, 6, 5, {0: 3, 1: 6}, {})
    assert shown(step(after, 6, parts(0, 1, 2), held=parts(2))) == (UNRELEASED, 6, 6, {0: 3, 1: 6}, {})
    assert shown(step(after, 6, parts(0, 1, 2))) == (STABLE, 6, 6, {0: 3, 1: 6, 2: 6}, {})


def test_what_is_taken_is_let_go_first_and_the_epoch_waits() -> None:
    before = member(STABLE, 5, {0: 3, 1: 5})
    for owned in (None, parts(0, 1), parts(1)):
        assert shown(step(before, 6, parts(0, 2), owned)) == (UNREVOKED, 5, 5, {0: 3}, {1: 5})
    assert shown(step(before, 6, parts(0, 2), parts(0))) == (STABLE, 6, 5, {0: 3, 2: 6}, {})


def test_a_member_that_has_not_let_go_does_not_move() -> None:
    before = member(UNREVOKED, 5, {0: 3}, {1: 5})
    for target_epoch in (5, 6):
        for owned in (None, parts(0, 1)):
            assert step(before, target_epoch, parts(0, 2), owned) is before
            assert step(before, target_epoch, parts(0, 2), owned, subscribed=()) is before


def test_a_member_that_has_let_go_moves_one_epoch_on_or_to_the_target() -> None:
    before = member(UNREVOKED, 5, {0: 3, 2: 5}, {1: 5})
    assert shown(step(before, 8, parts(0, 2), parts(0, 2))) == (STABLE, 8, 5, {0: 3, 2: 5}, {})
    assert shown(step(before, 8, parts(0), parts(0, 2))) == (UNREVOKED, 6, 5, {0: 3}, {2: 5})
    assert shown(step(before, 6, parts(0), parts(0, 2))) == (UNREVOKED, 6, 5, {0: 3}, {2: 5})
    assert shown(step(before, 5, parts(0), parts(0, 2))) == (UNREVOKED, 5, 5, {0: 3}, {2: 5})


def test_what_it_is_no_longer_subscribed_to_is_taken_before_there_is_a_new_target() -> None:
    before = member(STABLE, 5, {0: 3})
    for owned in (None, parts(0)):
        assert shown(step(before, 5, parts(0), owned, subscribed=(), changed=True)) == (UNREVOKED, 5, 4, {}, {0: 3})
    assert shown(step(before, 5, parts(0), [], subscribed=(), changed=True)) == (STABLE, 5, 4, {}, {})
    before = member(UNREVOKED, 5, {0: 3}, {1: 5})
    assert shown(step(before, 5, parts(0), None, subscribed=(), changed=True)) == (UNREVOKED, 5, 4, {}, {1: 5, 0: 3})


def test_a_target_gives_nothing_that_the_member_is_not_subscribed_to() -> None:
    other = (OTHER, 0)
    after = step(member(STABLE, 5, {0: 3}), 6, {*parts(0, 1), other})
    assert shown(after) == (STABLE, 6, 5, {0: 3, 1: 6}, {})
    assert other not in after.assigned


def test_a_state_of_a_later_release_is_left_with_empty_hands_only() -> None:
    before = member(UNKNOWN, 5, {0: 3})
    for owned in (None, parts(0)):
        with pytest.raises(FencedMemberEpochError):
            step(before, 6, parts(0), owned)
    assert shown(step(before, 6, parts(0, 1), [])) == (STABLE, 6, 5, {0: 3, 1: 6}, {})
