"""Incremental fetches against full ones: what a session has told so far is what a fetch without one would tell now."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.protocol.fetch import FetchResponse
from kafka.protocol.topics import DeleteRecordsRequest, DeleteTopicsRequest
from test.broker.driver import HandBroker, batch, plain
from test.broker.test_fetch_sessions import Partition, SessionClient

NAMES = st.sampled_from(["a", "b"])
NUMBERS = st.integers(0, 2)
PARTITIONS = st.tuples(NAMES, NUMBERS)

Told = tuple[int, int, int]
"""Error code, high watermark, log start."""


def facts(data: FetchResponse.PartitionData) -> Told:
    return data.error_code, data.high_watermark, data.log_start_offset


class SessionAgainstFullFetches(RuleBasedStateMachine):
    """Topics of two partitions, of which three are asked for; the client keeps what it was told last."""

    @initialize(version=st.sampled_from([12, 18]))
    def begin(self, version: int) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.hand = HandBroker(self.directory)
        self.hand.create_topic("a", 2)
        self.hand.create_topic("b", 2)
        self.client = SessionClient(self.hand, version)
        self.offsets: dict[Partition, int] = {}
        self.known: dict[Partition, Told] = {}
        self.turns: list[Partition] = []
        self.open_session({("a", 0): 0})

    def open_session(self, offsets: dict[Partition, int]) -> None:
        self.client.session_id, self.client.epoch = 0, 0
        self.offsets = dict(offsets)
        self.known = {}
        self.incremental(offsets, (), 1 << 20)

    @rule(partition=PARTITIONS)
    def produce(self, partition: Partition) -> None:
        self.hand.produce(partition[0], batch(b"x" * 50), partition[1])

    @rule(partition=PARTITIONS, offset=st.integers(0, 3))
    def delete_records(self, partition: Partition, offset: int) -> None:
        partition_request = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition[1], offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=partition[0], partitions=[partition_request])
        self.hand.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=0))

    @rule()
    def delete_or_make_the_second_topic(self) -> None:
        if self.hand.broker.metadata.topic("b") is None:
            self.hand.create_topic("b", 2)
        else:
            state = DeleteTopicsRequest.DeleteTopicState(name="b")
            self.hand.ask(DeleteTopicsRequest(topics=[state], timeout_ms=0))

    @rule(
        changes=st.dictionaries(PARTITIONS, st.integers(-1, 4), max_size=3),
        forget=st.lists(PARTITIONS, max_size=2, unique=True),
        max_bytes=st.sampled_from([0, 200, 1 << 20]),
    )
    def fetch(self, changes: dict[Partition, int], forget: list[Partition], max_bytes: int) -> None:
        left = {**self.offsets, **changes}
        for partition in forget:
            left.pop(partition, None)
        if left:
            self.offsets.update(changes)
            self.incremental(changes, tuple(forget), max_bytes)

    @rule(offsets=st.dictionaries(PARTITIONS, st.integers(0, 4), min_size=1, max_size=4))
    def begin_anew(self, offsets: dict[Partition, int]) -> None:
        self.open_session(offsets)

    @rule()
    def follow(self) -> None:
        """Read on, as a consumer does, from what a fetch gives."""
        (name, number), offset = next(iter(self.offsets.items()))
        topic = self.hand.broker.metadata.topic(name)
        if topic is not None and number < topic.partitions:
            end = self.hand.broker.logs.log(topic, number).end_offset
            self.offsets[name, number] = end
            self.incremental({(name, number): end}, (), 1 << 20)

    def incremental(self, changes: dict[Partition, int], forget: tuple[Partition, ...], max_bytes: int) -> None:
        answer = self.client.fetch(changes, forget=forget, max_bytes=max_bytes)
        assert answer.error_code == 0
        for partition in forget:
            self.offsets.pop(partition, None)
            self.known.pop(partition, None)
        got = self.client.data_of(answer)
        assert set(got) <= set(self.offsets)
        for partition, data in got.items():
            self.known[partition] = facts(data)
        plain_client = SessionClient(self.hand, self.client.version)
        plain_client.ids = self.client.ids
        full = plain_client.data_of(plain_client.fetch(self.offsets, session=(0, -1)))
        for partition, data in full.items():
            if data.error_code in (100, 3, 103):  # a session remembers the names of ids
                assert self.known[partition][0] in (100, 3, 103)
                continue
            assert self.known[partition] == facts(data)
            if max_bytes == 1 << 20:
                assert plain(got[partition].records if partition in got else b"") == plain(data.records)
        if any(plain(data.records) for data in full.values()):
            assert any(plain(data.records) for data in got.values()), "one batch always comes"

    @invariant()
    def the_broker_counts_what_the_client_does(self) -> None:
        if hasattr(self, "hand"):
            assert self.hand.broker.fetch_sessions.partition_count >= len(self.offsets)

    def teardown(self) -> None:
        if hasattr(self, "hand"):
            self.hand.broker.close()
            shutil.rmtree(self.directory)


SessionAgainstFullFetches.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_what_a_session_has_told_is_what_a_full_fetch_tells = pytest.mark.filterwarnings("error")(
    SessionAgainstFullFetches.TestCase
)
