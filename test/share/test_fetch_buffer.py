"""What threads hand one another: records once each, wake-ups never lost, lost locks never polled."""

from __future__ import annotations

import threading
from math import inf

import pytest

from kafka.core.share.acknowledgements import AcknowledgementResult
from kafka.core.share.records import ShareRecord
from kafka.errors import CorruptRecordError, GroupAuthorizationFailedError, IllegalStateError
from kafka.protocol.constants import AcknowledgeType
from kafka.share.fetch_buffer import ShareFetchBuffer


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, 0, offset, 0, 0, None, b"", [], 1, 30.0, None)


def nothing() -> None:
    return


def test_records_are_taken_in_order_and_not_more_than_requested() -> None:
    inbox = ShareFetchBuffer()
    records = [record(n) for n in range(5)]
    inbox.put(records)
    assert inbox.take(3, 0, pytest.fail) == records[:3]
    assert inbox.take(3, 0, pytest.fail) == records[3:]
    asked: list[bool] = []
    assert inbox.take(3, 0, lambda: asked.append(True)) == []
    assert asked == [True]


def test_records_passed_on_one_by_one_are_accepted_by_the_next_call_and_sent_together() -> None:
    inbox = ShareFetchBuffer()
    records = [record(n) for n in range(5)]
    records[1].lost = True
    inbox.put(records)
    assert inbox.pass_on(True) == (records[0], False)
    assert inbox.pass_on(True) == (None, True), "the loop is to be told, and once; who is stopped there has no record"
    assert inbox.pass_on(True) == (records[2], False)
    assert inbox.pass_on(True) == (records[3], False)
    assert inbox.take_acknowledgements() == [([records[0], records[2]], AcknowledgeType.ACCEPT)]
    assert inbox.pass_on(True) == (None, True)
    assert inbox.pass_on(True) == (records[4], False)
    assert inbox.pass_on(True) == (None, False)
    assert inbox.accept_polled() is False
    assert inbox.take_acknowledgements() == [([records[3], records[4]], AcknowledgeType.ACCEPT)]


def test_records_passed_on_in_explicit_mode_are_not_accepted() -> None:
    inbox = ShareFetchBuffer()
    inbox.put([record(0), record(1)])
    assert [inbox.pass_on(False)[1], inbox.pass_on(False)[1]] == [False, False]
    assert inbox.take_acknowledgements() == []


def test_nothing_is_passed_on_before_a_wakeup_or_an_answer_was_seen_to() -> None:
    inbox = ShareFetchBuffer()
    inbox.put([record(0), record(1)])
    inbox.wake()
    assert inbox.pass_on(True) == (None, False)
    assert inbox.take(1, 0, pytest.fail) == []
    inbox.add_outcomes([AcknowledgementResult(AcknowledgeType.ACCEPT, [record(9)], None)], keep=True)
    assert inbox.pass_on(True) == (None, False)
    inbox.take_answered()
    assert inbox.pass_on(True)[0] is not None


def test_what_comes_while_a_poll_waits_ends_it() -> None:
    inbox = ShareFetchBuffer()
    held = record(1)
    assert inbox.take(1, inf, lambda: threading.Thread(target=inbox.put, args=([held],)).start()) == [held]


def test_a_poll_asks_again_when_others_took_what_came() -> None:
    inbox = ShareFetchBuffer()
    held = record(2)
    asked: list[bool] = []

    def want() -> None:
        asked.append(True)
        if len(asked) == 1:
            other = record(1)
            inbox.put([other])
            inbox.lose([other])
        else:
            inbox.put([held])

    assert inbox.take(1, 60, want) == [held]


@pytest.mark.parametrize("how", ["wake", "close"])
def test_a_poll_that_waits_is_ended_from_another_thread(how: str) -> None:
    inbox = ShareFetchBuffer()
    assert inbox.take(1, 60, lambda: threading.Thread(target=getattr(inbox, how)).start()) == []


def test_a_wakeup_before_the_poll_is_not_lost_and_takes_no_record_away() -> None:
    inbox = ShareFetchBuffer()
    held = record(1)
    inbox.put([held])
    inbox.wake()
    assert inbox.take(1, 60, nothing) == []
    assert inbox.take(1, 0, nothing) == [held]


def test_records_whose_locks_ran_out_before_they_were_polled_are_dropped_and_new_ones_asked_for() -> None:
    inbox = ShareFetchBuffer()
    kept, gone, unheard, handed_out = (record(n) for n in range(4))
    inbox.put([gone, unheard])
    assert inbox.lose([gone, handed_out]) == [handed_out]
    unheard.lost = True  # the loop is about to say so
    assert inbox.take(5, inf, lambda: inbox.put([kept])) == [kept]


def test_the_final_error_stays_and_others_are_raised_once_each_behind_the_records() -> None:
    inbox = ShareFetchBuffer()
    held = record(1)
    inbox.put([held])
    inbox.fail(CorruptRecordError("t:0"), is_final=False)
    assert inbox.take(1, 0, nothing) == [held]
    with pytest.raises(CorruptRecordError):
        inbox.take(1, 0, nothing)
    assert inbox.take(1, 0, nothing) == []
    inbox.fail(GroupAuthorizationFailedError("g"), is_final=True)
    inbox.fail(CorruptRecordError("t:0"), is_final=False)
    for _ in range(2):
        with pytest.raises(GroupAuthorizationFailedError):
            inbox.take(1, 0, nothing)
    inbox.forget_error()
    assert inbox.take(1, 0, nothing) == []


def test_of_many_threads_that_acknowledge_one_record_one_succeeds() -> None:
    inbox = ShareFetchBuffer()
    held = record(1)
    start = threading.Barrier(8)
    refused: list[str] = []

    def acknowledge() -> None:
        start.wait()
        try:
            inbox.acknowledge_later(held, AcknowledgeType.ACCEPT)
        except IllegalStateError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=acknowledge) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert inbox.take_acknowledgements() == [([held], AcknowledgeType.ACCEPT)]


def test_the_loop_is_notified_once_for_all_acknowledgements_until_it_takes_them() -> None:
    inbox = ShareFetchBuffer()
    assert inbox.acknowledge_later(record(1), AcknowledgeType.ACCEPT)
    assert not inbox.acknowledge_later(record(2), AcknowledgeType.ACCEPT)
    assert not inbox.acknowledge_later(record(3), AcknowledgeType.RELEASE)
    acknowledgements = [([each.offset for each in records], kind) for records, kind in inbox.take_acknowledgements()]
    assert acknowledgements == [([1, 2], AcknowledgeType.ACCEPT), ([3], AcknowledgeType.RELEASE)]
    assert inbox.acknowledge_later(record(3), AcknowledgeType.RENEW)


def test_a_failed_notification_of_the_loop_is_left_to_the_next_call() -> None:
    inbox = ShareFetchBuffer()
    assert inbox.acknowledge_later(record(1), AcknowledgeType.ACCEPT)
    inbox.not_notified()
    assert inbox.acknowledge_later(record(2), AcknowledgeType.ACCEPT)
    assert not inbox.acknowledge_later(record(3), AcknowledgeType.ACCEPT)


def test_of_many_that_are_acknowledged_at_once_those_that_it_is_too_late_for_are_given_back() -> None:
    inbox = ShareFetchBuffer()
    fine, lost, settled = (record(n) for n in range(3))
    lost.lost = settled.is_settled = True
    assert inbox.acknowledge_all_later([settled, lost], AcknowledgeType.ACCEPT) == ([settled, lost], False)
    assert inbox.acknowledge_all_later([fine, lost], AcknowledgeType.RENEW) == ([lost], True)
    assert inbox.acknowledge_all_later([fine, settled], AcknowledgeType.RELEASE) == ([settled], False)
    assert inbox.acknowledge_all_later([fine], AcknowledgeType.ACCEPT) == ([fine], False)
    assert inbox.take_acknowledgements() == [([fine], AcknowledgeType.RENEW), ([fine], AcknowledgeType.RELEASE)]


def test_polled_records_are_accepted_once_with_those_lost_and_not_those_settled_or_forgotten() -> None:
    inbox = ShareFetchBuffer()
    fine, lost, settled, forgotten = (record(n) for n in range(4))
    inbox.returned([fine, lost])
    inbox.returned([settled])
    lost.lost = True
    settled.is_settled = True
    assert inbox.accept_polled()
    taken = inbox.take_acknowledgements()
    assert taken == [([fine, lost], AcknowledgeType.ACCEPT)], "the loop finds that the lock is lost"
    inbox.returned([forgotten])
    inbox.forget_polled()
    assert not inbox.accept_polled()


def test_a_wakeup_is_not_lost_to_an_answer_that_came_at_the_same_time() -> None:
    """The answer is for the callback, and the poll goes on afterwards: it has to know that somebody woke it."""
    inbox = ShareFetchBuffer()
    inbox.add_outcomes([AcknowledgementResult(AcknowledgeType.ACCEPT, [record(1)], None)], keep=True)
    inbox.wake()
    assert inbox.take(1, 60, nothing) == [], "not None, which has the poll go on"
    inbox.add_outcomes([AcknowledgementResult(AcknowledgeType.ACCEPT, [record(2)], None)], keep=True)
    assert inbox.take(1, 60, nothing) is None
    assert len(inbox.take_answered()) == 2
