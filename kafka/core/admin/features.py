"""Dialogues about features, the levels of the cluster's own formats and protocols (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import total_ordering
from math import inf
from typing import Any, Final

from kafka.core.admin.responses import AdminApi, in_all, raise_first, request_api, requiring_release, result_of
from kafka.core.connection import ApiRanges, ByVersion
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, Controller, Target
from kafka.core.versions import ranges_of
from kafka.errors import BrokerResponseError, IllegalArgumentError, IncompatibleBrokerVersion, NoError
from kafka.protocol.api_key import ApiKey
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.quorum import UpdateFeaturesRequest
from kafka.protocol.registry import REGISTRY
from kafka.structs import EnumHelper
from kafka.validation import is_integer
from kafka.wire.message import Request

_FEATURES_SINCE: Final = 3
_VALIDATE_SINCE: Final = 1
_LEVELS: Final = 2**15
_UPDATE: Final = AdminApi("updating features", in_all("update_features"), release="2.7")
_VALIDATE: Final = _UPDATE._replace(release="3.3")


class UpdateFeatureType(EnumHelper, IntEnum):
    """How a feature's level may change: up alone, also down where nothing is lost, or down whatever is lost."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


FeatureUpdates = Mapping[str, int | tuple[UpdateFeatureType | int | str, int]]
"""``{feature: level}``, for an upgrade, or ``{feature: (UpdateFeatureType, level)}``; level 0 removes the feature."""


def describe_features(
    *, software: tuple[str, str], send_request_to_controller: bool = False, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, dict[str, Any]]]:
    """``{feature: {"supported": (least, most), "finalized": (least, most), "finalized_epoch"}}``.

    ``supported`` is what the broker that is asked could do; the last two are there for what the cluster has finalized,
    the epoch None where the broker returns none. Any broker is asked, or the controller. IncompatibleBrokerVersion
    before 2.4; the first with features is 2.7 (KIP-584).
    """
    target: Target = Controller() if send_request_to_controller else AnyNode()
    request = ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])
    answer = yield from requiring_release(
        "2.4",
        retrying(
            lambda: send(target, request, min_version=_FEATURES_SINCE),
            what="describing features",
            backoff=backoff,
            timeout_s=timeout_s,
        ),
    )
    raise_first([(answer.error_code, None, "describe_features")])
    epoch = answer.finalized_features_epoch
    found: dict[str, dict[str, Any]] = {}
    for supported in answer.supported_features:
        found.setdefault(supported.name, {})["supported"] = (supported.min_version, supported.max_version)
    for finalized in answer.finalized_features:
        entry = found.setdefault(finalized.name, {})
        entry["finalized"] = (finalized.min_version_level, finalized.max_version_level)
        entry["finalized_epoch"] = epoch if epoch >= 0 else None
    return found


def update_features(
    feature_updates: FeatureUpdates, *, validate_only: bool = False, backoff: Backoff, timeout_s: float = 60.0
) -> Dialogue[dict[str, BrokerResponseError]]:
    """Change levels: each feature's error, NoError where it went well.

    What is about the whole request is raised, and since 4.0 every error is (InvalidUpdateVersionError,
    ClusterAuthorizationFailedError): either all levels change or none. Brokers since 2.7; ``validate_only`` since 3.3.
    """
    if not isinstance(feature_updates, Mapping):
        raise IllegalArgumentError("feature_updates: {feature: level} or {feature: (upgrade type, level)}")
    updates = {}
    for name, wanted in feature_updates.items():
        kind, level = wanted if isinstance(wanted, tuple) and len(wanted) == 2 else (UpdateFeatureType.UPGRADE, wanted)
        updates[name] = (_upgrade_type(kind), _level(name, level))

    def build(version: int) -> UpdateFeaturesRequest:
        request = UpdateFeaturesRequest(timeout_ms=int(timeout_s * 1000), feature_updates=[])
        if version >= _VALIDATE_SINCE:
            request.validate_only = validate_only
        for name, (kind, level) in updates.items():
            update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level)
            if version >= _VALIDATE_SINCE:
                update.upgrade_type = kind
            else:
                update.allow_downgrade = kind is not UpdateFeatureType.UPGRADE
            request.feature_updates.append(update)
        return request

    api, least = (_VALIDATE, _VALIDATE_SINCE) if validate_only else (_UPDATE, 0)
    request = ByVersion(UpdateFeaturesRequest, build)
    answer = yield from request_api(api, request, backoff, timeout_s, min_version=least)
    told = {result.feature: result_of(result.error_code, result.error_message) for result in answer.results}
    return {name: told.get(name, NoError()) for name in updates}


def _level(name: str, given: Any) -> int:
    """Also 1.0 and "1", as kafka-python takes them."""
    try:
        level = None if isinstance(given, bool) else int(given)
    except (TypeError, ValueError, OverflowError):
        level = None
    if level is None or (isinstance(given, float) and level != given) or not -_LEVELS <= level < _LEVELS:
        raise IllegalArgumentError(f"feature_updates: {name}={given!r}: a level, or (upgrade type, level)")
    return level


def _upgrade_type(given: UpdateFeatureType | int | str) -> UpdateFeatureType:
    try:
        found = UpdateFeatureType.build_from(given)
    except ValueError:
        found = UpdateFeatureType.UNKNOWN
    if found is UpdateFeatureType.UNKNOWN:
        known = ", ".join(kind.name for kind in UpdateFeatureType if kind)
        raise IllegalArgumentError(f"upgrade type {given!r}: one of {known}")
    return found


# What a broker speaks: its release, as far as that can be told, and the versions of each API (KIP-35).


@total_ordering
class BrokerVersionData:
    """What one broker speaks. ``api_versions``: API key -> (lowest, highest version); ``broker_version``: the release
    that this looks like, as numbers, ``(4, 3)``. Ordered by release."""

    __slots__ = ("_ranges", "api_versions", "broker_version")

    def __init__(self, ranges: ApiRanges) -> None:
        self._ranges = ranges
        self.api_versions = ranges.ranges
        self.broker_version = tuple(int(part) for part in (ranges.release or "0").split("."))

    @property
    def broker_version_str(self) -> str:
        """The release as a text: "4.3"."""
        return ".".join(map(str, self.broker_version))

    def api_version(
        self,
        operation: Request[Any] | type[Request[Any]] | ApiKey | int,
        min_version: int = 0,
        max_version: float = inf,
    ) -> int:
        """The highest version of an API (its key, its request class, or a request) that the broker and this client
        speak, within these limits; IncompatibleBrokerVersion when there is none."""
        if min_version > max_version:
            raise IllegalArgumentError(f"min_version={min_version} is above max_version={max_version}")
        if is_integer(operation):
            operation = ApiKey(operation)
            if operation not in REGISTRY:
                raise IncompatibleBrokerVersion(f"this client does not have the API {operation.name}")
            operation = REGISTRY[operation].request
        kind = operation if isinstance(operation, type) else type(operation)
        if not issubclass(kind, Request):
            raise IllegalArgumentError(f"operation={operation!r}: an ApiKey, its number, a request or its class")
        return self._ranges.choose(kind, int(min_version), int(min(max_version, kind.max_version)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BrokerVersionData):
            return NotImplemented
        return self.broker_version == other.broker_version and self.api_versions == other.api_versions

    def __lt__(self, other: BrokerVersionData) -> bool:
        return self.broker_version < other.broker_version

    def __hash__(self) -> int:
        return hash(self.broker_version)

    def __repr__(self) -> str:
        return f"<BrokerVersionData {self.broker_version_str}>"


def request_api_versions(
    target: Target, *, software: tuple[str, str], backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[ApiRanges]:
    """A broker's ApiVersions response. IncompatibleBrokerVersion before 0.10, which has none."""
    request = ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])
    answer = yield from retrying(
        lambda: send(target, request), what="asking for API versions", backoff=backoff, timeout_s=timeout_s
    )
    raise_first([(answer.error_code, None, "api_versions")])
    return ranges_of(answer)
