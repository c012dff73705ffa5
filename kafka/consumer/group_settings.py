"""A consumer's settings that concern its group: which go together, and the member that they make."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.classic import ClassicMember
from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.machine import GroupMachine
from kafka.core.retry import Backoff
from kafka.errors import IllegalArgumentError, KafkaConfigurationError

OF_GROUPS: Final = (
    "group_instance_id", "group_protocol", "group_remote_assignor", "partition_assignment_strategy",
    "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "auto_commit_interval_ms",
    "default_offset_commit_callback",
)  # fmt: skip
"""Without a group these say nothing."""

_NOT_WITH: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "consumer": (
        ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"),
        "the broker decides about that for members of the new protocol (KIP-848), by group.consumer.* settings",
    ),
    "classic": (("group_remote_assignor",), "assignors in the broker need group_protocol='consumer' (KIP-848)"),
}


def check_group_settings(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """KafkaConfigurationError for settings that exclude one another. ``given``: what the user has said."""
    said = [name for name in OF_GROUPS if given.get(name) is not None]
    if settings["group_id"] is None:
        if given.get("enable_auto_commit"):
            said.append("enable_auto_commit")
        if said:
            raise KafkaConfigurationError(f"{said[0]}: that is for consumer groups, and there is no group_id")
        return
    protocol = settings["group_protocol"]
    excluded, why = _NOT_WITH[protocol]
    for name in said:
        if name in excluded:
            raise KafkaConfigurationError(f"{name}: not with group_protocol={protocol!r}: {why}")
    if protocol == "classic" and settings["heartbeat_interval_ms"] >= settings["session_timeout_ms"]:
        raise KafkaConfigurationError(
            f"heartbeat_interval_ms={settings['heartbeat_interval_ms']} has to be below "
            f"session_timeout_ms={settings['session_timeout_ms']}, and should be a third of it"
        )


def make_member(
    settings: Mapping[str, Any], retry_backoff: Backoff, topic_of_id: Callable[[UUID], str | None]
) -> GroupMachine:
    """The member of the group that ``settings`` speak of."""
    max_poll_interval_s = settings["max_poll_interval_ms"] / 1000
    request_timeout_s = settings["request_timeout_ms"] / 1000
    if settings["group_protocol"] == "consumer":
        return ConsumerMember(
            settings["group_id"],
            group_instance_id=settings["group_instance_id"],
            member_id=str(uuid.uuid4()),
            server_assignor=settings["group_remote_assignor"],
            rack=settings["client_rack"],
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=request_timeout_s,
            retry_backoff=retry_backoff,
            topic_of_id=topic_of_id,
        )
    try:
        return ClassicMember(
            settings["group_id"],
            group_instance_id=settings["group_instance_id"],
            assignors=make_assignors(settings["partition_assignment_strategy"]),
            session_timeout_s=settings["session_timeout_ms"] / 1000,
            heartbeat_interval_s=settings["heartbeat_interval_ms"] / 1000,
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=request_timeout_s,
            retry_backoff=retry_backoff,
            rack=settings["client_rack"],
        )
    except IllegalArgumentError as error:
        raise KafkaConfigurationError(f"partition_assignment_strategy: {error.args[0]}") from None
