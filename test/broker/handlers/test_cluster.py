"""Cluster APIs of the embedded broker: ApiVersions, features, quotas, directories, and what survives a restart."""

from __future__ import annotations

from unittest import mock

import pytest

from kafka.broker.emulation import LATEST, RELEASES
from kafka.broker.registry import load
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.configs import AlterConfigsRequest
from kafka.protocol.groups import ConsumerGroupDescribeRequest
from kafka.protocol.log_dirs import DescribeLogDirsRequest
from kafka.protocol.quorum import UnregisterBrokerRequest, UpdateFeaturesRequest
from kafka.protocol.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.share import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from test.broker.driver import HandBroker, batch

UP, DOWN = 1, 2


def update(hand: HandBroker, name: str, level: int, how: int, version: int = 2, **options: bool) -> int:
    kind = UpdateFeaturesRequest
    change = kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how, **options)
    return hand.ask(kind(feature_updates=[change]), version).error_code


def levels(hand: HandBroker) -> tuple[int, dict[str, int]]:
    answer = hand.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    return answer.finalized_features_epoch, {one.name: one.max_version_level for one in answer.finalized_features}


def test_a_level_survives_a_restart_and_its_epoch_grows(hand: HandBroker) -> None:
    epoch, before = levels(hand)
    assert update(hand, "transaction.version", 1, DOWN) == 0
    hand.restart()
    assert levels(hand) == (epoch + 1, {**before, "transaction.version": 1})


def test_level_0_switches_the_apis_of_a_feature_off(hand: HandBroker) -> None:
    shares = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    )
    describe = ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    consumers = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    assert hand.ask(describe).groups[0].error_code == 69
    assert update(hand, "share.version", 0, DOWN) == update(hand, "group.version", 0, DOWN) == 0
    assert not {"share.version", "group.version"} & set(levels(hand)[1])
    assert hand.ask(describe).groups[0].error_code == 35
    assert hand.ask(shares).groups[0].error_code == 35
    assert hand.ask(consumers).groups[0].error_code == 35
    assert update(hand, "share.version", 1, UP) == 0
    assert hand.ask(describe).groups[0].error_code == 69


def test_version_0_lowers_with_a_flag(hand: HandBroker) -> None:
    kind = UpdateFeaturesRequest
    change = kind.FeatureUpdateKey(feature="share.version", max_version_level=0, allow_downgrade=True)
    assert hand.ask(kind(feature_updates=[change]), 0).error_code == 0
    assert "share.version" not in levels(hand)[1]


def test_voters_stay_fixed_and_the_broker_does_not_unregister_itself(hand: HandBroker) -> None:
    assert update(hand, "kraft.version", 1, UP) == 95
    node_id = hand.broker.config.node_id
    assert hand.ask(UnregisterBrokerRequest(broker_id=node_id)).error_code == 42


def test_quotas_survive_a_restart(hand: HandBroker) -> None:
    kind = AlterClientQuotasRequest
    entity = [kind.EntityData(entity_type="user", entity_name=None)]

    def set_to(value: float, remove: bool = False) -> None:
        ops = [kind.OpData(key="producer_byte_rate", value=value, remove=remove)]
        request = kind(entries=[kind.EntryData(entity=entity, ops=ops)], validate_only=False)
        assert hand.ask(request).entries[0].error_code == 0

    def found() -> list[float]:
        entries = hand.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries
        return [value.value for entry in entries or [] for value in entry.values]

    set_to(1000.0)
    hand.restart()
    assert found() == [1000.0]
    set_to(0.0, remove=True)
    hand.restart()
    assert found() == []


def test_the_size_of_a_partition_needs_no_open_log(hand: HandBroker) -> None:
    hand.create_topic("t")
    data = batch(bytes(500))
    hand.produce("t", data)
    wanted = DescribeLogDirsRequest(
        topics=[DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0])]
    )

    def size() -> int:
        return hand.ask(wanted).results[0].topics[0].partitions[0].partition_size

    assert size() == len(data)
    hand.restart()
    topic = hand.broker.metadata.topic("t")
    assert topic is not None
    assert size() == len(data)
    assert not hand.broker.logs.open_logs(topic)


def test_a_resource_that_is_named_twice_is_not_altered(hand: HandBroker) -> None:
    hand.create_topic("t")
    kind = AlterConfigsRequest
    twice = [
        kind.AlterConfigsResource(
            resource_type=2, resource_name="t", configs=[kind.AlterableConfig(name="segment.ms", value=value)]
        )
        for value in ("1000", "2000")
    ]
    answer = hand.ask(kind(resources=twice, validate_only=False))
    assert [one.error_code for one in answer.responses] == [42, 42]
    assert hand.broker.metadata.config("topic", "t") == {}


def test_the_names_of_all_entities_are_written_once_for_all_that_a_request_changes(hand: HandBroker) -> None:
    kind = AlterClientQuotasRequest
    entries = [
        kind.EntryData(
            entity=[kind.EntityData(entity_type="client-id", entity_name=f"c{number}")],
            ops=[kind.OpData(key="producer_byte_rate", value=1.0, remove=False)],
        )
        for number in range(50)
    ]
    with mock.patch.object(hand.broker.metadata, "set_meta", wraps=hand.broker.metadata.set_meta) as written:
        hand.ask(kind(entries=entries, validate_only=False))
    assert [call.args[0] for call in written.call_args_list].count("quotas") == 1
    hand.restart()
    assert len(hand.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries) == 50


# -- apiVersions: the served APIs, and the features of the release whose APIs are served -------------------------------


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
