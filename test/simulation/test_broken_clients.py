"""The simulation's test of itself: a client that was broken on purpose is caught within few seeds.

Each breach here is a mistake that somebody could make in earnest; one that no seed notices is a hole in the net.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from kafka.consumer.group_driver import GroupDriver
from kafka.consumer.membership import GroupMembership
from kafka.core.consume.partition import PartitionPosition
from kafka.core.group.classic import ClassicMember
from kafka.core.group.machine import NO_GENERATION, Lose, Revoke
from kafka.core.share.acknowledgements import PendingAcknowledgements
from kafka.core.share.records import ShareRecord
from kafka.core.share.session import ShareSession
from kafka.producer import KafkaProducer
from kafka.protocol.constants import AcknowledgeType
from test.simulation import producing
from test.simulation.runner import run_seeds

FEW = 80

Patch = pytest.MonkeyPatch


def acknowledgements_are_dropped(patch: Patch) -> None:
    add = PendingAcknowledgements.add

    def forgetful(self: PendingAcknowledgements, record: ShareRecord, kind: AcknowledgeType) -> None:
        if record.offset % 7 != 3:
            add(self, record, kind)

    patch.setattr(PendingAcknowledgements, "add", forgetful)


def the_end_of_locks_is_not_noticed(patch: Patch) -> None:
    patch.setattr(ShareSession, "expire", lambda self, now: [])


def records_are_kept_when_the_session_is_lost(patch: Patch) -> None:
    patch.setattr(ShareSession, "_drop_everything", lambda self, error: ([], []))


def a_seek_is_ignored(patch: Patch) -> None:
    patch.setattr(PartitionPosition, "seek", lambda self, offset, leader_epoch=-1: None)


def producers_are_not_idempotent(patch: Patch) -> None:
    patch.setattr(producing, "KafkaProducer", functools.partial(KafkaProducer, enable_idempotence=False))


def what_was_taken_away_is_read_and_committed_all_the_same(patch: Patch) -> None:
    def keep(self: Any, effect: Revoke | Lose) -> None:
        self._group.carried_out(effect)

    patch.setattr(GroupMembership, "_take_away", keep)


def more_is_committed_than_was_handed_out(patch: Patch) -> None:
    consumed = GroupMembership.consumed

    def too_far(self: GroupMembership) -> Any:
        return {each: what._replace(offset=what.offset + 1) for each, what in consumed(self).items()}

    patch.setattr(GroupMembership, "consumed", too_far)


def nothing_is_given_up_before_joining_again(patch: Patch) -> None:
    next_step = ClassicMember._next_step

    def hold_on(self: ClassicMember) -> Any:
        is_joining = self._rejoin is not None and self.generation != NO_GENERATION
        return None if is_joining and self._leave_state is None else next_step(self)

    patch.setattr(ClassicMember, "_next_step", hold_on)


def a_lost_generation_is_not_noticed(patch: Patch) -> None:
    """The session's end, and what the coordinator says of it, change nothing: it goes on as a member that it is not."""
    patch.setattr(ClassicMember, "_no_member", lambda self, keeps_id: None)


def partitions_are_assigned_and_nobody_is_told(patch: Patch) -> None:
    tell = GroupMembership._tell

    def silent(self: GroupMembership, name: str, partitions: Any) -> Any:
        return None if name == "on_partitions_lost" else tell(self, name, partitions)

    patch.setattr(GroupMembership, "_tell", silent)


def answers_of_the_coordinator_are_not_heard(patch: Patch) -> None:
    answered = GroupDriver._answered

    def deaf(self: GroupDriver, ask: Any, response: Any) -> None:
        if ask.number % 9 != 8:
            answered(self, ask, response)

    patch.setattr(GroupDriver, "_answered", deaf)


@pytest.mark.parametrize(
    ("kind", "breach"),
    [
        ("share", acknowledgements_are_dropped),
        ("share", the_end_of_locks_is_not_noticed),
        ("share", records_are_kept_when_the_session_is_lost),
        ("plain", a_seek_is_ignored),
        ("producer", producers_are_not_idempotent),
        ("classic", what_was_taken_away_is_read_and_committed_all_the_same),
        ("classic", more_is_committed_than_was_handed_out),
        ("classic", nothing_is_given_up_before_joining_again),
        ("classic", a_lost_generation_is_not_noticed),
        ("classic", partitions_are_assigned_and_nobody_is_told),
        ("classic", answers_of_the_coordinator_are_not_heard),
        ("consumer", what_was_taken_away_is_read_and_committed_all_the_same),
        ("consumer", more_is_committed_than_was_handed_out),
        ("consumer", answers_of_the_coordinator_are_not_heard),
    ],
)
def test_a_broken_client_is_caught(kind: str, breach: Callable[[Patch], None], monkeypatch: Patch) -> None:
    breach(monkeypatch)
    count, failed, _ = run_seeds(kind, range(FEW))
    assert failed, f"{FEW} seeds of {kind} have noticed nothing"
    print(f"caught by seed {failed[0].seed}: {failed[0].violations[0]}")
    assert f"--kind {kind} --seed {count - 1}" in failed[0].replay
