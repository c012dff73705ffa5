"""The embedded broker: one node on a data directory. ``broker.py`` is the machine, ``server.py`` serves it.

The names here are imported when first used, so that ``kafka.broker.embedded``, which clients load, costs next to
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.broker.log import DirectoryLockedError
    from kafka.broker.process import BrokerOptions, RunningBroker, raise_descriptor_limit
    from kafka.broker.server import BrokerServer

_HOME = {
    "Broker": "kafka.broker.broker",
    "BrokerOptions": "kafka.broker.process",
    "BrokerServer": "kafka.broker.server",
    "DirectoryLockedError": "kafka.broker.log",
    "RunningBroker": "kafka.broker.process",
    "raise_descriptor_limit": "kafka.broker.process",
}

__all__ = [
    "Broker",
    "BrokerOptions",
    "BrokerServer",
    "DirectoryLockedError",
    "RunningBroker",
    "raise_descriptor_limit",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
