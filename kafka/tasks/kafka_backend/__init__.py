"""The back end on Kafka, by the names of the public clients alone::

    connection   a KafkaClient for an app's settings, with a clear error when nothing answers
    admin        topics made or checked, share groups prepared: before the first job and the first heartbeat
    backend      what an app gets: one I/O thread, a producer, the results                     (any thread)
    results      states of jobs: the tail of one's own results partition, look-ups by bare id  (any thread)
    worker_side  what a worker gets, on its own loop: the two below, over one client           (the loop's thread)
    delivery     leases from share groups
    publisher    records written in groups, one answer for each group

Consumer groups (brokers before 4.2, and ordered queues) are to come as a second delivery beside the one here.
"""

from __future__ import annotations

from kafka.tasks.kafka_backend.backend import KafkaBackend, open_kafka

__all__ = ["KafkaBackend", "open_kafka"]
