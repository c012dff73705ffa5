"""Accumulator and sender against brokers that lose answers, refuse, forget, move leaders and handle requests late.

Whatever they do: a record that succeeded is in its partition's log once, at the offset that was told; one that failed
is there at most once; and each log has its records in the order of ``send``. (After the last epoch there is a new id,
which keeps nobody out: a request that was given up may be handled late then, behind what succeeded.)

``KAFKA_TEST_ROUNDS`` multiplies how many stories are told.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka.core.produce.batch import ProducerIdAndEpoch
from kafka.core.produce.sender import LAST_EPOCH, MAX_IN_FLIGHT_PER_PARTITION, QUIET_S, RequestProducerId, SendBatches
from kafka.errors import KafkaConnectionError, RequestTimedOutError
from kafka.producer.sending import FutureRecordMetadata
from test.core.produce.model_broker import MASK, Brokers, Known
from test.core.produce.support import TOPIC_ID, Rig
from test.support.rounds import ROUNDS

REFUSALS = (2, 3, 6, 7, 9, 13, 17, 19, 29, 42, 43, 56, 74, 76, 87, -1)
"""Codes without an append: those that are sent again and those that fail."""
LIES = (6, 7, 13, 20, 56, -1, -1)
"""Codes that may come although the batch was appended."""


class SenderAgainstBrokers(RuleBasedStateMachine):
    """``futures[p]``: those of partition ``p``, in the order of ``send``; a record's value is its place in it."""

    @initialize(
        partitions=st.integers(1, 3),
        max_in_flight=st.integers(1, 5),
        batch_records=st.integers(1, 4),
        is_old=st.booleans(),
        near_the_end=st.booleans(),
        retries=st.sampled_from((None, None, 3)),
    )
    def begin(
        self,
        partitions: int,
        max_in_flight: int,
        batch_records: int,
        is_old: bool,
        near_the_end: bool,
        retries: int | None,
    ) -> None:
        self.rig = Rig(
            partitions,
            known=False,
            max_in_flight=max_in_flight,
            batch_records=batch_records,
            retries=retries,
            delivery_timeout_s=120.0,
        )
        self.max_in_flight = max_in_flight
        self.brokers = Brokers(partitions, TOPIC_ID, is_old=is_old)
        self.futures: list[list[FutureRecordMetadata]] = [[] for _ in range(partitions)]
        self.near_the_end = near_the_end
        self.ids = 0
        self.asked = 0

    def teardown(self) -> None:
        """All is well from now on: everything is delivered."""
        if not hasattr(self, "rig"):
            return
        self.learn()
        for _ in range(400):
            self.rig.accumulator.close_open_batches()
            self.poll()
            while self.asked:
                self.give_identity()
                self.poll()
            if not self.rig.accumulator.incomplete:
                break
            for node in (1, 2):
                while self.brokers.unhandled[node]:
                    self.brokers.handle(node)
                while self.brokers.answered[node]:
                    self.answer(node)
            self.rig.clock.advance(0.7)
        while self.brokers.ghosts:
            self.brokers.handle_ghost()
        assert not self.rig.accumulator.incomplete, "everything was answered"
        for number, partition in enumerate(self.brokers.partitions):
            log = partition.values
            ordered = log if self.ids < 2 else [place for place in log if self.futures[number][place].succeeded()]
            assert ordered == sorted(ordered), f"partition {number}: order"
            assert len(log) == len(set(log)), f"partition {number}: twice"
            for place, future in enumerate(self.futures[number]):
                assert future.is_done
                if future.succeeded():
                    assert future.value is not None
                    offset = future.value.offset
                    assert place in log, f"partition {number}: {place} was lost"
                    assert offset < 0 or log[offset] == place

    # -- the user, and time ------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 2), count=st.integers(1, 5))
    def send(self, number: int, count: int) -> None:
        number %= len(self.futures)
        for _ in range(count):
            place = len(self.futures[number])
            batch, index = self.rig.put(b"%d" % place, number)
            self.futures[number].append(FutureRecordMetadata(batch, index, 0, -1, 1, -1))
        self.poll()

    @rule(seconds=st.sampled_from((0.1, 0.3, 1.0, 1.0, 5.0, 30.0, 100.0)))
    def wait(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)
        self.poll()

    # -- the brokers -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.asked)
    @rule()
    def give_identity(self) -> None:
        self.asked -= 1
        self.ids += 1
        epoch = LAST_EPOCH - 1 if self.near_the_end and self.ids == 1 else 0
        self.rig.sender.identity_received(ProducerIdAndEpoch(self.ids, epoch))
        self.poll()

    @precondition(lambda self: self.asked)
    @rule()
    def give_no_identity(self) -> None:
        self.asked -= 1
        self.rig.sender.identity_failed(RequestTimedOutError("later"), self.now())
        self.poll()

    @rule(node=st.integers(1, 2))
    def handle(self, node: int) -> None:
        if self.brokers.unhandled[node]:
            self.brokers.handle(node)

    @rule(node=st.integers(1, 2), code=st.sampled_from(REFUSALS), which=st.sets(st.integers(0, 2)))
    def refuse(self, node: int, code: int, which: set[int]) -> None:
        if self.brokers.unhandled[node]:
            self.brokers.handle(node, refuse=dict.fromkeys(which, code))

    @rule(node=st.integers(1, 2), code=st.sampled_from(LIES), which=st.sets(st.integers(0, 2)))
    def lie(self, node: int, code: int, which: set[int]) -> None:
        if self.brokers.unhandled[node]:
            self.brokers.handle(node, lie=dict.fromkeys(which, code))

    @rule(node=st.integers(1, 2))
    def answer(self, node: int) -> None:
        if self.brokers.answered[node]:
            call, response = self.brokers.answered[node].pop(0)
            self.rig.sender.answered(call, response, self.now())
            self.poll()

    @rule(node=st.integers(1, 2), written=st.integers(0, 5))
    def cut(self, node: int, written: int) -> None:
        for call in self.brokers.cut(node, written):
            self.rig.sender.failed(call, KafkaConnectionError("gone"), self.now())
        self.poll()

    @rule(node=st.integers(1, 2), code=st.sampled_from((*LIES, 0)))
    def answer_one_and_cut(self, node: int, code: int) -> None:
        """All are in the log; one answer comes (perhaps an untrue one), and none of the others."""
        if not self.brokers.unhandled[node] or self.brokers.answered[node]:
            return
        self.brokers.handle(node, lie=dict.fromkeys(range(3), code) if code else {})
        while self.brokers.unhandled[node]:
            self.brokers.handle(node)
        call, response = self.brokers.answered[node].pop(0)
        self.rig.sender.answered(call, response, self.now())
        self.cut(node, 0)

    @precondition(lambda self: self.brokers.ghosts)
    @rule()
    def handle_late(self) -> None:
        self.brokers.handle_ghost()

    @rule(number=st.integers(0, 2), node=st.sampled_from((1, 2, None)))
    def move(self, number: int, node: int | None) -> None:
        """The metadata follows at once; None: nobody knows the leader."""
        number %= len(self.futures)
        partition = self.brokers.partitions[number]
        if node is not None and node != partition.leader:
            partition.leader = node
            partition.leader_epoch += 1
        self.rig.leaders[number] = node
        self.rig.leader_epochs[number] = partition.leader_epoch
        self.poll()

    @rule()
    def learn(self) -> None:
        for number, partition in enumerate(self.brokers.partitions):
            self.rig.leaders[number] = partition.leader
            self.rig.leader_epochs[number] = partition.leader_epoch
        self.poll()

    @rule(number=st.integers(0, 2), most=st.sampled_from((1, 2, 1000)))
    def limit(self, number: int, most: int) -> None:
        self.brokers.partitions[number % len(self.futures)].most_records = most

    @rule(number=st.integers(0, 2))
    def forget(self, number: int) -> None:
        """The producer was silent for long, and its state is gone. (Not while something is under way: Kafka has no
        defence against that.)"""
        number %= len(self.futures)
        if not self.rig.topic.queues[number].in_flight and not self.brokers.ghosts:
            self.rig.clock.advance(QUIET_S + 1)
            if not self.rig.topic.queues[number].retry:
                self.brokers.partitions[number].producers.clear()
            self.poll()

    @rule(number=st.integers(0, 2))
    def come_near_the_last_sequence(self, number: int) -> None:
        """As after two thousand million records."""
        number %= len(self.futures)
        queue = self.rig.topic.queues[number]
        partition = self.brokers.partitions[number]
        if not queue.in_flight and not queue.retry and not self.brokers.ghosts and not queue.numbers.has_gap:
            for producer_id, known in partition.producers.items():
                last = (*known.batches[-1][:1], MASK - 3, known.batches[-1][2])
                partition.producers[producer_id] = Known(known.epoch, (last,))
            queue.numbers.next_sequence = MASK - 2 if queue.numbers.next_sequence else 0

    # -- at every moment ---------------------------------------------------------------------------------------------

    @invariant()
    def no_more_in_flight_than_allowed(self) -> None:
        for node in (1, 2):
            assert len(self.brokers.unhandled[node]) + len(self.brokers.answered[node]) <= self.max_in_flight
        for queue in self.rig.topic.queues:
            assert len(queue.in_flight) <= MAX_IN_FLIGHT_PER_PARTITION

    @invariant()
    def numbers_are_one_after_the_other(self) -> None:
        for queue in self.rig.topic.queues:
            waiting: list[Any] = [*queue.in_flight, *queue.retry]
            waiting.sort(key=lambda batch: (batch.serial, batch.skipped))
            numbered = [batch for batch in waiting if batch.sequence >= 0]
            for earlier, later in zip(numbered, numbered[1:], strict=False):
                if (earlier.producer_id, earlier.epoch) == (later.producer_id, later.epoch):
                    assert (later.sequence - earlier.sequence) & MASK >= earlier.records_count

    # -- inside ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.rig.clock.monotonic()

    def poll(self) -> None:
        for effect in self.rig.poll():
            if isinstance(effect, SendBatches):
                self.brokers.send(effect)
            elif isinstance(effect, RequestProducerId):
                self.asked += 1


TestSenderAgainstBrokers = SenderAgainstBrokers.TestCase
TestSenderAgainstBrokers.settings = settings(max_examples=60 * ROUNDS, stateful_step_count=60, deadline=None)
