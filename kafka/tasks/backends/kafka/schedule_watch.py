"""Warns when the schedule has no owner: jobs with a delay, and retries, then wait for one.

A worker that owns no partitions itself looks some seconds after its start, and, as long as there is none, once a
minute.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kafka import admin
from kafka.client import KafkaClient
from kafka.errors import KafkaError
from kafka.tasks.backends.kafka.connection import BACKGROUND
from kafka.tasks.backends.kafka.timed_resident import TimedResident

log = logging.getLogger(__name__)

FIRST_LOOK_S: Final = 5.0
LOOK_S: Final = 60.0
TIMEOUT_S: Final = 10.0


class ScheduleWatch(TimedResident):
    """Looks whether the group has members. What goes wrong is not logged: nothing depends on it."""

    def __init__(self, client: KafkaClient, group: str) -> None:
        super().__init__(client)
        self._group = group
        self._is_warned = False

    def start(self) -> None:
        """Look some seconds from now."""
        self._client.add_resident(self)
        self._call_later(FIRST_LOOK_S, self._look)

    def _look(self) -> None:
        limits: dict[str, Any] = {"backoff": self._client.retry_backoff, "timeout_s": TIMEOUT_S}
        described = self._client.run(admin.dialogues.describe_groups([self._group], **limits), BACKGROUND)
        described.add_callback(self._on_groups).add_errback(self._on_failure)

    def _on_groups(self, groups: dict[str, Any]) -> None:
        group = groups[self._group]
        if self._is_closed or (group["error"] and group["group_state"] != "Dead"):  # it is not known
            self._call_later(LOOK_S, self._look)
            return
        if group["members"]:
            if self._is_warned:
                log.info("the schedule has an owner now (group %s)", self._group)
            return
        if not self._is_warned:
            self._is_warned = True
            log.warning(
                "no process owns the schedule (group %s has no members): jobs with a delay, retries and periodic jobs "
                "wait until one does; run a worker with a pool of processes or --schedule, or "
                "python -m kafka scheduler MODULE:APP",
                self._group,
            )
        self._call_later(LOOK_S, self._look)

    def _on_failure(self, error: BaseException) -> None:
        if isinstance(error, KafkaError) and error.retriable:
            self._call_later(LOOK_S, self._look)
