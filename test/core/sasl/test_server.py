"""The server's dialogue around a mechanism, as a machine: whatever comes in which order, nobody gets in unproved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.sasl.mechanism import PlainServer
from kafka.core.sasl.scram import SCRAM_SHA_256, ScramServer, new_credential
from kafka.core.sasl.server import CLOSE_DELAYED, CLOSE_NOW, REAUTHENTICATION_PAUSE_S, SaslServer, SaslServerState
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

USERS = {"alice": "secret", "bob": "other"}
KEPT = new_credential(SCRAM_SHA_256, "secret", b"salt")
GOOD = b"\0alice\0secret"
METADATA = MetadataRequest(topics=[])
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def machine(lifetime_ms=0):
    def begin(name):
        if name == "PLAIN":
            return PlainServer(USERS.get)
        return ScramServer(name, lambda user: KEPT if user == "alice" else None, "nonce")

    return SaslServer(("PLAIN", SCRAM_SHA_256), begin, lifetime_ms)


def handshake(server, name="PLAIN", version=1, now=0.0):
    return server.admit(SaslHandshakeRequest(mechanism=name), version, now)


def authenticate(server, token=GOOD, now=0.0):
    return server.admit(SaslAuthenticateRequest(auth_bytes=token), 1, now)


def test_who_is_in_has_all_requests_let_pass():
    server = machine()
    assert server.admit(VERSIONS, 3, 0) is None
    server.answered(ApiVersionsResponse(error_code=0, api_keys=[]))
    assert server.state is SaslServerState.VERSIONS
    assert handshake(server).response.error_code == 0
    assert authenticate(server).response.error_code == 0
    assert server.user == "alice"
    for request in (METADATA, VERSIONS, SaslHandshakeRequest(mechanism="PLAIN")):
        assert server.admit(request, 1, 1e9) is None


def test_a_refusal_comes_late_and_is_the_last_word():
    server = machine()
    handshake(server)
    verdict = authenticate(server, b"\0alice\0wrong")
    assert verdict.response.error_code == 58
    assert verdict.is_last
    assert verdict.is_delayed
    assert server.failure == "Authentication failed: Invalid username or password"
    assert handshake(server) == CLOSE_NOW
    assert authenticate(server) == CLOSE_NOW


def test_versions_that_were_refused_may_be_asked_for_again():
    server = machine()
    for _ in range(2):
        assert server.admit(VERSIONS, 3, 0) is None
        server.answered(ApiVersionsResponse(error_code=42, api_keys=[]))
    assert server.admit_unknown(True, 0) is None
    assert server.admit_unknown(False, 0) == CLOSE_NOW


def test_unknown_requests_are_for_the_broker_while_the_session_lasts():
    server = machine(3000)
    handshake(server)
    authenticate(server)
    assert server.admit_unknown(False, 2.9) is None
    assert server.admit_unknown(False, 3.0) == CLOSE_NOW


def test_tokens_may_come_without_headers():
    server = machine()
    handshake(server, version=0)
    assert server.takes_tokens
    assert server.token(GOOD, 0).token == b""
    assert not server.takes_tokens
    assert server.user == "alice"
    refused = machine()
    handshake(refused, version=0)
    assert refused.token(b"\0alice\0wrong", 0) == CLOSE_DELAYED
    assert not refused.takes_tokens


def test_a_session_ends_in_time_unless_renewed():
    server = machine(3000)
    handshake(server)
    assert authenticate(server, now=10.0).response.session_lifetime_ms == 3000
    assert server.admit(METADATA, 1, 12.999) is None
    handshake(server, now=12.999)
    authenticate(server, now=12.999)
    assert server.admit(METADATA, 1, 15.0) is None
    assert server.admit(METADATA, 1, 16.0) == CLOSE_NOW


@pytest.mark.parametrize("after_s", [0.0, REAUTHENTICATION_PAUSE_S - 0.01, REAUTHENTICATION_PAUSE_S])
def test_a_second_renewal_has_to_wait(after_s):
    server = machine(3000)
    for _ in range(2):
        handshake(server)
        authenticate(server)
    assert (handshake(server, now=after_s) is None) is (after_s < REAUTHENTICATION_PAUSE_S)


def test_a_session_keeps_user_and_mechanism():
    server = machine(3000)
    handshake(server)
    authenticate(server)
    handshake(server)
    assert "User.alice: User.bob" in authenticate(server, b"\0bob\0other").response.error_message
    other = machine(3000)
    handshake(other)
    authenticate(other)
    assert handshake(other, SCRAM_SHA_256).response.error_code == 0
    assert authenticate(other, b"n,,n=alice,r=x") == CLOSE_DELAYED
    unknown = machine(3000)
    handshake(unknown)
    authenticate(unknown)
    assert handshake(unknown, "GSSAPI") == CLOSE_NOW


STEPS = st.one_of(
    st.builds(lambda name: SaslHandshakeRequest(mechanism=name), st.sampled_from(["PLAIN", SCRAM_SHA_256, "X", ""])),
    st.builds(
        lambda token: SaslAuthenticateRequest(auth_bytes=token),
        st.one_of(st.binary(max_size=40), st.sampled_from([b"\0alice\0wrong", b"n,,n=alice,r=abc", b"\0alice\0"])),
    ),
    st.sampled_from([METADATA, VERSIONS]),
)


@given(st.lists(st.tuples(STEPS, st.sampled_from([0, 1]), st.binary(max_size=40)), max_size=12))
def test_no_order_of_requests_lets_anybody_in_without_the_password(steps):
    server = machine(3000)
    for now, (request, version, token) in enumerate(steps):
        verdict = server.token(token, now) if server.takes_tokens else server.admit(request, version, now)
        assert verdict is not None or isinstance(request, ApiVersionsRequest)
        if verdict is not None and verdict.is_last:
            assert server.state is SaslServerState.ENDED
    assert server.user is None
    assert server.admit(METADATA, 1, 99) is not None
