"""What one answer of a share session brings: records, the fate of acknowledgements, locks that are gone.

:class:`Intake` takes in an answer partition by partition and changes what is held accordingly; what each error asks for
is read from ``reactions.py``. It knows nothing of the session's number and of requests (``session.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple, cast
from uuid import UUID

from kafka.core.share.acks import TakenAcks
from kafka.core.share.holding import Acknowledged, Answered, Holding, each_of
from kafka.core.share.reactions import REST_MAX_S, REST_S, of_acks, of_partition
from kafka.core.share.records import (
    AcknowledgeType,
    AcquiredRange,
    AcquiredReader,
    OpenBatch,
    SharePartition,
    ShareRecord,
    Slice,
)
from kafka.core.share.rests import Rests
from kafka.errors import KafkaError, for_code
from kafka.protocol.share import ShareAcknowledgeResponse, ShareFetchResponse

_NOTHING: Final = TakenAcks([], [], [])


class Outcome(NamedTuple):
    """What an answer, or its absence, brought. ``lost``: held records whose locks are gone. ``error``: of the whole.
    ``partition_errors``: of fetched partitions, and of acknowledgements that came to the wrong broker. ``says_again``:
    some of the acknowledgements have no outcome yet, and are said again. ``expired_unread``: offsets whose locks ended
    before they were read."""

    records: list[ShareRecord]
    answered: list[Answered]
    lost: list[ShareRecord]
    partition_errors: dict[SharePartition, KafkaError]
    error: KafkaError | None
    says_again: bool = False
    expired_unread: int = 0

    @property
    def acknowledged(self) -> list[Acknowledged]:
        """What was answered, record by record."""
        return each_of(self.answered)

    def __bool__(self) -> bool:
        return bool(self.records or self.answered or self.lost or self.partition_errors or self.error)


class Scene(NamedTuple):
    """What of the session an answer meets: its partitions, their topics' names, what is held, and who rests."""

    holding_of: Callable[[SharePartition], Holding]
    wanted: Container[SharePartition]
    topics: Mapping[UUID, str]
    fetch_rests: Rests
    ack_rests: Rests
    check_crcs: bool
    open_batch: OpenBatch


class Intake:
    """One answer. ``deadline``: when the locks end that it gives; ``gives_back``: something has to be said at once;
    ``has_acquired``: something is there to be read."""

    def __init__(self, scene: Scene, deadline: float, now: float) -> None:
        self.gives_back = False
        self.has_acquired = False
        self._says_again = False
        self.records: list[ShareRecord] = []
        self.answered: list[Answered] = []
        self.lost: list[ShareRecord] = []
        self.errors: dict[SharePartition, KafkaError] = {}
        self._scene = scene
        self._deadline = deadline
        self._now = now

    def outcome(self) -> Outcome:
        """All of it."""
        for record in self.lost:
            record.lost = True
        return Outcome(self.records, self.answered, self.lost, self.errors, None, self._says_again)

    # -- records -------------------------------------------------------------------------------------------------------

    def fetched(self, partition: SharePartition, part: ShareFetchResponse.PartitionData) -> None:
        """A partition's part of a ShareFetch answer, but for what it says of acknowledgements."""
        if part.error_code:
            self._failed(partition, for_code(part.error_code)(part.error_message or ""))
        elif part.acquired_records:
            self._acquired(partition, part)

    def _failed(self, partition: SharePartition, error: KafkaError) -> None:
        reaction = of_partition(error)
        if partition not in self.errors:
            self._scene.fetch_rests.begin(partition, self._now, reaction.rest_s, reaction.rest_max_s)
        self.errors[partition] = error
        if reaction.locks_gone:
            self._drop(partition, error)

    def _drop(self, partition: SharePartition, error: KafkaError) -> None:
        held, said = self._scene.holding_of(partition).drop(error)
        self.lost += held
        self.answered += said

    def _acquired(self, partition: SharePartition, part: ShareFetchResponse.PartitionData) -> None:
        scene = self._scene
        if partition not in scene.wanted:  # not since the request went out
            self._give_back(partition, part)
            return
        if self._deadline <= self._now:
            return  # the answer was under way for longer than the locks last: who began to work would do so for nothing
        ranges = [AcquiredRange(*_span(each), each.delivery_count) for each in part.acquired_records]
        holding = scene.holding_of(partition)
        try:
            reader = AcquiredReader(
                scene.topics[partition.topic_id], partition.partition, cast(memoryview, part.records), ranges,
                self._deadline, holding, scene.check_crcs, scene.open_batch,
            )  # fmt: skip
        except KafkaError as error:
            self._give_back(partition, part)
            self._failed(partition, error)
            return
        self.has_acquired = True
        lost, said = holding.acquired(reader)
        self.lost += lost
        self.answered += said

    def read(self, holding: Holding, part: Slice) -> None:
        """Some of what is unread of a partition."""
        try:
            self.records += holding.read(part)
        except KafkaError as error:
            # Given back, not dropped: another member may have the codec, or read what a network or disk damaged here.
            part.bytes_left = 0  # to find that out may have taken as long as a slice
            self.gives_back = holding.give_back() or self.gives_back
            self._failed(holding.partition, error)

    def _give_back(self, partition: SharePartition, part: ShareFetchResponse.PartitionData) -> None:
        spans = [(first, last) for first, last in map(_span, part.acquired_records) if first <= last]
        self._scene.holding_of(partition).acks.add_ranges(spans, AcknowledgeType.RELEASE)
        self.gives_back = True

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def said(self, partition: SharePartition, taken: TakenAcks | None, code: int, text: str | None) -> None:
        """What the broker answers to a partition's acknowledgements; ``taken`` None: none went out."""
        if not code:
            if taken is not None:
                self._taken_by_broker(partition, taken)
            return
        error = for_code(code)(text or "")
        reaction = of_acks(error)
        holding = self._scene.holding_of(partition)
        taken = taken or _NOTHING
        if reaction.locks_gone:
            self.answered += holding.refuse(taken, error)
            self._failed(partition, error)
        elif reaction.one_by_one and not taken.is_single:
            self.answered += holding.say_one_by_one(taken)
            self.gives_back = self._says_again = True
        elif reaction.again:
            self._scene.ack_rests.begin(partition, self._now, REST_S, REST_MAX_S)
            self.answered += holding.say_again(taken, error, self._now)
            self._says_again = True
        else:
            self.answered += holding.refuse(taken, error)

    def _taken_by_broker(self, partition: SharePartition, taken: TakenAcks) -> None:
        self._scene.ack_rests.went_well(partition)
        for kind, records in taken.said:
            self.answered.append(Answered(kind, records, None))
            if kind is not AcknowledgeType.RENEW:
                continue
            for record in records:
                record.lock_deadline = self._deadline
                if record.lost:  # its time was up here while the renewal was on its way
                    offsets = (record.offset, record.offset)
                    self._scene.holding_of(partition).acks.add_ranges([offsets], AcknowledgeType.RELEASE)


def ack_code(
    part: ShareFetchResponse.PartitionData | ShareAcknowledgeResponse.PartitionData,
) -> tuple[int, str | None]:
    """The code and text that a partition's part has for its acknowledgements."""
    if isinstance(part, ShareFetchResponse.PartitionData):
        return part.acknowledge_error_code, part.acknowledge_error_message
    return part.error_code, part.error_message


def _span(acquired: ShareFetchResponse.AcquiredRecords) -> tuple[int, int]:
    return acquired.first_offset, acquired.last_offset
