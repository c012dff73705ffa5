"""Rules in force: their counts, and which requests they are for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from kafka.broker.faults.answers import Selection
from kafka.broker.faults.rule import Rule
from kafka.broker.faults.targets import Target
from kafka.broker.responses import ConnectionContext
from kafka.protocol.framing import ReceivedRequest, UnknownRequest

Received = ReceivedRequest | UnknownRequest
TargetsOf = Callable[[ReceivedRequest], Iterable[Target]]


class RuleInForce:
    """A rule and its counts. ``seen``: requests that it is for; ``hits``: those that it struck."""

    def __init__(
        self, number: int, rule: Rule, remove: Callable[[int], object], seen: int = 0, hits: int = 0
    ) -> None:
        self.number = number
        self.rule = rule
        self.seen = seen
        self.hits = hits
        self.rng = random.Random(rule.seed)
        self._remove = remove

    def remove(self) -> None:
        """Let it strike no more."""
        self._remove(self.number)

    def strikes(self, is_over: bool = False) -> bool:
        """Count a request that it is for; whether that is one of those that it strikes. ``is_over``: an older rule has
        left nothing of the request for this one: it is seen, and not struck."""
        self.seen += 1
        rule = self.rule
        if rule.nth is not None:
            strikes = self.seen == rule.nth
        elif rule.first is not None:
            strikes = self.seen <= rule.first
        elif rule.every is not None:
            strikes = self.seen % rule.every == 0
        else:
            strikes = rule.probability is None or self.rng.random() < rule.probability
        strikes = strikes and not is_over
        self.hits += strikes
        return strikes

    def __enter__(self) -> RuleInForce:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def is_for(rule: Rule, connection: ConnectionContext, received: Received, targets_of: TargetsOf) -> bool:
    """Whether all that the rule says of requests holds for this one."""
    if isinstance(received, ReceivedRequest):
        key, version = received.request.api_key, received.version
    else:
        key, version = received.api_key, received.api_version
    if rule.apis and key not in rule.apis:
        return False
    if rule.versions is not None and not rule.versions[0] <= version <= rule.versions[1]:
        return False
    if rule.client_id is not None and rule.client_id != received.client_id:
        return False
    if rule.connection is not None and rule.connection != connection.number:
        return False
    host, port = connection.host, connection.port
    if rule.peer is not None and rule.peer not in (host, str(port), f"{host}:{port}"):
        return False
    if rule.topic is None and rule.partition is None:
        return True
    if not isinstance(received, ReceivedRequest):
        return False
    selection = Selection(rule.topic, rule.partition)
    return any(
        selection.has_topic(topic) and (number is None or selection.has_partition(number))
        for topic, number in targets_of(received)
    )
