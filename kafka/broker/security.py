"""Settings of listeners the short way: what most people want of TLS and passwords, put into Kafka's own settings.

For tests (``EmbeddedBroker(security=...)``) and the options of ``python -m kafka broker``; and the two files that keep
secrets out of a command line, where everybody on the machine can read them:

    --settings FILE     NAME=VALUE lines as in Kafka's server.properties: #, !, a backslash at the end goes on below
    --users FILE        NAME:PASSWORD lines; # begins a comment
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka.broker.listeners import MECHANISMS, PROTOCOLS
from kafka.errors import KafkaConfigurationError

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
    if certificate is not None and key is None:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    elif certificate is not None and key is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(certificate, "certificate"),
            "ssl.keystore.key": _read(key, "key"),
        }
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
