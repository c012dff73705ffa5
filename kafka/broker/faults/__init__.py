"""Fault injection: the broker responds wrongly, late, partly, or never, as a test configures it.

A fault is a rule: *which requests*, *which of them*, *what happens*. The same calls work on ``kafka.testing``'s
``EmbeddedBroker.faults``, whether the broker is a process or a thread, and on ``Broker.faults`` itself::

    broker.faults.answer("Produce", NotLeaderForPartitionError, nth=1)  # refuse the first one, handle the others
    broker.faults.answer("Fetch", 2, topic="t", partition=0)            # CORRUPT_MESSAGE for one partition, always
    broker.faults.answer("Heartbeat", HeartbeatResponse(error_code=27)) # an answer of one's own
    broker.faults.delay("Metadata", seconds=2)                          # the response is 2 s late
    broker.faults.delay("Produce", seconds=2, when="before")            # the request itself is 2 s late
    broker.faults.drop("JoinGroup", client_id="b", first=2)             # never answered; the connection stays
    broker.faults.close("Produce", when="after", nth=3)                 # written, and the acknowledgement is lost
    broker.faults.close("Fetch", when="during")                         # the connection ends inside the response
    broker.faults.corrupt("Fetch", topic="t", first=1)                  # changes a byte of each record batch
    broker.faults.corrupt("Metadata", what="answer")                    # ... or of the whole response
    broker.faults.truncate("Metadata", keep=0.5)                        # a whole frame with half of the response in it
    broker.faults.throttle("Produce", seconds=1)                        # throttle_time_ms, and the connection is muted
    broker.faults.kill("Produce", nth=100)                              # the process ends as by kill -9

*Which requests*; all given conditions have to hold: ``api`` (a name, a number, a class of requests, a list of them, or
``"*"`` for any), ``version`` (a number, or two: from, to), ``topic``, ``partition``, ``client_id``, ``peer`` (the
client's port, host, or ``"host:port"``), ``connection`` (its number, as ``broker.requests`` shows it).

*Which of them*, at most one of: ``nth=3`` (the third alone), ``first=3`` (the first three), ``every=3`` (the third,
sixth, ...), ``probability=0.1`` with ``seed=``; otherwise all. Only requests that match are counted.

*When*: ``"before"`` the request is handled (then it is not handled, except after a delay), ``"after"`` it was handled,
``"during"`` the writing of its response. Each call documents its choices and its default.

Several rules may apply to one request: delays add up, all corruptions are made, and of two rules that end it only the
older one applies and counts. With ``topic`` or ``partition``, ``answer`` returns the error for those partitions, and
the broker handles the others of the request. A call with wrong arguments raises IllegalArgumentError.

Each call returns a handle: ``.hits`` (how often it was applied), ``.wait(n, timeout)``, ``.remove()``; it is a context
manager that removes the rule at the end. ``faults.clear()`` removes all, ``faults.rules`` lists them. Rules and their
counts survive a restart of the broker.

Modules: ``rules`` (the calls, the rules as values and as JSON), ``injector`` (which requests a rule applies to, and
what happens to one); ``kafka/broker/error_places.py`` puts error codes into responses. A new action is a method of
:class:`FaultRuleBuilder`, a row in ``rules.ACTIONS``, and its step in ``injector.FaultInterceptor``.
"""

from __future__ import annotations

from kafka.broker.faults.injector import FaultInjector, SeenRequest
from kafka.broker.faults.rules import ACTIONS, ApiName, FaultRuleBuilder, Rule, api_name

__all__ = ["ACTIONS", "ApiName", "FaultInjector", "FaultRuleBuilder", "Rule", "SeenRequest", "api_name"]
