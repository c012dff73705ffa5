"""What an administrator asks of a cluster, as dialogues that return plain dictionaries.

    values.py, group_values.py   what users hand in: NewTopic, ConfigResource, OffsetSpec and their kinds
    plain.py                     messages as dictionaries
    answers.py                   errors in answers: raised, or a reason to ask again
    given.py                     what users hand over, looked at
    topics.py                    topics, partitions, records
    configs.py                   settings
    cluster.py                   brokers
    replicas.py                  moves of partitions, elections of leaders
    log_dirs.py                  brokers' directories
    quorum.py                    controllers
    coordinators.py              one question for many groups, each at its own coordinator
    leaders.py                   one question for many partitions, each at its own leader
    groups.py                    groups of all types, their members, their end
    group_offsets.py             what groups have committed
    share_groups.py              where share groups stand
    transactions.py              transactions, as coordinators and partitions know them; their values beside it
    partition_offsets.py         where partitions begin and end
    acls.py, acl_values.py       access rules
    scram.py                     users of SCRAM
    features.py                  levels of features
    broker_versions.py           what brokers speak

Another call is a dialogue here and a method of ``kafka.admin.KafkaAdminClient`` that runs it.
"""

from __future__ import annotations
