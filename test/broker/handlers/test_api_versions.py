"""ApiVersions: the list is what is served, the features are those of the release whose APIs are there."""

from __future__ import annotations

import pytest

from kafka.broker.emulation import LATEST, RELEASES
from kafka.broker.registry import load
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from test.broker.driver import HandBroker

NAMED = ApiVersionsRequest(client_software_name="kafka", client_software_version="1.0-b2")


@pytest.mark.parametrize("version", range(5))
def test_the_list_is_that_of_apache_kafka_as_far_as_there_are_handlers(hand: HandBroker, version: int) -> None:
    answer: ApiVersionsResponse = hand.ask(NAMED, version)
    assert answer.error_code == 0
    listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert listed == {key: told for key, told in RELEASES[LATEST].apis.items() if key in load()}


def test_features_are_finalized_as_in_a_cluster_that_was_made_by_the_release(hand: HandBroker) -> None:
    answer = hand.ask(NAMED, 3)
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    assert finalized.items() <= RELEASES[LATEST].finalized.items()
    assert finalized["metadata.version"] == 30
    assert finalized["share.version"] == 1
    assert "streams.version" not in finalized  # nothing here speaks it
    assert answer.finalized_features_epoch >= 0


def test_a_feature_that_begins_at_0_is_shown_from_version_4_on(hand: HandBroker) -> None:
    assert "share.version" not in {row.name for row in hand.ask(NAMED, 3).supported_features}
    assert "share.version" in {row.name for row in hand.ask(NAMED, 4).supported_features}


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1.")])
def test_a_name_that_no_software_has_is_an_invalid_request(hand: HandBroker, name: str, version: str) -> None:
    answer = hand.ask(ApiVersionsRequest(client_software_name=name, client_software_version=version), 4)
    assert answer.error_code == 42
