"""Clients that others wrote on listeners with TLS and passwords, of the embedded broker and of Apache Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from test.support.certificates import Certificates
from test.support.peers import run_peer
from test.support.secure_listeners import MECHANISMS, PROTOCOLS, Places, secure_broker

pytestmark = pytest.mark.timeout(180)

ALL_OF_IT = {"delivered": 100, "read": 100}
IN_TURN = {"read": [60, 40], "twice": 0}


@pytest.fixture(scope="module", params=["embedded", "apache"])
def places(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Places]:
    with secure_broker(request.param, certificates) as found:
        yield found


@pytest.fixture(scope="module")
def scram_user(places: Places) -> str:
    place = f"localhost:{places.ports['PLAINTEXT']}"
    made = run_peer("confluent-kafka", "confluent_secure", "make_user", place, "sam", "{}")
    assert made == [["SCRAM_SHA_256", 8192], ["SCRAM_SHA_512", 8192]]
    return "sam"


def confluent(places: Places, scenario: str, listener: str, **settings: Any) -> Any:
    settings = {"security.protocol": PROTOCOLS[listener], **{key.replace("_", "."): v for key, v in settings.items()}}
    if PROTOCOLS[listener].endswith("SSL"):
        settings.setdefault("ssl.ca.location", places.certificates.ca)
    place, name = f"localhost:{places.ports[listener]}", f"secure-{uuid.uuid4().hex[:8]}"
    return run_peer("confluent-kafka", "confluent_secure", scenario, place, name, json.dumps(settings))


def kafka_python(places: Places, listener: str, scenario: str = "roundtrip", **settings: Any) -> Any:
    settings["security_protocol"] = PROTOCOLS[listener]
    if PROTOCOLS[listener].endswith("SSL"):
        settings["ssl_cafile"] = places.certificates.ca
    place, name = f"localhost:{places.ports[listener]}", f"secure-{uuid.uuid4().hex[:8]}"
    return run_peer("kafka-python", "kafka_python_secure", scenario, place, name, json.dumps(settings))


def who(mechanism: str, scram_user: str) -> tuple[str, str]:
    return ("alice", "alice-secret") if mechanism == "PLAIN" else (scram_user, "scram-secret")


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_let_in_with_its_password(places, scram_user, listener, mechanism):
    user, password = who(mechanism, scram_user)
    found = confluent(
        places, "roundtrip", listener, sasl_mechanism=mechanism, sasl_username=user, sasl_password=password
    )
    assert found == ALL_OF_IT


def test_confluent_kafka_is_let_in_with_its_certificate(places):
    assert confluent(places, "roundtrip", "SSL") == ALL_OF_IT
    made = places.certificates
    settings = {"ssl_certificate_location": made.client, "ssl_key_location": made.client_key}
    assert confluent(places, "roundtrip", "MUTUAL", **settings) == ALL_OF_IT


@pytest.mark.parametrize(
    ("listener", "settings", "name"),
    [
        ("SASL", {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "no"}, "_AUTHENTICATION"),
        ("BOTH", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "sam", "sasl_password": "no"}, "_AUTHENTICATION"),
        ("MUTUAL", {}, "_TRANSPORT"),
        ("SSL", {"ssl_ca_location": "stranger_ca"}, "_SSL"),
    ],
)
def test_confluent_kafka_hears_why_it_is_not_let_in(places, scram_user, listener, settings, name):
    files = {key: getattr(places.certificates, value) for key, value in settings.items() if key.endswith("location")}
    assert confluent(places, "refused", listener, wanted=name, **{**settings, **files}) == {"name": name}


def test_confluent_kafka_renews_its_session(places):
    found = confluent(
        places, "long_session", "SHORT", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="alice-secret"
    )
    assert found == {"failed": [], "left": 0, "some": True}


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_is_let_in_with_its_password(places, scram_user, listener, mechanism):
    user, password = who(mechanism, scram_user)
    found = kafka_python(
        places, listener, sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password
    )
    assert found == ALL_OF_IT


def test_kafka_python_is_let_in_with_its_certificate(places):
    made = places.certificates
    found = kafka_python(places, "MUTUAL", ssl_certfile=made.client, ssl_keyfile=made.client_key)
    assert found == ALL_OF_IT


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_groups_of_confluent_kafka_work_behind_passwords_and_tls(places, scram_user, mechanism, protocol):
    user, password = who(mechanism, scram_user)
    settings = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    assert confluent(places, "group", "BOTH", group_protocol=protocol, **settings) == IN_TURN


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_groups_of_kafka_python_work_behind_passwords_and_tls(places, scram_user, mechanism):
    user, password = who(mechanism, scram_user)
    settings = {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    assert kafka_python(places, "BOTH", "group", **settings) == IN_TURN
