"""Emulation of Apache Kafka's releases: the releases (table), how one of them treats requests, and its feature levels.

A request passes four points:

    decode              bytes -> request       old releases read versions that they lack as the newest that they have
    handler             is it served?          both the release and a handler must have the version
    refusal             disabled?              an API may be listed in ApiVersions and still be refused
    adapt_response      response               what differs in that release, whatever the handler returns

An unsupported request closes the connection, or gets no response (0.9), or, for ApiVersions, its error 35. Handlers do
not depend on the release, except for ApiVersions itself. Error codes of later releases are not mapped back one by one,
since no client depends on that.

Each row of the table was recorded from a real broker of the release named in ``recorded``: from 0.10 on its whole
ApiVersions response; before, its answers to each API that clients use in each version. A new release is a new row; a
test compares the rows with real brokers. Inter-broker APIs are listed where the release lists them; none is served.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.broker.registry import Handler, RequestContext
from kafka.broker.responses import PendingResponse
from kafka.errors import InvalidUpdateVersionError, KafkaConfigurationError, KafkaProtocolError
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest, decode_request
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.offsets import OffsetFetchResponse
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.broker.config import BrokerConfig
    from kafka.broker.log.metadata_store import MetadataStore

Ranges = Mapping[int, tuple[int, int]]
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_NO_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})
_NO_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})

LEADER_NOT_AVAILABLE: Final = 5
UNKNOWN_TOPIC: Final = 3
INVALID_TOPIC: Final = 17
UNKNOWN: Final = -1
UNSUPPORTED_VERSION: Final = 35


class Release(NamedTuple):
    """One release.

    ``apis``: API key -> least and most version in ApiVersions. ``served_from``: the least version that works, where
    that is not the least one listed. ``reads_as_newest``: APIs whose version number is not looked at: one above the
    newest is read, and answered, as the newest. ``closes_on_unknown``: a request of an unknown API or version ends the
    connection; else it gets no answer and the connection goes on. ``tells_own_versions``: the response to ApiVersions
    of an unknown version has the range of ApiVersions (KIP-511), not only error 35. ``refused``: APIs that are there
    and switched off -> the error code. ``has_zookeeper``: else OffsetCommit and OffsetFetch v0, which kept offsets
    there, are refused, too. ``supported``, ``finalized``, ``features_epoch``: the features in ApiVersions (KIP-584).

    Of Metadata: ``created_code`` is what a topic has in the answer that makes it, ``invalid_topic_code`` an impossible
    name, and with ``brokers_of_topics`` only those brokers are named that have partitions of the topics in the answer.
    """

    name: str
    recorded: str
    apis: Ranges
    served_from: Mapping[int, int] = _NOTHING
    reads_as_newest: frozenset[int] = frozenset()
    closes_on_unknown: bool = True
    tells_own_versions: bool = False
    refused: Mapping[int, int] = _NOTHING
    supported: Mapping[str, tuple[int, int]] = _NO_FEATURES
    finalized: Mapping[str, int] = _NO_LEVELS
    features_epoch: int = -1
    has_zookeeper: bool = True
    created_code: int = LEADER_NOT_AVAILABLE
    invalid_topic_code: int = INVALID_TOPIC
    brokers_of_topics: bool = False


_OLDEST: Final[Ranges] = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)}

_0_10: Final[Ranges] = {
    0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (0, 2), 4: (0, 0), 5: (0, 0), 6: (0, 3), 7: (1, 1), 8: (0, 2), 9: (0, 2),
    10: (0, 0), 11: (0, 1), 12: (0, 0), 13: (0, 0), 14: (0, 0), 15: (0, 0), 16: (0, 0), 17: (0, 0), 18: (0, 0),
    19: (0, 1), 20: (0, 0),
}  # fmt: skip
_0_11: Final[Ranges] = {
    0: (0, 3), 1: (0, 5), 2: (0, 2), 3: (0, 4), 4: (0, 0), 5: (0, 0), 6: (0, 3), 7: (1, 1), 8: (0, 3), 9: (0, 3),
    10: (0, 1), 11: (0, 2), 12: (0, 1), 13: (0, 1), 14: (0, 1), 15: (0, 1), 16: (0, 1), 17: (0, 0), 18: (0, 1),
    19: (0, 2), 20: (0, 1), 21: (0, 0), 22: (0, 0), 23: (0, 0), 24: (0, 0), 25: (0, 0), 26: (0, 0), 27: (0, 0),
    28: (0, 0), 29: (0, 0), 30: (0, 0), 31: (0, 0), 32: (0, 0), 33: (0, 0),
}  # fmt: skip
_1_1: Final[Ranges] = {
    **_0_11,
    0: (0, 5), 1: (0, 7), 3: (0, 5), 4: (0, 1), 6: (0, 4), 7: (0, 1), 17: (0, 1), 32: (0, 1), 34: (0, 0),
    35: (0, 0), 36: (0, 0), 37: (0, 0), 38: (0, 0), 39: (0, 0), 40: (0, 0), 41: (0, 0), 42: (0, 0),
}  # fmt: skip
_2_8: Final[Ranges] = {
    0: (0, 9), 1: (0, 12), 2: (0, 6), 3: (0, 11), 4: (0, 5), 5: (0, 3), 6: (0, 7), 7: (0, 3), 8: (0, 8),
    9: (0, 7), 10: (0, 3), 11: (0, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5), 15: (0, 5), 16: (0, 4), 17: (0, 1),
    18: (0, 3), 19: (0, 7), 20: (0, 6), 21: (0, 2), 22: (0, 4), 23: (0, 4), 24: (0, 3), 25: (0, 3), 26: (0, 3),
    27: (0, 1), 28: (0, 3), 29: (0, 2), 30: (0, 2), 31: (0, 2), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 2),
    36: (0, 2), 37: (0, 3), 38: (0, 2), 39: (0, 2), 40: (0, 2), 41: (0, 2), 42: (0, 2), 43: (0, 2), 44: (0, 1),
    45: (0, 0), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 56: (0, 0), 57: (0, 0),
    60: (0, 0), 61: (0, 0),
}  # fmt: skip
_3_9: Final[Ranges] = {
    0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (0, 7), 20: (0, 6), 21: (0, 2),
    22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 4), 27: (0, 1), 28: (0, 4), 29: (0, 3), 30: (0, 3),
    31: (0, 3), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 4), 36: (0, 2), 37: (0, 3), 38: (0, 3), 39: (0, 2),
    40: (0, 2), 41: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 0), 46: (0, 0), 47: (0, 0), 48: (0, 1),
    49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 1), 60: (0, 1), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 1), 68: (0, 0), 69: (0, 0), 74: (0, 0), 75: (0, 0), 80: (0, 0), 81: (0, 0),
}  # fmt: skip
_4_1: Final[Ranges] = {
    0: (0, 13), 1: (4, 18), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 1), 28: (0, 5), 29: (1, 3), 30: (1, 3),
    31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 4), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2),
    40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1),
    49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 2), 68: (0, 1), 69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 1), 79: (1, 1),
    80: (0, 0), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 0), 86: (0, 0), 87: (0, 0), 90: (0, 0), 91: (0, 0),
    92: (0, 0),
}  # fmt: skip
_4_3: Final[Ranges] = {
    **_4_1,
    2: (1, 11), 8: (2, 10), 9: (1, 10), 27: (1, 2), 35: (1, 5), 78: (1, 2), 79: (1, 2), 80: (0, 1), 85: (0, 1),
    87: (0, 1), 88: (0, 0), 89: (0, 0), 90: (0, 1),
}  # fmt: skip

_SHARE_APIS_OF_4_1: Final = (76, 77, 78, 79, 90, 91, 92)

_ROWS: Final = (
    Release(
        "0.8.0", "0.8.0", _OLDEST, reads_as_newest=frozenset({0, 1, 2, 3}),
        invalid_topic_code=UNKNOWN, brokers_of_topics=True,
    ),
    Release(
        "0.8.1", "0.8.1.1", {**_OLDEST, 8: (0, 0), 9: (0, 0)}, reads_as_newest=frozenset({0, 1, 2, 3, 8, 9}),
        invalid_topic_code=UNKNOWN, brokers_of_topics=True,
    ),
    Release(
        "0.8.2", "0.8.2.2", {**_OLDEST, 8: (0, 1), 9: (0, 1), 10: (0, 0), 12: (0, 0)},
        reads_as_newest=frozenset({0, 1, 2, 3, 9, 10, 12}),
        refused={12: UNKNOWN},  # Heartbeat was known and not made yet
    ),
    Release(
        "0.9", "0.9.0.1",
        {
            0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0), 8: (0, 2), 9: (0, 1), 10: (0, 0),
            11: (0, 0), 12: (0, 0), 13: (0, 0), 14: (0, 0), 15: (0, 0), 16: (0, 0),
        },
        reads_as_newest=frozenset({0, 1, 2, 3, 9}), closes_on_unknown=False,
    ),
    Release("0.10", "0.10.2.2", _0_10),
    Release("0.11", "0.11.0.3", _0_11),
    Release("1.1", "1.1.1", _1_1),
    Release("2.8", "2.8.2", _2_8, tells_own_versions=True, features_epoch=0),
    Release(
        "3.9", "3.9.1", _3_9, tells_own_versions=True, features_epoch=1,
        refused={68: UNSUPPORTED_VERSION, 69: UNSUPPORTED_VERSION},  # KIP-848 is there and off by default
        supported={"kraft.version": (0, 1), "metadata.version": (1, 21)},
        finalized={"metadata.version": 21},
        has_zookeeper=False, created_code=UNKNOWN_TOPIC,
    ),
    Release(
        "4.1", "4.1.1", _4_1, served_from={0: 3}, tells_own_versions=True, features_epoch=1,
        refused=dict.fromkeys(_SHARE_APIS_OF_4_1, UNSUPPORTED_VERSION),  # share.version is 0
        supported={
            "group.version": (0, 1), "kraft.version": (0, 1), "metadata.version": (7, 27), "share.version": (0, 1),
            "transaction.version": (0, 2), "eligible.leader.replicas.version": (0, 1),
        },
        finalized={
            "group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1, "metadata.version": 27,
        },
        has_zookeeper=False, created_code=UNKNOWN_TOPIC,
    ),
    Release(
        "4.3", "4.3.0", _4_3, served_from={0: 3}, tells_own_versions=True, features_epoch=1,
        supported={
            "group.version": (0, 1), "kraft.version": (0, 1), "metadata.version": (7, 30), "share.version": (0, 1),
            "streams.version": (0, 1), "transaction.version": (0, 2), "eligible.leader.replicas.version": (0, 1),
        },
        finalized={
            "group.version": 1, "streams.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1,
            "share.version": 1, "metadata.version": 30,
        },
        has_zookeeper=False, created_code=UNKNOWN_TOPIC,
    ),
)  # fmt: skip

RELEASES: Final[Mapping[str, Release]] = {row.name: row for row in _ROWS}
"""Name -> release, oldest first."""

LATEST: Final = "4.3"
"""What the broker emulates by default."""


def find_release(text: str) -> Release:
    """The release of this name, or of this patch of it: ``0.8.1.1`` is ``0.8.1``. ValueError, which lists them all."""
    parts = text.strip().split(".")
    for release in _ROWS:
        name = release.name.split(".")
        if parts[: len(name)] == name and all(part.isdigit() for part in parts):
            return release
    raise ValueError(f"there is no release {text!r} to emulate; there are {', '.join(RELEASES)}")


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
"""APIs that some releases list and that no client calls."""

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


class EmulatedRelease:
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
        self._apis: list[ApiRange] = []
        for key, (least, most) in sorted(release.apis.items()):
            row = handlers.get(key)
            if row is None:
                continue
            most = min(most, row.max_version)
            first = max(least, row.min_version, release.served_from.get(key, 0))
            if first > most:
                continue
            self._served[key] = (first, most)
            self._apis.append(ApiRange(key, least if key in release.served_from else first, most))

    def __repr__(self) -> str:
        return f"<EmulatedRelease {self.facts.name}>"

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

    def unknown(self, api_key: int) -> PendingResponse:
        """What becomes of a request that is not served."""
        facts = self.facts
        if api_key == API_VERSIONS_KEY and API_VERSIONS_KEY in facts.apis:
            own = [
                ApiVersionsResponse.ApiVersion(api_key=row.key, min_version=row.least, max_version=row.most)
                for row in self._apis
                if row.key == API_VERSIONS_KEY and facts.tells_own_versions
            ]
            return PendingResponse.of(ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=own), version=0)
        return PendingResponse.hanging_up() if facts.closes_on_unknown else PendingResponse.of(None)

    def refusal(self, call: RequestContext[Any]) -> Response | None:
        """The answer to a request of an API that is switched off, or None."""
        request = call.request
        if self.share_groups_disabled and isinstance(request, FindCoordinatorRequest):
            return _no_share_coordinator(request) if request.key_type == _SHARE_COORDINATOR else None
        code = self.facts.refused.get(request.api_key)
        if code is None and call.version == 0 and not self.facts.has_zookeeper and request.api_key in _OF_ZOOKEEPER:
            code = UNSUPPORTED_VERSION
        if code is None:
            return None
        from kafka.broker.error_places import ErrorResponse  # not needed at the start

        return ErrorResponse(request, call.version, code).response()

    @property
    def share_groups_disabled(self) -> bool:
        """Whether share groups are there and switched off."""
        return _SHARE_GROUP_HEARTBEAT in self.facts.refused

    # -- answers -----------------------------------------------------------------------------------------------------

    def apis(self) -> list[ApiRange]:
        """The versions in ApiVersions."""
        return self._apis

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

    def adapt_response(self, metadata: MetadataStore, call: RequestContext[Any], outcome: object) -> None:
        """Change a response to what this release would send."""
        if isinstance(outcome, MetadataResponse):
            self._adapt_metadata(metadata, outcome)
        elif isinstance(outcome, OffsetFetchResponse) and call.version == 0:
            _adapt_offsets(outcome)

    def _adapt_metadata(self, metadata: MetadataStore, response: MetadataResponse) -> None:
        facts = self.facts
        for topic in response.topics:
            if topic.error_code == UNKNOWN_TOPIC and topic.name and metadata.topic(topic.name) is not None:
                topic.error_code = facts.created_code  # it was created by this request
            elif topic.error_code == INVALID_TOPIC:
                topic.error_code = facts.invalid_topic_code
        if facts.brokers_of_topics and not any(topic.partitions for topic in response.topics):
            response.brokers = []


def _adapt_offsets(response: OffsetFetchResponse) -> None:
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


# -- feature levels ----------------------------------------------------------------------------------------------------
#
# Finalized feature levels (KIP-584): those of the release, and the changes by UpdateFeatures, which are stored in the
# metadata as one small value. A level of 0 is left out of ApiVersions, and disables APIs: without ``share.version``
# those of share groups, without ``group.version`` those of consumer groups. Clients decide themselves what they do by
# ``transaction.version``. Rules and texts are Apache Kafka 4.3.0's, measured.


UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
MIN_ISR: Final = "min.insync.replicas"

SWITCHED_OFF: Final[Mapping[str, frozenset[int]]] = {
    "share.version": frozenset({76, 77, 78, 79, 90, 91, 92}),
    "group.version": frozenset({68, 69}),
}
"""Feature -> the APIs that its level 0 refuses."""

_META: Final = "features"


class FeatureUpdate(NamedTuple):
    """One feature's new level, and how it may get there."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """The features of one broker."""

    def __init__(
        self,
        release: EmulatedRelease,
        metadata: MetadataStore,
        config: BrokerConfig,
        flush_metadata: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._flush_metadata = flush_metadata
        self._release_epoch = release.facts.features_epoch
        self._release = dict(release.finalized_features())
        self._supported = {name: (least, most) for name, least, most in release.supported_features()}
        self._changes: dict[str, int] = dict(metadata.meta(_META, {}))
        self._off = self._refusals()

    def finalized(self) -> dict[str, int]:
        """Name and level of each finalized feature."""
        levels = {**self._release, **{name: to for name, to in self._changes.items() if name in self._supported}}
        return {name: level for name, level in levels.items() if level}

    @property
    def epoch(self) -> int:
        """The finalized features' epoch, which rises with each change."""
        if self._release_epoch < 0:
            return self._release_epoch
        return self._release_epoch + int(self._metadata.meta("features_epoch", 0))

    def keep_min_isr(self) -> None:
        """While there are eligible leader replicas (KIP-966), ``min.insync.replicas`` is always set for all brokers."""
        own = self._metadata.config("broker", "")
        if ELIGIBLE_LEADERS in self.finalized() and MIN_ISR not in own:
            own[MIN_ISR] = self._config.value(MIN_ISR)
            self._metadata.set_config("broker", "", own)
            self._config.set_dynamic("", own)

    def refusal(self, call: RequestContext[Any]) -> Response | None:
        """The error response to a request of an API whose feature is off, or None."""
        if call.request.api_key not in self._off:
            return None
        from kafka.broker.error_places import ErrorResponse  # not needed at the start

        return ErrorResponse(call.request, call.version, UNSUPPORTED_VERSION).response()

    def update(self, updates: Sequence[FeatureUpdate], validate_only: bool) -> None:
        """Change levels, all or none. InvalidUpdateVersionError (95) for the first that cannot be."""
        levels = self.finalized()
        for update in updates:
            self._check(update, levels.get(update.name, 0))
        if updates and not validate_only:
            metadata = self._metadata
            self._changes.update({update.name: update.level for update in updates})
            metadata.set_meta(_META, self._changes)
            metadata.set_meta("features_epoch", int(metadata.meta("features_epoch", 0)) + 1)
            self._flush_metadata()
            self._off = self._refusals()

    def _check(self, update: FeatureUpdate, now: int) -> None:
        """Check one update, in Apache Kafka's order and words. InvalidUpdateVersionError (95)."""
        name, level, kind = update
        wrong = f"Invalid update version {level} for feature {name}. "
        controller = f"Local controller {self._config.node_id}"
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            self._refuse(wrong + "The controller does not support the given upgrade type.")
        if level < 0:
            self._refuse(wrong + "A feature version cannot be less than 0.")
        if name not in self._supported:
            self._refuse(wrong + f"{controller} does not support this feature.")
        least, most = self._supported[name]
        if not least <= level <= most:
            self._refuse(wrong + f"{controller} only supports versions {least}-{most}")
        if level < now and kind == UPGRADE:
            self._refuse(
                wrong + "Can't downgrade the version of this feature without setting the upgrade type to either "
                "safe or unsafe downgrade."
            )
        if level > now and kind != UPGRADE:
            self._refuse(wrong + "Can't downgrade to a newer version.")
        if level < now and name == METADATA_VERSION:
            self._refuse(
                f"Unsupported metadata.version downgrade from {now} to {level}. "
                + (
                    "Refusing to perform the requested downgrade because it might delete metadata information."
                    if kind == SAFE_DOWNGRADE
                    else "Unsafe metadata downgrade is not supported in this version."
                )
            )

    def _refuse(self, why: str) -> None:
        raise InvalidUpdateVersionError(
            f"The update failed for all features since the following feature had an error: {why}"
        )

    def _refusals(self) -> frozenset[int]:
        levels = self.finalized()
        return frozenset().union(
            *(keys for name, keys in SWITCHED_OFF.items() if name in self._changes and name not in levels)
        )
