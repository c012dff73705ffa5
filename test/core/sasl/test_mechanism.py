"""SASL PLAIN, both roles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.sasl import SaslError
from kafka.core.sasl.mechanism import PlainClient, PlainServer

USERS = {"alice": "secret", "bjørn": "pässwörd"}


def server():
    return PlainServer(USERS.get)


@pytest.mark.parametrize("user", USERS)
def test_who_knows_the_password_is_let_in(user):
    client, answering = PlainClient(user, USERS[user]), server()
    assert client.step(answering.step(client.first())) is None
    assert client.is_complete
    assert answering.is_complete
    assert answering.user == user


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0secret2", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\xff\xfe\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"bob\0alice\0secret", "Client requested an authorization id that is different from username"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_anything_else_is_refused_with_kafkas_words(token, text):
    answering = server()
    with pytest.raises(SaslError, match=text):
        answering.step(token)
    assert not answering.is_complete
    assert answering.user is None


def test_an_authorization_id_may_repeat_the_user():
    answering = server()
    answering.step(PlainClient("alice", "secret", "alice").first())
    assert answering.user == "alice"


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b")])
def test_what_a_token_cannot_have_is_refused_before_anything_is_sent(user, password):
    with pytest.raises(ValueError, match="SASL PLAIN"):
        PlainClient(user, password)


def test_a_password_that_is_no_text_is_refused_and_not_quoted():
    """As os.environ gives it for bytes that are no UTF-8."""
    with pytest.raises(ValueError, match="the password has characters that are none") as refused:
        PlainClient("alice", "se\udcffcret")
    assert "udcff" not in str(refused.value)


def test_a_server_that_answers_with_a_token_is_not_trusted():
    client = PlainClient("alice", "secret")
    client.first()
    with pytest.raises(SaslError, match="which it cannot"):
        client.step(b"?")
    assert not client.is_complete


@given(st.binary(max_size=200))
def test_no_token_gives_anything_but_a_refusal(token):
    with pytest.raises(SaslError):
        server().step(token)


def test_no_password_is_shown():
    client, answering = PlainClient("alice", "secret"), server()
    assert "secret" not in f"{client!r} {answering!r}"
