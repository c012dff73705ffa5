"""A broker's API versions: finding them out, and which release they belong to.

Two dialogues find out the :class:`~kafka.core.connection.ApiRanges` of a broker on a fresh connection; they yield
:class:`Probe` steps and are sent one :data:`Outcome` for each request. ``client/handshake.py`` runs them.

    discover_versions()    for an unknown cluster: ApiVersions and Metadata v0 together, below 0.10 a probe for each
                           release
    negotiate_versions()   for a cluster that is 0.10 or later: ApiVersions alone

What brokers do with a request that they do not know (seen on the real ones): 0.8.x closes the connection; 0.9 stays
open, says nothing and answers the next request; 0.10 and later answer an ApiVersions version that they lack with error
35, in version 0, with an empty list or with their own range. So each probe is followed at once by a Metadata v0
request, which all of them answer: the answer to that alone means "does not know the first".

From 0.10.0 on a broker has ApiVersions, and the release is inferred from them: :data:`RELEASES` has, newest
first, a fact for each release that no earlier one has. Before, :data:`OLD_RANGES` has what a client needs. A new
release is a line on top of :data:`RELEASES`; best a fact that every broker shows, whatever its role.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from kafka.core.connection import ApiRanges
from kafka.errors import (
    KafkaConnectionError,
    KafkaProtocolError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.wire.message import Request, Response

API_VERSIONS_KEY: Final = 18
_GARBLED: Final = "answers something that is no Kafka message: probably not a Kafka broker"


def ranges_of(response: ApiVersionsResponse) -> ApiRanges:
    """The ranges of a response to ApiVersions."""
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    features = {
        feature.name: (feature.min_version_level, feature.max_version_level) for feature in response.finalized_features
    }
    supported = {entry.name: (entry.min_version, entry.max_version) for entry in response.supported_features}
    return ApiRanges(ranges, features, infer_release(ranges, supported))


# -- probing ----------------------------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """Requests with their versions, to be sent at once on one connection (a new one when the last was closed)."""

    requests: tuple[tuple[Request[Any], int], ...]


class NoAnswer(Enum):
    """The outcomes of a request in a probe, other than a response."""

    SILENT = "no answer"
    CLOSED = "the connection was closed"
    GARBLED = "an answer that is none"


Outcome = Response | NoAnswer
"""The outcome of one request of a probe."""


class NegotiatedVersions(NamedTuple):
    """The result of a dialogue: the ranges, and the brokers and topics when Metadata was asked along with it."""

    ranges: ApiRanges
    metadata: MetadataResponse | None = None

    @property
    def release(self) -> str:
        """The release that the ranges look like."""
        return self.ranges.release or ""


VersionsDialogue = Generator[Probe, tuple[Outcome, ...], NegotiatedVersions]


def discover_versions(software: tuple[str, str], *, strict: bool = True) -> VersionsDialogue:
    """Find out the API versions of a broker of any release, 0.8.0 to the newest.

    ``software``: our name and version (KIP-511). With ``strict`` an answer that is no Kafka message is an error at
    once; without, it counts as one more way of not knowing the request.

    Errors: KafkaConnectionError when the peer answers nothing at all, UnrecognizedBrokerVersion when what it does fits
    no release, UnsupportedVersionError when no version of ApiVersions is common.
    """
    newest = _api_versions(software), ApiVersionsRequest.max_version
    is_garbled = False
    for _ in range(2):
        answer, metadata = yield Probe((newest, _METADATA))
        _check_garbled(strict, answer, metadata)
        if isinstance(answer, ApiVersionsResponse):
            return (yield from _from_api_versions(software, answer, _as_metadata(metadata)))
        is_garbled = is_garbled or NoAnswer.GARBLED in (answer, metadata)
        if answer is NoAnswer.SILENT and not isinstance(metadata, MetadataResponse):
            if is_garbled:
                raise UnrecognizedBrokerVersion(_GARBLED)
            raise KafkaConnectionError("accepts connections but answers nothing: probably not a Kafka broker")
        for older, (request, version) in _OLD_PROBES.items():
            old_answer, old_metadata = yield Probe(((request, version), _METADATA))
            _check_garbled(strict, old_answer, old_metadata)
            _check_answers(old_answer, old_metadata)
            if isinstance(old_answer, Response):
                release = older
                break
            if older == "0.9" and answer is NoAnswer.CLOSED:
                # Two connections were lost. That is 0.8, or a bad network to a newer broker, which would be taken for
                # an old one for as long as this client lives: so the first probe is made once more.
                again, metadata = yield Probe((newest, _METADATA))
                _check_garbled(strict, again, metadata)
                _check_answers(again, metadata)
                if isinstance(again, ApiVersionsResponse):
                    return (yield from _from_api_versions(software, again, _as_metadata(metadata)))
        else:
            release = "0.8.0"
            (old_metadata,) = yield Probe((_METADATA,))
            _check_garbled(strict, old_metadata)
            if not isinstance(old_metadata, MetadataResponse):
                if is_garbled:
                    raise UnrecognizedBrokerVersion(_GARBLED)
                raise UnrecognizedBrokerVersion(
                    "closes the connection on every request: not a Kafka broker, or one that expects TLS"
                )
        # A 0.9 broker does not close the connection on ApiVersions. One that did, and still knows ListGroups, closed it
        # for another reason (it was starting, or had too many connections): the first probe is made once more.
        if release != "0.9" or answer is not NoAnswer.CLOSED:
            return NegotiatedVersions(ApiRanges(OLD_RANGES[release], release=release), _as_metadata(old_metadata))
    raise KafkaConnectionError("the connection was lost on ApiVersions, twice; ListGroups was answered")


def negotiate_versions(software: tuple[str, str], version: int = ApiVersionsRequest.max_version) -> VersionsDialogue:
    """Ask a broker of a cluster that is known to be 0.10 or later, with the ``version`` that the last one took."""
    (answer,) = yield Probe(((_api_versions(software), version),))
    if not isinstance(answer, ApiVersionsResponse):
        assert isinstance(answer, NoAnswer)
        raise KafkaConnectionError(f"ApiVersions v{version}: {answer.value}")
    return (yield from _from_api_versions(software, answer, None))


def _from_api_versions(
    software: tuple[str, str], answer: ApiVersionsResponse, metadata: MetadataResponse | None
) -> VersionsDialogue:
    if answer.error_code == UnsupportedVersionError.errno:
        offered = [entry.max_version for entry in answer.api_keys if entry.api_key == API_VERSIONS_KEY]
        version = min(offered[0], ApiVersionsRequest.max_version - 1) if offered else 0
        (second,) = yield Probe(((_api_versions(software), version),))
        if not isinstance(second, ApiVersionsResponse):
            assert isinstance(second, NoAnswer)
            raise KafkaConnectionError(f"ApiVersions v{version}: {second.value}")
        answer = second
    if answer.error_code:
        raise for_code(answer.error_code)("ApiVersions")
    return NegotiatedVersions(ranges_of(answer), metadata)


def _api_versions(software: tuple[str, str]) -> ApiVersionsRequest:
    name, version = software
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


_METADATA: Final[tuple[Request[Any], int]] = (MetadataRequest(topics=[]), 0)
_OLD_PROBES: Final[dict[str, tuple[Request[Any], int]]] = {
    "0.9": (ListGroupsRequest(), 0),
    "0.8.2": (FindCoordinatorRequest(key="kafka-taskloop-version-probe"), 0),  # makes the offsets topic
    "0.8.1": (OffsetFetchRequest(group_id="kafka-taskloop-version-probe", topics=[]), 0),
}
"""Release -> a request that it was the first to know; newest first."""


def _as_metadata(outcome: Outcome) -> MetadataResponse | None:
    return outcome if isinstance(outcome, MetadataResponse) else None


def _check_answers(answer: Outcome, metadata: Outcome) -> None:
    """Old brokers close the connection on what they do not know, or answer what comes behind it. One that does neither
    stands still, and is of any release: what it is can be found out when it goes on."""
    if answer is NoAnswer.SILENT and metadata is NoAnswer.SILENT:
        raise KafkaConnectionError("does not answer any more: the broker or the network hangs")


def _check_garbled(strict: bool, *outcomes: Outcome) -> None:
    if strict and NoAnswer.GARBLED in outcomes:
        raise KafkaProtocolError(_GARBLED)


# -- releases
# -----------------------------------------------------------------------------------------------------------

RELEASES: Final[tuple[tuple[str, int | str, int], ...]] = (
    ("4.3", 35, 5),  # DescribeLogDirs
    ("4.2", 78, 2),  # ShareFetch
    ("4.2", 9, 10),  # OffsetFetch
    ("4.1", 1, 18),  # Fetch
    ("4.1", 0, 13),  # Produce
    ("4.0", 0, 12),  # Produce
    ("3.9", 1, 17),  # Fetch
    ("3.8", 0, 11),  # Produce
    ("3.7", 1, 16),  # Fetch
    ("3.6", 24, 4),  # AddPartitionsToTxn
    ("3.5", 1, 15),  # Fetch
    ("3.4", 4, 7),  # LeaderAndIsr, which only brokers with ZooKeeper list; the others raised no API at all:
    ("3.4", "metadata.version", 8),
    ("3.3", 35, 4),  # DescribeLogDirs
    ("3.2", 11, 9),  # JoinGroup
    ("3.1", 1, 13),  # Fetch
    ("3.0", 2, 7),  # ListOffsets
    ("2.8", 0, 9),  # Produce
    ("2.7", 1, 12),  # Fetch
    ("2.6", 48, 0),  # DescribeClientQuotas
    ("2.5", 11, 7),  # JoinGroup
    ("2.4", 0, 8),  # Produce
    ("2.3", 1, 11),  # Fetch
    ("2.2", 43, 0),  # ElectLeaders
    ("2.1", 1, 10),  # Fetch
    ("2.0", 1, 8),  # Fetch
    ("1.1", 1, 7),  # Fetch
    ("1.0", 1, 6),  # Fetch
    ("0.11", 1, 5),  # Fetch
    ("0.10.2", 19, 1),  # CreateTopics
    ("0.10.1", 19, 0),  # CreateTopics
)
"""(release, API key or feature, version): the release raised that to that version, or brought it.

From the schemas in the ``kafka-clients`` jars of 2.2 to 4.3, the ``ApiKeys`` classes of earlier ones, and real brokers.
"""

OLD_RANGES: Final[Mapping[str, Mapping[int, tuple[int, int]]]] = {
    "0.8.0": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)},
    "0.8.1": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 0), 9: (0, 0)},
    "0.8.2": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)},
    "0.9": {
        0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0), 8: (0, 2), 9: (0, 1), 10: (0, 0),
        11: (0, 0), 12: (0, 0), 13: (0, 0), 14: (0, 0), 15: (0, 0), 16: (0, 0),
    },
}  # fmt: skip
"""What brokers before ApiVersions (KIP-35) speak, of what clients use."""


def infer_release(ranges: Mapping[int, tuple[int, int]], features: Mapping[str, tuple[int, int]] | None = None) -> str:
    """The newest release with a fact that ``ranges`` or the supported ``features`` have; "0.10.0" when none has."""
    for release, what, version in RELEASES:
        found = ranges.get(what) if isinstance(what, int) else (features or {}).get(what)
        if found is not None and found[1] >= version:
            return release
    return "0.10.0"


def ranges_before_api_versions(release: tuple[int, ...]) -> tuple[str, Mapping[int, tuple[int, int]]] | None:
    """For a release given by the user, such as (0, 8, 2): its name and ranges when it is older than 0.10, else None."""
    if release >= (0, 10):
        return None
    names = sorted(OLD_RANGES, key=_release_parts, reverse=True)
    name = next((name for name in names if _release_parts(name) <= release), names[-1])
    return name, OLD_RANGES[name]


def _release_parts(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))
