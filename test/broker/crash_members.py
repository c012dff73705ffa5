"""Work of members of groups, while their broker dies and comes again (``crash_load.py``): commits that never go back,
acknowledgements that hold."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kafka.protocol.share import DescribeShareGroupOffsetsRequest, ShareAcknowledgeRequest, ShareFetchRequest
from test.broker.crash_load import (
    DEADLINE_S,
    NOT_YET,
    Client,
    Progress,
    Worker,
    read,
    settled,
)
from test.broker.groups import requests as groups
from test.support.waiting import until


class Member(Worker):
    """A member of a group, by the classic protocol or the new one, that commits offsets. Promise: it goes on after a
    restart as if nothing had been, and offsets never go back."""

    def __init__(self, port: int, progress: Progress, topic: str, is_classic: bool) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.group = "classic" if is_classic else "new"
        self._is_classic = is_classic
        self._member = "" if is_classic else "member-1"
        self._generation = -1
        self.offset = -1
        self.beats_after_restarts = 0

    def work(self, client: Client) -> None:
        if self._generation < 0:
            self._join(client)
        else:
            self._beat(client)
            self.beats_after_restarts += 1
        while not self.is_over.is_set():
            offset = self.offset + 1
            request = groups.commit(self.group, self.topic, {0: offset}, self._generation, self._member)
            assert settled(lambda request=request: groups.codes(client.ask(request, 9))[0]) == 0  # type: ignore[misc]
            self.offset = offset
            self.progress.note()
            if offset % 8 == 0:
                self._beat(client)

    def _join(self, client: Client) -> None:
        if not self._is_classic:
            answer = client.ask(groups.consumer(self.group, self._member, 0, [self.topic]))
            assert answer.error_code == 0, answer
            self._generation = answer.member_epoch
            return
        joined = client.ask(groups.join(self.group, self._member, session_ms=60_000, rebalance_ms=2_000), 5)
        if joined.error_code == 79:
            self._member = joined.member_id
        elif joined.error_code:
            assert joined.error_code in (25, *NOT_YET), joined
            self._member = ""
        else:
            request = groups.sync(self.group, joined.generation_id, self._member, {self._member: b"all"})
            synced = client.ask(request, 3)
            if synced.error_code == 0:
                self._generation = joined.generation_id
                return
            assert synced.error_code in (22, 25, 27, *NOT_YET), synced
        self._join(client)

    def _beat(self, client: Client) -> None:
        if self._is_classic:
            beat = groups.beat(self.group, self._generation, self._member)
            code = settled(lambda: client.ask(beat, 4).error_code)
            assert code == 0, f"the member was to go on without a rebalance: {code}"
            return
        answer = client.ask(groups.consumer(self.group, self._member, self._generation, owned={}))
        assert answer.error_code == 0, f"the member was to go on: {answer}"
        self._generation = answer.member_epoch

    def check(self, client: Client, *, is_last: bool) -> None:
        request = groups.fetch(self.group, self.topic)
        (found,) = groups.offsets(client.ask(request, 9))
        assert self.offset <= found <= self.offset + 1, f"offset {found} after {self.offset} was acknowledged"


class ShareMember(Worker):
    """Takes records of a share group and accepts them. Promise: what was accepted does not come again, all else
    does."""

    GROUP: Final = "share"

    def __init__(self, port: int, progress: Progress, topic: str, topic_id: UUID) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.topic_id = topic_id
        self.accepted: set[int] = set()
        self.sent: set[int] = set()
        """Accepted perhaps: of some the answer was lost."""

    def work(self, client: Client) -> None:
        epoch = 0
        while not self.is_over.is_set():
            epoch = self._turn(client, epoch)

    def _turn(self, client: Client, epoch: int) -> int:
        ranges = self._acquire(client, epoch)
        epoch += 1
        for first, last in ranges:
            again = self.accepted.intersection(range(first, last + 1))
            assert not again, f"accepted and delivered again: {sorted(again)}"
        for first, last in ranges:
            self.sent.update(range(first, last + 1))
            self._accept(client, epoch, first, last)
            epoch += 1
            self.accepted.update(range(first, last + 1))
            self.progress.note()
        return epoch

    def _acquire(self, client: Client, epoch: int) -> list[tuple[int, int]]:
        F = ShareFetchRequest
        partition = F.FetchPartition(partition_index=0, acknowledgement_batches=[])
        request = F(
            group_id=self.GROUP,
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=20,
            batch_size=20,
            share_acquire_mode=1,
            topics=[F.FetchTopic(topic_id=self.topic_id, partitions=[partition])] if epoch == 0 else [],
            forgotten_topics_data=[],
        )
        answer = client.ask(request)
        assert answer.error_code == 0, answer
        return [
            (found.first_offset, found.last_offset)
            for topic in answer.responses
            for one in topic.partitions
            for found in one.acquired_records
        ]

    def _accept(self, client: Client, epoch: int, first: int, last: int) -> None:
        A = ShareAcknowledgeRequest
        acks = A.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
        partitions = [A.AcknowledgePartition(partition_index=0, acknowledgement_batches=[acks])]
        request = A(
            group_id=self.GROUP,
            member_id="m",
            share_session_epoch=epoch,
            topics=[A.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)],
        )
        answer = client.ask(request)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer

    def check(self, client: Client, *, is_last: bool) -> None:
        if not is_last:
            return
        end = read(client, self.topic, 0, 0).end
        epoch = 0

        def is_all_delivered() -> bool:
            nonlocal epoch
            epoch = self._turn(client, epoch)  # the group is on the partition from now on, so the lag is exact
            return self._lag(client) == 0

        until(is_all_delivered, within_s=DEADLINE_S, shown=lambda: f"{self._lag(client)} records are not delivered")
        assert self.accepted <= set(range(end)) <= self.accepted | self.sent, "each record was delivered"

    def _lag(self, client: Client) -> int:
        """How many records the group has not done."""
        D = DescribeShareGroupOffsetsRequest
        topic = D.DescribeShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=[0])
        group_request = D.DescribeShareGroupOffsetsRequestGroup(group_id=self.GROUP, topics=[topic])
        return client.ask(D(groups=[group_request])).groups[0].topics[0].partitions[0].lag
