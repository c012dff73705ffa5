"""The storage of the embedded broker: partition logs in Kafka's own batch format, and a journal of its metadata.

    log_directory.py    a broker's data directory: its lock, its topics' logs
    metadata_store.py   topics, configurations, counters, in a journal
    partition_log.py    one partition: append, read, retention
    segment.py          one file of a log: its sparse index, its seal, scanning, search by timestamp
    recovery.py         what is trusted and what is scanned when a log is opened
    producer_state.py   idempotence, transactions
    leader_epochs.py    which leader epoch began where
    cleaner.py          compaction
    maintenance.py      when retention and compaction run
    flushing.py         when bytes go to the disk, and which callers wait
    files.py            open files, whole writes, atomic replacement, deletion

Knows no requests and no connections. Not thread-safe: the broker's loop owns it.
"""

from __future__ import annotations

from kafka.broker.log.files import FilePool
from kafka.broker.log.flushing import FlushPolicy
from kafka.broker.log.log_directory import DirectoryLock, DirectoryLockedError, LogDirectory
from kafka.broker.log.metadata_store import Journal, MetadataStore, Topic
from kafka.broker.log.partition_log import LogAppendInfo, LogConfig, PartitionLog, log_config
from kafka.broker.log.producer_state import ProducerStates, TransactionMarker
from kafka.broker.log.segment import batch_bounds, batch_positions

__all__ = [
    "DirectoryLock",
    "DirectoryLockedError",
    "FilePool",
    "FlushPolicy",
    "Journal",
    "LogAppendInfo",
    "LogConfig",
    "LogDirectory",
    "MetadataStore",
    "PartitionLog",
    "ProducerStates",
    "Topic",
    "TransactionMarker",
    "batch_bounds",
    "batch_positions",
    "log_config",
]
