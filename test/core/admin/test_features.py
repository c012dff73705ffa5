from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.features import UpdateFeatureType, describe_features, update_features
from kafka.core.connection import ByVersion
from kafka.core.dialogue import RefreshMetadata
from kafka.core.routing import AnyNode, Controller
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NoError,
)
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.protocol.quorum import UpdateFeaturesResponse
from test.core.admin.driving import BACKOFF, run
from test.core.test_retry import drive

SOFTWARE = ("a-test", "1")
NOT_CONTROLLER, INVALID_REQUEST, INVALID_UPDATE = 41, 42, 95



def api_versions_response(epoch: int) -> ApiVersionsResponse:
    supported = ApiVersionsResponse.SupportedFeatureKey
    finalized = ApiVersionsResponse.FinalizedFeatureKey
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[],
        supported_features=[
            supported(name="a", min_version=1, max_version=3),
            supported(name="b", min_version=0, max_version=1),
        ],
        finalized_features=[finalized(name="a", min_version_level=1, max_version_level=2)],
        finalized_features_epoch=epoch,
    )


def updated(code: int = 0, **results: int) -> UpdateFeaturesResponse:
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message="all wrong" if code else None,
        results=[result(feature=name, error_code=each, error_message="NONE") for name, each in results.items()],
    )


@pytest.mark.parametrize(("epoch", "shown"), [(7, 7), (0, 0), (-1, None)])
def test_features_are_reported_by_name(epoch: int, shown: int | None) -> None:
    found, (send,) = run(describe_features(software=SOFTWARE, backoff=BACKOFF), api_versions_response(epoch))
    assert found == {
        "a": {"supported": (1, 3), "finalized": (1, 2), "finalized_epoch": shown},
        "b": {"supported": (0, 1)},
    }
    assert (send.target, send.min_version) == (AnyNode(), 3)
    assert (send.request.client_software_name, send.request.client_software_version) == SOFTWARE


def test_the_controller_is_asked_when_that_is_requested() -> None:
    dialogue = describe_features(software=SOFTWARE, send_request_to_controller=True, backoff=BACKOFF)
    _, (send,) = run(dialogue, api_versions_response(1))
    assert send.target == Controller()


def test_levels_are_asked_for_in_every_form_and_as_the_version_can_say_it() -> None:
    wanted: Any = {
        "a": 2,
        "b": (UpdateFeatureType.UPGRADE, 3),
        "c": ("safe-downgrade", 1),
        "d": ("UNSAFE_DOWNGRADE", 0),
        "e": (2, 1),
        "f": "4",
        "g": (2, 1.0),
    }
    found, (send,) = run(update_features(wanted, backoff=BACKOFF, timeout_s=7.0), updated())
    assert found == dict.fromkeys(wanted, NoError())
    assert send.target == Controller() and isinstance(send.request, ByVersion)
    old, new = send.request.build(0), send.request.build(1)
    assert [(each.feature, each.max_version_level) for each in old.feature_updates] == [
        ("a", 2), ("b", 3), ("c", 1), ("d", 0), ("e", 1), ("f", 4), ("g", 1)
    ]  # fmt: skip
    assert [each.allow_downgrade for each in old.feature_updates] == [False, False, True, True, True, False, True]
    assert [each.upgrade_type for each in new.feature_updates] == [1, 1, 2, 3, 2, 1, 2]
    assert (new.timeout_ms, new.validate_only, send.min_version) == (7000, False, 0)
    assert send.timeout_s == 12.0, "an answer is waited for five seconds longer than the controller may take"


def test_a_level_is_any_int16() -> None:
    wanted = {"a": 32767, "b": -32768}
    _, (send,) = run(update_features(wanted, backoff=BACKOFF), updated())
    assert {each.feature: each.max_version_level for each in send.request.build(1).feature_updates} == wanted


def test_ways_to_change_a_level_have_javas_codes() -> None:
    """``org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType``."""
    assert {kind.name: kind.value for kind in UpdateFeatureType} == {
        "UNKNOWN": 0, "UPGRADE": 1, "SAFE_DOWNGRADE": 2, "UNSAFE_DOWNGRADE": 3,
    }  # fmt: skip


def test_only_validating_needs_a_version_that_can_say_so() -> None:
    _, (send,) = run(update_features({"a": 2}, validate_only=True, backoff=BACKOFF), updated())
    assert send.min_version == 1 and send.request.build(1).validate_only is True


def test_the_controller_is_looked_for_when_it_has_moved() -> None:
    found, steps = run(update_features({"a": 2}, backoff=BACKOFF), updated(NOT_CONTROLLER), updated())
    assert isinstance(found["a"], NoError)
    assert sum(isinstance(step, RefreshMetadata) for step in steps) == 1


def test_an_error_of_the_whole_is_raised_and_one_of_a_feature_is_reported() -> None:
    with pytest.raises(InvalidUpdateVersionError, match="all wrong"):
        run(update_features({"a": 2}, backoff=BACKOFF), updated(INVALID_UPDATE))
    found, _ = run(update_features({"a": 2, "b": 1}, backoff=BACKOFF), updated(a=INVALID_REQUEST, b=0))
    assert isinstance(found["a"], InvalidRequestError) and isinstance(found["b"], NoError)


@pytest.mark.parametrize(
    "wanted",
    [
        ["a"],
        {"a": "two"},
        {"a": True},
        {"a": (True, 2)},
        {"a": 1.5},
        {"a": float("nan")},
        {"a": 32768},
        {"a": -32769},
        {"a": 2.5},
        {"a": None},
        {"a": ("sideways", 2)},
        {"a": (0, 2)},
        {"a": (9, 2)},
        {"a": (1, 2, 3)},
        {"a": (None, 1)},
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(wanted: Any) -> None:
    with pytest.raises(IllegalArgumentError):
        next(update_features(wanted, backoff=BACKOFF))


def test_the_error_of_an_old_broker_names_the_release_that_is_needed() -> None:
    def refuse(step: Any) -> Any:
        raise IncompatibleBrokerVersion("node 1 is old")

    for dialogue, release in (
        (describe_features(software=SOFTWARE, backoff=BACKOFF), "2.4"),
        (update_features({"a": 2}, backoff=BACKOFF), "2.7"),
        (update_features({"a": 2}, validate_only=True, backoff=BACKOFF), "3.3"),
    ):
        with pytest.raises(IncompatibleBrokerVersion, match=f"since release {release}$"):
            drive(dialogue, refuse)
