"""For users' tests: an embedded broker under the test's control, and the ways to use it.

::

    from kafka.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        with broker.faults.close("Produce", when="after", nth=1):    # an acknowledgement is lost
            producer.send("t", b"x").get()
        broker.clock.advance(3600)                                   # an hour passes on the broker
        broker.requests.wait("Heartbeat", client_id="c")
        broker.kill()                                                # as kill -9 does
        broker.restart()        # on the same directory and port: everything acknowledged is there

:class:`EmbeddedBroker` is the broker, ``instruments`` what it is played with; :func:`embedded_broker` and
:func:`running_worker` are context managers; ``kafka.testing.pytest_plugin`` has fixtures (nothing else here needs
pytest). The vocabulary of faults is that of :mod:`kafka.broker.faults`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafka.broker import BrokerSecurity
from kafka.testing.embedded import EmbeddedBroker
from kafka.testing.instruments import BrokerClock, BrokerGoneError, Fault, Faults, PushedMetrics, Requests

if TYPE_CHECKING:
    from kafka.testing.contexts import embedded_broker, running_worker

_LATER = {"embedded_broker": "kafka.testing.contexts", "running_worker": "kafka.testing.contexts"}
"""What loads the task queue is imported when it is asked for."""

__all__ = [
    "BrokerClock",
    "BrokerGoneError",
    "BrokerSecurity",
    "EmbeddedBroker",
    "Fault",
    "Faults",
    "PushedMetrics",
    "Requests",
    "embedded_broker",
    "running_worker",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
