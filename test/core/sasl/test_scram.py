"""SCRAM, both roles: the vectors of RFC 7677, every way to cheat, and bytes from anywhere."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.sasl import SaslError
from kafka.core.sasl.scram import (
    HASHES,
    MAX_CLIENT_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramServer,
    new_credential,
)

SALT = b"0123456789abcdef"
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
KEPT = {mechanism: new_credential(mechanism, "secret", SALT) for mechanism in HASHES}


def pair(mechanism=SCRAM_SHA_256, password="secret", user="alice"):
    client = ScramClient(mechanism, user, password, "client-nonce")
    server = ScramServer(mechanism, lambda name: KEPT[mechanism] if name == user else None, "server-nonce")
    return client, server


def talk(client, server, change=lambda step, token: token):
    """The whole dialogue; ``change`` may alter each token on its way."""
    token, step = client.first(), 0
    while token is not None:
        answer = server.step(change(step, token))
        token = client.step(change(step + 1, answer))
        step += 2


# -- vectors ---------------------------------------------------------------------------------------------------------


def test_the_exchange_of_rfc_7677_section_3():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    server = ScramServer(SCRAM_SHA_256, lambda _: new_credential(SCRAM_SHA_256, "pencil", salt), SERVER_NONCE)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.step(client.first())
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.step(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = server.step(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.step(last) is None
    assert client.is_complete
    assert server.user == "user"


# -- both roles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_who_knows_the_password_is_let_in_and_the_server_proves_that_it_does_too(mechanism):
    client, server = pair(mechanism)
    talk(client, server)
    assert client.is_complete
    assert server.is_complete
    assert server.user == "alice"


@pytest.mark.parametrize("user", ["a,b=c", "=2C", ",", "user name", "=3D=2C"])
def test_names_with_commas_and_equals_signs_arrive_as_they_are(user):
    client, server = pair(user=user)
    talk(client, server)
    assert server.user == user
    assert b"," not in client.first()[3:].partition(b",r=")[0]


def test_a_wrong_password_is_refused_at_the_last_step():
    client, server = pair(password="guess")
    with pytest.raises(SaslError, match=REFUSED):
        talk(client, server)
    assert not client.is_complete
    assert not server.is_complete
    assert server.user is None


def test_an_unknown_user_gets_the_same_words():
    server = ScramServer(SCRAM_SHA_256, lambda _: None, "n")
    with pytest.raises(SaslError, match=REFUSED):
        server.step(b"n,,n=nobody,r=abc")


@pytest.mark.parametrize(
    "first",
    [
        b"", b"garbage", b"n,,n=alice", b"n,,r=abc,n=alice", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc", b"n,,n=al=2Xice,r=abc", b"n,,n=al=2cice,r=abc", b"n,,n=alice,r=", b"n,,n=alice,r=a b",
        b"n,,n=alice,r=abc,tokenauth=true", "n,,n=bjørn,r=abc".encode(), b"\xff\xfe", b"n,,n=alice,r=abc\n",
        b"n,,n=alice,r=" + b"x" * 10 + b"\0",
    ],
)  # fmt: skip
def test_a_first_message_that_is_not_one_is_refused(first):
    _, server = pair()
    with pytest.raises(SaslError, match=REFUSED):
        server.step(first)


@pytest.mark.parametrize("first", [b"n,,m=x,n=alice,r=abc", b"n,,n=alice,r=abc,x=1", b"n,a=alice,n=alice,r=abc"])
def test_extensions_and_ones_own_authorization_id_are_let_pass(first):
    _, server = pair()
    assert server.step(first).startswith(b"r=abcserver-nonce,")


def test_acting_for_another_user_is_refused():
    _, server = pair()
    with pytest.raises(SaslError, match="different from username"):
        server.step(b"n,a=bob,n=alice,r=abc")


@pytest.mark.parametrize(
    "change",
    [
        lambda token: b"",
        lambda token: b"garbage",
        lambda token: token.replace(b"server-nonce", b""),
        lambda token: token.replace(b"server-nonce", b"server-noncex"),
        lambda token: token[:-8],
        lambda token: token[:-4] + b"AAA=",
        lambda token: token.partition(b"p=")[0] + b"p=",
        lambda token: token.partition(b"p=")[0] + b"p=!!!!",
        lambda token: token + b",x=1",
    ],
)
def test_a_last_message_that_was_tampered_with_is_refused(change):
    client, server = pair()
    with pytest.raises(SaslError, match=REFUSED):
        talk(client, server, lambda step, token: change(token) if step == 2 else token)
    with pytest.raises(SaslError, match=REFUSED):  # and there is no second try
        server.step(b"n,,n=alice,r=abc")


def test_a_server_is_done_when_it_is_done():
    client, server = pair()
    talk(client, server)
    with pytest.raises(SaslError, match=REFUSED):
        server.step(b"")


# -- a client among wolves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "cannot be read"),
        (b"r=other-nonce,s=AAAA,i=4096", "does not go on from ours"),
        (b"r=client-nonce,s=AAAA,i=4096", "does not go on from ours"),
        (b"r=client-nonceX,s=AAAA,i=4095", "4095 iterations"),
        (b"r=client-nonceX,s=AAAA,i=1", "1 iterations"),
        (b"r=client-nonceX,s=AAAA,i=100001", "100001 iterations"),
        (b"r=client-nonceX,s=AAAA,i=9999999999", "9999999999 iterations"),
        (b"r=client-nonceX,s=AAAA,i=" + b"9" * 5000, "cannot be read"),
        (b"r=client-nonceX,s=A,i=4096", "not Base64"),
        (b"r=client-nonceX,s=,i=4096", "cannot be read"),
        (b"r=client-nonceX,i=4096,s=AAAA", "cannot be read"),
        (b"\xff", "is not text"),
        (b"e=unknown-user", "refuses SCRAM-SHA-256: unknown-user"),
    ],
)
def test_a_client_breaks_off_when_the_server_cheats(answer, why):
    client, _ = pair()
    client.first()
    with pytest.raises(SaslError, match=re.escape(why)):
        client.step(answer)
    assert not client.is_complete


def test_the_bound_of_iterations_is_the_callers_to_set():
    client = ScramClient(SCRAM_SHA_256, "alice", "x", "n", max_iterations=5000)
    client.first()
    with pytest.raises(SaslError, match="4096 to 5000"):
        client.step(b"r=nX,s=AAAA,i=5001")
    assert MAX_CLIENT_ITERATIONS == 100_000


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (b"", "cannot be read"),
        (b"v=AAAA", "signature is wrong"),
        (b"v=!", "not Base64"),
        (b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_found_out(last, why):
    client, server = pair()
    with pytest.raises(SaslError, match=why):
        talk(client, server, lambda step, token: last if step == 3 else token)
    assert not client.is_complete


def test_a_server_has_nothing_to_say_after_the_end():
    client, server = pair()
    talk(client, server)
    with pytest.raises(SaslError, match="after the end"):
        client.step(b"v=AAAA")


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=3))
def test_bytes_from_anywhere_give_a_refusal_and_nothing_else(tokens):
    client, server = pair()
    for side in (client, server):
        for token in tokens:
            try:
                side.step(token)
            except SaslError:
                break
        assert not side.is_complete


@pytest.mark.parametrize(
    ("mechanism", "user", "password", "nonce"),
    [
        ("SCRAM-SHA-1", "alice", "x", "n"),
        (SCRAM_SHA_256, "", "x", "n"),
        (SCRAM_SHA_256, "bjørn", "x", "n"),
        (SCRAM_SHA_256, "alice", "", "n"),
        (SCRAM_SHA_256, "alice", "se\udcffcret", "n"),
        (SCRAM_SHA_256, "alice", "x", "a,b"),
        (SCRAM_SHA_256, "alice", "x", ""),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(mechanism, user, password, nonce):
    with pytest.raises(ValueError, match=r"SASL|user name|password|nonce"):
        ScramClient(mechanism, user, password, nonce)


# -- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_credential_comes_back_from_its_text(mechanism):
    assert ScramCredential.decode(KEPT[mechanism].encode()) == KEPT[mechanism]


@pytest.mark.parametrize("text", ["", "salt=AAAA", "salt=!,stored_key=AAAA,server_key=AAAA,iterations=1"])
def test_text_that_is_no_credential_is_an_error(text):
    with pytest.raises(ValueError, match=r".+"):
        ScramCredential.decode(text)


def test_nothing_secret_is_shown():
    client, server = pair(password="hush-hush")
    talk_so_far = server.step(client.first())
    kept = KEPT[SCRAM_SHA_256]
    shown = f"{client!r} {server!r} {kept!r} {kept} {talk_so_far!r}"
    assert "hush-hush" not in shown
    assert base64.b64encode(kept.stored_key).decode() not in shown
    assert repr(kept.stored_key) not in shown
