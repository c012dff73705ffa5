"""Share groups (KIP-932) as pure, deterministic machines: no sockets, threads, clocks or files.

    groups.py             what handlers call: membership and share partitions, by name
      group.py              one group's members and assignment -> assignor.py
      partition.py          one share partition -> acquire.py, window.py, inflight.py
      deadlines.py          who of all these is to be asked when
      state_store.py        durable state, through a journal that is handed in
    sessions.py           share sessions and their connections
    group_configs.py      settings, ranges, what they mean
    acknowledgements.py   checks on requests that need no state
    states.py             states, acknowledgement types, events, settings

The behaviour is Apache Kafka 4.3.0's, as measured; each module says where it is not.
"""

from __future__ import annotations

from kafka.broker.share.acknowledgements import check_ack_batches
from kafka.broker.share.group import HeartbeatAnswer, ShareGroup, ShareMember, TopicInfo
from kafka.broker.share.group_configs import (
    GROUP_SETTINGS,
    BrokerLimits,
    OffsetReset,
    ShareGroupConfig,
    check_broker_limits,
    check_group_settings,
)
from kafka.broker.share.groups import ShareGroups
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, ShareSessions
from kafka.broker.share.state_store import ShareKey, SharePartitionState, ShareStateStore
from kafka.broker.share.states import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    WAKE_AS_KAFKA_4_3,
    WAKE_PROMPTLY,
    AckBatch,
    Acquired,
    AcquireMode,
    ShareEvent,
    ShareSettings,
    StateRange,
)

__all__ = [
    "ACCEPT",
    "FINAL_EPOCH",
    "GAP",
    "GROUP_SETTINGS",
    "INITIAL_EPOCH",
    "REJECT",
    "RELEASE",
    "RENEW",
    "WAKE_AS_KAFKA_4_3",
    "WAKE_PROMPTLY",
    "AckBatch",
    "AcquireMode",
    "Acquired",
    "BrokerLimits",
    "HeartbeatAnswer",
    "OffsetReset",
    "ShareEvent",
    "ShareGroup",
    "ShareGroupConfig",
    "ShareGroups",
    "ShareKey",
    "ShareMember",
    "SharePartition",
    "SharePartitionState",
    "ShareSession",
    "ShareSessions",
    "ShareSettings",
    "ShareStateStore",
    "StateRange",
    "TopicInfo",
    "check_ack_batches",
    "check_broker_limits",
    "check_group_settings",
]
