"""Whoever is not let in, or does not trust the broker, hears why: once, at once, from every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kafka import KafkaAdminClient, KafkaClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.cli import main
from kafka.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafka.tasks import App
from test.security.support import SOON_S, Secured, Way, token_for

pytestmark = pytest.mark.timeout(120)

PATIENCE_S = 25.0
"""Far below every client's own limits (30 s and 60 s), and enough for a busy machine."""

NO_SASL: dict[str, Any] = {"sasl_mechanism": None, "sasl_plain_username": None, "sasl_plain_password": None}
FAULTS: dict[str, tuple[Way, dict[str, Any], type[KafkaError], str]] = {
    "wrong password": (
        Way("SASL", "PLAIN"), {"sasl_plain_password": "wr0ng"}, SaslAuthenticationFailedError, "Invalid username or"),
    "wrong password of SCRAM": (
        Way("BOTH", "SCRAM-SHA-512"), {"sasl_plain_password": "wr0ng"}, SaslAuthenticationFailedError, "invalid cred"),
    "unknown user": (
        Way("SASL", "SCRAM-SHA-256"), {"sasl_plain_username": "nobody"}, SaslAuthenticationFailedError, "invalid cred"),
    "mechanism that is not enabled": (
        Way("SASL", "PLAIN"),
        {**NO_SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": token_for},
        UnsupportedSaslMechanismError, "it has: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    "token that is over": (
        Way("TOKEN", "OAUTHBEARER"), {"sasl_oauth_token_provider": lambda: token_for(lifetime_s=-60)},
        SaslAuthenticationFailedError, "OAUTHBEARER"),
    "untrusted authority": (Way("SSL"), {"ssl_cafile": "stranger_ca"}, SslAuthenticationError, "issuer certificate"),
    "expired certificate": (Way("EXPIRED"), {}, SslAuthenticationError, "expired"),
    "certificate of another host": (Way("OTHER"), {}, SslAuthenticationError, "Hostname mismatch"),
    "revoked certificate": (Way("SSL"), {"ssl_crlfile": "crl_revoked"}, SslAuthenticationError, "revoked"),
    "no certificate of our own": (
        Way("MUTUAL"), {"ssl_certfile": None, "ssl_keyfile": None}, SslAuthenticationError, "refuses our certificate"),
    "certificate that the broker does not trust": (
        Way("MUTUAL"), {"ssl_certfile": "stranger", "ssl_keyfile": "stranger_key"},
        SslAuthenticationError, "refuses our certificate"),
    "plaintext to a listener with TLS": (
        Way("SSL"), {"security_protocol": "PLAINTEXT", "ssl_cafile": None}, SslAuthenticationError, "TLS"),
    "SASL in plaintext to a listener with TLS": (
        Way("BOTH", "PLAIN"), {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
        SslAuthenticationError, "TLS"),
    "TLS to a listener without": (
        Way("PLAINTEXT"), {"security_protocol": "SSL", "ssl_cafile": "ca"}, SslAuthenticationError, "one of PLAINTEXT"),
    "TLS and SASL to a listener with SASL alone": (
        Way("SASL", "PLAIN"), {"security_protocol": "SASL_SSL", "ssl_cafile": "ca"},
        SslAuthenticationError, "one of SASL_PLAINTEXT"),
    "no SASL to a listener with it": (
        Way("SASL", "PLAIN"), {**NO_SASL, "security_protocol": "PLAINTEXT"}, IllegalSaslStateError, "SASL_PLAINTEXT"),
    "SASL to a listener without": (
        Way("PLAINTEXT"),
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "alice",
         "sasl_plain_password": "alice-secret"}, IllegalSaslStateError, "asks for no authentication"),
}  # fmt: skip
each_fault = pytest.mark.parametrize("fault", FAULTS)


def settings_of(secured: Secured, fault: str) -> dict[str, Any]:
    way, changes, _, _ = FAULTS[fault]
    made = secured.certificates
    files = {name: getattr(made, value) for name, value in changes.items() if value and name.endswith("file")}
    return secured.settings(way, **{**changes, **files})


def refused(fault: str, call: Callable[[], object]) -> AuthenticationError:
    """The error of a call that has to fail soon."""
    began = time.monotonic()
    with pytest.raises(AuthenticationError) as caught:
        call()
    assert time.monotonic() - began < PATIENCE_S
    _, _, kind, words = FAULTS[fault]
    assert isinstance(caught.value, kind), caught.value
    assert not caught.value.retriable
    text = str(caught.value)
    assert words in text and "localhost:" in text, text
    assert not any(secret in text for secret in ("wr0ng", "alice-secret", "scram-secret"))
    return caught.value


@each_fault
def test_an_administrators_call_fails_with_it(secured: Secured, fault: str) -> None:
    with KafkaAdminClient(**settings_of(secured, fault)) as admin:
        refused(fault, admin.list_topics)
        refused(fault, admin.list_topics)  # and again, also while the next attempt is not due yet


@each_fault
def test_sending_a_record_fails_with_it(secured: Secured, fault: str) -> None:
    with KafkaProducer(**settings_of(secured, fault)) as producer:
        refused(fault, lambda: producer.send("topic", b"value").get(SOON_S))


@each_fault
def test_polling_raises_it(secured: Secured, fault: str) -> None:
    with KafkaConsumer("topic", **settings_of(secured, fault)) as consumer:
        refused(fault, lambda: consumer.poll(SOON_S * 1000))


@each_fault
def test_polling_a_share_group_raises_it(secured: Secured, fault: str) -> None:
    with KafkaShareConsumer("topic", group_id="refused", **settings_of(secured, fault)) as consumer:
        refused(fault, lambda: consumer.poll(SOON_S * 1000))


@each_fault
def test_finding_out_the_release_fails_with_it(secured: Secured, fault: str) -> None:
    with KafkaClient(**settings_of(secured, fault)) as client:
        refused(fault, client.check_version)


@pytest.mark.parametrize("fault", ["wrong password", "untrusted authority", "TLS to a listener without"])
def test_an_app_fails_with_it(secured: Secured, fault: str) -> None:
    app = App("refused", **settings_of(secured, fault))
    refused(fault, lambda: app.send("task", queue="default"))


def test_a_command_says_it_in_one_line(secured: Secured, tmp_path, capsys) -> None:
    settings = settings_of(secured, "wrong password")
    address = settings.pop("bootstrap_servers")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    assert main(["check-version", address, "--config", str(file)]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "Invalid username or password" in errors and "wr0ng" not in errors
