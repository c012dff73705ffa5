"""Which partition a record goes to, when its sender did not say.

    kind                       records with a key           records without                            source
    ------------------------   --------------------------   ----------------------------------------   --------------
    BuiltInChooser             murmur2 of the key, unless   one partition until ``batch_bytes`` went   KIP-794, Java's
                               ``ignore_keys``              to it, then another by chance: rather      default
                                                            one with few batches waiting (``adaptive``)
    StickyChooser              murmur2 of the key           one partition until its batch goes out,    KIP-480
                                                            then another by chance
    RoundRobinChooser          murmur2 of the key           one after the other                        KIP-369
    FunctionChooser            ``f(key, all, available)``   the same                                   kafka-python 2
    PartitionerObjectChooser   the object's ``partition(topic, key, serialized_key, value,             kafka-python 3
                               serialized_value, cluster)``, for all records

A partitioner is asked for a queue for each record that has a key (for every record when ``asks_always``); None means
"where the records without a key go now", and where that is, is asked for once per batch. So what has to be weighed is
weighed once per batch, under the accumulator's lock. Partitions without a leader are not chosen for records without a
key, as in Java.

A new kind is a class here and a row in :func:`partitioning_for`; its name is checked in ``kafka/config.py``.

Left out of KIP-794: Java counts the bytes of records without a key alone, here all that went to the partition count; a
switch happens between two batches and never within one, which is what Java does while batches fill.
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kafka._compiled import IS_COMPILED
from kafka.core.produce.batch import (
    PartitionQueue,
    TopicQueues,
)
from kafka.errors import IllegalArgumentError

# MurmurHash 2, 32 bits, as Kafka's Java clients compute it: a record's key decides its partition in every client.
#
# The seed and the mixing are Austin Appleby's reference algorithm in its little-endian form; Kafka's seed is
# 0x9747b28c. The result is unsigned here; Java's is the same 32 bits as a signed integer, and clears the sign bit
# before the modulo.
#
# Source: the Java client's ``Utils.murmur2`` and ``Utils.toPositive``.


_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_FACTOR_LOW: Final = 0xE995
_FACTOR_HIGH: Final = 0x5BD1
_MASK: Final = 0xFFFFFFFF


def product_in_halves(number: int) -> int:
    """A number of 32 bits times the factor, modulo 2**32: each product in it is of two numbers of 16 bits."""
    low = number & 0xFFFF
    high = (low * _FACTOR_HIGH + (number >> 16) * _FACTOR_LOW) & 0xFFFF
    return (low * _FACTOR_LOW + (high << 16)) & _MASK


def mixed_in_halves(word: int) -> int:
    """What four bytes of the key, little-endian, contribute."""
    word = product_in_halves(word)
    return product_in_halves(word ^ word >> 24)


def _times_factor(number: int) -> int:
    """The product, modulo 2**32.

    In halves when compiled: from 30 bits on mypyc leaves a product to Python, which looks for signals in it, and mypyc
    ends the process ("fatal: out of memory") when Ctrl-C is found there."""
    return product_in_halves(number) if IS_COMPILED else number * _FACTOR & _MASK


def murmur2(data: bytes) -> int:
    """The hash of ``data`` as an unsigned integer of 32 bits."""
    length = len(data)
    words = length >> 2
    state = (_SEED ^ length) & _MASK
    for word in struct.unpack_from(f"<{words}I", data):
        if IS_COMPILED:
            state = product_in_halves(state) ^ mixed_in_halves(word)
        else:  # the same, without calls
            word = word * _FACTOR & _MASK
            word = (word ^ word >> 24) * _FACTOR & _MASK
            state = (state * _FACTOR & _MASK) ^ word
    rest = data[words << 2 :]
    if rest:
        state = _times_factor(state ^ int.from_bytes(rest, "little"))
    state = _times_factor(state ^ state >> 13)
    return state ^ state >> 15


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition, of 0 to ``partitions_count - 1``, that every Kafka client gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count


LOADS_AGE_S: Final = 10e-6
"""What is known of the load of a topic with n partitions is good for n times as long: looking costs 0.2 us each."""


class RandomSource(Protocol):
    """What is used of ``random.RandomSource``."""

    def randrange(self, stop: int, /) -> int: ...


class PartitionChooser:
    """The base: keys as in Java, and for records without a key any partition by chance."""

    asks_always = False
    """Whether records without a key are asked about one by one."""
    wants_objects = False
    """Whether it looks at keys and values as they were before they were serialised."""

    def __init__(self, rng: RandomSource) -> None:
        self.rng = rng

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        """Where this record goes; None: where the topic's records without a key go now."""
        if key_bytes is None:
            return None
        return topic.queues[partition_for_key(key_bytes, len(topic.queues))]

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        """Where records without a key go from now on, since a batch has to be begun."""
        available = topic.available
        return topic.queues[available[self.rng.randrange(len(available))]]


class StickyChooser(PartitionChooser):
    """KIP-480: another partition for each batch."""

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        available = topic.available
        count = len(available)
        chosen = available[self.rng.randrange(count)]
        former = topic.sticky
        if count > 1 and former is not None and chosen == former.partition:
            chosen = available[(available.index(chosen) + 1 + self.rng.randrange(count - 1)) % count]
        return topic.queues[chosen]


class BuiltInChooser(PartitionChooser):
    """KIP-794. ``late_s``: a batch that has waited so long since it was begun says that the partition's leader takes
    nothing, and none of the leader's partitions is chosen as long as there are others (0: that is not looked at)."""

    def __init__(
        self,
        rng: RandomSource,
        sticky_bytes: int,
        *,
        adaptive: bool = True,
        ignore_keys: bool = False,
        late_s: float = 0.0,
    ) -> None:
        super().__init__(rng)
        self._sticky_bytes = sticky_bytes
        self._adaptive = adaptive
        self._ignore_keys = ignore_keys
        self._late_s = late_s

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        if key_bytes is None or self._ignore_keys:
            return None
        return topic.queues[partition_for_key(key_bytes, len(topic.queues))]

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        current = topic.sticky
        if current is not None:
            if not current.was_filled and current.produced_bytes - topic.sticky_from_bytes < self._sticky_bytes:
                return current
            current.forget_filled()
        chosen = self._weighed(topic, now) if self._adaptive else super().next_sticky(topic, now)
        topic.begin_sticky(chosen.produced_bytes)
        return chosen

    def _weighed(self, topic: TopicQueues, now: float) -> PartitionQueue:
        """By chance, each partition the likelier the fewer batches wait in it: one with none, where the longest
        queue has five, is six times as likely as that."""
        if now >= topic.loads_until:
            self._weigh(topic, now)
        sums = topic.load_sums
        if not sums:
            return super().next_sticky(topic, now)
        return topic.queues[topic.load_partitions[bisect_right(sums, self.rng.randrange(sums[-1]))]]

    def _weigh(self, topic: TopicQueues, now: float) -> None:
        """Weigh the partitions by how many batches wait in each, for as long as that is worth anything. Partitions
        whose batches wait for too long, and others of their nodes, are left out while there are any others."""
        queues = topic.queues
        partitions: Sequence[int] = topic.available
        if self._late_s:
            late = [queue for queue in queues if queue.closed and now - queue.closed[0].created_at > self._late_s]
            if late:
                nodes = {queue.node for queue in late if queue.node >= 0}
                names = {queue.partition for queue in late}
                partitions = [n for n in partitions if n not in names and queues[n].node not in nodes] or partitions
        sizes = [len(queues[n].closed) + len(queues[n].retry) + (queues[n].open is not None) for n in partitions]
        most = max(sizes)
        until = now + len(topic.available) * LOADS_AGE_S
        sums: list[int] = []
        if most != min(sizes) or len(partitions) != len(topic.available):  # else all are alike: plain chance
            total = 0
            for size in sizes:
                total += most + 1 - size
                sums.append(total)
        topic.note_loads(sums, list(partitions), until)


class RoundRobinChooser(PartitionChooser):
    """KIP-369 for records without a key."""

    asks_always = True

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        if key_bytes is not None:
            return super().queue_for(topic, key_bytes, key, value, value_bytes)
        return topic.queues[topic.next_turn()]


class FunctionChooser(PartitionChooser):
    """A user's ``f(key, all partitions, available partitions) -> partition``; key in bytes, or None."""

    asks_always = True

    def __init__(self, rng: RandomSource, function: Callable[..., Any]) -> None:
        super().__init__(rng)
        self._function = function

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        every = list(range(len(topic.queues)))
        return chosen_queue(topic, self._function(key_bytes, every, list(topic.available)))


class PartitionerObjectChooser(PartitionChooser):
    """A user's object with kafka-python 3's ``partition``; ``cluster`` is handed to it."""

    asks_always = True
    wants_objects = True

    def __init__(self, rng: RandomSource, method: Callable[..., Any], cluster: Any) -> None:
        super().__init__(rng)
        self._method = method
        self._cluster = cluster

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        return chosen_queue(topic, self._method(topic.name, key, key_bytes, value, value_bytes, self._cluster))


def chosen_queue(topic: TopicQueues, partition: Any) -> PartitionQueue:
    """The queue of a partition that a user's partitioner chose. TypeError for what is no number, IllegalArgumentError
    for a partition that is not there."""
    try:
        number = operator.index(partition)
    except TypeError:
        raise TypeError(
            f"the partitioner returned {partition!r} for topic {topic.name}, and not the number of a partition"
        ) from None
    count = len(topic.queues)
    if not 0 <= number < count:
        raise IllegalArgumentError(f"the partitioner chose {number}; topic {topic.name} has {count} partitions")
    return topic.queues[number]


STICKY: Final = "sticky"
ROUND_ROBIN: Final = "round_robin"
BY_NAME: Final[dict[str, type[PartitionChooser]]] = {STICKY: StickyChooser, ROUND_ROBIN: RoundRobinChooser}


def partitioning_for(
    given: Any,
    rng: RandomSource,
    *,
    batch_bytes: int = 16384,
    adaptive: bool = True,
    ignore_keys: bool = False,
    late_s: float = 0.0,
    cluster: Any = None,
) -> PartitionChooser:
    """The kind for what a user gave: None, a name of :data:`BY_NAME`, an object of kafka-python 3's shape, a function
    of kafka-python 2's, or a class of either, which is instantiated here."""
    if given is None:
        return BuiltInChooser(rng, batch_bytes, adaptive=adaptive, ignore_keys=ignore_keys, late_s=late_s)
    if isinstance(given, str):
        return BY_NAME[given](rng)
    if isinstance(given, PartitionChooser):
        return given
    if isinstance(given, type):
        given = given()
    method = getattr(given, "partition", None)
    return PartitionerObjectChooser(rng, method, cluster) if callable(method) else FunctionChooser(rng, given)
