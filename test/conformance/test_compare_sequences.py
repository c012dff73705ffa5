"""Whole sequences, the same on the embedded broker and on Apache Kafka 4.3.0: each answer is compared, field by field.

Ids that a broker makes up stand under names (``broker_pair.py``). Random ones are in ``test_compare_random_walks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kafka.protocol.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from test.conformance.broker_pair import BrokerPair, Side
from test.conformance.sequence_requests import (
    acknowledge,
    consumer_heartbeat,
    describe_consumers,
    describe_share,
    letters,
    new_topic,
    produce,
    settle_share_group,
    share_fetch,
    share_heartbeat,
    share_offsets,
    transactional,
)
from test.conformance.story import Story, here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

@pytest.fixture
def story(sequence_pair: BrokerPair) -> Iterator[Story]:
    made = Story(sequence_pair)
    yield made
    made.close()


@pytest.fixture
def topic(sequence_pair: BrokerPair) -> str:
    """A topic of two partitions on both."""
    return new_topic(sequence_pair, f"topic-{letters()}")


@pytest.fixture
def group() -> str:
    return f"group-{letters()}"


# -- classic groups --------------------------------------------------------------------------------------------------


class Versions(NamedTuple):
    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int


NEW, MIDDLE, OLD = Versions(9, 5, 4, 5, 9), Versions(5, 3, 3, 3, 7), Versions(2, 1, 1, 1, 2)
MEMBER_ID_REQUIRED = 79


class Classic:
    """Requests of a classic group's members."""

    def __init__(self, story: Story, group: str, versions: Versions) -> None:
        self.story, self.group, self.versions = story, group, versions

    def join(self, member: str, instance: str | None = None, timeout_ms: int = 30_000, protocol: str = "p") -> Any:
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=b"m")]
        return lambda side: JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=30_000 if self.versions.join else -1,
            member_id=here(side, member),
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=protocols,
        )

    def enter(self, who: str) -> str:
        """Send a join that others wait for, and give the member's id, if the version gives it beforehand."""
        member = ""
        if self.versions.join >= 4:
            answer = self.story.ask(who, self.join(""), self.versions.join)
            assert answer["error_code"] == MEMBER_ID_REQUIRED
            member = answer["member_id"]
        self.story.send(who, self.join(member), self.versions.join)
        return member

    def sync(self, member: str, generation: int, shares: dict[str, bytes], instance: str | None = None) -> Any:
        return lambda side: SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=here(side, member),
            group_instance_id=instance,
            protocol_type="consumer" if self.versions.sync >= 5 else None,
            protocol_name="p" if self.versions.sync >= 5 else None,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=here(side, name), assignment=share)
                for name, share in shares.items()
            ],
        )

    def beat(self, who: str, member: str, generation: int, instance: str | None = None) -> int:
        def make(side: Side) -> HeartbeatRequest:
            return HeartbeatRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=here(side, member),
                group_instance_id=instance,
            )

        code: int = self.story.ask(who, make, self.versions.heartbeat)["error_code"]
        return code

    def commit(self, who: str, topic: str, member: str, generation: int, instance: str | None = None) -> Any:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=3, committed_metadata="m"
        )
        topic_request = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
        return self.story.ask(
            who,
            lambda side: OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=generation,
                member_id=here(side, member),
                group_instance_id=instance if self.versions.commit >= 7 else None,
                topics=[topic_request],
            ),
            self.versions.commit,
        )["topics"][0]["partitions"][0]["error_code"]

    def leave(self, who: str, member: str, instance: str | None = None) -> Any:
        if self.versions.leave < 3:
            make: Any = lambda side: LeaveGroupRequest(group_id=self.group, member_id=here(side, member))  # noqa: E731
        else:
            make = lambda side: LeaveGroupRequest(  # noqa: E731
                group_id=self.group,
                members=[LeaveGroupRequest.MemberIdentity(member_id=here(side, member), group_instance_id=instance)],
            )
        return self.story.ask(who, make, self.versions.leave)

    def show(self) -> Any:
        return self.story.ask("looker", DescribeGroupsRequest(groups=[self.group]), 6)["groups"][0]


@pytest.mark.parametrize("versions", [NEW, MIDDLE, OLD], ids=["new", "middle", "old"])
def test_a_classic_group_of_two(story: Story, topic: str, group: str, versions: Versions) -> None:
    classic = Classic(story, group, versions)
    classic.enter("ann")
    ann = story.receive("ann")["member_id"]
    assert classic.beat("ann", ann, 1) in (0, 27)  # the same on both
    story.ask("ann", classic.sync(ann, 1, {ann: b"all"}), versions.sync)
    assert classic.beat("ann", ann, 1) == 0
    assert classic.show()["group_state"] == "Stable"
    assert classic.commit("ann", topic, ann, 1) == 0
    assert classic.commit("ann", topic, ann, 0) == 22
    assert classic.commit("ann", topic, "nobody", 1) == 25
    assert classic.commit("ann", topic, "", -1) == 25

    classic.enter("bob")
    story.until("ann", _beat(group, ann, 1), versions.heartbeat, lambda answer: answer["error_code"] == 27)
    classic.commit("ann", topic, ann, 1)
    story.send("ann", classic.join(ann), versions.join)
    bob = story.receive("bob")["member_id"]
    story.receive("ann")
    classic.show()
    assert classic.beat("bob", bob, 1) == 22
    story.send("bob", classic.sync(bob, 2, {}), versions.sync)
    story.ask("ann", classic.sync(ann, 2, {ann: b"a", bob: b"b"}), versions.sync)
    assert story.receive("bob")["assignment"] == b"b"
    for who, member, generation in (("bob", bob, 2), ("bob", bob, 3), ("ann", "nobody", 2), ("ann", "", 2)):
        classic.beat(who, member, generation)
    story.ask("bob", classic.sync(bob, 2, {}), versions.sync)  # once more
    story.ask("bob", classic.sync(bob, 1, {}), versions.sync)
    story.ask("bob", classic.join("nobody"), versions.join)
    assert classic.show()["group_state"] == "Stable"
    story.ask("looker", DeleteGroupsRequest(groups_names=[group]), 2)

    classic.leave("bob", bob)
    classic.leave("bob", bob)
    story.until("ann", _beat(group, ann, 2), versions.heartbeat, lambda answer: answer["error_code"] == 27)
    story.ask("ann", classic.join(ann), versions.join)
    story.ask("ann", classic.sync(ann, 3, {ann: b"all"}), versions.sync)
    classic.commit("ann", topic, ann, 3)
    classic.leave("ann", ann)
    assert classic.show()["group_state"] == "Empty"
    classic.commit("ann", topic, ann, 3)
    classic.commit("ann", topic, "", -1)
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    story.ask("looker", OffsetFetchRequest(groups=[fetch], require_stable=True), 9)
    story.ask("looker", DeleteGroupsRequest(groups_names=[group]), 2)
    classic.show()


def _beat(group: str, member: str, generation: int) -> Callable[[Side], HeartbeatRequest]:
    return lambda side: HeartbeatRequest(group_id=group, generation_id=generation, member_id=here(side, member))


@pytest.mark.parametrize("versions", [NEW, MIDDLE], ids=["new", "middle"])
def test_a_static_member_comes_again_and_fences_itself(
    story: Story, topic: str, group: str, versions: Versions
) -> None:
    classic = Classic(story, group, versions)
    first = story.ask("ann", classic.join("", "i"), versions.join)["member_id"]
    story.ask("ann", classic.sync(first, 1, {first: b"all"}, "i"), versions.sync)
    second = story.ask("again", classic.join("", "i"), versions.join)["member_id"]
    assert second != first
    classic.show()
    assert classic.beat("ann", first, 1, "i") == 82
    story.ask("ann", classic.sync(first, 1, {}, "i"), versions.sync)
    classic.commit("ann", topic, first, 1, "i")
    classic.beat("ann", first, 1)
    story.ask("again", classic.sync(second, 1, {}, "i"), versions.sync)
    assert classic.beat("again", second, 1, "i") == 0
    story.ask("ann", classic.join(first, "i"), versions.join)
    third = story.ask("third", classic.join("", "i", protocol="q"), versions.join)["member_id"]
    classic.show()
    classic.leave("third", first, "i")
    classic.leave("third", "", "nobody")
    classic.leave("third", "", "i")
    classic.beat("third", third, 2, "i")
    classic.show()


# -- groups of KIP-848 -----------------------------------------------------------------------------------------------


def test_members_of_a_new_group_share_and_hand_over(story: Story, topic: str, group: str) -> None:
    def beat(who: str, epoch: int, owned: Any = None, **more: Any) -> Any:
        return story.ask(who, lambda side: consumer_heartbeat(side, group, who, epoch, owned, **more), 1)

    def show() -> Any:
        return story.ask("looker", describe_consumers(group), 1)["groups"][0]

    answer = beat("ann", 0, {}, names=[topic], timeout_ms=30_000)
    show()
    epoch = answer["member_epoch"]
    both = {topic: [0, 1]}
    beat("ann", epoch, both)
    beat("ann", epoch + 1)
    beat("ann", epoch - 1)
    beat("bob", 1)
    beat("bob", -1)
    bob = beat("bob", 0, {}, names=[topic], timeout_ms=30_000)
    show()
    answer = beat("ann", epoch)
    show()
    answer = beat("ann", epoch, {topic: [0]})
    answer = beat("ann", epoch, {topic: [1]}) if answer["member_epoch"] == epoch else answer
    show()
    bob = beat("bob", bob["member_epoch"])
    beat("bob", bob["member_epoch"])
    show()
    beat("ann", -1)
    show()
    bob = beat("bob", bob["member_epoch"])
    beat("bob", bob["member_epoch"], both)
    beat("bob", bob["member_epoch"], both, names=[topic, "missing"])
    beat("bob", -2)
    beat("bob", -1)
    show()


def test_a_static_member_of_a_new_group_comes_again(story: Story, topic: str, group: str) -> None:
    def beat(who: str, epoch: int, owned: Any = None, **more: Any) -> Any:
        return story.ask(who, lambda side: consumer_heartbeat(side, group, who, epoch, owned, instance="i", **more), 1)

    answer = beat("ann", 0, {}, names=[topic], timeout_ms=30_000)
    beat("other", 0, {}, names=[topic], timeout_ms=30_000)
    beat("ann", -2)
    story.ask("looker", describe_consumers(group), 1)
    beat("again", 0, {}, names=[topic], timeout_ms=30_000)
    story.ask("looker", describe_consumers(group), 1)
    beat("ann", answer["member_epoch"])
    beat("again", answer["member_epoch"])
    beat("again", -1)
    story.ask("looker", describe_consumers(group), 1)


# -- share groups ----------------------------------------------------------------------------------------------------


def test_a_share_group(story: Story, sequence_pair: BrokerPair, topic: str, group: str) -> None:
    def beat(who: str, epoch: int, names: list[str] | None = None) -> Any:
        return story.ask(who, share_heartbeat(group, who, epoch, names), 1)

    def fetch(who: str, epoch: int, **more: Any) -> Any:
        return story.ask(who, lambda side: share_fetch(side, group, who, epoch, topic, **more), 2)

    def ack(who: str, epoch: int, *batches: tuple[int, int, list[int]], renew: bool = False) -> Any:
        return story.ask(who, lambda side: acknowledge(side, group, who, epoch, topic, batches, renew), 2)

    settle_share_group(story.sides, group, topic)
    beat("ann", 0, [topic])
    story.ask("looker", describe_share(group), 1)
    fetch("ann", 0)  # begins at the end
    story.ask("ann", produce(topic, 0, [b"a", b"b", b"c", b"d"]), 9)
    fetch("ann", 1)
    ack("ann", 2, (0, 0, [1]), (1, 1, [2]))
    ack("ann", 3, (0, 0, [1]))
    ack("ann", 4, (2, 3, [4]))
    ack("ann", 5, (2, 3, [4]), renew=True)
    ack("ann", 6, (2, 2, [3]), (3, 3, [1]))
    ack("ann", 7, (2, 2, [3]))
    story.ask("looker", share_offsets(group, topic), 1)
    fetch("ann", 9)
    fetch("bob", 0)
    story.ask("looker", share_offsets(group, topic), 1)
    ack("ann", 8, (1, 1, [1]))
    ack("bob", 1, (1, 9, [1]))
    ack("bob", 2, (1, 1, [7]))
    ack("bob", 3, (1, 1, [1, 1]))
    ack("bob", 4, (1, 1, []))
    ack("bob", 5, (1, 1, [2]))
    fetch("bob", 6, acks=[(1, 1, [1])])
    fetch("bob", 7)
    ack("bob", 8, (1, 1, [1]))
    ack("bob", -1)
    ack("bob", -1)
    fetch("bob", 1)
    fetch("ann", -1)
    story.ask("looker", share_offsets(group, topic), 1)
    beat("ann", -1)
    beat("ann", -1)
    story.ask("looker", describe_share(group), 1)


def test_a_lock_of_a_share_group_ends(story: Story, topic: str, group: str) -> None:
    settle_share_group(story.sides, group, topic)

    def fetch(who: str, epoch: int, **more: Any) -> Callable[[Side], Any]:
        return lambda side: share_fetch(side, group, who, epoch, topic, **more)

    story.ask("ann", fetch("ann", 0), 2)
    story.ask("ann", produce(topic, 0, [b"a", b"b"]), 9)
    for delivery in (1, 2, 3):  # each with a lock that has ended; a session that opens anew counts from 0
        answer = story.until("ann", fetch("ann", 0, wait_ms=100), 2, _has_acquired)
        acquired = answer["responses"][0]["partitions"][0]["acquired_records"]
        assert {one["delivery_count"] for one in acquired} == {delivery}
    # Both sides' locks begin anew: the first side's would end while the second one still waits for its own.
    story.ask("ann", lambda side: acknowledge(side, group, "ann", 1, topic, [(1, 2, [4])], True), 2)
    story.hang_up("ann")
    story.until("bob", fetch("bob", 0, wait_ms=100), 2, _has_acquired)


def _has_acquired(answer: Any) -> bool:
    return any(one["acquired_records"] for topic in answer["responses"] for one in topic["partitions"])


# -- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [True, False], ids=["protocol-2", "protocol-1"])
def test_two_producers_of_one_transactional_id(story: Story, topic: str, group: str, is_new: bool) -> None:
    name = f"tx-{group}"
    add, end, produced, offsets, add_offsets = (5, 5, 12, 5, 4) if is_new else (3, 4, 11, 4, 3)

    def initialize(producer: str = "", epoch: int = -1, timeout_ms: int = 60_000) -> Any:
        return story.ask(
            "ann",
            lambda side: InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=here(side, producer) if producer else -1,
                producer_epoch=epoch,
            ),
            5,
        )

    def write(producer: str, epoch: int, sequence: int) -> Any:
        return story.ask(
            "ann", lambda side: transactional(side, topic, name, producer, epoch, sequence), produced
        )

    def add_partition(producer: str, epoch: int) -> Any:
        topic_request = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])

        def make(side: Side) -> AddPartitionsToTxnRequest:
            if add < 4:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=here(side, producer),
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=[topic_request],
                )
            return AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                        transactional_id=name,
                        producer_id=here(side, producer),
                        producer_epoch=epoch,
                        verify_only=False,
                        topics=[topic_request],
                    )
                ]
            )

        return story.ask("ann", make, add)

    def commit(producer: str, epoch: int, is_commit: bool = True) -> Any:
        def make(side: Side) -> EndTxnRequest:
            return EndTxnRequest(
                transactional_id=name,
                producer_id=here(side, producer),
                producer_epoch=epoch,
                committed=is_commit,
            )

        answer = story.ask("ann", make, end)
        story.until("looker", described, 0, lambda seen: "'Prepare" not in repr(seen))
        return answer

    def commit_offsets(producer: str, epoch: int, generation: int = -1, member: str = "") -> Any:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        if offsets < 5:
            story.ask(
                "ann",
                lambda side: AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=here(side, producer), producer_epoch=epoch, group_id=group
                ),
                add_offsets,
            )
        return story.ask(
            "ann",
            lambda side: TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=group,
                producer_id=here(side, producer),
                producer_epoch=epoch,
                generation_id=generation,
                member_id=member,
                topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
            ),
            offsets,
        )

    described = DescribeTransactionsRequest(transactional_ids=[name])

    def show() -> None:
        fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        story.ask("looker", OffsetFetchRequest(groups=[fetch], require_stable=False), 9)

    first = _initialized(story, name)
    one, epoch = first["producer_id"], first["producer_epoch"]
    commit(one, epoch)
    add_partition(one, epoch)
    write(one, epoch, 0)
    commit_offsets(one, epoch)
    commit_offsets(one, epoch, 3, "nobody")
    show()
    done = commit(one, epoch)
    show()
    again = commit(one, epoch)
    assert again["error_code"] == 0
    commit(one, epoch, is_commit=False)
    epoch = done["producer_epoch"] if is_new else epoch
    add_partition(one, epoch)
    write(one, epoch, 0 if is_new else 1)
    add_partition(one, epoch + 1)
    write(one, epoch + 1, 0)
    second = initialize()  # fences
    second = _initialized(story, name) if second["error_code"] else second
    two, newer = second["producer_id"], second["producer_epoch"]
    add_partition(one, epoch)
    write(one, epoch, 2)
    commit(one, epoch)
    commit_offsets(one, epoch)
    initialize(one, epoch)
    add_partition(two, newer)
    write(two, newer, 0)
    commit(two, newer, is_commit=False)
    initialize(two, newer + 7)
    initialize(timeout_ms=0)
    show()


def _initialized(story: Story, name: str) -> Any:
    """The next producer: Apache Kafka is loading (14) for a moment, or ends the transaction of the one before (51)."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    return story.until("ann", request, 5, lambda answer: answer["error_code"] == 0)
