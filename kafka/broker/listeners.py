"""Where the broker listens, and how: what Kafka's settings of listeners come to.

    listeners=NAME://HOST:PORT,...            port 0: a free one; no host: all addresses
    advertised.listeners                      what clients of each are told, when that is not where it listens
    listener.security.protocol.map            NAME -> PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    listener.name.NAME.SETTING                for one listener what SETTING is for all

All that can be wrong is found here, at the start, as one KafkaConfigurationError. What TLS and SASL need besides is in
``listener_security.py``, which a broker without either never imports; the settings' table is in ``settings.py``. A
fifth protocol would be a row in ``PROTOCOLS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka.broker.config import BrokerConfig
from kafka.broker.settings import list_of
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
    """One listener. ``advertised``: what clients are told; None: where it listens."""

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
    return [
        _listener(config, name, protocols, place, told.get(name), has_users) for name, place in places.items()
    ]


def _listener(
    config: BrokerConfig,
    name: str,
    protocols: Mapping[str, str],
    place: tuple[str, int],
    told: tuple[str, int] | None,
    has_users: bool,
) -> ListenerSpec:
    protocol = protocols.get(name)
    if protocol is None:
        raise KafkaConfigurationError(f"listener.security.protocol.map has no protocol for the listener {name}")
    if told is not None and not told[0]:
        raise KafkaConfigurationError(f"advertised.listeners: {name} needs a host that clients can connect to")
    spec = ListenerSpec(name, protocol, *place, told)
    with_tls, with_sasl = PROTOCOLS[protocol]
    if with_tls or with_sasl:
        from kafka.broker.listener_security import sasl_settings, tls_context

        tls = tls_context(config, name) if with_tls else None
        spec = spec._replace(tls=tls, sasl=sasl_settings(config, name, has_users) if with_sasl else None)
    return spec


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
