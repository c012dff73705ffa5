"""What an administrator asks of a cluster, as dialogues that return plain dictionaries.

    values.py    what users hand in: NewTopic, ConfigResource and their kinds
    plain.py     messages as dictionaries; errors in answers
    topics.py    topics, partitions, records
    configs.py   settings
    cluster.py   brokers, groups

Another call is a dialogue here and a method of ``kafka.admin.KafkaAdminClient`` that runs it.
"""

from __future__ import annotations
