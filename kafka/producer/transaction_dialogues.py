"""The requests of a transaction, as dialogues: what is sent to whom, and tried again for as long as it makes sense.

    initialize       InitProducerId                      a producer id and epoch, or the next epoch (KIP-360)
    add_partitions   AddPartitionsToTxn                  version 1 alone
    send_offsets     AddOffsetsToTxn, TxnOffsetCommit    the first for version 1 alone
    end              EndTxn                              and InitProducerId, when the machine wants another epoch

What may be done, and what came of it, the machine knows (``kafka/core/produce/transactions.py``); what an error means
is the table in ``recoveries.py``. There is no time limit here: whoever waits has one, and may come back.

Source: KIP-98, KIP-360, KIP-447 (who commits), KIP-890 (which versions go with which protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from kafka.core.dialogue import ByVersion, Dialogue, Forget, Sleep, send
from kafka.core.partitions import by_topic
from kafka.core.produce.identity import ProducerIdentity
from kafka.core.produce.recoveries import Api, Recovery, recovery_for
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.core.routing import Coordinator, CoordinatorType
from kafka.errors import (
    Cancelled,
    InvalidTransactionTimeoutError,
    KafkaError,
    OperationNotAttemptedError,
    for_code,
)
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

R = TypeVar("R", bound=Response)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

BUMP_SINCE: Final = 3
"""InitProducerId from here on takes the id and epoch that the producer has (KIP-360)."""
MEMBER_SINCE: Final = 3
"""TxnOffsetCommit from here on says who commits (KIP-447); older brokers take anybody's offsets."""

_Versions = tuple[int | None, int | None]
_ADD_PARTITIONS: Final[_Versions] = (None, 3)  # later ones are for brokers
_ADD_OFFSETS: Final[_Versions] = (None, 4)
_COMMIT_OFFSETS: Final[dict[int, _Versions]] = {1: (None, 4), 2: (5, None)}
_END: Final[dict[int, _Versions]] = {1: (None, 4), 2: (5, None)}
"""Transaction version -> versions of the request: its version is what tells the broker which protocol is spoken."""

_SEVERITY: Final = (
    (Recovery.FENCED,), (Recovery.FATAL, Recovery.AGAIN), (Recovery.BUMP, Recovery.ABORT), (Recovery.FIND,),
    (Recovery.QUICKLY, Recovery.RETRY),
)  # fmt: skip
"""Which of several partitions' errors decides: the gravest."""

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

    def initialize(self, known: ProducerIdentity = ProducerIdentity()) -> Dialogue[None]:  # noqa: B008
        """Have an id and an epoch; ``known``: the next epoch of this one. Fences whoever had it before, and ends what
        that one has left open."""
        spoken = 0

        def build(version: int) -> InitProducerIdRequest:
            nonlocal spoken
            spoken = version
            given = known if version >= BUMP_SINCE else ProducerIdentity()
            return InitProducerIdRequest(
                transactional_id=self._machine.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=given.producer_id,
                producer_epoch=given.epoch,
            )

        answer: InitProducerIdResponse = yield from self._ask(
            Api.INIT, self._coordinator, lambda: ByVersion(InitProducerIdRequest, build), lambda a: [a.error_code]
        )
        self._machine.initialized(
            ProducerIdentity(answer.producer_id, answer.producer_epoch),
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
                    Api.ADD_PARTITIONS,
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
                    _codes_of_partitions,
                    _ADD_PARTITIONS,
                )
                are_added = True
        finally:
            machine.partitions_done(are_added=are_added)

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> Dialogue[None]:
        """Make a group's offsets part of the transaction."""
        machine = self._machine
        if not machine.allows(Api.COMMIT_OFFSETS):
            raise machine.refusal()
        group_id = group.group_id
        assert group_id is not None
        if machine.version < 2:
            yield from self._ask(
                Api.ADD_OFFSETS,
                self._coordinator,
                lambda: AddOffsetsToTxnRequest(
                    transactional_id=machine.transactional_id,
                    producer_id=machine.identity.producer_id,
                    producer_epoch=machine.identity.epoch,
                    group_id=group_id,
                ),
                lambda answer: [answer.error_code],
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
            Api.COMMIT_OFFSETS,
            Coordinator(group_id),
            lambda: ByVersion(TxnOffsetCommitRequest, build),
            read,
            _COMMIT_OFFSETS[machine.version],
        )

    def end(self, committed: bool) -> Dialogue[None]:
        """Commit or abort what the coordinator knows of, and be ready for the next transaction."""
        machine = self._machine
        version = self._version()
        machine.prepare_end(version)
        following: ProducerIdentity | None = None
        if machine.is_started:
            answer: EndTxnResponse = yield from self._ask(
                Api.END,
                self._coordinator,
                lambda: EndTxnRequest(
                    transactional_id=machine.transactional_id,
                    producer_id=machine.identity.producer_id,
                    producer_epoch=machine.identity.epoch,
                    committed=committed,
                ),
                lambda answer: [answer.error_code],
                _END[machine.version],
            )
            if machine.version >= 2:
                following = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        if not machine.ended(following, version):
            yield from self.initialize(machine.identity)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        api: Api,
        target: Coordinator,
        build: Callable[[], Request[R] | ByVersion[R]],
        read: Callable[[R], Iterable[int]],
        versions: _Versions = (None, None),
    ) -> Dialogue[R]:
        """Send until it is answered well, or an error says that this is the end. ``read`` gives the error codes."""
        machine = self._machine
        failures = 0
        while True:
            if not machine.allows(api):
                raise machine.refusal()
            try:
                answer = yield from send(target, build(), min_version=versions[0], max_version=versions[1])
            except Cancelled:
                raise
            except KafkaError as fault:  # no answer; or nobody knows who the coordinator is
                asked, error = Api.FIND, fault
            else:
                refused = self._gravest(api, [code for code in read(answer) if code])
                if refused is None:
                    self.last_error = None
                    return answer
                asked, error = api, refused
            recovery = recovery_for(asked, error)
            if not recovery.is_retry:
                raise machine.failed(asked, error) from error
            self.last_error = error
            if recovery is Recovery.FIND:
                yield Forget(target)
            failures += 1
            waits = self._quick if recovery is Recovery.QUICKLY else self._backoff
            yield Sleep(waits.delay_s(failures))

    def _gravest(self, api: Api, codes: list[int]) -> KafkaError | None:
        errors: list[KafkaError] = [_refusal(api, code) for code in codes]
        for kinds in _SEVERITY:
            for error in errors:
                if recovery_for(api, error) in kinds and not isinstance(error, OperationNotAttemptedError):
                    return error
        return errors[0] if errors else None


def _refusal(api: Api, code: int) -> KafkaError:
    kind = for_code(code)
    hint = _HINTS.get(kind)
    return kind(f"{api.value}: {hint}" if hint else api.value)


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
