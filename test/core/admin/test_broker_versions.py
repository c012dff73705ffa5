from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kafka.core.admin.features import BrokerVersionData, request_api_versions
from kafka.core.connection import ApiRanges
from kafka.errors import IllegalArgumentError, IncompatibleBrokerVersion, UnsupportedVersionError
from kafka.protocol.api_key import ApiKey
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import NAMES
from test.core.admin.driving import BACKOFF, asked


def data(release: str = "2.8", most: int = 9) -> BrokerVersionData:
    return BrokerVersionData(ApiRanges({3: (0, most), 4: (0, 1)}, release=release))


def test_the_release_and_the_versions_are_reported() -> None:
    found = data()
    assert (found.broker_version, found.broker_version_str) == ((2, 8), "2.8")
    assert found.api_versions == {3: (0, 9), 4: (0, 1)}
    assert "2.8" in str(found)


@pytest.mark.parametrize("operation", [MetadataRequest, MetadataRequest(topics=[]), ApiKey.Metadata, 3])
def test_the_version_of_an_api_is_the_highest_of_both_sides(operation: object) -> None:
    assert data().api_version(operation) == 9  # type: ignore[arg-type]
    assert data(most=99).api_version(operation) == MetadataRequest.max_version  # type: ignore[arg-type]
    assert data().api_version(operation, max_version=5) == 5  # type: ignore[arg-type]
    with pytest.raises(IncompatibleBrokerVersion, match="Metadata"):
        data().api_version(operation, min_version=10)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError):
        data().api_version(operation, min_version=5, max_version=4)  # type: ignore[arg-type]


def test_the_limits_may_be_numbers_that_are_no_int() -> None:
    """``ApiRanges`` is compiled, and takes whole numbers only there."""
    limits: list[object] = []

    class Ranges:
        ranges: ClassVar = {3: (0, 9)}
        release = "2.8"

        def choose(self, request: object, min_version: object, max_version: object) -> int:
            limits.extend([type(min_version), type(max_version)])
            return 9

    stub: Any = Ranges()
    BrokerVersionData(stub).api_version(3, min_version=1.0, max_version=5.0)  # type: ignore[arg-type]
    assert limits == [int, int]
    assert data().api_version(3, min_version=5.0, max_version=5.0) == 5  # type: ignore[arg-type]


def test_any_version_will_do_unless_limits_are_given() -> None:
    assert data(most=0).api_version(3) == 0
    assert data().api_version(3, min_version=5, max_version=5) == 5


def test_an_api_of_one_side_alone_has_no_version() -> None:
    for key in (ApiKey.Produce, ApiKey.LeaderAndIsr, ApiKey(1000)):
        with pytest.raises(IncompatibleBrokerVersion, match=key.name):
            data().api_version(key)


@pytest.mark.parametrize("operation", [None, True, "Metadata", 1.0, dict])
def test_what_is_no_api_is_refused_in_one_line(operation: object) -> None:
    with pytest.raises(IllegalArgumentError, match="operation="):
        data().api_version(operation)  # type: ignore[arg-type]


def test_a_broker_that_was_not_asked_for_its_release_comes_before_all_others() -> None:
    unknown = BrokerVersionData(ApiRanges({3: (0, 9)}))
    assert (unknown.broker_version, unknown.broker_version_str) == ((0,), "0")
    assert unknown < data("0.10")


def api_versions(code: int = 0) -> ApiVersionsResponse:
    key = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(error_code=code, api_keys=[key(api_key=3, min_version=1, max_version=4)])


def test_a_broker_gets_the_clients_software_and_returns_its_versions() -> None:
    found, (send,) = asked(request_api_versions(7, software=("a-test", "1.2"), backoff=BACKOFF), api_versions())
    assert found.ranges == {3: (1, 4)}
    request: Any = send.request
    assert (send.target, request.client_software_name, request.client_software_version) == (7, "a-test", "1.2")
    with pytest.raises(UnsupportedVersionError, match="api_versions"):
        asked(request_api_versions(7, software=("a-test", "1.2"), backoff=BACKOFF), api_versions(35))


def test_brokers_are_ordered_by_release() -> None:
    old, new = data("2.8"), data("2.10")
    assert old < new and new >= old and old == data("2.8") and old != new
    assert not old < data("2.8") and not new < old
    assert old != data("2.8", most=5) and len({old, data("2.8")}) == 1
    assert old != "2.8"


def test_keys_have_the_names_of_the_registry_and_an_unknown_one_a_name_of_its_own() -> None:
    assert {key.value: key.name for key in ApiKey} == NAMES
    assert (ApiKey(1000), ApiKey(1000).name) == (1000, "UNKNOWN_1000")
    with pytest.raises(ValueError, match="Produce"):
        ApiKey("Produce")
