"""Fetch sessions (KIP-227): what one broker is asked for is sent once, and from then on only its changes.

    INITIAL ──full fetch──► answered with an id ──► epoch 1 ──► 2 ··· 2**31-1 ──► 1      each one says what has changed
       ▲                    without: INITIAL        │
       └── no answer, or an error of the whole ─────┘      the next one is full again, and ends what may be left of it

A fetch of a session names the partitions that are new to it, those whose offset or epoch is another than before, and
those that it is to forget. Its answer names those with something new: records, an error, a high watermark that moved.
A thousand partitions in which nothing happens are a request and an answer of a few bytes.

There is one fetch of the session in flight. What is wanted meanwhile (a seek, a partition new to this node, one whose
buffer was read) is :meth:`FetchSession.uncovered`, and can be asked for beside it, outside of the session.

What a broker without sessions (before version 7), or with no room for one, answers is a session that never opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.consume.partition import PartitionPosition
from kafka.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from kafka.protocol.constants import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID


class SessionPartition(NamedTuple):
    """A partition in a fetch: ``offset`` and ``leader_epoch`` are asked for; ``generation`` of the position then."""

    position: PartitionPosition
    generation: int
    offset: int
    leader_epoch: int
    topic_id: UUID

    @property
    def is_current(self) -> bool:
        """An answer to it is what the position waits for."""
        return self.generation == self.position.generation and self.offset == self.position.fetch_offset


class SessionChanges(NamedTuple):
    """What a request says of a session: its id and epoch, the partitions that it lists, those that it forgets."""

    session_id: int
    epoch: int
    listed: list[SessionPartition]
    forgotten: list[SessionPartition]


class FetchSession:
    """One broker's. ``is_enabled`` False: every fetch is full and wants no session."""

    def __init__(self, is_enabled: bool) -> None:
        self.wanted: dict[TopicPartition, SessionPartition] = {}
        """What is to be fetched here. In the order of full fetches: those that had records last come last."""
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH if is_enabled else FINAL_EPOCH
        self._is_enabled = is_enabled
        self._listed: dict[TopicPartition, SessionPartition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._nameless: set[TopicPartition] = set()
        self._is_by_name = False
        self._is_to_reopen = False

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def want(self, listing: SessionPartition) -> None:
        """Fetch this partition from now on, or go on with it there."""
        partition = listing.position.partition
        self.wanted.pop(partition, None)
        self.wanted[partition] = listing
        if listing.topic_id == ZERO_UUID:
            self._nameless.add(partition)
        else:
            self._nameless.discard(partition)
        listed = self._listed.get(partition)
        if listed == listing:
            self._changed.pop(partition, None)
            return
        self._changed[partition] = None
        if listed is not None and listed.topic_id != listing.topic_id:
            # Up to version 12 a broker adds what a request lists before it removes what the request forgets, so one
            # request cannot replace a partition of a topic that was made anew.
            self._is_to_reopen = True  # made anew: how to forget the former depends on the version

    def drop(self, partition: TopicPartition) -> None:
        """Fetch it no more."""
        if self.wanted.pop(partition, None) is not None:
            self._nameless.discard(partition)
            self._changed[partition] = None

    @property
    def needs_names(self) -> bool:
        """A topic has no id that is known, so all are called by their names (versions up to 12)."""
        return bool(self._nameless)

    def listing(self, partition: TopicPartition) -> SessionPartition | None:
        """What the last request said of the partition."""
        return self._listed.get(partition)

    def partitions(self) -> Iterable[TopicPartition]:
        """All that the broker knows of."""
        return self._listed.keys()

    def has_uncovered(self) -> bool:
        """Whether :meth:`uncovered` would have something, or so: what has changed may be no more than a farewell."""
        return bool(self._changed)

    def uncovered(self) -> list[SessionPartition]:
        """What is wanted and was not asked for by the last fetch."""
        return [self.wanted[partition] for partition in self._changed if partition in self.wanted]

    # -- requests and answers ------------------------------------------------------------------------------------------

    def next_fetch(self) -> SessionChanges:
        """What the next fetch says. To be sent, and answered or failed, before there is another."""
        if self._is_to_reopen or self._is_by_name != self.needs_names:
            self._reopen()
        self._is_by_name = self.needs_names
        listed: list[SessionPartition] = []
        forgotten: list[SessionPartition] = []
        if self.epoch == INITIAL_EPOCH or self.epoch == FINAL_EPOCH:
            self._listed = dict(self.wanted)
            listed += self._listed.values()
        else:
            for partition in self._changed:
                before, now = self._listed.get(partition), self.wanted.get(partition)
                if now is not None:
                    self._listed[partition] = now
                    if before is None or before.offset != now.offset or before.leader_epoch != now.leader_epoch:
                        listed.append(now)
                elif before is not None:
                    del self._listed[partition]
                    forgotten.append(before)
        self._changed.clear()
        return SessionChanges(self.session_id, self.epoch, listed, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """The broker answered. Whether its answer can be believed: it is one of this session."""
        if response.error_code:
            self._reopen(is_gone=response.error_code == FetchSessionIdNotFoundError.errno)
            return False
        told = response.session_id
        if not self._is_enabled:
            return True
        if self.epoch == INITIAL_EPOCH:
            self.session_id = told
            self.epoch = 1 if told != NO_SESSION else INITIAL_EPOCH
        elif told == self.session_id:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        # A fetch that drops the session's last partition ends the session: the answer has session id 0.
        elif told == NO_SESSION:  # its last partition was forgotten, or the broker needed the room
            self._reopen(is_gone=True)
        else:
            self._reopen()
            return False
        return True

    def failed(self) -> None:
        """No answer came: whether the broker has seen the request, and so its epoch, is not known."""
        self._reopen()

    def _reopen(self, is_gone: bool = False) -> None:
        """Open a new session: in place of this one, so that the broker need not keep both, unless it ``is_gone``."""
        self._is_to_reopen = False
        if self._is_enabled:
            self.epoch = INITIAL_EPOCH
            if is_gone:
                self.session_id = NO_SESSION

    def close(self) -> SessionChanges | None:
        """What the last fetch says, which ends the session; None when there is none."""
        session_id, self.session_id = self.session_id, NO_SESSION
        self.epoch = INITIAL_EPOCH
        return None if session_id == NO_SESSION else SessionChanges(session_id, FINAL_EPOCH, [], [])


def topics_of(
    session_partitions: Iterable[SessionPartition], partition_max_bytes: int
) -> list[FetchRequest.FetchTopic]:
    """The listings as a request has them. Topics in the order of their first partition."""
    return [
        FetchRequest.FetchTopic(
            topic=topic,
            topic_id=of_topic[0].topic_id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=listing.position.partition.partition,
                    current_leader_epoch=listing.leader_epoch,
                    fetch_offset=listing.offset,
                    partition_max_bytes=partition_max_bytes,
                )
                for listing in of_topic
            ],
        )
        for topic, of_topic in _by_topic(session_partitions).items()
    ]


def forgotten_of(session_partitions: Iterable[SessionPartition]) -> list[FetchRequest.ForgottenTopic]:
    """The listings as a request forgets them."""
    return [
        FetchRequest.ForgottenTopic(
            topic=topic,
            topic_id=of_topic[0].topic_id,
            partitions=[listing.position.partition.partition for listing in of_topic],
        )
        for topic, of_topic in _by_topic(session_partitions).items()
    ]


def _by_topic(session_partitions: Iterable[SessionPartition]) -> dict[str, list[SessionPartition]]:
    found: dict[str, list[SessionPartition]] = {}
    for listing in session_partitions:
        found.setdefault(listing.position.partition.topic, []).append(listing)
    return found


# One broker that is fetched from: which fetch goes there next, and when.
#
#     the session's fetch     ───────────── held by the broker until something comes ─────────────►   answer, next fetch
#     a fetch beside it             seek! ──► 10 ms ──► on another connection, without session  ──►   answer
#
# A broker answers the fetches of a session, as all requests of a connection, one after the other, and may hold one for
# ``max_wait_ms``. What is wanted meanwhile would wait for that: a seek, a partition that is new here, one whose buffer
# was read. A second fetch of the session does not help, on any connection: its epoch is wrong until the first is
# answered. So it is asked for at once, by a fetch that belongs to no session and disturbs none; the session learns of
# it with its next fetch. The broker holds that other fetch shortly only, so that another seek does not wait for it in
# turn.


FIRST_VERSION_WITH_IDS: Final = 13
FETCH_HELD_AFTER_S: Final = 0.01
"""A fetch that was not answered for so long is taken for one that the broker holds."""
SESSIONLESS_WAIT_MS: Final = 50
"""How long the broker may hold a fetch beside another one."""
SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFoundError.errno, InvalidFetchSessionEpochError.errno, FetchSessionTopicIdError.errno}
)
"""Errors that a new session puts right: it is opened at once, and after a back-off if that fails, too."""


class FetchLimits(NamedTuple):
    """What every fetch says. Sizes in bytes."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    isolation_level: int
    rack: str


class SendFetch(NamedTuple):
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any); if ``is_sessionless``, on a
    connection of its own. ``reserved_bytes`` is set aside for the answer. ``session_partitions``: what one beside the
    session asks for."""

    node: int
    request: FetchRequest
    max_version: int | None
    is_sessionless: bool
    reserved_bytes: int
    session_partitions: Mapping[TopicPartition, SessionPartition]


class NodeFetcher:
    """See the module. ``backoff`` turns a number of failures in a row into seconds."""

    def __init__(self, node: int, limits: FetchLimits, backoff: Callable[[int], float], has_session: bool) -> None:
        self.node = node
        self.session = FetchSession(has_session)
        self.next_deadline = inf
        """When :meth:`next_fetch` is wanted again, as far as time is what it waits for."""
        self._limits = limits
        self._backoff = backoff
        self._failures = 0
        self._backoff_until = 0.0
        self._is_in_flight = False
        self._sent_at = 0.0
        self._is_sessionless_in_flight = False
        self._sessionless_backoff_until = 0.0

    @property
    def is_used(self) -> bool:
        """Something is asked for here, or about to be."""
        return bool(self.session.wanted) or self._is_in_flight or self._is_sessionless_in_flight

    def next_fetch(self, now: float, free_at: float, room: Callable[[int], int]) -> SendFetch | None:
        """The fetch to send now. ``free_at``: the node wants none before (KIP-219). ``room(partitions)`` gives the
        bytes that may come of so many, 0 for none now; it is asked only if a fetch is due, which then has them."""
        self.next_deadline = inf
        session = self.session
        if not session.wanted:
            return None
        if not self._is_in_flight:
            due_at = max(self._backoff_until, free_at)
            if now < due_at:
                self.next_deadline = due_at
                return None
            reserved_bytes = room(len(session.wanted))
            if not reserved_bytes:
                return None
            self._is_in_flight = True
            self._sent_at = now
            return self._fetch(session.next_fetch(), reserved_bytes)
        if self._is_sessionless_in_flight or not session.has_uncovered():
            return None
        uncovered = session.uncovered()
        if not uncovered:
            return None
        due_at = max(self._sent_at + FETCH_HELD_AFTER_S, self._sessionless_backoff_until, free_at)
        if now < due_at:
            self.next_deadline = due_at
            return None
        reserved_bytes = room(len(uncovered))
        if not reserved_bytes:
            return None
        self._is_sessionless_in_flight = True
        return self._fetch(SessionChanges(NO_SESSION, FINAL_EPOCH, uncovered, []), reserved_bytes, is_sessionless=True)

    def last_fetch(self) -> SendFetch | None:
        """Ends the session, for the broker's sake; its response is ignored. None when there is none."""
        entries = self.session.close()
        return None if entries is None else self._fetch(entries, 0, is_sessionless=True)

    def _fetch(self, entries: SessionChanges, reserved_bytes: int, is_sessionless: bool = False) -> SendFetch:
        limits = self._limits
        request = FetchRequest(
            max_wait_ms=min(limits.max_wait_ms, SESSIONLESS_WAIT_MS) if is_sessionless else limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=min(limits.max_bytes, reserved_bytes),
            isolation_level=limits.isolation_level,
            session_id=entries.session_id,
            session_epoch=entries.epoch,
            topics=topics_of(entries.listed, limits.max_partition_bytes),
            forgotten_topics_data=forgotten_of(entries.forgotten),
            rack_id=limits.rack,
        )
        max_version = FIRST_VERSION_WITH_IDS - 1 if self.session.needs_names else None
        session_partitions = (
            {listing.position.partition: listing for listing in entries.listed} if is_sessionless else {}
        )
        return SendFetch(self.node, request, max_version, is_sessionless, reserved_bytes, session_partitions)

    # -- answers -------------------------------------------------------------------------------------------------------

    def listing(self, call: SendFetch, partition: TopicPartition) -> SessionPartition | None:
        """What ``call``, which was just answered, asked of the partition."""
        return call.session_partitions.get(partition) if call.is_sessionless else self.session.listing(partition)

    def answered(self, call: SendFetch, response: FetchResponse, now: float) -> bool:
        """The answer has come. Whether what it says of partitions counts."""
        if call.is_sessionless:
            self._is_sessionless_in_flight = False
            if response.error_code:
                self._sessionless_backoff_until = now + self._backoff(1)
            return not response.error_code
        self._is_in_flight = False
        counts = self.session.answered(response)
        if counts:
            self._failures = 0
            return True
        self._failures += 1
        is_of_session = response.error_code in SESSION_ERRORS or not response.error_code
        if not is_of_session or self._failures > 1:
            self._backoff_until = now + self._backoff(self._failures)
        return False

    def failed(self, call: SendFetch, now: float) -> None:
        """There is no answer."""
        if call.is_sessionless:
            self._is_sessionless_in_flight = False
            self._sessionless_backoff_until = now + self._backoff(1)
            return
        self._is_in_flight = False
        self._failures += 1
        self._backoff_until = now + self._backoff(self._failures)
        self.session.failed()
