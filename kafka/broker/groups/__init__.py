"""Groups of consumers: the classic protocol (KIP-62, KIP-345) and the new one (KIP-848), as machines without clocks.

    coordinator.py        all groups of a broker: requests, timers; what handlers talk to
    register.py           which there are, and when something is written; offset_rules.py: whose offsets are whose
    classic_group.py      one classic group: who may join, stay, leave
    classic_rebalance.py  its way from one generation to the next           classic_roster.py classic_member.py
    consumer_group.py     one group of the new protocol: members, sessions  consumer_member.py
    consumer_target.py    what its members are to have: topics, epochs, the target
    classic_in_consumer.py  its members that speak the classic protocol
    reconcile.py          where one of its members goes next on the way to its target
    picture.py            all that is durable of such a group
    migration.py          from the one kind to the other, and back
    assignors.py          range and uniform
    regex.py              subscriptions by regular expression               regex_syntax.py regex_machine.py
    embedded_protocol.py  what consumers put into the classic protocol's opaque bytes
    classic_records.py consumer_records.py   groups as records of ``__consumer_offsets``, and back
    loading.py            all groups from the records, at the start
    states.py timers.py group_settings.py

Machines get ``now`` in monotonic s and say what they decided: answers with the ticket of the request that waits for
them, records to be written. Share groups are a sibling in ``kafka/broker/share``: they have no reconciliation and no
commits, so that but for timers and the shape of a heartbeat little is the same.
"""

from __future__ import annotations
