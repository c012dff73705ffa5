"""What the embedded broker keeps on disk: partition logs in Kafka's own batch format, and journals of everything else.

    log_directory.py    a broker's data directory
      directory_lock.py   one writer
      metadata_store.py   topics, configurations -> journal.py
      partition_log.py    one partition -> segment.py -> index.py
        opening.py          what a start believes and what it reads -> scan.py
        rolling.py          when another segment begins
        unsynced.py         what is not known to be on the disk
        time_search.py      records by their timestamps
        log_config.py       what its topic's configuration says
        producer_state.py   idempotence, transactions
        epochs.py           which leader epoch began where
        retention.py        what is too old or too much
        cleaner.py          compaction -> offset_map.py, rebuild.py, swap.py
      maintenance.py      when retention and compaction have their turn
      flush.py            when bytes go to the disk -> syncing.py
      trash.py            files on their way out
      files.py            open files, whole writes, atomic replacement

Knows no requests and no connections. Not thread-safe: the broker's loop owns it.
"""

from __future__ import annotations

from kafka.broker.log.directory_lock import DirectoryLock, DirectoryLockedError
from kafka.broker.log.files import FilePool
from kafka.broker.log.flush import FlushPolicy
from kafka.broker.log.journal import Journal
from kafka.broker.log.log_config import LogConfig, log_config
from kafka.broker.log.log_directory import LogDirectory
from kafka.broker.log.metadata_store import MetadataStore, Topic
from kafka.broker.log.partition_log import Appended, PartitionLog
from kafka.broker.log.producer_state import ProducerStates
from kafka.broker.log.segment import batch_bounds

__all__ = [
    "Appended",
    "DirectoryLock",
    "DirectoryLockedError",
    "FilePool",
    "FlushPolicy",
    "Journal",
    "LogConfig",
    "LogDirectory",
    "MetadataStore",
    "PartitionLog",
    "ProducerStates",
    "Topic",
    "batch_bounds",
    "log_config",
]
