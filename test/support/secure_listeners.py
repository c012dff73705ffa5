"""Brokers with listeners of every kind, and the same settings for the embedded one and for Apache Kafka.

    PLAINTEXT  SSL  MUTUAL (TLS with certificates of clients)  SASL (passwords)  BOTH (passwords within TLS)
    SHORT  BRIEF (passwords, for sessions of 2.5 s and of 1 s)
    EXPIRED  OTHER (TLS with a certificate that is over, or for another host)
    TOKEN (OAUTHBEARER with tokens that nobody has signed, for sessions of 2.5 s): Apache Kafka's alone

The users of PLAIN are ``alice`` and ``admin``, with ``alice-secret`` and ``admin-secret``; those of SCRAM are the
tests' to make.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
from collections.abc import Iterator, Mapping

from kafka.net.tls import CertificateWithKey, Pem, client_context
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient
from test.support.apache_kafka import ApacheKafka, require_apache_kafka
from test.support.certificates import Certificates
from test.support.ports import free_ports
from test.support.waiting import until

PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT", "BRIEF": "SASL_PLAINTEXT", "EXPIRED": "SSL", "OTHER": "SSL", "TOKEN": "SASL_PLAINTEXT",
}  # fmt: skip
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIFETIME_MS = 2500
OPEN_S = 30.0

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PLAIN_JAAS = f'{_PLAIN} required username="admin" password="x" user_admin="admin-secret" user_alice="alice-secret";'
_TOKEN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_TOKEN_JAAS = f'{_TOKEN} required unsecuredLoginStringClaim_sub="alice";'
_SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Places:
    """A broker under test: its ports by the names of its listeners."""

    def __init__(self, ports: dict[str, int], certificates: Certificates) -> None:
        self.ports = ports
        self.certificates = certificates

    def connect(self, listener: str, identity: CertificateWithKey | None = None) -> RawClient:
        """A connection, with TLS where the listener has it."""
        client = RawClient(self.ports[listener])
        if PROTOCOLS[listener] in ("SSL", "SASL_SSL"):
            context = client_context(Pem("ca", self.certificates.ca), identity)
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client


@contextlib.contextmanager
def secure_broker(
    kind: str, certificates: Certificates, settings: Mapping[str, str] | None = None
) -> Iterator[Places]:
    """One broker, ``embedded`` or ``apache``. ``settings``: more of them."""
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    if kind == "embedded":
        del ports["TOKEN"]
        with EmbeddedBroker(settings={**_settings_of(ports, certificates), **(settings or {})}):
            yield Places(ports, certificates)
    else:
        require_apache_kafka()
        with _SecureApacheKafka(ports, certificates, settings):
            for port in ports.values():
                _wait_for_listener(port)
            yield Places(ports, certificates)


def _wait_for_listener(port: int) -> None:
    """Apache Kafka opens one listener after the other, and the first answers before the last is open."""


    def is_open() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(is_open, f"a listener at port {port}", within_s=OPEN_S)


def _settings_of(ports: dict[str, int], certificates: Certificates) -> dict[str, str]:
    """The listeners in Kafka's settings."""
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://{'127.0.0.1' if name == 'PLAINTEXT' else 'localhost'}:{port}" for name, port in ports.items()
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS[name]}" for name in ports),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.server_both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.short.connections.max.reauth.ms": str(LIFETIME_MS),
        "listener.name.brief.connections.max.reauth.ms": "1000",
        "listener.name.expired.ssl.keystore.location": certificates.expired_both,
        "listener.name.other.ssl.keystore.location": certificates.other_both,
    }
    if "TOKEN" in ports:
        settings |= {
            "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.token.oauthbearer.sasl.jaas.config": _TOKEN_JAAS,
            "listener.name.token.connections.max.reauth.ms": str(LIFETIME_MS),
        }
    for name in ("sasl", "both", "short", "brief"):
        for mechanism in MECHANISMS:
            jaas = _PLAIN_JAAS if mechanism == "PLAIN" else _SCRAM_JAAS
            settings[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = jaas
    return settings


class _SecureApacheKafka(ApacheKafka):
    """The real one; its plain listener is where its starter looks for it."""

    def __init__(
        self, ports: dict[str, int], certificates: Certificates, settings: Mapping[str, str] | None
    ) -> None:
        super().__init__(settings=settings)
        self._ports = ports
        self._certificates = certificates

    def _settings(self, directory: pathlib.Path, second_port: int) -> dict[str, object]:
        self._ports["PLAINTEXT"] = int(self.bootstrap.rpartition(":")[2])
        own = _settings_of(self._ports, self._certificates)
        return {
            **super()._settings(directory, second_port),
            **own,
            "listeners": f"{own['listeners']},CONTROLLER://127.0.0.1:{second_port}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        }
