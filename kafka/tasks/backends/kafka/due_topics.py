"""Which queues can take the jobs of the schedule: those whose topic ``APP.QUEUE.due`` exists.

A record for a topic that does not exist would hold up a transaction until it times out, so the owners look before they
send the first one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.tasks.backends.kafka.admin import find_topics
from kafka.tasks.format.topics import TopicNames, is_queue

MISSING_S: Final = 30.0
"""A missing topic is looked for again after this time."""
MOST_MISSING: Final = 1_000
"""Queues that are remembered as missing: anybody can name some."""


class DueTopics:
    """What a process's owners know of the topics. On the loop of ``client``."""

    def __init__(self, client: KafkaClient, names: TopicNames, timeout_s: float) -> None:
        self._client = client
        self._names = names
        self._timeout_s = timeout_s
        self._existing: set[str] = set()
        self._missing: dict[str, float] = {}  # and when it was looked for

    @property
    def missing(self) -> frozenset[str]:
        """Queues that have no topic, as far as is known."""
        return frozenset(self._missing)

    def forget(self) -> None:
        """Look for all of them again: one may have been deleted."""
        self._existing.clear()
        self._missing.clear()

    async def look_for(self, queues: Iterable[str]) -> None:
        """Know about these queues, and again about those that were missing a while ago. Errors are the client's."""
        now = self._client.loop.time()
        known = self._existing | {queue for queue, at in self._missing.items() if now - at < MISSING_S}
        wanted = list(dict.fromkeys(each for each in (*queues, *self._missing) if each not in known))
        if not wanted:
            return
        topics = {self._names.due(queue): queue for queue in wanted if is_queue(queue)}
        found: Iterable[str] = ()
        if topics:
            limits: dict[str, Any] = {"backoff": self._client.retry_backoff, "timeout_s": self._timeout_s}
            found = await self._client.run(find_topics(list(topics), **limits))
        existing = {topics[topic] for topic in found}
        self._existing |= existing
        for queue in wanted:
            self._missing.pop(queue, None)
            if queue not in existing:
                self._missing[queue] = now
        while len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]
