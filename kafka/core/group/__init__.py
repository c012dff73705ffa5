"""Consumer groups on the client's side, without sockets, threads or clocks.

    machine.py      what a member asks for and is told, the same for both protocols
    classic.py      a member of a classic group: when it joins, leaves, says that it is alive
    classic_rebalance.py  classic_requests.py  classic_reactions.py  leader.py  attempts.py  belongings.py  session.py
                    how it gets into a generation; the requests; what errors ask for; what the leader does; why and
                    when it joins; what it owns; its clocks
    offsets.py      commits and committed offsets, as dialogues; offset_messages.py their requests and answers
    protocol.py     what members say to one another in opaque bytes
    assignors/      who reads what, decided by the leader

Who sends the requests and tells users' listeners is ``kafka/consumer``.
"""

from __future__ import annotations
