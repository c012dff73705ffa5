"""What an administrator asks of a cluster, as dialogues that return plain dictionaries.

    values.py, group_values.py   what users hand in: NewTopic, ConfigResource, OffsetSpec and their kinds
    plain.py                     messages as dictionaries; errors in answers
    topics.py                    topics, partitions, records
    configs.py                   settings
    cluster.py                   brokers
    coordinators.py              one question for many groups, each at its own coordinator
    groups.py                    groups of all types, their members, their end
    group_offsets.py             what groups have committed
    share_groups.py              where share groups stand

Another call is a dialogue here and a method of ``kafka.admin.KafkaAdminClient`` that runs it.
"""

from __future__ import annotations
