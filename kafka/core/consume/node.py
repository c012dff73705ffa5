"""One broker that is fetched from: which fetch goes there next, and when.

    the session's fetch     ───────────── held by the broker until something comes ─────────────►   answer, and the next
    a fetch beside it             seek! ──► 10 ms ──► on another connection, without session  ──►   answer

A broker answers the fetches of a session, as all requests of a connection, one after the other, and may hold one for
``max_wait_ms``. What is wanted meanwhile would wait for that: a seek, a partition that is new here, one whose buffer
was read. So it is asked for at once, by a fetch that belongs to no session and disturbs none; the session learns of it
with its next fetch. The broker holds that other fetch shortly only, so that another seek does not wait for it in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final, NamedTuple

from kafka.core.consume.session import (
    FINAL,
    NO_SESSION,
    Entries,
    FetchSession,
    Listing,
    forgotten_of,
    topics_of,
)
from kafka.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.structs import TopicPartition

FIRST_VERSION_WITH_IDS: Final = 13
HELD_AFTER_S: Final = 0.01
"""A fetch that was not answered for so long is taken for one that the broker holds."""
BESIDE_WAIT_MS: Final = 50
"""How long the broker may hold a fetch beside another one."""
OF_THE_SESSION: Final = frozenset(
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
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any); if ``is_beside``, on a connection
    of its own. ``room_bytes`` is set aside for the answer. ``listings``: what one beside the session asks for."""

    node: int
    request: FetchRequest
    max_version: int | None
    is_beside: bool
    room_bytes: int
    listings: Mapping[TopicPartition, Listing]


class FetchNode:
    """See the module. ``backoff`` turns a number of failures in a row into seconds."""

    def __init__(self, node: int, limits: FetchLimits, backoff: Callable[[int], float], has_session: bool) -> None:
        self.node = node
        self.session = FetchSession(has_session)
        self.next_deadline = inf
        """When :meth:`next_fetch` is wanted again, as far as time is what it waits for."""
        self._limits = limits
        self._backoff = backoff
        self._failures = 0
        self._rests_until = 0.0
        self._is_in_flight = False
        self._sent_at = 0.0
        self._is_beside_in_flight = False
        self._beside_rests_until = 0.0

    @property
    def is_used(self) -> bool:
        """Something is asked for here, or about to be."""
        return bool(self.session.wanted) or self._is_in_flight or self._is_beside_in_flight

    def next_fetch(self, now: float, free_at: float, room: Callable[[int], int]) -> SendFetch | None:
        """The fetch to send now. ``free_at``: the node wants none before (KIP-219). ``room(partitions)`` gives the
        bytes that may come of so many, 0 for none now; it is asked only if a fetch is due, which then has them."""
        self.next_deadline = inf
        session = self.session
        if not session.wanted:
            return None
        if not self._is_in_flight:
            due_at = max(self._rests_until, free_at)
            if now < due_at:
                self.next_deadline = due_at
                return None
            room_bytes = room(len(session.wanted))
            if not room_bytes:
                return None
            self._is_in_flight = True
            self._sent_at = now
            return self._fetch(session.next_fetch(), room_bytes)
        if self._is_beside_in_flight or not session.has_uncovered():
            return None
        uncovered = session.uncovered()
        if not uncovered:
            return None
        due_at = max(self._sent_at + HELD_AFTER_S, self._beside_rests_until, free_at)
        if now < due_at:
            self.next_deadline = due_at
            return None
        room_bytes = room(len(uncovered))
        if not room_bytes:
            return None
        self._is_beside_in_flight = True
        return self._fetch(Entries(NO_SESSION, FINAL, uncovered, []), room_bytes, is_beside=True)

    def last_fetch(self) -> SendFetch | None:
        """Ends the session, for the broker's sake; its answer is nobody's. None when there is none."""
        entries = self.session.close()
        return None if entries is None else self._fetch(entries, 0, is_beside=True)

    def _fetch(self, entries: Entries, room_bytes: int, is_beside: bool = False) -> SendFetch:
        limits = self._limits
        request = FetchRequest(
            max_wait_ms=min(limits.max_wait_ms, BESIDE_WAIT_MS) if is_beside else limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=min(limits.max_bytes, room_bytes),
            isolation_level=limits.isolation_level,
            session_id=entries.session_id,
            session_epoch=entries.epoch,
            topics=topics_of(entries.listed, limits.max_partition_bytes),
            forgotten_topics_data=forgotten_of(entries.forgotten),
            rack_id=limits.rack,
        )
        max_version = FIRST_VERSION_WITH_IDS - 1 if self.session.needs_names else None
        listings = {listing.position.partition: listing for listing in entries.listed} if is_beside else {}
        return SendFetch(self.node, request, max_version, is_beside, room_bytes, listings)

    # -- answers -------------------------------------------------------------------------------------------------------

    def listing(self, call: SendFetch, partition: TopicPartition) -> Listing | None:
        """What ``call``, which was just answered, asked of the partition."""
        return call.listings.get(partition) if call.is_beside else self.session.listing(partition)

    def answered(self, call: SendFetch, response: FetchResponse, now: float) -> bool:
        """The answer has come. Whether what it says of partitions counts."""
        if call.is_beside:
            self._is_beside_in_flight = False
            if response.error_code:
                self._beside_rests_until = now + self._backoff(1)
            return not response.error_code
        self._is_in_flight = False
        counts = self.session.answered(response)
        if counts:
            self._failures = 0
            return True
        self._failures += 1
        is_of_session = response.error_code in OF_THE_SESSION or not response.error_code
        if not is_of_session or self._failures > 1:
            self._rests_until = now + self._backoff(self._failures)
        return False

    def failed(self, call: SendFetch, now: float) -> None:
        """There is no answer."""
        if call.is_beside:
            self._is_beside_in_flight = False
            self._beside_rests_until = now + self._backoff(1)
            return
        self._is_in_flight = False
        self._failures += 1
        self._rests_until = now + self._backoff(self._failures)
        self.session.failed()
