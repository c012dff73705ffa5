"""The beginning of a connection: a greeting of ``core/versions.py``, carried out.

:class:`GreetingRun` holds one greeting dialogue and the outcomes of the probe under way; ``connection.py`` sends the
probe's requests and notes what comes of each. :class:`ClusterVersions` remembers, for one client, what the first
greeting found, so that it is done once. What software we are, the broker is told here, too (KIP-511).
"""

from __future__ import annotations

from kafka.client.link import SOFTWARE
from kafka.core.releases import ranges_before_api_versions
from kafka.core.versions import (
    API_VERSIONS_KEY,
    ApiRanges,
    Discovery,
    Greeting,
    NoAnswer,
    Outcome,
    Probe,
    discover,
    greet,
)
from kafka.protocol.api_versions import ApiVersionsRequest


class GreetingRun:
    """One greeting under way. ``probe`` is what is to be sent next, or has been sent."""

    def __init__(self, greeting: Greeting) -> None:
        self._greeting = greeting
        self.probe: Probe = next(greeting)
        self._outcomes: list[Outcome | None] = [None] * len(self.probe.requests)

    def note(self, index: int, outcome: Outcome) -> None:
        """What came of one request of the probe."""
        self._outcomes[index] = outcome

    def note_rest(self, outcome: NoAnswer) -> None:
        """What came of all requests that have no outcome yet."""
        self._outcomes = [outcome if known is None else known for known in self._outcomes]

    @property
    def is_answered(self) -> bool:
        """Whether each request of the probe has its outcome."""
        return None not in self._outcomes

    def advance(self) -> Discovery | None:
        """Go on with the outcomes: the end of it, or None when there is another probe to send.

        Errors of the dialogue pass through; the run is over then.
        """
        outcomes = tuple(outcome for outcome in self._outcomes if outcome is not None)
        try:
            self.probe = self._greeting.send(outcomes)
        except StopIteration as end:
            found: Discovery = end.value
            return found
        self._outcomes = [None] * len(self.probe.requests)
        return None


class ClusterVersions:
    """What is known of the cluster's versions: nothing, a release before ApiVersions, or that ApiVersions is there.

    ``known`` holds the last ranges learnt; None before the first greeting. ``release`` is the user's ``api_version``,
    ``software`` our name and version.
    """

    def __init__(self, release: tuple[int, ...] | None = None, software: tuple[str, str] = SOFTWARE) -> None:
        self._software = software
        self.known: ApiRanges | None = None
        self._is_given = release is not None
        if release is not None:
            old = ranges_before_api_versions(release)
            if old is not None:
                self.known = ApiRanges(old[1], release=old[0])

    def greeting(self) -> Greeting | Discovery:
        """How the next connection begins: with a dialogue, or with nothing to ask."""
        known = self.known
        if known is not None and API_VERSIONS_KEY not in known:
            return Discovery(known)
        if known is None and not self._is_given:
            return discover(self._software)
        most = ApiVersionsRequest.max_version
        return greet(self._software, most if known is None else min(most, known.ranges[API_VERSIONS_KEY][1]))

    def learn(self, discovery: Discovery) -> None:
        """A greeting has ended."""
        self.known = discovery.ranges
