"""Tests of ``kafka.tasks.delivery.consumer_group.progress``: its promises one by one, the room in the metadata, and
owners that come and go against a plain model.

``KAFKA_TEST_ROUNDS`` multiplies the examples.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka.tasks.delivery.consumer_group.progress import (
    BITMAP_OFFSETS,
    FULL_CHARACTERS,
    CompletedOffsets,
    PartitionProgress,
    Settlement,
)
from kafka.tasks.format.offset_metadata import MOST_CHARACTERS, MarkedJob, PartitionMarks, decode
from test.support.rounds import ROUNDS

WRITER: Final = "queue.worker-1"
KINDS: Final = {
    "unordered": {},
    "ordered": {"is_ordered": True},
    "suspects": {"is_suspects": True},
}
OWN_MARKS: Final = ("ordered", "suspects")
A_DAY_MS: Final = 86_400_000
GAPS: Final = st.sampled_from((0, 0, 0, 1, 2))
MOST_OPEN: Final = 60
"""There is room for the marks of so many jobs."""
KEYS: Final = st.sampled_from((None, None, b"a", b"b"))


class Record(NamedTuple):
    offset: int
    key: bytes | None = None


def records(*offsets: int) -> list[Record]:
    return [Record(each) for each in offsets]


def owner(offset: int = 0, text: str = "", kind: str = "unordered") -> PartitionProgress:
    """One that takes over what was committed."""
    return PartitionProgress(offset, decode(offset, text) or PartitionMarks(), **KINDS[kind])


def commit(
    progress: PartitionProgress,
    completed: Sequence[int] = (),
    held: dict[int, MarkedJob] | None = None,
    *,
    writer: str = WRITER,
) -> Settlement:
    settlement = progress.settle(completed, held or {}, writer)
    progress.settled(settlement, 0)
    return settlement


def begin(progress: PartitionProgress, count: int = 100, *, suspects: bool = False) -> list[int]:
    """Mark, commit, and take."""
    progress.mark_started(count, suspects)
    commit(progress)
    return offsets_of(progress, count, suspects=suspects)


def offsets_of(progress: PartitionProgress, count: int = 100, *, suspects: bool = False) -> list[int]:
    return [each.record.offset for each in progress.take(count, suspects)]


def end(progress: PartitionProgress, *offsets: int) -> Settlement:
    for offset in offsets:
        progress.end(offset, 0)
    return commit(progress, offsets)


def next_owner(settlement: Settlement, log: Iterable[Record], kind: str = "unordered") -> PartitionProgress:
    """One that takes over what was committed, and has fetched what there is."""
    progress = owner(settlement.offset, settlement.metadata, kind)
    progress.add((each for each in log if each.offset >= settlement.offset), 0)
    return progress


# -- offsets that are done --------------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.integers(0, 12), st.integers(0, 3))
def test_completed_offsets_are_those_that_were_added(order: list[int], count: int, start: int) -> None:
    completed = CompletedOffsets(start)
    for offset in order[:count]:
        completed.add(offset, offset)
    done = {*order[:count], *range(start)}
    position = next(each for each in range(13) if each not in done and each >= start)
    behind = [each for each in sorted(done) if each > position]
    assert completed.position == position
    assert [each for first, last in completed.runs() for each in range(first, last + 1)] == behind
    assert all(last + 1 < first for (_, last), (first, _) in zip(completed.runs(), completed.runs()[1:], strict=False))


def test_a_copy_of_completed_offsets_changes_apart() -> None:
    completed = CompletedOffsets(0, [(2, 3)])
    completed.copy().add(0, 1)
    assert (completed.position, completed.runs()) == (0, ((2, 3),))


# -- marks before jobs are handed out ---------------------------------------------------------------------------------


def test_no_job_is_handed_out_before_its_mark_is_committed() -> None:
    progress = owner()
    progress.add(records(0, 1, 2), 0)
    assert progress.take(3) == []
    assert progress.mark_started(2)
    assert progress.take(3) == []
    settlement = progress.settle(writer=WRITER)
    assert progress.take(3) == []
    progress.settled(settlement, 0)
    assert offsets_of(progress, 3) == [0, 1]
    assert decode(0, settlement.metadata) == PartitionMarks(started_below=2, writer=WRITER)


def test_marks_made_after_a_settlement_are_not_of_it() -> None:
    progress = owner()
    progress.add(records(0, 1, 2), 0)
    progress.mark_started(1)
    settlement = progress.settle(writer=WRITER)
    progress.mark_started(3)
    progress.settled(settlement, 0)
    assert offsets_of(progress) == [0]


def test_marking_says_whether_a_commit_of_it_is_needed() -> None:
    progress = owner()
    assert not progress.mark_started(5)
    progress.add(records(0, 1, 2), 0)
    assert not progress.mark_started(0)
    assert progress.mark_started(2)
    commit(progress)
    assert not progress.mark_started(2)
    assert progress.mark_started(3)
    assert progress.mark_started(1) is False, "the first one's mark is committed"


def test_what_lies_between_records_needs_no_commit_of_its_own() -> None:
    progress = owner()
    progress.add(records(5), 0)
    begin(progress)
    end(progress, 5)
    progress.add(records(9), 0)
    assert begin(progress) == [9]
    end(progress, 9)
    assert not progress.mark_started(5)


def test_jobs_behind_the_next_ones_are_not_marked() -> None:
    """A job that waited for its key stands behind those that are ready; an owner's death should mark only what it may
    have started."""
    progress = owner()
    progress.add([Record(0, b"k"), *records(*range(1, 50)), Record(50, b"k"), Record(51)], 0)
    assert begin(progress, 1) == [0]
    end(progress, 0)
    progress.mark_started(2)
    marks = decode(1, progress.settle(writer=WRITER).metadata)
    assert marks is not None and marks.started_below == 3


def test_an_aborted_settlement_changes_nothing() -> None:
    progress = owner()
    progress.add(records(0, 1, 2), 0)
    begin(progress)
    for offset in (0, 1):
        progress.end(offset, 0)
    progress.settle([0, 1], writer=WRITER)  # aborted
    assert progress.position == 0
    assert commit(progress, [1]).offset == 0
    assert commit(progress, [0]).offset == 2


# -- keys -------------------------------------------------------------------------------------------------------------


def test_of_a_key_only_the_first_job_is_ready() -> None:
    progress = owner()
    progress.add([Record(0, b"a"), Record(1, b"a"), Record(2), Record(3, b"b"), Record(4, b"a"), Record(5)], 0)
    assert (progress.ready_count, progress.waiting_count) == (4, 6)
    assert begin(progress) == [0, 2, 3, 5]
    progress.end(2, 0)
    assert offsets_of(progress) == []
    progress.end(0, 0)
    assert offsets_of(progress) == [1]
    progress.end(1, 0)
    assert offsets_of(progress) == [4]


def test_a_released_job_keeps_its_key() -> None:
    progress = owner()
    progress.add([Record(0, b"a"), Record(1, b"a")], 0)
    begin(progress)
    progress.release(0, 0)
    assert offsets_of(progress) == [0]


def test_a_key_is_free_again_after_its_last_job() -> None:
    progress = owner()
    progress.add([Record(0, b"a")], 0)
    begin(progress)
    end(progress, 0)
    progress.add([Record(1, b"a"), Record(2, b"a")], 0)
    assert begin(progress) == [1]


# -- gaps and truncation ----------------------------------------------------------------------------------------------


def test_what_lies_between_records_is_done() -> None:
    progress = owner()
    progress.add(records(3, 4, 8), 0)
    assert (progress.position, progress.next_offset) == (3, 9)
    begin(progress)
    assert end(progress, 3, 4).offset == 8
    progress.add(records(20), 0)
    assert end(progress, 8).offset == 20


def test_gaps_do_not_fill_the_metadata() -> None:
    """Each second offset is a marker: their number is not bounded by that of jobs begun with."""
    progress = owner()
    progress.add(records(*range(0, 100_000, 2)), 0)
    assert begin(progress, 1) == [0]
    assert len(progress.settle(writer=WRITER).metadata) < 50


def test_a_gap_across_what_had_ended_leaves_only_the_open_ones() -> None:
    marks = PartitionMarks(((2, 3), (6, 7), (10, 12)))
    progress = PartitionProgress(0, marks)
    progress.add(records(0, 7, 11, 14), 0)  # the log was compacted
    assert begin(progress) == [0, 14]
    assert end(progress, 0).offset == 14


def test_records_that_are_fetched_again_are_not_added_again() -> None:
    progress = owner()
    progress.add(records(0, 1), 0)
    progress.add(records(0, 1, 2), 0)
    assert begin(progress) == [0, 1, 2]


def test_what_is_skipped_at_the_end_is_done_and_moves_the_position_behind_the_last_job() -> None:
    progress = owner()
    progress.add(records(0, 1), 0)
    assert not progress.skip_to(2)
    assert not progress.skip_to(3), "the first job has not ended"
    begin(progress)
    assert end(progress, 0, 1).offset == 3
    assert progress.skip_to(5)
    assert not progress.skip_to(4)
    assert (progress.position, progress.next_offset) == (5, 5)


def test_a_record_at_an_offset_that_was_done_shows_a_log_that_was_lost() -> None:
    progress = owner(100)
    assert not progress.has_truncated(Record(100))
    assert progress.has_truncated(Record(99))


def test_a_log_is_whole_when_the_first_job_ends_before_what_had_ended_behind_it_is_read() -> None:
    """The position is then behind records that come."""
    log = records(*range(8))
    progress = owner()
    progress.add(log, 0)
    begin(progress)
    following = next_owner(end(progress, *range(1, 8)), log[:3])
    assert [each.record.offset for each in following.take(9)] == [0]
    assert end(following, 0).offset == 8
    assert not following.has_truncated(log[3])
    following.add([*log[3:], Record(8)], 0)
    assert begin(following) == [8]
    assert following.has_truncated(log[0])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_deleted_and_is_not_handed_out_is_done(kind: str) -> None:
    progress = owner(kind=kind)
    progress.add(records(*range(10)), 0)
    out = begin(progress, 2, suspects=kind == "suspects")
    assert out == [0, 1]
    assert [each.offset for each in progress.drop_before(6, 0)] == [2, 3, 4, 5]
    assert (progress.position, progress.waiting_count) == (0, 4)
    assert begin(progress, suspects=kind == "suspects") == [6, 7, 8, 9]
    progress.end(0, 0)
    following = next_owner(commit(progress, [0]), records(*range(6, 10)), kind)
    assert [each for each in (*begin(following), *begin(following, suspects=True)) if each < 6] == []
    assert end(progress, 1, 6, 7, 8, 9).offset == 10


def test_jobs_of_a_key_whose_next_ones_were_deleted_follow_those_that_run() -> None:
    progress = owner(kind="ordered")
    progress.add([Record(0, b"a"), Record(1, b"b"), Record(2, b"a"), Record(3, b"b"), Record(4, b"a")], 0)
    assert begin(progress, 1) == [0]
    assert [each.offset for each in progress.drop_before(3, 0)] == [1, 2]
    assert begin(progress) == [3]
    end(progress, 0)
    assert begin(progress) == [4]


def test_a_partition_whose_jobs_were_deleted_is_not_full() -> None:
    progress = owner(kind="ordered")
    progress.add(records(*range(1_000)), 0)
    while begin(progress, 1_000):
        pass
    assert progress.is_full
    progress.drop_before(1_000, 0)
    assert (progress.is_full, progress.ready_count) == (False, 0)


# -- the next owner ---------------------------------------------------------------------------------------------------


def test_what_has_ended_is_never_handed_out_again() -> None:
    log = records(*range(8))
    progress = owner()
    progress.add(log, 0)
    begin(progress)
    committed = end(progress, 2, 3, 6)
    following = next_owner(committed, log)
    taken = following.take(9)
    assert [each.record.offset for each in taken] == [0, 1, 4, 5, 7]
    assert {each.deliveries for each in taken} == {2}
    assert end(following, 0, 1, 4, 5, 7).offset == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_given_up_in_good_order_has_no_new_suspects(kind: str) -> None:
    log = records(0, 1, 2)
    progress = owner(kind=kind)
    progress.add(log, 0)
    (*_, last) = begin(progress, suspects=kind == "suspects")
    assert last == 2
    progress.end(0, 0)
    for offset in (1, 2):
        progress.release(offset, 0)
    following = next_owner(commit(progress, [0], writer=""), log, kind)
    assert following.take(5) == following.take(5, True) == [], "nothing is marked"
    following.mark_started(5, kind == "suspects")
    commit(following)
    assert [each.deliveries for each in following.take(5, kind == "suspects")] == [1, 1]


def test_unordered_suspects_are_handed_out_with_two_deliveries() -> None:
    log = records(0, 1, 2, 3)
    progress = owner()
    progress.add(log, 0)
    progress.mark_started(2)
    following = next_owner(commit(progress), log)
    following.mark_started(9)
    commit(following)
    assert [each.deliveries for each in following.take(9)] == [2, 2, 1, 1]


def test_suspects_stay_suspects_after_an_owner_that_gave_up() -> None:
    log = records(0, 1)
    progress = owner()
    progress.add(log, 0)
    progress.mark_started(1)
    second = next_owner(commit(progress), log)
    third = next_owner(commit(second, writer=""), log)
    assert [(each.record.offset, each.deliveries) for each in third.take(9)] == [(0, 2)]


def test_ordered_suspects_are_handed_out_apart_and_their_losses_are_counted() -> None:
    log = records(0, 1, 2)
    progress = owner(kind="ordered")
    progress.add(log, 0)
    progress.mark_started(2)
    committed = commit(progress)
    for losses in range(3):
        progress = next_owner(committed, log, "ordered")
        assert (progress.take(9), progress.take(9, True)) == ([], [])
        assert progress.mark_started(1, True)
        committed = commit(progress)
        (job,) = progress.take(9, True)
        assert (job.record.offset, job.deliveries) == (0, 1 + losses)
    (last,) = next_owner(committed, log, "ordered")._jobs.items()
    assert last == (0, MarkedJob(losses=3, is_suspect=True)), "the other one was never handed out"


def test_all_jobs_of_a_partition_of_suspects_are_marked_one_by_one() -> None:
    log = records(0, 1, 2)
    progress = owner(kind="suspects")
    progress.add(log, 0)
    assert not progress.mark_started(5)
    assert begin(progress, 2, suspects=True) == [0, 1]
    committed = end(progress, 0)
    following = next_owner(committed, log, "suspects")
    following.mark_started(5, True)
    commit(following)
    assert [(each.record.offset, each.deliveries) for each in following.take(5, True)] == [(1, 2), (2, 1)]


def test_a_released_suspect_is_marked_anew() -> None:
    """Else the next commit would say nothing of it while it runs."""
    log = records(0, 1)
    progress = owner(kind="suspects")
    progress.add(log, 0)
    assert begin(progress, 1, suspects=True) == [0]
    progress.release(0, 0)
    assert offsets_of(progress, suspects=True) == []
    assert begin(progress, 1, suspects=True) == [0]
    following = next_owner(commit(progress), log, "suspects")
    assert begin(following, 1, suspects=True) == [0]
    assert following._jobs[0].losses == 1


def test_a_suspect_that_is_no_longer_marked_is_not_handed_out() -> None:
    log = records(0, 1, 2)
    progress = owner(kind="suspects")
    progress.add(log, 0)
    progress.mark_started(3, True)
    commit(progress)
    progress.mark_started(1, True)
    assert offsets_of(progress, suspects=True) == [0]
    following = next_owner(commit(progress), log, "suspects")
    assert {at: job.losses for at, job in following._jobs.items()} == {0: 1}


def test_a_job_cleared_of_suspicion_is_marked_again_before_it_is_handed_out() -> None:
    log = records(0, 1, 2)
    first = owner(kind="ordered")
    first.add(log, 0)
    first.mark_started(3)
    second = next_owner(commit(first), log, "ordered")
    begin(second, 3, suspects=True)
    commit(second, held={1: MarkedJob(attempt=1)})
    for offset in (0, 1, 2):
        second.release(offset, 0)
    third = next_owner(commit(second, writer=""), log, "ordered")
    assert third.take(9) == [], "the committed text marks nothing"
    assert third.mark_started(9)
    fourth = next_owner(commit(third), log, "ordered")
    assert offsets_of(third) == [1]
    assert fourth.take(9) == []
    assert begin(fourth, suspects=True) == [0, 1, 2]


def test_many_jobs_behind_a_stuck_one_survive_its_owner() -> None:
    """More than a million, as many as come by while one job runs for hours."""
    progress = PartitionProgress(0, PartitionMarks(((1, 2_999_999),)))
    progress.add(records(0, 3_000_000), 0)
    assert begin(progress) == [0, 3_000_000]
    following = next_owner(end(progress, 3_000_000), records(0, 1_000_000, 3_000_000, 3_000_001))
    assert begin(following) == [0, 3_000_001]


# -- held jobs --------------------------------------------------------------------------------------------------------


def test_a_held_job_waits_until_it_is_due_and_keeps_its_key() -> None:
    progress = owner(kind="ordered")
    progress.add([Record(0, b"k"), Record(1, b"k"), Record(2)], 0)
    assert begin(progress) == [0, 2]
    job = MarkedJob(attempt=1, due_ms=500)
    commit(progress, held={0: job})
    progress.release(0, 10)
    assert (progress.next_due_ms, progress.ready_count, progress.waiting_count) == (500, 0, 2)
    progress.tick(499)
    assert progress.take(5) == []
    progress.tick(500)
    (taken,) = progress.take(5)
    assert (taken.record.offset, taken.marked, taken.deliveries) == (0, job, 1)
    assert progress.next_due_ms is None


def test_a_held_job_goes_on_from_its_mark_with_the_next_owner() -> None:
    log = records(0, 1)
    progress = owner(kind="ordered")
    progress.add(log, 0)
    begin(progress, 1)
    job = MarkedJob(attempt=3, crashes=1, due_ms=500, unknown=1, unknown_since_ms=7)
    commit(progress, held={0: job})
    progress.release(0, 0)
    following = next_owner(commit(progress, writer=""), log, "ordered")
    assert following.next_due_ms == 500
    following.tick(500)
    following.mark_started(1)
    commit(following)
    (taken,) = following.take(5)
    assert (taken.record.offset, taken.marked) == (0, job)


def test_an_aborted_hold_leaves_the_job_as_it_was() -> None:
    progress = owner(kind="ordered")
    progress.add(records(0), 0)
    begin(progress)
    progress.settle(held={0: MarkedJob(attempt=1, due_ms=500)}, writer=WRITER)
    progress.release(0, 0)
    (taken,) = progress.take(5)
    assert taken.marked is None


def test_a_held_suspect_is_no_longer_marked_as_started() -> None:
    log = records(0)
    progress = owner(kind="suspects")
    progress.add(log, 0)
    begin(progress, suspects=True)
    following = next_owner(commit(progress, held={0: MarkedJob(attempt=1, losses=0, is_suspect=True)}), log, "suspects")
    assert following._jobs[0] == MarkedJob(attempt=1, is_suspect=True)


def test_the_mark_of_a_job_is_gone_when_it_has_ended() -> None:
    progress = owner(kind="ordered")
    progress.add(records(0, 1), 0)
    begin(progress)
    commit(progress, held={1: MarkedJob(attempt=1)})
    progress.release(1, 0)
    assert offsets_of(progress) == [1]
    marks = decode(0, end(progress, 1).metadata)
    assert marks is not None and marks.jobs == {}


# -- room -------------------------------------------------------------------------------------------------------------


def test_no_more_jobs_are_marked_when_three_quarters_are_full_and_again_when_it_is_shorter() -> None:
    progress = owner()
    progress.add(records(0, 1, 2, 3), 0)
    begin(progress, 2)
    long_name = "w" * FULL_CHARACTERS
    progress.settled(progress.settle([], {}, long_name), 0)
    assert progress.size >= FULL_CHARACTERS
    assert not progress.mark_started(4)
    assert progress.is_full
    for offset in (0, 1):
        progress.end(offset, 0)
    commit(progress, [0, 1])
    assert not progress.is_full
    assert begin(progress) == [2, 3]


def test_jobs_an_owner_kept_room_for_can_be_begun_by_the_next_one_however_full_it_is() -> None:
    log = records(*range(16_000))
    progress = owner()
    progress.add(log, 0)
    begin(progress, 16_000)
    done = list(range(1, 16_000, 2))
    end(progress, *done)
    for offset in range(0, 16_000, 2):
        progress.release(offset, 0)
    long_name = "w" * 600
    progress = next_owner(commit(progress, writer=""), log)
    progress.settled(progress.settle([], {}, long_name), 0)
    assert progress.size > FULL_CHARACTERS
    rounds = 0
    while progress.size > FULL_CHARACTERS:
        progress.mark_started(100)
        progress.settled(progress.settle([], {}, long_name), 0)
        taken = offsets_of(progress)
        assert taken == list(range(200 * rounds, 200 * rounds + 200, 2))
        for offset in taken:
            progress.end(offset, 0)
        progress.settled(progress.settle(taken, {}, long_name), 0)
        assert progress.size <= MOST_CHARACTERS
        rounds += 1
    assert rounds > 5


def test_jobs_behind_one_that_is_stuck_are_not_held_up() -> None:
    progress = owner()
    progress.add(records(*range(60_000)), 0)
    assert begin(progress, 1) == [0]
    while progress.waiting_count:
        taken = begin(progress, 1_000)
        assert taken
        assert len(end(progress, *taken).metadata) < 100


def test_jobs_behind_one_that_waits_for_long_are_held_up_only_when_there_is_no_room() -> None:
    """An ordered queue: the jobs of a key wait for the first one, those of others run."""
    progress = owner(kind="ordered")
    progress.add([Record(0, b"slow"), *(Record(each, b"slow" if each % 2 else None) for each in range(1, 2_000))], 0)
    assert begin(progress, 1) == [0]
    done = 0
    while taken := begin(progress, 10):
        assert len(end(progress, *taken).metadata) <= MOST_CHARACTERS
        done += len(taken)
    assert progress.is_full
    assert done > 400, "a job that waits for its key needs no mark of its own"
    end(progress, 0)
    assert not progress.is_full


def test_a_wide_gap_in_the_log_does_not_hold_jobs_up() -> None:
    progress = owner()
    progress.add(records(0, 10 * BITMAP_OFFSETS, 10 * BITMAP_OFFSETS + 1), 0)
    assert begin(progress) == [0, 10 * BITMAP_OFFSETS, 10 * BITMAP_OFFSETS + 1]


@pytest.mark.parametrize("stuck", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_metadata_is_never_too_long_in_any_order_of_endings(kind: str, step: int, stuck: float) -> None:
    """Jobs end at random, from the last one, and those that are stuck when nothing else is left; what is committed is
    taken over again and again."""
    choices = random.Random(f"{kind} {step} {stuck}")
    own = kind in OWN_MARKS
    log = [
        Record(each, choices.choice((None, None, b"a", b"b", b"c")) if own else None)
        for each in range(0, (1_200 if own else 20_000) * step, step)
    ]
    late = {each.offset for each in log if choices.random() < stuck}
    done: set[int] = set()
    progress = owner(kind=kind)
    progress.add(log, 0)
    out: list[int] = []
    position, longest, idle = 0, 0, 0
    held = MarkedJob(16_000, 16_000, 16_000, False, kind == "suspects", 1 << 41, 16_000, 1 << 41)
    while len(done) < len(log):
        for suspects in (False, True) if own else (False,):
            progress.mark_started(choices.choice((1, 50, 10_000)), suspects)
        committed = commit(progress)
        longest = max(longest, len(committed.metadata))
        taken = [*offsets_of(progress, 100_000), *offsets_of(progress, 100_000, suspects=True)]
        out += taken
        ending = [each for each in out if each not in late and choices.random() < 0.7]
        if choices.random() < 0.5:
            ending = ending[len(ending) // 2 :]
        idle = 0 if taken or ending else idle + 1
        if idle > 1:  # it is full of those that are stuck
            stuck_out = sorted(late.intersection(out))
            assert out, "something can always end"
            late.difference_update(choices.sample(stuck_out, (len(stuck_out) + 1) // 2))
        for offset in ending:
            progress.end(offset, 0)
        stays = {each: held for each in out if each not in ending} if own else {}
        committed = commit(progress, ending, stays)
        longest = max(longest, len(committed.metadata))
        assert longest <= MOST_CHARACTERS
        assert committed.offset >= position
        position = committed.offset
        assert done.isdisjoint(ending)
        done.update(ending)
        out = [each for each in out if each not in ending]
        if choices.random() < 0.1:
            if choices.random() < 0.5:
                for offset in out:
                    progress.release(offset, 1 << 42)
                committed = commit(progress, writer="")
                longest = max(longest, len(committed.metadata))
            progress = owner(committed.offset, committed.metadata, kind)
            progress.add((each for each in log if each.offset >= committed.offset), 1 << 42)
            out = []
    assert position == len(log) * step - step + 1
    assert longest <= MOST_CHARACTERS


def test_held_jobs_fill_the_metadata_to_its_limit_at_most() -> None:
    progress = owner(kind="ordered")
    progress.add(records(*range(3_000)), 0)
    job = MarkedJob(300, 300, 300, True, True, 1 << 41, 300, 1 << 41)
    out = begin(progress, 3_000)
    while taken := begin(progress, 3_000):
        out += taken
    assert progress.is_full
    assert 60 < len(out) < 200
    settlement = commit(progress, held=dict.fromkeys(out, job))
    assert 2_500 < len(settlement.metadata) <= MOST_CHARACTERS


def test_room_is_kept_for_jobs_whose_keys_become_free() -> None:
    progress = owner(kind="ordered")
    keys = [b"%d" % each for each in range(60)]
    log = [Record(each, key) for each, key in enumerate([*keys, *keys])]
    progress.add([*log, *records(*range(120, 1_000))], 0)
    assert begin(progress, 120) == [*range(60), *range(120, 150)]
    end(progress, *range(60), *range(121, 150))
    out = [120, *begin(progress, 1_000)]
    while taken := begin(progress, 1_000):
        out += taken
    assert 60 < len(out) < 125
    job = MarkedJob(16_000, 16_000, 16_000, True, True, 1 << 41, 16_000, 1 << 41)
    assert len(commit(progress, held=dict.fromkeys(out, job)).metadata) <= MOST_CHARACTERS


# -- owners that come and go, against a plain model --------------------------------------------------------------------


class Committed(NamedTuple):
    """What the model knows of the last commit."""

    done: frozenset[int] = frozenset()
    started_below: int = 0
    suspects_below: int = 0
    jobs: dict[int, MarkedJob] = {}
    started: frozenset[int] = frozenset()
    is_given_up: bool = True


class Pending(NamedTuple):
    settlement: Settlement
    done: frozenset[int]
    completed: list[int]
    held: dict[int, MarkedJob]
    started_below: int
    started: frozenset[int]


class PartitionAgainstModel(RuleBasedStateMachine):
    """``done``, ``ended``, ``out``: offsets, by what has become of them; the rest of a job's state is computed from the
    log each time it is asked for."""

    @initialize(kind=st.sampled_from(sorted(KINDS)), start=st.sampled_from((0, 1, 1_000)))
    def set_up(self, kind: str, start: int) -> None:
        self.kind = kind
        self.own = kind in OWN_MARKS
        self.log: dict[int, Record] = {}
        self.log_end = self.start = start
        self.now = 0
        self.text, self.offset = "", start
        self.committed = Committed()
        self.completions: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.haunted: dict[int, int] = {}  # handed out by owners that died -> losses at least
        self.take_over()

    def take_over(self) -> None:
        last = self.committed
        lost = 0 if last.is_given_up else last.started_below
        self.progress = owner(self.offset, self.text, self.kind)
        self.next = self.offset
        self.runs = (decode(self.offset, self.text) or PartitionMarks()).completed
        self.done = set(last.done)
        self.suspects_below = self.started_below = max(lost, last.suspects_below)
        self.covered_below = lost if self.own else self.suspects_below
        self.jobs = {
            at: job._replace(losses=job.losses + (at in last.started), is_suspect=True)
            if at < lost or at in last.started
            else job
            for at, job in {**dict.fromkeys(last.started, MarkedJob()), **last.jobs}.items()
        }
        self.ended: set[int] = set()
        self.out: dict[int, bool] = {}  # offset -> handed out as a suspect
        self.parked: set[int] = set()  # held in a settlement that is pending, or to be released
        self.started: set[int] = set()
        self.covered: set[int] = set()
        self.last_position = self.offset
        self.pending: Pending | None = None
        self.firsts: dict[bytes, int] = {}  # key -> the last offset that was handed out for the first time

    # -- what the model says --------------------------------------------------------------------------------------

    def fetched(self) -> list[Record]:
        return [each for at, each in sorted(self.log.items()) if at < self.next and at not in self.done]

    def firsts_of_keys(self) -> list[int]:
        """Jobs that wait for no other, and are not out."""
        keys: set[bytes | None] = set()
        found = []
        for at, key in self.fetched():
            if key not in keys and (at not in self.ended or self.kind == "ordered"):
                keys |= {key} - {None}
                if at not in self.out and at not in self.ended:
                    found.append(at)
        return found

    def due_ms(self, at: int) -> int:
        return self.jobs[at].due_ms if at in self.jobs else 0

    def ready(self, suspects: bool) -> list[int]:
        return [at for at in self.firsts_of_keys() if self.due_ms(at) <= self.now and self.is_suspect(at) == suspects]

    def is_suspect(self, at: int) -> bool:
        if not self.own:
            return False
        job = self.jobs.get(at)
        return self.kind == "suspects" or (job.is_suspect if job is not None else at < self.suspects_below)

    def position(self) -> int:
        behind = self.next  # or behind what was committed as done there, gaps included
        for first, last in self.runs:
            behind = last + 1 if first <= behind <= last else behind
        return next((each.offset for each in self.fetched()), behind)

    # -- what happens ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.log) - len(self.completions) < MOST_OPEN)
    @rule(more=st.lists(st.tuples(GAPS, KEYS), min_size=1, max_size=6), is_fetched=st.sampled_from((True, True, False)))
    def append(self, more: list[tuple[int, bytes | None]], is_fetched: bool) -> None:
        for gap, key in more:
            self.log_end += gap
            self.log[self.log_end] = Record(self.log_end, key)
            self.log_end += 1
        if is_fetched:
            self.fetch(len(self.log), False)

    @rule(count=st.integers(1, 8), again=st.booleans())
    def fetch(self, count: int, again: bool) -> None:
        new = [each for at, each in sorted(self.log.items()) if at >= self.next][:count]
        old = [each for at, each in sorted(self.log.items()) if self.offset <= at < self.next]
        assert not any(self.progress.has_truncated(each) for each in new)
        self.progress.add([*old, *new] if again else new, self.now)
        if new:
            self.next = new[-1].offset + 1
        assert self.progress.next_offset == self.next

    @rule(count=st.integers(0, 5), suspects=st.booleans())
    def mark(self, count: int, suspects: bool) -> None:
        first = self.ready(suspects)[:count]
        found = self.progress.mark_started(count, suspects)
        if suspects:
            self.started = (self.started & (self.out.keys() | self.ended)) | set(first)
            self.covered &= self.started
            expected = bool(self.started - self.covered)
        else:
            self.started_below = max([self.started_below, *(each + 1 for each in first)])
            expected = any(each >= self.covered_below for each in first)
        assert found == expected

    @rule(count=st.integers(0, 5), suspects=st.booleans())
    def take(self, count: int, suspects: bool) -> None:
        ready = self.ready(suspects)
        if suspects:
            expected = [each for each in ready if each in self.covered][:count]
        else:
            expected = [each for each in ready if each < self.covered_below][:count]
        taken = self.progress.take(count, suspects)
        assert [each.record.offset for each in taken] == expected
        for record, deliveries, marked in taken:
            at = record.offset
            job = self.jobs.get(at)
            assert record is self.log[at]
            assert marked == job
            if self.own:
                assert deliveries == 1 + (job.losses if job is not None else 0)
            else:
                assert deliveries == 1 + (at < self.suspects_below)
            # The promises themselves, apart from how the model keeps them.
            assert at not in self.completions, "a job that has ended is handed out again"
            if at in self.haunted:
                assert suspects if self.own else deliveries == 2, "a job its worker may have died of is no suspect"
                assert not self.own or deliveries >= 1 + self.haunted[at]
            if record.key is not None:
                before = self.out.keys() | self.ended if self.kind == "ordered" else self.out.keys()
                assert all(self.log[each].key != record.key for each in before), "two jobs of a key are out"
                assert at >= self.firsts.get(record.key, -1), "a later job of the key came first"
                self.firsts[record.key] = at
            self.out[at] = suspects

    @rule(
        count=st.integers(1, 5), taken=st.integers(0, 5), suspects=st.booleans(), meanwhile=st.sampled_from((0, 0, 5))
    )
    def begin(self, count: int, taken: int, suspects: bool, meanwhile: int) -> None:
        """As a worker does it as long as nothing goes wrong; ``meanwhile`` so many are marked for the next commit."""
        suspects = suspects and self.own
        self.mark(count, suspects)
        self.settle_ended(meanwhile, suspects)
        self.take(taken, suspects)

    def settle_ended(self, meanwhile: int = 0, suspects: bool = False) -> None:
        self.abort()
        self.make(sorted(self.ended), {}, WRITER)
        if meanwhile:
            self.mark(meanwhile, suspects)
        self.write(is_given_up=False)

    def running(self) -> list[int]:
        return sorted(self.out.keys() - self.parked)

    @rule(data=st.data())
    def end_waits(self, data: st.DataObject) -> None:
        waiting = [at for at in self.firsts_of_keys() if self.due_ms(at) > self.now]
        assert {record.offset for record in self.progress.held()} == set(waiting)
        offsets = {at for at in waiting if data.draw(st.booleans())}
        self.progress.end_waits(offsets, self.now)
        for at in offsets:
            self.jobs[at] = self.jobs[at]._replace(due_ms=0)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), count=st.integers(1, 3))
    def end_some(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.running()))):
            at = data.draw(st.sampled_from(self.running()))
            self.progress.end(at, self.now)
            del self.out[at]
            self.ended.add(at)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.release_one(data.draw(st.sampled_from(self.running())))

    def release_one(self, at: int) -> None:
        self.progress.release(at, self.now)
        del self.out[at]
        self.parked.discard(at)
        self.started.discard(at)
        self.covered.discard(at)

    @rule(data=st.data(), all_ended=st.booleans())
    def prepare(self, data: st.DataObject, all_ended: bool) -> None:
        """The last one, if there is one, was aborted."""
        self.abort()
        ended = sorted(self.ended)
        some = st.lists(st.sampled_from(ended), unique=True) if ended and not all_ended else st.just(ended)
        completed = data.draw(some)
        held = self.some_held(data) if self.own and self.running() and data.draw(st.booleans()) else {}
        self.parked |= held.keys()
        self.make(completed, held, WRITER)

    @precondition(lambda self: self.own and self.running())
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        self.abort()
        held = self.some_held(data)
        self.parked |= held.keys()
        self.make([], held, WRITER)
        self.commit_pending()

    def some_held(self, data: st.DataObject) -> dict[int, MarkedJob]:
        held: dict[int, MarkedJob] = {}
        for at in data.draw(st.lists(st.sampled_from(self.running()), unique=True, min_size=1, max_size=2)):
            old = self.jobs.get(at, MarkedJob())
            is_suspect, unknown, since_ms = data.draw(st.tuples(st.booleans(), *[st.integers(0, 1)] * 2))
            due_ms = data.draw(st.sampled_from((0, self.now + 1, self.now + 2, self.now + 5)))
            losses = old.losses if is_suspect else 0
            held[at] = MarkedJob(old.attempt + 1, old.crashes, losses, False, is_suspect, due_ms, unknown, since_ms)
        return held

    def make(self, completed: list[int], held: dict[int, MarkedJob], writer: str) -> None:
        settlement = self.progress.settle(completed, held, writer)
        started = frozenset(self.started - set(completed) - held.keys()) if writer else frozenset()
        done = frozenset(self.done) | set(completed)
        self.pending = Pending(settlement, done, completed, held, self.started_below if writer else 0, started)
        assert len(settlement.metadata) <= MOST_CHARACTERS

    @precondition(lambda self: self.pending is not None)
    @rule()
    def abort(self) -> None:
        if self.pending is not None:
            self.parked -= self.pending.held.keys()
            self.pending = None

    @precondition(lambda self: self.pending is not None)
    @rule()
    def commit_pending(self) -> None:
        assert self.pending is not None
        self.write(is_given_up=False)
        held = sorted(self.parked)
        for at in held:
            self.release_one(at)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def commit_and_die(self) -> None:
        """Its owner does not learn that it is committed."""
        assert self.pending is not None
        self.persist(is_given_up=False)
        self.die(True)

    def write(self, *, is_given_up: bool) -> None:
        pending = self.pending
        assert pending is not None
        self.persist(is_given_up=is_given_up)
        self.progress.settled(pending.settlement, self.now)
        self.done.update(pending.completed)
        self.ended.difference_update(pending.completed)
        self.jobs = {at: job for at, job in {**self.jobs, **pending.held}.items() if at not in self.done}
        self.started -= {*pending.completed, *pending.held}
        self.covered_below = max(self.covered_below, pending.started_below)
        self.covered = self.started & pending.started
        self.pending = None

    def persist(self, *, is_given_up: bool) -> None:
        pending = self.pending
        assert pending is not None
        for at in pending.completed:
            assert at not in self.completions, "a job was completed twice"
            self.completions[at] = 1
        done = pending.done  # without what was deleted since
        jobs = {at: job for at, job in {**self.jobs, **pending.held}.items() if at not in done}
        self.committed = Committed(
            done, pending.started_below, self.suspects_below, jobs, pending.started, is_given_up
        )
        for at in pending.held:
            self.haunted.pop(at, None)  # it was seen to end
        settlement = pending.settlement
        open_below = [at for at in self.log if at < settlement.offset and at not in done]
        assert open_below == [], "the offset passes a job that has not ended"
        assert settlement.offset >= self.offset, "the offset goes back"
        self.offset, self.text = settlement.offset, settlement.metadata

    @rule(to_ms=st.integers(1, 4))
    def tick(self, to_ms: int) -> None:
        self.now += to_ms
        self.progress.tick(self.now)

    @precondition(lambda self: self.next > self.offset)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(self.offset, self.next))
        gone = [each.offset for each in self.fetched() if each.offset < below]
        gone = [at for at in gone if at not in self.out and at not in self.ended]
        assert [each.offset for each in self.progress.drop_before(below, self.now)] == gone
        for at in gone:
            del self.log[at]
            self.jobs.pop(at, None)
            self.haunted.pop(at, None)
        self.done.update(gone)
        self.deleted.update(gone)
        self.started.difference_update(gone)
        self.covered.difference_update(gone)

    @rule(is_fetched=st.booleans())
    def die(self, is_fetched: bool) -> None:
        for at in self.out.keys() | self.ended:
            if at not in self.completions and at not in self.committed.jobs.keys() & self.parked:
                self.haunted[at] = self.haunted.get(at, 0) + self.out.get(at, at in self.started)
        self.take_over()
        if is_fetched:
            self.fetch(len(self.log) + 1, False)

    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        self.abort()
        for at in self.running():
            if data.draw(st.booleans()):
                self.progress.end(at, self.now)
                del self.out[at]
                self.ended.add(at)
            else:
                self.release_one(at)
        self.make(sorted(self.ended), {}, "")
        self.write(is_given_up=True)
        self.take_over()

    # -- what holds at any time -----------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "kind"):
            return
        position = self.position()
        assert self.progress.position == position
        assert position >= self.last_position, "the position goes back"
        self.last_position = position
        here = [each.offset for each in self.fetched()]
        assert self.progress.waiting_count == len(here) - len(self.out) - len(self.ended)
        assert self.progress.ready_count == len(self.ready(False)) + len(self.ready(True))
        times = [self.due_ms(at) for at in self.firsts_of_keys()]
        assert self.progress.next_due_ms == min((each for each in times if each > self.now), default=None)
        assert not self.progress.is_full
        assert self.progress.size <= MOST_CHARACTERS

    def teardown(self) -> None:
        """Whatever happened before, each job ends."""
        if not hasattr(self, "kind"):
            return
        self.abort()
        for _ in range(2 * len(self.log) + 2):
            self.fetch(len(self.log) + 1, False)
            self.tick(A_DAY_MS)
            for suspects in (False, True):
                self.mark(100, suspects)
            self.settle_ended()
            for suspects in (False, True):
                self.take(100, suspects)
            for at in self.running():
                self.progress.end(at, self.now)
                del self.out[at]
                self.ended.add(at)
            if not self.ended and not self.ready(False) and not self.ready(True):
                break
        self.make(sorted(self.ended), {}, "")
        self.write(is_given_up=True)
        assert self.completions == dict.fromkeys(self.log, 1), "each job has ended once"
        last, last_known = (max(those, default=self.start - 1) for those in (self.log, self.log.keys() | self.deleted))
        assert max(last + 1, self.start) <= self.offset <= max(last_known + 1, self.start)
        self.take_over()
        assert self.progress.position == self.offset
        assert (self.progress.ready_count, self.progress.waiting_count) == (0, 0)


TestPartitionAgainstModel = PartitionAgainstModel.TestCase
TestPartitionAgainstModel.settings = settings(max_examples=100 * ROUNDS, stateful_step_count=40, deadline=None)
