"""Assignors of the classic protocol: who of a group reads what, decided by its leader.

    base.py         what an assignor is
    strategy.py     those that there are, by name; assignors from what users say
    range.py  roundrobin.py  sticky.py
                    the four of Apache Kafka: the same result as Java's, member for member
    equal.py  unequal.py
                    the sticky ones' two ways: all members read the same topics, or not
    racks.py        members and replicas in the same place (KIP-881)
    order.py        the orders in which Java goes through members
    adapter.py      classes written for kafka-python

Another one is a file, and a row in ``strategy.py``.
"""

from __future__ import annotations
