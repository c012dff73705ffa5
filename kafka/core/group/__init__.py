"""Consumer groups on the client's side, without sockets, threads or clocks.

    machine.py      a member's requests and events, the same for both protocols
    classic.py      a member of a classic group: joining, leading, heartbeats, errors
    consumer.py     a member of a group of the consumer group protocol (KIP-848): heartbeats, reconciliation
    heartbeat.py    what errors of heartbeats lead to where the broker assigns: there, and in share groups
    offsets.py      commits and committed offsets: requests, dialogues, errors
    protocol.py     what members of classic groups say to one another in opaque bytes (ConsumerProtocol)
    assignors/      who reads what, decided by the leader

Who sends the requests and calls users' listeners is ``kafka/consumer``.
"""

from __future__ import annotations
