"""Transactions, request by request: codes, epochs and what readers see. Measured on Apache Kafka 4.3.0.

A transaction is decided before it is completed, and a request that comes between is told to come again (51): whoever
needs the end waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.protocol.transactions import DescribeProducersRequest
from test.broker.raw_client import RawClient
from test.broker.transactions.share_member import ShareMember
from test.broker.transactions.txn import (
    NEW,
    OLD,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Answer,
    add,
    add_group,
    commit_offset,
    committed,
    describe,
    end,
    init,
    listed,
    mark,
    produce,
    producers,
    read,
    state,
    verify,
)
from test.conformance.readiness import GROUP, TRANSACTION, wait_for_coordinator
from test.support.optional import needs_re2
from test.support.waiting import eventually, look_until, until

NOT_READY = (14, 15, 16, 51)
FENCES = [(1, 47), (2, 90), (3, 90), (4, 90)]
LATEST, EARLIEST = -1, -2


class TxnClient(RawClient):
    """A connection with the time of day."""

    @property
    def epoch_ms(self) -> int:
        return int(time.time() * 1000)


@pytest.fixture
def raw(bootstrap: str) -> Iterator[TxnClient]:
    client = TxnClient(int(bootstrap.rpartition(":")[2]))
    with client:
        yield client


@pytest.fixture
def name(raw: TxnClient, unique: Callable[[str], str]) -> str:
    """A transactional id that nobody has yet."""
    found = unique("txn")
    wait_for_coordinator(raw, found, TRANSACTION)
    eventually(lambda: describe(raw, found).error_code, 105)
    return found


def offset_of(raw: TxnClient, topic: str, timestamp: int, isolation: int, partition: int = 0) -> int:
    """What ListOffsets gives; -1 for nothing and for an error."""
    partition_request = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition_request])],
    )
    return raw.ask(request, 7).topics[0].partitions[0].offset


@pytest.fixture
def new_topic(raw: TxnClient, new_topic: Callable[..., str]) -> Callable[..., str]:
    """As everywhere, but that its leaders are there: a request that meets none is not tried again here."""

    def make(partitions: int = 1) -> str:
        topic = new_topic(partitions)
        for partition in range(partitions):
            eventually(lambda partition=partition: offset_of(raw, topic, LATEST, READ_UNCOMMITTED, partition), 0)
        return topic

    return make


@pytest.fixture
def group(raw: TxnClient, unique: Callable[[str], str]) -> str:
    found = unique("group")
    wait_for_coordinator(raw, found, GROUP)
    eventually(lambda: raw.ask(OffsetFetchRequest(group_id=found, topics=[]), 7).error_code, 0)
    return found


def owner(raw: TxnClient, name: str) -> tuple[int, int]:
    """A producer id and epoch, after whatever is still ending."""
    answer = look_until(lambda: init(raw, name), lambda answer: answer.code not in NOT_READY)
    assert answer.code == 0
    return answer[1:]


def completed(raw: TxnClient, name: str) -> str:
    """The state when nothing is ending any more."""
    return look_until(lambda: state(raw, name), lambda found: not found.startswith("Prepare"))


def begun(raw: TxnClient, name: str, topic: str, *values: bytes) -> tuple[int, int]:
    """A producer with an ongoing transaction in partition 0."""
    producer = owner(raw, name)
    assert produce(raw, name, producer, 0, topic, *(values or (b"v",))).error_code == 0
    return producer


# -- InitProducerId ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_an_id_each(raw: TxnClient, name: str, version: int) -> None:
    first = look_until(
        lambda: init(raw, None, timeout_ms=-5, version=version), lambda answer: answer.code not in NOT_READY
    )
    second = init(raw, None, version=version)
    assert (first.code, first.epoch, second.code, second.epoch) == (0, 0, 0, 0)
    assert first.producer_id != second.producer_id


def test_the_version_of_two_phase_commit_is_not_served(raw: TxnClient, name: str) -> None:
    with pytest.raises(EOFError):
        init(raw, name, version=6)


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 50), (-1, 50), (1, 0), (900_000, 0), (900_001, 50)])
def test_what_a_transactions_timeout_may_be(raw: TxnClient, name: str, timeout_ms: int, code: int) -> None:
    assert init(raw, name, timeout_ms=timeout_ms).code == code


@pytest.mark.parametrize(("expected", "code"), [((5, -1), 42), ((-1, 5), 42), ((5, 2), 0)])
def test_what_a_new_transactional_id_may_come_with(
    raw: TxnClient, name: str, expected: tuple[int, int], code: int
) -> None:
    assert init(raw, name, expected).code == code
    assert init(raw, "", expected).code == 42


def test_a_living_producer_raises_its_epoch_and_may_ask_twice(raw: TxnClient, name: str) -> None:
    first = owner(raw, name)
    assert owner(raw, name) == (first[0], 1)
    assert init(raw, name, (first[0], 1)) == Answer(0, first[0], 2)
    assert init(raw, name, (first[0], 1)) == Answer(0, first[0], 2)
    for late in (0, 20):
        assert init(raw, name, (first[0], late)).code == 90
        assert init(raw, name, (first[0], late), version=3).code == 47
    assert init(raw, name, (first[0] + 100_000, 2)).code == 90


@pytest.mark.parametrize("version", [OLD, NEW])
def test_who_comes_while_a_transaction_is_ongoing_has_to_come_again(
    raw: TxnClient, name: str, group: str, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    if version == OLD:
        assert add(raw, name, producer, topic) == [0]
    assert produce(raw, name, producer, 0, topic, version=version).error_code == 0
    assert init(raw, name).code == 51
    assert completed(raw, name) == "CompleteAbort"
    assert describe(raw, name).producer_epoch == 1
    assert owner(raw, name) == (producer[0], 2)
    assert produce(raw, name, producer, 1, topic, version=version).error_code == 47
    for request_version, code in FENCES:
        assert end(raw, name, producer, True, request_version).code == code
        assert add_group(raw, name, producer, group, request_version) == code
        if request_version < 4:
            assert add(raw, name, producer, topic, version=request_version) == [code]
    assert commit_offset(raw, name, producer, group, topic, 1) == 47


def test_a_fenced_living_producer_gets_the_epoch_of_its_fence(
    raw: TxnClient, name: str, new_topic: Callable[..., str]
) -> None:
    producer = begun(raw, name, new_topic())
    assert init(raw, name, producer).code == 51
    assert completed(raw, name) == "CompleteAbort"
    assert init(raw, name, producer) == Answer(0, producer[0], 1)


def test_an_old_epoch_of_the_same_producer_aborts_what_is_ongoing_and_gets_nothing(
    raw: TxnClient, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    first = owner(raw, name)
    owner(raw, name)
    producer = begun(raw, name, topic)
    assert init(raw, name, first).code == 51
    assert completed(raw, name) == "CompleteAbort"
    assert init(raw, name, first).code == 90
    assert init(raw, name, producer) == Answer(0, producer[0], producer[1] + 1)


def test_a_transaction_that_takes_too_long_is_aborted(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    """Kafka looks every 10 s; until then the producer may go on."""
    topic = new_topic()
    answer = init(raw, name, timeout_ms=500)
    producer = answer[1:]
    assert produce(raw, name, producer, 0, topic).error_code == 0
    eventually(lambda: state(raw, name), "CompleteAbort")
    assert produce(raw, name, producer, 1, topic).error_code == 47
    assert end(raw, name, producer, True, 4).code == 90
    assert end(raw, name, producer, True).code == 48
    assert end(raw, name, producer, False) == Answer(0, producer[0], 1)
    assert read(raw, topic, READ_COMMITTED) == []
    assert init(raw, name, producer) == Answer(0, producer[0], 1)


# -- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code", "after"),
    [*((version, 48, "Empty") for version in range(3, 11)), (11, 120, "Empty"), (12, 0, "Ongoing")],
)
def test_a_partition_that_was_not_added(
    raw: TxnClient, name: str, new_topic: Callable[..., str], version: int, code: int, after: str
) -> None:
    producer = owner(raw, name)
    assert produce(raw, name, producer, 0, new_topic(), version=version).error_code == code
    assert state(raw, name) == after


@pytest.mark.parametrize("version", [9, OLD, NEW])
def test_a_transactional_batch_names_its_transaction(
    raw: TxnClient, name: str, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    cases = [
        (None, producer, 53), ("", producer, 42), (name + "-no", producer, 49), (name, (producer[0] + 99_999, 0), 49),
        (name, (producer[0], 1), 47),
    ]  # fmt: skip
    for given, by, code in cases:
        answer = produce(raw, given, by, 0, topic, version=version)
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)
    assert produce(raw, name, producer, 0, topic, version=version, partition=9).error_code == 3


def test_with_the_new_protocol_each_transaction_begins_with_sequence_0(
    raw: TxnClient, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    assert produce(raw, name, producer, 3, topic).error_code == 45
    for _ in range(2):
        assert produce(raw, name, producer, 0, topic).base_offset == 0
    assert produce(raw, name, producer, 5, topic).error_code == 45
    answer = produce(raw, name, producer, 1, topic, transactional=False)
    assert (answer.error_code, answer.log_start_offset) == (48, 0)
    following = end(raw, name, producer, True)[1:]
    assert following == (producer[0], 1)
    assert completed(raw, name) == "CompleteCommit"
    assert produce(raw, name, following, 1, topic).error_code == 45
    assert produce(raw, name, producer, 1, topic).error_code == 47
    assert produce(raw, name, following, 0, topic).base_offset == 2


def test_with_the_old_protocol_sequences_go_on(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    add(raw, name, producer, topic)
    assert produce(raw, name, producer, 3, topic, version=OLD).error_code == 0, "whatever it begins with"
    assert produce(raw, name, producer, 3, topic, version=OLD).base_offset == 0
    assert end(raw, name, producer, True, 4) == Answer(0)
    assert completed(raw, name) == "CompleteCommit"
    add(raw, name, producer, topic)
    assert produce(raw, name, producer, 4, topic, version=OLD).base_offset == 2
    assert produce(raw, name, producer, 0, topic, version=OLD).error_code == 45


def test_no_batch_takes_the_place_of_an_earlier_one_that_failed(
    raw: TxnClient, name: str, new_topic: Callable[..., str]
) -> None:
    """Also where the producer is not known, so that any sequence would do."""
    topic = new_topic()
    producer = owner(raw, name)
    assert produce(raw, name, producer, 0, topic, version=OLD).error_code == 120
    assert add(raw, name, producer, topic) == [0]
    assert produce(raw, name, producer, 1, topic, version=OLD).error_code == 45
    assert produce(raw, name, producer, 0, topic, version=OLD).error_code == 0
    assert produce(raw, name, producer, 1, topic, version=OLD).error_code == 0


def test_each_request_speaks_a_protocol_of_its_own(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = begun(raw, name, topic)
    assert produce(raw, name + "-no", producer, 1, topic).error_code == 0, "the log knows the transaction"
    assert end(raw, name, producer, True, 4) == Answer(0)
    assert completed(raw, name) == "CompleteCommit"
    assert produce(raw, name, producer, 2, topic).error_code == 0
    assert end(raw, name, producer, True, 5) == Answer(0, producer[0], 1)
    assert completed(raw, name) == "CompleteCommit"
    assert end(raw, name, producer, True, 4).code == 90
    assert end(raw, name, (producer[0], 1), True, 4) == Answer(0), "nothing is ongoing, and it looks like a retry"
    assert len(read(raw, topic, READ_COMMITTED)) == 3


def test_what_readers_see(
    raw: TxnClient, unique: Callable[[str], str], name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    first, second = begun(raw, name, topic, b"a", b"b"), begun(raw, other := unique("txn"), topic, b"c")
    assert read(raw, topic, READ_UNCOMMITTED) == [b"a", b"b", b"c"]
    assert read(raw, topic, READ_COMMITTED) == []
    end(raw, other, second, True)
    assert completed(raw, other) == "CompleteCommit"
    assert read(raw, topic, READ_COMMITTED) == []
    end(raw, name, first, False)
    assert completed(raw, name) == "CompleteAbort"
    assert read(raw, topic, READ_COMMITTED) == [b"c"]
    assert read(raw, topic, READ_UNCOMMITTED) == [b"a", b"b", b"c"]


def test_what_list_offsets_says_of_an_open_transaction(
    raw: TxnClient, name: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    assert produce(raw, None, (-1, -1), -1, topic, b"plain", transactional=False).error_code == 0
    before_ms = raw.epoch_ms
    until(lambda: raw.epoch_ms > before_ms, meanwhile=lambda: None)
    producer = begun(raw, name, topic, b"x")

    def offset(timestamp: int, isolation: int) -> int:
        return offset_of(raw, topic, timestamp, isolation)

    open_ones = [(offset(at, READ_UNCOMMITTED), offset(at, READ_COMMITTED)) for at in (LATEST, EARLIEST, before_ms + 1)]
    assert open_ones == [(2, 1), (0, 0), (1, -1)]
    end(raw, name, producer, True)
    assert completed(raw, name) == "CompleteCommit"
    assert (offset(LATEST, READ_COMMITTED), offset(before_ms + 1, READ_COMMITTED)) == (3, 1)


# -- partitions and offsets of a transaction ---------------------------------------------------------------------------


def test_partitions_are_added_all_or_none(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    producer = owner(raw, name)
    assert add(raw, name, producer, topic, (0, 7)) == [55, 3]
    assert state(raw, name) == "Empty"
    assert verify(raw, name, producer, topic, (0, 1)) == [120, 120]
    assert add(raw, name, producer, topic, (0,)) == [0]
    assert add(raw, name, producer, topic, (0,)) == [0]
    assert verify(raw, name, producer, topic, (0, 1)) == [0, 120]
    assert verify(raw, name, (producer[0], 4), topic) == [90]
    assert verify(raw, name, (producer[0] + 99_999, 0), topic) == [49]
    assert verify(raw, name + "-no", producer, topic) == [49]
    assert verify(raw, "", producer, topic) == [42]
    assert verify(raw, name, producer, topic + "-no") == [3]
    assert add(raw, "", producer, topic) == [42]
    assert add(raw, name + "-no", producer, topic) == [49]
    assert add(raw, name, (producer[0] + 99_999, 0), topic) == [49]
    assert [(row.topic, row.partitions) for row in describe(raw, name).topics] == [(topic, [0])]


@pytest.mark.parametrize(("version", "code"), [(0, 48), (2, 48), (3, 48), (4, 120), (5, 0)])
def test_offsets_of_a_group_that_was_not_added(
    raw: TxnClient, name: str, group: str, new_topic: Callable[..., str], version: int, code: int
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    assert commit_offset(raw, name, producer, group, topic, 5, version=version) == code
    assert state(raw, name) == ("Ongoing" if code == 0 else "Empty")
    assert add_group(raw, name, producer, group) == 0
    assert commit_offset(raw, name, producer, group, topic, 5, version=version) == 0


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_a_transaction_hold_when_it_is_committed(
    raw: TxnClient, name: str, group: str, new_topic: Callable[..., str], version: int, is_committed: bool
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    if version < 5:
        add_group(raw, name, producer, group)
    assert commit_offset(raw, name, producer, group, topic, 5, version=version) == 0
    assert committed(raw, group, topic) == (0, -1)
    assert committed(raw, group, topic, stable=True) == (88, -1)
    assert end(raw, name, producer, is_committed, 4 if version < 5 else 5).code == 0
    assert completed(raw, name) == ("CompleteCommit" if is_committed else "CompleteAbort")
    # Markers come before the group has read them.
    found = look_until(lambda: committed(raw, group, topic, stable=True), lambda found: found[0] != 88)
    assert found == (0, 5 if is_committed else -1)


def test_what_an_offset_of_a_transaction_may_be(
    raw: TxnClient, name: str, group: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = owner(raw, name)
    assert commit_offset(raw, name, producer, "", topic, 5) == 24
    assert commit_offset(raw, name, producer, group, topic + "-no", 5) == 3
    assert commit_offset(raw, name, producer, group, topic, 5, partition=9) == 3
    assert commit_offset(raw, name, producer, group, topic, 5, metadata="x" * 5000) == 12
    assert commit_offset(raw, name, producer, group, topic, 5, generation=1) == 25
    assert commit_offset(raw, name, producer, group, topic, 5, member="m") == 0
    assert commit_offset(raw, name, (producer[0] + 99_999, 0), group, topic, 5) == 49
    assert commit_offset(raw, name, (producer[0], 1), group, topic, 5) == 47


# -- EndTxn -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_an_end_without_a_transaction(raw: TxnClient, name: str, version: int) -> None:
    producer = owner(raw, name)
    assert end(raw, name, producer, True, version) == Answer(48)
    answer = end(raw, name, producer, False, version)
    assert answer == (Answer(0, producer[0], 1) if version == 5 else Answer(48))
    assert completed(raw, name) == ("CompleteAbort" if version == 5 else "Empty")
    assert end(raw, "", producer, True, version).code == 42
    assert end(raw, name + "-no", producer, True, version).code == 49
    assert end(raw, name, (producer[0] + 99_999, 0), True, version).code == 49


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_an_end_and_what_may_follow_it(
    raw: TxnClient, name: str, new_topic: Callable[..., str], version: int, is_committed: bool
) -> None:
    producer = owner(raw, name)
    assert add(raw, name, producer, new_topic()) == [0]
    expected = Answer(0, producer[0], 1) if version == 5 else Answer(0)
    done = "CompleteCommit" if is_committed else "CompleteAbort"
    assert end(raw, name, producer, is_committed, version) == expected
    assert completed(raw, name) == done
    assert describe(raw, name).topics == []
    assert end(raw, name, producer, is_committed, version) == expected, "a retry"
    assert end(raw, name, producer, not is_committed, version) == Answer(48)
    assert end(raw, name, (producer[0], 5), is_committed, version).code == (47 if version < 2 else 90)
    assert completed(raw, name) == done


# -- what there is to see, and markers by hand -------------------------------------------------------------------------


def test_what_a_partition_returns_of_its_producers(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = begun(raw, name, topic)

    def row() -> tuple[int, int, int]:
        one = producers(raw, topic)[producer[0]]
        return one.producer_epoch, one.last_sequence, one.current_txn_start_offset

    assert row() == (0, 0, 0)
    assert producers(raw, topic)[producer[0]].coordinator_epoch == -1
    end(raw, name, producer, True)
    assert completed(raw, name) == "CompleteCommit"
    assert row() == (1, -1, -1)
    assert producers(raw, topic)[producer[0]].coordinator_epoch >= 0
    for unknown, number, code in ((topic + "-no", 0, 3), (topic, 9, 3), ("a b", 0, 17)):
        request = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=unknown, partition_indexes=[number])]
        )
        assert raw.ask(request, 0).topics[0].partitions[0].error_code == code


@needs_re2
def test_transactions_are_described_and_listed(
    raw: TxnClient, unique: Callable[[str], str], name: str, new_topic: Callable[..., str]
) -> None:
    assert describe(raw, "").error_code == 42
    idle = unique("idle")
    owner(raw, idle)
    found = describe(raw, idle)
    assert (found.transaction_state, found.transaction_timeout_ms, found.transaction_start_time_ms) == (
        "Empty", 60_000, -1,
    )  # fmt: skip
    before_ms = raw.epoch_ms
    producer = begun(raw, name, new_topic())
    found = describe(raw, name)
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", *producer)
    assert before_ms <= found.transaction_start_time_ms <= raw.epoch_ms
    either = f"{name}|{idle}"
    assert listed(raw, transactional_id_pattern=either) == (0, [], sorted([name, idle]))
    assert listed(raw, transactional_id_pattern=name[:-1]) == (0, [], [])
    assert listed(raw, transactional_id_pattern="([") == (128, [], [])
    assert listed(raw, transactional_id_pattern=either, state_filters=["Ongoing"]) == (0, [], [name])
    assert listed(raw, transactional_id_pattern=either, state_filters=["ongoing"]) == (0, ["ongoing"], [])
    assert listed(raw, transactional_id_pattern=either, producer_id_filters=[producer[0]]) == (0, [], [name])
    assert listed(raw, transactional_id_pattern=either, duration_filter=1_000_000) == (0, [], [idle])
    assert listed(raw, state_filters=["Dead", "PrepareEpochFence", "PrepareCommit"])[1] == []


def test_an_operator_may_end_what_hangs(raw: TxnClient, name: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = begun(raw, name, topic)
    newer = (producer[0], producer[1] + 1)
    assert mark(raw, topic + "-no", producer, False) == 3
    assert mark(raw, topic, producer, False, partition=9) == 3
    assert mark(raw, topic, (producer[0], -1), False) == -1
    assert mark(raw, topic, producer, False, transaction_version=2) == 47, "it needs an epoch of its own"
    assert producers(raw, topic)[producer[0]].current_txn_start_offset == 0
    assert mark(raw, topic, newer, False, transaction_version=2) == 0
    assert mark(raw, topic, newer, False, transaction_version=2) == 0, "it ends nothing"
    assert producers(raw, topic)[producer[0]].current_txn_start_offset == -1
    assert read(raw, topic, READ_COMMITTED) == []
    assert mark(raw, topic, newer, True, coordinator_epoch=9) == 0
    assert mark(raw, topic, newer, True, coordinator_epoch=3) == 52
    assert mark(raw, topic, producer, True, coordinator_epoch=9) == 47
    assert state(raw, name) == "Ongoing", "the coordinator does not know"


# -- share groups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isolation", "while_open", "after_abort", "after_commit", "only_aborted"),
    [
        ("read_committed", [(0, 0)], [(3, 4)], [(5, 8)], [(11, 11)]),
        ("read_uncommitted", [(0, 3)], [(4, 4)], [(5, 8)], [(9, 11)]),
    ],
)
def test_what_a_share_group_is_handed_out(
    raw: TxnClient,
    name: str,
    group: str,
    new_topic: Callable[..., str],
    isolation: str,
    while_open: list[tuple[int, int]],
    after_abort: list[tuple[int, int]],
    after_commit: list[tuple[int, int]],
    only_aborted: list[tuple[int, int]],
) -> None:
    """Markers are handed out to everybody; what was aborted is not, to a group that reads committed records."""
    topic = new_topic()
    member = ShareMember(raw, group, topic, isolation)

    def plain() -> None:
        assert produce(raw, None, (-1, -1), -1, topic, b"plain", transactional=False).error_code == 0

    plain()
    producer = begun(raw, name, topic, b"1", b"2")
    plain()
    assert member.fetch() == while_open
    producer = end(raw, name, producer, False)[1:]
    assert completed(raw, name) == "CompleteAbort"
    assert member.fetch() == after_abort
    assert produce(raw, name, producer, 0, topic, b"5", b"6").error_code == 0
    producer = end(raw, name, producer, True)[1:]
    assert completed(raw, name) == "CompleteCommit"
    plain()
    assert member.fetch() == after_commit
    assert produce(raw, name, producer, 0, topic, b"9", b"10").error_code == 0
    end(raw, name, producer, False)
    assert completed(raw, name) == "CompleteAbort"
    assert member.fetch() == only_aborted
    assert member.fetch() == []
