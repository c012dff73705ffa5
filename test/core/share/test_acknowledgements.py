"""Acknowledgements leave as few, sorted, disjoint ranges, and a refused list comes back one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.share.acknowledgements import AcknowledgementRange, PendingAcknowledgements, subtract_ranges
from kafka.core.share.records import ShareRecord
from kafka.protocol.constants import AcknowledgeType

ACCEPT, RELEASE, RENEW, GAP = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW, AcknowledgeType.GAP,
)  # fmt: skip


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, 0, offset, 0, 0, None, b"", [], 1, 30.0, None)


@given(st.dictionaries(st.integers(0, 60), st.sampled_from([ACCEPT, RELEASE, RENEW])), st.randoms())
def test_ranges_are_sorted_disjoint_minimal_and_equal_to_the_acknowledgements(
    said: dict[int, AcknowledgeType], order: random.Random
) -> None:
    acks = PendingAcknowledgements()
    offsets = list(said)
    order.shuffle(offsets)
    for offset in offsets:
        acks.add(record(offset), said[offset])
    taken = acks.take()
    assert {offset: each.type for each in taken.ranges for offset in range(each.first, each.last + 1)} == said
    for left, right in zip(taken.ranges, taken.ranges[1:], strict=False):
        assert left.last < right.first
        assert left.type is not right.type or left.last + 1 < right.first
    assert not acks


def test_a_final_acknowledgement_replaces_a_renewal_that_was_not_sent() -> None:
    acks = PendingAcknowledgements()
    held = record(3)
    acks.add(held, RENEW)
    acks.add(held, ACCEPT)
    assert acks.renewals == 0
    assert acks.take().ranges == [AcknowledgementRange(3, 3, ACCEPT)]


def test_gaps_stand_among_the_records_in_order() -> None:
    acks = PendingAcknowledgements()
    acks.add(record(0), ACCEPT)
    acks.add(record(5), ACCEPT)
    acks.add_ranges([(1, 4)], GAP)
    assert acks.take().ranges == [
        AcknowledgementRange(0, 0, ACCEPT),
        AcknowledgementRange(1, 4, GAP),
        AcknowledgementRange(5, 5, ACCEPT),
    ]


def test_what_was_refused_as_a_list_is_sent_one_by_one_behind_the_rest() -> None:
    acks = PendingAcknowledgements()
    for offset in (1, 2):
        acks.add(record(offset), ACCEPT)
    acks.add_suspects(acks.take())
    acks.add(record(9), RELEASE)
    assert [acks.take().ranges for _ in range(3)] == [
        [AcknowledgementRange(9, 9, RELEASE)],
        [AcknowledgementRange(1, 1, ACCEPT)],
        [AcknowledgementRange(2, 2, ACCEPT)],
    ]
    assert not acks


def test_a_refused_list_with_a_gap_says_the_gap_by_itself_too() -> None:
    acks = PendingAcknowledgements()
    acks.add(record(1), ACCEPT)
    acks.add_ranges([(2, 4)], GAP)
    refused = acks.take()
    assert not refused.is_single
    acks.add_suspects(refused)
    parts = [acks.take() for _ in range(2)]
    assert [each.ranges for each in parts] == [[AcknowledgementRange(1, 1, ACCEPT)], [AcknowledgementRange(2, 4, GAP)]]
    assert all(each.is_single for each in parts)


def test_what_was_put_back_gives_way_to_later_acknowledgements() -> None:
    acks = PendingAcknowledgements()
    first, second = record(1), record(2)
    acks.add(first, RENEW)
    acks.add(second, RENEW)
    unheard = acks.take()
    acks.add(first, ACCEPT)
    acks.put_back(unheard)
    assert acks.renewals == 1
    assert acks.take().ranges == [AcknowledgementRange(1, 1, ACCEPT), AcknowledgementRange(2, 2, RENEW)]


def test_a_final_acknowledgement_replaces_a_renewal_that_is_to_be_sent_by_itself() -> None:
    acks = PendingAcknowledgements()
    held = record(1)
    acks.add(held, RENEW)
    acks.add_suspects(acks.take())
    acks.add(held, ACCEPT)
    assert acks.take().ranges == [AcknowledgementRange(1, 1, ACCEPT)]
    assert not acks


def test_only_acknowledgements_of_records_in_the_ranges_are_dropped() -> None:
    acks = PendingAcknowledgements()
    over, kept, alone_over, alone_kept, unheard_of = (record(offset) for offset in range(5))
    acks.add(alone_over, ACCEPT)
    acks.add(alone_kept, ACCEPT)
    acks.add_ranges([(8, 9)], GAP)
    acks.add_suspects(acks.take())
    for each in (over, kept, unheard_of):
        acks.add(each, RELEASE)
    assert acks.forget([(0, 0), (2, 2), (5, 8)]) == [(RELEASE, over), (ACCEPT, alone_over)]
    assert [acks.take().ranges for _ in range(3)] == [
        [AcknowledgementRange(1, 1, RELEASE), AcknowledgementRange(4, 4, RELEASE)],
        [AcknowledgementRange(3, 3, ACCEPT)],
        [AcknowledgementRange(9, 9, GAP)],
    ]
    assert not acks


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ([], [(10, 20), (30, 30)]),
        ([(0, 9), (21, 29), (31, 40)], [(10, 20), (30, 30)]),
        ([(0, 10), (20, 30)], [(11, 19)]),
        ([(12, 13), (15, 15)], [(10, 11), (14, 14), (16, 20), (30, 30)]),
        ([(0, 2**63 - 1)], []),
    ],
)
def test_what_comes_anew_is_cut_out_of_ranges(taken: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    found = subtract_ranges([AcknowledgementRange(10, 20, RELEASE), AcknowledgementRange(30, 30, GAP)], taken)
    assert [(each.first, each.last) for each in found] == left
    assert {each.type for each in found if each.first < 30} <= {RELEASE}
