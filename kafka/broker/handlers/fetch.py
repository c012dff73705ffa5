"""Fetch, from version 4 on: whole batches from the logs; waits for ``min_bytes`` up to ``max_wait_ms``.

The first partition that has records gives at least one batch, whatever the limits say (KIP-74). The high watermark is
the end of the log, because there are no followers.

Different from Apache Kafka 4.3.0: no incremental sessions yet; every answer has session 0, so that clients list
all partitions each time. No transactions yet: the last stable offset is the end, no aborted ones are listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.broker import error_code
from kafka.broker.log import PartitionLog
from kafka.broker.registry import Call, handles
from kafka.broker.reply import Reply
from kafka.errors import (
    BrokerResponseError,
    FetchSessionIdNotFoundError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_NONE: Final = -1
_UNKNOWN: Final = (UnknownTopicOrPartitionError, UnknownTopicIdError)


@handles(FetchRequest, versions=(4, 18))
def fetch(broker: Broker, call: Call[FetchRequest]) -> FetchResponse | Reply:
    request = call.request
    if request.session_epoch > 0:
        return FetchResponse(error_code=int(FetchSessionIdNotFoundError.errno or 0), responses=[])
    waiting = _Fetch(broker, call)
    response = waiting.attempt(is_last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    return broker.park(call.connection, waiting.logs(), call.now + request.max_wait_ms / 1000, waiting.attempt)


class _Fetch:
    """One fetch that may be tried several times."""

    def __init__(self, broker: Broker, call: Call[FetchRequest]) -> None:
        self._broker = broker
        self._request = call.request
        self._by_id = call.version >= 13
        self._max_bytes = min(call.request.max_bytes, broker.config.number("fetch.max.bytes"))

    def logs(self) -> list[PartitionLog]:
        """What to wait on."""
        return [
            self._log(topic, wanted.partition) for topic in self._request.topics for wanted in topic.partitions
        ]

    def attempt(self, is_last: bool) -> FetchResponse | None:
        """The answer, or None when it is better to wait."""
        left = self._max_bytes
        found_bytes = 0
        has_error = False
        responses = []
        for topic in self._request.topics:
            partitions = []
            for wanted in topic.partitions:
                try:
                    data = self._read(topic, wanted, left, min_one=not found_bytes)
                except BrokerResponseError as error:
                    has_error = True
                    data = FetchResponse.PartitionData(
                        partition_index=wanted.partition,
                        error_code=error_code(error),
                        high_watermark=_NONE,
                        aborted_transactions=[] if isinstance(error, _UNKNOWN) else None,
                        records=b"",
                    )
                size = len(data.records) if data.records is not None else 0
                found_bytes += size
                left = max(0, left - size)
                partitions.append(data)
            responses.append(
                FetchResponse.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        if is_last or has_error or not responses or found_bytes >= self._request.min_bytes:
            return FetchResponse(responses=responses)
        return None

    def _read(
        self, topic: FetchRequest.FetchTopic, wanted: FetchRequest.FetchPartition, left: int, min_one: bool
    ) -> FetchResponse.PartitionData:
        log = self._log(topic, wanted.partition)
        if wanted.current_leader_epoch > 0:
            raise UnknownLeaderEpochError(f"{log.name} is at leader epoch 0, not {wanted.current_leader_epoch}")
        end = log.end_offset
        records: bytes | memoryview = b""
        if wanted.fetch_offset != end and (left > 0 or min_one):
            records = log.read(wanted.fetch_offset, min(left, wanted.partition_max_bytes), min_one=min_one)
        return FetchResponse.PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=log.start_offset,
            aborted_transactions=None if not self._request.isolation_level else [],
            records=records,
        )

    def _log(self, topic: FetchRequest.FetchTopic, partition: int) -> PartitionLog:
        topic_id: UUID = topic.topic_id
        found = self._broker.topic_by_id(topic_id) if self._by_id else self._broker.topic(topic.topic)
        return self._broker.logs.log(found, partition)
