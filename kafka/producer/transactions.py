"""A producer's transactions on its loop: what the transactional calls of ``producer.py`` ask for is carried out here.

    user's thread                    the loop's thread
    init, commit, abort ───────────► one dialogue for each, kept until a caller has its outcome
    begin ─────────────────────────► the machine
    send ──► accumulator ──► sender ─┤ may it go out? which partitions are new?
    send_offsets ──────────────────► dialogues, one after the other

The machine is ``kafka/core/produce/transactions.py``, the requests are :class:`TransactionDialogues`. Dialogues with a
coordinator take turns: it refuses what comes while something else of the same transaction is being written.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka.client import KafkaClient
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, Forget, Sleep, Wait, send
from kafka.core.partitions import by_topic
from kafka.core.produce.batch import ProducerIdAndEpoch
from kafka.core.produce.errors import TRANSACTION_ERROR_ACTIONS, TransactionErrorAction, TransactionRequestKind
from kafka.core.produce.sender import Sender
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.core.routing import Coordinator, CoordinatorType
from kafka.core.states import TransactionPhase
from kafka.errors import (
    Cancelled,
    IllegalStateError,
    InvalidTransactionTimeoutError,
    KafkaError,
    OperationNotAttemptedError,
    TransactionAbortedError,
    TransactionError,
    for_code,
)
from kafka.future import Future
from kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.wire.message import Request, Response

# The requests of a transaction, as dialogues: what is sent to whom, and tried again for as long as it makes sense.
#
#     initialize       InitProducerId                      a producer id and epoch, or the next epoch (KIP-360)
#     add_partitions   AddPartitionsToTxn                  version 1 alone
#     send_offsets     AddOffsetsToTxn, TxnOffsetCommit    the first for version 1 alone
#     end              EndTxn                              and InitProducerId, when the machine wants another epoch
#
# What may be done, and what came of it, the machine knows (``kafka/core/produce/transactions.py``); what an error means
# is the table in ``core/produce/errors.py``. There is no time limit here: the waiting caller has one, and may call
# again.
#
# Source: KIP-98, KIP-360, KIP-447 (who commits), KIP-890 (which versions go with which protocol).


R = TypeVar("R", bound=Response)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

BUMP_SINCE: Final = 3
"""InitProducerId from here on takes the id and epoch that the producer has (KIP-360)."""
MEMBER_SINCE: Final = 3
"""TxnOffsetCommit from here on says who commits (KIP-447); older brokers take anybody's offsets."""

_Versions = tuple[int | None, int | None]
_ADD_PARTITIONS: Final[_Versions] = (None, 3)  # later ones are for brokers
_ADD_OFFSETS: Final[_Versions] = (None, 4)
_BY_PROTOCOL: Final[dict[int, _Versions]] = {1: (None, 4), 2: (5, None)}
"""Transaction version -> versions of TxnOffsetCommit and EndTxn: these tell the broker which protocol is spoken."""

_SEVERITY: Final = {
    TransactionErrorAction.FENCED: 0,
    TransactionErrorAction.FATAL: 1,
    TransactionErrorAction.AGAIN: 1,
    TransactionErrorAction.BUMP: 2,
    TransactionErrorAction.ABORT: 2,
    TransactionErrorAction.FIND: 3,
    TransactionErrorAction.QUICKLY: 4,
    TransactionErrorAction.RETRY: 4,
}
"""Which of several partitions' errors decides: the gravest, the first of these. What was not attempted since another
partition failed says nothing."""

_HINTS: Final[dict[type[KafkaError], str]] = {
    InvalidTransactionTimeoutError: "transaction_timeout_ms is above the broker's transaction.max.timeout.ms",
}
"""What to do about errors whose name does not say it."""


class TransactionDialogues:
    """``backoff`` gives the waits between attempts, ``quick`` those where the broker is about to be ready; ``version``
    tells what the cluster speaks now: 1 or 2."""

    def __init__(
        self, machine: TransactionManager, timeout_ms: int, backoff: Backoff, quick: Backoff, version: Callable[[], int]
    ) -> None:
        self._machine = machine
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self._quick = quick
        self._version = version
        self.last_error: KafkaError | None = None
        """What the request under way was answered last, when it is tried again."""
        self._coordinator = Coordinator(machine.transactional_id, CoordinatorType.TRANSACTION)

    def initialize(self, known: ProducerIdAndEpoch = ProducerIdAndEpoch()) -> Dialogue[None]:  # noqa: B008
        """Have an id and an epoch; ``known``: the next epoch of this one. Fences the previous producer, and ends what
        that one has left open."""
        spoken = 0

        def build(version: int) -> InitProducerIdRequest:
            nonlocal spoken
            spoken = version
            given = known if version >= BUMP_SINCE else ProducerIdAndEpoch()
            return InitProducerIdRequest(
                transactional_id=self._machine.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=given.producer_id,
                producer_epoch=given.epoch,
            )

        answer: InitProducerIdResponse = yield from self._ask(
            TransactionRequestKind.INIT,
            self._coordinator,
            lambda: ByVersion(InitProducerIdRequest, build),
        )
        self._machine.initialized(
            ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch),
            can_bump=spoken >= BUMP_SINCE,
            version=self._version(),
        )

    def add_partitions(self) -> Dialogue[None]:
        """Add all that batches wait for, in one request."""
        machine = self._machine
        partitions = machine.take_new_partitions()
        are_added = False
        try:
            if partitions:
                yield from self._ask(
                    TransactionRequestKind.ADD_PARTITIONS,
                    self._coordinator,
                    lambda: AddPartitionsToTxnRequest(
                        v3_and_below_transactional_id=machine.transactional_id,
                        v3_and_below_producer_id=machine.identity.producer_id,
                        v3_and_below_producer_epoch=machine.identity.epoch,
                        v3_and_below_topics=[
                            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                            for topic, numbers in by_topic(partitions).items()
                        ],
                    ),
                    _ADD_PARTITIONS,
                    _codes_of_partitions,
                )
                are_added = True
        finally:
            machine.partitions_done(are_added=are_added)

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> Dialogue[None]:
        """Make a group's offsets part of the transaction."""
        machine = self._machine
        if not machine.allows(TransactionRequestKind.COMMIT_OFFSETS):
            raise machine.refusal()
        group_id = group.group_id
        assert group_id is not None
        if machine.version < 2:
            yield from self._ask(
                TransactionRequestKind.ADD_OFFSETS,
                self._coordinator,
                lambda: AddOffsetsToTxnRequest(
                    transactional_id=machine.transactional_id,
                    producer_id=machine.identity.producer_id,
                    producer_epoch=machine.identity.epoch,
                    group_id=group_id,
                ),
                _ADD_OFFSETS,
            )
        machine.offsets_added()
        left = dict(offsets)

        def build(version: int) -> TxnOffsetCommitRequest:
            member = group if version >= MEMBER_SINCE else ConsumerGroupMetadata(group_id)
            return TxnOffsetCommitRequest(
                transactional_id=machine.transactional_id,
                group_id=group_id,
                producer_id=machine.identity.producer_id,
                producer_epoch=machine.identity.epoch,
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                topics=_offset_topics(left),
            )

        def read(answer: TxnOffsetCommitResponse) -> list[int]:
            codes = []
            for topic in answer.topics:
                for one in topic.partitions:
                    codes.append(one.error_code)
                    if not one.error_code:
                        left.pop(TopicPartition(topic.name, one.partition_index), None)
            return codes

        yield from self._ask(
            TransactionRequestKind.COMMIT_OFFSETS,
            Coordinator(group_id),
            lambda: ByVersion(TxnOffsetCommitRequest, build, self._coordinator),
            _BY_PROTOCOL[machine.version],
            read,
        )

    def end(self, committed: bool) -> Dialogue[None]:
        """Commit or abort what the coordinator knows of, and be ready for the next transaction."""
        machine = self._machine
        version = self._version()
        machine.prepare_end(version)
        following: ProducerIdAndEpoch | None = None
        if machine.is_started:
            answer: EndTxnResponse = yield from self._ask(
                TransactionRequestKind.END,
                self._coordinator,
                lambda: EndTxnRequest(
                    transactional_id=machine.transactional_id,
                    producer_id=machine.identity.producer_id,
                    producer_epoch=machine.identity.epoch,
                    committed=committed,
                ),
                _BY_PROTOCOL[machine.version],
            )
            if machine.version >= 2:
                following = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        if not machine.ended(following, version):
            yield from self.initialize(machine.identity)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        api: TransactionRequestKind,
        target: Coordinator,
        build: Callable[[], Request[R] | ByVersion[R]],
        versions: _Versions = (None, None),
        read: Callable[[Any], list[int]] = lambda answer: [answer.error_code],
    ) -> Dialogue[R]:
        """Send until it is answered well, or an error says that this is the end. ``read`` gives the error codes."""
        machine = self._machine
        failures = 0
        while True:
            # AddPartitionsToTxn is tried again also when the transaction is to be aborted. Otherwise it is not known
            # whether the coordinator has begun the transaction: EndTxn 4 without one is an error, and a transaction
            # without EndTxn runs into its timeout, which fences its producer.
            if not machine.allows(api):
                raise machine.refusal()
            try:
                answer = yield from send(target, build(), min_version=versions[0], max_version=versions[1])
            except Cancelled:
                raise
            except KafkaError as fault:  # no response, or no coordinator known
                asked, error = TransactionRequestKind.FIND, fault
            else:
                refused = _gravest(api, read(answer))
                if refused is None:
                    self.last_error = None
                    return answer
                asked, error = api, refused
            recovery = TRANSACTION_ERROR_ACTIONS[asked].action_for(error)
            if not recovery.is_retry:
                raise machine.failed(asked, error) from error
            self.last_error = error
            if recovery is TransactionErrorAction.FIND:
                yield Forget(target)
            failures += 1
            waits = self._quick if recovery is TransactionErrorAction.QUICKLY else self._backoff
            yield Sleep(waits.delay_s(failures))


def _gravest(api: TransactionRequestKind, codes: list[int]) -> KafkaError | None:
    """The error that decides, of the codes that are not 0."""
    errors: list[KafkaError] = []
    for kind in map(for_code, filter(None, codes)):
        errors.append(kind(f"{api.value}: {_HINTS[kind]}" if kind in _HINTS else api.value))
    decisive = [each for each in errors if not isinstance(each, OperationNotAttemptedError)] or errors
    table = TRANSACTION_ERROR_ACTIONS[api]
    return min(decisive, key=lambda error: _SEVERITY[table.action_for(error)], default=None)


def _codes_of_partitions(answer: AddPartitionsToTxnResponse) -> list[int]:
    return [
        one.partition_error_code for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition
    ]


def _offset_topics(offsets: Offsets) -> list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]:
    return [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)].offset,
                    committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                    committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]


log = logging.getLogger(__name__)

QUICK_S: Final = 0.02
"""First wait where the broker still completes the last transaction, as in Java."""
FEATURE: Final = "transaction.version"

_ENDING: Final = (TransactionPhase.COMMITTING, TransactionPhase.ABORTING)


class _Operation:
    """A call of ``init``, ``commit`` or ``abort`` under way, or done and not told yet."""

    __slots__ = ("future", "is_signalled", "name")

    def __init__(self, name: str, future: Future[None]) -> None:
        self.name = name
        self.future = future
        self.is_signalled = False

    def refusal(self) -> IllegalStateError:
        """What is raised instead of anything else."""
        return IllegalStateError(f"{self.name}() timed out, and is to be called again before anything else")


class Transactions:
    """One producer's transactions on its loop. All of it on the loop's thread, but for ``machine.state`` to look at.

    ``flush`` and ``pump_soon`` are the producer's driver's: what has been handed in was answered; look at the sender,
    and at :meth:`pump`, soon."""

    def __init__(
        self,
        client: KafkaClient,
        machine: TransactionManager,
        sender: Sender,
        flush: Callable[[], Future[None]],
        pump_soon: Callable[[], object],
        settings: Mapping[str, Any],
    ) -> None:
        self.machine = machine
        self.on_sending_refused: Callable[[], object] = lambda: None
        """Called when ``send`` is to be refused."""
        self._client = client
        self._sender = sender
        self._accumulator = sender.accumulator
        self._flush = flush
        self._pump_soon = pump_soon
        # For CONCURRENT_TRANSACTIONS right after an end: the markers are there within ms (Java waits 20 ms, too).
        quick = Backoff(QUICK_S, settings["retry_backoff_ms"] / 1000, random.Random(), jitter=0)
        self._dialogues = TransactionDialogues(
            machine, settings["transaction_timeout_ms"], client.retry_backoff, quick, self._version
        )
        self._operation: _Operation | None = None
        self._turn: Future[None] | None = None
        """That of the last dialogue with a coordinator: they take turns."""
        self._is_adding = False
        """Partitions are being added, or are about to be: what is new meanwhile comes after them."""
        self._empty: Future[None] | None = None
        """A caller waits until nothing is in flight."""
        machine.call_on_error(self._note_error)

    def call_when_closed(self, action: Callable[[], object]) -> None:
        """``action`` is called when ``send`` is to be refused from now on."""
        self.on_sending_refused = action

    def _version(self) -> int:
        """Of the protocol that the cluster speaks now."""
        return 2 if self._client.finalized_level(FEATURE) >= 2 else 1

    @property
    def last_error(self) -> KafkaError | None:
        """Why what is under way is tried again, if it is. To look at, from any thread."""
        return self._dialogues.last_error

    @property
    def is_ended(self) -> bool:
        """No transaction is under way."""
        return self.machine.state is TransactionPhase.READY

    @property
    def is_sending(self) -> bool:
        """Records may become part of a transaction."""
        return self.machine.state is TransactionPhase.IN_TRANSACTION

    # -- called by the driver ------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """The sender was asked: do what it wants of us."""
        if self.machine.has_new_partitions and not self._is_adding:
            self._is_adding = True
            self._client.run(self._in_turn(self._dialogues.add_partitions)).add_both(self._added)
        empty = self._empty
        if empty is not None and self._accumulator.incomplete and self.machine.state is TransactionPhase.ABORTING:
            self._sender.drop_unsent(TransactionAbortedError("the record was sent while its transaction was aborted"))
        self._refuse_late()
        if empty is not None and not self._accumulator.incomplete:
            self._empty = None
            empty.success(None)

    # -- called for the user -------------------------------------------------------------------------------------------

    def run(self, name: str) -> Future[None]:
        """One of :data:`_OPERATIONS`, or the same one that is under way already. After a timeout nothing else is
        allowed before the same call was repeated and has told how it ended, as in Java: a commit must not be followed
        by an abort."""
        running = self._operation
        if running is not None and not running.is_signalled:
            if running.name == name:
                return running.future
            raise running.refusal()
        begin, dialogue = _OPERATIONS[name]
        begin(self)
        self._operation = operation = _Operation(name, self._client.run(dialogue(self)))
        self._pump_soon()
        return operation.future

    def mark_signalled(self, name: str, *, by_future: bool = False) -> None:
        """The caller knows the outcome of the operation, if it has ended; or (``by_future``) gets it by its future."""
        running = self._operation
        if running is not None and running.name == name and (running.future.is_done or by_future):
            running.is_signalled = True

    def begin(self) -> None:
        running = self._operation
        if running is not None and not (running.is_signalled and running.future.is_done):
            raise running.refusal()
        self._refuse_late()
        self.machine.begin()

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> Future[None]:
        self.machine.check_sending()
        if not offsets:
            return Future[None]().success(None)
        return self._client.run(self._in_turn(lambda: self._dialogues.send_offsets(offsets, group)))

    def finish(self) -> Future[None]:
        """The producer is about to close: abort what is open, or wait for the end that is under way."""
        done: Future[None] = Future()
        running = self._operation
        if running is not None:
            running.is_signalled = True
            if not running.future.is_done:
                running.future.add_both(lambda _: self.finish().chain(done))
                return done
        if not self.machine.is_open:
            return done.success(None)
        self.run("abort_transaction").add_both(lambda _: done.success(None))
        return done

    # -- operations ----------------------------------------------------------------------------------------------------

    def _init(self) -> Dialogue[None]:
        yield from self._dialogues.initialize()
        self._sender.identity_received(self.machine.identity)

    def _begin_commit(self) -> None:
        self.machine.begin_commit()
        self.on_sending_refused()

    def _commit(self) -> Dialogue[None]:
        yield Wait(self._flush())
        yield from self._end(True)

    def _begin_abort(self) -> None:
        reason = self.machine.begin_abort()
        self.on_sending_refused()
        self._drop(reason)

    def _end(self, committed: bool) -> Dialogue[None]:
        while not self.is_ended:
            yield from self._until_empty()
            yield from self._in_turn(lambda: self._tell_end(committed))

    def _tell_end(self, committed: bool) -> Dialogue[None]:
        machine = self.machine
        if machine.state not in _ENDING:  # a record or an offset has failed meanwhile
            raise machine.refusal()
        if self._accumulator.incomplete:  # another thread was late, and it is part of the transaction
            return
        yield from self._dialogues.end(committed)
        self._sender.identity_received(machine.identity)
        self._pump_soon()

    def _until_empty(self) -> Dialogue[None]:
        while self._accumulator.incomplete and self.machine.state in _ENDING:
            if self._empty is None:
                self._empty = Future()
            self._pump_soon()
            yield Wait(self._empty)

    def _in_turn(self, dialogue: Callable[[], Dialogue[None]]) -> Dialogue[None]:
        before, mine = self._turn, Future[None]()
        self._turn = mine
        try:
            if before is not None and not before.is_done:
                yield Wait(before)
            yield from dialogue()
        finally:
            if not mine.is_done:
                mine.success(None)

    # -- errors --------------------------------------------------------------------------------------------------------

    def _note_error(self) -> None:
        """The machine has come to one of its two errors, in the middle of whatever: what follows, follows later."""
        self.on_sending_refused()
        self._client.loop.call_soon(self._after_error)

    def _after_error(self) -> None:
        error = self.machine.error
        if error is None:
            return
        if self.machine.state is TransactionPhase.FATAL_ERROR:
            self._sender.end(error)
        else:
            self._drop(error)
        empty, self._empty = self._empty, None
        if empty is not None:
            empty.success(None)  # they look again
        self._pump_soon()

    def _drop(self, error: Exception) -> None:
        """Fail what was not sent yet."""
        self._sender.drop_unsent(error)
        self._pump_soon()

    def _refuse_late(self) -> None:
        """What another thread sent while the transaction was ended, too late to be part of it."""
        if self.is_ended and self._accumulator.incomplete:
            self._sender.drop_unsent(IllegalStateError("the record was sent while no transaction was under way"))

    def _added(self, outcome: object) -> None:
        self._is_adding = False
        if isinstance(outcome, BaseException) and not isinstance(outcome, (TransactionError, Cancelled)):
            log.error("adding partitions to the transaction failed; it can only be aborted", exc_info=outcome)
            self.machine.failed(TransactionRequestKind.ADD_PARTITIONS, outcome)
        self._pump_soon()


_OPERATIONS: Final[dict[str, tuple[Callable[[Transactions], None], Callable[[Transactions], Dialogue[None]]]]] = {
    "init_transactions": (lambda it: it.machine.begin_initializing(), Transactions._init),
    "commit_transaction": (Transactions._begin_commit, Transactions._commit),
    "abort_transaction": (Transactions._begin_abort, lambda it: it._end(False)),
}
"""Name for users -> the step that may be refused at once, and what takes its time."""
