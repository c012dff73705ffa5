"""One question for many groups: each is asked at its own coordinator, and has an answer or an error of its own.

    groups --FindCoordinator, several keys since version 4 (KIP-699)--> coordinators --a question each--> answers

What came to the wrong broker, or too early, is asked again; the groups that were answered are not. The same for
transactional ids: what is called a group below is then one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, TypeVar

from kafka.core.admin.answers import TRANSIENT
from kafka.core.dialogue import ByVersion, Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, CoordinatorType
from kafka.errors import BrokerResponseError, IllegalArgumentError, IncompatibleBrokerVersion, UnknownError, for_code
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

Ask = Callable[[int, Sequence[str]], Dialogue[Mapping[str, "T | BrokerResponseError"]]]
"""``ask(node, groups)``: the answer, or error, of each of the groups that this node coordinates."""

_SEVERAL_KEYS_SINCE = 4
_NOUNS: Final[Mapping[CoordinatorType, str]] = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
}
_ARGUMENTS: Final[Mapping[CoordinatorType, str]] = {
    CoordinatorType.GROUP: "group_ids",
    CoordinatorType.TRANSACTION: "transactional_ids",
}


def at_coordinators(
    group_ids: Iterable[str],
    ask: Ask[T],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None = None,
    kind: CoordinatorType = CoordinatorType.GROUP,
    attempts: float = inf,
) -> Dialogue[dict[str, T | BrokerResponseError]]:
    """The answer, or error, of each group. ``node_id``: ask this node and look for no coordinator. ``kind``: of what
    these are the names. ``attempts``: with 1 nothing is asked again, and the error is raised."""
    wanted = _checked(group_ids, kind)
    found: dict[str, T | BrokerResponseError] = {}

    def attempt() -> Dialogue[None]:
        left = [group for group in wanted if group not in found]
        again: BrokerResponseError | None = None
        if node_id is not None:
            where: dict[str, int | BrokerResponseError] = dict.fromkeys(left, node_id)
        else:
            where = yield from find_coordinators(left, kind)
        by_node: dict[int, list[str]] = {}
        for group, node in where.items():
            if isinstance(node, int):
                by_node.setdefault(node, []).append(group)
            elif type(node) in TRANSIENT:
                again = node
            else:
                found[group] = node
        for node, groups in by_node.items():
            answers = yield from ask(node, groups)
            for group in groups:
                if group not in answers:
                    found[group] = UnknownError(f"node {node} left {_NOUNS[kind]} {group} out of its answer")
                    continue
                answer = answers[group]
                if isinstance(answer, BrokerResponseError) and type(answer) in TRANSIENT:
                    again = answer
                else:
                    found[group] = answer
        if again is not None:
            raise again

    yield from retrying(attempt, what=what, backoff=backoff, timeout_s=timeout_s, attempts=attempts)
    return {group: found[group] for group in wanted}


def at_coordinator(
    group_id: str,
    ask: Callable[[int], Dialogue[T]],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None = None,
    attempts: float = inf,
) -> Dialogue[T]:
    """The same for one group, whose error is raised."""

    def of_one(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, T | BrokerResponseError]]:
        return {group_id: (yield from ask(node))}

    found = yield from at_coordinators(
        [group_id], of_one, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id, attempts=attempts
    )
    return or_raise(found[group_id], group_id)


def or_raise(found: T | BrokerResponseError, group_id: str, kind: CoordinatorType = CoordinatorType.GROUP) -> T:
    """The answer; or the error raised, with the group's name."""
    if isinstance(found, BrokerResponseError):
        text = str(found.args[0]) if found.args else ""
        raise type(found)(f"{_NOUNS[kind]} {group_id}" + (f": {text}" if text and group_id not in text else ""))
    return found


def find_coordinators(
    group_ids: Sequence[str], kind: CoordinatorType = CoordinatorType.GROUP
) -> Dialogue[dict[str, int | BrokerResponseError]]:
    """Each group's coordinator, or the error of its look-up; one request for all where brokers take several keys."""
    if not group_ids:
        return {}
    try:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(group_ids))
        several = yield from send(AnyNode(), request, min_version=_SEVERAL_KEYS_SINCE)
        return {entry.key: _node_or_error(entry) for entry in several.coordinators}
    except IncompatibleBrokerVersion:
        pass
    found: dict[str, int | BrokerResponseError] = {}
    for group_id in group_ids:
        of_one: FindCoordinatorResponse = yield from send(
            AnyNode(),
            _by_one_key(group_id, kind),
            min_version=0 if kind is CoordinatorType.GROUP else 1,  # version 0 knows groups only
            max_version=_SEVERAL_KEYS_SINCE - 1,
        )
        found[group_id] = _node_or_error(of_one)
    return found


def _by_one_key(group_id: str, kind: CoordinatorType) -> ByVersion[FindCoordinatorResponse]:
    def build(version: int) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key=group_id, key_type=kind) if version else FindCoordinatorRequest(key=group_id)

    return ByVersion(FindCoordinatorRequest, build)


def _node_or_error(
    entry: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator,
) -> int | BrokerResponseError:
    if entry.error_code:
        return for_code(entry.error_code)(entry.error_message or "")
    return entry.node_id


def _checked(group_ids: Iterable[str], kind: CoordinatorType) -> list[str]:
    if isinstance(group_ids, (str, bytes)):
        raise IllegalArgumentError(f"{_ARGUMENTS[kind]}={group_ids!r}: a list of names, not one text")
    wanted = list(dict.fromkeys(group_ids))
    for group_id in wanted:
        if not isinstance(group_id, str):
            raise IllegalArgumentError(f"{group_id!r}: a {_NOUNS[kind]} is a text")
    return wanted
