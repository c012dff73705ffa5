"""Which topics a consumer is about: those of a pattern, those it knows by their ids alone, and those it cannot have.

A pattern of the client's own is matched against all topics, which are asked for now and after each
``metadata_max_age_ms``; what the cluster's metadata keeps up to date are only those that match. Topics that a pattern
has found are never created by asking for them: one that was deleted stays so. All on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import inf
from uuid import UUID

from kafka.client import KafkaClient
from kafka.core.connection import ByVersion
from kafka.core.routing import AnyNode
from kafka.errors import (
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.future import Future
from kafka.net.loop import DeadlineTimer
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

_REPORTED_ERRORS: tuple[type[KafkaError], ...] = (TopicAuthorizationFailedError, InvalidTopicError)
"""What is raised to users. A topic that is missing may come, and is a warning."""

FIRST_VERSION_WITH_IDS = 12


def metadata_of(name: str | None) -> ByVersion[MetadataResponse]:
    """A request for one topic's metadata, or for all topics'; creates none: where a version cannot say that, all are
    asked for."""

    def build(version: int) -> MetadataRequest:
        if version == 0:
            return MetadataRequest(topics=[])
        if version < 4:
            return MetadataRequest(topics=None)
        wanted = None if name is None else [MetadataRequest.MetadataRequestTopic(name=name)]
        return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

    return ByVersion(MetadataRequest, build)


class SubscribedTopics:
    """``on_names`` is called with what matches a pattern, ``on_trouble`` with why a topic cannot be read."""

    def __init__(
        self, client: KafkaClient, max_age_s: float, has_internal: bool, on_trouble: Callable[[KafkaError], object]
    ) -> None:
        self._client = client
        self._max_age_s = max_age_s
        self._has_internal = has_internal
        self._on_trouble = on_trouble
        self._on_names: Callable[[frozenset[str]], object] | None = None
        self._matches: Callable[[str], object] | None = None
        self.matching: frozenset[str] = frozenset()
        """The topics that match the pattern, as last seen."""
        self._names: frozenset[str] = frozenset()
        self._found: set[str] = set()  # by a pattern, ours or another member's, since the subscription changed
        self._reported: dict[str, tuple[KafkaError, float]] = {}  # topic -> its error as last told, and when
        self._numbers: dict[str, set[int]] = {}  # partitions that are assigned by hand
        self._missing: dict[str, tuple[set[int], float]] = {}  # topic -> its missing partitions as last told, and when
        self._ids: dict[UUID, str] = {}
        self._asked_ids: frozenset[UUID] = frozenset()
        self._alarm = DeadlineTimer(client.loop, self._look)
        client.cluster.add_listener(self._metadata_changed)
        client.cluster.exclude_from_creation(self._is_found)

    # -- what is watched -----------------------------------------------------------------------------------------------

    def watch(self, names: Iterable[str]) -> None:
        """These topics' troubles, and no pattern's."""
        self._matches = self._on_names = None
        self.matching = frozenset()
        self._alarm.set(inf)
        self._forget_found()
        self._numbers = {}
        self._note(frozenset(names))

    def watch_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """The troubles of these partitions' topics, and whether these have so many partitions."""
        numbers: dict[str, set[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, set()).add(number)
        self.watch(numbers)
        self._numbers = numbers
        self._tell_missing()

    def watch_pattern(self, matches: Callable[[str], object], on_names: Callable[[frozenset[str]], object]) -> None:
        """The topics whose names match, now and as they come and go."""
        self._matches, self._on_names = matches, on_names
        self.matching = frozenset()
        self._forget_found()
        self._numbers = {}
        self._note(frozenset())
        self._look()

    def _note(self, names: frozenset[str]) -> None:
        self._names = names
        self._reported = {name: told for name, told in self._reported.items() if name in names}
        if names:
            self._client.cluster.add_topics(names)
            self._metadata_changed()

    # -- patterns ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Ask for all topics, and match them."""
        if self._matches is None:
            return
        self._alarm.set(self._client.loop.time() + self._max_age_s)
        asked = self._ask(metadata_of(None))
        asked.add_callback(self._looked)
        asked.add_errback(self._look_failed)

    def _looked(self, answer: MetadataResponse) -> None:
        if self._matches is None or self._on_names is None:
            return
        found = frozenset(
            topic.name
            for topic in answer.topics
            if topic.name
            and not topic.error_code
            and (self._has_internal or not topic.is_internal)
            and self._matches(topic.name)
        )
        self._found |= found
        self._client.cluster.forget_topics(name for name in self._found - found if self._matches(name))
        if found != self.matching or not found:
            self.matching = found
            self._note(found)
            self._on_names(found)

    def _look_failed(self, error: BaseException) -> None:
        if self._matches is not None:
            log.debug("cannot list topics for the pattern, retrying: %s", error)
            self._alarm.set(self._client.loop.time() + self._client.retry_backoff.delay_s(3))

    def note_found(self, names: Iterable[str]) -> None:
        """Topics from elsewhere, the broker or members of the group; those that are not subscribed by name here
        are not for us to create."""
        self._found.update(name for name in names if name not in self._names)

    def _is_found(self, name: str) -> bool:
        return name in self._found

    def _forget_found(self) -> None:
        """Nothing is known by a pattern any more; what is gone of it is not to be made by asking for it now."""
        cluster = self._client.cluster
        cluster.forget_topics(name for name in self._found if cluster.partitions_for_topic(name) is None)
        self._found.clear()

    # -- ids -----------------------------------------------------------------------------------------------------------

    def topic_of_id(self, topic_id: UUID) -> str | None:
        """The name of a topic, once it is known."""
        name = self._client.cluster.topic_name_for_id(topic_id) or self._ids.get(topic_id)
        if name is not None:
            self.note_found((name,))
        return name

    def learn(self, ids: frozenset[UUID]) -> None:
        """Ask what these topics are called; listeners of the metadata get the answer."""
        if not ids or ids == self._asked_ids:
            return
        self._asked_ids = ids

        def build(version: int) -> MetadataRequest:
            wanted = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in sorted(ids)]
            return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        asked = self._ask(ByVersion(MetadataRequest, build), FIRST_VERSION_WITH_IDS)
        asked.add_callback(self._learnt)
        asked.add_errback(self._learn_failed)

    def _learnt(self, answer: MetadataResponse) -> None:
        self._asked_ids = frozenset()
        names = {topic.topic_id: topic.name for topic in answer.topics if topic.name and not topic.error_code}
        self._ids.update(names)
        self.note_found(names.values())
        if names:
            self._client.cluster.add_topics(names.values())

    def _learn_failed(self, error: BaseException) -> None:
        self._asked_ids = frozenset()
        level = logging.WARNING if isinstance(error, UnsupportedVersionError) else logging.DEBUG
        log.log(level, "cannot look up topic names by id, retrying: %s", error)

    # -- troubles ------------------------------------------------------------------------------------------------------

    def _metadata_changed(self, *_: object) -> None:
        cluster = self._client.cluster
        now = self._client.loop.time()
        awaits = False
        for name in self._names:
            error = cluster.topic_error(name)
            if error is None:
                self._reported.pop(name, None)
                continue
            awaits = awaits or error.retriable
            if self._matches is not None and isinstance(error, UnknownTopicOrPartitionError):
                self._alarm.set(now)  # it matched, and is gone: look whether it is
                continue
            told, told_at = self._reported.get(name, (None, 0.0))
            if told == error and now < told_at + self._max_age_s / 2:
                continue
            if isinstance(error, _REPORTED_ERRORS):
                self._reported[name] = (error, now)
                self._on_trouble(type(error)(f"topic {name}"))
            elif isinstance(error, UnknownTopicOrPartitionError):
                self._reported[name] = (error, now)
                log.warning("topic %s does not exist yet; waiting for it", name)
        if awaits:
            cluster.request_update()  # after the back-off, which grows while nothing changes
        self._tell_missing()

    def _tell_missing(self) -> None:
        """Partitions that were assigned by hand, and that their topics do not have: probably a wrong number."""
        now = self._client.loop.time()
        for name, numbers in self._numbers.items():
            there = self._client.cluster.partitions_for_topic(name)
            missing = numbers - there if there else set()
            if not missing:
                continue
            told, told_at = self._missing.get(name, (set(), 0.0))
            if told == missing and now < told_at + self._max_age_s / 2:
                continue
            self._missing[name] = (missing, now)
            log.warning(
                "%s: topic %s has %d partitions, and no such one (yet); it is read as soon as it is there. Correct "
                "assign(), or add partitions to the topic",
                ", ".join(f"{name}-{number}" for number in sorted(missing)), name, len(there or ()),
            )  # fmt: skip

    def _ask(self, request: ByVersion[MetadataResponse], min_version: int | None = None) -> Future[MetadataResponse]:
        try:
            return self._client.request(AnyNode(), request, min_version=min_version)
        except KafkaError as error:  # the client is closed
            return Future[MetadataResponse]().failure(error)

    def close(self) -> None:
        """Watch nothing any more."""
        self._matches = self._on_names = None
        self._alarm.set(inf)
        self._forget_found()
        self._client.cluster.remove_listener(self._metadata_changed)
        self._client.cluster.allow_creation(self._is_found)
