"""Finalized feature levels (KIP-584): those of the release, and the changes by UpdateFeatures.

Stored in the metadata, as one small value. A level of 0 is left out of ApiVersions, and disables APIs: without
``share.version`` those of share groups, without ``group.version`` those of consumer groups. Clients decide themselves
what they do by ``transaction.version``. Rules and texts are Apache Kafka 4.3.0's, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.errors import InvalidUpdateVersionError

if TYPE_CHECKING:
    from kafka.broker.config import BrokerConfig
    from kafka.broker.emulation import EmulatedRelease
    from kafka.broker.log.metadata_store import MetadataStore
    from kafka.broker.registry import RequestContext
    from kafka.wire.message import Response

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
MIN_ISR: Final = "min.insync.replicas"

SWITCHED_OFF: Final[Mapping[str, frozenset[int]]] = {
    "share.version": frozenset({76, 77, 78, 79, 90, 91, 92}),
    "group.version": frozenset({68, 69}),
}
"""Feature -> the APIs that its level 0 refuses."""

_UNSUPPORTED_VERSION: Final = 35
_META: Final = "features"


class FeatureUpdate(NamedTuple):
    """One feature's new level, and how it may get there."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """The features of one broker."""

    def __init__(
        self,
        release: EmulatedRelease,
        metadata: MetadataStore,
        config: BrokerConfig,
        flush_metadata: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._flush_metadata = flush_metadata
        self._release_epoch = release.facts.features_epoch
        self._release = dict(release.finalized_features())
        self._supported = {name: (least, most) for name, least, most in release.supported_features()}
        self._changes: dict[str, int] = dict(metadata.meta(_META, {}))
        self._off = self._refusals()

    def finalized(self) -> dict[str, int]:
        """Name and level of each finalized feature."""
        levels = {**self._release, **{name: to for name, to in self._changes.items() if name in self._supported}}
        return {name: level for name, level in levels.items() if level}

    @property
    def epoch(self) -> int:
        """The finalized features' epoch, which rises with each change."""
        if self._release_epoch < 0:
            return self._release_epoch
        return self._release_epoch + int(self._metadata.meta("features_epoch", 0))

    def keep_min_isr(self) -> None:
        """While there are eligible leader replicas (KIP-966), ``min.insync.replicas`` is always set for all brokers."""
        own = self._metadata.config("broker", "")
        if ELIGIBLE_LEADERS in self.finalized() and MIN_ISR not in own:
            own[MIN_ISR] = self._config.value(MIN_ISR)
            self._metadata.set_config("broker", "", own)
            self._config.set_dynamic("", own)

    def refusal(self, call: RequestContext[Any]) -> Response | None:
        """The error response to a request of an API whose feature is off, or None."""
        if call.request.api_key not in self._off:
            return None
        from kafka.broker.error_responses import error_response  # not needed at the start

        return error_response(call.request, _UNSUPPORTED_VERSION)

    def update(self, updates: Sequence[FeatureUpdate], validate_only: bool) -> None:
        """Change levels, all or none. InvalidUpdateVersionError (95) for the first that cannot be."""
        levels = self.finalized()
        for update in updates:
            self._check(update, levels.get(update.name, 0))
        if updates and not validate_only:
            metadata = self._metadata
            self._changes.update({update.name: update.level for update in updates})
            metadata.set_meta(_META, self._changes)
            metadata.set_meta("features_epoch", int(metadata.meta("features_epoch", 0)) + 1)
            self._flush_metadata()
            self._off = self._refusals()

    def _check(self, update: FeatureUpdate, now: int) -> None:
        """Check one update, in Apache Kafka's order and words. InvalidUpdateVersionError (95)."""
        name, level, kind = update
        wrong = f"Invalid update version {level} for feature {name}. "
        controller = f"Local controller {self._config.node_id}"
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            self._refuse(wrong + "The controller does not support the given upgrade type.")
        if level < 0:
            self._refuse(wrong + "A feature version cannot be less than 0.")
        if name not in self._supported:
            self._refuse(wrong + f"{controller} does not support this feature.")
        least, most = self._supported[name]
        if not least <= level <= most:
            self._refuse(wrong + f"{controller} only supports versions {least}-{most}")
        if level < now and kind == UPGRADE:
            self._refuse(
                wrong + "Can't downgrade the version of this feature without setting the upgrade type to either "
                "safe or unsafe downgrade."
            )
        if level > now and kind != UPGRADE:
            self._refuse(wrong + "Can't downgrade to a newer version.")
        if level < now and name == METADATA_VERSION:
            self._refuse(
                f"Unsupported metadata.version downgrade from {now} to {level}. "
                + (
                    "Refusing to perform the requested downgrade because it might delete metadata information."
                    if kind == SAFE_DOWNGRADE
                    else "Unsafe metadata downgrade is not supported in this version."
                )
            )

    def _refuse(self, why: str) -> None:
        raise InvalidUpdateVersionError(
            f"The update failed for all features since the following feature had an error: {why}"
        )

    def _refusals(self) -> frozenset[int]:
        levels = self.finalized()
        return frozenset().union(
            *(keys for name, keys in SWITCHED_OFF.items() if name in self._changes and name not in levels)
        )
