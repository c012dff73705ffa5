from __future__ import annotations

import pytest

from kafka.core.produce.batch import PartitionQueue, TopicQueues
from test.core.produce.support import Rig


def test_a_topic_and_its_partitions_begin_with_nothing() -> None:
    queue, topic = PartitionQueue("t", 3), TopicQueues("t")
    assert (queue.batches_count, queue.produced_bytes, queue.room_bytes, queue.was_filled) == (0, 0, 0, False)
    assert (queue.node, queue.leader_epoch) == (-1, -1), "none, as in the protocol"
    assert (topic.sticky_from_bytes, topic.turn) == (0, 0)
    assert not queue.has_unsent


@pytest.mark.parametrize("where", ["open", "closed", "retry"])
def test_what_is_not_in_flight_is_unsent(where: str) -> None:
    rig = Rig(idempotent=False)
    queue = rig.topic.queues[0]
    batch, _ = rig.put(b"x")
    if where != "open":
        rig.accumulator.close_open_batches()
    if where == "retry":
        rig.lose(rig.call())
    assert (queue.open is batch, batch in queue.closed, batch in queue.retry) == (
        where == "open", where == "closed", where == "retry",
    )  # fmt: skip
    assert queue.has_unsent
    rig.back_off()
    call = rig.call()
    assert not queue.has_unsent
    rig.answer(call)
    assert not queue.has_unsent
