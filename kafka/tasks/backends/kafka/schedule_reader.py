"""Reads a partition of ``APP.schedule``: whole, when its owner begins, and single records of it later.

Only committed records are read. Between two calls nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka import admin
from kafka.admin import OffsetSpec
from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.loop_task import next_turn, within
from kafka.tasks.backends.kafka.partition_reader import READ_CONFIGS, position_of, read_timeout

TURN_RECORDS: Final = 1_000
"""Records that are taken in one turn of the loop."""
TURN_READS: Final = 50
"""Of single records."""
NEAR_OFFSETS: Final = 2_000
"""A record is read on to, rather than looked up, when it is no farther away: about half of what a fetch brings."""
SKIP_OFFSETS: Final = 8
"""So few are not worth skipping."""
LOOK_S: Final = 0.02
"""A partition may end with markers of transactions, which no record announces: the position is looked at so often."""
STUCK_S: Final = 15.0
"""Time without a record after which reading has failed."""

_CONFIGS: Final[dict[str, Any]] = {
    **READ_CONFIGS,
    "isolation_level": "read_committed",
    "max_partition_fetch_bytes": 1024 * 1024,
    "fetch_max_wait_ms": int(LOOK_S * 1000),
}


class ScheduleReader:
    """See the module. On the loop of ``client``; one call at a time. Errors are the client's own."""

    def __init__(self, client: KafkaClient, place: TopicPartition) -> None:
        self._client = client
        self._loop: Any = client.loop
        self._place = place
        self._consumer: Any = KafkaConsumer(client=client, **_CONFIGS)
        self._consumer.assign([place])
        self._consumer.pause(place)

    async def read_all(self, take: Callable[[ConsumerRecord], object]) -> None:
        """Give all records to ``take``, from the first one to the last that is committed now."""
        limits: dict[str, Any] = {"backoff": self._client.retry_backoff, "timeout_s": STUCK_S}
        look_up = admin.dialogues.list_partition_offsets
        place, level = self._place, "read_committed"
        first = await self._client.run(look_up({place: OffsetSpec.EARLIEST}, level, **limits))
        last = await self._client.run(look_up({place: OffsetSpec.LATEST}, level, **limits))
        position, end = first[place].offset, last[place].offset
        if position >= end:
            return
        self._seek(position)
        try:
            while position < end:
                for record in await self._next_records(position):
                    take(record)
                position = position_of(self._consumer, self._place, position)
                await next_turn(self._loop)
        finally:
            self._pause()

    async def read(self, offsets: Sequence[int], take: Callable[[int, ConsumerRecord | None], bool]) -> None:
        """Give the records at these offsets, in their order, to ``take``, until it returns False; None: it is gone."""
        position, index = -1 - NEAR_OFFSETS, 0  # far from all
        reads = 0
        try:
            while index < len(offsets):
                first = offsets[index]
                if not position <= first <= position + NEAR_OFFSETS:
                    position = first
                    self._seek(position)
                while first - position >= SKIP_OFFSETS:
                    position = await self._skip(position, first)
                last = index
                while last + 1 < len(offsets) and offsets[last + 1] - offsets[last] < SKIP_OFFSETS:
                    last += 1
                reads += 1
                if reads % TURN_READS == 0:
                    await next_turn(self._loop)
                records = await self._next_records(position, min(offsets[last] - position + 1, TURN_RECORDS))
                found = {record.offset: record for record in records}
                position = position_of(self._consumer, self._place, position)
                while index < len(offsets) and offsets[index] < position:
                    offset = offsets[index]
                    index += 1
                    if not take(offset, found.get(offset)):
                        return
        finally:
            self._pause()

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close_async()

    async def _next_records(self, position: int, most: int = TURN_RECORDS) -> list[ConsumerRecord]:
        """The next records, or none when the position has moved without one."""
        give_up_at = self._loop.time() + STUCK_S
        while True:
            records: list[ConsumerRecord] = self._consumer.poll(0, most).get(self._place, [])
            if records or position_of(self._consumer, self._place, position) > position:
                return records
            await self._wait(give_up_at)

    async def _skip(self, position: int, offset: int) -> int:
        """Go on at ``offset``, or as far as records have come; where that is, behind ``position``."""
        give_up_at = self._loop.time() + STUCK_S
        while True:
            if position_of(self._consumer, self._place) >= 0:
                reached: int = self._consumer.skip_to(self._place, offset)
                if reached > position:
                    return reached
            # Before a fault there may be good records, and else it is raised.
            self._consumer.poll(0, min(offset - position, TURN_RECORDS))
            reached = position_of(self._consumer, self._place, position)
            if reached > position:
                return reached
            await self._wait(give_up_at)

    async def _wait(self, give_up_at: float) -> None:
        if self._loop.time() > give_up_at:
            raise read_timeout(self._place.topic, STUCK_S)
        await within(self._loop, self._consumer.when_ready(), LOOK_S)

    def _seek(self, offset: int) -> None:
        self._consumer.seek(self._place, offset)
        self._consumer.resume(self._place)

    def _pause(self) -> None:
        """Fetch nothing until the next call. (It may have been closed meanwhile.)"""
        if self._place in self._consumer.assignment():
            self._consumer.pause(self._place)
