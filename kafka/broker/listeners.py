"""The broker's listeners, from Kafka's settings; and a short form of the settings for TLS and passwords.

    listeners=NAME://HOST:PORT,...            port 0: a free one; no host: all addresses
    advertised.listeners                      the addresses for clients, where they differ
    listener.security.protocol.map            NAME -> PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    listener.name.NAME.SETTING                overrides SETTING for one listener

Every mistake is a KafkaConfigurationError at the start. ``listener_security.py`` has TLS and SASL, and a broker without
them never imports it. A fifth protocol would be a row in ``PROTOCOLS``.

:class:`BrokerSecurity` is the short form, for ``EmbeddedBroker(security=...)`` and the options of
``python -m kafka broker``; two files keep secrets out of the command line, which every user of the machine can read:

    --settings FILE     NAME=VALUE lines as in Kafka's server.properties: #, !, continuation by a backslash
    --users FILE        NAME:PASSWORD lines; # begins a comment
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka.broker.config import BrokerConfig, list_of
from kafka.errors import KafkaConfigurationError

if TYPE_CHECKING:
    import ssl

    from kafka.broker.listener_security import SaslSettings

PROTOCOLS: Final[Mapping[str, tuple[bool, bool]]] = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Security protocol -> has it TLS, has it SASL."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that there are here."""

_LISTENER: Final = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9a-fA-F:.%]+\]|[^:\[\]/]*):(?P<port>[0-9]{1,5})")
_MOST_PORT: Final = 65535


class ListenerSpec(NamedTuple):
    """One listener. ``advertised``: the address for clients; None: the one where it listens."""

    name: str
    protocol: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    tls: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None


def plaintext(host: str, port: int) -> ListenerSpec:
    """What there is when no setting says otherwise."""
    return ListenerSpec("PLAINTEXT", "PLAINTEXT", host, port)


def read_listeners(config: BrokerConfig, host: str, port: int, *, has_users: bool = False) -> list[ListenerSpec]:
    """The listeners that the settings ask for: PLAINTEXT at ``host``:``port`` when they say nothing.

    ``has_users``: whether there are users for PLAIN besides those of JAAS texts. KafkaConfigurationError.
    """
    if not 0 <= port <= _MOST_PORT:
        raise KafkaConfigurationError(f"a port to listen on is a number from 0 to {_MOST_PORT}, not {port}")
    given = "listeners" in config.static
    places = _places("listeners", config.value("listeners")) if given else {"PLAINTEXT": (host, port)}
    if not places:
        raise KafkaConfigurationError("listeners: at least one is needed, such as PLAINTEXT://127.0.0.1:9092")
    protocols = _protocols(config.value("listener.security.protocol.map"))
    told = _places("advertised.listeners", config.value("advertised.listeners"))
    for name in told:
        if name not in places:
            raise KafkaConfigurationError(f"advertised.listeners: there is no listener {name} in listeners")
    _check_owners(config, places)
    specs: list[ListenerSpec] = []
    for name, place in places.items():
        if name not in protocols:
            raise KafkaConfigurationError(f"listener.security.protocol.map has no protocol for the listener {name}")
        if name in told and not told[name][0]:
            raise KafkaConfigurationError(f"advertised.listeners: {name} needs a host that clients can connect to")
        spec = ListenerSpec(name, protocols[name], *place, told.get(name))
        with_tls, with_sasl = PROTOCOLS[spec.protocol]
        if with_tls or with_sasl:
            from kafka.broker.listener_security import sasl_settings, tls_context

            tls = tls_context(config, name) if with_tls else None
            spec = spec._replace(tls=tls, sasl=sasl_settings(config, name, has_users) if with_sasl else None)
        specs.append(spec)
    return specs


def _places(setting: str, text: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for part in list_of(text):
        match = _LISTENER.fullmatch(part)
        if match is None or int(match["port"]) > _MOST_PORT:
            raise KafkaConfigurationError(
                f"{setting}: {part} is not of the form NAME://HOST:PORT with a port from 0 to {_MOST_PORT}"
            )
        name, host, port = match["name"].upper(), match["host"].strip("[]"), int(match["port"])
        if name in found:
            raise KafkaConfigurationError(f"{setting}: there are two listeners {name}")
        if port and setting == "listeners" and (host, port) in found.values():
            raise KafkaConfigurationError(f"{setting}: two listeners cannot both have {part.partition('://')[2]}")
        found[name] = (host, port)
    return found


def _protocols(text: str) -> dict[str, str]:
    found = {}
    for part in list_of(text):
        name, colon, protocol = part.rpartition(":")
        if not colon or protocol not in PROTOCOLS:
            raise KafkaConfigurationError(
                f"listener.security.protocol.map: {part} is not of the form NAME:PROTOCOL, with one of "
                f"{', '.join(PROTOCOLS)}"
            )
        found[name.upper()] = protocol
    return found


def _check_owners(config: BrokerConfig, places: Mapping[str, object]) -> None:
    """A setting for a listener that is not there would be without effect, and mostly is a slip."""
    names = {name.lower() for name in places}
    for setting in config.static:
        if setting.startswith("listener.name."):
            owner = setting.split(".")[2]
            if owner not in names:
                raise KafkaConfigurationError(
                    f"{setting}: there is no listener {owner} (in lower case) among {', '.join(sorted(names))}"
                )


_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_SPLIT: Final = re.compile(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]\s*(.*)", re.DOTALL)


class BrokerSecurity(NamedTuple):
    """A listener beside the plain one: with TLS (``SSL``), passwords (``SASL_PLAINTEXT``), or both (``SASL_SSL``).

    ``users``: name -> password, good for every mechanism. Files are PEM: ``certificate`` with the chain and, unless
    ``key`` is another file, the private key; ``ca`` signs the certificates of clients that are trusted, which
    ``client_auth`` (``none``, ``requested``, ``required``) asks for.
    """

    protocol: str = "SASL_PLAINTEXT"
    users: Mapping[str, str] = {}
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    ca: str | None = None
    client_auth: str = "none"
    mechanisms: tuple[str, ...] = MECHANISMS

    def __repr__(self) -> str:
        return f"BrokerSecurity({self.protocol!r}, {len(self.users)} users)"

    def settings(self) -> dict[str, str]:
        """All but where to listen, by Kafka's names. KafkaConfigurationError for what does not fit together."""
        if self.protocol not in PROTOCOLS or self.protocol == "PLAINTEXT":
            raise KafkaConfigurationError(f"{self.protocol} is none of SSL, SASL_PLAINTEXT, SASL_SSL")
        with_tls, with_sasl = PROTOCOLS[self.protocol]
        if with_sasl and not self.users:
            raise KafkaConfigurationError(f"{self.protocol} needs users, each with a password")
        if with_tls and self.certificate is None:
            raise KafkaConfigurationError(f"{self.protocol} needs a certificate")
        found = {"sasl.enabled.mechanisms": ",".join(self.mechanisms)} if with_sasl else {}
        return {**found, **tls_settings(self.certificate, self.key, self.key_password, self.ca, self.client_auth)}


def tls_settings(
    certificate: str | None, key: str | None, key_password: str | None, ca: str | None, client_auth: str
) -> dict[str, str]:
    """Files as Kafka's settings have them. KafkaConfigurationError."""
    found: dict[str, str] = {}
    if certificate is not None:
        found["ssl.keystore.type"] = "PEM"
        if key is None:
            found["ssl.keystore.location"] = certificate
        else:
            found["ssl.keystore.certificate.chain"] = _read(certificate, "certificate")
            found["ssl.keystore.key"] = _read(key, "key")
    if key_password is not None:
        found["ssl.key.password"] = key_password
    if ca is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if client_auth != "none":
        found["ssl.client.auth"] = client_auth
    return found


def read_properties(path: str) -> dict[str, str]:
    """The settings in a file. KafkaConfigurationError."""
    found: dict[str, str] = {}
    for line in _logical_lines(_read(path, "settings")):
        match = _SPLIT.fullmatch(line) or re.fullmatch(r"((?:[^\\=:\s]|\\.)+)()", line)
        if match is None:
            raise KafkaConfigurationError(f"{path}: a line that is not NAME=VALUE (the {len(found) + 1}th setting)")
        name, value = (_ESCAPE.sub(_unescaped, part) for part in match.groups())
        found[name] = value
    return found


def write_properties(settings: Mapping[str, str]) -> str:
    """The text of such a file."""
    return "".join(
        f"{name}=" + value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") + "\n"
        for name, value in settings.items()
    )


def read_users(path: str) -> dict[str, str]:
    """Name -> password. KafkaConfigurationError, which names no password."""
    found: dict[str, str] = {}
    for number, line in enumerate(_read(path, "users").splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, colon, password = line.partition(":")
            if not (name and colon and password):
                raise KafkaConfigurationError(f"{path}: line {number} is not NAME:PASSWORD")
            found[name] = password
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    going_on = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not going_on and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            going_on += line[:-1]
        else:
            lines.append(going_on + line)
            going_on = ""
    return [*lines, going_on] if going_on else lines


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])


def _read(path: str, what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise KafkaConfigurationError(f"the file with the {what}, {path}, cannot be read: {why}") from None
