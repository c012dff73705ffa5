"""Faults at will: the broker answers wrongly, late, in pieces, or never, when a test says so.

A fault is a rule: *which requests*, *which of them*, *what happens*. The same calls work on ``kafka.testing``'s
``EmbeddedBroker.faults``, whether the broker is a process or a thread, and on ``Broker.faults`` itself::

    broker.faults.answer("Produce", NotLeaderForPartitionError, nth=1)  # refuse the first one, handle the others
    broker.faults.answer("Fetch", 2, topic="t", partition=0)            # CORRUPT_MESSAGE for one partition, always
    broker.faults.answer("Heartbeat", HeartbeatResponse(error_code=27)) # an answer of one's own
    broker.faults.delay("Metadata", seconds=2)                          # the answer comes 2 s late
    broker.faults.delay("Produce", seconds=2, when="before")            # the request itself is on its way for 2 s
    broker.faults.drop("JoinGroup", client_id="b", first=2)             # never answered; the connection stays
    broker.faults.close("Produce", when="after", nth=3)                 # written, and the acknowledgement is lost
    broker.faults.close("Fetch", when="during")                         # the connection ends in the middle of an answer
    broker.faults.corrupt("Fetch", topic="t", first=1)                  # a byte of the record batches is another
    broker.faults.corrupt("Metadata", what="answer")                    # ... or of the whole answer
    broker.faults.truncate("Metadata", keep=0.5)                        # a whole frame with half of the answer in it
    broker.faults.throttle("Produce", seconds=1)                        # throttle_time_ms, and the connection muted
    broker.faults.kill("Produce", nth=100)                              # the process ends as by kill -9, just then

*Which requests*, and all that is said has to hold: ``api`` (a name, a number, a class of requests, a list of them, or
``"*"`` for any), ``version`` (a number, or two: from, to), ``topic``, ``partition``, ``client_id``, ``peer`` (the
client's port, host, or ``"host:port"``), ``connection`` (its number, as ``broker.requests`` shows it).

*Which of them*, at most one of: ``nth=3`` (the third alone), ``first=3`` (the first three), ``every=3`` (the third,
sixth, ...), ``probability=0.1`` with ``seed=``; otherwise all. Only requests that match are counted.

*When*: ``"before"`` the request is handled (and then it is not, unless it is only late), ``"after"`` it was handled,
``"during"`` the writing of its answer. Each call says what it takes and what it takes by default.

Several rules may hold for one request: delays add up, damages are all done, and of two that end it the older one does
and is the one that has struck. With ``topic`` or ``partition``, ``answer`` refuses those partitions, and the broker
handles the others of the request.
Errors in use are told by the call itself: IllegalArgumentError, one line.

Each call returns a handle: ``.hits`` (how often it has struck), ``.wait(n, timeout)``, ``.remove()``; it is a context
manager that removes the rule at the end. ``faults.clear()`` removes all, ``faults.rules`` lists them. Rules and their
counts outlive a restart of the broker.

Inside: ``rule`` (the values), ``vocabulary`` (the calls), ``targets`` (which partitions a request names), ``answers``
(where an error code goes), ``damage`` (bytes), ``seen`` (what the broker has been asked), ``in_force`` (which requests
are struck), ``passage`` (what happens to one), ``machine`` (all of it at work), ``plain`` (answers on a pipe). A new
action is a method in ``vocabulary``, a row in ``rule.ACTIONS``, and its step in ``passage``.
"""

from __future__ import annotations

from kafka.broker.faults.machine import Faults
from kafka.broker.faults.rule import ACTIONS, ApiName, Rule, api_name
from kafka.broker.faults.seen import SeenRequest
from kafka.broker.faults.vocabulary import Vocabulary

__all__ = ["ACTIONS", "ApiName", "Faults", "Rule", "SeenRequest", "Vocabulary", "api_name"]
