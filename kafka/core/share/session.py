"""One member's share session with one broker: which request comes next, and what its answer means.

    epoch 0 --ShareFetch--> 1 --ShareFetch or ShareAcknowledge--> 2 ... 2**31-1 -> 1
       ^                                                          |
       +---- connection lost, or an error of the whole answer ----+        -1: close, with the last acknowledgements

The rules that shape it (KIP-932; "measured" is on Apache Kafka 4.3.0):

* One request in flight. A second one, on whatever connection, moves the epoch under the first (measured: the first then
  fails with INVALID_SHARE_SESSION_EPOCH, and what it acquired reaches nobody).
* The request that opens a session carries no acknowledgements.
* The session lives as long as its connection. When that ends, or the broker says SHARE_SESSION_NOT_FOUND, every lock of
  ours on this broker is gone, and so are the records held: they are reported as lost and no acknowledgement is sent for
  them. After any other error the locks stay, since they belong to the member id: only the session is opened anew. What
  INVALID_SHARE_SESSION_EPOCH kept the broker from looking at is said again; with other errors it counts as refused.
* A partition that is wanted no more is forgotten, and what is held of it stays ours to acknowledge, by ShareAcknowledge
  (a ShareFetch would put it back into the session). Only who knows that its leader has moved says that it is lost.
* A broker that ends a session frees the locks on the session's partitions only: a closing request releases by
  name what is held of others.
* Partitions are listed when they are new to the session; all of the subscription's, not only the assigned ones (see
  ``kafka/share/consumer.py``).
* A long poll that finds nothing answers acknowledgements sent with it only at its end, and does not see records that it
  released itself. So renewals, releases and whatever somebody waits for go by ShareAcknowledge.
* What was acquired is read in slices: whole batches are acquired, and a few kB may hold millions of records. When the
  next slice is read is the caller's affair. Before, nothing is fetched; what is unread when its locks end is forgotten.
* Acknowledgements that the broker could not write for the moment are said again while their locks last.

What each error asks for is a table (``reactions.py``), and what an answer brings is taken in by ``intake.py``. A
partition that answered with an error rests for a moment (``rests.py``). Records that cannot be read are given back, and
the partition rests long enough for others to take them: each hand-out counts, and after some the broker drops them.
What an error says about the cluster's metadata is for the caller, who finds it in :class:`Outcome`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.share.acks import TakenAcks
from kafka.core.share.holding import Answered, Holding
from kafka.core.share.intake import Intake, Outcome, Scene, ack_code
from kafka.core.share.reactions import of_answer
from kafka.core.share.records import AcknowledgeType, OpenBatch, SharePartition, ShareRecord, Slice
from kafka.core.share.requests import Demand, Polling, acknowledge_request, fetch_request
from kafka.core.share.rests import Rests
from kafka.errors import BrokerResponseError, IllegalStateError, KafkaError, for_code
from kafka.protocol.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

OPENING: Final = 0
CLOSING: Final = -1
MAX_EPOCH: Final = 2**31 - 1
WAIT_IDLE_MS: Final = 500
"""Longest long poll: a record released elsewhere wakes no waiting fetch, it is found by the next one."""
WAIT_HOLDING_MS: Final = 100
"""Longest long poll while something is held: an acknowledgement has to wait for it."""


class Exchange(NamedTuple):
    """A request as :meth:`ShareSession.next_request` made it, to be handed back with its answer."""

    request: ShareFetchRequest | ShareAcknowledgeRequest
    acks: dict[SharePartition, TakenAcks]
    listed: frozenset[SharePartition]
    forgotten: frozenset[SharePartition]
    fetched: frozenset[SharePartition]


class ShareSession:
    """See the module. All instants are ``now`` of one monotonic clock, in seconds."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        fetch_max_bytes: int = 52_428_800,
        check_crcs: bool = True,
        max_wait_ms: int = WAIT_IDLE_MS,
    ) -> None:
        self.member_id = member_id
        self._group_id = group_id
        self._fetch_max_bytes = fetch_max_bytes
        self._open_batch = OpenBatch()
        self._check_crcs = check_crcs
        self._max_wait_ms = min(max_wait_ms, WAIT_IDLE_MS)
        self._epoch = OPENING
        self._in_flight = False
        self._topics: dict[UUID, str] = {}
        self._wanted: dict[SharePartition, None] = {}  # in the order in which they are listed
        self._listed: set[SharePartition] = set()
        self._rests = Rests()  # of fetches
        self._ack_rests = Rests()
        self._holdings: dict[SharePartition, Holding] = {}
        self._next_expiry: float | None = None
        self._flush = False
        self.lock_s = 30.0
        """Length of a lock in seconds, as the broker's last answer told it."""

    # -- what the owner says ------------------------------------------------------------------------------------------

    def set_partitions(self, wanted: Sequence[SharePartition], topics: dict[UUID, str]) -> None:
        """The partitions to fetch from this broker from now on, and the names of their topics."""
        self._topics = topics
        self._wanted = dict.fromkeys(wanted)
        self._rests.keep_only(self._wanted)
        for partition, holding in self._holdings.items():
            if partition not in self._wanted and holding.give_back():
                self._flush = True

    def lose(self, partitions: Iterable[SharePartition], error: KafkaError) -> Outcome:
        """This broker leads these no more, so our locks on them are gone, and acknowledgements that wait are refused
        with ``error``."""
        gone = [self._holdings.pop(partition) for partition in partitions if partition in self._holdings]
        held, said = _dropped(gone, error)
        return Outcome([], said, held, {}, None)

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of a record that is held. Raises IllegalStateError when it is not, or not any more."""
        holding = record.owner
        if not isinstance(holding, Holding) or self.acknowledge_all(holding, [record], kind):
            where = f"{record.topic}:{record.partition}:{record.offset}"
            why = "its lock is gone" if record.lost else "it was acknowledged before"
            raise IllegalStateError(f"{where} cannot be acknowledged: {why}")

    def acknowledge_all(
        self, holding: Holding, records: Sequence[ShareRecord], kind: AcknowledgeType
    ) -> list[ShareRecord]:
        """Say ``kind`` of records of one holding; those that are not held (any more)."""
        others = holding.settle(records, kind)
        if kind is AcknowledgeType.RELEASE and len(others) < len(records):
            self._flush = True
        return others

    def flush(self) -> None:
        """Somebody waits for the acknowledgements: send them by themselves, before the next fetch."""
        self._flush = True

    @property
    def held_count(self) -> int:
        """Records that are locked for us and not acknowledged."""
        return sum(len(holding.held) for holding in self._holdings.values())

    def held(self, topic_id: UUID, partition: int, offset: int) -> ShareRecord | None:
        """One of them."""
        holding = self._holdings.get(SharePartition(topic_id, partition))
        return None if holding is None else holding.held.get(offset)

    @property
    def has_pending(self) -> bool:
        """There are acknowledgements to be sent."""
        return any(holding.acks for holding in self._holdings.values())

    @property
    def has_suspects(self) -> bool:
        """There are acknowledgements that were refused as a list and are said one by one now."""
        return any(holding.acks.has_suspects for holding in self._holdings.values())

    @property
    def in_use(self) -> list[SharePartition]:
        """The partitions of which something is held, or to be said."""
        return [partition for partition, holding in self._holdings.items() if holding.in_use]

    @property
    def has_unread(self) -> bool:
        """Something was acquired and not read yet (:meth:`read`)."""
        return any(holding.unread for holding in self._holdings.values())

    @property
    def is_wanted(self) -> bool:
        """There are partitions to fetch, though all may rest now."""
        return bool(self._wanted)

    @property
    def is_open(self) -> bool:
        """The broker has it, as far as we know."""
        return self._epoch != OPENING

    def can_fetch(self, now: float) -> bool:
        """No request is out, and there is a partition that does not rest."""
        return not self._in_flight and any(self._rests.is_over(partition, now) for partition in self._wanted)

    @property
    def in_flight(self) -> bool:
        """A request is out; the next one has to wait."""
        return self._in_flight

    def next_deadline(self, now: float) -> float | None:
        """When :meth:`expire` or :meth:`next_request` should be looked at again though nothing came. Always after
        ``now``.
        """
        instants = (self._rests.next_end(now), self._ack_rests.next_end(now), self._next_expiry)
        return min((instant for instant in instants if instant is not None), default=None)

    def expire(self, now: float) -> list[ShareRecord]:
        """Held records whose lock time has passed: lost, whatever the broker thinks by now."""
        if self._next_expiry is None or now < self._next_expiry:
            return []
        lost: list[ShareRecord] = []
        deadlines: list[float] = []
        for holding in self._holdings.values():
            over = [record for record in holding.held.values() if record.lock_deadline <= now]
            for record in over:
                del holding.held[record.offset]
                holding.acks.take_back(record)  # a renewal now would lock what nobody works on
                record.lost = True
            lost += over
            deadlines += [record.lock_deadline for record in holding.held.values()]
            deadlines += [reader.lock_deadline for reader in holding.unread if reader.lock_deadline > now]
        self._next_expiry = min(deadlines) if deadlines else None
        return lost

    def expire_unread(self, now: float) -> int:
        """Forget what was acquired and not read before the locks ended; how many offsets that were."""
        return sum([holding.expire_unread(now) for holding in self._holdings.values()])

    # -- requests -----------------------------------------------------------------------------------------------------

    def next_request(self, now: float, demand: Demand) -> Exchange | None:
        """The request to send now, or None: one is out already, or there is nothing to say."""
        if self._in_flight:
            return None
        self._rests.end_those_over(now)
        self._ack_rests.end_those_over(now)
        wanted = [partition for partition in self._wanted if partition not in self._rests]
        if self._may_speak():
            if self._epoch != OPENING and (not demand.records or self._goes_by_itself(wanted)):
                return self._out(self._acknowledge_request())
            if not (demand.records and wanted):
                return self._out(self._fetch_request(wanted, Demand(0)))
        elif not (demand.records and wanted):
            return None
        return self._out(self._fetch_request(wanted, demand))

    def reopening_request(self) -> Exchange | None:
        """Open the session anew while it stands, over another connection (make before break): the locks belong to the
        member and stay. Of what is to be fetched nothing is asked yet. None while a request is out.
        """
        if self._in_flight:
            return None
        self._epoch = OPENING
        self._listed = set()
        return self._out(self._fetch_request(list(self._wanted), Demand(0)))

    def close_request(self) -> Exchange | None:
        """The last request: ends the session and frees whatever is still held. What is waiting to be said goes with it,
        but is better said before: one bad offset would refuse it all.
        """
        if self._in_flight or self._epoch == OPENING:
            return None
        for partition, holding in self._holdings.items():
            if partition not in self._listed:
                for record in holding.held.values():
                    holding.acks.take_back(record)
                holding.give_back()
                holding.acks.add_ranges([(offset, offset) for offset in holding.held], AcknowledgeType.RELEASE)
        return self._out(self._acknowledge_request(CLOSING))

    def _may_speak(self) -> bool:
        """There are acknowledgements to be sent now."""
        return any(holding.acks and each not in self._ack_rests for each, holding in self._holdings.items())

    def _goes_by_itself(self, wanted: Sequence[SharePartition]) -> bool:
        """What is to be said cannot go with a fetch of these partitions, or should not wait for it."""
        return self._flush or any(
            holding.acks.renewals or (holding.acks and partition not in wanted)
            for partition, holding in self._holdings.items()
        )

    def _out(self, exchange: Exchange) -> Exchange:
        self._in_flight = True
        return exchange

    def _take(self, everything: bool = False) -> dict[SharePartition, TakenAcks]:
        taken = {
            partition: holding.acks.take()
            for partition, holding in self._holdings.items()
            if holding.acks and (everything or partition not in self._ack_rests)
        }
        if not self.has_pending:
            self._flush = False
        return taken

    def _fetch_request(self, wanted: list[SharePartition], demand: Demand) -> Exchange:
        opening = self._epoch == OPENING
        acks = {} if opening else self._take()
        fetched = frozenset(wanted)
        listed = [partition for partition in wanted if opening or partition not in self._listed]
        forgotten = frozenset() if opening else self._listed - fetched
        wait_ms = self._max_wait_ms if demand.max_wait_ms is None else min(demand.max_wait_ms, self._max_wait_ms)
        if acks or self.held_count:
            wait_ms = min(wait_ms, WAIT_HOLDING_MS)
        request = fetch_request(
            self._group_id,
            self.member_id,
            self._epoch,
            list(dict.fromkeys([*listed, *acks])),
            list(forgotten),
            acks,
            demand if wanted else Demand(0),
            Polling(wait_ms, self._fetch_max_bytes),
        )
        return Exchange(request, acks, frozenset(listed), frozenset(forgotten), fetched)

    def _acknowledge_request(self, epoch: int | None = None) -> Exchange:
        acks = self._take(everything=epoch == CLOSING)
        request = acknowledge_request(self._group_id, self.member_id, self._epoch if epoch is None else epoch, acks)
        nothing: frozenset[SharePartition] = frozenset()  # unlike a fetch, it puts no partition into the session
        return Exchange(request, acks, nothing, nothing, nothing)

    # -- answers ------------------------------------------------------------------------------------------------------

    def on_response(
        self, exchange: Exchange, response: ShareFetchResponse | ShareAcknowledgeResponse, sent_at: float, now: float
    ) -> Outcome:
        """What the answer to ``exchange``, sent at ``sent_at``, brought."""
        self._in_flight = False
        if response.error_code:
            return self._refused(exchange, for_code(response.error_code)(response.error_message or ""))
        closing = exchange.request.share_session_epoch == CLOSING
        self._epoch = OPENING if closing else 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        self._listed = set() if closing else (self._listed | exchange.listed) - exchange.forgotten
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_s = response.acquisition_lock_timeout_ms / 1000
        deadline = sent_at + self.lock_s
        intake = Intake(self._scene(), deadline, now)
        answered: set[SharePartition] = set()
        for topic in response.responses:
            for part in topic.partitions:
                partition = SharePartition(topic.topic_id, part.partition_index)
                answered.add(partition)
                if isinstance(part, ShareFetchResponse.PartitionData):
                    intake.fetched(partition, part)
                intake.said(partition, exchange.acks.get(partition), *ack_code(part))
        for partition in exchange.acks.keys() - answered:
            intake.said(partition, exchange.acks[partition], 0, None)
        if closing:
            held, said = self._drop_everything(IllegalStateError("the share session was closed"))
            intake.lost += held
            intake.answered += said
        if intake.has_acquired:
            self._read(intake)
        self._flush = self._flush or intake.gives_back
        for partition in exchange.fetched.difference(intake.errors):
            self._rests.went_well(partition)
        if (intake.records or self.has_unread) and (self._next_expiry is None or deadline < self._next_expiry):
            self._next_expiry = deadline
        return intake.outcome()

    def read(self, now: float) -> Outcome:
        """The next records of what was acquired and is unread, a slice of them."""
        intake = Intake(self._scene(), now, now)
        self._read(intake)
        self._flush = self._flush or intake.gives_back
        return intake.outcome()

    def _read(self, intake: Intake) -> None:
        part = Slice()
        for holding in self._holdings.values():
            while holding.unread and not part.is_used_up:
                intake.read(holding, part)

    def on_failure(self, exchange: Exchange, error: KafkaError) -> Outcome:
        """No answer came, or none that can be read: the connection is gone, and with it session and locks."""
        self._in_flight = False
        return self._session_lost(exchange.acks, error)

    def abandon(self, exchange: Exchange | None, error: KafkaError) -> Outcome:
        """Its connection is closed without another word: what was said and not answered, or not said, is refused with
        ``error``. ``exchange``: the one that is out."""
        self._in_flight = False
        return self._session_lost(exchange.acks if exchange is not None else {}, error)._replace(error=None)

    def on_connection_lost(self, error: KafkaError) -> Outcome:
        """The session's connection has ended while no request was out, so the broker has let go of its locks."""
        return self._session_lost({}, error)

    def _scene(self) -> Scene:
        return Scene(
            self._holding, self._wanted, self._topics, self._rests, self._ack_rests, self._check_crcs, self._open_batch
        )

    def _refused(self, exchange: Exchange, error: BrokerResponseError) -> Outcome:
        reaction = of_answer(error)
        if reaction.locks_gone:
            return self._session_lost(exchange.acks, error)
        self._epoch = OPENING
        self._listed = set()
        answered: list[Answered] = []
        for partition, taken in exchange.acks.items():
            holding = self._holding(partition)
            if reaction.again:
                holding.acks.put_back(taken)
            else:
                answered += holding.refuse(taken, error)
        return Outcome([], answered, [], {}, error)

    def _session_lost(self, taken: dict[SharePartition, TakenAcks], error: KafkaError) -> Outcome:
        self._epoch = OPENING
        self._listed = set()
        self._flush = False
        answered = [
            Answered(said.type, said.records, error)
            for each in taken.values()
            for said in each.said
            if said.type is not AcknowledgeType.RENEW
        ]
        for each in answered:
            for record in each.records:
                record.lost = True
        held, said = self._drop_everything(error)
        return Outcome([], answered + said, held, {}, error)

    def _drop_everything(self, error: KafkaError) -> tuple[list[ShareRecord], list[Answered]]:
        self._next_expiry = None
        return _dropped(self._holdings.values(), error)

    def _holding(self, partition: SharePartition) -> Holding:
        found = self._holdings.get(partition)
        if found is None:
            found = self._holdings[partition] = Holding(self, partition)
        return found


def _dropped(holdings: Iterable[Holding], error: KafkaError) -> tuple[list[ShareRecord], list[Answered]]:
    held: list[ShareRecord] = []
    said: list[Answered] = []
    for holding in holdings:
        lost, refused = holding.drop(error)
        held += lost
        said += refused
    return held, said
