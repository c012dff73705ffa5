"""Share groups (KIP-932) as pure, deterministic machines: no sockets, threads, clocks or files.

    groups.py             what handlers call: membership and share partitions, by name
      group.py              one group's members and assignment -> assignor.py
      partition.py          one share partition -> acquire.py, window.py, inflight.py
      deadlines.py          who of all these is to be asked when
      state_store.py        durable state, as records of topics that are handed in
    sessions.py           share sessions and their connections
    group_configs.py      settings, ranges, what they mean
    acknowledgements.py   checks on requests that need no state
    states.py             states, acknowledgement types, events, settings

The behaviour is Apache Kafka 4.3.0's, as measured; each module says where it is not.
"""

from __future__ import annotations
