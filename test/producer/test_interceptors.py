from __future__ import annotations

import logging
from typing import Any

import pytest

from kafka.errors import MessageSizeTooLargeError
from kafka.producer import ProducerInterceptor, ProducerRecord, RecordMetadata
from kafka.structs import TopicPartition
from test.producer.support import producer_in_memory, refuse


class Notes(ProducerInterceptor):
    """Adds its mark to each value, and keeps what it is told."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.ends: list[tuple[RecordMetadata, BaseException | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.ends.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


class Broken(ProducerInterceptor):
    """Fails whatever it is asked."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


def test_each_interceptor_sees_the_record_as_the_one_before_has_left_it_and_then_its_end() -> None:
    first, second = Notes(b"1"), Notes(b"2")
    with producer_in_memory(interceptors=[first, second]) as rig:
        futures = [rig.producer.send("t", b"x", key=b"k"), rig.producer.send("t", b"y")]
        rig.flush()
        assert rig.cluster.logs[0] == [b"x12", b"y12"]
        assert first.ends == second.ends == [(future.value, None) for future in futures]
        rig.producer.close(timeout=0)
        assert first.is_closed
        assert second.is_closed


def test_interceptors_see_what_was_given_before_the_serializers() -> None:
    seen: list[ProducerRecord] = []

    class Looks:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record)
            return record

    with producer_in_memory(interceptors=[Looks], value_serializer=lambda value: b"%d" % value) as rig:
        rig.producer.send("t", 5, partition=0, timestamp_ms=77, headers=[("a", b"b")])
        rig.flush()
    assert seen == [ProducerRecord("t", 5, None, [("a", b"b")], 0, 77)]


def test_an_error_of_an_interceptor_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes(b"!")

    class Forgets(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> Any:
            return None

    with caplog.at_level(logging.ERROR), producer_in_memory(interceptors=[Broken(), Forgets(), notes]) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        assert rig.cluster.logs[0] == [b"x!"]
        assert len(notes.ends) == 1
    logged = [record.getMessage() for record in caplog.records]
    assert sum("on_send" in text for text in logged) == 2
    assert sum("on_acknowledgement" in text for text in logged) == 1
    assert sum("interceptor's close raised" in text for text in logged) == 1


def test_an_interceptor_gets_records_that_failed_and_those_that_send_refused() -> None:
    notes = Notes(b"")
    with producer_in_memory(interceptors=[notes], max_request_size=1000) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        rig.cluster.faults = [refuse(29)]
        failed = rig.producer.send("t", b"x")
        rig.flush()
        with pytest.raises(MessageSizeTooLargeError):
            rig.producer.send("t", b"x" * 2000, partition=0)
    (_, (metadata, error), (refused, why)) = notes.ends
    assert error is failed.exception
    assert metadata == RecordMetadata("t", 0, TopicPartition("t", 0), -1, -1, None, -1, -1, -1)
    assert isinstance(why, MessageSizeTooLargeError)
    assert refused.topic_partition == TopicPartition("t", 0)
