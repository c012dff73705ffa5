"""SASL OAUTHBEARER, the client's side."""

from __future__ import annotations

import pytest

from kafka.core.sasl import SaslError
from kafka.core.sasl.mechanism import OauthBearerClient


def test_the_token_is_shown_as_in_rfc_7628():
    client = OauthBearerClient("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    assert client.first() == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert client.step(b"") is None
    assert client.is_complete


def test_extensions_follow_the_token():
    client = OauthBearerClient("abc", {"logicalCluster": "lkc-1", "trace": "a b"})
    assert client.first() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01trace=a b\x01\x01"


def test_a_refusal_is_answered_and_reported():
    client = OauthBearerClient("abc")
    assert client.step(b'{"status":"invalid_token","scope":"x"}') == b"\x01"
    assert client.refusal == "invalid_token"
    with pytest.raises(SaslError, match="refuses the token: invalid_token"):
        client.step(b"")
    assert not client.is_complete


@pytest.mark.parametrize("answer", [b"{", b"[]", b"{}", b"\xff", b"null", b"[" * 100_000])
def test_an_answer_that_makes_no_sense_is_an_error(answer):
    with pytest.raises(SaslError, match="cannot be read"):
        OauthBearerClient("abc").step(answer)


@pytest.mark.parametrize(
    ("token", "extensions"),
    [("", {}), ("a b", {}), ("a\x01auth=x", {}), ("abc", {"auth": "x"}), ("abc", {"a1": "x"}), ("abc", {"a": "\x01"})],
)
def test_what_cannot_be_sent_is_refused_before(token, extensions):
    with pytest.raises(ValueError, match="OAUTHBEARER"):
        OauthBearerClient(token, extensions)


def test_no_token_is_shown():
    assert "abc-token" not in repr(OauthBearerClient("abc-token"))
