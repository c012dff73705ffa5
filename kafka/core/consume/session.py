"""Fetch sessions (KIP-227): what one broker is asked for, told once, and from then on only what changes of it.

    OPENING ──full fetch──► answered with an id ──► epoch 1 ──► 2 ··· 2**31-1 ──► 1      each one says what has changed
       ▲                    without: OPENING        │
       └── no answer, or an error of the whole ─────┘      the next one is full again, and ends what may be left of it

A fetch of a session names the partitions that are new to it, those whose offset or epoch is another than before, and
those that it is to forget. Its answer names those with something new: records, an error, a high watermark that moved.
A thousand partitions in which nothing happens are a request and an answer of a few bytes.

There is one fetch of the session in flight. What is wanted meanwhile (a seek, a partition new to this node, one whose
buffer was read) is :meth:`FetchSession.uncovered`, and can be asked for beside it, outside of the session.

What a broker without sessions (before version 7), or with no room for one, answers is a session that never opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.consume.positions import PartitionPosition
from kafka.errors import FetchSessionIdNotFoundError
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID

NO_SESSION: Final = 0
OPENING: Final = 0
"""Epoch of a fetch that is full, and would like a session."""
FINAL: Final = -1
"""Epoch of a fetch that is full and wants none: it ends the session whose id it has."""
MAX_EPOCH: Final = 2**31 - 1


class After(Enum):
    """What becomes of a session by an error of the whole answer."""

    GONE = "the broker has it no more: open a new one"
    REPLACE = "it is of no more use: open a new one in its place, so that the broker need not keep both"


AFTER_ERROR: Final[Mapping[int, After]] = {FetchSessionIdNotFoundError.errno: After.GONE}
"""By error code; all others (wrong epoch 71, names and ids mixed 106, no answer at all): :attr:`After.REPLACE`."""


class Listing(NamedTuple):
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


class Entries(NamedTuple):
    """What a request says of a session: its id and epoch, the partitions that it lists, those that it forgets."""

    session_id: int
    epoch: int
    listed: list[Listing]
    forgotten: list[Listing]


class FetchSession:
    """One broker's. ``is_enabled`` False: every fetch is full and wants no session."""

    def __init__(self, is_enabled: bool) -> None:
        self.wanted: dict[TopicPartition, Listing] = {}
        """What is to be fetched here. In the order of full fetches: those that had records last come last."""
        self.session_id = NO_SESSION
        self.epoch = OPENING if is_enabled else FINAL
        self._is_enabled = is_enabled
        self._listed: dict[TopicPartition, Listing] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._nameless: set[TopicPartition] = set()
        self._is_by_name = False
        self._is_to_reopen = False

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def want(self, listing: Listing) -> None:
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

    def listing(self, partition: TopicPartition) -> Listing | None:
        """What the broker was told last of the partition."""
        return self._listed.get(partition)

    def partitions(self) -> Iterable[TopicPartition]:
        """All that the broker knows of."""
        return self._listed.keys()

    def has_uncovered(self) -> bool:
        """Whether :meth:`uncovered` would have something, or so: what has changed may be no more than a farewell."""
        return bool(self._changed)

    def uncovered(self) -> list[Listing]:
        """What is wanted and was not asked for by the last fetch."""
        return [self.wanted[partition] for partition in self._changed if partition in self.wanted]

    # -- requests and answers ------------------------------------------------------------------------------------------

    def next_fetch(self) -> Entries:
        """What the next fetch says. To be sent, and answered or failed, before there is another."""
        if self._is_to_reopen or self._is_by_name != self.needs_names:
            self._reopen(After.REPLACE)
        self._is_by_name = self.needs_names
        listed: list[Listing] = []
        forgotten: list[Listing] = []
        if self.epoch == OPENING or self.epoch == FINAL:
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
        return Entries(self.session_id, self.epoch, listed, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """The broker answered. Whether its answer can be believed: it is one of this session."""
        if response.error_code:
            self._reopen(AFTER_ERROR.get(response.error_code, After.REPLACE))
            return False
        told = response.session_id
        if not self._is_enabled:
            return True
        if self.epoch == OPENING:
            self.session_id = told
            self.epoch = 1 if told != NO_SESSION else OPENING
        elif told == self.session_id:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        elif told == NO_SESSION:  # its last partition was forgotten, or the broker needed the room
            self._reopen(After.GONE)
        else:
            self._reopen(After.REPLACE)
            return False
        return True

    def failed(self) -> None:
        """No answer came: whether the broker has seen the request, and so its epoch, is not known."""
        self._reopen(After.REPLACE)

    def _reopen(self, after: After) -> None:
        self._is_to_reopen = False
        if self._is_enabled:
            self.epoch = OPENING
            if after is After.GONE:
                self.session_id = NO_SESSION

    def close(self) -> Entries | None:
        """What the last fetch says, which ends the session; None when there is none."""
        session_id, self.session_id = self.session_id, NO_SESSION
        self.epoch = OPENING
        return None if session_id == NO_SESSION else Entries(session_id, FINAL, [], [])


def topics_of(listings: Iterable[Listing], partition_max_bytes: int) -> list[FetchRequest.FetchTopic]:
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
        for topic, of_topic in _by_topic(listings).items()
    ]


def forgotten_of(listings: Iterable[Listing]) -> list[FetchRequest.ForgottenTopic]:
    """The listings as a request forgets them."""
    return [
        FetchRequest.ForgottenTopic(
            topic=topic,
            topic_id=of_topic[0].topic_id,
            partitions=[listing.position.partition.partition for listing in of_topic],
        )
        for topic, of_topic in _by_topic(listings).items()
    ]


def _by_topic(listings: Iterable[Listing]) -> dict[str, list[Listing]]:
    found: dict[str, list[Listing]] = {}
    for listing in listings:
        found.setdefault(listing.position.partition.topic, []).append(listing)
    return found
