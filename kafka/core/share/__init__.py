"""Share groups on the client's side, without sockets or clocks (KIP-932, KIP-1206, KIP-1222).

    membership.py        heartbeats that make and keep a member: when, with what, and what their answers mean
    session.py           one member's session with one broker: requests, answers, and what each error leads to
    acknowledgements.py  acquired records of a partition, and their acknowledgements on the way to the broker
    records.py           what was acquired: records, and the offsets among them that hold none

Who sends the requests and hands out the records is ``kafka/share``.
"""

from __future__ import annotations
