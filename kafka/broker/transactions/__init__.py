"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

    coordinator.py            all transactional ids of the broker: decides with transaction_metadata.py, stores in
                              __transaction_state, carries out ends, runs timeouts
    transaction_metadata.py   one transactional id: its states, and the transition of each request
    markers.py                commit and abort markers in the partitions' logs
    verification.py           whether a batch or an offset may be part of a transaction

    client            InitProducerId   AddPartitions   Produce ...   EndTxn
    state             Empty  ────────> Ongoing ───────────────────> PrepareCommit ──> CompleteCommit
    on the disk       record           record          batches       record    markers  record

The record of its Prepare state decides a transaction: the next start completes it from there. Between two requests no
transaction of this broker is in a Prepare state, unless a write has failed or, with ``fsync=always``, waits for the
disk: the markers are written before the response to EndTxn, where Apache Kafka responds first.
"""

from __future__ import annotations

from kafka.broker.transactions.coordinator import TransactionCoordinator
from kafka.broker.transactions.transaction_metadata import CoordinatorTransactionState, TransactionMetadata

__all__ = ["CoordinatorTransactionState", "TransactionCoordinator", "TransactionMetadata"]
