"""What listeners with TLS or SASL need: certificates, and the mechanisms by which clients say who they are.

Certificates and keys are PEM, in files or in the settings; Java's own key stores are not read. Mechanisms have their
users from JAAS texts here, and from ``credentials.py``. A broker whose listeners have neither does without this module,
and without ``ssl``; which listeners there are is ``listeners.py``'s business.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka.broker.config import BrokerConfig
from kafka.broker.jaas import JaasError, parse_jaas
from kafka.broker.listeners import MECHANISMS
from kafka.broker.settings import list_of
from kafka.core.sasl.plain import NAME as PLAIN
from kafka.core.sasl.scram import HASHES
from kafka.errors import KafkaConfigurationError
from kafka.net.tls import CertificateWithKey, Pem, TlsSettingError, server_context

_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_USER: Final = "user_"


class SaslSettings(NamedTuple):
    """How a listener asks who is there. ``plain_users``: name -> password, for this listener alone."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    lifetime_ms: int = 0
    max_receive_bytes: int = 524_288

    def __repr__(self) -> str:
        return f"SaslSettings({', '.join(self.mechanisms)}, {len(self.plain_users)} users of PLAIN)"


def tls_context(config: BrokerConfig, name: str) -> ssl.SSLContext:
    """How a listener shows itself and whom it trusts. KafkaConfigurationError."""

    def value(setting: str) -> str:
        return _value(config, name, setting)

    identity = _identity(config, name)
    try:
        return server_context(
            identity,
            _trusted(config, name),
            client_auth=value("ssl.client.auth"),
            versions=tuple(list_of(value("ssl.enabled.protocols"))),
        )
    except TlsSettingError as error:
        raise KafkaConfigurationError(f"listener {name}: {error}") from None


def _identity(config: BrokerConfig, name: str) -> CertificateWithKey:
    chain, key = (_value(config, name, f"ssl.keystore.{part}") for part in ("certificate.chain", "key"))
    location = _value(config, name, "ssl.keystore.location")
    password = _value(config, name, "ssl.key.password") or None
    if chain or key:
        if location:
            raise KafkaConfigurationError(
                f"listener {name}: ssl.keystore.location and ssl.keystore.certificate.chain exclude one another"
            )
        if not (chain and key):
            raise KafkaConfigurationError(
                f"listener {name}: ssl.keystore.certificate.chain and ssl.keystore.key belong together"
            )
        chain_pem = Pem("ssl.keystore.certificate.chain", text=chain)
        return CertificateWithKey(chain_pem, Pem("ssl.keystore.key", text=key), password)
    _check_type(config, name, "ssl.keystore.type")
    if not location:
        raise KafkaConfigurationError(
            f"listener {name} needs a certificate: set ssl.keystore.location to a PEM file with the private key and "
            f"the certificate chain"
        )
    return CertificateWithKey(Pem("ssl.keystore.location", path=location), None, password)


def _trusted(config: BrokerConfig, name: str) -> Pem | None:
    text = _value(config, name, "ssl.truststore.certificates")
    location = _value(config, name, "ssl.truststore.location")
    if text:
        return Pem("ssl.truststore.certificates", text=text)
    if location:
        _check_type(config, name, "ssl.truststore.type")
        return Pem("ssl.truststore.location", path=location)
    return None


def _check_type(config: BrokerConfig, name: str, setting: str) -> None:
    """Kafka's default is JKS, but nobody has to say PEM where there is nothing else."""
    own = f"listener.name.{name.lower()}.{setting}"
    given = config.static.get(own, config.static.get(setting))
    if given is not None and given.upper() != "PEM":
        raise KafkaConfigurationError(f"listener {name}: {setting}={given} is not read here, only PEM is")


def sasl_settings(config: BrokerConfig, name: str, has_users: bool) -> SaslSettings:
    """How a listener asks who is there. KafkaConfigurationError."""
    mechanisms = tuple(list_of(_value(config, name, "sasl.enabled.mechanisms")))
    unknown = [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]
    if unknown or not mechanisms:
        raise KafkaConfigurationError(
            f"listener {name}: sasl.enabled.mechanisms: {', '.join(unknown) or 'nothing'} is not to be had here; "
            f"set it to some of {', '.join(MECHANISMS)}"
        )
    users: dict[str, str] = {}
    for mechanism in mechanisms:
        options = _jaas(config, name, mechanism)
        if mechanism == PLAIN and options is not None:
            users = {key[len(_USER) :]: value for key, value in options.items() if key.startswith(_USER)}
        if mechanism == PLAIN and options is None and not has_users:
            raise KafkaConfigurationError(
                f"listener {name}: PLAIN has no users; set listener.name.{name.lower()}.plain.sasl.jaas.config to "
                f'{_MODULES[PLAIN]} required user_NAME="PASSWORD";'
            )
    return SaslSettings(
        mechanisms,
        users,
        int(_value(config, name, "connections.max.reauth.ms")),
        int(_value(config, name, "sasl.server.max.receive.size")),
    )


def _jaas(config: BrokerConfig, name: str, mechanism: str) -> Mapping[str, str] | None:
    setting = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = config.static.get(setting)
    if text is None:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise KafkaConfigurationError(f"{setting} is no JAAS text: {error}") from None
    if module.name != _MODULES[mechanism]:
        raise KafkaConfigurationError(f"{setting} is for the login module {_MODULES[mechanism]}, not {module.name}")
    return module.options


def _value(config: BrokerConfig, listener: str, setting: str) -> str:
    own = config.static.get(f"listener.name.{listener.lower()}.{setting}")
    return own if own is not None else config.value(setting)
