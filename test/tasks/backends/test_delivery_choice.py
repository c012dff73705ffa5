"""Which way jobs are delivered: by the brokers, the setting, and what is in use."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from kafka import admin
from kafka.admin import SharePartitionOffset
from kafka.client import ApiRanges
from kafka.errors import IncompatibleBrokerVersion, KafkaConfigurationError, NotCoordinatorError
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.tasks import App
from kafka.tasks.backends.kafka.admin import why_no_share_groups
from kafka.tasks.backends.kafka.delivery_choice import choose, choose_deliveries
from kafka.tasks.backends.kafka.in_use import DeliveryKind, check_not_migrated
from kafka.tasks.delivery.consumer_group.delivery import GROUP_SETTINGS
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import read_settings
from kafka.testing import EmbeddedBroker, running_worker

SHARE, GROUP = DeliveryKind.SHARE, DeliveryKind.GROUP
OLD = "the broker does not support ShareFetch"
SHARE_APIS = {76: (1, 1), 78: (1, 2), 79: (1, 2)}


@pytest.mark.parametrize(
    ("setting", "is_ordered", "why_not_share", "in_use", "kind", "why"),
    [
        ("auto", False, None, None, SHARE, "have share groups"),
        ("auto", False, OLD, None, GROUP, OLD),
        ("auto", True, None, None, GROUP, "ordered"),
        ("auto", True, OLD, None, GROUP, "ordered"),
        ("group", False, None, None, GROUP, "delivery='group'"),
        ("share", False, None, None, SHARE, "delivery='share'"),
        ("auto", False, None, SHARE, SHARE, "have share groups"),
        ("auto", False, None, GROUP, GROUP, "queue migrate shop.mail --to share"),
        ("group", False, None, GROUP, GROUP, "delivery='group'"),
        ("auto", True, None, GROUP, GROUP, "ordered"),
    ],
)
def test_the_way_follows_from_brokers_setting_and_use(
    setting: str, is_ordered: bool, why_not_share: str | None, in_use: Any, kind: DeliveryKind, why: str
) -> None:
    found, text = choose("shop.mail", setting, is_ordered, why_not_share, in_use)
    assert found is kind
    assert why in text


@pytest.mark.parametrize(
    ("setting", "is_ordered", "why_not_share", "in_use", "error", "text"),
    [
        ("share", True, None, None, KafkaConfigurationError, "remove delivery='share', or ordered=True"),
        ("share", False, OLD, None, IncompatibleBrokerVersion, OLD),
        ("share", False, None, GROUP, KafkaConfigurationError, "queue migrate shop.mail --to share"),
        ("group", False, None, SHARE, KafkaConfigurationError, "queue migrate shop.mail --to group"),
        ("auto", True, None, SHARE, KafkaConfigurationError, "queue migrate shop.mail --to group"),
    ],
)
def test_what_cannot_be_is_one_line_that_says_what_to_do(
    setting: str, is_ordered: bool, why_not_share: str | None, in_use: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        choose("shop.mail", setting, is_ordered, why_not_share, in_use)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("apis", "features", "text"),
    [
        ({18: (0, 4)}, {}, "ShareFetch, ShareAcknowledge, which Apache Kafka does from 4.2"),
        (SHARE_APIS, {}, "has not enabled them"),
        (SHARE_APIS, {"share.version": (0, 0)}, "kafka-features.sh upgrade --feature share.version=1"),
    ],
)
def test_why_there_are_no_share_groups_is_said(
    apis: dict[int, tuple[int, int]], features: dict[str, tuple[int, int]], text: str
) -> None:
    assert text in str(why_no_share_groups(ApiRanges(apis, features, "4.1")))
    assert why_no_share_groups(ApiRanges(SHARE_APIS, {"share.version": (1, 1)}, "4.2")) is None


def test_a_broker_without_transactions_is_too_old_for_workers() -> None:
    class Client:
        def api_ranges(self) -> ApiRanges:
            return ApiRanges({11: (0, 1)}, {}, "0.10")

    client: Any = Client()
    nobody: Any = None
    with pytest.raises(IncompatibleBrokerVersion, match=r"0.11 or later: .* InitProducerId, TxnOffsetCommit"):
        choose_deliveries(client, nobody, TopicNames("shop"), "auto", ["mail"], ())


def test_a_queue_that_was_migrated_while_a_worker_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = SimpleNamespace(api_ranges=lambda: ApiRanges(SHARE_APIS, {"share.version": (1, 1)}, "4.3"))
    place, at = TopicPartition("shop.mail", 0), OffsetAndMetadata(7, "", -1)

    def list_group_offsets(groups: dict[str, None], **_: Any) -> Any:
        yield
        return {group: {place: at} if group == "shop.mail.group" else {} for group in groups}

    def share_group_offsets(groups: Any, **_: Any) -> Any:
        yield
        return {group: answers[group] for group in groups}

    def describe_topics(names: list[str], **_: Any) -> Any:
        yield
        return [{"name": name, "error_code": 0, "partitions": [{"replica_nodes": [1]}]} for name in names]

    for each in (list_group_offsets, share_group_offsets, describe_topics):
        monkeypatch.setattr(admin.dialogues, each.__name__, each)
    error = NotCoordinatorError()
    answers: dict[str, Any] = {
        "shop.low": {TopicPartition("shop.low", 0): SharePartitionOffset(3, 0)},
        "shop.new": {TopicPartition("shop.new", 0): SharePartitionOffset(-1, -1)},
        "shop.lost": error,
    }

    def check(queues: list[str], kind: DeliveryKind) -> None:
        deque(check_not_migrated(client, TopicNames("shop"), queues, kind), maxlen=0)

    check(["low", "new", "lost"], SHARE)
    check(["mail", "new"], GROUP)
    with pytest.raises(KafkaConfigurationError, match="shop.mail are delivered by a consumer group by now: queue mig"):
        check(["low", "mail"], SHARE)
    with pytest.raises(KafkaConfigurationError, match="shop.low are delivered by a share group by now: queue migrate"):
        check(["mail", "low"], GROUP)
    with pytest.raises(NotCoordinatorError):  # a member must not begin anew where it is not known what has ended
        check(["lost"], GROUP)


def test_another_word_for_the_setting_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="one of 'auto', 'share', 'group', not 'queue'"):
        App("shop", delivery="queue")
    assert read_settings({}).delivery == "auto"


def test_settings_of_groups_are_written_by_the_first_worker_alone() -> None:
    settings = {
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    with EmbeddedBroker(in_process=True, settings=settings) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap, delivery="group")
        with closing(app), running_worker(app):
            broker.requests.wait("ConsumerGroupHeartbeat")
            assert len(broker.requests.find("IncrementalAlterConfigs")) == len(GROUP_SETTINGS)
        begin = broker.requests.count
        app = App("shop", bootstrap_servers=broker.bootstrap, delivery="group")
        with closing(app), running_worker(app):
            broker.requests.wait("ConsumerGroupHeartbeat", after=begin)
            assert broker.requests.find("IncrementalAlterConfigs", after=begin) == []


def test_members_are_classic_ones_where_brokers_refuse_short_sessions() -> None:
    with EmbeddedBroker(in_process=True) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap, delivery="group")
        with closing(app), running_worker(app):
            broker.requests.wait("SyncGroup")
            assert broker.requests.find("ConsumerGroupHeartbeat") == []
