"""Which queues can take the jobs of the schedule: those whose topic ``APP.QUEUE.due`` exists, and ordered ones whose
topic ``APP.QUEUE`` does (:meth:`kafka.tasks.format.topics.TopicNames.scheduled`).

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
"""Topics that are remembered as missing: anybody can name some queues."""


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
        """Topics that do not exist, as far as is known."""
        return frozenset(self._missing)

    def forget(self) -> None:
        """Look for all of them again: one may have been deleted."""
        self._existing.clear()
        self._missing.clear()

    async def look_for(self, topics: Iterable[str]) -> None:
        """Know about these topics, and again about those that were missing a while ago. Errors are the client's."""
        now = self._client.loop.time()
        known = self._existing | {topic for topic, at in self._missing.items() if now - at < MISSING_S}
        wanted = list(dict.fromkeys(each for each in (*topics, *self._missing) if each not in known))
        if not wanted:
            return
        named = [topic for topic in wanted if self._is_of_a_queue(topic)]
        found: Iterable[str] = ()
        if named:
            limits: dict[str, Any] = {"backoff": self._client.retry_backoff, "timeout_s": self._timeout_s}
            found = await self._client.run(find_topics(named, **limits))
        self._existing.update(found)
        for topic in wanted:
            self._missing.pop(topic, None)
            if topic not in found:
                self._missing[topic] = now
        while len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]

    def _is_of_a_queue(self, topic: str) -> bool:
        """Whether a queue can have it: else its name may be one that a broker refuses."""
        return is_queue(topic.removeprefix(self._names.queue("")).removesuffix(".due"))
