"""Dialogues about transactions: who is asked, what the answers become, and what is said to hang."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.transactions import (
    abort_transaction,
    describe_producers,
    describe_transactions,
    find_hanging_transactions,
    list_transactions,
    read_producers,
)
from kafka.core.admin.values import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SecurityDisabledError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF
from test.core.admin.many_brokers import Brokers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT, NOT_ENOUGH_REPLICAS, AFTER_APPEND, SECURITY_DISABLED = 3, 6, 7, 19, 20, 54
LOADING, DENIED, OLD_EPOCH, FENCED, ID_DENIED, NOT_FOUND, BAD_PATTERN = 14, 29, 47, 52, 53, 105, 128
NOW_MS = 10_000_000.0
LIMIT_MS = 900_000 + 300_000
ONGOING, DONE = "Ongoing", "CompleteCommit"


class Cluster(Brokers):
    """Partition 0 is led by broker 1, partition 1 by broker 2."""

    def __init__(self, version: int = 12) -> None:
        super().__init__({A: 1, B: 2}, {}, version)
        self.listed: dict[int, list[tuple[str, int, str]]] = {1: [], 2: []}
        self.codes: dict[int, list[int]] = {}
        """Node -> the error codes of its next answers to ListTransactions."""
        self.described: dict[str, dict[str, Any]] = {}
        self.producers: dict[TopicPartition, list[Any] | int] = {}
        """Partition -> what it tells, in turn (the last for ever): a list of producers, or an error code."""
        self.markers: list[int | Exception] = [0]
        """What the next markers are answered: codes, or errors in place of answers."""
        self.unknown_states: list[str] = []
        self.handlers |= {
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
            DescribeProducersRequest: self._producers,
            WriteTxnMarkersRequest: self._mark,
        }

    def has(self, name: str, producer: int, state: str, node: int = 1, **fields: Any) -> None:
        """A transactional id, as its coordinator knows it."""
        self.where = {**self.where, name: node}
        self.listed[node].append((name, producer, state))
        self.described[name] = {"producer_id": producer, "transaction_state": state, **fields}

    def _list(self, node: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        row = ListTransactionsResponse.TransactionState
        codes = self.codes.get(node)
        return ListTransactionsResponse(
            throttle_time_ms=0,
            error_code=codes.pop(0) if codes else 0,
            unknown_state_filters=self.unknown_states,
            transaction_states=[
                row(transactional_id=name, producer_id=producer, transaction_state=state)
                for name, producer, state in self.listed[node]
            ],
        )

    def _describe(self, node: int, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            throttle_time_ms=0,
            transaction_states=[self._state(node, name) for name in request.transactional_ids],
        )

    def _state(self, node: int, name: str) -> DescribeTransactionsResponse.TransactionState:
        assert self.where[name] == node
        known = dict(self.described.get(name, {"error_code": NOT_FOUND}))
        code = known.get("error_code", 0)
        if isinstance(code, list):
            known["error_code"] = code.pop(0)
        numbers = known.pop("partitions", [])
        topics = [DescribeTransactionsResponse.TopicData(topic="t", partitions=numbers)] if numbers else []
        fields: dict[str, Any] = {
            "error_code": 0,
            "transaction_state": "",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": -1,
            "producer_id": 0,
            "producer_epoch": 0,
        }
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=name, topics=topics, **{**fields, **known}
        )

    def _producers(self, node: int, request: DescribeProducersRequest) -> DescribeProducersResponse:
        partition = DescribeProducersResponse.PartitionResponse
        topics = []
        for topic in request.topics:
            rows = []
            for number in topic.partition_indexes:
                told: Any = self.producers.get(TopicPartition(topic.name, number), [])
                if told and isinstance(told[0], list):
                    told = told.pop(0) if len(told) > 1 else told[0]
                code = told[0] if told and isinstance(told[0], int) else 0
                states = [] if code else [_state(*each) for each in told]
                text = "no" if code else None
                rows.append(
                    partition(partition_index=number, error_code=code, error_message=text, active_producers=states)
                )
            topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=rows))
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    def _mark(self, node: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Exception:
        code = self.markers.pop(0)
        if isinstance(code, Exception):
            return code
        (marker,) = request.markers
        (topic,) = marker.topics
        answer = WriteTxnMarkersResponse
        partition = answer.WritableTxnMarkerPartitionResult(
            partition_index=topic.partition_indexes[0], error_code=code
        )
        topic_result = answer.WritableTxnMarkerTopicResult(name=topic.name, partitions=[partition])
        return answer(markers=[answer.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic_result])])


def _state(producer: int, last_ms: float, start: int, coordinator_epoch: int = 0) -> Any:
    return DescribeProducersResponse.ProducerState(
        producer_id=producer,
        producer_epoch=3,
        last_sequence=7,
        last_timestamp=int(last_ms),
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=start,
    )


# -- at coordinators --------------------------------------------------------------------------------------------------


def test_every_broker_lists_what_it_coordinates() -> None:
    cluster = Cluster()
    cluster.has("a", 7, ONGOING)
    cluster.has("b", 8, "FromTheFuture", node=2)
    assert cluster.run(list_transactions(backoff=BACKOFF)) == {
        1: [TransactionListing("a", 7, TransactionState.ONGOING)],
        2: [TransactionListing("b", 8, TransactionState.UNKNOWN)],
    }
    assert cluster.run(list_transactions([2], backoff=BACKOFF)) == {
        2: [TransactionListing("b", 8, TransactionState.UNKNOWN)]
    }


def test_a_broker_that_is_loading_is_asked_again_and_the_others_are_not() -> None:
    cluster = Cluster()
    cluster.codes = {2: [LOADING, LOADING]}
    assert cluster.run(list_transactions(backoff=BACKOFF)) == {1: [], 2: []}
    assert [node for node, _ in cluster.asked(ListTransactionsRequest)] == [1, 2, 2, 2]


def test_filters_are_sent_as_they_are_meant() -> None:
    cluster = Cluster()
    cluster.run(
        list_transactions(
            [1], [5], [TransactionState.ONGOING, "prepare-commit", "completeABORT"], 60_000.0, "a.*", backoff=BACKOFF
        )
    )
    ((_, request),) = cluster.asked(ListTransactionsRequest)
    assert request.state_filters == ["Ongoing", "PrepareCommit", "CompleteAbort"]
    assert (request.producer_id_filters, request.duration_filter) == ([5], 60_000)
    assert request.transactional_id_pattern == "a.*"
    with pytest.raises(IllegalArgumentError, match="'open': one of CompleteAbort"):
        cluster.run(list_transactions(state_filters=["open"], backoff=BACKOFF))
    cluster.codes = {1: [BAD_PATTERN]}
    with pytest.raises(InvalidRegularExpressionError, match="list_transactions at node 1"):
        cluster.run(list_transactions(transactional_id_pattern="([", backoff=BACKOFF))


def test_nothing_is_filtered_unless_that_is_asked_for() -> None:
    """-1 and null mean no filter in ListTransactions (KIP-994, KIP-1152); 0 ms is one."""
    cluster = Cluster()
    cluster.run(list_transactions([1], backoff=BACKOFF))
    cluster.run(list_transactions([1], [], ["empty"], 0, "", backoff=BACKOFF))
    (_, one), (_, other) = cluster.asked(ListTransactionsRequest)
    assert (one.state_filters, one.producer_id_filters) == ([], [])
    assert (one.duration_filter, one.transactional_id_pattern) == (-1, None)
    assert (other.state_filters, other.producer_id_filters) == (["Empty"], [])
    assert (other.duration_filter, other.transactional_id_pattern) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"broker_ids": 1}, "broker_ids=1: a list"),
        ({"broker_ids": ["1"]}, "broker_ids="),
        ({"producer_id_filters": 0}, "producer_id_filters=0: a list"),
        ({"state_filters": "ongoing"}, "state_filters='ongoing': a list"),
        ({"state_filters": ["unknown"]}, "the state Unknown"),
        ({"duration_filter_ms": -1}, "duration_filter_ms=-1: at least 0"),
        ({"duration_filter_ms": float("inf")}, "duration_filter_ms=inf"),
        ({"duration_filter_ms": float("nan")}, "duration_filter_ms=nan"),
        ({"duration_filter_ms": "1"}, "duration_filter_ms='1'"),
    ],
)
def test_what_cannot_be_listed_is_refused_before_anything_is_asked(arguments: Any, text: str) -> None:
    cluster = Cluster()
    with pytest.raises(IllegalArgumentError, match=text):
        cluster.run(list_transactions(**arguments, backoff=BACKOFF))
    assert cluster.sent == []


def test_a_state_that_a_broker_does_not_know_is_an_error_and_no_empty_list() -> None:
    cluster = Cluster()
    cluster.unknown_states = ["PrepareEpochFence"]
    with pytest.raises(UnsupportedVersionError, match="node 1 knows no state PrepareEpochFence: leave") as caught:
        cluster.run(list_transactions(state_filters=["prepare-epoch-fence"], backoff=BACKOFF))
    assert "since release" not in str(caught.value)


@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), UnknownBrokerIdError("node 2")])
def test_a_broker_that_leaves_the_cluster_is_not_waited_for(error: Exception) -> None:
    cluster = Cluster()

    def answer(node: int, request: ListTransactionsRequest) -> Any:
        if node != 2:
            return cluster._list(node, request)
        cluster.ids = [1]
        return error

    cluster.handlers[ListTransactionsRequest] = answer
    assert cluster.run(list_transactions(backoff=BACKOFF)) == {1: []}
    with pytest.raises((KafkaTimeoutError, UnknownBrokerIdError)):
        cluster.run(list_transactions([2], backoff=BACKOFF))


def test_what_a_broker_listed_that_has_left_since_is_dropped() -> None:
    cluster = Cluster()
    cluster.has("a", 7, ONGOING)

    def answer(node: int, request: ListTransactionsRequest) -> Any:
        if node == 2 and cluster.ids == [1, 2]:
            cluster.ids, cluster.codes = [2], {2: [LOADING]}
        return cluster._list(node, request)

    cluster.handlers[ListTransactionsRequest] = answer
    assert cluster.run(list_transactions(backoff=BACKOFF)) == {2: []}


@pytest.mark.parametrize(
    ("filters", "version", "release"),
    [({"duration_filter_ms": 1}, 0, "3.8"), ({"transactional_id_pattern": "a"}, 1, "4.1")],
)
def test_a_filter_that_a_broker_does_not_have_is_refused(filters: Any, version: int, release: str) -> None:
    cluster = Cluster(version)
    with pytest.raises(IncompatibleBrokerVersion, match=f"since release {release}"):
        cluster.run(list_transactions([1], **filters, backoff=BACKOFF))
    assert cluster.asked(ListTransactionsRequest) == []
    assert cluster.run(list_transactions([1], backoff=BACKOFF)) == {1: []}
    assert Cluster(version + 1).run(list_transactions([1], **filters, backoff=BACKOFF)) == {1: []}


def test_each_transaction_is_described_by_its_coordinator() -> None:
    cluster = Cluster()
    cluster.has("a", 7, ONGOING, transaction_start_time_ms=5, partitions=[0, 1], producer_epoch=2)
    cluster.has("b", 8, "Empty", node=2, error_code=[LOADING, 0])
    assert cluster.run(describe_transactions(["a", "b"], backoff=BACKOFF)) == {
        "a": TransactionDescription(1, TransactionState.ONGOING, 7, 2, 60_000, 5, {A, B}),
        "b": TransactionDescription(2, TransactionState.EMPTY, 8, 0, 60_000, -1, set()),
    }
    asked = [request.transactional_ids for _, request in cluster.asked(DescribeTransactionsRequest)]
    assert asked == [["a"], ["b"], ["b"]]
    cluster.where = {**cluster.where, "c": 1}
    with pytest.raises(TransactionalIdNotFoundError, match="transactional id c"):
        cluster.run(describe_transactions(["a", "c"], backoff=BACKOFF))
    assert cluster.run(describe_transactions([], backoff=BACKOFF)) == {}
    with pytest.raises(IllegalArgumentError, match="transactional_ids='a': a list"):
        cluster.run(describe_transactions("a", backoff=BACKOFF))


def test_coordinators_of_transactions_are_looked_up_one_by_one_where_brokers_take_one_key() -> None:
    cluster = Cluster(version=3)
    cluster.has("a", 7, ONGOING)
    assert list(cluster.run(describe_transactions(["a"], backoff=BACKOFF))) == ["a"]


@pytest.mark.parametrize(
    ("kind", "ask", "release"),
    [
        (ListTransactionsRequest, lambda: list_transactions(backoff=BACKOFF), "3.0"),
        (DescribeTransactionsRequest, lambda: describe_transactions(["a"], backoff=BACKOFF), "3.0"),
        (DescribeProducersRequest, lambda: describe_producers([A], backoff=BACKOFF), "2.8"),
        (ListTransactionsRequest, lambda: find_hanging_transactions(now_ms=NOW_MS, backoff=BACKOFF), "3.0"),
    ],
)
def test_an_error_of_an_old_broker_names_the_release_that_is_needed(kind: type, ask: Any, release: str) -> None:
    cluster = Cluster()
    cluster.where = {"a": 1}
    del cluster.handlers[kind]
    with pytest.raises(IncompatibleBrokerVersion, match=f"since release {release}"):
        cluster.run(ask())


# -- in partitions ----------------------------------------------------------------------------------------------------


def test_leaders_or_a_replica_describe_producers() -> None:
    cluster = Cluster()
    cluster.producers = {A: [(7, 100, 5)]}
    known = PartitionProducerState([ProducerState(7, 3, 7, 100, 0, 5)])
    assert cluster.run(describe_producers([A, B], backoff=BACKOFF)) == {A: known, B: PartitionProducerState([])}
    assert [node for node, _ in cluster.asked(DescribeProducersRequest)] == [1, 2]
    cluster.sent.clear()
    cluster.run(describe_producers([A, B], 9, backoff=BACKOFF))
    assert [node for node, _ in cluster.sent] == [9]
    cluster.producers[B] = [DENIED]
    with pytest.raises(TopicAuthorizationFailedError, match="t-1: no"):
        cluster.run(describe_producers([A, B], backoff=BACKOFF))


def test_an_error_of_a_partition_has_the_brokers_text_or_an_empty_one() -> None:
    message = DescribeProducersResponse
    parts = [
        message.PartitionResponse(partition_index=number, error_code=DENIED, error_message=text, active_producers=[])
        for number, text in enumerate(["no", None])
    ]
    found: Any = read_producers(message(throttle_time_ms=0, topics=[message.TopicResponse(name="t", partitions=parts)]))
    assert (found[A].args, found[B].args) == (("no",), ("",))


def test_an_abort_is_a_marker_for_the_partitions_leader() -> None:
    cluster = Cluster()
    cluster.markers = [6, 0]
    assert cluster.run(abort_transaction(AbortTransactionSpec(B, 7, 3), backoff=BACKOFF)) is None
    (_, (node, request)) = cluster.asked(WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert node == 2 and [(t.name, t.partition_indexes) for t in marker.topics] == [("t", [1])]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    assert (marker.coordinator_epoch, marker.transaction_version) == (-1, 0)


def test_an_abort_without_a_coordinators_epoch_takes_the_partitions_when_that_is_asked_for() -> None:
    cluster = Cluster()
    cluster.markers = [FENCED, 0]
    cluster.producers = {A: [(6, 0, -1, 99), (7, 0, 5, 12)]}
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    epochs = [request.markers[0].coordinator_epoch for _, request in cluster.asked(WriteTxnMarkersRequest)]
    assert epochs == [-1, 12]


@pytest.mark.parametrize("producers", [[], [(7, 0, 5, -1)]])
def test_a_partition_that_no_coordinator_has_marked_takes_its_first_epoch(producers: list[Any]) -> None:
    """-1 is what a partition tells then, which is not above itself."""
    cluster = Cluster()
    cluster.markers = [FENCED, 0]
    cluster.producers = {A: producers}
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    epochs = [request.markers[0].coordinator_epoch for _, request in cluster.asked(WriteTxnMarkersRequest)]
    assert epochs == [-1, 0]


@pytest.mark.parametrize(
    ("is_old", "error"), [(True, IncompatibleBrokerVersion), (False, TopicAuthorizationFailedError)]
)
def test_an_epoch_that_cannot_be_looked_up_is_not_guessed(is_old: bool, error: type[Exception]) -> None:
    cluster = Cluster()
    cluster.markers = [FENCED, 0]
    cluster.producers = {A: [DENIED]}
    if is_old:
        del cluster.handlers[DescribeProducersRequest]
    with pytest.raises(error):
        cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert cluster.markers == [0]


def test_an_epoch_that_was_given_is_taken_as_it_is() -> None:
    cluster = Cluster()
    for epoch in (0, 4):
        cluster.markers = [FENCED]
        with pytest.raises(TransactionCoordinatorFencedError, match="t-0"):
            cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3, epoch), backoff=BACKOFF))
    cluster.markers = [OLD_EPOCH]
    with pytest.raises(InvalidProducerEpochError, match="t-0"):
        cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    with pytest.raises(IllegalArgumentError, match="at least 0"):
        cluster.run(abort_transaction(AbortTransactionSpec(A, -1, 3), backoff=BACKOFF))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "None: an AbortTransactionSpec"),
        ("events", "an AbortTransactionSpec"),
        (("events", 1, 0), "'events': a TopicPartition"),
        ((A, "1", 0), "producer_id='1'"),
        ((A, 1, None), "producer_epoch=None"),
        ((A, True, 0), "producer_id=True"),
        ((A, 9_223_372_036_854_775_808, 0), "producer_id=9223372036854775808"),
        ((A, 1, -1), "producer_epoch=-1"),
        ((A, 1, 32_768), "producer_epoch=32768"),
        ((A, 1, 0, -2), "coordinator_epoch=-2"),
        ((A, 1, 0, 2_147_483_648), "coordinator_epoch=2147483648"),
    ],
)
def test_what_names_no_transaction_is_refused_before_anything_is_asked(spec: Any, text: str) -> None:
    cluster = Cluster()
    with pytest.raises(IllegalArgumentError, match=text):
        cluster.run(abort_transaction(spec, backoff=BACKOFF))
    assert cluster.sent == []


@pytest.mark.parametrize("fields", [(0, 0, -1), (9_223_372_036_854_775_807, 32_767, 2_147_483_647)])
def test_a_marker_names_any_producer_and_epochs_that_the_protocol_has_room_for(fields: tuple[int, int, int]) -> None:
    """int64, int16 and int32 in WriteTxnMarkers; no id and no epoch is below 0, and -1 is no coordinator's epoch."""
    cluster = Cluster()
    cluster.run(abort_transaction(AbortTransactionSpec(A, *fields), backoff=BACKOFF))
    ((_, request),) = cluster.asked(WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == fields


LOST = [KafkaConnectionError("the answer is lost"), TIMED_OUT, AFTER_APPEND]


@pytest.mark.parametrize("lost", [*LOST, NOT_LEADER])
@pytest.mark.parametrize("then", [[], [(7, 0, -1)], [(7, 0, 9)]])
def test_a_producers_next_transaction_is_not_aborted_when_the_answer_about_this_one_is_lost(
    lost: Any, then: list[Any]
) -> None:
    cluster = Cluster()
    cluster.markers = [lost, 0]
    cluster.producers = {A: [[(6, 0, 1), (7, 0, 5)], then]}
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert cluster.markers == [0]


@pytest.mark.parametrize("lost", LOST)
def test_a_transaction_that_is_still_there_is_aborted_again(lost: Any) -> None:
    cluster = Cluster()
    cluster.markers = [lost, lost, 0]
    cluster.producers = {A: [(7, 0, 5)]}
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert cluster.markers == []


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("is_old", [True, False])
def test_the_outcome_is_not_known_where_the_partition_cannot_be_asked(lost: Any, is_old: bool) -> None:
    """But it is where the broker says that it has appended nothing: ``ReplicaManager.appendRecords`` looks for the
    partition, its leader and the replicas in sync first."""
    cluster = Cluster()
    cluster.markers = [NOT_LEADER, UNKNOWN_TOPIC, NOT_ENOUGH_REPLICAS, lost, 0]
    cluster.producers = {A: [DENIED]}
    if is_old:
        del cluster.handlers[DescribeProducersRequest]
    with pytest.raises(KafkaError, match=r"producer 7 in t-0: the outcome is not known"):
        cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert cluster.markers == [0]


def test_what_keeps_a_marker_from_being_sent_is_tried_again_where_the_partition_cannot_be_asked() -> None:
    cluster = Cluster()
    cluster.producers = {A: [DENIED]}
    answers: list[Any] = [None, KafkaConnectionError("not reached"), None]

    def metadata(node: Any, request: MetadataRequest) -> Any:
        return answers.pop(0) or cluster._metadata(node, request)

    cluster.handlers[MetadataRequest] = metadata
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert (answers, cluster.markers) == ([], [])


def test_a_final_error_is_raised_as_it_is_where_the_partition_cannot_be_asked() -> None:
    cluster = Cluster()
    cluster.markers = [OLD_EPOCH]
    cluster.producers = {A: [DENIED]}
    with pytest.raises(InvalidProducerEpochError) as caught:
        cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert "not known" not in str(caught.value)


def test_an_epoch_is_not_looked_up_for_a_transaction_that_is_over() -> None:
    cluster = Cluster()
    cluster.markers = [FENCED, 0]
    cluster.producers = {A: [[(7, 0, 5, 12)], [(7, 0, 9, 12)]]}
    cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF))
    assert cluster.markers == [0]


def test_a_missing_partition_is_an_error_at_once() -> None:
    cluster = Cluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no t-9"):
        cluster.run(abort_transaction(AbortTransactionSpec(TopicPartition("t", 9), 7, 3), backoff=BACKOFF))
    assert len(cluster.sent) == 1


def test_an_abort_takes_no_more_time_than_it_has() -> None:
    cluster = Cluster()
    cluster.markers = [TIMED_OUT] * 99
    cluster.producers = {A: [(7, 0, 5)]}
    with pytest.raises(KafkaTimeoutError, match="aborting the transaction of producer 7 in t-0"):
        cluster.run(abort_transaction(AbortTransactionSpec(A, 7, 3), backoff=BACKOFF, timeout_s=1.0))
    assert 5 < 99 - len(cluster.markers) < 15


# -- what hangs -------------------------------------------------------------------------------------------------------


def hanging(cluster: Cluster, *broker_ids: int, now_ms: float = NOW_MS) -> list[tuple[Any, ...]]:
    found = cluster.run(find_hanging_transactions(broker_ids or None, now_ms=now_ms, backoff=BACKOFF))
    keys = ["transactional_id", "producer_id", "state", "age_ms", "coordinator_id", "topic_partitions"]
    assert all(set(row) == {*keys, "producer_epoch"} for row in found)
    return [tuple(row[key] for key in keys) for row in found]


def test_a_transaction_hangs_when_its_coordinator_has_not_ended_it_long_after_its_time() -> None:
    cluster = Cluster()
    began_ms = int(NOW_MS - LIMIT_MS)
    cluster.has("old", 7, ONGOING, transaction_start_time_ms=began_ms, partitions=[1, 0])
    cluster.has("young", 8, ONGOING, transaction_start_time_ms=began_ms + 1, partitions=[0])
    cluster.has("over", 9, DONE, transaction_start_time_ms=0)
    cluster.has("idle", 10, "Empty")
    cluster.has("gone", 11, ONGOING, error_code=NOT_FOUND)
    cluster.has("there", 12, "PrepareAbort", node=2, transaction_start_time_ms=0, partitions=[1])
    old = ("old", 7, ONGOING, LIMIT_MS, 1, [A, B])
    there = ("there", 12, "PrepareAbort", int(NOW_MS), 2, [B])
    assert hanging(cluster) == [old, there]
    assert hanging(cluster, 1) == [old]
    assert hanging(cluster, 2) == [there]


@pytest.mark.parametrize(
    ("state", "is_live"),
    [
        ("Empty", False), ("Ongoing", True), ("PrepareCommit", True), ("PrepareAbort", True),
        ("CompleteCommit", False), ("CompleteAbort", False), ("Dead", False), ("PrepareEpochFence", True),
        ("FromTheFuture", True),
    ],
)  # fmt: skip
def test_a_transaction_is_open_until_its_markers_are_written(state: str, is_live: bool) -> None:
    """``org.apache.kafka.coordinator.transaction.TransactionState``: the coordinator writes them in the states that
    begin with Prepare. A state that this client does not know may be such a one."""
    cluster = Cluster()
    cluster.has("a", 7, state, transaction_start_time_ms=0, partitions=[0], transaction_state="Ongoing")
    cluster.has("b", 8, "Ongoing", transaction_start_time_ms=0, partitions=[0])
    cluster.described["b"]["transaction_state"] = state
    assert [row[0] for row in hanging(cluster)] == (["a", "b"] if is_live else [])
    asked = [request.transactional_ids for _, request in cluster.asked(DescribeTransactionsRequest)]
    assert asked == [["a", "b"] if is_live else ["b"]]


def test_only_what_may_hang_is_described() -> None:
    """Of other coordinators' transactions those of producers that have had something open for long."""
    cluster = Cluster()
    for name, producer, node in (("mine", 7, 1), ("writers", 8, 2), ("others", 9, 2)):
        cluster.has(name, producer, ONGOING, node=node, transaction_start_time_ms=int(NOW_MS), partitions=[0])
    cluster.has("over", 10, DONE)
    cluster.producers = {A: [(7, 0, 4), (8, 0, 5), (9, NOW_MS, 6)]}
    assert hanging(cluster, 1) == []
    asked = [request.transactional_ids for _, request in cluster.asked(DescribeTransactionsRequest)]
    assert asked == [["mine"], ["writers"]]
    cluster.sent.clear()
    cluster.described["writers"]["partitions"] = [1]
    assert hanging(cluster, 1) == [("writers", 8, ONGOING, int(NOW_MS), 2, [A])]
    asked = [request.transactional_ids for _, request in cluster.asked(DescribeTransactionsRequest)]
    assert asked == [["mine"], ["writers"], ["writers"]], "the second time those of the producers in question alone"


def test_a_transaction_may_be_open_from_the_first_offset_and_at_broker_0() -> None:
    cluster = Cluster()
    cluster.leaders = {A: 0, TopicPartition("__transaction_state", 0): 0}
    cluster.producers = {A: [(7, 0, 0)]}
    assert hanging(cluster) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]
    assert hanging(cluster, 0) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]


def test_an_error_of_a_coordinator_is_raised_with_the_transactional_id() -> None:
    cluster = Cluster()
    cluster.has("mine", 7, ONGOING, error_code=ID_DENIED)
    with pytest.raises(TransactionalIdAuthorizationFailedError, match="transactional id mine"):
        hanging(cluster)


def test_who_may_not_see_the_coordinators_cannot_know_of_all() -> None:
    cluster = Cluster()
    cluster.producers = {A: [(7, 0, 4)]}

    def metadata(node: Any, request: MetadataRequest) -> Any:
        names = None if request.topics is None else [topic.name for topic in request.topics]
        if names != ["__transaction_state"]:
            return cluster._metadata(node, request)
        denied = MetadataResponse.MetadataResponseTopic(error_code=DENIED, name="__transaction_state", partitions=[])
        return MetadataResponse(brokers=[], topics=[denied])

    cluster.handlers[MetadataRequest] = metadata
    with pytest.raises(TopicAuthorizationFailedError, match="__transaction_state has to be seen"):
        hanging(cluster)


def test_a_partition_that_is_deleted_while_it_is_looked_for_is_left_out() -> None:
    cluster = Cluster()
    cluster.producers = {A: [(7, 0, 4)], B: [(8, 0, 4)]}

    def metadata(node: Any, request: MetadataRequest) -> Any:
        answer = cluster._metadata(node, request)
        if request.topics is None:
            del cluster.leaders[B]
        return answer

    cluster.handlers[MetadataRequest] = metadata
    assert hanging(cluster) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]


def test_a_transaction_hangs_when_it_is_open_in_a_partition_and_no_coordinator_knows_it() -> None:
    cluster = Cluster()
    cluster.has("mine", 8, DONE, node=2)
    long_ago = NOW_MS - LIMIT_MS
    cluster.producers = {
        A: [(7, long_ago - 5, 4), (8, long_ago, 9), (9, long_ago + 1, 2), (10, long_ago, -1)],
        B: [(7, long_ago - 9, 1)],
    }
    assert sorted(hanging(cluster), key=str, reverse=True) == [
        (None, 7, "Unknown", LIMIT_MS + 5, -1, [A, B]),
        ("mine", 8, DONE, LIMIT_MS, 2, [A]),
    ]
    assert hanging(cluster, 2) == [(None, 7, "Unknown", LIMIT_MS + 9, -1, [B])]


def test_a_transaction_that_its_coordinator_knows_in_that_partition_does_not_hang_while_it_has_time() -> None:
    """Records may carry any timestamp, so an old one is no proof. Who coordinates it counts, not who was asked."""
    cluster = Cluster()
    cluster.has("mine", 7, ONGOING, node=2, transaction_start_time_ms=int(NOW_MS), partitions=[0])
    cluster.producers = {A: [(7, 0, 4)]}
    assert hanging(cluster) == []
    assert hanging(cluster, 1) == []
    cluster.described["mine"]["partitions"] = [1]
    assert hanging(cluster, 1) == [("mine", 7, ONGOING, int(NOW_MS), 2, [A])]


def test_one_that_ends_while_it_is_looked_for_does_not_hang() -> None:
    for then in ([], [(7, 0, -1)], [(7, 0, 99)]):
        cluster = Cluster()
        cluster.producers = {A: [[(7, 0, 4)], then]}
        assert hanging(cluster) == []


def test_partitions_that_cannot_be_looked_at_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.leaders[TopicPartition("u", 0)] = -1
    cluster.producers = {A: [(7, 0, 4)], B: [DENIED]}
    with caplog.at_level("INFO", "kafka.core.admin.transactions"):
        assert hanging(cluster) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]
    assert sorted(record.getMessage().split(" skipped ")[1].split(":")[0] for record in caplog.records) == [
        "t-1", "u-0",
    ]  # fmt: skip


def test_a_partition_that_moves_while_it_is_looked_at_is_asked_again() -> None:
    cluster = Cluster()
    cluster.producers = {A: [[NOT_LEADER], [(7, 0, 4)], [NOT_LEADER], [(7, 0, 4)]]}
    assert hanging(cluster) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]


def test_an_error_of_another_kind_is_raised_and_not_taken_for_nothing_that_hangs() -> None:
    cluster = Cluster()
    cluster.producers = {A: [SECURITY_DISABLED]}
    with pytest.raises(SecurityDisabledError, match="t-0"):
        hanging(cluster)


def test_no_transaction_counts_as_unknown_while_a_coordinator_cannot_be_asked() -> None:
    cluster = Cluster()
    state = TopicPartition("__transaction_state", 0)
    cluster.leaders[state] = -1
    assert hanging(cluster) == []
    cluster.producers = {A: [(7, 0, 4)]}
    with pytest.raises(KafkaTimeoutError, match="__transaction_state-0 has no leader now"):
        hanging(cluster)
    cluster.leaders[state] = 2
    assert hanging(cluster) == [(None, 7, "Unknown", int(NOW_MS), -1, [A])]


def test_a_transaction_that_a_coordinator_knows_the_second_time_does_not_hang() -> None:
    """What coordinates it was between two brokers, the first time."""
    cluster = Cluster()
    cluster.has("mine", 7, ONGOING, node=2, transaction_start_time_ms=int(NOW_MS), partitions=[0])
    cluster.producers = {A: [(7, 0, 4)], B: [(8, 0, 1)]}
    silent = [1, 2]

    def answer(node: int, request: ListTransactionsRequest) -> Any:
        found = cluster._list(node, request)
        if node in silent:
            silent.remove(node)
            found.transaction_states = []
        return found

    cluster.handlers[ListTransactionsRequest] = answer
    assert hanging(cluster) == [(None, 8, "Unknown", int(NOW_MS), -1, [B])]


def test_all_that_is_asked_shares_one_time() -> None:
    cluster = Cluster()
    cluster.producers = {A: [*[[NOT_LEADER]] * 6, [(7, 0, 4)]]}
    cluster.codes = {1: [LOADING] * 99}
    with pytest.raises(KafkaTimeoutError):
        cluster.run(find_hanging_transactions(now_ms=NOW_MS, backoff=BACKOFF, timeout_s=1.0))
    assert 99 - len(cluster.codes[1]) < 6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"broker_ids": 1}, "broker_ids=1: a list"),
        ({"max_transaction_timeout_ms": "1"}, "max_transaction_timeout_ms='1'"),
        ({"max_transaction_timeout_ms": float("nan")}, "max_transaction_timeout_ms=nan"),
    ],
)
def test_a_wrong_way_to_look_for_what_hangs_is_refused_before_anything_is_asked(arguments: Any, text: str) -> None:
    cluster = Cluster()
    with pytest.raises(IllegalArgumentError, match=text):
        cluster.run(find_hanging_transactions(**arguments, now_ms=NOW_MS, backoff=BACKOFF))
    assert cluster.sent == []
