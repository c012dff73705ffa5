"""The steps from what a member of a consumer group holds to what the broker assigns to it (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from kafka.core.group.consumer import AssignmentReconciler, IdPartition
from kafka.core.group.machine import Assign, Lose, Revoke
from kafka.structs import TopicPartition
from test.core.group.consumer_bench import JOBS, LOGS, NAMES, Seen, parts


def target(**numbers: tuple[int, ...]) -> frozenset[IdPartition]:
    ids = {name: topic_id for topic_id, name in NAMES.items()}
    return frozenset((ids[topic], number) for topic, each in numbers.items() for number in each)


def step(holdings: AssignmentReconciler) -> Seen:
    """The next step, if there is one."""
    found = holdings.next_step()
    return Seen([] if found is None else [found])


def finish(holdings: AssignmentReconciler) -> Seen:
    """Carry out the step under way; the next one."""
    assert holdings.under_way is not None
    assert holdings.carried_out(holdings.under_way)
    return step(holdings)


def holding(*numbers: int, names: Mapping[UUID, str] = NAMES) -> AssignmentReconciler:
    """What holds these of jobs."""
    holdings = AssignmentReconciler(names.get)
    holdings.set_target(target(jobs=numbers))
    assert step(holdings) == [Assign(parts(*numbers), parts(*numbers))]
    assert finish(holdings) == []
    assert (holdings.owned, holdings.is_reconciled) == (parts(*numbers), True)
    return holdings


def test_at_first_nothing_is_held_and_nothing_is_known() -> None:
    holdings = AssignmentReconciler(NAMES.get)
    assert step(holdings) == []
    assert (holdings.owned, holdings.is_free, holdings.is_empty_handed) == (frozenset(), True, True)
    assert not holdings.is_reconciled


def test_an_assignment_is_held_when_it_was_carried_out() -> None:
    holdings = AssignmentReconciler(NAMES.get)
    holdings.set_target(target(jobs=(0, 1)))
    assert (holdings.is_free, holdings.is_empty_handed) == (True, False)
    assert step(holdings) == [Assign(parts(0, 1), parts(0, 1))]
    assert step(holdings) == [], "one at a time"
    assert (holdings.owned, holdings.is_free, holdings.is_reconciled) == (frozenset(), False, False)
    assert not holdings.carried_out(Revoke(parts(0, 1))) and not holdings.carried_out(Lose(parts(0, 1)))
    assert finish(holdings) == []
    assert holdings.held == {(JOBS, 0): TopicPartition("jobs", 0), (JOBS, 1): TopicPartition("jobs", 1)}
    assert (holdings.is_free, holdings.is_reconciled, holdings.is_empty_handed) == (False, True, False)
    assert not holdings.carried_out(Assign(parts(0, 1), parts(0, 1))), "there is nothing under way"


def test_what_is_to_go_goes_before_anything_comes() -> None:
    holdings = holding(0, 1)
    holdings.set_target(target(jobs=(1,), logs=(4,)))
    assert not holdings.is_reconciled
    assert step(holdings) == [Revoke(parts(0))]
    assert finish(holdings) == [Assign(parts(1) | parts(4, topic="logs"), parts(4, topic="logs"))]
    assert finish(holdings) == []
    assert holdings.owned == parts(1) | parts(4, topic="logs")


def test_a_member_that_only_loses_partitions_gets_the_rest() -> None:
    """As Java's listener is: onPartitionsAssigned of nothing new ends each reconciliation."""
    holdings = holding(0, 1)
    holdings.set_target(target(jobs=(1,)))
    assert step(holdings) == [Revoke(parts(0))]
    assert finish(holdings) == [Assign(parts(1), frozenset())]
    assert not holdings.is_reconciled
    assert finish(holdings) == []
    assert holdings.is_reconciled


def test_the_same_target_is_no_step() -> None:
    holdings = holding(0, 1)
    holdings.set_target(target(jobs=(0, 1)))
    assert step(holdings) == [] and holdings.is_reconciled


def test_another_target_of_the_same_size_is() -> None:
    holdings = holding(0)
    holdings.set_target(target(jobs=(1,)))
    assert step(holdings) == [Revoke(parts(0))]
    assert finish(holdings) == [Assign(parts(1), parts(1))]


def test_a_target_of_nothing_is_reported_once() -> None:
    holdings = holding()
    holdings.set_target(frozenset())
    assert step(holdings) == []
    assert (holdings.is_free, holdings.is_empty_handed, holdings.is_reconciled) == (True, True, True)


def test_topics_without_a_name_are_waited_for() -> None:
    names = {JOBS: "jobs"}
    holdings = holding(0, names=names)
    holdings.set_target(target(jobs=(0,), logs=(1,)))
    assert step(holdings) == [] and holdings.unresolved == {LOGS}
    assert not holdings.is_reconciled
    holdings.set_target(target(jobs=(0, 2), logs=(1,)))
    assert step(holdings) == [Assign(parts(0, 2), parts(2))]
    assert finish(holdings) == []
    assert holdings.unresolved == {LOGS} and not holdings.is_reconciled
    names[LOGS] = "logs"
    everything = parts(0, 2) | parts(1, topic="logs")
    assert step(holdings) == [Assign(everything, parts(1, topic="logs"))]
    assert finish(holdings) == []
    assert (holdings.unresolved, holdings.is_reconciled) == (frozenset(), True)


@pytest.mark.parametrize(("is_lost", "kind"), [(False, Revoke), (True, Lose)])
def test_what_is_given_up_is_revoked_or_lost_and_then_it_is_free(
    is_lost: bool, kind: type[Revoke] | type[Lose]
) -> None:
    holdings = holding(0, 1)
    holdings.give_up(is_lost)
    assert not holdings.is_free and not holdings.is_reconciled
    assert step(holdings) == [kind(parts(0, 1))]
    assert not holdings.is_free
    assert finish(holdings) == []
    assert (holdings.is_free, holdings.is_empty_handed, holdings.owned) == (True, True, frozenset())


@pytest.mark.parametrize(
    ("words", "kind"),
    [((True, False), Lose), ((False, True), Lose), ((False, False), Revoke)],
)
def test_a_loss_counts_more_than_a_revocation(words: tuple[bool, bool], kind: type[Revoke] | type[Lose]) -> None:
    holdings = holding(0)
    for is_lost in words:
        holdings.give_up(is_lost)
    assert step(holdings) == [kind(parts(0))]


def test_who_holds_nothing_gives_up_nothing() -> None:
    holdings = holding()
    holdings.give_up(is_lost=True)
    assert step(holdings) == []


def test_what_is_being_assigned_when_it_is_given_up_is_lost_afterwards() -> None:
    holdings = AssignmentReconciler(NAMES.get)
    holdings.set_target(target(jobs=(0,)))
    assert step(holdings) == [Assign(parts(0), parts(0))]
    holdings.give_up(is_lost=True)
    assert finish(holdings) == [Lose(parts(0))]
    assert finish(holdings) == []
    holdings.set_target(target(jobs=(0,)))
    assert step(holdings) == [Assign(parts(0), parts(0))], "all of it anew"


def test_a_member_without_partitions_is_not_called_again() -> None:
    holdings = AssignmentReconciler(NAMES.get)
    holdings.set_target(frozenset())
    assert step(holdings) == [Assign(frozenset(), frozenset())]
    holdings.give_up(is_lost=True)
    assert finish(holdings) == []
    holdings.set_target(frozenset())
    assert step(holdings) == [Assign(frozenset(), frozenset())]
