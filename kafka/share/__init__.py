"""KafkaShareConsumer: records of share groups, each acknowledged by itself (KIP-932).

    consumer.py         the public class: arguments, records, acknowledgements, states
    driver.py           one member of one group on a loop: heartbeats, leaders, a session with each, demand
    leader_sessions.py  the session with one leader, and the connections that carry it
    fetch_buffer.py     what the loop's thread and users' threads hand one another; deserializers, callbacks
    metrics.py          what is measured, under Java's names
"""

from __future__ import annotations

from kafka.core.share.acknowledgements import Acknowledged
from kafka.core.share.records import ShareRecord
from kafka.protocol.constants import AcknowledgeType
from kafka.share.consumer import KafkaShareConsumer

__all__ = ["AcknowledgeType", "Acknowledged", "KafkaShareConsumer", "ShareRecord"]
