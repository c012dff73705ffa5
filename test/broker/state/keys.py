"""The record classes of the internal topics, by the coordinator that writes them, and decoders of their keys."""

from __future__ import annotations

import inspect

from kafka.broker.state import records
from kafka.broker.state.records import KeyDecoder
from kafka.wire.message import Message


def jar_of(name: str) -> str:
    """The coordinator whose schema a class has."""
    if name.startswith(("ShareSnapshot", "ShareUpdate")):
        return "kafka-share-coordinator"
    return "kafka-transaction-coordinator" if name.startswith("TransactionLog") else "kafka-group-coordinator"


CLASSES: list[tuple[str, type[Message]]] = [
    (jar_of(name), found)
    for name, found in inspect.getmembers(records, inspect.isclass)
    if issubclass(found, Message) and found.__module__ == records.__name__
]
KEYS = {
    jar: KeyDecoder(cls for at, cls in CLASSES if at == jar and cls.__name__.endswith("Key"))
    for jar in dict.fromkeys(jar for jar, _ in CLASSES)
}
GROUP_KEYS = KEYS["kafka-group-coordinator"]
SHARE_KEYS = KEYS["kafka-share-coordinator"]
TRANSACTION_KEYS = KEYS["kafka-transaction-coordinator"]
