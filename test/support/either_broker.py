"""The brokers that suites run over, by their names.

    embedded       the embedded broker as it is        embedded 3.9    as an older release (``emulate``)
    apache         Apache Kafka, the latest            apache 3.9.1    an older release

A suite runs over :data:`EITHER`; what has to hold with older brokers too runs over :data:`RELEASES`, by the mark
:data:`every_release`, for which the fixture ``bootstrap`` has to be parametrized with names like these. One more
release is one more name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

from kafka.testing import EmbeddedBroker
from test.support.apache_kafka import LATEST, ApacheKafka, require_apache_kafka

EITHER: Final = ("embedded", "apache")
RELEASES: Final = (*EITHER, "embedded 3.9", "apache 3.9.1", "embedded 2.8", "apache 2.8.2")
"""These begin with :data:`EITHER`, in its order: pytest knows a parameter by its place, and so starts each broker once
for the tests of both lists."""

SINCE_BATCHES: Final = (*RELEASES, "embedded 0.11", "apache 0.11.0.3")
"""And the first with record batches and transactions, which has neither fetch sessions nor leader epochs."""

every_release: Final = pytest.mark.parametrize("bootstrap", RELEASES, indirect=True, scope="session")
"""For tests of ``bootstrap``: over :data:`RELEASES`."""
every_release_with_batches: Final = pytest.mark.parametrize("bootstrap", SINCE_BATCHES, indirect=True, scope="session")
"""Over :data:`SINCE_BATCHES`."""

WAYS: Final = (
    ("embedded", "share"),
    ("embedded", "group"),
    ("apache", "share"),
    ("apache", "group"),
    ("apache 3.9.1", "group"),
    ("embedded 2.8", "group"),
    ("apache 2.8.2", "group"),
)
"""Brokers, and the ways in which they deliver jobs of a task queue (the setting ``delivery``)."""

every_way: Final = pytest.mark.parametrize(
    ("bootstrap", "delivery"), WAYS, ids=["-".join(way) for way in WAYS], indirect=["bootstrap"], scope="session"
)
"""For tests of ``bootstrap`` and ``delivery``: over :data:`WAYS`."""


def group_members(*, matters: bool = False, older: bool = False) -> pytest.MarkDecorator:
    """For tests of ``broker`` and ``members``, the protocol of the groups that deliver jobs: "consumer" (KIP-848) where
    the settings of a broker permit sessions that are short enough, else "classic".

    ``matters``: the short tier has both on the embedded broker; ``older``: over the older of :data:`RELEASES`, too.
    """
    other = pytest.mark.deep("the other protocol; kept by the same tests with members of 'consumer'")
    rows = [
        pytest.param("embedded", "consumer"),
        pytest.param("embedded", "classic", marks=() if matters else other),
        pytest.param("apache", "consumer"),
        pytest.param("apache", "classic", marks=other),
        *([pytest.param(broker, "classic") for broker in RELEASES if broker not in EITHER] if older else ()),
    ]
    return pytest.mark.parametrize(("broker", "members"), rows, scope="session")


first_release_of_jobs: Final = pytest.mark.parametrize(
    ("broker", "members"), [("embedded 0.11", "classic"), ("apache 0.11.0.3", "classic")], scope="session"
)
"""The same over the first release that keeps jobs: the headers of records, and transactions."""

_NEWER_SETTINGS: Final = ("group.share.", "group.consumer.")
"""Those that a release before 4.0 does not have."""


class SharedBrokers:
    """The brokers of a test process by kind and settings: each is started once and runs until the process ends."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        self._stack = ExitStack()

    def bootstrap(self, kind: str, settings: Mapping[str, str]) -> str:
        """``host:port``; a skip with its reason where there is no Apache Kafka."""
        settings = _known(kind, settings)
        key = (kind, tuple(sorted(settings.items())))
        if key not in self._found:
            self._found[key] = self._stack.enter_context(running(kind, settings))
        return self._found[key]

    def close(self) -> None:
        """Stop all of them."""
        self._stack.close()


@contextmanager
def running(kind: str, settings: Mapping[str, str]) -> Iterator[str]:
    """``host:port`` of one of them; a skip with its reason where there is no Apache Kafka."""
    settings = _known(kind, settings)
    kind, _, release = kind.partition(" ")
    if kind == "embedded":
        options: dict[str, Any] = {"emulate": release} if release else {}
        with EmbeddedBroker(settings=settings, **options) as embedded:
            yield embedded.bootstrap
    else:
        require_apache_kafka(release or LATEST)
        if release.startswith("0."):  # before 1.0 off: DeleteTopics then runs into its time limit
            settings = {**settings, "delete.topic.enable": "true"}
        with ApacheKafka(release or LATEST, dict(settings)) as apache:
            yield apache.bootstrap


def _known(kind: str, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Those of the settings that this kind of broker has."""
    if " " not in kind:
        return settings
    return {name: value for name, value in settings.items() if not name.startswith(_NEWER_SETTINGS)}
