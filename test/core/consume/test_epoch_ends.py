from __future__ import annotations

from typing import Any

import pytest

from kafka.core.consume.offsets import EpochEnd, EpochQuery, epoch_ends
from kafka.core.dialogue import All
from kafka.errors import IncompatibleBrokerVersion, KafkaError, UnknownLeaderEpochError
from kafka.protocol.offsets import OffsetForLeaderEpochResponse as R
from test.core.consume.rig import A, B, C


def test_each_leader_is_asked_once_and_each_partition_has_an_answer_or_a_reason() -> None:
    """In version 3 at least (Java: OffsetsForLeaderEpochUtils, hasUsableOffsetForLeaderEpochVersion), and as a consumer
    (OffsetsForLeaderEpochRequest.CONSUMER_REPLICA_ID, -1)."""
    questions = {A: EpochQuery(1, 5, 4), B: EpochQuery(1, 6, 3), C: EpochQuery(2, 7, 2)}
    dialogue = epoch_ends(questions, timeout_s=9.0)
    step = next(dialogue)
    assert isinstance(step, All)
    sends: list[Any] = list(step.steps)
    assert [(send.target, send.min_version, send.timeout_s) for send in sends] == [
        (1, 3, 9.0), (2, 3, 9.0),
    ]  # fmt: skip
    assert step.return_errors, "one that does not answer holds up no other"
    assert [send.request.replica_id for send in sends] == [-1, -1]
    (topic,) = sends[0].request.topics
    assert [(p.partition, p.current_leader_epoch, p.leader_epoch) for p in topic.partitions] == [(0, 5, 4), (1, 6, 3)]
    parts = [
        R.EpochEndOffset(error_code=0, partition=0, leader_epoch=4, end_offset=17),
        R.EpochEndOffset(error_code=75, partition=1),
    ]
    answer = R(topics=[R.OffsetForLeaderTopicResult(topic="t", partitions=parts)])
    too_old = IncompatibleBrokerVersion("too old")
    try:
        dialogue.send([answer, too_old])
    except StopIteration as end:
        end_or_error = end.value
    assert end_or_error[A] == EpochEnd(4, 17)
    assert isinstance(end_or_error[B], UnknownLeaderEpochError)
    assert end_or_error[C] is too_old


def test_each_leader_has_to_have_its_answer() -> None:
    dialogue = epoch_ends({A: EpochQuery(1, 5, 4), C: EpochQuery(2, 7, 2)}, timeout_s=9.0)
    next(dialogue)
    with pytest.raises(ValueError, match="shorter"):
        dialogue.send([R(topics=[])])


def test_a_partition_that_a_broker_leaves_out_has_a_reason_too() -> None:
    dialogue = epoch_ends({A: EpochQuery(1, 5, 4)}, timeout_s=9.0)
    next(dialogue)
    try:
        dialogue.send([R(topics=[])])
    except StopIteration as end:
        assert isinstance(end.value[A], KafkaError)
