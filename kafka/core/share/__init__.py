"""Share groups on the client's side, without sockets or clocks (KIP-932, KIP-1206, KIP-1222).

    membership.py   the heartbeats that make a member: when, with what, and what to do with the answer
    session.py      one member's session with one broker: which request comes next
    intake.py       what an answer brings: records, the fate of acknowledgements, locks that are gone
    reactions.py    what each error asks for (table)
    rests.py        partitions that are left alone for a moment
    requests.py     the two requests of a session
    holding.py      what is held of one partition
    acks.py         acknowledgements on their way: sorted, merged into ranges, taken back when a lock is lost
    records.py      what was acquired: records, and the offsets among them that hold none

Who sends the requests and hands out the records is ``kafka/share``.
"""

from __future__ import annotations
