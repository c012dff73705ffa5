"""Deletes the jobs of a queue that have not ended: counted as :mod:`kafka.tasks.backends.kafka.backlogs` does, and
deleted with DeleteRecords up to where the topics ended before the count.

A job that a worker holds ends as usual although its record is gone: the broker takes the acknowledgement, and the
result is written. When that worker dies, such a job does not run again. A member of a consumer group looks every few
seconds where the logs begin, and drops what it has fetched below.
"""

from __future__ import annotations

from kafka import KafkaAdminClient, OffsetSpec
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.admin import check_queue_topic
from kafka.tasks.backends.kafka.backlogs import measure_backlogs
from kafka.tasks.backends.kafka.connection import connect_in_thread
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings


class KafkaPurge:
    """See :class:`kafka.tasks.backends.base.QueuePurge`."""

    def __init__(self, names: TopicNames, queue: str, settings: Settings) -> None:
        self._app = names.app
        self._io = connect_in_thread(settings, "purge")
        client = self._io.client
        try:
            self._admin: KafkaAdminClient = self._io.call(lambda: KafkaAdminClient(client=client))
            existing = self._admin.list_topics()
            check_queue_topic(names.queue(queue), existing)
            self._ends = self._find_ends([topic for topic in names.job_topics(queue) if topic in existing])
            with needing(names.app, "group", "Read"):
                (backlog,) = self._io.call(
                    client.run, measure_backlogs(client, names, [queue], settings.request_timeout)
                )
            self.jobs: int = backlog.unfinished
        except BaseException:
            self._io.close()
            raise

    def delete(self) -> None:
        """See :class:`kafka.tasks.backends.base.QueuePurge`."""
        if self._ends:
            with needing(self._app, "topic", "Delete"):
                self._admin.delete_records(self._ends)

    def close(self) -> None:
        """See :class:`kafka.tasks.backends.base.QueuePurge`."""
        try:
            self._admin.close()
        finally:
            self._io.close()

    def _find_ends(self, topics: list[str]) -> dict[TopicPartition, int]:
        """Of each partition that has records, the offset behind the last one."""
        latest = {
            TopicPartition(topic["name"], partition["partition_index"]): OffsetSpec.LATEST
            for topic in self._admin.describe_topics(topics)
            for partition in topic["partitions"]
        }
        return {place: at.offset for place, at in self._admin.list_partition_offsets(latest).items() if at.offset > 0}
