"""What a consumer reads: partitions by hand, topics, or patterns; and pausing some of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import six

from kafka.consumer import checks
from kafka.consumer.base import ConsumerBase, Reads
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.group import GroupDriver
from kafka.consumer.listener import SubscriptionPattern, check_listener
from kafka.core.group.machine import Subscription
from kafka.errors import IllegalArgumentError, IllegalStateError
from kafka.structs import TopicPartition


class Subscribing(ConsumerBase):
    """The part of KafkaConsumer about what is read."""

    _subscribed: frozenset[str]

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, without being a member of a group. Ones that stay keep their positions;
        others begin at the committed offsets of ``group_id``, else (or without one) where ``auto_offset_reset`` says,
        unless :meth:`seek` says otherwise.

        IllegalStateError after :meth:`subscribe`: first :meth:`unsubscribe`.
        """
        wanted = checks.partitions(partitions)
        self._check_usable()
        with self._turn:
            if not wanted:
                self._stop_reading()
                return
            self._choose(Reads.PARTITIONS)
            awaiting = frozenset(wanted) if self._group is not None else frozenset()
            removed = self.assignment() - set(wanted)
            if removed:
                self._commit_before_leaving(0.0)  # no rebalance follows that would do so
            self._forget_iteration(removed)
            self._on_loop(self._assign_on_loop, wanted, awaiting)

    def _assign_on_loop(self, wanted: list[TopicPartition], awaiting: frozenset[TopicPartition]) -> None:
        self._topics.watch_partitions(wanted)
        self._driver.assign(wanted, awaiting)
        if self._starts is not None:
            self._starts.look_up(wanted)

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: Any = None,
    ) -> None:  # fmt: skip
        """Read these topics, instead of what was subscribed to before.

        With ``group_id``, as a member of the group, which the next :meth:`poll` joins: partitions are divided among its
        members. Without one: all partitions, also ones that are added later.

        ``pattern``: topics whose names match this regular expression at their start (``re.match``), now and as they
        come and go, internal ones left out unless ``exclude_internal_topics`` is False; a :class:`SubscriptionPattern`
        is evaluated by the broker (``group_protocol="consumer"``). ``listener``: a :class:`ConsumerRebalanceListener`.

        IllegalArgumentError for names that cannot be, for neither topics nor pattern; IllegalStateError for both, for
        another way of reading than before (first :meth:`unsubscribe`), and for a listener without a group.
        """
        self._check_usable()
        names = checks.topic_names(topics)
        check_listener(listener)
        if names and pattern is not None:
            raise IllegalStateError("subscribe: topics or a pattern, not both")
        if not names and not pattern:
            raise IllegalArgumentError("subscribe: topics or a pattern are needed; to read nothing, unsubscribe()")
        if listener is not None and self._group is None:
            raise IllegalStateError("listener: without group_id nothing is rebalanced, so no listener would be called")
        with self._turn:
            if isinstance(pattern, SubscriptionPattern):
                self._check_server_pattern()
            matches = None if pattern is None or isinstance(pattern, SubscriptionPattern) else _matcher(pattern)
            self._choose(Reads.TOPICS if pattern is None else Reads.PATTERN)
            self._membership.listener = listener
            self._reports.fatal = None
            self._subscribed = frozenset(names)
            # Nothing below holds this object: forgetting it ends the thread.
            group, driver = self._group, self._driver
            if matches is not None:
                matching = partial(_read_all, driver) if group is None else partial(_be_member, group)
                self._on_loop(self._topics.watch_pattern, matches, matching)
                return
            self._on_loop(self._topics.watch, names)
            if group is None:
                self._on_loop(_read_all, driver, self._subscribed)
            else:
                server_side = pattern.pattern if isinstance(pattern, SubscriptionPattern) else None
                self._on_loop(group.subscribe, Subscription(self._subscribed, server_side))

    def _check_server_pattern(self) -> None:
        if self._group is None or self._settings["group_protocol"] != "consumer":
            raise IllegalStateError(
                "SubscriptionPattern: the broker evaluates patterns for members of the new protocol only: set group_id "
                "and group_protocol='consumer', or give the pattern as a text"
            )

    def unsubscribe(self) -> None:
        """Read nothing. A member leaves its group: what was read is committed (with auto-commit), and the listener is
        told of the revocation."""
        self._check_usable()
        with self._turn:
            self._stop_reading()

    def _stop_reading(self) -> None:
        was_member = self._reads in (Reads.TOPICS, Reads.PATTERN) and self._group is not None
        if was_member:
            self._membership.refuse_within_attend()  # before anything is given up
        self._on_loop(self._topics.watch, ())
        if was_member:
            assert self._group is not None
            self._on_loop(self._group.subscribe, Subscription())
            try:
                self._finish_steps(self._default_timeout_s, "unsubscribe")
            finally:  # whatever the listener raises, the group is left
                self._read_nothing(was_member)
            return
        if self._reads is Reads.PARTITIONS:
            self._commit_before_leaving(self._default_timeout_s)
        self._read_nothing(was_member)

    def _read_nothing(self, was_member: bool) -> None:
        self._driver.subscribed = frozenset()
        self._forget_iteration(set(self._driver.fetcher.positions))
        if not was_member or self._may_block:
            self._on_loop(self._driver.assign, [])
        self._reads = Reads.NOTHING
        self._subscribed = frozenset()
        self._reports.fatal = None

    def _choose(self, way: Reads) -> None:
        if self._reads not in (Reads.NOTHING, way):
            raise IllegalStateError(
                f"this consumer reads {self._reads.value}, and cannot read {way.value} beside it: unsubscribe() first"
            )
        self._reads = way

    # -- what is read now ----------------------------------------------------------------------------------------------

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read. From any thread or signal handler: without the lock, since the fetcher makes a
        new dictionary for each assignment."""
        return set(self._fetcher.positions)

    def subscription(self) -> set[str] | None:
        """The topics of :meth:`subscribe`, or those that match its pattern now; None without one."""
        return set(self._subscribed or self._topics.matching) or None

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these for now; a member's membership goes on as long as it polls. What is on its way is
        kept. UnassignedPartitionError, before any is paused, when one is not assigned."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these. UnassignedPartitionError as with :meth:`pause`."""
        self._set_paused(partitions, False)
        # What was fetched meanwhile is there already, and no fetch will tell of it.
        self._tell_loop(self._driver.started)

    def paused(self) -> set[TopicPartition]:
        """What :meth:`pause` named."""
        return {partition for partition, position in self._fetcher.positions.items() if position.is_paused}

    def _set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        self._check_usable()
        partitions = [checks.partition(each) for each in partitions]
        with self._turn:
            with self._driver.lock:
                positions = [self._fetcher.position_of(partition) for partition in partitions]
                unread = self._iteration.consumed() if is_paused else {}
                for position in positions:
                    position.is_paused = is_paused
                    rest = unread.get(position.partition)
                    if rest is not None:  # iteration had taken it: it comes again after resume()
                        self._iteration.drop(position.partition)
                        position.seek(rest.offset, rest.leader_epoch)
            # What goes on may have something buffered: nobody else would tell of that.
            self._tell_loop(self._driver.pump if is_paused else self._driver.started)

    def _forget_iteration(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._iteration.drop(partition)


def _read_all(driver: ConsumerDriver, names: frozenset[str]) -> None:
    """On the loop: without a group, read all partitions of these topics."""
    with driver.lock:
        kept = [partition for partition in driver.fetcher.positions if partition.topic in names]
    driver.assign(kept)
    driver.subscribe(names)


def _be_member(group: GroupDriver, names: frozenset[str]) -> None:
    """On the loop: these match the pattern now."""
    group.subscribe(Subscription(names))


def _matcher(pattern: Any) -> Callable[[str], object]:
    if isinstance(pattern, re.Pattern):
        return pattern.match
    if not isinstance(pattern, (six.text_type, six.binary_type)):
        raise TypeError(f"pattern: a text is needed, not {type(pattern).__name__}")
    try:
        return re.compile(six.ensure_text(pattern)).match
    except re.error as error:
        raise IllegalArgumentError(f"pattern: {pattern!r} is no regular expression: {error}") from None
