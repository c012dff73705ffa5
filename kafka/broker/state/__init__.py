"""The broker's own state in Kafka's own places: internal topics whose records are the changes, oldest first.

    __consumer_offsets     committed offsets, and the groups of all kinds     group_records.py
    __transaction_state    transactional ids                                  transaction_records.py
    __share_group_state    share partitions                                   share_records.py

``state_topic.py`` appends to them (what their owners see of it: ``state_log.py``), ``replay.py`` reads them back at the
start, ``record_codec.py`` makes a record's key and value. What a record means is its owner's business:
``offset_store.py``, ``share/state_store.py``, ``groups/`` and ``transactions/``. The files are those of any topic, so
that Apache Kafka's ``kafka-dump-log`` decodes them.
"""

from __future__ import annotations
