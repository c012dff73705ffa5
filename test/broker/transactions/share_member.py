"""One member of a share group, by requests alone: which offsets it is handed out."""

from __future__ import annotations

import uuid

from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.share import ShareFetchRequest, ShareGroupHeartbeatRequest
from test.broker.transactions.txn import Asks
from test.support.waiting import until

DEADLINE_S = 30.0
NOT_READY = (14, 15, 16)


class ShareMember:
    """One member of a share group, on one partition."""

    def __init__(self, raw: Asks, group: str, topic: str, isolation: str, wait_ms: int = 300) -> None:
        self.raw = raw
        self.wait_ms = wait_ms
        self.group = group
        self.member = str(uuid.uuid4())
        self.epoch = 0
        self._set("share.isolation.level", isolation)
        self._set("share.auto.offset.reset", "earliest")
        metadata = raw.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), 12)
        self.topic_id = metadata.topics[0].topic_id
        member_epoch = 0

        def is_assigned() -> bool:
            nonlocal member_epoch
            beat = raw.ask(
                ShareGroupHeartbeatRequest(
                    group_id=group, member_id=self.member, member_epoch=member_epoch, subscribed_topic_names=[topic]
                ),
                1,
            )
            if beat.error_code != 0:
                return False
            member_epoch = beat.member_epoch
            return beat.assignment is not None and bool(beat.assignment.topic_partitions)

        until(is_assigned)
        until(lambda: self.fetch() is not None)

    def _set(self, name: str, value: str) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=32, resource_name=self.group, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert self.raw.ask(request, 1).responses[0].error_code == 0

    def fetch(self, max_records: int = 100, exact: bool = False) -> list[tuple[int, int]] | None:
        """First and last offset of each acquired range, neighbours joined; None: the group is not there yet."""
        answer = self.raw.ask(
            ShareFetchRequest(
                group_id=self.group,
                member_id=self.member,
                share_session_epoch=self.epoch,
                max_wait_ms=self.wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=max_records,
                batch_size=max_records,
                share_acquire_mode=int(exact),
                topics=[
                    ShareFetchRequest.FetchTopic(
                        topic_id=self.topic_id,
                        partitions=[
                            ShareFetchRequest.FetchPartition(
                                partition_index=0, partition_max_bytes=0, acknowledgement_batches=[]
                            )
                        ],
                    )
                ],
                forgotten_topics_data=[],
            ),
            2,
        )
        assert answer.error_code == 0
        self.epoch += 1
        joined: list[tuple[int, int]] = []
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code in NOT_READY:
                    return None
                assert partition.error_code == 0
                for row in partition.acquired_records:
                    if joined and joined[-1][1] + 1 == row.first_offset:
                        joined[-1] = (joined[-1][0], row.last_offset)
                    else:
                        joined.append((row.first_offset, row.last_offset))
        return joined
