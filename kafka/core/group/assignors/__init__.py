"""Assignors of the classic protocol: who of a group reads what, decided by its leader.

    base.py         what an assignor is; members and replicas in the same place (KIP-881)
    strategy.py     those that there are, by name; assignors from what users say, and from classes for kafka-python
    range.py  roundrobin.py  sticky.py
                    the four of Apache Kafka: the same result as Java's, member for member
    order.py        the orders in which Java goes through members

Another one is a file, and a row in ``strategy.py``.
"""

from __future__ import annotations
