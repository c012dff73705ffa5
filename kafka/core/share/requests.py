"""The two requests of a share session, from what they have to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from kafka.core.share.acks import AckRange, TakenAcks
from kafka.core.share.records import AcknowledgeType, SharePartition
from kafka.protocol.share import ShareAcknowledgeRequest, ShareFetchRequest

B = TypeVar("B", ShareFetchRequest.AcknowledgementBatch, ShareAcknowledgeRequest.AcknowledgementBatch)


class Demand(NamedTuple):
    """What a fetch may bring. ``records`` 0: nothing. ``exactly``: no more than that (record-limit mode, KIP-1206).
    ``max_wait_ms``: do not wait longer, because other brokers have to be asked for the same records.
    """

    records: int
    exactly: bool = False
    max_wait_ms: int | None = None


class Polling(NamedTuple):
    """How a fetch waits: up to ``max_wait_ms`` for the first byte, ``max_bytes`` at most."""

    max_wait_ms: int
    max_bytes: int


def fetch_request(
    group_id: str,
    member_id: str,
    epoch: int,
    listed: Sequence[SharePartition],
    forgotten: Sequence[SharePartition],
    acks: Mapping[SharePartition, TakenAcks],
    demand: Demand,
    polling: Polling,
) -> ShareFetchRequest:
    """A ShareFetch; without demand it fetches nothing and is answered at once."""
    waits = demand.records > 0
    return ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=polling.max_wait_ms if waits else 0,
        min_bytes=1 if waits else 0,
        max_bytes=polling.max_bytes if waits else 0,
        max_records=demand.records,
        batch_size=max(1, demand.records),
        share_acquire_mode=1 if demand.exactly else 0,
        topics=[
            ShareFetchRequest.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    ShareFetchRequest.FetchPartition(
                        partition_index=partition.partition,
                        acknowledgement_batches=_batches(
                            ShareFetchRequest.AcknowledgementBatch, acks[partition].ranges if partition in acks else ()
                        ),
                    )
                    for partition in partitions
                ],
            )
            for topic_id, partitions in _by_topic(listed).items()
        ],
        forgotten_topics_data=[
            ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[each.partition for each in partitions])
            for topic_id, partitions in _by_topic(forgotten).items()
        ],
    )


def acknowledge_request(
    group_id: str, member_id: str, epoch: int, acks: Mapping[SharePartition, TakenAcks]
) -> ShareAcknowledgeRequest:
    """A ShareAcknowledge; it says so when there are renewals among the acknowledgements (KIP-1222)."""
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(each.type is AcknowledgeType.RENEW for taken in acks.values() for each in taken.ranges),
        topics=[
            ShareAcknowledgeRequest.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    ShareAcknowledgeRequest.AcknowledgePartition(
                        partition_index=partition.partition,
                        acknowledgement_batches=_batches(
                            ShareAcknowledgeRequest.AcknowledgementBatch, acks[partition].ranges
                        ),
                    )
                    for partition in partitions
                ],
            )
            for topic_id, partitions in _by_topic(acks).items()
        ],
    )


def _batches(kind: type[B], ranges: Iterable[AckRange]) -> list[B]:
    """The ranges as one request or the other has them."""
    return [kind(first_offset=each.first, last_offset=each.last, acknowledge_types=[each.type]) for each in ranges]


def _by_topic(partitions: Iterable[SharePartition]) -> dict[UUID, list[SharePartition]]:
    found: dict[UUID, list[SharePartition]] = {}
    for partition in partitions:
        found.setdefault(partition.topic_id, []).append(partition)
    return found
