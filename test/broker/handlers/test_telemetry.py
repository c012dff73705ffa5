"""GetTelemetrySubscriptions, PushTelemetry and the settings of client metrics: rules and codes as measured on Apache
Kafka 4.3.0 with a plug-in (``test/conformance/test_telemetry.py`` compares them)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker.responses import ConnectionContext
from kafka.broker.telemetry import KEPT_PUSHES, KIND, MOST_BYTES, MOST_KEPT_BYTES, RequestedMetrics, requested_metrics
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import ListConfigResourcesRequest
from kafka.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from kafka.records.compression import CODECS
from kafka.wire.types import ZERO_UUID
from test.broker.driver import HandBroker
from test.broker.handlers.test_configs import APPEND, DELETE, SET, SUBTRACT, alter, describe
from test.support.optional import needs_re2

CLIENT_METRICS = 16
ID = UUID("12345678-1234-4234-8234-123456789abc")
VERSIONS = ApiVersionsRequest(client_software_name="me", client_software_version="1")


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    made = HandBroker(tmp_path, telemetry=True)
    yield made
    made.broker.close()


def subscribe(hand: HandBroker, name: str = "s", **values: str) -> None:
    changes = [(key.replace("_", "."), SET, value) for key, value in values.items()]
    assert alter(hand, CLIENT_METRICS, name, *changes) == (0, None)


def get(
    hand: HandBroker, given: UUID = ID, connection: ConnectionContext | None = None
) -> GetTelemetrySubscriptionsResponse:
    return hand.ask(GetTelemetrySubscriptionsRequest(client_instance_id=given), connection=connection)


def push(
    hand: HandBroker,
    subscription: int,
    data: bytes = b"x",
    *,
    given: UUID = ID,
    terminating: bool = False,
    codec: int = 0,
    connection: ConnectionContext | None = None,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=given,
        subscription_id=subscription,
        terminating=terminating,
        compression_type=codec,
        metrics=data,
    )
    return hand.ask(request, connection=connection).error_code


def test_a_client_without_an_id_gets_one_and_the_defaults(hand: HandBroker) -> None:
    told = get(hand, ZERO_UUID)
    assert told.error_code == 0 and told.client_instance_id.version == 4
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (300_000, 1_048_576, True)
    assert told.requested_metrics == []


@needs_re2
def test_all_subscriptions_that_match_are_put_together_at_the_shortest_interval(hand: HandBroker) -> None:
    subscribe(hand, "a", metrics="m.,n.", interval_ms="5000")
    subscribe(hand, "b", metrics="n.,o.", interval_ms="2000", match="client_id=ha.*")
    subscribe(hand, "c", metrics="p.", interval_ms="100", match="client_id=other")
    subscription = get(hand)
    assert (subscription.requested_metrics, subscription.push_interval_ms) == (["m.", "n.", "o."], 2000)
    subscribe(hand, "d", metrics="*")
    hand.now += 2
    assert get(hand).requested_metrics == ["*"]


@needs_re2
def test_a_subscription_matches_by_what_the_client_is() -> None:
    values = [{"metrics": "m", "match": "client_software_name=kafka-.*,client_software_version=1"}]
    me = {"client_software_name": "kafka-x", "client_software_version": "1"}
    assert requested_metrics(values, me) == RequestedMetrics(("m",), 300_000)
    assert requested_metrics(values, {**me, "client_software_version": "12"}).metrics == (), "the whole of it"
    assert requested_metrics(values, {}).metrics == ()


@needs_re2
def test_the_software_is_that_of_the_api_versions_request(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", match="client_software_name=me,client_source_address=127.0.0.1")
    assert get(hand).requested_metrics == []
    hand.ask(ApiVersionsRequest(client_software_name="me", client_software_version="1"))
    assert get(hand, UUID(int=5)).requested_metrics == ["m."]


def test_the_subscription_id_is_the_same_after_a_restart_and_another_for_other_metrics(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    first = get(hand).subscription_id
    hand.restart()
    assert get(hand).subscription_id == first
    subscribe(hand, metrics="n.")
    hand.now += 1
    assert get(hand).subscription_id != first
    assert get(hand, UUID(int=7)).subscription_id != get(hand, UUID(int=8)).subscription_id


def test_who_asks_or_pushes_too_early_is_throttled(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    number = get(hand).subscription_id
    assert get(hand).error_code == 89
    assert push(hand, number) == 0, "the first one after the subscription"
    assert push(hand, number) == 89
    hand.now += 0.9
    assert push(hand, number) == 89
    hand.now += 0.1
    assert push(hand, number) == 0


def test_a_push_for_another_subscription_is_refused_and_the_client_may_ask_at_once(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    number = get(hand).subscription_id
    subscribe(hand, metrics="n.")
    assert push(hand, number) == 117
    hand.now += 0.001
    subscription = get(hand)
    assert subscription.error_code == 0 and subscription.requested_metrics == ["n."]
    assert push(hand, subscription.subscription_id) == 0


def test_an_unknown_compression_too_many_bytes_and_damage_are_refused(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    number = get(hand).subscription_id
    assert push(hand, number, codec=9) == 76
    for data, codec, code in ((b"x" * 1_048_577, 0, 118), (b"garbage", 1, 87), (b"x" * 1_048_576, 0, 0)):
        hand.now += 1
        assert push(hand, number, data, codec=codec) == code


def test_reserved_ids_are_refused(hand: HandBroker) -> None:
    assert push(hand, 0, given=ZERO_UUID) == push(hand, 0, given=UUID(int=1)) == 42


def test_the_last_push_may_come_early_and_nothing_follows_it(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    number = get(hand).subscription_id
    assert push(hand, number) == 0
    assert push(hand, number, terminating=True) == 0
    assert push(hand, number) == 42
    assert hand.broker.telemetry is not None
    assert [kept.is_terminating for kept in hand.broker.telemetry.pushes[ID]] == [False, True]


def test_a_client_is_forgotten_with_its_connection_or_when_it_is_silent(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="1000")
    other = ConnectionContext()
    number = get(hand, connection=other).subscription_id
    assert get(hand).error_code == 89
    hand.broker.disconnected(other, hand.now)
    assert get(hand).error_code == 0
    assert push(hand, number, terminating=True) == 0 and push(hand, number) == 42
    hand.now += 60
    assert push(hand, number) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_pushed_is_kept_as_it_was_before_compression(hand: HandBroker, codec: int) -> None:
    number = get(hand).subscription_id
    assert push(hand, number, CODECS[codec].compress(b"data" * 99, None), codec=codec) == 0
    assert hand.broker.telemetry is not None
    (kept,) = hand.broker.telemetry.pushes[ID]
    assert (kept.metrics, kept.compression_type, kept.client_id) == (b"data" * 99, CODECS[codec].name, "hand")


def test_only_the_last_pushes_of_a_client_are_kept(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", interval_ms="100")
    number = get(hand).subscription_id
    for each in range(KEPT_PUSHES + 5):
        assert push(hand, number, str(each).encode()) == 0
        hand.now += 0.1
    assert hand.broker.telemetry is not None
    kept = hand.broker.telemetry.pushes[ID]
    assert (len(kept), kept[0].metrics) == (KEPT_PUSHES, b"5")


def test_a_push_without_metrics_is_taken_and_not_kept(hand: HandBroker) -> None:
    assert push(hand, get(hand).subscription_id, b"") == 0
    assert hand.broker.telemetry is not None and not hand.broker.telemetry.pushes


def test_a_broker_that_was_not_asked_to_neither_lists_nor_serves_it(tmp_path: Path) -> None:
    plain = HandBroker(tmp_path)
    try:
        api_keys = {row.api_key for row in plain.ask(VERSIONS).api_keys}
        assert 74 in api_keys and not api_keys & {71, 72}
        assert plain.send(GetTelemetrySubscriptionsRequest(client_instance_id=ID), 0).hang_up
    finally:
        plain.broker.close()


def test_a_broker_that_was_asked_to_lists_version_0_of_both(hand: HandBroker) -> None:
    versions_by_key = {row.api_key: (row.min_version, row.max_version) for row in hand.ask(VERSIONS).api_keys}
    assert versions_by_key[71] == versions_by_key[72] == (0, 0)


def test_a_release_before_telemetry_cannot_have_it(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError, match="has none"):
        HandBroker(tmp_path, release="2.8", telemetry=True)


# -- the settings ------------------------------------------------------------------------------------------------------


@needs_re2
def test_unset_settings_have_their_defaults_and_set_ones_are_dynamic(hand: HandBroker) -> None:
    rows = describe(hand, CLIENT_METRICS, "s").configs
    assert [(row.name, row.value, row.config_source, row.config_type) for row in rows] == [
        ("interval.ms", "300000", 5, 3), ("match", "", 5, 7), ("metrics", "", 5, 7),
    ]  # fmt: skip
    subscribe(hand, metrics="a., b.", interval_ms=" 1000 ", match="client_id=x.*, client_software_name = foo")
    rows = describe(hand, CLIENT_METRICS, "s").configs
    assert [(row.value, row.config_source) for row in rows] == [
        ("1000", 7), ("client_id=x.*,client_software_name = foo", 7), ("a.,b.", 7),
    ]  # fmt: skip
    assert [[(each.name, each.value, each.source) for each in row.synonyms] for row in rows][0] == [
        ("interval.ms", "1000", 7)
    ]


@needs_re2
@pytest.mark.parametrize(
    ("key", "value", "code", "text"),
    [
        ("nonsense", "1", 42, "Unknown client metrics configuration: nonsense"),
        ("interval.ms", "99", 42,
         "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "3600001", 42,
         "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "abc", 40, "Invalid value abc for configuration interval.ms: Not a number of type INT"),
        ("match", "nonsense=1", 40, "Illegal client matching pattern: nonsense=1"),
        ("match", "client_id=[", 40, "Illegal client matching pattern: client_id=["),
        ("match", "client_id=", 40, "Illegal client matching pattern: client_id="),
        ("match", "client_id=a=b", 40, "Illegal client matching pattern: client_id=a=b"),
        ("match", "client_id=a,,client_id=b", 40, "Configuration 'match' values must not be empty."),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(hand: HandBroker, key: str, value: str, code: int, text: str) -> None:
    assert alter(hand, CLIENT_METRICS, "s", (key, SET, value)) == (code, text)
    assert hand.broker.metadata.config(KIND, "s") == {}


def test_lists_cannot_be_added_to_and_a_name_is_needed(hand: HandBroker) -> None:
    for operation, word in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        assert alter(hand, CLIENT_METRICS, "s", ("metrics", operation, "a")) == (
            40, f"Can't {word} to key metrics because its type is not LIST.",
        )  # fmt: skip
    assert alter(hand, CLIENT_METRICS, "", ("metrics", SET, "a")) == (42, "Subscription name can't be empty")
    assert describe(hand, CLIENT_METRICS, "").error_code == 42


def test_subscriptions_are_listed_until_nothing_of_them_is_set(hand: HandBroker) -> None:
    def listed(version: int) -> list[tuple[str, int]]:
        request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS] if version else [])
        found = hand.ask(request, version).config_resources
        return [(one.resource_name, one.resource_type) for one in found]

    subscribe(hand, metrics="a")
    assert listed(1) == [("s", CLIENT_METRICS)] and [name for name, _ in listed(0)] == ["s"]
    assert alter(hand, CLIENT_METRICS, "s", ("metrics", DELETE, None)) == (0, None)
    assert listed(0) == listed(1) == []


def test_a_pattern_that_nobody_can_read_is_an_error() -> None:
    with pytest.raises(InvalidConfigurationError):
        requested_metrics([{"match": "client_id=("}], {})


def test_pushes_of_all_clients_together_are_kept_up_to_a_number_of_bytes(hand: HandBroker) -> None:
    """A push of some kB may inflate to ``MOST_BYTES``."""
    data = CODECS[1].compress(bytes(MOST_BYTES), None)
    ids = [UUID(int=2 + number) for number in range(MOST_KEPT_BYTES // MOST_BYTES + 2)]
    for given in ids:
        assert push(hand, get(hand, given).subscription_id, data, given=given, codec=1) == 0
    assert hand.broker.telemetry is not None
    assert list(hand.broker.telemetry.pushes) == ids[2:]


@needs_re2
@pytest.mark.timeout(20)
def test_a_match_that_backtracks_for_ever_elsewhere_takes_no_time(hand: HandBroker) -> None:
    subscribe(hand, metrics="m.", match="client_software_name=(a+)+b")
    hand.ask(ApiVersionsRequest(client_software_name="a" * 60, client_software_version="1"))
    assert get(hand).requested_metrics == []
