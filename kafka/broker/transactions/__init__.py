"""The coordinator of transactions (KIP-98, KIP-360, KIP-890): who may write under a transactional id, and what becomes
of what was written.

    coordinator.py    all transactional ids of the broker: decides with transaction.py, keeps in __transaction_state,
                      watches timeouts
    transaction.py    one transactional id: what each request makes of it; values in, values out
    states.py         the states, and the steps between them
    ending.py         carrying out what was decided, in the order that a lost machine cannot hurt
    markers.py        commit and abort markers in the partitions' logs
    orphans.py        transactions in the logs that nobody knows any more
    admission.py      whether a batch or an offset may be part of a transaction
    store.py          Kafka's records of all this

    client            InitProducerId   AddPartitions   Produce ...   EndTxn
    state             Empty  ────────> Ongoing ───────────────────> PrepareCommit ──> CompleteCommit
    on the disk       record           record          batches       record    markers  record

A transaction is decided by the record of its Prepare state: what is on the disk then is completed by whoever starts on
the directory next. Between two requests no transaction of this broker is in a Prepare state, unless a write has failed
or, with ``fsync=always``, waits for the disk: the markers are written before EndTxn is answered, where Apache Kafka
answers first.
"""

from __future__ import annotations

from kafka.broker.transactions.coordinator import TransactionCoordinator
from kafka.broker.transactions.states import TransactionState
from kafka.broker.transactions.transaction import Transaction

__all__ = ["Transaction", "TransactionCoordinator", "TransactionState"]
