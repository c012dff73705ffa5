"""TLS and SASL of listeners: certificates, mechanisms, users, and JAAS texts.

Certificates and keys are PEM, in files or in the settings; Java key stores are not read. A broker without TLS and SASL
never imports this module, nor ``ssl``; ``listeners.py`` reads the listeners.
"""

from __future__ import annotations

import base64
import random
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafka.broker.config import BrokerConfig, list_of
from kafka.broker.listeners import MECHANISMS
from kafka.broker.log.metadata_store import MetadataStore
from kafka.core.sasl import ServerMechanism
from kafka.core.sasl.mechanism import PLAIN, PlainServer
from kafka.core.sasl.scram import HASHES, ScramCredential, ScramServer, new_credential
from kafka.core.sasl.server import SaslServer
from kafka.errors import KafkaConfigurationError, KafkaStorageError
from kafka.net.tls import CertificateWithKey, Pem, TlsSettingError, server_context

FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<end>;)|(?P<equals>=)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """A text that is not a JAAS configuration."""


class LoginModule(NamedTuple):
    """One JAAS entry; its options hold passwords and are not in its ``repr``."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {len(self.options)} options)"


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a text of ``sasl.jaas.config``. JaasError, which names the place, never a value.

    ::

        org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='it is "him"';
        ------------------- class of the login module --------- flag  ------------ options ------------------- end

    Values may be quoted; within quotes a backslash escapes the next character, with Java's escapes for line ends and
    tabs.
    """
    tokens = list(_tokens(text))
    if not tokens:
        raise JaasError("it is empty")
    if len(tokens) < 2 or tokens[0][0] != "text" or tokens[1][1].lower() not in FLAGS:
        raise JaasError(f"it begins with the class of a login module and one of {', '.join(sorted(FLAGS))}")
    name, rest = tokens[0][1], tokens[2:]
    options: dict[str, str] = {}
    while rest and rest[0][0] == "text":
        if len(rest) < 3 or rest[1][0] != "=" or rest[2][0] != "text":
            raise JaasError(f"option {len(options) + 1} is not of the form name=\"value\"")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if not rest or rest[0][0] != ";":
        raise JaasError("there is no semicolon at its end")
    if len(rest) > 1:
        raise JaasError("there is more than one login module in it")
    return LoginModule(name, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(f"a quote that is not closed at character {position + 1}")
        position = found.end()
        kind = found.lastgroup or ""
        token = found[kind]
        if kind in ("double", "single"):
            token = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), token, flags=re.DOTALL)
        yield (token if kind in ("end", "equals") else "text"), token


KIND: Final = "user-scram"
"""The kind of the users' configuration in the metadata: user -> mechanism -> credential as text."""

SALT_BYTES: Final = 20
NONCE_BYTES: Final = 18


class Credentials:
    """The users of one broker. ``rng``: for salts and nonces, so it has to be unpredictable.

    SCRAM users are stored in the metadata, as salt, keys and iterations, never as passwords; AlterUserScramCredentials
    changes them. ``users`` (name -> password) can authenticate by every mechanism; for SCRAM they are stored in the
    metadata, where they stay when they are not given any more. PLAIN users of a JAAS text are valid for their listener
    only, and are not stored.
    """

    def __init__(self, metadata: MetadataStore, users: Mapping[str, str], rng: random.Random) -> None:
        self._metadata = metadata
        self._users = dict(users)
        self._rng = rng
        for name, password in self._users.items():
            if not name or not password or "\0" in name + password:
                raise KafkaConfigurationError("a user needs a name and a password")
            self._put_if_new(name, password)

    def __repr__(self) -> str:
        return f"<Credentials of {len(self.scram_users())} users>"

    # -- connections -------------------------------------------------------------------------------------------------

    def authentication(self, sasl: SaslSettings) -> SaslServer:
        """For a connection that has just come to a listener with these settings."""
        return SaslServer(sasl.mechanisms, lambda name: self._mechanism(sasl, name), sasl.lifetime_ms)

    def _mechanism(self, sasl: SaslSettings, name: str) -> ServerMechanism:
        if name == PLAIN:
            return PlainServer(lambda user: sasl.plain_users.get(user, self._users.get(user)))
        nonce = base64.b64encode(self._rng.randbytes(NONCE_BYTES)).decode()
        return ScramServer(name, lambda user: self.scram(user).get(name), nonce)

    # -- users of SCRAM ----------------------------------------------------------------------------------------------

    def scram_users(self) -> list[str]:
        """All names."""
        return list(self._metadata.configs(KIND))

    def scram(self, user: str) -> dict[str, ScramCredential]:
        """By mechanism what is kept of a user; empty for an unknown one."""
        kept = self._metadata.config(KIND, user)
        try:
            return {mechanism: ScramCredential.decode(text) for mechanism, text in kept.items()}
        except ValueError as error:
            raise KafkaStorageError(f"the credentials of a user cannot be read: {error}") from None

    def put(self, user: str, mechanism: str, credential: ScramCredential) -> None:
        """Make or change one."""
        kept = self._metadata.config(KIND, user)
        self._metadata.set_config(KIND, user, {**kept, mechanism: credential.encode()})

    def remove(self, user: str, mechanism: str) -> None:
        """Forget one."""
        kept = self._metadata.config(KIND, user)
        kept.pop(mechanism, None)
        self._metadata.set_config(KIND, user, kept)

    def _put_if_new(self, name: str, password: str) -> None:
        """So that a start writes nothing when nothing is new."""
        known = self.scram(name)
        for mechanism in HASHES:
            kept = known.get(mechanism)
            if kept is None or kept != new_credential(mechanism, password, kept.salt, kept.iterations):
                self.put(name, mechanism, new_credential(mechanism, password, self._rng.randbytes(SALT_BYTES)))


_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_USER: Final = "user_"


class SaslSettings(NamedTuple):
    """How a listener authenticates clients. ``plain_users``: name -> password, for this listener alone."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    lifetime_ms: int = 0
    max_receive_bytes: int = 524_288

    def __repr__(self) -> str:
        return f"SaslSettings({', '.join(self.mechanisms)}, {len(self.plain_users)} users of PLAIN)"


def tls_context(config: BrokerConfig, name: str) -> ssl.SSLContext:
    """How a listener shows itself and whom it trusts. KafkaConfigurationError."""
    try:
        return server_context(
            _identity(config, name),
            _trusted(config, name),
            client_auth=_value(config, name, "ssl.client.auth"),
            versions=tuple(list_of(_value(config, name, "ssl.enabled.protocols"))),
        )
    except TlsSettingError as error:
        raise KafkaConfigurationError(f"listener {name}: {error}") from None


def _identity(config: BrokerConfig, name: str) -> CertificateWithKey:
    """The certificate and key of a listener, from PEM files or from the settings. KafkaConfigurationError."""
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
    """Kafka's default is JKS, but PEM need not be set where there is nothing else."""
    own = f"listener.name.{name.lower()}.{setting}"
    given = config.static.get(own, config.static.get(setting))
    if given is not None and given.upper() != "PEM":
        raise KafkaConfigurationError(f"listener {name}: {setting}={given} is not read here, only PEM is")


def sasl_settings(config: BrokerConfig, name: str, has_users: bool) -> SaslSettings:
    """How a listener authenticates clients. KafkaConfigurationError."""
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
