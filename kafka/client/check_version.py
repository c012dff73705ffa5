"""Which API versions a broker has: ``check_version``, and what is known of the cluster's versions.

:class:`VersionCheck` finds out one server's; :class:`VersionChecks` drives the loop until that is done, from one node
or from any of the bootstrap servers.

A connection is made for each check and closed after it, so nothing else in the client notices. Releases before 0.10
need several connections, one after the other, which the dialogue asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from kafka.client.connection import BOOTSTRAP, SOFTWARE, BrokerConnection, ConnectionSettings, PendingRequest
from kafka.core.connection import ApiRanges
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.versions import (
    API_VERSIONS_KEY,
    NegotiatedVersions,
    VersionsDialogue,
    discover_versions,
    negotiate_versions,
    ranges_before_api_versions,
)
from kafka.errors import AuthenticationError, KafkaError, NoBrokersAvailable
from kafka.future import Future
from kafka.net.transport import Network
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.wire.message import Response


class ClusterVersions:
    """What is known of the cluster's versions: nothing, a release before ApiVersions, or that it has ApiVersions.

    One for each client, so that old releases are probed once. ``known``: the ranges of the last broker that was asked;
    None before the first. ``release`` is the user's ``api_version``,
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

    def versions_dialogue(self) -> VersionsDialogue | NegotiatedVersions:
        """The dialogue for the next connection, or the versions where they are known."""
        known = self.known
        if known is not None and API_VERSIONS_KEY not in known:
            return NegotiatedVersions(known)
        if known is None and not self._is_given:
            return discover_versions(self._software)
        most = ApiVersionsRequest.max_version
        return negotiate_versions(
            self._software, most if known is None else min(most, known.ranges[API_VERSIONS_KEY][1])
        )

    def learn(self, negotiated: NegotiatedVersions) -> None:
        """A dialogue has ended."""
        self.known = negotiated.ranges


class VersionCheck:
    """Finds out one server's versions. ``future`` gets them, or the error."""

    def __init__(
        self,
        node_id: NodeId,
        address: tuple[str, int],
        network: Network,
        settings: ConnectionSettings,
        rng: Rng,
        step_timeout_s: float,
        strict: bool,
    ) -> None:
        self.future: Future[NegotiatedVersions] = Future()
        self.has_connected = False
        """Whether the server accepted a connection; if the check failed, that was lost."""
        self._address = address
        self._strict = strict
        self._software = settings.software
        patient = replace(
            settings,
            api_versions_timeout_s=step_timeout_s,
            request_timeout_s=min(settings.request_timeout_s, step_timeout_s),  # what authentication may take
            options=settings.options._replace(
                connect_timeout_s=min(settings.options.connect_timeout_s, step_timeout_s)
            ),
        )
        self._connection = BrokerConnection(node_id, network, patient, self, rng)
        self._connection.connect()

    def address_of(self, node_id: NodeId) -> tuple[str, int]:
        return self._address

    def versions_dialogue(self) -> VersionsDialogue:
        self.has_connected = True
        return discover_versions(self._software, strict=self._strict)

    def on_ready(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        connection.close()
        self.future.success(negotiated)

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        connection.close()
        self.future.failure(error)

    def on_idle_closed(self, connection: BrokerConnection, error: BaseException) -> None:
        """Not called: it is closed before."""

    def on_unreachable(self, connection: BrokerConnection) -> None:
        """Not called: no requests are submitted."""

    def on_silent(self, connection: BrokerConnection) -> None:
        """Not called: no requests are submitted."""

    def on_answer(self, pending: PendingRequest, response: Response) -> None:
        """Not called: no requests are submitted."""


class VersionChecks:
    """The checks of one client. They block, driving its loop."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        network: Network,
        settings: ConnectionSettings,
        rng: Rng,
        backoff: Backoff,
    ) -> None:
        self._servers = servers
        self._network = network
        self._loop = network.loop
        self._settings = settings
        self._rng = rng
        self._backoff = backoff

    def of_node(self, node_id: NodeId, address: tuple[str, int], timeout_s: float, strict: bool) -> NegotiatedVersions:
        """One node. Its error, when it does not answer."""
        return self._check(node_id, address, timeout_s, strict).future.result()

    def of_servers(self, timeout_s: float, strict: bool) -> NegotiatedVersions:
        """The first bootstrap server that answers; servers that take connections and lose them are asked again for
        ``timeout_s``. NoBrokersAvailable with what happened at each, or the only server's final error."""
        give_up_at = self._loop.time() + timeout_s
        for failures in itertools.count(1):
            errors: list[KafkaError] = []
            is_there = False
            for server in self._servers:
                check = self._check(BOOTSTRAP, server, timeout_s, strict)
                try:
                    return check.future.result()
                except KafkaError as error:
                    errors.append(error)
                    is_there = is_there or (check.has_connected and error.retriable)
            wait_s = self._backoff.delay_s(failures)
            if not is_there or self._loop.time() + wait_s >= give_up_at:
                break
            self._pause(wait_s)
        for failure in errors:
            if isinstance(failure, AuthenticationError) or (len(errors) == 1 and not failure.retriable):
                raise failure
        raise NoBrokersAvailable("; ".join(str(e.args[0]) if e.args else str(e) for e in errors))

    def _check(self, node_id: NodeId, address: tuple[str, int], timeout_s: float, strict: bool) -> VersionCheck:
        check = VersionCheck(node_id, address, self._network, self._settings, self._rng, timeout_s, strict)
        self._loop.run_until(check.future)
        return check

    def _pause(self, seconds: float) -> None:
        future: Future[None] = Future()
        self._loop.call_later(seconds, future.success, None)
        self._loop.run_until(future)
