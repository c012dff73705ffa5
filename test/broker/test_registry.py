"""The table of handlers: what is in it, and what may not get in."""

from __future__ import annotations

from importlib import import_module

import pytest

from kafka.broker import registry
from kafka.broker.handlers.metadata import metadata
from kafka.broker.registry import HANDLERS, KEYS, MODULES, MOST_ELEMENTS, handles, load
from kafka.protocol.groups import DescribeGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import NAMES
from kafka.protocol.telemetry import PushTelemetryRequest
from kafka.protocol.transactions import WriteTxnMarkersRequest
from test.broker.driver import HandBroker


def test_the_apis_of_the_issue_are_served() -> None:
    names = {NAMES[key] for key in load()}
    assert names >= {
        "ApiVersions", "Metadata", "Produce", "Fetch", "ListOffsets", "FindCoordinator", "OffsetCommit", "OffsetFetch",
        "ListGroups", "CreateTopics", "DeleteTopics", "DescribeConfigs", "IncrementalAlterConfigs", "InitProducerId",
        "DeleteRecords", "CreatePartitions", "DescribeCluster", "ShareGroupHeartbeat", "ShareGroupDescribe",
        "ShareFetch", "ShareAcknowledge",
    }  # fmt: skip


def test_a_mark_that_the_table_does_not_know_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    monkeypatch.delitem(registry._FUNCTIONS, PushTelemetryRequest.api_key)
    with pytest.raises(ValueError, match="MODULES does not say so"):
        handles(PushTelemetryRequest)(lambda broker, call: None)  # type: ignore[arg-type, return-value]


def test_every_module_marks_what_the_table_says_that_it_handles() -> None:
    declared = {(KEYS[name], *versions, module) for module, apis in MODULES.items() for name, versions in apis.items()}
    assert {(row.key, row.min_version, row.max_version, row.module) for row in load().values()} == declared
    for row in HANDLERS.values():
        assert row.function.__module__ == f"kafka.broker.handlers.{row.module}"


def test_a_second_handler_of_a_request_is_refused() -> None:
    load()
    with pytest.raises(ValueError, match="two handlers"):
        handles(MetadataRequest)(metadata)


def test_versions_that_the_message_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HANDLERS[MetadataRequest.api_key], "max_version", 99)
    with pytest.raises(ValueError, match="has no versions"):
        handles(MetadataRequest)(metadata)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_of_handlers_says_what_is_different_from_kafka(name: str) -> None:
    text = import_module(f"kafka.broker.handlers.{name}").__doc__ or ""
    assert "Apache Kafka 4.3.0" in text


def test_the_table_is_loaded_once() -> None:
    assert HANDLERS is load()


def test_a_request_with_more_elements_than_its_api_may_have_ends_its_connection(
    hand: HandBroker, caplog: pytest.LogCaptureFixture
) -> None:
    most = MOST_ELEMENTS["DescribeGroups"]
    names = [f"g{number}" for number in range(most)]
    assert len(hand.ask(DescribeGroupsRequest(groups=names)).groups) == most
    reply = hand.send(DescribeGroupsRequest(groups=[*names, "one more"]))
    assert reply.hang_up
    assert f"DescribeGroupsRequest v6 has more than {most} elements" in caplog.text


def test_elements_count_at_any_depth() -> None:
    def request(markers: int) -> WriteTxnMarkersRequest:
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0] * 10)
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
        )
        return WriteTxnMarkersRequest(markers=[marker] * markers)

    handler = HANDLERS[WriteTxnMarkersRequest.api_key]
    most = MOST_ELEMENTS["WriteTxnMarkers"] // 12
    assert not handler.has_too_many_elements(request(most))
    assert handler.has_too_many_elements(request(most + 1))
