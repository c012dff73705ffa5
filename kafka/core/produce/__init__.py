"""The producer without sockets or threads: from a record to the request that carries it, and what follows an answer.

    batch.py          pending records, batches, sequence numbers, the queues of partitions; batches -> a Produce request
    accumulator.py    records -> partition, batch, under one short lock; the memory that they take
    sender.py         which batches go where and when, the producer's id and epoch (KIP-98); what follows from answers
    errors.py         tables: what each error leads to
    transactions.py   the state of a transactional producer
    topics.py         learning the partitions of a topic
"""

from __future__ import annotations
