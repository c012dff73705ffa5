"""Client quotas (KIP-546), which are stored and described, but not enforced.

An entity is a user, a client id, both, or an address; a name of None is the default of its kind. Stored in the
metadata, as one small value for each entity. Rules and texts are Apache Kafka 4.3.0's, measured.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka.broker.log.metadata_store import MetadataStore
from kafka.errors import InvalidRequestError, UnsupportedVersionError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
FRACTION_SLACK: Final = 1e-6
_MAX_LONG: Final = 2**63 - 1
_META: Final = "quota/"

_OF_CLIENTS: Final[Mapping[str, bool]] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
_OF_ADDRESSES: Final[Mapping[str, bool]] = {"connection_creation_rate": True}
"""Key -> whether its value is a whole number."""

Entity = Mapping[str, "str | None"]
"""Kind -> name."""


class QuotaChange(NamedTuple):
    """One quota of an entity; ``value`` None: it goes."""

    key: str
    value: float | None


class QuotaFilterComponent(NamedTuple):
    """A part of a filter."""

    kind: str
    match: int
    name: str | None


class Quotas:
    """All quotas of a cluster."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        names: list[str] = metadata.meta("quotas", [])
        self._quotas: dict[str, dict[str, float]] = {name: metadata.meta(_META + name, {}) for name in names}

    def alter(self, entity: Entity, changes: Sequence[QuotaChange], validate_only: bool) -> None:
        """Change an entity's quotas, all or none; InvalidRequestError (42). Behind the last one,
        :meth:`write_names`."""
        check_entity(entity)
        keys = _OF_ADDRESSES if IP in entity else _OF_CLIENTS
        for change in changes:
            if change.value is not None:
                _check(change.key, change.value, keys)
        if validate_only:
            return
        name = _name(entity)
        values = dict(self._quotas.get(name, {}))
        for change in changes:
            if change.value is None:
                values.pop(change.key, None)
            else:
                values[change.key] = change.value
        if values == self._quotas.get(name, {}):
            return
        self._metadata.set_meta(_META + name, values or None)
        if values:
            self._quotas[name] = values
        else:
            del self._quotas[name]

    def write_names(self) -> None:
        """Write down which entities there are: once for all changes of a request, since they are written all."""
        if self._metadata.meta("quotas", []) != list(self._quotas):
            self._metadata.set_meta("quotas", list(self._quotas))

    def find(
        self, components: Sequence[QuotaFilterComponent], strict: bool
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """The entities that fit all components, with their quotas; ``strict``: those that have no other kinds.
        InvalidRequestError (42), UnsupportedVersionError (35: a kind that there is not)."""
        _check_filter(components)
        found = []
        for name, values in self._quotas.items():
            entity: dict[str, str | None] = dict(json.loads(name))
            if strict and set(entity) != {one.kind for one in components}:
                continue
            if all(_fits(entity, one) for one in components):
                found.append((entity, dict(values)))
        return found


def check_entity(entity: Entity) -> None:
    """Raise InvalidRequestError (42) for what has no quotas."""
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in entity and len(entity) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    address = entity.get(IP)
    if address is not None and not _is_host(address):
        raise InvalidRequestError(f"{address} is not a valid IP or resolvable host.")


def _is_host(text: str) -> bool:
    """An address, or the one name that resolves everywhere: a machine without sockets looks nothing up."""
    if text == "localhost":
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check(key: str, value: float, keys: Mapping[str, bool]) -> None:
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if value <= 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if keys[key] and not math.isnan(value):  # every comparison of Kafka's with it is false
        if math.isinf(value) or value > _MAX_LONG:
            raise InvalidRequestError(f"Proposed value for {key} is too large for a LONG.")
        if not abs(value - math.floor(value + 0.5)) <= FRACTION_SLACK:
            raise InvalidRequestError(f"{key} cannot be a fractional value.")


def _check_filter(components: Sequence[QuotaFilterComponent]) -> None:
    """Check the components of a DescribeClientQuotas filter. InvalidRequestError (42), UnsupportedVersionError (35)."""
    seen: set[str] = set()
    for kind, match, name in components:
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in seen:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        seen.add(kind)
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"Unsupported entity type {kind}")
        if match == EXACT and name is None:
            raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match == DEFAULT and name is not None:
            raise InvalidRequestError("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if match == ANY and name is not None:
            raise InvalidRequestError("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        if match not in (EXACT, DEFAULT, ANY):
            raise InvalidRequestError(f"Unknown match type {match}")
    if IP in seen and len(seen) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )


def _fits(entity: Entity, component: QuotaFilterComponent) -> bool:
    if component.kind not in entity:
        return False
    return component.match == ANY or entity[component.kind] == component.name


def _name(entity: Entity) -> str:
    return json.dumps(sorted(entity.items()), separators=(",", ":"))
