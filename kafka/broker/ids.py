"""What the broker gives out and never takes back: its cluster's id, topics' ids, producers' ids, leader epochs.

All but topic ids (which are chance) are kept in the metadata, so that no restart gives one out again.
"""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kafka.broker.codes import error_text
from kafka.broker.log import Topic
from kafka.broker.log.metadata_store import MetadataStore
from kafka.errors import KafkaStorageError

log = logging.getLogger(__name__)

EPOCHS_PER_START: Final = 2
"""What a restart adds to each partition's leader epoch, as with Apache Kafka 4.3.0 (measured): the leader is lost, then
found again."""

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are made durable by the block, as in Kafka; what is left of one at a restart is never given out."""


class Ids:
    """``sync``: puts the metadata on the disk. Making one counts a start."""

    def __init__(self, metadata: MetadataStore, rng: random.Random, sync: Callable[[], None]) -> None:
        self._metadata = metadata
        self._rng = rng
        self._sync = sync
        self._producer_ids = range(0)
        self._count_start()
        self.cluster_id: str = metadata.meta("cluster_id") or self._new_cluster_id()

    def leader_epoch(self, topic: Topic, partition: int) -> int:
        """The leader epoch of a partition, opened or not."""
        return EPOCHS_PER_START * (self._metadata.starts - topic.born_at(partition))

    def new_topic_id(self) -> UUID:
        """A random id (version 4)."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def new_producer_id(self) -> int:
        """A producer id that was never given out."""
        if not self._producer_ids:
            first = int(self._metadata.meta("next_producer_id", 0))
            self._metadata.set_meta("next_producer_id", first + PRODUCER_ID_BLOCK)
            self._sync()
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return first

    def _count_start(self) -> None:
        try:
            self._metadata.count_start()
        except KafkaStorageError as error:
            log.error("leader epochs will repeat after the next start: %s", error_text(error))

    def _new_cluster_id(self) -> str:
        text = base64.urlsafe_b64encode(self._rng.randbytes(16)).rstrip(b"=").decode()
        self._metadata.set_meta("cluster_id", text)
        return text
