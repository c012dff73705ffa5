"""The consumer."""

from __future__ import annotations

from kafka.consumer.consumer import KafkaConsumer
from kafka.core.consume.record import ConsumerRecord
from kafka.structs import TopicPartition

__all__ = ["ConsumerRecord", "KafkaConsumer", "TopicPartition"]
