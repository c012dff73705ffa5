"""Transactions as an administrator sees them, and ends them: open ones, ended ones, and one that hangs; on all brokers
that have the calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kafka import IsolationLevel, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    AbortTransactionSpec,
    ConfigResource,
    KafkaAdminClient,
    OffsetSpec,
    OffsetTimestamp,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.errors import (
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    NotLeaderForPartitionError,
    TransactionalIdNotFoundError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.structs import OffsetAndTimestamp
from test.broker.raw_client import RawClient
from test.broker.transactions.txn import OLD, init, produce
from test.conformance.reading import poll_until, take
from test.support.either_broker import every_release
from test.support.optional import needs_re2
from test.support.waiting import eventually, look_until, until

NewTopic = Callable[..., str]
Unique = Callable[[str], str]
Begin = Callable[..., KafkaProducer]

HOUR_MS = 3_600_000
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def begin(bootstrap: str) -> Iterator[Begin]:
    """``begin(name, topic, b"a", ...)``: a producer with a transaction, its values in partition 0."""
    made: list[KafkaProducer] = []

    def new(name: str, topic: str, *values: bytes) -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        made.append(producer)
        producer.init_transactions()
        go_on(producer, topic, *values)
        return producer

    yield new
    for producer in made:
        producer.close(timeout=10)


def go_on(producer: KafkaProducer, topic: str, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()


def of(admin: KafkaAdminClient, partition: TopicPartition) -> ProducerState:
    """The only producer of the partition."""
    (found,) = admin.describe_producers([partition])[partition].active_producers
    return found


def ended(admin: KafkaAdminClient, name: str) -> TransactionDescription:
    """What the coordinator tells when it has nothing left to do: that comes behind the end that the producer sees."""
    return look_until(
        lambda: admin.describe_transactions([name])[name], lambda found: not found.state.name.startswith("PREPARE")
    )


def listing(admin: KafkaAdminClient, name: str, **filters: object) -> list[TransactionListing]:
    """Those of all brokers with that transactional id."""
    found = admin.list_transactions(**filters)  # type: ignore[arg-type]
    return [row for rows in found.values() for row in rows if row.transactional_id == name]


def is_before_3_0(request: pytest.FixtureRequest) -> bool:
    return "2.8" in str(request.node.callspec.params["bootstrap"])


def test_a_transaction_is_listed_and_described_from_its_begin_to_its_end(
    admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    name, topic = unique("txn"), new_topic(2)
    before_ms = time.time() * 1000
    producer = begin(name, topic, b"a")
    (row,) = listing(admin, name)
    assert row == TransactionListing(name, row.producer_id, TransactionState.ONGOING)
    found = admin.describe_transactions([name])[name]
    assert found.coordinator_id in admin.list_transactions()
    assert (found.state, found.producer_id, found.transaction_timeout_ms) == (
        TransactionState.ONGOING, row.producer_id, 60_000,
    )  # fmt: skip
    assert found.producer_epoch >= 0
    assert before_ms - 60_000 < found.transaction_start_time_ms <= time.time() * 1000 + 60_000
    assert found.topic_partitions == {TopicPartition(topic, 0)}
    producer.send(topic, b"b", partition=1)
    producer.flush()
    assert admin.describe_transactions([name])[name].topic_partitions == {TopicPartition(topic, n) for n in (0, 1)}
    producer.commit_transaction()
    found = ended(admin, name)
    assert (found.state, found.topic_partitions) == (TransactionState.COMPLETE_COMMIT, set())
    go_on(producer, topic, b"c")
    producer.abort_transaction()
    assert ended(admin, name).state is TransactionState.COMPLETE_ABORT
    assert [each.state for each in listing(admin, name)] == [TransactionState.COMPLETE_ABORT]


def test_a_transactional_id_without_a_transaction_is_empty_and_one_that_never_was_is_not_found(
    bootstrap: str, admin: KafkaAdminClient, unique: Unique
) -> None:
    name = unique("txn")
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
    found = admin.describe_transactions([name])[name]
    assert (found.state, found.transaction_start_time_ms) == (TransactionState.EMPTY, -1)
    with pytest.raises(TransactionalIdNotFoundError, match=f"transactional id {name}-no"):
        admin.describe_transactions([name, f"{name}-no"])
    assert admin.describe_transactions([]) == {}


@needs_re2
def test_listed_is_what_the_filters_let_through(
    admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    name = unique("txn")
    begin(name, new_topic(), b"a")
    (row,) = listing(admin, name)
    assert listing(admin, name, state_filters=["ongoing", TransactionState.EMPTY]) == [row]
    assert listing(admin, name, state_filters=[TransactionState.DEAD]) == []
    assert listing(admin, name, producer_id_filters=[row.producer_id]) == [row]
    assert listing(admin, name, producer_id_filters=[row.producer_id + 99_999]) == []
    assert listing(admin, name, duration_filter_ms=HOUR_MS) == []
    assert listing(admin, name, duration_filter_ms=0, transactional_id_pattern=f"{name[:3]}.*") == [row]
    assert listing(admin, name, transactional_id_pattern=name[:-1]) == []
    with pytest.raises(InvalidRegularExpressionError):
        admin.list_transactions(transactional_id_pattern="([")
    (node,) = admin.list_transactions()
    assert list(admin.list_transactions([node])) == [node]
    with pytest.raises(UnknownBrokerIdError):
        admin.list_transactions([node + 99])


@every_release
def test_a_partition_describes_its_producers(
    admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    topic = new_topic(2)
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    before_ms = time.time() * 1000
    producer = begin(unique("txn"), topic, b"a", b"b")
    found = admin.describe_producers([partition, other])
    assert list(found) == [partition, other] and found[other].active_producers == []
    (one,) = found[partition].active_producers
    assert (one.last_sequence, one.current_transaction_start_offset, one.coordinator_epoch) == (1, 0, -1)
    assert before_ms - 60_000 < one.last_timestamp <= time.time() * 1000 + 60_000
    producer.commit_transaction()
    now = look_until(lambda: of(admin, partition), lambda found: found.current_transaction_start_offset == -1)
    assert now.producer_id == one.producer_id and now.producer_epoch >= one.producer_epoch
    assert now.coordinator_epoch >= 0
    go_on(producer, topic, b"c")
    assert of(admin, partition).current_transaction_start_offset == 3
    (broker,) = [each["broker_id"] for each in admin.describe_cluster()["brokers"]]
    assert admin.describe_producers([partition], broker_id=broker)[partition].active_producers == [of(admin, partition)]
    for unknown in (TopicPartition(topic, 9), TopicPartition(f"{topic}-no", 0)):
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.describe_producers([partition, unknown])
        with pytest.raises((UnknownTopicOrPartitionError, NotLeaderForPartitionError)):
            admin.describe_producers([unknown], broker_id=broker)


@every_release
def test_readers_of_committed_records_go_on_when_somebody_aborts_what_they_wait_for(
    bootstrap: str, admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    begin(unique("txn"), topic, b"open")
    with KafkaProducer(bootstrap_servers=bootstrap) as plain:
        plain.send(topic, b"behind", partition=0).get(10)
    with KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=IsolationLevel.READ_COMMITTED, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        assert consumer.end_offsets([partition]) == {partition: 0}
        # A fetch tells of both records, and brings none.
        assert poll_until(lambda: consumer.highwater(partition) == 2, consumer) == []
        (hung,) = [
            each
            for each in admin.describe_producers([partition])[partition].active_producers
            if each.current_transaction_start_offset == 0
        ]
        spec = AbortTransactionSpec(partition, hung.producer_id, hung.producer_epoch)
        assert admin.abort_transaction(spec) is None  # type: ignore[func-returns-value]
        assert [record.value for record in take(consumer, 1)] == [b"behind"]
    admin.abort_transaction(spec)  # it ends nothing


@every_release
def test_the_second_transaction_of_a_producer_is_aborted_as_the_first_and_an_old_epoch_is_refused(
    admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    """A coordinator has ended the first, so the partition knows its epoch, and refuses a marker that has none."""
    name, topic = unique("txn"), new_topic()
    partition = TopicPartition(topic, 0)
    producer = begin(name, topic, b"a")
    producer.commit_transaction()
    producer.close()
    begin(name, topic, b"b")  # whose epoch is higher
    second = of(admin, partition)
    assert second.current_transaction_start_offset == 2 and second.producer_epoch > 0
    with pytest.raises(InvalidProducerEpochError, match=f"{topic}-0"):
        admin.abort_transaction(AbortTransactionSpec(partition, second.producer_id, 0, second.coordinator_epoch))
    admin.abort_transaction(AbortTransactionSpec(partition, second.producer_id, second.producer_epoch))
    assert of(admin, partition).current_transaction_start_offset == -1
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.abort_transaction(AbortTransactionSpec(TopicPartition(topic, 9), second.producer_id, 0))


class LongAgo(RawClient):
    """A connection whose records are an hour old."""

    @property
    def epoch_ms(self) -> int:
        return int(time.time() * 1000) - HOUR_MS


@pytest.fixture
def unverified(admin: KafkaAdminClient) -> Iterator[None]:
    """Partitions take what is part of no transaction, as before 3.6, so that transactions can hang."""
    brokers = ConfigResource("broker", "", {VERIFICATION: "false"})
    admin.alter_configs([brokers])
    yield
    admin.alter_configs([ConfigResource("broker", "", {VERIFICATION: None})])


@pytest.mark.usefixtures("unverified")
def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
    bootstrap: str, admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    name, topic = unique("txn"), new_topic(2)
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as owner:
        owner.init_transactions()
    young = begin(unique("txn"), topic)
    young.send(topic, b"young", partition=1, timestamp_ms=1000)
    young.flush()
    with LongAgo(int(bootstrap.rpartition(":")[2])) as raw:
        writer = look_until(lambda: init(raw, name), lambda answer: answer.code == 0)[1:]
        # The setting arrives in a moment.
        eventually(lambda: produce(raw, name, writer, 0, topic, b"hangs", version=OLD).error_code, 0)

    def hanging() -> list[dict[str, object]]:
        return [each for each in admin.find_hanging_transactions() if topic in {t for t, _ in each["topic_partitions"]}]

    (found,) = hanging()
    assert HOUR_MS <= found.pop("age_ms") < 2 * HOUR_MS  # type: ignore[operator]
    assert found == {
        "transactional_id": name,
        "producer_id": writer[0],
        "producer_epoch": writer[1],
        "state": "Empty",
        "coordinator_id": admin.describe_transactions([name])[name].coordinator_id,
        "topic_partitions": [partition],
    }
    admin.abort_transaction(AbortTransactionSpec(partition, *writer))
    assert hanging() == []


def test_a_transaction_that_its_coordinator_knows_hangs_when_its_time_is_over(
    admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic, unique: Unique
) -> None:
    name, topic = unique("txn"), new_topic()
    producer = begin(name, topic, b"a")

    def found(limit_ms: float) -> list[dict[str, object]]:
        rows = admin.find_hanging_transactions(max_transaction_timeout_ms=limit_ms)
        return [each for each in rows if each["transactional_id"] == name]

    assert found(900_000) == found(0) == []
    (row,) = until(lambda: found(-300_000))  # the five minutes that come on top
    assert (row["state"], row["topic_partitions"]) == ("Ongoing", [TopicPartition(topic, 0)])
    producer.commit_transaction()
    ended(admin, name)
    assert found(-300_000) == []


@every_release
def test_offsets_of_partitions_are_looked_up_by_what_they_are(
    request: pytest.FixtureRequest, bootstrap: str, admin: KafkaAdminClient, begin: Begin, new_topic: NewTopic,
    unique: Unique,
) -> None:  # fmt: skip
    topic = new_topic(2)
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    now_ms = int(time.time() * 1000)
    with KafkaProducer(bootstrap_servers=bootstrap) as plain:
        for n in (0, 2, 1):
            plain.send(topic, b"v", partition=0, timestamp_ms=now_ms + n).get(10)
    begin(unique("txn"), topic, b"open")

    def look(spec: OffsetSpec | int, level: object = "read_uncommitted") -> tuple[int, int]:
        found = admin.list_partition_offsets({first: spec}, level)[first]  # type: ignore[arg-type]
        return found.offset, found.timestamp

    assert look(OffsetSpec.EARLIEST) == (0, -1)
    assert look(OffsetSpec.LATEST) == look(OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED) == (4, -1)
    assert look(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED) == look(OffsetSpec.LATEST, 1) == (3, -1)
    assert look(now_ms + 1) == look(OffsetTimestamp(now_ms + 1)) == (1, now_ms + 2)
    assert look(now_ms + HOUR_MS) == (-1, -1)
    if is_before_3_0(request):
        with pytest.raises(UnsupportedVersionError, match="since 3.0"):
            look(OffsetSpec.MAX_TIMESTAMP)
    else:
        assert look(OffsetSpec.MAX_TIMESTAMP)[0] in (1, 3)
    both = admin.list_partition_offsets({first: OffsetSpec.EARLIEST, empty: OffsetSpec.LATEST}, timeout_ms=10_000)
    assert both == {first: OffsetAndTimestamp(0, -1, 0), empty: OffsetAndTimestamp(0, -1, 0)}
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-no-0"):
        admin.list_partition_offsets({TopicPartition(f"{topic}-no", 0): OffsetSpec.LATEST})
    assert f"{topic}-no" not in admin.list_topics()


@every_release
def test_brokers_before_3_0_say_so_where_they_are_asked_for_transactions(
    request: pytest.FixtureRequest, admin: KafkaAdminClient
) -> None:
    if not is_before_3_0(request):
        assert list(admin.list_transactions()) == [each["broker_id"] for each in admin.describe_cluster()["brokers"]]
        return
    for call in (
        admin.list_transactions,
        admin.find_hanging_transactions,
        lambda: admin.describe_transactions(["some"]),
    ):
        with pytest.raises(IncompatibleBrokerVersion, match=r"it looks like release 2\.8.*since release 3\.0"):
            call()
