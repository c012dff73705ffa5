"""The producer without sockets or threads: from a record to the request that carries it, and what follows an answer.

    batch.py          pending records, batches, and the queues of partitions
    accumulator.py    records -> batches, under one short lock; the memory that they take
    partitioning.py   which partition a record goes to
    sender.py         which batches go where and when; what follows from answers
    errors.py         tables: what each error leads to
    producer_id.py    producer id, epoch and sequence numbers (KIP-98)
    request.py        batches -> a Produce request, in every version
    transactions.py   the state of a transactional producer
    topics.py         learning the partitions of a topic
"""

from __future__ import annotations
