"""What a broker knows of a test that has failed, as text for people."""

from __future__ import annotations

from kafka.broker import SeenRequest
from kafka.errors import KafkaError
from kafka.testing.embedded import EmbeddedBroker

REQUESTS = 10
LOG_LINES = 20
ANSWER_S = 2.0
"""A broker that hangs is not waited for: the test has failed already."""


def name_of(broker: EmbeddedBroker) -> str:
    """Where it is, and whether it is there still."""
    return broker.bootstrap if broker.is_running else f"{broker.bootstrap}, which has ended"


def tell(broker: EmbeddedBroker) -> str:
    """Faults in force, the last requests, the end of the log."""
    try:
        lines = [f"fault: {fault.rule}, {fault.hits} hits" for fault in broker.faults]
        count = broker.faults.ask("request_count", ANSWER_S)
        last = broker.faults.ask("requests", ANSWER_S, after=max(0, count - REQUESTS))
        lines += [_line(SeenRequest.from_json(each)) for each in last] or ["requests: none"]
    except KafkaError as error:  # it is gone, or stopped
        lines = [f"requests: unknown, since {error.args[0] if error.args else error}"]
    return "\n".join(lines + [f"log: {line}" for line in broker.log_tail(LOG_LINES)])


def _line(request: SeenRequest) -> str:
    topics = f" about {', '.join(request.topics)}" if request.topics else ""
    who = f"{request.client_id} on connection {request.connection}"
    return f"request {request.number}: {request.api} v{request.version}{topics}, from {who}"
