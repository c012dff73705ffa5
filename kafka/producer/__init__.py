"""The producer."""

from __future__ import annotations

from kafka.producer.future import FutureRecordMetadata, RecordMetadata, when_all_done
from kafka.producer.interceptors import ProducerInterceptor, ProducerRecord
from kafka.producer.producer import KafkaProducer

__all__ = [
    "FutureRecordMetadata",
    "KafkaProducer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "when_all_done",
]
