"""Everything that touches the operating system: the select loop, sockets, names, clocks, signals. It knows no Kafka.

Nothing is imported here: name the module (``from kafka.net.loop import Loop``), so that ``import kafka`` stays quick.
"""

from __future__ import annotations
