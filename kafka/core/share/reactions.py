"""What each error of a share session's answers asks for, one row for each code (KIP-932; kafka.common.protocol.Errors).

Three places of an answer have a code, and the same number means different things there:

    the whole answer          ANSWERS      the session is opened anew; what of the locks, what of the acknowledgements
    a fetched partition       PARTITIONS   it rests, and the cluster's metadata is read again
    its acknowledgements      ACKS         refused, or said again: one by one, or later

What is not in a table goes by the error's class (:func:`of_answer` and its like): retriable errors are tried again and
kept from the user, others are told. Heartbeats have a table of their own in ``membership.py``. The documentation draws
these.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka.errors import AuthenticationError, BrokerResponseError, IllegalStateError, KafkaError, UnknownError

REST_S: Final = 0.1
"""How long a partition that answered with an error is left out; doubled for each in a row."""
REST_MAX_S: Final = 1.0
UNREADABLE_REST_S: Final = 30.0
"""The same after records that cannot be read: each hand-out counts, and others may be able to."""


class OfAnswer(NamedTuple):
    """``locks_gone``: nothing on this broker is locked for us any more; else all of it is, whatever the session is.
    ``again``: it did not look at the acknowledgements, so they are said again. ``told``: the user has to know.
    ``final``: no later attempt mends it.
    """

    locks_gone: bool = False
    again: bool = False
    told: bool = False
    final: bool = False


class OfPartition(NamedTuple):
    """``locks_gone``: this broker does not lead it, and so has none of our locks on it. ``rest_s``: how long the
    partition is left out the first time, at most ``rest_max_s``.
    """

    locks_gone: bool = False
    told: bool = False
    rest_s: float = REST_S
    rest_max_s: float = REST_MAX_S


class OfAcks(NamedTuple):
    """``one_by_one``: one bad offset failed the list, so each is said by itself. ``again``: later, while the locks
    last. With neither the broker has not taken them, and will not.
    """

    one_by_one: bool = False
    locks_gone: bool = False
    again: bool = False


ANSWERS: Final[dict[int, OfAnswer]] = {
    122: OfAnswer(locks_gone=True),  # SHARE_SESSION_NOT_FOUND: the broker saw the connection end, or was restarted
    123: OfAnswer(again=True),  # INVALID_SHARE_SESSION_EPOCH: an answer was lost
    133: OfAnswer(),  # SHARE_SESSION_LIMIT_REACHED: a place may become free
    29: OfAnswer(told=True),  # TOPIC_AUTHORIZATION_FAILED: rights may be granted
    42: OfAnswer(told=True),  # INVALID_REQUEST: a fault of ours
    30: OfAnswer(told=True, final=True),  # GROUP_AUTHORIZATION_FAILED
    35: OfAnswer(told=True, final=True),  # UNSUPPORTED_VERSION: the feature share.version is off, or the broker too old
}

PARTITIONS: Final[dict[int, OfPartition]] = {
    6: OfPartition(locks_gone=True),  # NOT_LEADER_OR_FOLLOWER
    74: OfPartition(locks_gone=True),  # FENCED_LEADER_EPOCH
    3: OfPartition(locks_gone=True),  # UNKNOWN_TOPIC_OR_PARTITION
    100: OfPartition(locks_gone=True),  # UNKNOWN_TOPIC_ID: deleted; a topic made anew has another id
    103: OfPartition(),  # INCONSISTENT_TOPIC_ID
    56: OfPartition(),  # KAFKA_STORAGE_ERROR
    9: OfPartition(),  # REPLICA_NOT_AVAILABLE
    78: OfPartition(),  # OFFSET_NOT_AVAILABLE
    75: OfPartition(),  # UNKNOWN_LEADER_EPOCH
    -1: OfPartition(),  # UNKNOWN_SERVER_ERROR
    29: OfPartition(told=True),  # TOPIC_AUTHORIZATION_FAILED
    2: OfPartition(told=True, rest_s=UNREADABLE_REST_S, rest_max_s=UNREADABLE_REST_S),  # CORRUPT_MESSAGE
}

ACKS: Final[dict[int, OfAcks]] = {
    121: OfAcks(one_by_one=True),  # INVALID_RECORD_STATE: a lock is gone, or renewals are switched off
    42: OfAcks(one_by_one=True),  # INVALID_REQUEST: an offset was never acquired
    6: OfAcks(locks_gone=True),  # NOT_LEADER_OR_FOLLOWER
    74: OfAcks(locks_gone=True),  # FENCED_LEADER_EPOCH
    3: OfAcks(locks_gone=True),  # UNKNOWN_TOPIC_OR_PARTITION: the leader has moved, or the topic is gone
    100: OfAcks(locks_gone=True),  # UNKNOWN_TOPIC_ID
    7: OfAcks(again=True),  # REQUEST_TIMED_OUT: the group's state could not be written in time
    14: OfAcks(again=True),  # COORDINATOR_LOAD_IN_PROGRESS
    15: OfAcks(again=True),  # COORDINATOR_NOT_AVAILABLE: nor now
    16: OfAcks(again=True),  # NOT_COORDINATOR
    -1: OfAcks(),  # UNKNOWN_SERVER_ERROR: it may have been written
    29: OfAcks(),  # TOPIC_AUTHORIZATION_FAILED
}


def of_answer(error: KafkaError) -> OfAnswer:
    """What an error of the whole answer asks for, or one that came in place of an answer."""
    if isinstance(error, BrokerResponseError) and error.errno in ANSWERS:
        return ANSWERS[error.errno]
    if isinstance(error, (AuthenticationError, IllegalStateError)):  # not let in; the client is closed
        return OfAnswer(told=True, final=True)
    return OfAnswer(told=isinstance(error, BrokerResponseError) and _is_grave(error))


def of_partition(error: KafkaError) -> OfPartition:
    """What an error of a fetched partition asks for. One that is no broker's is our own trouble with its records."""
    if not isinstance(error, BrokerResponseError):
        return PARTITIONS[2]
    return PARTITIONS.get(error.errno or 0) or OfPartition(told=_is_grave(error))


def of_acks(error: BrokerResponseError) -> OfAcks:
    """What an error of a partition's acknowledgements asks for."""
    return ACKS.get(error.errno or 0) or OfAcks(again=error.retriable)


def _is_grave(error: KafkaError) -> bool:
    return not (error.retriable or isinstance(error, UnknownError))
