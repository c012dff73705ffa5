"""Messages as dictionaries, and authorized operations by their names."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.core.admin.responses import operations_of, to_dict
from kafka.protocol.metadata import MetadataResponse

OPERATIONS = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS",
}  # fmt: skip
"""Bit -> name: the codes of ``org.apache.kafka.common.acl.AclOperation`` (KIP-430)."""


@pytest.mark.parametrize(("bit", "name"), sorted(OPERATIONS.items()))
def test_a_bit_is_the_operation_of_that_code(bit: int, name: str) -> None:
    assert operations_of(1 << bit) == [name]


def test_operations_are_told_from_the_lowest_bit_and_only_such_as_may_be_done() -> None:
    """As Java's ``Utils.from32BitField`` and ``KafkaAdminClient.validAclOperations``: not UNKNOWN, ANY and ALL."""
    assert operations_of((1 << 15) - 1) == list(OPERATIONS.values())
    assert operations_of(0b111) == [] and operations_of(0) == []


def test_operations_that_were_not_asked_for_are_none() -> None:
    """The protocol's default, the lowest int32."""
    assert operations_of(-(2**31)) is None


def test_a_structure_is_a_dictionary_all_the_way_down() -> None:
    message = MetadataResponse
    part = message.MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=2, replica_nodes=[2, 3], isr_nodes=[2]
    )
    with_id, without = (
        message.MetadataResponseTopic(error_code=0, name="t", topic_id=topic_id, partitions=[part])
        for topic_id in (UUID(int=5), UUID(int=0))
    )
    found = to_dict(message(brokers=[], topics=[with_id, without]))
    assert [topic["topic_id"] for topic in found["topics"]] == ["00000000-0000-0000-0000-000000000005", None]
    assert found["topics"][0]["partitions"] == [
        {
            "error_code": 0, "partition_index": 1, "leader_id": 2, "leader_epoch": -1, "replica_nodes": [2, 3],
            "isr_nodes": [2], "offline_replicas": [],
        }
    ]  # fmt: skip
    assert found["brokers"] == []
