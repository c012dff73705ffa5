"""When a client requests its telemetry subscription, and when it pushes metrics (KIP-714), as a machine.

    poll(now) ──► NextTelemetryRequest, Push or nothing; ``next_deadline``: call it then, and after all of these:
    subscribed(response, now) · pushed(response, now) · failed(error, now)        once for each of them
    close()                            a last push, if there is a subscription; then TERMINATED

The states are ``TELEMETRY_STATES`` in ``states.py``. What is in a push is the driver's (``client/telemetry.py``):
values, names, encoding.

The first push after a subscription is made after 0.5 to 1.5 of the interval, by chance, so that clients that started
together do not push together; the others after one interval. What follows errors is
:data:`TELEMETRY_ERROR_ACTIONS`; a
request without an answer is like one that comes too early.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.retry import ErrorTable, Rng, interval_s
from kafka.core.states import TELEMETRY_STATES, States, TelemetryState
from kafka.errors import (
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
)
from kafka.wire.types import ZERO_UUID

DEFAULT_INTERVAL_S: Final = 300.0
"""Where no subscription says another one."""
MAX_IMMEDIATE_RETRIES: Final = 2
"""In a row, without a wait: after UNKNOWN_SUBSCRIPTION_ID a client may ask at once (seen on 4.3.0), but the first
releases with telemetry throttle that. Brokers count the interval of pushes from the arrival of requests, to the
millisecond, so the machine counts it from the response."""
NO_COMPRESSION: Final = 0


class TelemetryErrorAction(Enum):
    """What to do after an error."""

    AT_ONCE = "ask for the subscription at once"
    NEXT_INTERVAL = "ask for the subscription after the push interval (5 minutes where none is known)"
    STOP = "no telemetry any more"


TELEMETRY_ERROR_ACTIONS: Final = ErrorTable(
    {
        UnknownSubscriptionIdError: TelemetryErrorAction.AT_ONCE,
        UnsupportedCompressionTypeError: TelemetryErrorAction.AT_ONCE,
        TelemetryTooLargeError: TelemetryErrorAction.NEXT_INTERVAL,
        ThrottlingQuotaExceededError: TelemetryErrorAction.NEXT_INTERVAL,
        InvalidRequestError: TelemetryErrorAction.STOP,
        InvalidRecordError: TelemetryErrorAction.STOP,
        UnsupportedVersionError: TelemetryErrorAction.STOP,
    },
    otherwise=TelemetryErrorAction.STOP,
    exact=True,
)
"""By the error of a response."""


class TelemetrySubscription(NamedTuple):
    """What the broker subscribes to. ``wanted``: prefixes of metric names, or ``*`` for all. ``max_bytes``: of a
    push, as it goes out; ``compression_types``: numbers of codecs, in the order of its preference. ``is_delta``:
    totals are pushed as deltas since the last push."""

    client_instance_id: UUID
    subscription_id: int
    interval_s: float
    wanted: tuple[str, ...] = ()
    is_delta: bool = True
    compression_types: tuple[int, ...] = ()
    max_bytes: int = 2**31 - 1

    def wants(self, name: str) -> bool:
        """Whether a metric of this name is to be pushed."""
        return name.startswith(self.wanted) or self.wanted == ("*",)


class NextTelemetryRequest(NamedTuple):
    """Send this to a broker; then :meth:`TelemetryMachine.subscribed` or ``failed``."""

    request: GetTelemetrySubscriptionsRequest


class Push(NamedTuple):
    """Push what the subscription wants; then :meth:`TelemetryMachine.pushed` or ``failed``."""

    subscription: TelemetrySubscription
    compression_type: int
    is_terminating: bool


class TelemetryMachine:
    """One client's. ``codecs``: the numbers of those that work here. Instants are monotonic seconds."""

    def __init__(self, rng: Rng, codecs: Iterable[int] = ()) -> None:
        self.subscription: TelemetrySubscription | None = None
        """The last one."""
        self.next_deadline = 0.0
        """When to call :meth:`poll`; ``inf``: not before something happens."""
        self.error: Exception | None = None
        """Why it has stopped, or the error of the last attempt."""
        self.codecs = set(codecs)
        """The numbers of codecs that pushes may be compressed with."""
        self._rng = rng
        self._states: States[TelemetryState] = States(TELEMETRY_STATES, TelemetryState.SUBSCRIPTION_NEEDED, "telemetry")
        self._immediate_retries = 0

    @property
    def state(self) -> TelemetryState:
        return self._states.now

    @property
    def is_terminated(self) -> bool:
        """Whether nothing will follow."""
        return self._states.now is TelemetryState.TERMINATED

    def poll(self, now: float) -> NextTelemetryRequest | Push | None:
        """What there is to do."""
        if now < self.next_deadline:
            return None
        state = self._states.now
        if state is TelemetryState.SUBSCRIPTION_NEEDED:
            known = self.subscription
            self._enter(TelemetryState.SUBSCRIPTION_IN_PROGRESS)
            return NextTelemetryRequest(
                GetTelemetrySubscriptionsRequest(client_instance_id=known.client_instance_id if known else ZERO_UUID)
            )
        if state is TelemetryState.PUSH_NEEDED:
            self._enter(TelemetryState.PUSH_IN_PROGRESS)
            return self._push(is_terminating=False)
        if state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self._enter(TelemetryState.TERMINATING_PUSH_IN_PROGRESS)
            return self._push(is_terminating=True)
        return None

    def subscribed(self, response: GetTelemetrySubscriptionsResponse, now: float) -> None:
        """The answer to an :class:`NextTelemetryRequest`."""
        if self._states.now is not TelemetryState.SUBSCRIPTION_IN_PROGRESS:
            return  # closed meanwhile
        if response.error_code:
            self._refused(response.error_code, now)
            return
        told_ms = response.push_interval_ms
        self.subscription = subscription = TelemetrySubscription(
            client_instance_id=response.client_instance_id,
            subscription_id=response.subscription_id,
            interval_s=interval_s(told_ms) if told_ms > 0 else DEFAULT_INTERVAL_S,
            wanted=tuple(response.requested_metrics),
            is_delta=response.delta_temporality,
            compression_types=tuple(response.accepted_compression_types),
            max_bytes=response.telemetry_max_bytes if response.telemetry_max_bytes > 0 else 2**31 - 1,
        )
        self.error = None
        if subscription.wanted:
            self._enter(TelemetryState.PUSH_NEEDED, now + (0.5 + self._rng.random()) * subscription.interval_s)
        else:
            self._enter(TelemetryState.SUBSCRIPTION_NEEDED, now + subscription.interval_s)

    def pushed(self, response: PushTelemetryResponse, now: float) -> None:
        """The answer to a :class:`Push`."""
        if self._states.now is TelemetryState.TERMINATING_PUSH_IN_PROGRESS:
            self._enter(TelemetryState.TERMINATED)
        elif self._states.now is TelemetryState.PUSH_IN_PROGRESS:
            if response.error_code:
                self._refused(response.error_code, now)
            else:
                self._immediate_retries = 0
                self.error = None
                self._enter(TelemetryState.PUSH_NEEDED, now + self._interval_s)

    def failed(self, error: Exception, now: float) -> None:
        """There is no response, or nothing could be sent."""
        self.error = error
        if self._states.now is TelemetryState.TERMINATING_PUSH_IN_PROGRESS:
            self._enter(TelemetryState.TERMINATED)
        elif self._states.now in (TelemetryState.SUBSCRIPTION_IN_PROGRESS, TelemetryState.PUSH_IN_PROGRESS):
            self._enter(TelemetryState.SUBSCRIPTION_NEEDED, now + self._interval_s)

    def close(self) -> None:
        """The client is being closed: a last push follows where there is a subscription."""
        if self._states.now in (TelemetryState.PUSH_NEEDED, TelemetryState.PUSH_IN_PROGRESS):
            self._enter(TelemetryState.TERMINATING_PUSH_NEEDED, 0.0)
        elif self._states.now not in (
            TelemetryState.TERMINATING_PUSH_NEEDED,
            TelemetryState.TERMINATING_PUSH_IN_PROGRESS,
        ):
            self.stop()

    def stop(self) -> None:
        """Nothing follows from now on."""
        if not self.is_terminated:
            self._enter(TelemetryState.TERMINATED)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _interval_s(self) -> float:
        return self.subscription.interval_s if self.subscription is not None else DEFAULT_INTERVAL_S

    def _push(self, is_terminating: bool) -> Push:
        subscription = self.subscription
        assert subscription is not None
        codec = next((one for one in subscription.compression_types if one in self.codecs), NO_COMPRESSION)
        return Push(subscription, codec, is_terminating)

    def _refused(self, code: int, now: float) -> None:
        kind = for_code(code)
        self.error = kind()
        action = TELEMETRY_ERROR_ACTIONS.action_for(self.error)
        if kind is UnsupportedCompressionTypeError and self.subscription is not None:
            self.codecs.discard(self._push(is_terminating=False).compression_type)
        if action is TelemetryErrorAction.STOP:
            self._enter(TelemetryState.TERMINATED)
            return
        self._immediate_retries += action is TelemetryErrorAction.AT_ONCE
        is_now = action is TelemetryErrorAction.AT_ONCE and self._immediate_retries <= MAX_IMMEDIATE_RETRIES
        self._enter(TelemetryState.SUBSCRIPTION_NEEDED, now if is_now else now + self._interval_s)

    def _enter(self, state: TelemetryState, deadline: float = inf) -> None:
        self._states.enter(state)
        self.next_deadline = deadline
