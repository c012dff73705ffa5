"""The back end on Kafka, by the names of the public clients alone::

    connection           a KafkaClient for an app's settings, with a clear error when no broker answers
    admin                topics created or checked, share groups prepared: before the first job and the first heartbeat
    backend              what an app uses: one I/O thread, a producer, the results              (any thread)
    worker_backend       what a worker uses, on its own loop: the next three, over one client   (the loop's thread)
    publisher            records written in groups, one callback for each group
    snapshot_publisher   the worker's snapshots, written to APP.workers
    snapshot_reader      snapshots of all workers, read from there, with a connection of its own
    dead_log             a queue's dead topic as a log, with a connection of its own
    control              which queues are paused: written by operators, read by workers on their loop
    purge                the jobs of a queue that have not ended, to be counted and deleted, the same
    partition_reader     a partition, polled to a known end offset
    timed_resident       the base of what acts on a client's loop from time to time

Consumer groups (brokers before 4.2, and ordered queues) are to come as a second delivery beside the one here.
"""

from __future__ import annotations

from kafka.tasks.backends.kafka.backend import KafkaBackend, open_kafka

__all__ = ["KafkaBackend", "open_kafka"]
