"""KafkaShareConsumer: records of share groups, each acknowledged by itself (KIP-932).

    consumer.py   the public class: arguments, blocking
    inbox.py      what its threads hand one another
    engine.py     one member of one group on a loop: heartbeats, sessions with all leaders, demand
    link.py       the session with one leader, over its own connection
"""

from __future__ import annotations

from kafka.core.share.holding import Acknowledged
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.share.consumer import KafkaShareConsumer

__all__ = ["AcknowledgeType", "Acknowledged", "KafkaShareConsumer", "ShareRecord"]
