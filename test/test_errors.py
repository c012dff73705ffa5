"""What programs for kafka-python ask of errors, and of the plain values beside them."""

from __future__ import annotations

import copy
import pickle

import pytest

from kafka.errors import (
    ERRORS_BY_CODE,
    BrokerResponseError,
    CommitFailedError,
    CommitInRebalanceError,
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoError,
    UnknownTopicOrPartitionError,
    for_code,
    kafka_errors,
)
from kafka.structs import OffsetAndMetadata, TopicPartition


def test_errors_of_one_class_with_the_same_arguments_are_equal() -> None:
    assert KafkaTimeoutError("a") == KafkaTimeoutError("a")
    assert hash(KafkaTimeoutError("a")) == hash(KafkaTimeoutError("a"))
    assert KafkaTimeoutError("a") != KafkaTimeoutError("b")
    assert KafkaTimeoutError("a") != KafkaError("a")
    assert KafkaError("a") != Exception("a") and KafkaError("a") != "a" and KafkaError("a") != ("a",)
    assert len({KafkaTimeoutError("a"), KafkaTimeoutError("a"), KafkaTimeoutError("b")}) == 2


def test_an_error_whose_arguments_have_no_hash_has_one() -> None:
    error = LogTruncationError({TopicPartition("t", 0): OffsetAndMetadata(5)}, {TopicPartition("t", 0): 7})
    again = LogTruncationError(*error.args)
    assert error == again and hash(error) == hash(again)


def test_errors_are_equal_after_a_copy_and_after_pickling() -> None:
    for error in (KafkaTimeoutError("a"), UnknownTopicOrPartitionError("t"), CommitFailedError()):
        assert pickle.loads(pickle.dumps(error)) == copy.copy(error) == error


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
def test_each_of_the_brokers_errors_has_a_description(code: int) -> None:
    found = for_code(code)
    assert kafka_errors[code] is found
    assert found.description and found().description == found.description
    assert found.description.lower() == found.message.replace("_", " ").lower()


def test_descriptions_are_there_for_codes_that_nobody_has_heard_of_too() -> None:
    assert UnknownTopicOrPartitionError.description == "Unknown topic or partition"
    assert NoError.description == "None" and BrokerResponseError.description == ""
    assert for_code(9999).description == "Unknown code 9999"


def test_a_commit_that_failed_says_what_helps() -> None:
    assert "max_poll_interval_ms" in str(CommitFailedError())
    assert str(CommitFailedError("generation 3 is over")) == "CommitFailedError: generation 3 is over"
    assert str(CommitInRebalanceError()) == "[Error 27] CommitInRebalanceError"


def test_a_corrupt_batch_may_be_read_again() -> None:
    assert CorruptRecordError.retriable


def test_offset_and_metadata_may_be_made_without_an_offset() -> None:
    assert OffsetAndMetadata() == (None, "", -1)
    assert OffsetAndMetadata()._replace(offset=3) == OffsetAndMetadata(3)
