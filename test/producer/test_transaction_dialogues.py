"""The requests of a transaction, step by step: to whom, in which version, and what is waited for in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, Forget, Send, Sleep
from kafka.core.produce.batch import PartitionQueue, ProducerIdAndEpoch
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.core.routing import Coordinator, CoordinatorType
from kafka.core.states import TransactionPhase
from kafka.errors import (
    AbortableTransactionError,
    Cancelled,
    FatalTransactionError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.producer.transactions import TransactionDialogues
from kafka.protocol.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

TRANSACTION = Coordinator("id", CoordinatorType.TRANSACTION)
GROUP = ConsumerGroupMetadata("g", 3, "member", "instance")
Answer = Any


class Talk:
    """One dialogue, and what it asks for."""

    def __init__(self, dialogue: Dialogue[None]) -> None:
        self._dialogue = dialogue
        self.steps: list[Any] = []
        self.is_done = False
        self._go_on(lambda: next(dialogue))

    def _go_on(self, advance: Callable[[], Any]) -> None:
        """Pass over waits and forgetting, up to the next request or the end."""
        try:
            step = advance()
            while not isinstance(step, Send):
                self.steps.append(step)
                step = self._dialogue.send(None)
        except StopIteration:
            self.is_done = True
            return
        self.steps.append(step)

    @property
    def asked(self) -> Send:
        step = self.steps[-1]
        assert isinstance(step, Send)
        return step

    def request(self, version: int) -> Any:
        request = self.asked.request
        return request.build(version) if isinstance(request, ByVersion) else request

    def answer(self, answer: Answer) -> Talk:
        if isinstance(answer, BaseException):
            self._go_on(lambda: self._dialogue.throw(answer))
        else:
            self._go_on(lambda: self._dialogue.send(answer))
        return self

    @property
    def waits(self) -> list[float]:
        return [step.seconds for step in self.steps if isinstance(step, Sleep)]

    @property
    def forgotten(self) -> list[Coordinator]:
        return [step.coordinator for step in self.steps if isinstance(step, Forget)]


class Rig:
    """A machine in a transaction, and its dialogues. ``level``: what the cluster speaks."""

    def __init__(self, version: int = 2, state: TransactionPhase = TransactionPhase.IN_TRANSACTION) -> None:
        self.level = version
        self.machine = TransactionManager("id")
        no_chance = random.Random(1)
        self.dialogues = TransactionDialogues(
            self.machine, 1234, Backoff(0.1, 1.0, no_chance, 0), Backoff(0.02, 0.1, no_chance, 0), lambda: self.level
        )
        if state is TransactionPhase.UNINITIALIZED:
            self.machine.begin_initializing()
            return
        self.machine.begin_initializing()
        self.machine.initialized(ProducerIdAndEpoch(7, 3), can_bump=True, version=version)
        self.machine.begin()

    def want(self, *partitions: tuple[str, int]) -> None:
        for topic, number in partitions:
            assert not self.machine.may_send(PartitionQueue(topic, number), in_doubt=False)


def initialized(code: int = 0, producer: tuple[int, int] = (7, 3)) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer[0], producer_epoch=producer[1]
    )


def ended(code: int = 0, producer: tuple[int, int] = (-1, -1)) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=code, producer_id=producer[0], producer_epoch=producer[1])


def added(**codes: int) -> AddPartitionsToTxnResponse:
    cls = AddPartitionsToTxnResponse
    return cls(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            cls.AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    cls.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
                ],
            )
            for topic, code in codes.items()
        ],
    )


def offsets_taken(*codes: int) -> TxnOffsetCommitResponse:
    cls = TxnOffsetCommitResponse
    partitions = [
        cls.TxnOffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return cls(throttle_time_ms=0, topics=[cls.TxnOffsetCommitResponseTopic(name="in", partitions=partitions)])


def test_initializing_finds_out_what_the_coordinator_can_do() -> None:
    for version, can_bump in ((2, False), (3, True)):
        rig = Rig(state=TransactionPhase.UNINITIALIZED)
        talk = Talk(rig.dialogues.initialize())
        assert talk.asked.target == TRANSACTION
        request = talk.request(version)
        assert (request.transactional_id, request.transaction_timeout_ms) == ("id", 1234)
        assert (request.producer_id, request.producer_epoch) == (-1, -1)
        assert talk.answer(initialized()).is_done
        assert rig.machine.can_bump is can_bump
        assert rig.machine.identity == (7, 3)


def test_a_coordinator_that_has_moved_is_looked_up_and_one_that_loads_is_waited_for() -> None:
    talk = Talk(Rig(state=TransactionPhase.UNINITIALIZED).dialogues.initialize())
    talk.answer(initialized(14))
    assert talk.forgotten == []
    talk.answer(initialized(16)).answer(initialized(15)).answer(KafkaConnectionError("gone"))
    assert talk.forgotten == [TRANSACTION] * 3
    assert talk.waits == [0.1, 0.2, 0.4, 0.8]
    assert talk.answer(initialized()).is_done


def test_a_transaction_that_is_being_completed_is_waited_for_in_short_steps() -> None:
    rig = Rig(version=1)
    rig.want(("a", 0))
    talk = Talk(rig.dialogues.add_partitions())
    talk.answer(added(a=51)).answer(added(a=51))
    assert talk.waits == [0.02, 0.04]
    assert talk.forgotten == []


def test_no_answer_in_time_is_no_answer_and_asked_again() -> None:
    rig = Rig()
    rig.machine.begin_commit()
    rig.machine.offsets_added()
    talk = Talk(rig.dialogues.end(True))
    talk.answer(KafkaTimeoutError("not sent")).answer(ended(7))
    assert not talk.is_done
    assert talk.answer(ended(0, (7, 4))).is_done
    assert rig.machine.identity == (7, 4)


def test_what_closes_the_client_ends_the_dialogue_as_it_is() -> None:
    rig = Rig()
    rig.machine.offsets_added()
    rig.machine.begin_commit()
    with pytest.raises(Cancelled):
        Talk(rig.dialogues.end(True)).answer(Cancelled("closed"))
    assert rig.machine.state is TransactionPhase.COMMITTING


@pytest.mark.parametrize("error", [IncompatibleBrokerVersion("old"), TransactionalIdAuthorizationFailedError("find")])
def test_a_coordinator_that_cannot_be_asked_is_fatal(error: Exception) -> None:
    rig = Rig(state=TransactionPhase.UNINITIALIZED)
    with pytest.raises(FatalTransactionError):
        Talk(rig.dialogues.initialize()).answer(error)
    assert rig.machine.state is TransactionPhase.FATAL_ERROR


def test_new_partitions_are_added_by_one_request() -> None:
    rig = Rig(version=1)
    rig.want(("a", 0), ("b", 0), ("a", 1))
    talk = Talk(rig.dialogues.add_partitions())
    assert (talk.asked.min_version, talk.asked.max_version) == (None, 3)
    request = talk.request(3)
    assert {topic.name: topic.partitions for topic in request.v3_and_below_topics} == {"a": [0, 1], "b": [0]}
    assert talk.answer(added(a=0, b=0)).is_done
    assert rig.machine.may_send(PartitionQueue("a", 1), in_doubt=False)


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        ({"a": 55, "b": 29}, TopicAuthorizationFailedError),
        ({"a": 29, "b": 3}, TopicAuthorizationFailedError),
        ({"a": 29, "b": 53}, TransactionalIdAuthorizationFailedError),
    ],
)
def test_the_gravest_of_several_errors_decides(codes: dict[str, int], wanted: type[Exception]) -> None:
    rig = Rig(version=1)
    rig.want(("a", 0), ("b", 0))
    with pytest.raises(wanted):
        Talk(rig.dialogues.add_partitions()).answer(added(**codes))


def test_partitions_whose_adding_has_failed_are_nobodys() -> None:
    rig = Rig(version=1)
    rig.want(("a", 0))
    with pytest.raises(AbortableTransactionError):
        Talk(rig.dialogues.add_partitions()).answer(added(a=29))
    assert not rig.machine.is_started
    assert not rig.machine.has_new_partitions


def test_offsets_of_version_1_name_the_group_to_the_coordinator_first() -> None:
    rig = Rig(version=1)
    talk = Talk(rig.dialogues.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(5)}, GROUP))
    assert talk.asked.target == TRANSACTION
    assert talk.request(3).group_id == "g"
    talk.answer(AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0))
    assert rig.machine.is_started
    assert talk.asked.target == Coordinator("g")
    assert talk.asked.max_version == 4


def test_offsets_of_version_2_go_to_the_group_alone() -> None:
    talk = Talk(Rig().dialogues.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(5)}, GROUP))
    assert talk.asked.target == Coordinator("g")
    assert talk.asked.min_version == 5


def test_the_committing_member_is_sent_to_brokers_that_ask() -> None:
    talk = Talk(Rig().dialogues.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(5, "m", 2)}, GROUP))
    for version, member in ((2, (-1, "", None)), (3, (3, "member", "instance"))):
        request = talk.request(version)
        assert (request.generation_id, request.member_id, request.group_instance_id) == member
    (one,) = request.topics[0].partitions
    assert (one.committed_offset, one.committed_metadata, one.committed_leader_epoch) == (5, "m", 2)


def test_only_offsets_that_were_not_taken_are_sent_again() -> None:
    rig = Rig()
    offsets = {TopicPartition("in", number): OffsetAndMetadata(number) for number in range(3)}
    talk = Talk(rig.dialogues.send_offsets(offsets, GROUP))
    talk.answer(offsets_taken(0, 3, 0))
    assert [one.partition_index for one in talk.request(5).topics[0].partitions] == [1]
    talk.answer(offsets_taken(7))
    assert talk.forgotten == [Coordinator("g")]
    with pytest.raises(GroupAuthorizationFailedError):
        talk.answer(offsets_taken(30))
    assert rig.machine.state is TransactionPhase.ABORTABLE_ERROR


def test_offsets_are_not_sent_again_when_the_transaction_is_aborted_meanwhile() -> None:
    rig = Rig()
    talk = Talk(rig.dialogues.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(5)}, GROUP))
    rig.machine.begin_abort()
    with pytest.raises(AbortableTransactionError):
        talk.answer(offsets_taken(14))


def test_each_protocol_ends_in_its_versions() -> None:
    for version, wanted in ((1, (None, 4)), (2, (5, None))):
        rig = Rig(version=version)
        rig.machine.offsets_added()
        rig.machine.begin_commit()
        talk = Talk(rig.dialogues.end(True))
        assert (talk.asked.min_version, talk.asked.max_version) == wanted
        assert talk.request(4).committed
        assert talk.answer(ended(0, (8, 0) if version == 2 else (-1, -1))).is_done
        assert rig.machine.identity == ((8, 0) if version == 2 else (7, 3))


def test_the_step_to_version_2_asks_for_the_next_epoch_after_the_end() -> None:
    rig = Rig(version=1)
    rig.machine.offsets_added()
    rig.machine.begin_commit()
    rig.level = 2
    talk = Talk(rig.dialogues.end(True))
    assert talk.asked.max_version == 4, "it ends as it has begun"
    talk.answer(ended())
    request = talk.request(5)
    assert (request.producer_id, request.producer_epoch) == (7, 3)
    assert talk.answer(initialized(0, (7, 4))).is_done
    assert (rig.machine.identity, rig.machine.version) == ((7, 4), 2)


def test_what_was_never_begun_is_ended_without_a_word() -> None:
    rig = Rig()
    rig.machine.begin_commit()
    assert Talk(rig.dialogues.end(True)).is_done
    assert rig.machine.state is TransactionPhase.READY
