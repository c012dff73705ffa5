from __future__ import annotations

from kafka.broker.groups.classic_group import ClassicGroup, ClassicState
from kafka.broker.groups.consumer_protocol import write_subscription
from kafka.broker.groups.records import classic_entry, has_members, load_classic
from kafka.broker.state.records import GroupMetadataValue, decode_value, encode_value
from test.broker.groups.test_classic_group import Hand


def read_back(data: bytes) -> ClassicGroup:
    hand = Hand()
    load_classic(hand.group, data)
    return hand.group


def test_a_group_is_written_in_version_3_and_read_back() -> None:
    """GroupMetadataValue: version 3 is what 4.3.0 writes."""
    hand = Hand()
    (member,) = hand.stable("a")
    hand.group.changed_at_ms = 77
    _, data = classic_entry(hand.group, {member: b"mine"})
    assert data is not None
    assert data[:2] == b"\0\3"
    value = decode_value(GroupMetadataValue, data)
    assert (value.protocol_type, value.generation, value.protocol, value.leader, value.current_state_timestamp) == (
        "consumer", 1, "range", member, 77,
    )  # fmt: skip
    found = read_back(data)
    one = found.members[member]
    assert (one.client_id, one.client_host, one.session_timeout_ms, one.rebalance_timeout_ms) == (
        "c",
        "/h",
        10_000,
        20_000,
    )
    assert (one.assignment, one.metadata("range")) == (b"mine", write_subscription(["t"]))
    assert (found.protocol_type, found.protocol_name, found.leader, found.generation) == (
        "consumer",
        "range",
        member,
        1,
    )
    assert (found.changed_at_ms, found.subscribed, has_members(data)) == (77, frozenset({"t"}), True)


def test_a_group_that_nobody_ever_joined_has_no_type() -> None:
    _, data = classic_entry(Hand().group, {})
    assert data is not None
    found = read_back(data)
    assert (found.protocol_type, found.protocol_name, found.leader, found.members) == (None, None, None, {})
    assert found.state is ClassicState.EMPTY
    assert not has_members(data)


def test_a_member_of_the_first_records_has_its_session_to_rebalance() -> None:
    """MemberMetadata.RebalanceTimeout is there from version 1 on; GroupMetadataManager takes the session's."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=6000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[member])
    assert read_back(encode_value(value, 0)).members["m"].rebalance_timeout_ms == 6000
    member.rebalance_timeout = 7000
    assert read_back(encode_value(value, 3)).members["m"].rebalance_timeout_ms == 7000
