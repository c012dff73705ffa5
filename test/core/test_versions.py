"""Choosing versions, and the greeting dialogues run by hand against what each release does."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.connection import ApiRanges
from kafka.core.versions import (
    OLD_RANGES,
    RELEASES,
    NegotiatedVersions,
    NoAnswer,
    Outcome,
    Probe,
    VersionsDialogue,
    discover_versions,
    infer_release,
    negotiate_versions,
    ranges_before_api_versions,
)
from kafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaProtocolError,
    UnrecognizedBrokerVersion,
)
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorResponse
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.groups import ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.offsets import OffsetFetchResponse
from kafka.protocol.registry import NAMES

METADATA = MetadataResponse(brokers=[], topics=[])
CLOSED, SILENT, GARBLED = NoAnswer.CLOSED, NoAnswer.SILENT, NoAnswer.GARBLED
SOFTWARE = ("us", "1")


def api_versions(*ranges: tuple[int, int, int], error: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in ranges]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def converse(
    greeting: VersionsDialogue, *outcomes: tuple[Outcome, ...]
) -> tuple[NegotiatedVersions, list[list[tuple[int, int]]]]:
    """Run a greeting; what it found, and the (API key, version) pairs of each probe."""
    probe: Probe = next(greeting)
    asked = []
    for outcome in outcomes:
        asked.append([(request.api_key, version) for request, version in probe.requests])
        assert len(outcome) == len(probe.requests)
        try:
            probe = greeting.send(outcome)
        except StopIteration as end:
            assert outcome is outcomes[-1], "it ended early"
            return end.value, asked
    raise AssertionError(f"not ended: {probe}")


def failing(greeting: VersionsDialogue, *outcomes: tuple[Outcome, ...]) -> Any:
    return converse(greeting, *outcomes)


# -- discover ---------------------------------------------------------------------------------------------------------


def test_a_modern_broker_is_known_after_one_probe_with_its_metadata() -> None:
    found, asked = converse(discover_versions(SOFTWARE), (api_versions((3, 0, 13), (18, 0, 4)), METADATA))
    assert asked == [[(18, 4), (3, 0)]]
    assert found.ranges.ranges[3] == (0, 13)
    assert found.metadata is METADATA


@pytest.mark.parametrize(("told", "again"), [((), 0), (((18, 0, 2),), 2)])
def test_a_broker_that_lacks_our_api_versions_is_asked_again(told: Any, again: int) -> None:
    found, asked = converse(
        discover_versions(SOFTWARE), (api_versions(*told, error=35), METADATA), (api_versions((18, 0, again)),)
    )
    assert asked == [[(18, 4), (3, 0)], [(18, again)]]
    assert found.ranges.ranges == {18: (0, again)}
    assert found.metadata is METADATA


def test_a_0_9_broker_passes_over_api_versions_and_knows_list_groups() -> None:
    groups = ListGroupsResponse(error_code=0, groups=[])
    found, asked = converse(discover_versions(SOFTWARE), (SILENT, METADATA), (groups, METADATA))
    assert found.release == "0.9"
    assert asked[1] == [(16, 0), (3, 0)]
    assert found.ranges.ranges == OLD_RANGES["0.9"]


BOTH_CLOSED = (CLOSED, CLOSED)


def test_a_0_8_2_broker_knows_find_coordinator() -> None:
    found, asked = converse(discover_versions(SOFTWARE), *[BOTH_CLOSED] * 3, (FindCoordinatorResponse(), METADATA))
    assert found.release == "0.8.2"
    assert asked[-1] == [(10, 0), (3, 0)]


def test_a_0_8_1_broker_knows_offset_fetch() -> None:
    offsets = OffsetFetchResponse(topics=[])
    found, asked = converse(discover_versions(SOFTWARE), *[BOTH_CLOSED] * 4, (offsets, METADATA))
    assert found.release == "0.8.1"
    assert asked[-1] == [(9, 0), (3, 0)]


def test_a_0_8_0_broker_knows_metadata_alone() -> None:
    found, asked = converse(discover_versions(SOFTWARE), *[BOTH_CLOSED] * 5, (METADATA,))
    assert found.release == "0.8.0"
    assert asked[-1] == [(3, 0)]
    assert found.metadata is METADATA


def test_a_modern_broker_that_closed_the_first_connection_by_chance_is_asked_once_more() -> None:
    groups = ListGroupsResponse(error_code=0, groups=[])
    found, _ = converse(
        discover_versions(SOFTWARE), BOTH_CLOSED, (groups, METADATA), (api_versions((1, 0, 17), (18, 0, 4)), METADATA)
    )
    assert found.release == "3.9"


def test_a_modern_broker_that_lost_two_connections_is_not_taken_for_an_old_one() -> None:
    found, asked = converse(
        discover_versions(SOFTWARE), BOTH_CLOSED, BOTH_CLOSED, (api_versions((1, 0, 17), (18, 0, 4)), METADATA)
    )
    assert found.release == "3.9"
    assert asked[-1] == [(18, 4), (3, 0)]


def test_a_broker_that_loses_every_api_versions_is_worth_another_try() -> None:
    groups = ListGroupsResponse(error_code=0, groups=[])
    with pytest.raises(KafkaConnectionError, match="twice") as caught:
        failing(discover_versions(SOFTWARE), BOTH_CLOSED, (groups, METADATA), BOTH_CLOSED, (groups, METADATA))
    assert caught.value.retriable


def test_a_peer_that_never_answers_is_called_no_broker() -> None:
    with pytest.raises(KafkaConnectionError, match="answers nothing"):
        failing(discover_versions(SOFTWARE), (SILENT, SILENT))


def test_a_peer_that_closes_on_everything_is_unrecognized() -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match="TLS"):
        failing(discover_versions(SOFTWARE), *[BOTH_CLOSED] * 5, (CLOSED,))


def test_a_garbled_answer_is_an_error_when_strict_and_a_refusal_when_not() -> None:
    with pytest.raises(KafkaProtocolError, match="no Kafka message"):
        failing(discover_versions(SOFTWARE), (GARBLED, GARBLED))
    offsets = OffsetFetchResponse(topics=[])
    found, _ = converse(
        discover_versions(SOFTWARE, strict=False), (GARBLED, GARBLED), BOTH_CLOSED, BOTH_CLOSED, (offsets, METADATA)
    )
    assert found.release == "0.8.1"


def test_later_connections_ask_api_versions_alone() -> None:
    found, asked = converse(negotiate_versions(SOFTWARE, 3), (api_versions((18, 0, 3)),))
    assert asked == [[(18, 3)]]
    assert found.metadata is None


def test_a_later_connection_that_gets_no_answer_is_an_ordinary_failure() -> None:
    with pytest.raises(KafkaConnectionError, match="ApiVersions v4: the connection was closed"):
        failing(negotiate_versions(SOFTWARE), (CLOSED,))


def test_features_come_with_the_ranges() -> None:
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[],
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name="share.version", min_version_level=0, max_version_level=1)
        ],
    )
    found, _ = converse(negotiate_versions(SOFTWARE), (response,))
    assert found.ranges.features == {"share.version": (0, 1)}


# -- releases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "what", "version"), RELEASES)
def test_each_release_is_recognized_by_its_fact_alone_and_with_all_older_ones(
    release: str, what: int | str, version: int
) -> None:
    older = RELEASES[RELEASES.index((release, what, version)) :]
    ranges: dict[int, tuple[int, int]] = {}
    features: dict[str, tuple[int, int]] = {}
    for _, fact, most in older:
        if isinstance(fact, int):
            ranges[fact] = (0, max(most, ranges.get(fact, (0, 0))[1]))
        else:
            features[fact] = (0, max(most, features.get(fact, (0, 0))[1]))
    assert infer_release(ranges, features) == release


def test_without_any_fact_it_is_the_first_release_that_reports_its_versions() -> None:
    assert infer_release({18: (0, 0)}) == "0.10.0"


def test_an_api_that_is_there_below_its_first_raise_is_no_fact() -> None:
    assert infer_release({1: (0, 2)}) == "0.10.0"


@pytest.mark.parametrize(
    ("given", "name"),
    [((0, 8), "0.8.0"), ((0, 8, 1, 1), "0.8.1"), ((0, 8, 2), "0.8.2"), ((0, 9), "0.9"), ((0, 9, 0, 1), "0.9")],
)
def test_releases_before_api_versions_have_fixed_ranges(given: tuple[int, ...], name: str) -> None:
    assert ranges_before_api_versions(given) == (name, OLD_RANGES[name])


@pytest.mark.parametrize("given", [(0, 10), (0, 10, 2), (2, 8), (4, 3)])
def test_later_releases_are_asked(given: tuple[int, ...]) -> None:
    assert ranges_before_api_versions(given) is None


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_the_highest_common_version_is_chosen() -> None:
    assert ApiRanges({3: (0, 9)}).choose(MetadataRequest) == 9
    assert ApiRanges({3: (0, 99)}).choose(MetadataRequest) == MetadataRequest.max_version


def test_a_call_may_narrow_the_versions() -> None:
    ranges = ApiRanges({3: (0, 9)})
    assert ranges.choose(MetadataRequest, max_version=5) == 5
    assert ranges.choose(MetadataRequest) == 9
    with pytest.raises(IncompatibleBrokerVersion, match=r"Metadata: .* 0 to 9.* needs 10 to 13"):
        ranges.choose(MetadataRequest, min_version=10)


def test_no_common_version_names_the_api_and_both_ranges() -> None:
    ranges = ApiRanges({1: (90, 99)}, release="9.9")
    wanted = rf"Fetch: node 5 speaks .* 90 to 99 \(it looks like release 9.9\), .* 0 to {FetchRequest.max_version}"
    with pytest.raises(IncompatibleBrokerVersion, match=wanted):
        ranges.choose(FetchRequest, node="node 5")


def test_an_api_that_the_broker_lacks_is_named() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="does not have the API ApiVersions"):
        ApiRanges({}).choose(ApiVersionsRequest)


def test_the_table_of_old_releases_names_known_apis_and_only_grows() -> None:
    former: dict[int, tuple[int, int]] = {}
    for ranges in OLD_RANGES.values():
        assert set(former) <= set(ranges) <= set(NAMES)
        former = dict(ranges)


@pytest.mark.parametrize("rest", [GARBLED, SILENT, CLOSED])
def test_a_peer_that_answers_no_kafka_message_is_an_error_that_says_so(rest: NoAnswer) -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match="no Kafka message"):
        failing(discover_versions(SOFTWARE, strict=False), (GARBLED, rest), *[BOTH_CLOSED] * 3, (CLOSED,))


def test_silence_and_then_garbage_is_no_kafka_message_either() -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match="no Kafka message"):
        failing(discover_versions(SOFTWARE, strict=False), (SILENT, GARBLED))
