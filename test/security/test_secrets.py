"""Nobody finds a secret where it was not put: not in a log at its most talkative, a repr, an error or the settings."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import time
import traceback
from typing import Any

import pytest

from kafka import KafkaAdminClient, KafkaClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.config import Secret, resolve
from kafka.core.authentication import Token
from kafka.errors import KafkaConfigurationError, KafkaError
from kafka.protocol.sasl import SaslAuthenticateRequest
from kafka.tasks import App
from test.security.support import (
    ALICE_PASSWORD,
    SCRAM_PASSWORD,
    Secured,
    Way,
    produce,
    read,
    token_for,
)
from test.support.certificates import PASSWORD

pytestmark = pytest.mark.timeout(180)

TOKEN = token_for(lifetime_s=3600.0)
WRONG = "a wr0ng password"
SECRETS = (ALICE_PASSWORD, SCRAM_PASSWORD, PASSWORD, WRONG, TOKEN, "from the provider's error")


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """At the lowest level, whatever levels the worker's command has left behind in this process."""
    for name in [None, *logging.root.manager.loggerDict]:
        if name is None or name.startswith("kafka"):
            caplog.set_level(logging.DEBUG, name)
    return caplog


def assert_nothing_shows(text: str, what: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{what} shows a secret: {text[:2000]}"


WAYS = [Way("SASL", "PLAIN"), Way("BOTH", "SCRAM-SHA-256"), Way("TOKEN", "OAUTHBEARER"), Way("SHORT", "PLAIN")]


def token() -> str:
    return TOKEN


def objects_of(roots: list[Any], depth: int = 5) -> list[Any]:
    """What can be reached from these objects in a few steps, of our own classes."""
    found, seen, level = [], set(), roots
    for _ in range(depth):
        following = []
        for each in level:
            if id(each) in seen or isinstance(each, (type, str, bytes)):
                continue
            seen.add(id(each))
            if type(each).__module__.startswith("kafka"):
                found.append(each)
            following += gc.get_referents(each)
        level = following
    return found


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_log_and_no_repr_shows_a_secret_when_all_goes_well(secured: Secured, way: Way, everything_logged) -> None:
    settings = secured.settings(way)
    if way.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = token
    topic = secured.new_topic()
    produce(settings, topic, 20)
    assert read(settings, topic, 20) == list(range(20))
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(KafkaClient(**settings)), stack.enter_context(KafkaProducer(**settings)),
            stack.enter_context(KafkaConsumer(**settings)), stack.enter_context(KafkaAdminClient(**settings)),
            stack.enter_context(KafkaShareConsumer(group_id="g", **settings)),
        ]  # fmt: skip
        clients[3].list_topics()
        until = time.monotonic() + (3 if way.listener == "SHORT" else 0)  # a renewal
        while time.monotonic() < until:
            clients[0].poll(100)
        reprs = [repr(each) for each in objects_of(clients)]
        assert len(reprs) > 30
        assert_nothing_shows("\n".join(reprs), "a repr")
        assert_nothing_shows(repr(clients[0].config), "the settings")
        assert_nothing_shows(str(clients[0].config), "the settings")
    assert "kafka" in everything_logged.text
    assert_nothing_shows(everything_logged.text, "a log")


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_log_and_no_error_shows_a_secret_when_it_is_refused(secured: Secured, way: Way, everything_logged) -> None:
    settings = secured.settings(way)
    if way.mechanism == "OAUTHBEARER":

        def provider() -> str:
            raise RuntimeError("from the provider's error")

        settings |= {"sasl_oauth_token_provider": provider, "request_timeout_ms": 1000}
    else:
        settings["sasl_plain_password"] = WRONG
    with KafkaAdminClient(**settings) as admin, pytest.raises(KafkaError) as caught:
        admin.list_topics()
    assert_nothing_shows(repr(caught.value) + str(caught.value) + repr(caught.value.args), "an error")
    assert_nothing_shows(everything_logged.text, "a log")


@pytest.mark.parametrize("name", ["sasl_plain_password", "ssl_password"])
def test_a_secret_that_cannot_be_is_not_quoted(name: str) -> None:
    for value in (5_318_008, [WRONG], {"x": WRONG}):
        with pytest.raises(KafkaConfigurationError) as caught:
            resolve("client", {name: value})
        text = "".join(traceback.format_exception(caught.value))
        assert "<secret>" in str(caught.value) and "5318008" not in text
        assert_nothing_shows(text.replace("for value in", ""), "an error")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl_keyfile", f"-----BEGIN PRIVATE KEY-----\n{WRONG}\n-----END PRIVATE KEY-----\n"),
        ("ssl_certfile", f"-----BEGIN PRIVATE KEY-----\n{WRONG}\n".encode()),
        ("sasl_oauth_token_provider", WRONG),
    ],
)
def test_a_secret_in_the_place_of_what_gives_it_is_not_quoted(name: str, value: str | bytes) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"{name}=<secret>: expected") as caught:
        resolve("client", {name: value})
    assert_nothing_shows(str(caught.value), "an error")


def test_a_wrong_key_password_is_not_quoted(secured: Secured) -> None:
    made = secured.certificates
    with pytest.raises(KafkaConfigurationError, match="password for it is wrong") as caught:
        KafkaClient(**secured.settings("MUTUAL", ssl_keyfile=made.client_locked_key, ssl_password=WRONG))
    assert_nothing_shows(str(caught.value), "an error")


def test_an_apps_settings_show_no_secret() -> None:
    app = App("shy", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="alice",
              sasl_plain_password=ALICE_PASSWORD)  # fmt: skip
    for shown in (app, app.settings, app.settings.client, vars(app)):
        assert_nothing_shows(f"{shown!r} {shown}", "an app")


def test_secrets_say_nothing_of_themselves() -> None:
    secret = Secret(WRONG)
    assert f"{secret} {secret!r} {[secret]}" == "<secret> <secret> [<secret>]"
    assert secret.reveal() == WRONG and secret == Secret(WRONG) != Secret("another")
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert_nothing_shows(
        repr(Token(WRONG.encode())) + repr(SaslAuthenticateRequest(auth_bytes=WRONG.encode())), "a step"
    )
