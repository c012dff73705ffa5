from __future__ import annotations

from test.broker.driver import HandBroker
from test.broker.transactions.share_member import ShareMember
from test.broker.transactions.test_coordinator import begun
from test.broker.transactions.txn import end, produce


def plain(hand: HandBroker) -> None:
    assert produce(hand, None, (-1, -1), -1, "t", b"plain", transactional=False).error_code == 0


def test_an_open_transaction_blocks_the_partition_for_a_group_that_reads_committed_records(hand: HandBroker) -> None:
    member = ShareMember(hand, "g", "t", "read_committed", wait_ms=0)
    plain(hand)
    producer = begun(hand)
    plain(hand)
    assert member.fetch() == [(0, 0)]
    assert member.fetch() == []
    end(hand, "x", producer, True)
    assert member.fetch() == [(1, 3)]


def test_a_fetch_goes_on_behind_what_was_aborted(hand: HandBroker) -> None:
    """Also when its limit of records is used up by what nobody is to see."""
    member = ShareMember(hand, "g", "t", "read_committed", wait_ms=0)
    end(hand, "x", begun(hand, "x", b"1", b"2"), False)
    plain(hand)
    assert member.fetch(2, exact=True) == [(2, 3)]


def test_what_was_aborted_is_archived_for_the_group(hand: HandBroker) -> None:
    member = ShareMember(hand, "g", "t", "read_committed", wait_ms=0)
    end(hand, "x", begun(hand, "x", b"1", b"2"), False)
    assert member.fetch() == [(2, 2)]
    partition = hand.broker.share.loaded("g", hand.broker.topic("t").topic_id, 0)
    assert partition is not None
    assert partition.start_offset == 2
