"""KafkaShareConsumer: records of share groups, each acknowledged by itself (KIP-932).

    consumer.py     the public class: arguments, records, states
    acknowledging.py   its half that says what became of records
    polling.py      what polls and commits of users' threads do with the inbox
    inbox.py        what threads hand one another
    reading.py      deserializers
    events.py       what the loop tells: the inbox, and users' callbacks
    metrics.py      what is measured, under Java's names
    engine.py       one member of one group on a loop: sessions with all leaders, demand
    heartbeats.py   its heartbeats to the coordinator
    leaders.py      who leads what, and the search for what the metadata lacks
    link.py         the session with one leader
    lanes.py        the connection that carries it, and the next one
"""

from __future__ import annotations

from kafka.core.share.holding import Acknowledged
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.share.consumer import KafkaShareConsumer

__all__ = ["AcknowledgeType", "Acknowledged", "KafkaShareConsumer", "ShareRecord"]
