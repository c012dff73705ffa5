"""One connection: the greeting, the pipeline, deadlines, losses, back-off. Through KafkaClient, on a simulated loop."""

from __future__ import annotations

import pytest

from kafka.client.kafka_client import KafkaClient
from kafka.errors import (
    Cancelled,
    CorrelationIdError,
    IncompatibleBrokerVersion,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.share import ShareGroupHeartbeatRequest
from test.client.support import NONE, World
from test.support.scripted import CLOSE, SILENT, ScriptedBroker

LIST = ListGroupsRequest()


@pytest.fixture
def client(world: World, broker: ScriptedBroker) -> KafkaClient:
    return world.settled(world.client())


def test_the_first_connection_asks_versions_and_metadata_together(world: World, broker: ScriptedBroker) -> None:
    world.settled(world.client())
    first, second = broker.received[:2]
    assert isinstance(first[0], ApiVersionsRequest) and first[1] == 4
    assert first[0].client_software_name == "kafka-taskloop"
    assert isinstance(second[0], MetadataRequest) and second[1] == 0


def test_later_connections_ask_versions_alone(world: World, broker: ScriptedBroker) -> None:
    world.settled(world.client())
    asked = [(type(request), version) for request, version in broker.received]
    assert asked == [
        (ApiVersionsRequest, 4),
        (MetadataRequest, 0),
        (ApiVersionsRequest, 4),
        (MetadataRequest, 13),
    ]


def test_a_broker_that_lacks_the_newest_api_versions_is_asked_with_what_it_has(world: World) -> None:
    broker = ScriptedBroker(world.network, ranges={3: (0, 5), 18: (0, 2)})
    client = world.settled(world.client())
    assert [version for request, version in broker.received if isinstance(request, ApiVersionsRequest)] == [0, 2]
    assert client.check_version() == "0.10.0"


@pytest.mark.parametrize("release", ["0.8.0", "0.8.1", "0.8.2", "0.9"])
def test_old_brokers_are_recognised_and_spoken_with(world: World, release: str) -> None:
    broker = ScriptedBroker.of_release(world.network, release)
    client = world.settled(world.client())
    assert client.check_version() == release
    broker.received.clear()
    world.wait(client.request(1, NONE))
    assert broker.received == [(NONE, 0)]
    groups = client.request(1, LIST)
    assert world.loop.run_until(groups, 1)
    assert groups.succeeded() if release == "0.9" else isinstance(groups.exception, IncompatibleBrokerVersion)


def test_a_given_release_saves_the_questions(world: World) -> None:
    broker = ScriptedBroker.of_release(world.network, "0.9")
    world.settled(world.client(api_version=(0, 9)))
    assert {type(request) for request, _ in broker.received} == {MetadataRequest}


def test_requests_pipeline_up_to_the_limit(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    futures = [client.request(1, LIST) for _ in range(7)]
    world.run(0.1)
    assert len(broker.requests(ListGroupsRequest)) == 5
    assert client.in_flight_request_count(1) == 7
    assert not client.is_ready(1)
    assert not any(future.is_done for future in futures)


def test_a_waiting_request_goes_out_when_an_answer_makes_room(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client(max_in_flight_requests_per_connection=1))
    futures = [client.request(1, LIST) for _ in range(50)]
    world.wait(futures[-1])
    assert all(future.succeeded() for future in futures)


def test_answers_complete_in_the_order_of_sending(world: World, client: KafkaClient) -> None:
    order: list[int] = []
    futures = [client.request(1, LIST).add_callback(lambda _, n=n: order.append(n)) for n in range(20)]
    world.wait(futures[-1])
    assert order == list(range(20))


def test_what_answers_lead_to_is_sent_in_order_after_all_callbacks(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    events: list[str] = []
    more: list[Future[ListGroupsResponse]] = []

    def ask_again(_: object) -> None:
        events.append("first")
        more.extend(client.request(1, LIST) for _ in range(3))

    client.request(1, LIST).add_callback(ask_again)
    client.request(1, LIST).add_callback(lambda _: more.append(client.request(1, LIST)))
    assert world.loop.run_until(lambda: len(more) == 4 and all(future.is_done for future in more), 10)
    assert all(future.succeeded() for future in more)
    assert events == ["first"]
    assert len(broker.requests(ListGroupsRequest)) == 6


def test_an_answer_whose_callback_asks_again_and_closes_the_client_sends_nothing(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    asked: list[Future[ListGroupsResponse]] = []

    def leave(_: object) -> None:
        asked.append(client.request(1, LIST))
        client.close()

    client.request(1, LIST).add_callback(leave)
    assert world.loop.run_until(lambda: bool(asked) and asked[0].is_done, 10)
    assert asked[0].failed()
    world.run(0.1)
    assert len(broker.requests(ListGroupsRequest)) == 1


def test_a_timed_out_request_closes_the_connection_and_fails_everything_on_it(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    slow = client.request(1, LIST, 2)
    other = client.request(1, LIST, 30)
    waiting = [client.request(1, LIST, 30) for _ in range(6)]
    began = world.now
    error = world.failure(slow)
    assert world.now - began == pytest.approx(2)
    assert isinstance(error, RequestTimedOutError)
    assert str(error) == "[Error 7] RequestTimedOutError: ListGroups v5 to node 1 (kafka:9092): no response within 2 s"
    for future in (other, *waiting):
        assert isinstance(future.exception, KafkaConnectionError)
        assert "the connection was closed: ListGroups v5 to node 1" in str(future.exception)
    assert client.is_disconnected(1)
    world.run(0.01)
    assert len(broker.open) == 0


def test_a_deadline_that_is_nearer_than_those_before_it_is_kept(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    client.request(1, LIST, 30)
    began = world.now
    world.failure(client.request(1, LIST, 1))
    assert world.now - began == pytest.approx(1)


def test_a_request_that_was_never_sent_fails_alone_when_its_time_is_up(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client(max_in_flight_requests_per_connection=1))
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    slow = client.request(1, LIST, 30)
    error = world.failure(client.request(1, NONE, 1))
    assert isinstance(error, KafkaTimeoutError)
    assert "Metadata to node 1 (kafka:9092): not sent within 1 s: all allowed requests are in flight" in str(error)
    assert not slow.is_done and client.connected(1)


def test_a_lost_connection_fails_what_is_on_it_and_the_next_request_connects_again(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = [lambda request, version: CLOSE, lambda request, version: SILENT]
    error = world.failure(client.request(1, LIST))
    assert isinstance(error, KafkaConnectionError)
    assert "node 1 (kafka:9092): the connection was lost: the broker closed it" in str(error)
    assert world.wait(client.request(1, NONE)).brokers


def test_reconnecting_backs_off_exponentially(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    broker.stop()
    world.run(0.01)
    connection = client.router.nodes.get(1)
    waits = []
    for _ in range(5):
        world.failure(client.request(1, NONE))
        waits.append(connection.retry_at - world.now)
    # The first failure was the loss of the connection; Fixed(0.0) takes a fifth off each wait.
    assert waits == pytest.approx([0.08, 0.16, 0.32, 0.64, 1.28])
    assert client.connection_delay(1) == pytest.approx(1280)
    broker.restart()
    world.wait(client.request(1, NONE))
    assert connection.failures == 0


def test_a_request_during_the_back_off_waits_for_its_end(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.stop()
    world.run(0.01)
    broker.restart()
    assert client.connection_delay(1) > 0
    world.wait(client.request(1, NONE))


def test_a_correlation_mismatch_closes_the_connection(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: b"\x00\x00\x00\x04\x00\x00\xff\xff"
    error = world.failure(client.request(1, LIST))
    assert isinstance(error, CorrelationIdError) and "node 1" in str(error)
    assert client.is_disconnected(1)


def test_an_answer_above_the_limit_closes_the_connection(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client(receive_message_max_bytes=1000))
    broker.answers[ListGroupsRequest] = lambda request, version: b"\x00\x00\x03\xe9"
    error = world.failure(client.request(1, LIST))
    assert isinstance(error, InvalidReceiveError) and "1001" in str(error) and "node 1 (kafka:9092)" in str(error)


def test_a_corrupt_answer_is_a_protocol_error_that_names_node_api_and_byte(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    def corrupt(request: object, version: int) -> bytes:
        # Correlation id 2, since ApiVersions and Metadata came before on this connection; then half of a response.
        return b"\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00"

    broker.answers[ListGroupsRequest] = corrupt
    error = world.failure(client.request(1, LIST))
    assert isinstance(error, KafkaProtocolError)
    for part in ("node 1 (kafka:9092)", "ListGroups v5", "byte "):
        assert part in str(error)


def test_acks_0_is_done_once_written(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    broker.answers[ProduceRequest] = lambda request, version: SILENT
    future = client.request(1, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
    assert not future.is_done
    assert world.wait(future, 1) is None
    assert client.in_flight_request_count() == 0
    assert world.wait(client.request(1, LIST)).error_code == 0  # the connection goes on
    assert len(broker.requests(ProduceRequest)) == 1


def test_acks_0_on_a_connection_that_is_lost_fails(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    future = client.request(1, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
    client.router.nodes.get(1).close(KafkaConnectionError("cut"))
    assert isinstance(world.failure(future), KafkaConnectionError)


def test_acks_0_that_the_peer_never_takes_ends_with_its_time(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.open[-1].transport.pause_reading()
    topic = ProduceRequest.TopicProduceData(
        name="t",
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=bytes(50_000_000))],
    )
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic])
    began = world.now
    error = world.failure(client.request(1, request, 3, max_version=9))
    assert isinstance(error, RequestTimedOutError)
    assert "Produce to node 1 (kafka:9092): not written within 3 s" in str(error)
    assert world.now - began == pytest.approx(3)
    assert client.is_disconnected(1)


def test_a_connection_of_a_lane_is_its_own(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    before = broker.accepted
    broker.answers[ListGroupsRequest] = [lambda request, version: SILENT]
    stuck = client.request(1, LIST, lane="slow")
    world.wait(client.request(1, NONE))
    assert broker.accepted == before + 1 and not stuck.is_done
    client.close_lane("slow")
    assert isinstance(stuck.exception, Cancelled)
    assert world.wait(client.request(1, NONE)).brokers


def test_an_idle_connection_is_closed_and_made_again(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client(connections_max_idle_ms=60_000))
    world.run(59)
    assert client.connected(1)
    world.run(2)
    assert not client.connected(1) and not broker.open
    assert world.wait(client.request(1, NONE)).brokers


def test_a_request_that_is_out_for_longer_than_the_idle_time_costs_no_turns_of_the_loop(
    world: World, broker: ScriptedBroker
) -> None:
    client = world.settled(world.client(connections_max_idle_ms=2_000))
    world.network.link("me", "kafka").delay_s = 5
    answered = client.request(1, NONE)
    turns = 0
    while not answered.is_done:
        world.loop.run_once(1)
        turns += 1
        assert turns < 100, "it spins"
    assert answered.succeeded()


def test_an_api_that_the_broker_lacks_is_an_incompatible_version(world: World, client: KafkaClient) -> None:
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    error = world.failure(client.request(1, request))
    assert isinstance(error, IncompatibleBrokerVersion) and "ShareGroupHeartbeat" in str(error)
    assert client.connected(1)


def test_a_message_that_does_not_fit_the_version_fails_alone(world: World, client: KafkaClient) -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    assert "allow_auto_topic_creation" in str(world.failure(client.request(1, request, max_version=3)))
    assert world.wait(client.request(1, request)).brokers


def test_a_node_that_is_not_in_the_metadata_is_named(world: World, client: KafkaClient) -> None:
    error = world.failure(client.request(99, NONE))
    assert isinstance(error, UnknownBrokerIdError) and "node 99" in str(error)


def test_a_node_that_is_not_in_the_metadata_is_reported_as_unknown_as_fast_as_ever_and_used_as_soon_as_it_joins(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    metadata = world.wait(client.request(1, NONE))
    assert isinstance(metadata, MetadataResponse)
    for _ in range(10):
        began = world.now
        assert isinstance(world.failure(client.request(99, NONE)), UnknownBrokerIdError)
        assert world.now == began
    where = MetadataResponse.MetadataResponseBroker(node_id=99, host="kafka", port=9092)
    client.cluster.update_metadata(
        MetadataResponse(brokers=[*metadata.brokers, where], topics=[], controller_id=1, cluster_id="c")
    )
    began = world.now
    assert isinstance(world.wait(client.request(99, NONE)), MetadataResponse)
    assert world.now - began < 0.1


def test_a_node_that_is_not_in_the_metadata_does_not_stand_in_for_any_node(world: World, client: KafkaClient) -> None:
    client.close(1)
    world.failure(client.request(99, NONE))
    assert client.least_loaded_node() == 1


def test_a_node_whose_address_comes_in_the_turn_of_the_request_is_known(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    metadata = world.wait(client.request(1, NONE))
    assert isinstance(metadata, MetadataResponse)
    where = MetadataResponse.MetadataResponseBroker(node_id=7, host="kafka", port=9092)
    future = client.request(7, NONE)
    client.cluster.update_metadata(
        MetadataResponse(brokers=[*metadata.brokers, where], topics=[], controller_id=1, cluster_id="c")
    )
    assert isinstance(world.wait(future), MetadataResponse)


def test_a_peer_that_says_nothing_is_not_waited_for_beyond_the_step(world: World, broker: ScriptedBroker) -> None:
    broker.answers[ApiVersionsRequest] = broker.answers[MetadataRequest] = lambda request, version: SILENT
    client = world.client(request_timeout_ms=5_000)
    error = world.failure(client.request(1, NONE, 1) if client.cluster.brokers() else client.refresh_metadata())
    assert isinstance(error, KafkaTimeoutError)
    assert "answers nothing" in str(error)


def test_closing_the_client_fails_everything_with_cancelled(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    futures: list[Future[object]] = [client.request(1, LIST) for _ in range(8)]  # type: ignore[misc]
    client.close()
    assert all(isinstance(future.exception, Cancelled) for future in futures)
    world.run(0.01)
    assert not broker.open


def throttled(request: object, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=0, groups=[], throttle_time_ms=2000)


def calm(request: object, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=0, groups=[])


def test_a_broker_that_throttles_is_left_alone_for_that_time(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = [throttled, calm]
    world.wait(client.request(1, LIST))
    began = world.now
    assert client.connected(1) and not client.is_ready(1)
    late = client.request(1, LIST, 30)
    error = world.failure(client.request(1, LIST, 1))
    assert "not sent within 1 s: throttled by the broker" in str(error)
    assert world.wait(late).groups == []
    assert world.now - began == pytest.approx(2)
    assert client.is_ready(1)


def test_a_throttled_connection_that_was_lost_begins_anew(
    world: World, broker: ScriptedBroker, client: KafkaClient
) -> None:
    broker.answers[ListGroupsRequest] = [throttled, calm]
    world.wait(client.request(1, LIST))
    for peer in list(broker.open):
        peer.transport.abort()
    world.run(0.01)
    began = world.now
    world.wait(client.request(1, LIST, 30))
    assert world.now - began < 1


def test_a_broker_before_kip_219_has_waited_already(world: World) -> None:
    broker = ScriptedBroker(world.network, ranges={3: (0, 5), 16: (0, 1), 18: (0, 1)})
    broker.answers[ListGroupsRequest] = throttled
    client = world.settled(world.client())
    world.wait(client.request(1, LIST))
    assert client.is_ready(1)
