from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kafka.broker.groups.classic_group import ClassicGroup, ClassicState
from kafka.broker.groups.consumer_group import (
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerMemberState,
    DurableGroupState,
    ResolvedRegex,
    metadata_hash,
)
from kafka.broker.groups.records import changes, classic_entry, load_classic, load_groups, tombstones
from kafka.broker.state.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    ShareGroupMetadataKey,
    StateEvent,
    decode_value,
    encode_key,
    encode_value,
)
from kafka.broker.topics import TopicInfo
from test.broker.groups.requests import write_subscription
from test.broker.groups.test_classic_group import Hand
from test.broker.state.keys import GROUP_KEYS

Entry = tuple[bytes, bytes | None]
ONE, TWO = UUID(int=1), UUID(int=2)
A = ConsumerMember(
    "a", "i", "r", "c", "/h", frozenset({"t", "u"}), "x+", "range", 3000, None,
    7, 6, ConsumerMemberState.UNREVOKED_PARTITIONS, {(ONE, 0): 5, (ONE, 2): 7}, {(TWO, 1): 4},
)  # fmt: skip
B = ConsumerMember("b", classic=ClassicMemberMetadata(10_000, (("range", b"r"), ("sticky", b"s"))), epoch=8)
PICTURE = DurableGroupState(
    8,
    -123,
    7,
    1700,
    {"a": A, "b": B},
    {"a": frozenset({(ONE, 0), (ONE, 2)}), "b": frozenset({(TWO, 1)})},
    {"x+": ResolvedRegex(frozenset({"xx", "x"}), 99)},
)
KINDS: dict[type, str] = {
    ConsumerGroupMemberMetadataKey: "member",
    ConsumerGroupMetadataKey: "group",
    ConsumerGroupRegularExpressionKey: "regex",
    ConsumerGroupTargetAssignmentMemberKey: "target",
    ConsumerGroupTargetAssignmentMetadataKey: "target epoch",
    ConsumerGroupCurrentMemberAssignmentKey: "current",
}


def shown(entries: Sequence[Entry]) -> list[str]:
    """Kind and name of each record, with a minus for the end of one."""
    found = []
    for name, value in entries:
        key: Any = GROUP_KEYS.decode(name)
        assert key.group_id == "g"
        assert value is None or value[:2] == b"\0\0"  # Kafka writes version 0 of each
        of = getattr(key, "member_id", getattr(key, "regular_expression", ""))
        found.append(f"{'-' if value is None else ''}{KINDS.get(type(key), type(key).__name__)} {of}".rstrip())
    return found


def read(entries: Sequence[Entry]) -> tuple[dict[str, GroupMetadataValue], dict[str, DurableGroupState]]:
    return load_groups((0, StateEvent(key, value, None)) for key, value in entries)


def loaded(*batches: Sequence[Entry]) -> dict[str, DurableGroupState]:
    return read([entry for batch in batches for entry in batch])[1]


def test_a_group_is_read_back_as_it_was_written() -> None:
    assert loaded(changes("g", DurableGroupState(), PICTURE)) == {"g": PICTURE}


def test_a_new_group_is_written_whole_and_an_unchanged_one_not_at_all() -> None:
    assert shown(changes("g", DurableGroupState(), PICTURE)) == [
        "member a", "member b", "regex x+", "group", "target a", "target b", "target epoch", "current b", "current a",
    ]  # fmt: skip
    assert changes("g", PICTURE, PICTURE) == []
    assert changes("g", PICTURE, PICTURE._replace()) == []
    assert (
        changes("g", PICTURE, PICTURE._replace(members={"a": A._replace(), "b": B}, target=dict(PICTURE.target))) == []
    )


def test_only_what_differs_is_written() -> None:
    def after(**fields: Any) -> list[str]:
        return shown(changes("g", PICTURE, PICTURE._replace(**fields)))

    assert after(epoch=9) == ["group"]
    assert after(metadata_hash=1) == ["group"]
    assert after(assignment_epoch=8) == ["target epoch"]
    assert after(assigned_at_ms=1701) == ["target epoch"]
    assert after(members={**PICTURE.members, "b": B._replace(client_id="d")}) == ["member b"]
    assert after(members={**PICTURE.members, "b": B._replace(instance_id="j")}) == ["member b"]
    assert after(members={**PICTURE.members, "b": B._replace(classic=None)}) == ["member b"]
    assert after(members={**PICTURE.members, "b": B._replace(epoch=9)}) == ["current b"]
    assert after(members={**PICTURE.members, "b": B._replace(revoking={(ONE, 5): 8})}) == ["current b"]
    assert after(regexes={}) == ["-regex x+"]
    assert after(regexes={"x+": ResolvedRegex(frozenset(), 99)}) == ["regex x+"]
    assert after(regexes={**PICTURE.regexes, "y": ResolvedRegex(frozenset(), 99)}) == ["regex y"]
    assert after(target={**PICTURE.target, "b": frozenset()}) == ["target b"]
    assert after(target={**PICTURE.target, "nobody": frozenset({(ONE, 7)})}) == []


def test_the_end_of_a_member_comes_before_what_others_take() -> None:
    took = B._replace(epoch=9, assigned={(ONE, 0): 9})
    new = PICTURE._replace(epoch=9, members={"b": took}, target={"b": frozenset({(ONE, 0)})})
    written = changes("g", PICTURE, new)
    assert shown(written) == ["-current a", "-target a", "-member a", "group", "target b", "current b"]
    assert loaded(changes("g", DurableGroupState(), PICTURE), written) == {"g": new}
    without_target = PICTURE._replace(target={})
    assert shown(changes("g", without_target, without_target._replace(members={"b": B}))) == ["-current a", "-member a"]


def test_who_lets_go_is_written_before_who_takes() -> None:
    old = DurableGroupState(members={"a": ConsumerMember("a"), "b": ConsumerMember("b", assigned={(ONE, 0): 1})})
    new = DurableGroupState(
        members={"a": ConsumerMember("a", assigned={(ONE, 0): 2}), "b": ConsumerMember("b", epoch=2)}
    )
    assert shown(changes("g", old, new)) == ["current b", "current a"]


def test_a_group_ends_in_kafkas_order() -> None:
    """GroupMetadataManager / ConsumerGroup.createGroupTombstoneRecords."""
    ends = tombstones("g", PICTURE)
    assert shown(ends) == [
        "-current a", "-current b", "-target a", "-target b", "-target epoch", "-member a", "-member b", "-regex x+",
        "-ConsumerGroupPartitionMetadataKey", "-group",
    ]  # fmt: skip
    assert loaded(changes("g", DurableGroupState(), PICTURE), ends) == {}


def test_what_was_ended_is_begun_anew() -> None:
    entries = changes("g", DurableGroupState(), PICTURE)
    group = [entry for entry in entries if shown([entry]) == ["group"]]
    for kind in ("group", "target epoch", "regex x+", "target a", "current a", "member b"):
        entries += [(key, None) for key, value in entries if value is not None and shown([(key, value)]) == [kind]]
    member = [entry for entry in entries if shown([entry]) == ["member a"]]
    found = loaded(entries, member)["g"]
    assert (found.epoch, found.metadata_hash) == (1, 0)
    found = loaded(entries, group)["g"]
    assert (found.epoch, found.metadata_hash) == (8, -123)
    assert (found.assignment_epoch, found.assigned_at_ms, found.regexes) == (1, 0, {})
    assert set(found.members) == {"a"}
    assert (found.members["a"].epoch, found.members["a"].assigned) == (0, {})
    assert found.target == {"b": PICTURE.target["b"]}


def test_a_group_with_a_member_and_no_epoch_is_there() -> None:
    """Compaction may have taken the older record of the two."""
    entries = [
        entry for entry in changes("g", DurableGroupState(), PICTURE) if shown([entry])[0] in ("member b", "current b")
    ]
    found = loaded(entries)["g"]
    assert (found.epoch, found.metadata_hash, set(found.members)) == (1, 0, {"b"})
    assert (found.assignment_epoch, found.assigned_at_ms) == (1, 0)
    entries = [entry for entry in changes("g", DurableGroupState(), PICTURE) if shown([entry])[0] == "target epoch"]
    assert loaded(entries) == {}


def test_a_current_assignment_of_other_releases_is_read() -> None:
    """State 3 is none that 4.3 knows; before 4.3 no epochs of partitions were written (KIP-1251)."""
    current = ConsumerGroupCurrentMemberAssignmentValue
    value = current(
        member_epoch=9,
        previous_member_epoch=8,
        state=3,
        assigned_partitions=[current.TopicPartitions(topic_id=ONE, partitions=[4, 5])],
        partitions_pending_revocation=[current.TopicPartitions(topic_id=TWO, partitions=[6, 7], assignment_epochs=[3])],
    )
    key = encode_key(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="b"))
    found = loaded(changes("g", DurableGroupState(), PICTURE), [(key, encode_value(value, 0))])["g"].members["b"]
    assert (found.epoch, found.previous_epoch, found.state) == (9, 8, ConsumerMemberState.UNKNOWN)
    assert (found.assigned, found.revoking) == ({(ONE, 4): 9, (ONE, 5): 9}, {(TWO, 6): 3, (TWO, 7): 9})
    written = next(
        value for key, value in changes("g", DurableGroupState(), PICTURE) if shown([(key, value)]) == ["current a"]
    )
    assert written is not None
    back = decode_value(current, written)
    assert [
        (one.topic_id, list(one.partitions), list(one.assignment_epochs or [])) for one in back.assigned_partitions
    ] == [(ONE, [0, 2], [5, 7])]
    assert back.state == 1


def test_an_expressions_record_has_its_topics_in_order_and_the_version_of_no_image() -> None:
    """ConsumerGroupRegularExpressionValue.json: Version is that of the metadata image, and here is none."""
    written = next(
        value for key, value in changes("g", DurableGroupState(), PICTURE) if shown([(key, value)]) == ["regex x+"]
    )
    assert written is not None
    value = decode_value(ConsumerGroupRegularExpressionValue, written)
    assert (list(value.topics), value.version, value.timestamp) == (["x", "xx"], 0, 99)


def test_records_of_other_kinds_say_nothing_of_groups() -> None:
    others = [
        (encode_key(OffsetCommitKey(group="g", topic="t", partition=0)), b"x"),
        (encode_key(ShareGroupMetadataKey(group_id="g")), b"x"),
    ]
    classic = encode_key(GroupMetadataKey(group="c"))
    values = [GroupMetadataValue(protocol_type="", generation=number, protocol=None, leader=None, members=[])
              for number in (1, 2)]  # fmt: skip
    entries: list[Entry] = [*others, *((classic, encode_value(value, 3)) for value in values)]
    assert read(entries) == ({"c": values[1]}, {})
    entries.append((classic, None))
    assert read(entries) == ({}, {})


def test_a_group_begins_at_epoch_1() -> None:
    assert DurableGroupState() == (1, 0, 1, 0, {}, {}, {})


def test_the_hash_of_topics_says_what_they_are() -> None:
    assert metadata_hash({}) == 0
    one = {"t": TopicInfo(ONE, 4)}
    found = [
        metadata_hash(topics) for topics in (one, {"t": TopicInfo(TWO, 4)}, {"t": TopicInfo(ONE, 5)}, {"u": one["t"]})
    ]
    assert len({*found, 0}) == 5
    assert all(-(2**63) <= value < 2**63 for value in found)
    many = {f"t{number}": TopicInfo(UUID(int=number), 1) for number in range(64)}
    assert metadata_hash(many) == metadata_hash(dict(reversed(many.items())))
    hashes = [metadata_hash({name: info}) for name, info in many.items()]
    assert min(hashes) < 0 < max(hashes), "an int64 of the record, with its sign"


# -- classic groups ----------------------------------------------------------------------------------------------------


def read_back(data: bytes) -> ClassicGroup:
    hand = Hand()
    load_classic(hand.group, decode_value(GroupMetadataValue, data))
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
    assert (found.changed_at_ms, found.subscribed, len(value.members)) == (77, frozenset({"t"}), 1)


def test_a_group_that_nobody_ever_joined_has_no_type() -> None:
    _, data = classic_entry(Hand().group, {})
    assert data is not None
    found = read_back(data)
    assert (found.protocol_type, found.protocol_name, found.leader, found.members) == (None, None, None, {})
    assert found.state is ClassicState.EMPTY
    assert not decode_value(GroupMetadataValue, data).members


def test_a_member_of_the_first_records_has_its_session_to_rebalance() -> None:
    """MemberMetadata.RebalanceTimeout is there from version 1 on; GroupMetadataManager takes the session's."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=6000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[member])
    assert read_back(encode_value(value, 0)).members["m"].rebalance_timeout_ms == 6000
    member.rebalance_timeout = 7000
    assert read_back(encode_value(value, 3)).members["m"].rebalance_timeout_ms == 7000
