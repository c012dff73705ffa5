"""Interceptors (KIP-42): users' objects that see each record before it is sent, and its end.

    on_send(record) -> record                 in the thread that calls send(), before the serializers
    on_acknowledgement(metadata, error)       on the loop's thread, before the future's callbacks; or, for a record that
                                              send() refused, in the thread that called it
    close()                                   when the producer is closed

Any of them may be missing. An error in one is logged and changes nothing: the next one gets the record as the one
before has left it. A producer without interceptors does not look for any: see ``KafkaProducer.send``.

``on_acknowledgement`` costs a callback for each record, so a producer with interceptors is slower, and keeps its
futures until they are done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafka.producer.sending import FutureRecordMetadata, RecordMetadata
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """The arguments of ``send``, as they were given."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """A base to begin with: does nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of ``record``; ``record._replace(headers=...)`` makes another."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """The record's end. With an error, ``metadata`` has topic and partition (-1: not chosen), and no offset."""

    def close(self) -> None:
        """The producer was closed."""


class Interceptors:
    """Those of one producer, in their order."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._all = [one() if isinstance(one, type) else one for one in given]

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for one in self._all:
            method: Callable[[ProducerRecord], Any] | None = getattr(one, "on_send", None)
            if method is None:
                continue
            try:
                made = method(record)
                if not isinstance(made, ProducerRecord):
                    raise TypeError(f"on_send returned {type(made).__name__}, and not a ProducerRecord")
                record = made
            except Exception:
                log.exception("interceptor's on_send raised; sending the record unchanged")
        return record

    def watch(self, record: ProducerRecord, future: FutureRecordMetadata) -> None:
        """Tell of the end of a record that was taken."""

        def tell(_: object) -> None:
            metadata = future.value or _no_metadata(record, future.partition)
            self._call("on_acknowledgement", metadata, future.exception)

        future.add_both(tell)

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """``send`` raised ``error``."""
        self._call("on_acknowledgement", _no_metadata(record, -1), error)

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str, *arguments: Any) -> None:
        for one in self._all:
            method = getattr(one, name, None)
            if method is not None:
                try:
                    method(*arguments)
                except Exception:
                    log.exception("interceptor's %s raised; ignoring it", name)


def _no_metadata(record: ProducerRecord, partition: int) -> RecordMetadata:
    topic = record.topic
    if partition < 0 and isinstance(record.partition, int):
        partition = record.partition
    return RecordMetadata(topic, partition, TopicPartition(topic, partition), -1, -1, None, -1, -1, -1)
