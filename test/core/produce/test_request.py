from __future__ import annotations

import random
from uuid import UUID

import pytest

from kafka.core.produce.batch import TopicQueues
from kafka.core.produce.request import produce_request
from kafka.wire.types import ZERO_UUID
from test.core.produce.support import TOPIC_ID, Rig


@pytest.mark.parametrize(
    ("ids", "max_version"),
    [
        ({"t": TOPIC_ID, "u": UUID(int=8)}, None),
        ({"t": TOPIC_ID, "u": ZERO_UUID}, 12),
        ({"t": ZERO_UUID, "u": TOPIC_ID}, 12),
    ],
)
def test_topics_without_an_id_are_named_which_produce_can_up_to_v12(
    ids: dict[str, UUID], max_version: int | None
) -> None:
    """KIP-516: Produce v13 has ids in the place of names."""
    rig = Rig(2)
    other = rig.accumulator.topics["u"] = TopicQueues("u")
    rig.accumulator.set_partitions(other, 1, [0])
    batches = [rig.put(b"x", 0)[0], rig.accumulator.append(other, None, 1, None, b"y", None)[0], rig.put(b"z", 1)[0]]
    request, found = produce_request(batches, 1, 30_000, ids.__getitem__)
    assert found == max_version
    assert (request.acks, request.timeout_ms) == (1, 30_000)
    assert [
        (topic.name, topic.topic_id, [data.index for data in topic.partition_data]) for topic in request.topic_data
    ] == [("t", ids["t"], [0, 1]), ("u", ids["u"], [0])]
    assert [data.records for topic in request.topic_data for data in topic.partition_data] == [
        batches[0].encoded(), batches[2].encoded(), batches[1].encoded(),
    ]  # fmt: skip


def test_a_large_batch_is_not_copied_into_one_piece() -> None:
    rig = Rig(batch_bytes=200_000)
    for _ in range(20):
        batch, _ = rig.put(random.Random(1).randbytes(9_000))
    request, _ = produce_request([batch], -1, 30_000, lambda _: TOPIC_ID)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, list)
    assert b"".join(records) == batch.encoded()
