"""The table of settings: defaults, checks, unknown names."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from kafka import IsolationLevel, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.config import CLIENTS, NOT_YET, SETTINGS, narrow, resolve, settings_of
from kafka.errors import KafkaConfigurationError
from kafka.validation import FOREVER_MS


def test_each_setting_stands_once_with_a_text_and_known_clients() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(names) == len(set(names))
    for setting in SETTINGS:
        assert setting.doc.endswith("."), setting.name
        assert setting.clients <= set(CLIENTS) and set(setting.defaults) <= setting.clients, setting.name
        assert setting.name.endswith("_ms") == (setting.unit == "ms"), setting.name


@pytest.mark.parametrize("client", CLIENTS)
def test_every_default_passes_its_own_check(client: str) -> None:
    for setting in settings_of(client):
        assert setting.check(setting.default_for(client)) is not NotImplemented


def test_the_defaults_of_the_client_are_those_that_people_know() -> None:
    of_security = ("ssl_", "sasl_", "security_")
    found = {name: value for name, value in resolve("client", {}).items() if not name.startswith(of_security)}
    assert found == {
        "bootstrap_servers": ("localhost",),
        "client_id": None,
        "request_timeout_ms": 40_000,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 30_000,
        "socket_connection_setup_timeout_ms": 10_000,
        "connections_max_idle_ms": 540_000,
        "max_in_flight_requests_per_connection": 5,
        "receive_buffer_bytes": 32_768,
        "send_buffer_bytes": 131_072,
        "receive_message_max_bytes": 100_000_000,
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1_000,
        "metadata_max_age_ms": 300_000,
        "allow_auto_create_topics": True,
        "api_version": None,
        "api_version_auto_timeout_ms": 2_000,
        "client_dns_lookup": "use_all_dns_ips",
        "socket_connection_setup_timeout_max_ms": 30_000,
        "socket_options": None,
        "client_software_name": None,
        "client_software_version": None,
        "bootstrap_timeout_ms": None,
        "bootstrap_topics_filter": (),
        "proxy_url": None,
        "socks5_proxy": None,
        "metadata_recovery_strategy": "rebootstrap",
        "metadata_recovery_rebootstrap_trigger_ms": 300_000,
        "client_rack": "",
    }


def test_nothing_is_secured_unless_somebody_asks_for_it_and_then_names_are_checked() -> None:
    found = {name: value for name, value in resolve("producer", {}).items() if name.startswith(("ssl_", "sasl_"))}
    assert found.pop("ssl_check_hostname") is True
    assert set(found.values()) == {None} and len(found) == 11
    assert resolve("producer", {})["security_protocol"] == "PLAINTEXT"


@pytest.mark.parametrize(
    ("client", "name", "words"),
    [
        ("client", "boostrap_servers", "did you mean bootstrap_servers?"),
        ("producer", "linger", "did you mean linger_ms?"),
        ("client", "xyzzy", "xyzzy: no such setting"),
        ("consumer", "linger_ms", "a setting of producer, not of consumer"),
        ("producer", "selector", "this version does not have that setting yet"),
    ],
)
def test_a_setting_that_is_not_there_is_an_error_that_helps(client: str, name: str, words: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve(client, {name: 1})
    assert str(caught.value).count(name) and words in str(caught.value)


def test_nothing_is_both_honoured_and_not_yet_there() -> None:
    for client in CLIENTS:
        for setting in settings_of(client):
            assert setting.name not in NOT_YET


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("request_timeout_ms", 5.0, 5),
        ("client_id", b"caf\xc3\xa9", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
        ("bootstrap_servers", "a:1, b", ("a:1", "b")),
        ("bootstrap_servers", ["a:1,b", b"c"], ("a:1", "b", "c")),
        ("api_version", "0.10.2", (0, 10, 2)),
        ("api_version", (2, 8), (2, 8)),
        ("acks", "all", -1),
        ("retries", inf, inf),
        ("api_version", "auto", None),
        ("bootstrap_servers", "PLAINTEXT://a:1,SSL://b", ("a:1", "b")),
        ("bootstrap_servers", ["SASL_SSL://a:1", "SASL_PLAINTEXT://[::1]:2"], ("a:1", "[::1]:2")),
        ("linger_ms", 0.5, 0.5),
        ("retry_backoff_ms", 0.5, 0.5),
        ("retry_backoff_max_ms", 1.5, 1.5),
        ("reconnect_backoff_ms", 0.5, 0.5),
        ("reconnect_backoff_max_ms", 1.5, 1.5),
        ("max_block_ms", inf, FOREVER_MS),
        ("enable_idempotence", 1, True),
        ("enable_idempotence", 0, False),
        ("security_protocol", "sasl_ssl", "SASL_SSL"),
        ("sasl_mechanism", "scram-sha-256", "SCRAM-SHA-256"),
        ("receive_buffer_bytes", None, None),
    ],
)
def test_values_become_what_the_client_uses(name: str, value: Any, expected: Any) -> None:
    assert resolve("producer", {name: value})[name] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_timeout_ms", 0),
        ("request_timeout_ms", True),
        ("request_timeout_ms", "5"),
        ("request_timeout_ms", 1.5),
        ("request_timeout_ms", float("nan")),
        ("receive_message_max_bytes", 2**31),
        ("client_id", 5),
        ("bootstrap_servers", []),
        ("bootstrap_servers", " , "),
        ("bootstrap_servers", 9092),
        ("bootstrap_servers", [9092]),
        ("api_version", "new"),
        ("api_version", (0, 7)),
        ("acks", 2),
        ("acks", True),
        ("retries", -1),
        ("security_protocol", "TLS"),
        ("compression_type", "rar"),
        ("enable_idempotence", 2),
        ("enable_idempotence", 1.0),
        ("enable_idempotence", "true"),
        ("linger_ms", inf),
        ("linger_ms", -0.5),
        ("linger_ms", True),
        ("max_block_ms", -1),
        ("metadata_max_age_ms", -1),
        ("retries", None),
        ("partitioner", 5),
        ("value_serializer", "str"),
    ],
)
def test_values_that_cannot_be_are_errors_that_name_the_setting(name: str, value: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"{name}=.*expected "):
        resolve("producer", {name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("isolation_level", "READ_COMMITTED", "read_committed"),
        ("isolation_level", "read-committed", "read_committed"),
        ("isolation_level", IsolationLevel.READ_COMMITTED, "read_committed"),
        ("isolation_level", 0, "read_uncommitted"),
        ("client_rack", None, ""),
        ("consumer_timeout_ms", -1, inf),
        ("consumer_timeout_ms", inf, inf),
        ("consumer_timeout_ms", 0.5, 0.5),
    ],
)
def test_values_become_what_a_consumer_uses(name: str, value: Any, expected: Any) -> None:
    assert resolve("consumer", {name: value})[name] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation_level", "dirty"),
        ("isolation_level", 2),
        ("isolation_level", True),
        ("isolation_level", b"read_committed"),
        ("isolation_level", None),
        ("consumer_timeout_ms", -2),
    ],
)
def test_values_that_a_consumer_cannot_use_are_errors_that_name_the_setting(name: str, value: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"{name}=.*expected "):
        resolve("consumer", {name: value})


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_none_asks_for_nothing_where_a_setting_is_not_there_yet(name: str) -> None:
    assert resolve("consumer", {name: None}) == resolve("consumer", {})
    with pytest.raises(KafkaConfigurationError, match="does not have that setting yet"):
        resolve("consumer", {name: "x"})


@pytest.mark.parametrize("client", [KafkaProducer, KafkaConsumer, KafkaAdminClient])
@pytest.mark.parametrize("servers", ["127.0.0.1:1,127.0.0.1:2", ["127.0.0.1:1"]])
def test_clients_have_their_defaults_and_their_settings_with_the_servers_as_given(client: Any, servers: Any) -> None:
    with client(bootstrap_servers=servers, request_timeout_ms=1000.0) as made:
        assert made.config["bootstrap_servers"] == servers
        assert made.config["request_timeout_ms"] == 1000
        assert set(client.DEFAULT_CONFIG) <= set(made.config)
        made.config.clear()
        assert made.config["client_id"] is client.DEFAULT_CONFIG["client_id"] is None


def test_a_wrong_configuration_is_a_value_error_too() -> None:
    with pytest.raises(ValueError):
        resolve("client", {"nonsense": 1})


def test_a_client_inside_another_gets_the_settings_that_it_has() -> None:
    settings = resolve("producer", {"client_id": "me", "linger_ms": 5})
    inner = narrow("client", settings)
    assert inner["client_id"] == "me" and "linger_ms" not in inner
    assert inner["request_timeout_ms"] == 30_000
    assert resolve("client", inner) == {**resolve("client", {}), **inner}
