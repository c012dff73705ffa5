"""Each release that the broker plays, seen from outside: over real sockets where bytes and silence count, by hand where
answers do. What is asserted was measured on brokers of these releases; ``test/cli/test_check_version.py`` compares the
table with real ones."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.emulation import FEATURE_NEEDS, LATEST, RELEASES, Release, find_release
from kafka.broker.registry import RequestContext, load
from kafka.cli import main
from kafka.core.versions import OLD_RANGES
from kafka.protocol.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.configs import DescribeConfigsRequest
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kafka.protocol.framing import decode_response
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, HeartbeatRequest, ListGroupsRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.share import (
    DescribeShareGroupOffsetsRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.records import GZIP, NONE, decode_raw, encode_message_set, iter_batches
from kafka.testing import EmbeddedBroker
from kafka.wire.codec import encode
from kafka.wire.message import Request
from test.broker.driver import HandBroker, batch, fetch_request, fetched, plain, produce_request
from test.records.test_message_set import SAMPLE

SILENCE_S = 0.3
"""How long a connection is listened to before its silence is believed."""

ZOOKEEPER = [name for name, release in RELEASES.items() if release.has_zookeeper]
BEFORE_API_VERSIONS = list(OLD_RANGES)
SINCE_API_VERSIONS = [name for name in RELEASES if name not in OLD_RANGES]

Start = Callable[[str], HandBroker]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Start]:
    """A broker by hand that plays a release."""
    started: list[HandBroker] = []

    def start(release: str) -> HandBroker:
        started.append(HandBroker(tmp_path / f"data-{len(started)}", release=release))
        return started[-1]

    yield start
    for hand in started:
        hand.broker.close()


# -- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [(name, name) for name in RELEASES]
    + [(release.recorded, name) for name, release in RELEASES.items()]
    + [("0.10.0.0", "0.10"), ("4.3.17", "4.3"), (" 2.8.2 ", "2.8")],
)
def test_a_release_goes_by_its_name_and_by_every_patch_of_it(text: str, name: str) -> None:
    assert find_release(text).name == name


@pytest.mark.parametrize("text", ["", "0", "0.8", "0.80", "0.8.3", "4", "4.30", "5.0", "4.3.x", "4.3-rc1", "latest"])
def test_an_unknown_release_is_named_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"no release .* 0\.8\.0, 0\.8\.1, 0\.8\.2, 0\.9, .*, 4\.1, 4\.3$"):
        find_release(text)


def test_the_command_refuses_an_unknown_release_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["broker", "--data-dir", str(tmp_path / "d"), "--emulate", "0.8"]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == "" and "--emulate" in line and "0.8.1" in line and "4.3" in line
    assert not (tmp_path / "d").exists()


def test_a_test_broker_refuses_an_unknown_release_before_it_starts() -> None:
    with pytest.raises(ValueError, match="no release '0.7'"):
        EmbeddedBroker(emulate="0.7")


@pytest.mark.parametrize("name", BEFORE_API_VERSIONS)
def test_the_table_has_what_our_client_takes_old_releases_for(name: str) -> None:
    release = RELEASES[name]
    assert {key: told for key, told in release.apis.items() if key not in release.refused} == OLD_RANGES[name]


def test_every_feature_of_the_table_has_apis_of_the_releases() -> None:
    for release in RELEASES.values():
        assert set(release.finalized) <= set(release.supported)
        for feature, level in release.finalized.items():
            least, most = release.supported[feature]
            assert least <= level <= most
            assert FEATURE_NEEDS.get(feature, 18) in release.apis


# -- version probes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELEASES)
def test_check_version_takes_it_for_the_release_that_it_plays(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker(in_process=True, emulate=name) as broker:
        assert main(["check-version", broker.bootstrap, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["release"] == {"0.10": "0.10.2"}.get(name, name)  # 0.10.2.2 was recorded
    assert found["inferred"] == (name not in OLD_RANGES)
    ranges = {api["key"]: (api["min"], api["max"]) for api in found["apis"]}
    release = RELEASES[name]
    if name in OLD_RANGES:
        assert ranges == OLD_RANGES[name]
    else:
        assert ranges == {key: told for key, told in release.apis.items() if key in load()}
        assert found["features"].items() <= {k: [v, v] for k, v in release.finalized.items()}.items()


def test_a_broker_in_a_process_of_its_own_plays_too(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(emulate="0.8.1.1") as broker:
        assert main(["check-version", broker.bootstrap]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "0.8.1"


class Wire:
    """One connection on which bytes are sent and anything may come back."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)

    def send(self, key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> None:
        frame = struct.pack(">hhih", key, version, correlation_id, -1) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """The next frame; None when the connection has ended. TimeoutError when nothing comes."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(int.from_bytes(head, "big"))
        except ConnectionResetError:
            return None

    def is_silent(self) -> bool:
        self.socket.settimeout(SILENCE_S)
        try:
            return self.receive() == b"never"
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return data


@pytest.fixture(scope="module", params=list(RELEASES))
def played(request: pytest.FixtureRequest) -> Iterator[tuple[Release, int]]:
    """A release and the port of a broker that plays it."""
    with EmbeddedBroker(in_process=True, emulate=request.param) as broker:
        yield RELEASES[request.param], broker.port


@pytest.fixture
def wire(played: tuple[Release, int]) -> Iterator[Wire]:
    made = Wire(played[1])
    yield made
    made.socket.close()


@pytest.fixture
def release(played: tuple[Release, int]) -> Release:
    return played[0]


UNKNOWN = [
    pytest.param(key, version, body, id=f"{key}-v{version}")
    for key, version, body in (
        (200, 0, b""), (-1, 0, b""), (4, 0, bytes(4)), (16, 99, bytes(4)), (10, 99, bytes(1)), (8, 99, bytes(4)),
    )
]  # fmt: skip


@pytest.mark.parametrize(("key", "version", "body"), UNKNOWN)
def test_an_unknown_request_ends_the_connection_or_gets_silence(
    release: Release, wire: Wire, key: int, version: int, body: bytes
) -> None:
    wire.send(key, version, body)
    if release.name == "0.9":
        assert wire.is_silent()
        wire.send(3, 0, struct.pack(">i", 0), 8)
        answer = wire.receive()
        assert answer is not None and answer[:4] == b"\0\0\0\x08"  # and the connection goes on
    else:
        assert wire.receive() is None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 99])
def test_api_versions_is_answered_refused_or_unknown_as_in_the_release(
    release: Release, wire: Wire, version: int
) -> None:
    wire.send(18, version, b"" if version < 3 else b"\0\4foo\2" + b"1\0")
    if release.name in BEFORE_API_VERSIONS:
        assert wire.is_silent() if release.name == "0.9" else wire.receive() is None
        return
    answer = wire.receive()
    assert answer is not None
    newest = release.apis[18][1]
    if version <= newest:
        found = decode_response(ApiVersionsResponse, version, answer)
        assert found.error_code == 0
        versions_by_key = {row.api_key: (row.min_version, row.max_version) for row in found.api_keys}
        assert versions_by_key == {key: range_ for key, range_ in release.apis.items() if key in load()}
    elif release.name in ("0.10", "0.11", "1.1"):
        assert answer.hex() == "00000007" + "0023" + "00000000"
    else:
        assert answer.hex() == "00000007" + "0023" + "00000001" + "00120000" + struct.pack(">h", newest).hex()


@pytest.mark.parametrize(
    ("played", "key"),
    [(name, key) for name, release in RELEASES.items() for key in release.reads_as_newest if key in load()],
    indirect=["played"],
)
def test_old_releases_read_any_version_as_the_newest_that_they_have(release: Release, wire: Wire, key: int) -> None:
    newest = release.apis[key][1]
    request = MINIMAL[key]
    body = encode(request, newest)
    frames = []
    for version in (newest, newest + 1, 77):
        wire.send(key, version, body)
        frames.append(wire.receive())
    assert None not in frames
    _, second, third = (decode_response(request.response_type(), newest, frame or b"") for frame in frames)
    assert second == third  # the first Metadata makes the topic


def test_0_9_passes_over_a_request_that_makes_no_sense(release: Release, wire: Wire) -> None:
    wire.send(3, 0, struct.pack(">i", 1000))
    if release.name == "0.9":
        assert wire.is_silent()
    else:
        assert wire.receive() is None


# -- what is served --------------------------------------------------------------------------------------------------

_OFFSET_COMMIT = OffsetCommitRequest(
    group_id="g",
    generation_id_or_member_epoch=-1,
    member_id="",
    topics=[
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=3, committed_metadata="m"
                )
            ],
        )
    ],
)
_OFFSET_FETCH = OffsetFetchRequest(
    group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
)
_LIST_OFFSETS = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsRequest.ListOffsetsTopic(
            name="t", partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
    ],
)
_EPOCHS = OffsetForLeaderEpochRequest(
    topics=[
        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic="t",
            partitions=[OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
        )
    ]
)
_CREATE = CreateTopicsRequest(
    topics=[
        CreateTopicsRequest.CreatableTopic(
            name="made", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
    ]
)
MINIMAL: dict[int, Request[Any]] = {
    0: ProduceRequest(acks=1, timeout_ms=1, topic_data=[]),
    1: fetch_request("t"),
    2: _LIST_OFFSETS,
    3: MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True),
    8: _OFFSET_COMMIT,
    9: _OFFSET_FETCH,
    10: FindCoordinatorRequest(key="g"),
    12: HeartbeatRequest(group_id="g", generation_id=0, member_id="m"),
    16: ListGroupsRequest(),
    18: ApiVersionsRequest(client_software_name="t", client_software_version="1"),
    19: _CREATE,
    20: DeleteTopicsRequest(topic_names=["nothing"], timeout_ms=1),
    23: _EPOCHS,
    32: DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=2, resource_name="t", configuration_keys=None
            )
        ]
    ),
    29: DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1,
        permission_type=1,
    ),
    30: CreateAclsRequest(creations=[]),
    31: DeleteAclsRequest(filters=[]),
    34: AlterReplicaLogDirsRequest(dirs=[]),
    35: DescribeLogDirsRequest(topics=[]),
    38: CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1),
    39: RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
    40: ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
    41: DescribeDelegationTokenRequest(owners=None),
}  # fmt: skip
"""API key -> a request that fits its old versions."""

ERRORS = {20: [3], 29: [54], 38: [64], 39: [64], 40: [64], 41: [64]}
"""API key -> what is answered to that: there is no such topic, no authorizer, no token over a plain connection."""

OLD_VERSIONS = [
    pytest.param(name, key, version, id=f"{name}-{key}-v{version}")
    for name, release in RELEASES.items()
    for key, (least, most) in release.apis.items()
    if key in MINIMAL and key not in release.refused
    for version in range(least, min(most, RELEASES[LATEST].apis[key][0] - 1) + 1)
]


@pytest.mark.parametrize(("name", "key", "version"), OLD_VERSIONS)
def test_versions_that_apache_kafka_4_dropped_are_served(play: Start, name: str, key: int, version: int) -> None:
    hand = play(name)
    metadata(hand, "t")
    answer = hand.ask(MINIMAL[key], version)
    errors = [code for code in _codes(answer) if code]
    if RELEASES[name].has_zookeeper and (key, version) == (9, 0):
        assert errors == [3, 3]  # nothing committed
    elif not RELEASES[name].has_zookeeper and key in (8, 9) and version == 0:
        assert set(errors) == {35}
    else:
        assert errors == ERRORS.get(key, [])


def _codes(struct_: Any) -> Iterator[int]:
    """Every error code in a message."""
    for name in struct_.fields:
        value = getattr(struct_, name)
        if name == "error_code":
            yield value
        for one in value if isinstance(value, list) else ():
            if hasattr(one, "fields"):
                yield from _codes(one)


@pytest.mark.parametrize("name", RELEASES)
def test_a_version_that_the_release_lacks_is_not_served_though_a_handler_has_it(play: Start, name: str) -> None:
    hand = play(name)
    release = RELEASES[name]
    for key, handler in load().items():
        least, most = release.apis.get(key, (99, -1))
        for version in range(handler.min_version, handler.max_version + 1):
            is_served = hand.broker.release.handler(key, version) is not None
            assert is_served == (max(least, release.served_from.get(key, 0)) <= version <= most)


@pytest.mark.parametrize("name", RELEASES)
def test_records_go_through_in_the_versions_of_the_release(play: Start, name: str) -> None:
    hand = play(name)
    release = RELEASES[name]
    ask: Callable[[Request[Any], int], Any] = hand.ask
    metadata(hand, "t")
    (topic,) = metadata(hand, "t").topics
    assert topic.error_code == 0
    newest_produce, newest_fetch = release.apis[0][1], release.apis[1][1]
    topic_id = hand.broker.topic("t").topic_id
    expected: list[bytes | None] = []
    for compression in (NONE, GZIP):
        if newest_produce < 3:
            data = encode_message_set(SAMPLE, 0 if newest_produce < 2 else 1, compression)
            expected += [record[3] for record in SAMPLE]
        else:
            data = batch(b"x", b"y")
            expected += [b"x", b"y"]
        request = produce_request("t", data)
        request.topic_data[0].topic_id = topic_id
        (found,) = ask(request, newest_produce).responses
        assert found.partition_responses[0].error_code == 0
    (part,) = fetched(ask(fetch_request("t", topic_id=topic_id), newest_fetch))
    records = plain(part.records)
    magic = 0 if newest_fetch < 2 else 1 if newest_fetch < 4 else 2
    assert {header.magic for header in iter_batches(records)} == {magic}
    assert [record[3] for header in iter_batches(records) for record in decode_raw(records, header)] == expected
    (end,) = ask(_LIST_OFFSETS, release.apis[2][1]).topics[0].partitions
    assert (end.old_style_offsets or [end.offset])[0] == len(expected)


def test_one_directory_may_be_played_by_one_release_after_the_other(tmp_path: Path) -> None:
    found: list[list[bytes | None]] = []
    for name in ("0.8.2", "4.3", "0.10", "2.8"):
        hand = HandBroker(tmp_path / "d", release=name)
        if name == "0.8.2":
            metadata(hand, "t")
        produce_version, fetch_version = (min(12, RELEASES[name].apis[key][1]) for key in (0, 1))
        data = batch(name.encode()) if produce_version > 2 else encode_message_set([(0, 1, None, name.encode(), [])], 0)
        assert hand.produce("t", data, version=produce_version).error_code == 0
        (part,) = fetched(hand.ask(fetch_request("t"), fetch_version))
        records = plain(part.records)
        found.append([one[3] for header in iter_batches(records) for one in decode_raw(records, header)])
        hand.broker.close()
    assert found[-1] == [b"0.8.2", b"4.3", b"0.10", b"2.8"]
    assert [len(values) for values in found] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", [name for name in RELEASES if 8 in RELEASES[name].apis])
def test_offsets_are_kept_in_all_versions_of_the_release(play: Start, name: str) -> None:
    hand = play(name)
    metadata(hand, "t")
    least, most = RELEASES[name].apis[8]
    for version in range(max(least, 0 if RELEASES[name].has_zookeeper else 1), min(most, 9) + 1):
        group = f"g{version}"
        _OFFSET_COMMIT.group_id = group
        (committed,) = hand.ask(_OFFSET_COMMIT, version).topics[0].partitions
        assert committed.error_code == 0
        least_fetch, most_fetch = RELEASES[name].apis[9]
        for fetch_version in range(max(least_fetch, 0 if RELEASES[name].has_zookeeper else 1), min(most_fetch, 7) + 1):
            _OFFSET_FETCH.group_id = group
            first, second = hand.ask(_OFFSET_FETCH, fetch_version).topics[0].partitions
            assert (first.committed_offset, first.error_code) == (3, 0)
            assert first.metadata == ("m" if fetch_version else "")
            assert (second.committed_offset, second.error_code) == (-1, 0 if fetch_version else 3)


# -- what looks different --------------------------------------------------------------------------------------------


def metadata(hand: HandBroker, *topics: str, version: int = 0) -> MetadataResponse:
    return hand.ask(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]), version
    )


@pytest.mark.parametrize("name", RELEASES)
def test_the_answer_that_makes_a_topic_says_what_the_release_says(play: Start, name: str) -> None:
    hand = play(name)
    codes = [metadata(hand, "new").topics[0].error_code for _ in range(2)]
    assert codes == [5 if name in ZOOKEEPER else 3, 0]


@pytest.mark.parametrize("name", RELEASES)
def test_a_topic_that_is_not_made_is_unknown_in_every_release(tmp_path: Path, name: str) -> None:
    hand = HandBroker(tmp_path / "d", {"auto.create.topics.enable": "false"}, release=name)
    assert metadata(hand, "new").topics[0].error_code == 3
    hand.broker.close()


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("topic", ["bad name/", "x" * 260])
def test_an_impossible_name_has_the_releases_error(play: Start, name: str, topic: str) -> None:
    assert metadata(play(name), topic).topics[0].error_code == (-1 if name in ("0.8.0", "0.8.1") else 17)


@pytest.mark.parametrize("name", RELEASES)
def test_before_0_8_2_only_brokers_of_the_topics_asked_for_are_named(play: Start, name: str) -> None:
    hand = play(name)
    is_early = name in ("0.8.0", "0.8.1")
    assert len(metadata(hand).brokers) == (0 if is_early else 1)
    assert len(metadata(hand, "new").brokers) == (0 if is_early else 1)
    assert len(metadata(hand, "new").brokers) == 1
    assert len(metadata(hand).brokers) == 1


def test_0_8_2_knows_heartbeats_and_cannot_answer_them(play: Start) -> None:
    if 12 not in load():
        pytest.skip("Heartbeat has no handler in this broker")
    assert play("0.8.2").ask(MINIMAL[12], 0).error_code == -1


def test_3_9_lists_new_groups_and_refuses_them(play: Start) -> None:
    hand = play("3.9")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    answer = hand.broker.release.refusal(RequestContext(request, 0, "hand", hand.connection, hand.now))
    assert getattr(answer, "error_code", None) == 35
    assert "group.version" not in dict(hand.broker.release.finalized_features())


SHARES_REFUSED: list[tuple[Request[Any], int]] = [
    (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]), 1),
    (ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1),
    (
        ShareFetchRequest(
            group_id="g", member_id="m", share_session_epoch=0, max_wait_ms=0, min_bytes=0, max_bytes=1, max_records=1,
            batch_size=1, topics=[], forgotten_topics_data=[],
        ),
        1,
    ),
    (
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        ),
        0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "version"), SHARES_REFUSED, ids=lambda value: type(value).__name__)
def test_4_1_has_share_groups_switched_off(play: Start, request_: Request[Any], version: int) -> None:
    hand = play("4.1")
    if hand.broker.release.handler(request_.api_key, version) is None:
        pytest.skip(f"{type(request_).__name__} has no handler in this broker")
    assert list(_codes(hand.ask(request_, version))) == [35]


def test_4_1_has_no_coordinators_of_shares_and_others_as_ever(play: Start) -> None:
    hand = play("4.1")
    share = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
    (found,) = hand.ask(share, 6).coordinators
    assert (found.error_code, found.node_id, found.port) == (15, -1, -1)
    (found,) = hand.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6).coordinators
    assert found.error_code == 0


@pytest.mark.parametrize("name", SINCE_API_VERSIONS)
def test_features_are_those_of_the_release(play: Start, name: str) -> None:
    hand = play(name)
    release = RELEASES[name]
    version = release.apis[18][1]
    answer = hand.ask(MINIMAL[18], version)
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    assert finalized.items() <= release.finalized.items()
    assert ("share.version" in finalized) == (name == "4.3")
    if release.finalized:
        assert finalized["metadata.version"] == release.finalized["metadata.version"]
    if version >= 3:
        assert (answer.finalized_features_epoch >= 0) == (release.features_epoch >= 0)
    assert all(row.min_version for row in hand.ask(MINIMAL[18], min(version, 3)).supported_features)
