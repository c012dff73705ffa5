from __future__ import annotations

from math import inf

import pytest

from kafka.core.consume.positions import PartitionPosition, PositionChanges
from kafka.errors import MessageSizeTooLargeError
from test.core.consume.rig import A, Rig
from test.core.consume.test_fetched import batch


def test_of_a_new_position_nothing_is_known() -> None:
    changes = PositionChanges()
    position = PartitionPosition(A, changes)
    assert (position.position, position.fetch_offset, position.reset_to, position.leader) == (None,) * 4
    assert (position.leader_epoch, position.fetch_epoch, position.distrusted_epoch) == (-1, -1, -1)
    assert (position.last_stable_offset, position.log_start_offset, position.highwater) == (-1, -1, None)
    assert [position.is_awaiting, position.is_resetting, position.is_validating, position.is_paused] == [False] * 4
    assert (position.failures, position.retry_at, position.recheck_at) == (0, 0.0, inf)
    assert (position.generation, position.buffered_bytes, changes.buffered_bytes) == (0, 0, 0)
    assert not position.is_ready


@pytest.mark.parametrize("epoch", [0, 4])
def test_the_epoch_of_a_position_is_that_of_the_last_batch_and_0_is_one(epoch: int) -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a", leader_epoch=epoch))
    position = rig.fetcher.positions[A]
    assert (position.leader_epoch, position.fetch_epoch) == (-1, epoch)
    rig.read()
    assert position.leader_epoch == epoch


def test_what_has_no_whole_batch_is_buffered_for_the_reader_to_meet_its_fault() -> None:
    """A broker before 0.10.1 cuts the first batch."""
    rig = Rig(A)
    rig.seek_all()
    assert rig.answer(rig.fetch(), p0=batch(0, b"a")[:-1])
    position = rig.fetcher.positions[A]
    assert (position.fetch_offset, position.fetch_epoch) == (0, -1)
    with pytest.raises(MessageSizeTooLargeError):
        position.buffered[0].read(10, rig.fetcher.options)
