"""Classic groups (KIP-62, KIP-345) and consumer groups (KIP-848): state machines without clocks or I/O of their own.

    coordinator.py        GroupCoordinator: all groups of a broker, their records, timers and offsets; used by handlers
    classic_group.py      one classic group: members, generations, JoinGroup and SyncGroup requests that wait
    consumer_group.py     one consumer group: members, epochs, target assignment, reconciliation
    migration.py          classic members in consumer groups, and conversion from one type to the other
    records.py            groups as records of ``__consumer_offsets``, and back
    assignors.py          ``range`` and ``uniform``
    regex.py              subscriptions by regular expression
    timers.py             all timeouts of all groups

The groups get ``now`` in monotonic s and return what they decided: results for requests, records to be written. Share
groups are in ``kafka/broker/share``: they have no reconciliation and no commits, so little but timers is shared.
"""

from __future__ import annotations
