"""Random histories of several producers against a plain model: what readers may see, whatever happens in between.

The model knows values, in the order in which each partition took them, and of each transaction only whether it is open,
committed or aborted. Between any two steps the broker may be restarted, or killed (its directory is copied and opened).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from test.broker.driver import HandBroker
from test.broker.transactions.txn import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    add,
    add_group,
    commit_offset,
    end,
    init,
    produce,
    read,
)

PARTITIONS = 2
TIMEOUT_S = 60.0
NAMES = ("a", "b", "c")
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Transaction:
    """One transaction of the model: its outcome, and the offset that its group would have."""

    def __init__(self, began_at: float) -> None:
        self.outcome = OPEN
        self.began_at = began_at
        self.offset: int | None = None


class Producer:
    """One owner of a transactional id. ``sequences``: by partition; with the consumer group protocol they begin anew
    each time."""

    def __init__(self, name: str, id_and_epoch: tuple[int, int], is_new: bool) -> None:
        self.name = name
        self.id_and_epoch = id_and_epoch
        self.is_new = is_new
        self.sequences: dict[int, int] = {}
        self.transaction: Transaction | None = None
        self.is_fenced = False


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.hand = HandBroker(self.root / "0")
        self.copies = 0
        self.owners: dict[str, Producer] = {}
        self.fenced: list[Producer] = []
        self.logs: list[list[tuple[bytes, Transaction | None]]] = [[] for _ in range(PARTITIONS)]
        self.offset = -1
        self.values = 0

    @initialize(segment_bytes=st.sampled_from([100, 400, 1 << 20]))
    def topic(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.hand.create_topic("t", PARTITIONS)
        self._opened()

    def _opened(self) -> None:
        """Segments smaller than any setting allows, so that there are seals to read back."""
        for partition in range(PARTITIONS):
            log = self.hand.broker.logs.log(self.hand.broker.topic("t"), partition)
            log.config = log.config._replace(segment_bytes=self.segment_bytes)

    def teardown(self) -> None:
        self.hand.broker.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- what producers do -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), is_new=st.booleans())
    def comes_up(self, name: str, is_new: bool) -> None:
        """A new owner of the id: whoever had it is fenced, and what it had open is aborted."""
        before = self.owners.get(name)
        answer = init(self.hand, name)
        if before is not None and before.transaction is not None:
            assert answer.code == 51
            before.transaction.outcome = ABORTED
            answer = init(self.hand, name)
        assert answer.code == 0
        if before is not None:
            before.transaction = None
            before.is_fenced = True
            self.fenced = [*self.fenced[-2:], before]
        self.owners[name] = Producer(name, answer[1:], is_new)

    @precondition(lambda self: self.owners)
    @rule(
        data=st.data(), partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3), is_sent_twice=st.booleans()
    )
    def sends(self, data: st.DataObject, partition: int, count: int, is_sent_twice: bool) -> None:
        owner = self.owners[data.draw(st.sampled_from(sorted(self.owners)))]
        self._begin(owner)
        values = [b"%d" % (self.values + at) for at in range(count)]
        self.values += count
        sequence = owner.sequences.get(partition, 0)
        if not owner.is_new:
            assert add(self.hand, owner.name, owner.id_and_epoch, "t", (partition,)) == [0]
        for _ in range(2 if is_sent_twice else 1):
            answer = produce(
                self.hand, owner.name, owner.id_and_epoch, sequence, "t", *values, partition=partition,
                version=12 if owner.is_new else 11,
            )  # fmt: skip
            assert answer.error_code == 0
        owner.sequences[partition] = sequence + count
        self.logs[partition] += [(value, owner.transaction) for value in values]

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), offset=st.integers(0, 100))
    def sends_an_offset(self, data: st.DataObject, offset: int) -> None:
        owner = self.owners[data.draw(st.sampled_from(sorted(self.owners)))]
        self._begin(owner)
        if not owner.is_new:
            assert add_group(self.hand, owner.name, owner.id_and_epoch, "g") == 0
        version = 5 if owner.is_new else 3
        assert commit_offset(self.hand, owner.name, owner.id_and_epoch, "g", "t", offset, version=version) == 0
        assert owner.transaction is not None
        owner.transaction.offset = offset

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def somebody_sends_without_a_transaction(self, partition: int) -> None:
        value = b"%d" % self.values
        self.values += 1
        answer = produce(self.hand, None, (-1, -1), -1, "t", value, partition=partition, transactional=False)
        assert answer.error_code == 0
        self.logs[partition].append((value, None))

    @precondition(lambda self: any(owner.transaction for owner in self.owners.values()))
    @rule(data=st.data(), is_committed=st.booleans(), is_sent_twice=st.booleans())
    def ends(self, data: st.DataObject, is_committed: bool, is_sent_twice: bool) -> None:
        names = sorted(name for name, owner in self.owners.items() if owner.transaction)
        owner = self.owners[data.draw(st.sampled_from(names))]
        version = 5 if owner.is_new else 4
        answer = end(self.hand, owner.name, owner.id_and_epoch, is_committed, version)
        assert answer.code == 0
        if is_sent_twice:
            assert end(self.hand, owner.name, owner.id_and_epoch, is_committed, version) == answer
        transaction, owner.transaction = owner.transaction, None
        assert transaction is not None
        transaction.outcome = COMMITTED if is_committed else ABORTED
        if is_committed and transaction.offset is not None:
            self.offset = transaction.offset
        if owner.is_new:
            owner.id_and_epoch, owner.sequences = answer[1:], {}

    @precondition(lambda self: self.fenced)
    @rule(data=st.data(), partition=st.integers(0, PARTITIONS - 1))
    def a_fenced_one_tries_again(self, data: st.DataObject, partition: int) -> None:
        owner = data.draw(st.sampled_from(self.fenced))
        sequence = owner.sequences.get(partition, 0)
        version = 12 if owner.is_new else 11
        answer = produce(
            self.hand, owner.name, owner.id_and_epoch, sequence, "t", b"late", partition=partition, version=version
        )
        assert answer.error_code == 47
        assert end(self.hand, owner.name, owner.id_and_epoch, True, 4).code == 90
        assert commit_offset(self.hand, owner.name, owner.id_and_epoch, "g", "t", 999) == 47

    def _begin(self, owner: Producer) -> None:
        if owner.transaction is None:
            owner.transaction = Transaction(self.hand.now)

    # -- what happens to the broker ----------------------------------------------------------------------------------

    @rule()
    def is_restarted(self) -> None:
        self.hand.restart()
        self._opened()

    @rule()
    def is_killed(self) -> None:
        """The directory as it is, opened by another broker."""
        self.copies += 1
        copy = self.root / str(self.copies)
        shutil.copytree(self.hand.data_dir, copy)
        self.hand.broker.close()
        self.hand.data_dir = copy
        self.hand.broker = self.hand._open()
        self._opened()

    @rule(seconds=st.sampled_from([1.0, 25.0, TIMEOUT_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.hand.advance(seconds)
        for name, owner in list(self.owners.items()):
            found = owner.transaction
            if found is not None and self.hand.now - found.began_at >= TIMEOUT_S:
                found.outcome = ABORTED
                owner.transaction = None
                self.fenced = [*self.fenced[-2:], owner]
                del self.owners[name]

    # -- what readers may see ----------------------------------------------------------------------------------------

    @invariant()
    def readers_see_what_they_may(self) -> None:
        for partition, log in enumerate(self.logs):
            everything = [value for value, _ in log]
            stable: list[bytes] = []
            for value, transaction in log:
                if transaction is not None and transaction.outcome == OPEN:
                    break
                if transaction is None or transaction.outcome == COMMITTED:
                    stable.append(value)
            if self.hand.broker.metadata.topic("t") is None:
                return
            assert read(self.hand, "t", READ_UNCOMMITTED, partition) == everything
            assert read(self.hand, "t", READ_COMMITTED, partition) == stable

    @invariant()
    def the_group_has_the_last_committed_offset(self) -> None:
        found = [what.offset for where, what in self.hand.broker.offsets.of_group("g").items() if where.topic == "t"]
        assert found == ([self.offset] if self.offset >= 0 else [])


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
