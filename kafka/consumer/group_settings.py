"""A consumer's settings that concern its group: which go together, and the member that they make."""

from __future__ import annotations

import logging
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

log = logging.getLogger(__name__)

OF_GROUPS: Final = (
    "enable_auto_commit", "auto_commit_interval_ms", "default_offset_commit_callback", "partition_assignment_strategy",
    "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms",
)  # fmt: skip
"""Without a group these do nothing. That is a warning and no error: half of the examples of kafka-python that people
copy give ``enable_auto_commit=True`` without a ``group_id``, and read well.
"""

ONLY_IN_GROUPS: Final = ("group_instance_id", "group_protocol", "group_remote_assignor")
"""Who gives these means to be in a group: without one they are an error."""

_NOT_WITH: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "consumer": (
        ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"),
        "the broker decides about that for members of the new protocol (KIP-848), by group.consumer.* settings",
    ),
    "classic": (("group_remote_assignor",), "assignors in the broker need group_protocol='consumer' (KIP-848)"),
}


def check_group_settings(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """KafkaConfigurationError for settings that exclude one another. ``given``: what the user has said."""
    said = [name for name in (*ONLY_IN_GROUPS, *OF_GROUPS) if given.get(name) not in (None, False)]
    if settings["group_id"] is None:
        if said and said[0] in ONLY_IN_GROUPS:
            raise KafkaConfigurationError(f"{said[0]}: that is for consumer groups, and there is no group_id")
        if said:
            log.warning("there is no group_id, so nothing is committed, and %s do nothing", ", ".join(said))
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
