"""A dialogue that looks up offsets of partitions by what they are, or by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.core.admin.given import mapping_of, partition_of
from kafka.core.admin.group_values import OffsetSpec
from kafka.core.admin.leaders import all_or_raise, at_leaders
from kafka.core.consume.offsets import offsets_request, read_offsets
from kafka.core.dialogue import ByVersion, Dialogue
from kafka.core.retry import Backoff
from kafka.errors import IllegalArgumentError
from kafka.structs import IsolationLevel, OffsetAndTimestamp, TopicPartition


def list_partition_offsets(
    topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
    isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[TopicPartition, OffsetAndTimestamp]]:
    """The offset that each OffsetSpec means, or the first that is not older than a time in ms since the epoch:
    ``{partition: OffsetAndTimestamp}``. ``offset`` is -1 when there is none, ``timestamp`` for what is no record,
    ``leader_epoch`` where it is not told.

    READ_COMMITTED: nothing behind the first open transaction counts (KIP-98). Raises the first error
    (UnknownTopicOrPartitionError). UnsupportedVersionError: the brokers do not know this OffsetSpec, or (before
    0.10.1) times.
    """
    form = "{TopicPartition: OffsetSpec or time in ms} is needed"
    given = mapping_of(topic_partition_specs, "topic_partition_specs", form)
    specs = {partition_of(partition, "topic_partition_specs"): spec for partition, spec in given.items()}
    known = {int(spec) for spec in OffsetSpec}
    for partition, spec in specs.items():
        if isinstance(spec, bool) or not isinstance(spec, int):
            raise IllegalArgumentError(f"{partition}: {spec!r}: an OffsetSpec, or a time in ms, is needed")
        if spec < 0 and spec not in known:
            raise IllegalArgumentError(f"{partition}: {spec!r}: no OffsetSpec has that number, and no time is negative")
    try:
        read_committed = IsolationLevel.of(isolation_level) is IsolationLevel.READ_COMMITTED
    except ValueError as error:
        raise IllegalArgumentError(f"isolation_level={isolation_level!r}: {error}") from None

    def build(partitions: Sequence[TopicPartition]) -> ByVersion[Any]:
        return offsets_request({partition: int(specs[partition]) for partition in partitions}, read_committed)

    found = yield from at_leaders(
        specs, build, read_offsets, what="listing offsets", backoff=backoff, timeout_s=timeout_s
    )
    return {partition: OffsetAndTimestamp(*each) for partition, each in all_or_raise(found).items()}
