"""Share groups (KIP-932) as pure, deterministic state machines: no sockets, threads, clocks or files.

    coordinator.py        ShareGroupCoordinator: membership, assignment, and each group's share partitions
    partition.py          one share partition: records in flight, acquisition locks, acknowledgements
    state_store.py        durable state, as records of the state topics
    sessions.py           share sessions and their connections
    states.py             record states, acknowledgement types and checks, events, settings

The behaviour is Apache Kafka 4.3.0's, as measured; each module says where it differs.
"""

from __future__ import annotations
