"""What an administrator asks of a cluster, as dialogues that return plain dictionaries.

    values.py        what users pass and get: NewTopic, ConfigResource, OffsetSpec, TransactionState and the like
    responses.py     requests to a broker, and errors in responses: raised, or a reason to ask again; parts of messages
    routing.py       one request for many groups or partitions, each sent to its own coordinator or leader
    topics.py        topics, partitions, records; reassignments and elections of leaders
    configs.py       settings
    cluster.py       brokers, controllers, log directories
    groups.py        groups of all types: members, committed offsets, share groups' offsets
    transactions.py  transactions as coordinators and partitions know them; hanging ones, and aborting them
    acls.py          access rules
    scram.py         users of SCRAM
    features.py      levels of features, and the API versions of brokers

Another call is a dialogue here, a name in ``kafka.admin.dialogues``, and a declaration in
``kafka.admin.KafkaAdminClient``, from which ``blocking`` makes the method that runs it. An API whose errors are in its
response is a row, ``AdminApi``, too.
"""

from __future__ import annotations
