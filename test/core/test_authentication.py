"""The dialogue of authentication by hand, and when a session is renewed."""

from __future__ import annotations

from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kafka.core.authentication import (
    HANDSHAKE_INTERVAL_S,
    NO_RENEWAL,
    RENEWAL_MARGIN_S,
    Authenticated,
    NextSaslRequest,
    SaslVersions,
    Token,
    authenticate,
    plan_renewal,
    sasl_login,
    sasl_versions,
)
from kafka.core.connection import ApiRanges
from kafka.core.sasl.mechanism import PlainClient
from kafka.errors import IncompatibleBrokerVersion, SaslAuthenticationFailedError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NEW = SaslVersions(1, 2)
OLD = SaslVersions(0, None)
WELL = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def alice() -> PlainClient:
    return PlainClient("alice", "alice-secret")


def end_of(dialogue: Any, answer: Any) -> Authenticated:
    with pytest.raises(StopIteration) as end:
        dialogue.send(answer)
    found: Authenticated = end.value.value
    return found


def test_versions_handshake_and_tokens_follow_one_another() -> None:
    dialogue = authenticate(alice(), ("us", "1"))
    asked = next(dialogue)
    assert isinstance(asked, NextSaslRequest) and isinstance(asked.request, ApiVersionsRequest)
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in ((17, 1), (36, 2))
    ]
    asked = dialogue.send(ApiVersionsResponse(error_code=0, api_keys=keys))
    assert isinstance(asked, NextSaslRequest) and asked == (SaslHandshakeRequest(mechanism="PLAIN"), 1)
    asked = dialogue.send(WELL)
    assert isinstance(asked, NextSaslRequest) and asked.version == 2
    assert isinstance(asked.request, SaslAuthenticateRequest) and asked.request.auth_bytes == b"\0alice\0alice-secret"
    found = end_of(
        dialogue, SaslAuthenticateResponse(error_code=0, error_message="", auth_bytes=b"", session_lifetime_ms=5000)
    )
    assert found == Authenticated(NEW, 5.0)


def test_an_old_broker_is_sent_bare_tokens() -> None:
    dialogue = sasl_login(alice(), OLD)
    assert next(dialogue) == NextSaslRequest(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert dialogue.send(WELL) == Token(b"\0alice\0alice-secret")
    assert end_of(dialogue, b"") == Authenticated(OLD, inf)


def test_no_step_shows_the_password() -> None:
    dialogue = sasl_login(alice(), NEW)
    next(dialogue)
    assert "alice-secret" not in repr(dialogue.send(WELL))
    assert "alice-secret" not in repr(Token(b"\0alice\0alice-secret"))


def test_a_mechanism_without_an_end_is_left() -> None:
    class Endless(PlainClient):
        def step(self, token: bytes) -> Any:
            return b"and so on"

    dialogue = sasl_login(Endless("a", "b"), NEW)
    next(dialogue)
    dialogue.send(WELL)
    with pytest.raises(SaslAuthenticationFailedError, match="the mechanism is not complete"):
        for _ in range(100):
            dialogue.send(SaslAuthenticateResponse(error_code=0, error_message="", auth_bytes=b""))


@pytest.mark.parametrize(
    ("ranges", "versions"),
    [
        ({17: (0, 0)}, OLD),
        ({17: (0, 1), 36: (0, 0)}, SaslVersions(1, 0)),
        ({17: (0, 1), 36: (0, 2)}, NEW),
        ({17: (0, 0), 36: (0, 2)}, OLD),
        ({17: (0, 1)}, OLD),
    ],
)
def test_the_way_of_tokens_follows_from_what_the_broker_has(ranges: Any, versions: SaslVersions) -> None:
    assert sasl_versions(ApiRanges(ranges)) == versions


@pytest.mark.parametrize("ranges", [{}, {17: (1, 1)}, {18: (0, 4)}])
def test_a_broker_without_sasl_is_an_error(ranges: Any) -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        sasl_versions(ApiRanges(ranges))


def test_a_session_without_an_end_is_never_renewed() -> None:
    assert plan_renewal(Authenticated(NEW, inf), 6.0, 0.5) == NO_RENEWAL


@given(lifetime_s=st.floats(1.0, 1e7), chance=st.floats(0, 1))
def test_a_plan_leaves_time_and_keeps_the_brokers_pause(lifetime_s: float, chance: float) -> None:
    now = 1000.0
    found = plan_renewal(Authenticated(NEW, lifetime_s), now, chance)
    assert now < found.quiet_at <= found.ends_at - min(RENEWAL_MARGIN_S, lifetime_s / 3) + 1e-6
    assert found.renew_at - now >= HANDSHAKE_INTERVAL_S - 1e-6
    assert found.renew_at <= max(found.quiet_at, now + HANDSHAKE_INTERVAL_S) + 1e-6
    assert found.ends_at == pytest.approx(now + lifetime_s)
    if lifetime_s > 20:
        assert 0.85 * lifetime_s - 1e-6 <= found.renew_at - now <= 0.95 * lifetime_s + 1e-6
