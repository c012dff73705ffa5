"""Share sessions: which partitions a member fetches on this broker, and the epochs of its requests.

    epoch 0           opens, and replaces an older session of the same member (whose locks stay: they are the member's)
    epoch 1, 2, ...   each ShareFetch or ShareAcknowledge that is accepted counts one up; after 2**31 - 1 comes 1
    epoch -1          closes, and releases what the member holds on the session's partitions

A session belongs to the connection that opened it, and a connection remembers only the last one that it opened: two
members on one connection do not work (measured on Apache Kafka 4.3.0). Who a member is, and whether it is in the
group, is not checked here, nor there. Errors: InvalidRequestError (42), ShareSessionNotFoundError (122),
InvalidShareSessionEpochError (123), ShareSessionLimitReachedError (133).

Generic in the partition's name ``P`` (a topic id and a number) and the connection's ``C``: both need only hash.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from kafka.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from kafka.protocol.constants import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH

P = TypeVar("P", bound=Hashable)
C = TypeVar("C", bound=Hashable)

MAX_MEMBER_ID_LENGTH = 36


class SessionKey(NamedTuple):
    """A session's name on one broker."""

    group_id: str
    member_id: str


class ShareSession(Generic[P]):
    """One member's session. ``partitions`` keeps the order in which they were added; ``epoch`` is the next expected."""

    __slots__ = ("epoch", "is_new", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[P]) -> None:
        self.key = key
        self.partitions: dict[P, None] = dict.fromkeys(partitions)
        self.epoch = 1
        self.is_new = True
        """Until the second request: the answer to the first one names every partition, later ones only news."""

    def rotated(self) -> list[P]:
        """All partitions, each time beginning with the next one, so that none starves behind the others."""
        names = list(self.partitions)
        if names:
            at = self.epoch % len(names)
            names = names[at:] + names[:at]
        return names


class ShareSessions(Generic[P, C]):
    """All share sessions of a broker, at most ``max_sessions``."""

    def __init__(self, max_sessions: int = 2000) -> None:
        self.max_sessions = max_sessions
        self._sessions: dict[SessionKey, ShareSession[P]] = {}
        self._by_connection: dict[C, SessionKey] = {}
        self._connection_of: dict[SessionKey, C] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession[P] | None:
        """The member's session, if it has one."""
        return self._sessions.get(SessionKey(group_id, member_id))

    def fetch(
        self,
        group_id: str | None,
        member_id: str,
        epoch: int,
        connection: C,
        *,
        partitions: Iterable[P] = (),
        forgotten: Iterable[P] = (),
        has_acknowledgements: bool = False,
    ) -> ShareSession[P]:
        """The session for a ShareFetch of this epoch, brought up to date.

        With epoch -1 that is the session as it was: acknowledge, then :meth:`close` it and release. The epoch itself is
        not checked then, as in Kafka.
        """
        key = _key(group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise InvalidRequestError("acknowledgements in the request that opens a share session")
            self._remove(key)
            if len(self._sessions) >= self.max_sessions:
                raise ShareSessionLimitReachedError(f"{self.max_sessions} share sessions are open")
            session = ShareSession(key, partitions)
            self._sessions[key] = session
            self._by_connection[connection] = key
            self._connection_of[key] = connection
            return session
        session = self._expect(key, epoch)
        if epoch != FINAL_EPOCH:
            session.partitions.update(dict.fromkeys(partitions))
            for name in forgotten:
                session.partitions.pop(name, None)
            _increment_epoch(session)
        return session

    def acknowledge(self, group_id: str | None, member_id: str, epoch: int) -> ShareSession[P]:
        """The session for a ShareAcknowledge of this epoch: it can close a session, not open one."""
        key = _key(group_id, member_id)
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpochError("a ShareAcknowledge cannot open a share session")
        session = self._expect(key, epoch)
        if epoch != FINAL_EPOCH:
            _increment_epoch(session)
        return session

    def close(self, group_id: str, member_id: str) -> ShareSession[P]:
        """End a session; its partitions say where the member's records are to be released."""
        key = SessionKey(group_id, member_id)
        session = self._remove(key)
        if session is None:
            raise ShareSessionNotFoundError(f"no share session of member {member_id} in group {group_id}")
        return session

    def disconnected(self, connection: C) -> ShareSession[P] | None:
        """End the session that this connection opened last, unless another connection has taken it over."""
        key = self._by_connection.get(connection)
        return None if key is None else self._remove(key)

    def drop_group(self, group_id: str) -> None:
        """Forget the sessions of a group that is deleted."""
        for key in [key for key in self._sessions if key.group_id == group_id]:
            self._remove(key)

    def drop_partitions(self, gone: Iterable[P]) -> None:
        """Forget partitions of a deleted topic in every session."""
        names = list(gone)
        for session in self._sessions.values():
            for name in names:
                session.partitions.pop(name, None)

    def _expect(self, key: SessionKey, epoch: int) -> ShareSession[P]:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(f"no share session of member {key.member_id} in group {key.group_id}")
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise InvalidShareSessionEpochError(f"share session epoch {epoch}, where {session.epoch} is due")
        return session

    def _remove(self, key: SessionKey) -> ShareSession[P] | None:
        connection = self._connection_of.pop(key, None)
        if connection is not None and self._by_connection.get(connection) == key:
            del self._by_connection[connection]
        return self._sessions.pop(key, None)


def _key(group_id: str | None, member_id: str) -> SessionKey:
    if group_id is None:  # an empty name will do
        raise InvalidRequestError("a request without a share group")
    check_member_id(member_id)
    return SessionKey(group_id, member_id)


def check_member_id(member_id: str) -> None:
    """InvalidRequestError (42) for one that no member may have."""
    if not 0 < len(member_id) <= MAX_MEMBER_ID_LENGTH:
        raise InvalidRequestError(f"a member id has 1 to {MAX_MEMBER_ID_LENGTH} characters, not {len(member_id)}")


def _increment_epoch(session: ShareSession[P]) -> None:
    session.is_new = False
    session.epoch = 1 if session.epoch >= MAX_EPOCH else session.epoch + 1
