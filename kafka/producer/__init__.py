"""The producer."""

from __future__ import annotations

from kafka.producer.interceptors import ProducerInterceptor, ProducerRecord
from kafka.producer.producer import KafkaProducer, has_room, transaction_trouble, watch_batches
from kafka.producer.sending import FutureRecordMetadata, RecordMetadata, when_all_done

__all__ = [
    "FutureRecordMetadata",
    "KafkaProducer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "has_room",
    "transaction_trouble",
    "watch_batches",
    "when_all_done",
]
