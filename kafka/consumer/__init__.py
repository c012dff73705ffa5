"""The consumer."""

from __future__ import annotations

from kafka.consumer.consumer import KafkaConsumer
from kafka.consumer.listener import ConsumerRebalanceListener, SubscriptionPattern
from kafka.core.consume.partition import ConsumerRecord
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaConsumer",
    "OffsetAndMetadata",
    "SubscriptionPattern",
    "TopicPartition",
]
