"""SASL as releases of Apache Kafka from 0.10 on have it: tokens without headers, then in requests, with sessions."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from kafka import KafkaAdminClient, KafkaClient
from kafka.broker import BrokerSecurity
from kafka.errors import SaslAuthenticationFailedError
from kafka.testing import EmbeddedBroker
from test.support.apache_kafka import FAST_START, ApacheKafka, require_apache_kafka
from test.support.ports import free_ports

pytestmark = pytest.mark.timeout(180)

JAAS = (
    "KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret"; };\n'
)
RELEASES = {"0.10.2.2": "0.10.2", "0.11.0.3": "0.11", "1.1.1": "1.1", "2.8.2": "2.8"}
"""Release -> what it looks like."""


class SaslApacheKafka(ApacheKafka):
    """One of an old release, with a second listener for PLAIN."""

    sasl_port = 0

    def _settings(self, directory: pathlib.Path, second_port: int) -> dict[str, object]:
        (self.sasl_port,) = free_ports(1)
        listeners = f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        return {
            **super()._settings(directory, second_port),
            "listeners": listeners,
            "sasl.enabled.mechanisms": "PLAIN",
        }


@pytest.fixture(scope="module", params=RELEASES)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslApacheKafka]:
    require_apache_kafka(request.param)
    file = tmp_path_factory.mktemp("jaas") / "jaas.conf"
    file.write_text(JAAS)
    jvm = [*FAST_START, f"-Djava.security.auth.login.config={file}", "-Dzookeeper.sasl.client=false"]
    with SaslApacheKafka(request.param, jvm=jvm) as broker:
        yield broker


def settings_of(address: str, password: str = "alice-secret", mechanism: str = "PLAIN") -> dict[str, str]:
    return {
        "bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice", "sasl_plain_password": password,
    }  # fmt: skip


def test_old_brokers_let_in_by_their_own_dialogue(old: SaslApacheKafka) -> None:
    settings = settings_of(f"127.0.0.1:{old.sasl_port}")
    with KafkaClient(**settings) as client:
        assert client.check_version() == RELEASES[old.version]
    with KafkaAdminClient(**settings) as admin:
        assert isinstance(admin.list_topics(), list)


def test_old_brokers_refusals_are_understood(old: SaslApacheKafka) -> None:
    """Those before 1.0 hang up without a word; the third time counts."""
    settings = settings_of(f"127.0.0.1:{old.sasl_port}", "wrong")
    with KafkaAdminClient(**settings) as admin, pytest.raises(SaslAuthenticationFailedError) as caught:
        admin.list_topics()
    assert "password" in str(caught.value)


@pytest.mark.parametrize("release", ["0.10", "0.11", "1.1", "2.8", "3.9"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_embedded_broker_as_an_old_one_does_the_same(release: str, mechanism: str) -> None:
    security = BrokerSecurity("SASL_PLAINTEXT", users={"alice": "alice-secret"})
    with EmbeddedBroker(in_process=True, emulate=release, security=security) as broker:
        with KafkaAdminClient(**settings_of(broker.secure_bootstrap, mechanism=mechanism)) as admin:
            assert isinstance(admin.list_topics(), list)
        wrong = settings_of(broker.secure_bootstrap, "wrong", mechanism)
        with KafkaAdminClient(**wrong) as admin, pytest.raises(SaslAuthenticationFailedError):
            admin.list_topics()
