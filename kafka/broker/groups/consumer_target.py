"""What the members of a group of the new protocol are to have: topics and regular expressions, epochs, the target.

    a member comes, goes, or changes what it wants; a topic changes   ──> the group's epoch goes up
    a heartbeat finds the epoch above the assignment's                ──> a new target for all (not more than once in
                                                                          the assignment interval)

Who is a member, and how each comes to have what it is to have, is in ``consumer_group.py``. All that is durable is one
immutable :class:`~kafka.broker.groups.picture.Picture`, replaced as a whole: what is to be written is the difference of
two, and what could not be written is undone by putting the old one back.

Measured on 4.3.0 and surprising: a new group has epoch 1, which its first subscription makes 2; a regular expression is
resolved after the answer to the heartbeat that brought it, and for a group not more than once in 10 s.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

from kafka.broker.groups.assignors import ASSIGNORS, Subscriber, java_order
from kafka.broker.groups.consumer_member import ConsumerMember, Partition
from kafka.broker.groups.group_settings import ConsumerSettings
from kafka.broker.groups.picture import Picture, ResolvedRegex, metadata_hash
from kafka.broker.groups.regex import resolve
from kafka.broker.share.group import TopicInfo

log = logging.getLogger(__name__)

REGEX_REFRESH_S: Final = 10.0
"""A group's regular expressions are not resolved more often."""

REGEX_LIFETIME_S: Final = 600.0
"""They are resolved anew after this, whatever has happened to topics (group.consumer.regex.refresh.interval.ms)."""


class Topics(Protocol):
    """What a group asks about topics."""

    def infos(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Those that exist."""

    def name_of(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]:
        """Of all topics."""


class ConsumerTarget:
    """The target of one group. ``epoch_ms``: the time of day."""

    def __init__(
        self,
        group_id: str,
        settings: Callable[[], ConsumerSettings],
        topics: Topics,
        epoch_ms: Callable[[], int],
        picture: Picture,
    ) -> None:
        self.group_id = group_id
        self.picture = picture
        self.topics = topics
        self._settings = settings
        self._epoch_ms = epoch_ms
        self._topics_changed = True
        self._regex_outdated = True
        self._resolved_at: float | None = None
        self._holders: tuple[Mapping[str, ConsumerMember], dict[Partition, str]] = ({}, {})

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        return self.picture.members

    @property
    def epoch(self) -> int:
        return self.picture.epoch

    @property
    def is_empty(self) -> bool:
        return not self.picture.members

    @property
    def state(self) -> str:
        """As Kafka's tools show it."""
        picture = self.picture
        if not picture.members:
            return "Empty"
        if picture.epoch > picture.assignment_epoch:
            return "Assigning"
        is_there = all(member.is_at(picture.assignment_epoch) for member in picture.members.values())
        return "Stable" if is_there else "Reconciling"

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        if not votes:
            return self._settings().assignors[0]
        most = max(votes.values())
        return next(name for name in java_order([one for one in votes if one is not None]) if votes[name] == most)

    def is_held(self, partition: Partition) -> bool:
        """Whether any member has not let it go."""
        members, holders = self._holders
        if members is not self.members:
            holders = {one: member.member_id for member in self.members.values() for one in member.holds()}
            self._holders = self.members, holders
        return partition in holders

    def _put(self, member: ConsumerMember) -> None:
        members = self.picture.members
        was = members.get(member.member_id)
        if was == member:
            return
        self.picture = self.picture._replace(members={**members, member.member_id: member})
        if self._holders[0] is members:  # known, and soon asked again
            holders = self._holders[1]
            for one in was.holds() if was is not None else ():
                if holders.get(one) == member.member_id:
                    del holders[one]
            holders.update(dict.fromkeys(member.holds(), member.member_id))
            self._holders = self.picture.members, holders

    # -- topics ------------------------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that it is subscribed to, as far as its regular expression has been resolved."""
        resolved = self.picture.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(name for member in self.members.values() for name in self.topics_of(member))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics were made, grown or deleted; seen at the next heartbeat."""
        self._topics_changed = self._topics_changed or not self.subscribed_topics().isdisjoint(names)
        self._regex_outdated = True

    def _see_topics(self, bump: bool) -> None:
        digest = metadata_hash(self.topics.infos(self.subscribed_topics()))
        if bump or digest != self.picture.metadata_hash:
            self.picture = self.picture._replace(epoch=self.picture.epoch + 1, metadata_hash=digest)

    def _maybe_resolve(self, now: float) -> None:
        """Resolve all regular expressions when there is a new one, or topics have come or gone, or it was long ago."""
        wanted = {member.regex for member in self.members.values() if member.regex}
        if not wanted or (self._resolved_at is not None and now <= self._resolved_at + REGEX_REFRESH_S):
            return
        is_old = self._resolved_at is not None and now > self._resolved_at + REGEX_LIFETIME_S
        known = self.picture.regexes
        if not (self._regex_outdated or is_old or any(text not in known for text in wanted)):
            return
        self._resolved_at = now
        self._regex_outdated = False
        at_ms = self._epoch_ms()
        found = {}
        for text, topics in resolve(sorted(wanted), self.topics.names()).items():
            was = known.get(text)
            if topics is None:
                log.warning("group %s: there are too many topics for the regular expression %s", self.group_id, text)
                topics = frozenset() if was is None else was.topics
            found[text] = was if was is not None and was.topics == topics else ResolvedRegex(topics, at_ms)
        has_changed = any(
            found[text].topics != (known[text].topics if text in known else frozenset()) for text in found
        )
        self.picture = self.picture._replace(regexes=found)
        if has_changed:
            self._see_topics(True)

    def _drop_unused_regexes(self) -> None:
        used = {member.regex for member in self.members.values()}
        regexes = self.picture.regexes
        if any(text not in used for text in regexes):
            self.picture = self.picture._replace(
                regexes={text: value for text, value in regexes.items() if text in used}
            )

    # -- assignment --------------------------------------------------------------------------------------------------

    def _maybe_assign(self) -> None:
        picture = self.picture
        now_ms = self._epoch_ms()
        since_ms = now_ms - picture.assigned_at_ms
        if picture.epoch <= picture.assignment_epoch or 0 <= since_ms < self._settings().assignment_interval_ms:
            return
        infos = self.topics.infos(self.subscribed_topics())
        members = {
            member.member_id: Subscriber(
                frozenset(infos[name].topic_id for name in self.topics_of(member) if name in infos), member.instance_id
            )
            for member in picture.members.values()
        }
        counts = {info.topic_id: info.partition_count for info in infos.values()}
        target = ASSIGNORS[self.assignor](members, counts, picture.target)
        self.picture = picture._replace(target=target, assignment_epoch=picture.epoch, assigned_at_ms=now_ms)
