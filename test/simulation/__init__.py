"""Deterministic simulation: the embedded broker's machine and our clients in one process, on a clock that jumps.

    python -m test.simulation --kind share --seeds 0:1000         a range of seeds; each is a world of its own
    python -m test.simulation --kind share --seed 17 -v           one again, with everything that happened

Everything random in a world comes from its seed: what members do, what the network does, when the broker goes down. No
thread, no real time, no socket. What has to hold is checked while it runs and at its end; a seed that fails prints the
command that replays it and the last events.

    hermetic.py    chance and time of the process, taken over by the seed
    hosts.py       a machine in the world: its clock, its pauses
    world.py       loop, network, broker, events; the end of the faults, and what has to come about after it
    random_faults.py     what goes wrong, and when; ``replies.py`` holds answers back
    trace.py       what happened, for people
    share.py (and share_members.py), plain.py, producing.py, consumers.py    the kinds: members, and what has to hold
    groups.py      what has to hold of groups, whatever the protocol
    test/tasks/delivery/consumer_group/delivery_story.py    the kind of workers, which runs with their tests
    runner.py      seeds one after another; ``__main__.py`` is its command line

A new kind is a :class:`~test.simulation.world.Story` and a row in ``runner.STORIES``.
"""

from __future__ import annotations
