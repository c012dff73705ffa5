"""The release that a broker plays: which requests it takes, and what it does about all others.

:mod:`kafka.broker.releases` has the facts; here is what they mean for one broker. A request passes four points:

    decode    bytes -> request       old releases read versions that they lack as the newest that they have
    handler   is it served?          both the release and a handler must have the version
    refusal   switched off?          an API may be listed and still be refused
    dress     response               what looks different in that release, whatever the handler thinks

What is unknown ends the connection, or gets silence (0.9), or, as ApiVersions, its error 35. Handlers know nothing of
all this, but for the one that tells the table (``handlers/api_versions.py``).

Left out, since no client depends on it: error codes of later releases are not taken back one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.broker.registry import Call, Handler
from kafka.broker.releases import INVALID_TOPIC, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, Release
from kafka.broker.reply import Reply
from kafka.errors import KafkaConfigurationError, KafkaProtocolError
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest, decode_request
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.offsets import OffsetFetchResponse
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_KEY_AND_VERSION: Final = struct.Struct(">hh")
_VERSION: Final = struct.Struct(">h")
_OF_ZOOKEEPER: Final = frozenset({8, 9})
"""OffsetCommit and OffsetFetch, whose version 0 keeps offsets there."""
_SHARE_COORDINATOR: Final = 2
_SHARE_GROUP_HEARTBEAT: Final = 76
_COORDINATOR_NOT_AVAILABLE: Final = 15

CLIENT_METRICS_KEY: Final = 74
"""ListClientMetricsResources, now ListConfigResources: there since telemetry is."""
TELEMETRY_APIS: Final = {71: (0, 0), 72: (0, 0)}
"""Told and served where something takes what clients push."""

BETWEEN_BROKERS: Final = frozenset({4, 5, 6, 7, 27, 56, 80, 81, 83, 84, 85, 86, 87})
"""APIs that some releases tell and that no client calls."""

FEATURE_NEEDS: Final[Mapping[str, int]] = {
    "group.version": 68,
    "share.version": 76,
    "streams.version": 88,
    "transaction.version": 26,
}
"""Feature -> the API without which it is not told."""


class ApiRange(NamedTuple):
    """A line of the ApiVersions answer."""

    key: int
    least: int
    most: int


class PlayedRelease:
    """One release on one broker. ``handlers``: what can be served at all. ``telemetry``: with the APIs that only a
    plug-in brings (KIP-714); KafkaConfigurationError for a release that knows none of it."""

    def __init__(self, release: Release, handlers: Mapping[int, Handler], *, telemetry: bool = False) -> None:
        if telemetry:
            if CLIENT_METRICS_KEY not in release.apis:
                raise KafkaConfigurationError(f"telemetry: Apache Kafka {release.name} has none; 3.7 and later do")
            release = release._replace(apis={**release.apis, **TELEMETRY_APIS})
        self.facts = release
        self._handlers = handlers
        self._served: dict[int, tuple[int, int]] = {}
        self._told: list[ApiRange] = []
        for key, (least, most) in sorted(release.apis.items()):
            row = handlers.get(key)
            if row is None:
                continue
            most = min(most, row.max_version)
            first = max(least, row.min_version, release.served_from.get(key, 0))
            if first > most:
                continue
            self._served[key] = (first, most)
            self._told.append(ApiRange(key, least if key in release.served_from else first, most))

    def __repr__(self) -> str:
        return f"<PlayedRelease {self.facts.name}>"

    # -- requests ----------------------------------------------------------------------------------------------------

    def decode(self, frame: bytes) -> ReceivedRequest | UnknownRequest:
        """The request in a frame, as this release reads it. KafkaProtocolError for what makes it hang up."""
        facts = self.facts
        key, version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= _KEY_AND_VERSION.size else (-1, 0)
        if key in facts.reads_as_newest and version > facts.apis[key][1]:
            frame = b"".join((frame[:2], _VERSION.pack(facts.apis[key][1]), frame[4:]))
        try:
            return decode_request(frame)
        except KafkaProtocolError:
            if facts.closes_on_unknown:
                raise
            return UnknownRequest(key, version, 0, None)

    def handler(self, key: int, version: int) -> Handler | None:
        """Who answers this version of an API; None when this release does not."""
        least, most = self._served.get(key, (0, -1))
        return self._handlers[key] if least <= version <= most else None

    def unknown(self, api_key: int) -> Reply:
        """What becomes of a request that is not served."""
        facts = self.facts
        if api_key == API_VERSIONS_KEY and API_VERSIONS_KEY in facts.apis:
            own = [
                ApiVersionsResponse.ApiVersion(api_key=row.key, min_version=row.least, max_version=row.most)
                for row in self._told
                if row.key == API_VERSIONS_KEY and facts.tells_own_versions
            ]
            return Reply.of(ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=own), version=0)
        return Reply.hanging_up() if facts.closes_on_unknown else Reply.of(None)

    def refusal(self, call: Call[Any]) -> Response | None:
        """The answer to a request of an API that is switched off, or None."""
        request = call.request
        if self.shares_are_off and isinstance(request, FindCoordinatorRequest):
            return _no_share_coordinator(request) if request.key_type == _SHARE_COORDINATOR else None
        code = self.facts.refused.get(request.api_key)
        if code is None and call.version == 0 and not self.facts.has_zookeeper and request.api_key in _OF_ZOOKEEPER:
            code = UNSUPPORTED_VERSION
        if code is None:
            return None
        from kafka.broker.refusals import refused  # most brokers refuse nothing

        return refused(request, code)

    @property
    def shares_are_off(self) -> bool:
        """Whether share groups are there and switched off."""
        return _SHARE_GROUP_HEARTBEAT in self.facts.refused

    # -- answers -----------------------------------------------------------------------------------------------------

    def apis(self) -> list[ApiRange]:
        """What ApiVersions tells."""
        return self._told

    def supported_features(self) -> Iterator[tuple[str, int, int]]:
        """Name, least and most level."""
        for name, (least, most) in self.facts.supported.items():
            if self._has(name):
                yield name, least, most

    def finalized_features(self) -> Iterator[tuple[str, int]]:
        """Name and level."""
        for name, level in self.facts.finalized.items():
            if self._has(name):
                yield name, level

    def _has(self, feature: str) -> bool:
        needs = FEATURE_NEEDS.get(feature)
        return needs is None or needs in self._served

    def dress(self, broker: Broker, call: Call[Any], outcome: object) -> None:
        """Make an answer look as in this release."""
        if isinstance(outcome, MetadataResponse):
            self._dress_metadata(broker, outcome)
        elif isinstance(outcome, OffsetFetchResponse) and call.version == 0:
            _dress_offsets(outcome)

    def _dress_metadata(self, broker: Broker, response: MetadataResponse) -> None:
        facts = self.facts
        for topic in response.topics:
            if topic.error_code == UNKNOWN_TOPIC and topic.name and broker.metadata.topic(topic.name) is not None:
                topic.error_code = facts.created_code  # it was made for this request
            elif topic.error_code == INVALID_TOPIC:
                topic.error_code = facts.invalid_topic_code
        if facts.brokers_of_topics and not any(topic.partitions for topic in response.topics):
            response.brokers = []


def _dress_offsets(response: OffsetFetchResponse) -> None:
    """Version 0 read from ZooKeeper, where a missing offset was an unknown partition, and metadata was not kept."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.metadata = ""
            if partition.committed_offset < 0 and not partition.error_code:
                partition.error_code = UNKNOWN_TOPIC


def _no_share_coordinator(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=_COORDINATOR_NOT_AVAILABLE, error_message=""
            )
            for key in request.coordinator_keys
        ]
    )
