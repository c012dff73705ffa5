"""The numbers of what users hand in are on the wire: those of Java's classes and of the protocol's messages."""

from __future__ import annotations

from enum import IntEnum

import pytest

from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    ElectionType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    known,
)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        # org.apache.kafka.common.config.ConfigResource.Type
        (
            ConfigResourceType,
            {"UNKNOWN": 0, "TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8, "CLIENT_METRICS": 16, "GROUP": 32},
        ),
        # org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
        (
            ConfigSourceType,
            {
                "UNKNOWN": 0, "DYNAMIC_TOPIC_CONFIG": 1, "DYNAMIC_BROKER_CONFIG": 2,
                "DYNAMIC_DEFAULT_BROKER_CONFIG": 3, "STATIC_BROKER_CONFIG": 4, "DEFAULT_CONFIG": 5,
                "DYNAMIC_BROKER_LOGGER_CONFIG": 6, "DYNAMIC_CLIENT_METRICS_CONFIG": 7, "DYNAMIC_GROUP_CONFIG": 8,
            },
        ),
        # org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType
        (
            ConfigType,
            {
                "UNKNOWN": 0, "BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7,
                "CLASS": 8, "PASSWORD": 9,
            },
        ),
        # org.apache.kafka.clients.admin.AlterConfigOp.OpType
        (AlterConfigOp, {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}),
        # org.apache.kafka.common.ElectionType
        (ElectionType, {"PREFERRED": 0, "UNCLEAN": 1}),
        # Ours, never sent.
        (ConfigFilterType, {"ALL": 0, "DYNAMIC": 1, "MODIFIED": 2, "DEFAULT": 3, "STATIC": 4}),
        # org.apache.kafka.common.requests.ListOffsetsRequest
        (
            OffsetSpec,
            {"LATEST": -1, "EARLIEST": -2, "MAX_TIMESTAMP": -3, "EARLIEST_LOCAL": -4, "LATEST_TIERED": -5},
        ),
    ],
)  # fmt: skip
def test_members_have_javas_codes(kind: type[IntEnum], numbers: dict[str, int]) -> None:
    assert {member.name: member.value for member in kind} == numbers


def test_a_number_that_is_not_known_is_unknown() -> None:
    assert known(ConfigType, 9) is ConfigType.PASSWORD
    assert known(ConfigType, 10) is known(ConfigType, -1) is ConfigType.UNKNOWN
    assert ConfigSourceType.of(4) is ConfigSourceType.STATIC_BROKER_CONFIG
    assert ConfigSourceType.of(99) is ConfigSourceType.UNKNOWN


def test_a_new_topic_leaves_unset_options_to_the_broker() -> None:
    """-1 is the protocol's word for the broker's default (KIP-464)."""
    topic = NewTopic("t")
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert (topic.replica_assignments, topic.topic_configs) == ({}, {})
    topic = NewTopic("t", 2, 3, {0: [1]}, {"a": 1})
    assert (topic.num_partitions, topic.replication_factor) == (2, 3)
    assert (topic.replica_assignments, topic.topic_configs) == ({0: [1]}, {"a": 1})
    assert NewPartitions(3).new_assignments is None
