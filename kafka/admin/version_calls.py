"""The admin client's calls about features and API versions, with kafka-python's names and shapes."""

from __future__ import annotations

from typing import Any

from kafka.admin import dialogues
from kafka.admin.running import Running
from kafka.core.admin.broker_versions import BrokerVersionData, ask_for_ranges
from kafka.core.admin.features import FeatureUpdates
from kafka.core.dialogue import Dialogue, refresh_metadata
from kafka.core.retry import retrying
from kafka.core.routing import AnyNode
from kafka.core.versions import ApiRanges
from kafka.errors import IllegalArgumentError, IncompatibleBrokerVersion, NoError, UnknownBrokerIdError
from kafka.protocol.api_key import ApiKey


class VersionCalls(Running):
    """What brokers speak, and which formats and protocols the cluster has agreed on."""

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """``{feature: {"supported": (least, most), "finalized": (least, most), "finalized_epoch"}}``; the last two for
        what the cluster has finalized, the epoch None where none is told. Any broker, or the controller. KIP-584, since
        2.7 (2.4 answers without features); IncompatibleBrokerVersion before."""
        return self._run(
            dialogues.describe_features(
                software=self._host.client.software,
                send_request_to_controller=send_request_to_controller,
                **self._limits,
            )
        )

    def update_features(
        self, feature_updates: FeatureUpdates, validate_only: bool = False, timeout_ms: float | None = 60000
    ) -> dict[str, str]:
        """Change levels: ``{feature: level}`` for an upgrade, or ``{feature: (type, level)}`` with an
        UpdateFeatureType, its name or its number; level 0 removes the feature. ``timeout_ms``: None for
        ``request_timeout_ms``.

        Returns ``{feature: "OK" or the error's text}``. An error of the whole request is raised, and since 4.0 that is
        every one (InvalidUpdateVersionError). KIP-584, since 2.7; ``validate_only`` since 3.3.
        """
        found = self._run(
            dialogues.update_features(feature_updates, validate_only=validate_only, **self._limits_within(timeout_ms))
        )
        return {name: "OK" if isinstance(error, NoError) else str(error) for name, error in found.items()}

    def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
        """What a broker of the cluster speaks, whichever is asked: ``{ApiKey: (lowest, highest version)}``. Of brokers
        before 0.10, which tell nothing, what their release is known to speak."""
        ranges = self._run(self._ranges_of(None)).ranges
        return {ApiKey(key): versions for key, versions in ranges.items()}

    def get_broker_version_data(self, broker_id: int) -> BrokerVersionData:
        """What this broker speaks and the release that it looks like: ``api_versions``, ``broker_version`` ((4, 3)),
        ``broker_version_str``, ``api_version(request)``. UnknownBrokerIdError for one that is not in the cluster."""
        if not isinstance(broker_id, int) or isinstance(broker_id, bool):
            raise IllegalArgumentError(f"broker_id={broker_id!r}: a broker's number")
        return BrokerVersionData(self._run(self._ranges_of(broker_id)))

    def _ranges_of(self, broker_id: int | None) -> Dialogue[ApiRanges]:
        client = self._host.client

        def find() -> Dialogue[None]:
            if broker_id is None or client.cluster.broker_metadata(broker_id) is not None:
                return
            yield from refresh_metadata()
            if client.cluster.broker_metadata(broker_id) is None:
                raise UnknownBrokerIdError(f"node {broker_id}: not in the cluster's metadata")

        yield from retrying(find, what="looking for the broker", **self._limits)
        target = AnyNode() if broker_id is None else broker_id
        try:
            return (yield from ask_for_ranges(target, software=client.software, **self._limits))
        except IncompatibleBrokerVersion:
            return client.api_ranges()  # from its greeting: one of such a cluster is as good as another
