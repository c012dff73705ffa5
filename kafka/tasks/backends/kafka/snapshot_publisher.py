"""Workers' snapshots to the topic ``APP.workers``: the worker's side, on its loop.

The topic is created with the first snapshot, in the background. While a snapshot is being sent, a new one replaces the
one that waits. When a broker is unreachable or refuses, that is logged, and the worker is not affected.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kafka import admin
from kafka.client import KafkaClient
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.producer import KafkaProducer
from kafka.tasks.backends.kafka.admin import find_topics, new_topics
from kafka.tasks.backends.kafka.connection import BACKGROUND, last_connect_error, producer_configs
from kafka.tasks.format.topics import TopicPlan, missing_topic_error
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

STALE_S: Final = 10.0
"""Delivery timeout of a snapshot."""
WARN_AFTER_FAILURES: Final = 2
"""Failures in a row: what was under way in an outage may fail just after it."""
BATCH_BYTES: Final = 65_536


class KafkaSnapshotPublisher:
    """See :class:`kafka.tasks.backends.base.SnapshotPublisher`."""

    def __init__(self, client: KafkaClient, plan: TopicPlan, settings: Settings) -> None:
        self._client = client
        self._plan = plan
        self._settings = settings
        self._producer: KafkaProducer | None = None
        self._next: tuple[str, bytes | None] | None = None
        self._is_busy = False
        self._is_off = False
        self._has_failed = False
        self._failures = 0  # in a row, but for those of an outage

    def publish(self, worker_id: str, text: bytes | None) -> None:
        """See :class:`kafka.tasks.backends.base.SnapshotPublisher`."""
        if self._is_off:
            return
        self._next = worker_id, text
        if not self._is_busy:
            self._publish_next()

    def close(self, timeout_s: float) -> None:
        """See :class:`kafka.tasks.backends.base.SnapshotPublisher`."""
        if not self._has_failed and self._client.loop.is_usable:
            self._client.loop.run_until(lambda: not self._is_busy, timeout_s)
        self._is_off = True
        if self._producer is not None:
            self._producer.close(timeout=0)
            self._producer = None

    def _publish_next(self) -> None:
        """Make the producer, or send the snapshot that waits."""
        if self._next is None or self._is_off:
            return
        self._is_busy = True
        try:
            if self._producer is None:
                made = self._client.run(self._create_topic(), BACKGROUND)
                made.add_callback(self._prepared).add_errback(self._refused)
                return
            (worker_id, text), self._next = self._next, None
            sent = self._producer.send(self._plan.name, text, worker_id.encode(), partition=0)
            sent.add_callback(self._sent).add_errback(self._failed)
        except KafkaError as error:
            self._failed(error)

    def _create_topic(self) -> Any:
        """A dialogue: make the topic if it is not there; KafkaConfigurationError when that is not allowed."""
        backoff, timeout_s = self._client.retry_backoff, self._settings.request_timeout
        plan = self._plan
        if (yield from find_topics([plan.name], backoff=backoff, timeout_s=timeout_s)):
            return
        if not self._settings.create_topics:
            raise missing_topic_error(plan)
        try:
            topics = yield from new_topics(self._client, [plan], backoff=backoff, timeout_s=timeout_s)
            yield from admin.dialogues.create_topics(topics, backoff=backoff, timeout_s=timeout_s)
        except TopicAlreadyExistsError:
            log.debug("topic %s was created by another worker", plan.name)
        yield from admin.dialogues.wait_for_topics([plan.name], timeout_s=timeout_s)

    def _prepared(self, _: object) -> None:
        configs = producer_configs(self._settings, linger_s=0, batch_bytes=BATCH_BYTES, batch_records=0)
        configs |= {"acks": 1, "enable_idempotence": False, "delivery_timeout_ms": int(STALE_S * 1000)}
        configs["request_timeout_ms"] = min(configs["request_timeout_ms"], int(STALE_S * 1000))
        try:
            self._producer = KafkaProducer(client=self._client, **configs)
        except KafkaError as error:
            self._refused(error)
            return
        self._is_busy = False
        self._publish_next()

    def _refused(self, error: BaseException) -> None:
        """The topic cannot be created; after an error that is not retriable no snapshot is published any more."""
        self._is_off = not getattr(error, "retriable", False)
        self._failed(error)

    def _sent(self, _: object) -> None:
        self._is_busy = self._has_failed = False
        self._failures = 0
        self._publish_next()

    def _failed(self, error: BaseException) -> None:
        self._is_busy = False
        self._next = None  # it would fail, too; the next one comes in a few seconds
        self._has_failed = True
        if last_connect_error(self._client) is not None:
            return  # that is logged already (kafka.tasks.health.outage)
        self._failures += 1
        if self._is_off or self._failures == WARN_AFTER_FAILURES:
            reason = error.args[0] if error.args else type(error).__name__
            until = "" if self._is_off else " for now"
            log.warning(
                "could not publish this worker's snapshot, python -m kafka inspect does not show it%s: %s",
                until,
                reason,
            )
