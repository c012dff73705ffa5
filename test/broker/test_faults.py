"""Faults as a machine: which requests a rule strikes, where error codes go, what happens when. With no socket."""

from __future__ import annotations

import json
import random
from typing import Any
from uuid import UUID

import pytest

from kafka.broker.error_places import ErrorResponse, Target, error_levels, targets
from kafka.broker.faults import ACTIONS, Rule
from kafka.broker.faults.injector import (
    MAX_TARGETS,
    RequestLog,
    corrupt_batches,
    corrupt_bytes,
    truncate_bytes,
    truncate_frame,
)
from kafka.broker.faults.rules import make_rule
from kafka.broker.responses import ConnectionContext
from kafka.errors import CorruptRecordError, IllegalArgumentError, NotLeaderForPartitionError
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import DescribeConfigsRequest
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.framing import ReceivedRequest
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.quorum import DescribeQuorumRequest
from kafka.protocol.registry import REGISTRY
from kafka.records import iter_batches
from kafka.records.header import check_crc
from kafka.wire.codec import decode, encode
from kafka.wire.message import Struct, fields_of
from test.broker.driver import HandBroker, batch, fetch_request, fetched, produce_request, values

NOTHING = MetadataRequest(topics=[])
NOT_LEADER = 6
A_TOPIC = UUID(int=5)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def produce_two(topic: str = "t") -> ProduceRequest:
    """One batch for each of the partitions 0 and 1."""
    request = produce_request(topic, batch(b"zero"), 0)
    request.topic_data[0].partition_data += produce_request(topic, batch(b"one"), 1).topic_data[0].partition_data
    return request


def codes(answer: ProduceResponse) -> dict[int, int]:
    return {one.index: one.error_code for topic in answer.responses for one in topic.partition_responses}


# -- which requests --------------------------------------------------------------------------------------------------


def test_a_broker_without_rules_is_not_even_asked(hand: HandBroker) -> None:
    assert not hand.broker.faults.is_active
    rule = hand.broker.faults.drop("Metadata")
    assert hand.broker.faults.is_active
    rule.remove()
    assert not hand.broker.faults.is_active


@pytest.mark.parametrize("api", ["Heartbeat", "heartbeat", "HeartbeatRequest", 12, HeartbeatRequest, [1, 12], "*"])
def test_an_api_is_named_as_one_likes(hand: HandBroker, api: Any) -> None:
    rule = hand.broker.faults.close(api)
    assert hand.send(heartbeat(), 4).hang_up
    assert rule.hits == 1


def test_all_conditions_have_to_hold(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    other = ConnectionContext("10.0.0.1", 5)
    matching: dict[str, Any] = {
        "version": (3, 9), "topic": "t", "partition": 1, "client_id": "hand", "peer": "10.0.0.1:5",
        "connection": other.number,
    }  # fmt: skip
    differing: dict[str, Any] = {
        "version": 8, "topic": "u", "partition": 2, "client_id": "foot", "peer": 6, "connection": other.number + 1,
    }  # fmt: skip
    faults = hand.broker.faults
    misses = [faults.close("Produce", **{**matching, name: value}) for name, value in differing.items()]
    hit = faults.close("Produce", **matching)
    assert hand.send(produce_request("t", batch(), 1), 9, other).hang_up
    assert hit.hits == 1
    assert [rule.seen for rule in misses] == [0] * len(misses)


@pytest.mark.parametrize(
    ("which", "struck"),
    [
        ({"nth": 3}, [3]),
        ({"first": 2}, [1, 2]),
        ({"every": 3}, [3, 6, 9]),
        ({}, list(range(1, 11))),
        ({"probability": 0.0}, []),
        ({"probability": 1.0}, list(range(1, 11))),
    ],
)
def test_of_the_matching_requests_those_are_struck_that_the_rule_says(
    hand: HandBroker, which: dict[str, Any], struck: list[int]
) -> None:
    rule = hand.broker.faults.close("Heartbeat", **which)
    found = []
    for number in range(1, 11):
        before = rule.hits
        hand.send(NOTHING, connection=ConnectionContext())
        assert hand.send(heartbeat(), 4, ConnectionContext()).hang_up or rule.hits == before
        found += [number] * (rule.hits - before)
    assert found == struck
    assert (rule.seen, rule.hits) == (10, len(struck))


def test_of_two_rules_that_end_a_request_the_older_one_alone_has_struck(hand: HandBroker) -> None:
    """Who waits for the second to strike, to take the first away, would otherwise have waited for nothing."""
    hand.create_topic("t", 2)
    faults = hand.broker.faults
    for ends, which in [(faults.close, {}), (faults.drop, {}), (lambda api: faults.answer(api, 27), {"nth": 2})]:
        first, second = ends("Heartbeat"), faults.answer("Heartbeat", 14, **which)
        hand.send(heartbeat(), 4, ConnectionContext())
        assert [(rule.seen, rule.hits) for rule in (first, second)] == [(1, 1), (1, 0)]
        first.remove()
        assert hand.ask(heartbeat(), 4).error_code == 14
        assert second.hits == 1
        faults.clear()
    for api, ask, struck in [
        ("Produce", lambda: hand.ask(produce_two(), 9), 0),
        ("Fetch", lambda: hand.ask(fetch_request("t", (0, 0)), 12), 1),
    ]:
        parts = [faults.answer(api, NOT_LEADER, partition=number) for number in (0, 1)]
        rest = faults.answer(api, NOT_LEADER)
        last = faults.answer(api, 7)
        ask()
        assert [rule.hits for rule in parts] == [1, 1], "each has its part of the request"
        assert (rest.hits, last.hits) == (1, struck), "what changes nothing is handled whole, and each answers"
        faults.clear()


def test_the_same_seed_strikes_the_same(hand: HandBroker) -> None:
    rules = [hand.broker.faults.delay("Heartbeat", 0, probability=0.5, seed=seed) for seed in (7, 7, 8)]
    history = []
    for _ in range(64):
        hand.send(heartbeat(), 4)
        history.append([rule.hits for rule in rules])
    assert all(first == second for first, second, _ in history)
    assert any(first != third for first, _, third in history)


def test_a_topic_that_is_named_by_its_id_is_found_by_its_name(hand: HandBroker) -> None:
    topic_id = hand.create_topic("t")
    hand.create_topic("u")
    hand.broker.faults.answer("Fetch", NOT_LEADER, topic="t")
    assert fetched(hand.ask(fetch_request(topic_id=topic_id), 13))[0].error_code == NOT_LEADER


@pytest.mark.parametrize(("version", "topics"), [(0, []), (12, None)])
def test_who_asks_for_all_topics_asks_for_each(
    hand: HandBroker, version: int, topics: list[MetadataRequest.MetadataRequestTopic] | None
) -> None:
    for name in "tu":
        hand.create_topic(name)
    hand.broker.faults.answer("Metadata", 29, topic="t")
    hand.broker.faults.close("Metadata", topic="v")
    answer = hand.ask(MetadataRequest(topics=topics), version)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"t": 29, "u": 0}
    assert hand.ask(MetadataRequest(topics=[]), 12).topics == []


def test_what_a_fetch_session_remembers_is_struck_too(hand: HandBroker) -> None:
    topic_id = hand.create_topic("t", 2)
    first = hand.ask(fetch_request(offsets=(0, 0), topic_id=topic_id, session=(0, 0)), 13)
    assert first.session_id
    rule = hand.broker.faults.answer("Fetch", NOT_LEADER, topic="t", partition=1, nth=1)
    nothing_new = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, session_id=first.session_id, session_epoch=1, topics=[]
    )
    (refused,) = fetched(hand.ask(nothing_new, 13))
    assert (refused.partition_index, refused.error_code) == (1, NOT_LEADER)
    assert rule.hits == 1
    hand.produce("t", batch(b"x"), 1)
    again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=2, topics=[])
    assert [values(one.records) for one in fetched(hand.ask(again, 13)) if one.records] == [[b"x"]], "it goes on"


def test_requests_name_their_topics_in_many_ways() -> None:
    def topic_name(topic_id: UUID) -> str | None:
        return "by id" if topic_id == A_TOPIC else None

    assert list(targets(produce_two(), topic_name)) == [Target("t", 0), Target("t", 1)]
    assert list(targets(fetch_request(topic_id=A_TOPIC), topic_name)) == [Target("by id", 0)]
    assert list(targets(MetadataRequest(topics=None), topic_name)) == []
    moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[2])
    moves = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/d", topics=[moved])])
    assert list(targets(moves, topic_name)) == [Target("t", 2)], "in a list of something else"
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, member_id="", protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    assert list(targets(join, topic_name)) == [], "a protocol's name is no topic"


def metadata_of(*names: str) -> ReceivedRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return ReceivedRequest(MetadataRequest(topics=topics), 12, 1, "c")


def test_the_log_of_requests_has_a_bound_in_number_and_in_bytes() -> None:
    requests, connection = RequestLog(most=3, most_bytes=100_000), ConnectionContext()
    for number in range(5):
        requests.add(connection, metadata_of(f"t{number}"), 0.0, lambda _: None)
    assert [(seen.number, seen.topics) for seen in requests.requests] == [(3, ("t2",)), (4, ("t3",)), (5, ("t4",))]
    requests.add(connection, metadata_of("x" * 60_000), 0.0, lambda _: None)
    requests.add(connection, metadata_of("y" * 60_000), 0.0, lambda _: None)
    assert [seen.number for seen in requests.requests] == [7], "two of them would take more"
    requests.add(connection, metadata_of(*[f"{number}" for number in range(20_000)]), 0.0, lambda _: None)
    (last,) = requests.requests
    assert len(last.partitions) == MAX_TARGETS, "always the last one"
    assert requests.count == 8


# -- errors ----------------------------------------------------------------------------------------------------------


def sample(cls: type[Struct], version: int) -> Any:
    """A structure with one entry in each list."""
    made: dict[str, Any] = {}
    for field in fields_of(cls):
        if not field.spec.present(version):
            made[field.name] = field.implicit
        elif field.type.cls is not None:
            below = sample(field.type.cls, version)
            made[field.name] = [below] if field.type.array else below
        else:
            kind = field.type.kind
            text = "t" if kind == "string" else b"" if kind in ("bytes", "records") else field.implicit
            value = A_TOPIC if kind == "uuid" else 3 if kind in ("int8", "int16", "int32", "int64") else text
            made[field.name] = [value] if field.type.array else value
    return cls(**made)


def codes_in(struct: Any) -> list[int]:
    """All error codes that are set, wherever they stand."""
    found = []
    for name in struct.fields:
        value = getattr(struct, name)
        if name in ("error_code", "partition_error_code") and value:
            found.append(value)
        for entry in value if isinstance(value, list) else ():
            if isinstance(entry, Struct):
                found += codes_in(entry)
    return found


@pytest.mark.parametrize("key", sorted(REGISTRY), ids=lambda key: REGISTRY[key].name)
def test_every_version_of_every_answer_takes_an_error_code_where_it_has_one(key: int) -> None:
    api = REGISTRY[key]
    for version in range(api.min_version, api.max_version + 1):
        request = decode(api.request, encode(sample(api.request, version), version), version)
        refused = ErrorResponse(request, version, 15, topic_name=lambda _: "t")
        if refused.level is None:
            assert not error_levels(api.response)
            continue
        shown = decode(api.response, encode(refused.response(), version), version)
        assert codes_in(shown) == [15], f"v{version}: {shown}"


@pytest.mark.parametrize("error", [6, "NOT_LEADER_OR_FOLLOWER", NotLeaderForPartitionError])
def test_a_refused_request_changes_nothing(hand: HandBroker, error: Any) -> None:
    hand.create_topic("t")
    hand.broker.faults.answer("Produce", error, nth=1)
    refused = hand.produce("t", batch(b"a"))
    assert (refused.index, refused.error_code, refused.base_offset) == (0, NOT_LEADER, -1)
    assert hand.produce("t", batch(b"b")).base_offset == 0
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [b"b"]


def test_one_partition_is_refused_and_the_others_are_served(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    hand.broker.faults.answer("Produce", NOT_LEADER, topic="t", partition=0)
    assert codes(hand.ask(produce_two(), 9)) == {0: NOT_LEADER, 1: 0}
    zero, one = fetched(hand.ask(fetch_request("t", (0, 0)), 12))
    assert (values(zero.records), values(one.records)) == ([], [b"one"])


def test_one_partition_of_a_fetch_is_refused_and_the_others_are_read(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    hand.ask(produce_two(), 9)
    hand.broker.faults.answer("Fetch", NOT_LEADER, partition=0)
    zero, one = fetched(hand.ask(fetch_request("t", (0, 0)), 12))
    assert (zero.error_code, zero.high_watermark, values(zero.records)) == (NOT_LEADER, -1, [])
    assert (one.error_code, values(one.records)) == (0, [b"one"])


def test_an_error_after_handling_hides_what_was_done(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.answer("Produce", 7, when="after", nth=1)
    assert hand.produce("t", batch(b"a")).error_code == 7
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [b"a"]


def test_a_metadata_answer_keeps_its_brokers_when_a_topic_is_refused(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.create_topic("u")
    hand.broker.faults.answer("Metadata", 29, topic="t")
    answer = hand.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in "tu"]))
    assert answer.brokers
    assert {topic.name: topic.error_code for topic in answer.topics} == {"t": 29, "u": 0}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_topic_that_is_refused_is_in_the_answer_once(hand: HandBroker, when: str) -> None:
    """The request has its name, the answer its name and its id."""
    topic_id = hand.create_topic("t")
    hand.broker.faults.answer("Metadata", 29, topic="t", when=when)
    answer = hand.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [("t", topic_id, 29)]


def test_one_topic_of_those_whose_settings_are_described_is_refused(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.create_topic("u")
    hand.broker.faults.answer("DescribeConfigs", 29, topic="t")
    wanted = [(2, "t"), (2, "u"), (4, "1")]
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in wanted
    ]
    answer = hand.ask(DescribeConfigsRequest(resources=resources))
    assert [(one.resource_type, one.resource_name) for one in answer.results] == wanted
    assert [one.error_code for one in answer.results] == [29, 0, 0]


def test_a_coordinator_can_be_reported_elsewhere(hand: HandBroker) -> None:
    hand.broker.faults.answer("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    for version, request in ((3, FindCoordinatorRequest(key="g")), (4, FindCoordinatorRequest(coordinator_keys=["g"]))):
        answer = hand.ask(request, version)
        found = [(answer.error_code, answer.node_id), *((one.error_code, one.node_id) for one in answer.coordinators)]
        assert (15, -1) in found


def test_a_refused_heartbeat_is_about_no_member_as_in_kafka(hand: HandBroker) -> None:
    hand.broker.faults.answer("ConsumerGroupHeartbeat", 25)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    answer = hand.ask(request, 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (25, None, 0)


def test_a_response_of_ones_own_is_given_each_time_anew(hand: HandBroker) -> None:
    hand.broker.faults.answer("Heartbeat", HeartbeatResponse(error_code=27, throttle_time_ms=3))
    hand.broker.faults.throttle("Heartbeat", 1, nth=1, mute=False)
    assert [hand.ask(heartbeat(), 4).throttle_time_ms for _ in range(2)] == [1000, 3]


def test_api_versions_that_are_refused_come_in_version_0(hand: HandBroker) -> None:
    hand.broker.faults.answer("ApiVersions", 35)
    assert hand.send(ApiVersionsRequest(), 4).version == 0


def test_a_produce_without_an_answer_is_refused_by_the_end_of_its_connection(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.answer("Produce", NOT_LEADER)
    assert hand.send(produce_request("t", batch(), acks=0), 9).hang_up


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_late_answer_was_handled_in_time(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.delay("Produce", 5)
    late = hand.send(produce_request("t", batch(b"a")), 9)
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [b"a"]
    hand.advance(4.9)
    assert not late.done
    hand.advance(0.2)
    assert late.done


def test_a_late_request_is_handled_late_even_when_its_client_has_gone(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.delay("Produce", 5, when="before", nth=1)
    connection = ConnectionContext()
    hand.send(produce_request("t", batch(b"late")), 9, connection)
    hand.broker.disconnected(connection, hand.now)
    hand.produce("t", batch(b"second"))
    hand.advance(5)
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [b"second", b"late"]


def test_delays_add_up(hand: HandBroker) -> None:
    for when in ("before", "after"):
        for _ in range(2):
            hand.broker.faults.delay("Metadata", 1, when=when)
    reply = hand.send(NOTHING)
    hand.advance(3.9)
    assert not reply.done
    hand.advance(0.2)
    assert reply.done


def test_a_throttled_connection_is_muted_and_others_are_not(hand: HandBroker) -> None:
    hand.broker.faults.throttle("Metadata", 2, nth=1)
    assert hand.ask(NOTHING).throttle_time_ms == 2000
    waiting = hand.send(NOTHING)
    assert hand.send(NOTHING, connection=ConnectionContext()).done
    hand.advance(1.9)
    assert not waiting.done
    hand.advance(0.2)
    assert waiting.done
    assert hand.send(NOTHING).done


def test_what_throttles_any_request_lets_responses_without_the_field_be(hand: HandBroker) -> None:
    rule = hand.broker.faults.throttle("*", 2)
    quorum = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="t", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    assert hand.ask(quorum).error_code == 0
    waiting = hand.send(NOTHING)
    assert not waiting.done, "the connection is muted all the same"
    hand.advance(2)
    assert hand.answer(NOTHING, waiting).throttle_time_ms == 2000
    assert rule.hits == 2


def test_a_throttled_connection_that_has_gone_is_forgotten(hand: HandBroker) -> None:
    connection = ConnectionContext()
    rule = hand.broker.faults.throttle("JoinGroup", 2)
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    hand.send(request, 3, connection)
    hand.broker.disconnected(connection, hand.now)
    hand.advance(4)  # the join is over, and nobody is there to be answered
    assert rule.hits == 1
    rule.remove()
    hand.advance(3)
    assert not hand.broker.faults.is_active


def test_a_dropped_request_is_never_answered(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.drop("Produce", when="after", first=1)
    hand.broker.faults.drop("Produce", first=2)
    replies = [hand.send(produce_request("t", batch(b"%d" % n)), 9, ConnectionContext()) for n in range(2)]
    hand.advance(1000)
    assert not any(reply.done or reply.hang_up for reply in replies)
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [], "the older of two rules ends it"


def test_a_dropped_produce_that_nobody_waits_for_holds_nothing_up(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.broker.faults.drop("Produce")
    assert hand.send(produce_request("t", batch(), acks=0), 9).done


def test_without_a_process_there_is_nothing_to_kill(hand: HandBroker) -> None:
    with pytest.raises(IllegalArgumentError, match="no process of its own"):
        hand.broker.faults.kill("Produce")
    killed: list[int] = []
    hand.broker.faults.attach(lambda: None, lambda: killed.append(1))
    hand.create_topic("t")
    hand.broker.faults.kill("Produce", when="after")
    assert not hand.send(produce_request("t", batch()), 9).done
    assert killed == [1]


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_corrupt_records_are_noticed_by_their_crc_and_by_nothing_else(hand: HandBroker) -> None:
    hand.create_topic("t")
    for value in (b"a", b"b"):
        hand.produce("t", batch(value))
    hand.broker.faults.corrupt("Fetch", nth=1)
    damaged = bytes(fetched(hand.ask(fetch_request("t"), 12))[0].records)  # type: ignore[arg-type]
    whole = bytes(fetched(hand.ask(fetch_request("t"), 12))[0].records)  # type: ignore[arg-type]
    assert len(damaged) == len(whole)
    headers = list(iter_batches(damaged, check_crcs=False))
    assert [header.base_offset for header in headers] == [0, 1]
    for header in headers:
        with pytest.raises(CorruptRecordError):
            check_crc(damaged, header)
    assert values(whole) == [b"a", b"b"]


def test_a_batch_that_is_damaged_on_its_way_is_refused(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    hand.broker.faults.corrupt("Produce", partition=1)
    assert codes(hand.ask(produce_two(), 9)) == {0: 0, 1: 2}


def test_bytes_are_changed_cut_and_cut_off() -> None:
    frame = (10).to_bytes(4, "big") + bytes(range(10))
    assert truncate_frame(frame, 4) == (4).to_bytes(4, "big") + bytes(range(4))
    assert truncate_frame(frame, 0.5) == (5).to_bytes(4, "big") + bytes(range(5))
    assert truncate_bytes(frame, None) == frame[:7]
    changed = corrupt_bytes(frame, 8, 3, random.Random(1))
    assert sum(one != other for one, other in zip(frame, changed, strict=True)) == 3
    assert changed[:8] == frame[:8]
    one = batch(b"a")
    assert corrupt_batches(one + one[:-1], 1, random.Random(1))[len(one) :] == one[:-1], "what is cut stays"


# -- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda f: f.drop("Prodcue"), "no API is called 'Prodcue'; did you mean Produce?"),
        (lambda f: f.drop(999), "no API has the key 999"),
        (lambda f: f.drop(HeartbeatResponse), "not <class"),
        (lambda f: f.drop([]), "'\\*' is any"),
        (lambda f: f.answer("Produce", "NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER?"),
        (lambda f: f.answer("Produce", KeyError), "an error is a code"),
        (lambda f: f.answer("Produce", HeartbeatResponse(error_code=1)), "is answered with ProduceResponse"),
        (lambda f: f.answer("Metadata", 3, when="during"), "when is 'before' or 'after', not 'during'"),
        (lambda f: f.answer("Metadata", 3, nth=1, first=2), "nth and first exclude one another"),
        (lambda f: f.drop("Metadata", nth=0), "nth is a whole number from 1 on"),
        (lambda f: f.drop("Metadata", probability=2), "from 0 to 1"),
        (lambda f: f.drop("Heartbeat", topic="t"), "Heartbeat names no topics"),
        (lambda f: f.drop("CreateTopics", partition=1), "CreateTopics names no partitions"),
        (lambda f: f.drop("Heartbeat", version=99), "Heartbeat has versions 0 to 4, not 99"),
        (lambda f: f.drop("Heartbeat", version=(3, 1)), "two of them"),
        (lambda f: f.drop("Heartbeat", topics="t"), "no condition 'topics'; did you mean topic?"),
        (lambda f: f.drop("Heartbeat", apis=[3]), "no condition 'apis'"),
        (lambda f: f.delay("Heartbeat", -1), "seconds are a number from 0 on"),
        (lambda f: f.corrupt("Heartbeat"), "Heartbeat carries no records; say what='answer'"),
        (lambda f: f.corrupt("Heartbeat", what="bytes"), "'records' or 'answer'"),
        (lambda f: f.corrupt("Heartbeat", what="answer", count=-1), "count is a whole number from 1 on, not -1"),
        (lambda f: f.corrupt("Heartbeat", what="answer", seed="one"), "a seed is a whole number"),
        (lambda f: f.drop("Metadata", topic=5), "topic is a text, not 5"),
        (lambda f: f.truncate("Heartbeat", keep=1.5), "a part of the whole below 1"),
        (lambda f: f.throttle("SaslHandshake", 1), "no throttle_time_ms"),
        (lambda f: f.close("Heartbeat", keep=3), "keep needs when='during'"),
    ],
)
def test_wrong_use_is_reported_at_the_call_in_one_line(hand: HandBroker, make: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as caught:
        make(hand.broker.faults)
    assert "\n" not in str(caught.value)
    assert hand.broker.faults.rules == []


def test_every_action_has_its_call() -> None:
    from kafka.broker.faults import FaultRuleBuilder

    calls = {name for name in vars(FaultRuleBuilder) if not name.startswith("_")} - {"add"}
    assert calls == set(ACTIONS)


def test_a_rule_comes_through_json_unchanged() -> None:
    records = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic="t",
                topic_id=A_TOPIC,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=0, error_code=0, high_watermark=1, records=batch(), aborted_transactions=None
                    )
                ],
            )
        ]
    )
    for rule in (
        make_rule("answer", "Fetch", response=records, topic="t", version=(4, 12), nth=2),
        make_rule("answer", ["Fetch", "Produce"], error=6, client_id="c", every=3),
        make_rule("close", "*", when="during", keep=0.25, reset=True, peer=5, probability=0.5, seed=9),
    ):
        assert Rule.from_json(json.loads(json.dumps(rule.to_json()))) == rule


def test_requests_are_recorded_when_somebody_wants_them(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    log = hand.broker.faults.record()
    hand.ask(produce_two(), 9)
    hand.send(heartbeat(), 4)
    produce, beat = log.requests
    assert (produce.api, produce.version, produce.client_id, produce.topics) == ("Produce", 9, "hand", ("t",))
    assert produce.partitions == (Target("t", 0), Target("t", 1))
    assert (produce.number + 1, beat.api) == (beat.number, "Heartbeat")
    assert type(produce).from_json(json.loads(json.dumps(produce.to_json()))) == produce
