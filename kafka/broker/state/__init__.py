"""The broker's coordinator state in Kafka's own places: internal topics whose records are the changes, oldest first.

    __consumer_offsets     committed offsets, and the groups of all kinds
    __transaction_state    transactional ids
    __share_group_state    share partitions

``state_topic.py`` appends to them and reads them back at the start; ``records.py`` encodes a record's key and value.
The owners of the state are ``offset_store.py``, ``share/state_store.py``, ``groups/`` and ``transactions/``. The files
are those of any topic, so that Apache Kafka's ``kafka-dump-log`` decodes them.
"""

from __future__ import annotations
