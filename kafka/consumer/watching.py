"""What a consumer hands out and is, for those who watch it: metrics, interceptors, telemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.consumer.group import GroupDriver
from kafka.consumer.interceptors import ConsumerInterceptors
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.reader import Records


def watcher(
    metrics: ConsumerMetrics | None, interceptors: ConsumerInterceptors | None
) -> Callable[[Records], Records] | None:
    """What records go through on their way out; None for nothing. Counted is what was read, whatever interceptors make
    of it."""
    if interceptors is None:
        return None if metrics is None else metrics.taken
    if metrics is None:
        return interceptors.on_consume

    def both(records: Records) -> Records:
        metrics.taken(records)
        return interceptors.on_consume(records)

    return both


def resource_of(settings: Mapping[str, Any], group: GroupDriver | None) -> Callable[[], dict[str, str]]:
    """The attributes that telemetry tells of this consumer, as Java's does; what is empty is left out. Who has left the
    group is still told by the last member id."""

    def resource() -> dict[str, str]:
        return {
            "group_id": settings["group_id"] or "",
            "group_instance_id": settings["group_instance_id"] or "",
            "group_member_id": "" if group is None else group.last_member_id,
            "client_rack": settings["client_rack"] or "",
        }

    return resource
