"""Sequences by chance, the same on the embedded broker and on Apache Kafka 4.3.0: a walk over the requests of members,
with the ids and epochs that earlier answers gave, and sometimes with others. Every answer is compared.

A walk is what its seed says: a failing test names it and the last steps. The seeds are fixed, as in
``test_compare_random_requests.py``. ``KAFKA_TEST_COMPARE_ROUNDS`` multiplies the walks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.protocol.groups import (
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WALKS = 4
"""For each kind and round."""

STEPS = 40


@pytest.fixture
def walk(sequence_pair: BrokerPair) -> Iterator[Callable[[str, int], Walk]]:
    stories = []

    def make(kind: str, seed: int) -> Walk:
        suffix = letters()
        story = Story(sequence_pair)
        stories.append(story)
        story.told.append(f"walk {kind} {seed}")
        # One partition each for share groups: which of several a member gets, is up to a hash map of Apache Kafka's.
        partitions = 1 if kind == "share" else 2
        names = [new_topic(sequence_pair, f"{stem}-walk-{suffix}", partitions) for stem in ("left", "right")]
        return Walk(story, random.Random(f"{kind} {seed}"), names, f"group-walk-{suffix}")

    yield make
    for story in stories:
        story.close()


class Walk:
    """A story, chance, two topics and a group."""

    def __init__(self, story: Story, rng: random.Random, topics: list[str], group: str) -> None:
        self.story, self.rng, self.topics, self.group = story, rng, topics, group

    def near(self, number: int) -> int:
        """Mostly the number."""
        return number + self.rng.choice((0, 0, 0, 0, 0, 0, 0, -1, 1, 5))

    def steps(self, kinds: list[Callable[[], object]], count: int = STEPS) -> None:
        for _ in range(count):
            self.rng.choice(kinds)()


def walk_seeds(compare_rounds: int) -> range:
    return range(WALKS * compare_rounds)


def test_share_groups(walk: Callable[[str, int], Walk], compare_rounds: int) -> None:
    for seed in walk_seeds(compare_rounds):
        _walk_of_share_members(walk("share", seed))


def _walk_of_share_members(walk: Walk) -> None:
    story, rng, group, topic = walk.story, walk.rng, walk.group, walk.topics[0]
    settle_share_group(story.sides, group, topic)
    epochs = dict.fromkeys(("ann", "bob"), 0)
    sessions = dict.fromkeys(("ann", "bob"), 0)
    holders = set()
    """Who has acquired something. They do not close: Apache Kafka releases after its answer, and nothing shows when."""

    def beat() -> None:
        who = rng.choice(("ann", "bob"))
        epoch = rng.choice((walk.near(epochs[who]), epochs[who], 0, -1))
        names = [topic] if epoch == 0 or rng.random() < 0.2 else None
        answer = story.ask(who, share_heartbeat(group, who, epoch, names), 1)
        if not answer["error_code"]:
            epochs[who] = max(answer["member_epoch"], 0)

    def some_acks(kinds: tuple[int, ...]) -> list[tuple[int, int, list[int]]]:
        first = rng.randrange(12)
        batches = []
        for _ in range(rng.choice((1, 1, 2))):
            last = first + rng.choice((0, 0, 1, 3))
            types = [rng.choice(kinds) for _ in range(last - first + 1)]
            batches.append((first, last, types if rng.random() < 0.5 else types[:1]))
            first = last + rng.choice((1, 1, 2, 0))
        return batches

    def fetch() -> None:
        who = rng.choice(("ann", "bob"))
        epoch = rng.choice((walk.near(sessions[who]), sessions[who], sessions[who], 0, -1))
        if epoch < 0 and who in holders:
            return
        # What is released may be acquired again by the same request, or not: Apache Kafka does both side by side.
        acks = some_acks((0, 1, 1, 3)) if rng.random() < 0.3 else []
        records, exact = rng.choice((1, 2, 100)), rng.random() < 0.3
        answer = story.ask(
            who,
            lambda side: share_fetch(side, group, who, epoch, topic, acks=acks, max_records=records, exact=exact),
            2,
            _is_below_the_start,
        )
        _count(sessions, who, epoch, answer)
        found = answer["responses"] if answer is not None else []
        if any(one["acquired_records"] for topics in found for one in topics["partitions"]):
            holders.add(who)

    def ack() -> None:
        who = rng.choice(("ann", "bob"))
        epoch = rng.choice((walk.near(sessions[who]), sessions[who], sessions[who], -1))
        if epoch < 0 and who in holders:
            return
        acks = some_acks((0, 1, 1, 2, 2, 3))
        answer = story.ask(who, lambda side: acknowledge(side, group, who, epoch, topic, acks), 2, _is_below_the_start)
        _count(sessions, who, epoch, answer)

    def write() -> None:
        story.ask("writer", produce(topic, 0, [b"x"] * rng.choice((1, 2, 4))), 9)

    def look() -> None:
        story.ask("looker", describe_share(group), 1)
        story.ask("looker", share_offsets(group, topic), 1)

    walk.steps([beat, fetch, fetch, fetch, ack, ack, ack, write, look])


def _is_below_the_start(embedded: Any, apache: Any) -> bool:
    """Offsets from below the start on, while nothing is in flight: Apache Kafka fails the whole request with -1."""
    codes = [
        one.get("acknowledge_error_code", one["error_code"])
        for topic in embedded["responses"]
        for one in topic["partitions"]
    ]
    return apache["error_code"] == -1 and codes == [121]


def _count(sessions: dict[str, int], who: str, epoch: int, answer: Any) -> None:
    if answer is None:
        sessions[who] = 0  # begin anew
    elif not answer["error_code"]:
        sessions[who] = 0 if epoch == -1 else epoch + 1


def test_new_groups(walk: Callable[[str, int], Walk], compare_rounds: int) -> None:
    for seed in walk_seeds(compare_rounds):
        _walk_of_consumers(walk("consumer", seed))


def _walk_of_consumers(walk: Walk) -> None:
    story, rng, group = walk.story, walk.rng, walk.group
    epochs = dict.fromkeys(("ann", "bob", "cyd"), 0)
    holds: dict[str, dict[str, list[int]]] = {}

    def beat() -> None:
        who = rng.choice(tuple(epochs))
        instance = "i" if who == "cyd" else None
        epoch = rng.choice((walk.near(epochs[who]), epochs[who], epochs[who], epochs[who], 0, -1, -2))
        owned: dict[str, list[int]] | None = None
        if epoch == 0:
            owned = {}
        elif rng.random() < 0.7:
            owned = holds.get(who, {})
        names = None
        if epoch == 0 or rng.random() < 0.1:
            names = walk.topics[:1]  # the same of all: with others, ties are broken otherwise
        answer = story.ask(
            who,
            lambda side: consumer_heartbeat(
                side, group, who, epoch, owned, names=names, timeout_ms=30_000 if epoch == 0 else -1, instance=instance
            ),
            1,
        )
        if answer["error_code"]:
            return
        epochs[who] = max(answer["member_epoch"], 0)
        if answer["assignment"] is not None:
            holds[who] = {
                one["topic_id"].removeprefix("$topic-id:"): one["partitions"]
                for one in answer["assignment"]["topic_partitions"]
            }

    def commit() -> None:
        who = rng.choice((*epochs, "nobody", ""))
        epoch = rng.choice((walk.near(epochs.get(who, 0)), epochs.get(who, 0), -1))
        story.ask(who or "nobody", _commit(group, who, epoch, walk.topics[0], rng.randrange(9)), 9)

    def look() -> None:
        story.ask("looker", describe_consumers(group), 1)
        story.ask("looker", _fetch(group), 9)

    walk.steps([beat, beat, beat, beat, commit, look])


def _commit(group: str, member: str, epoch: int, topic: str, offset: int) -> Callable[[Side], OffsetCommitRequest]:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=offset % 2, committed_offset=offset, committed_metadata=""
    )
    topic_request = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return lambda side: OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=epoch, member_id=here(side, member), topics=[topic_request]
    )


def _fetch(group: str) -> OffsetFetchRequest:
    group_request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    return OffsetFetchRequest(groups=[group_request], require_stable=False)


def test_classic_groups(walk: Callable[[str, int], Walk], compare_rounds: int) -> None:
    for seed in walk_seeds(compare_rounds):
        _walk_of_a_classic_member(walk("classic", seed))


def _walk_of_a_classic_member(walk: Walk) -> None:
    """One member at a time, dynamic or static: joins of several wait for one another (test_compare_sequences.py)."""
    story, rng, group = walk.story, walk.rng, walk.group
    members = [""]
    generation = 0
    instance = rng.choice((None, "i"))

    def one() -> str:
        return rng.choice((members[-1], members[-1], members[-1], rng.choice(members), "nobody", ""))

    def join() -> None:
        nonlocal generation
        member = rng.choice((members[-1], ""))
        if instance is None and members[-1] and not member:
            member = members[-1]  # a second member would be waited for
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=rng.choice("pq"), metadata=b"m")
        answer = story.ask(
            "ann",
            lambda side: JoinGroupRequest(
                group_id=group,
                session_timeout_ms=rng_session,
                rebalance_timeout_ms=30_000,
                member_id=here(side, member),
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            9,
        )
        if answer["error_code"] in (0, 79):
            members.append(answer["member_id"])
            generation = max(answer["generation_id"], generation)

    rng_session = 30_000

    def sync() -> None:
        member, at = one(), walk.near(generation)
        story.ask(
            "ann",
            lambda side: SyncGroupRequest(
                group_id=group,
                generation_id=at,
                member_id=here(side, member),
                group_instance_id=instance,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=here(side, member), assignment=b"all")
                ],
            ),
            5,
        )

    def beat() -> None:
        member, at, static = one(), walk.near(generation), rng.choice((instance, instance, None))
        story.ask(
            "ann",
            lambda side: HeartbeatRequest(
                group_id=group, generation_id=at, member_id=here(side, member), group_instance_id=static
            ),
            4,
        )

    def leave() -> None:
        member = one()
        answer = story.ask(
            "ann",
            lambda side: LeaveGroupRequest(
                group_id=group,
                members=[LeaveGroupRequest.MemberIdentity(member_id=here(side, member), group_instance_id=instance)],
            ),
            5,
        )
        if not answer["error_code"] and not answer["members"][0]["error_code"]:
            members[:] = [""]

    def commit() -> None:
        story.ask("ann", _commit(group, one(), rng.choice((walk.near(generation), -1)), walk.topics[0], 1), 9)

    def look() -> None:
        story.ask("looker", DescribeGroupsRequest(groups=[group]), 6)
        story.ask("looker", _fetch(group), 9)

    walk.steps([join, join, sync, sync, beat, beat, beat, leave, commit, commit, look])


@pytest.mark.parametrize("is_new", [True, False], ids=["protocol-2", "protocol-1"])
def test_transactions(walk: Callable[[str, int], Walk], compare_rounds: int, is_new: bool) -> None:
    for seed in walk_seeds(compare_rounds):
        _walk_of_producers(walk(f"transactions {is_new}", seed), is_new)


def _walk_of_producers(walk: Walk, is_new: bool) -> None:
    story, rng, group = walk.story, walk.rng, walk.group
    names = [f"tx-{group}-a", f"tx-{group}-b"]
    add_version, end_version, produce_version, offsets_version = (5, 5, 12, 5) if is_new else (3, 4, 11, 4)
    producers: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    sequences: dict[tuple[str, int, str], int] = {}

    def one() -> tuple[str, str, int]:
        """A transactional id, a producer id and an epoch; the newest ones most of the time."""
        name = rng.choice(names)
        known = producers[name] or producers[names[0]] or producers[names[1]]
        producer, epoch = rng.choice((known[-1], known[-1], known[-1], rng.choice(known)))
        return name, producer, max(0, epoch + rng.choice((0,) * 12 + (1, -1)))

    def initialize() -> None:
        name = rng.choice(names)
        known = rng.choice((None, *producers[name][-1:]))

        def make(side: Side) -> InitProducerIdRequest:
            return InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=60_000,
                producer_id=-1 if known is None else here(side, known[0]),
                producer_epoch=-1 if known is None else known[1],
            )

        answer = story.until("ann", make, 5, lambda answer: answer["error_code"] not in (14, 15, 51))
        if not answer["error_code"]:
            producers[name].append((answer["producer_id"], answer["producer_epoch"]))

    def add() -> None:
        name, producer, epoch = one()
        topic_request = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=rng.choice(walk.topics), partitions=[0])

        def make(side: Side) -> AddPartitionsToTxnRequest:
            if add_version < 4:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=here(side, producer),
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=[topic_request],
                )
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=here(side, producer),
                producer_epoch=epoch,
                verify_only=is_check,
                topics=[topic_request],
            )
            return AddPartitionsToTxnRequest(transactions=[transaction])

        is_check = rng.random() < 0.3
        story.ask("ann", make, add_version)

    def write() -> None:
        name, producer, epoch = one()
        topic = rng.choice(walk.topics)
        sequence = sequences.get((producer, epoch, topic), 0) + rng.choice((0, 0, 0, 0, 1))
        answer = story.ask(
            "ann", lambda side: transactional(side, topic, name, producer, epoch, sequence), produce_version
        )
        if not answer["responses"][0]["partition_responses"][0]["error_code"]:
            sequences[producer, epoch, topic] = sequence + 1

    def offsets() -> None:
        name, producer, epoch = one()
        if not is_new and rng.random() < 0.7:
            story.ask(
                "ann",
                lambda side: AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=here(side, producer), producer_epoch=epoch, group_id=group
                ),
                3,
            )
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=rng.randrange(9), committed_metadata=""
        )
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=walk.topics[0], partitions=[partition])]
        story.ask(
            "ann",
            lambda side: TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=group,
                producer_id=here(side, producer),
                producer_epoch=epoch,
                topics=topics,
            ),
            offsets_version,
        )

    def end() -> None:
        name, producer, epoch = one()
        is_commit = rng.random() < 0.6

        def make(side: Side) -> EndTxnRequest:
            return EndTxnRequest(
                transactional_id=name, producer_id=here(side, producer), producer_epoch=epoch, committed=is_commit
            )

        answer = story.ask("ann", make, end_version)
        look()  # not before the markers are written, which Apache Kafka does after its answer
        if is_new and not answer["error_code"]:
            producers[name].append((answer["producer_id"], answer["producer_epoch"]))

    def look() -> None:
        request = DescribeTransactionsRequest(transactional_ids=names)
        story.until("looker", request, 0, lambda answer: not any(
            one["transaction_state"].startswith("Prepare") for one in answer["transaction_states"]
        ))  # fmt: skip
        story.ask("looker", _fetch(group), 9)

    initialize()
    while not producers[names[0]] or not producers[names[1]]:
        initialize()
    walk.steps([initialize, add, add, write, write, write, offsets, end, end, look])
