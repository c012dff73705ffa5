"""What a broker speaks: its release, as far as that can be told, and the versions of each API (KIP-35)."""

from __future__ import annotations

from functools import total_ordering
from math import inf
from typing import Any

from kafka.core.admin.answers import raise_first
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import Target
from kafka.core.versions import ApiRanges
from kafka.errors import IllegalArgumentError, IncompatibleBrokerVersion
from kafka.protocol.api_key import ApiKey
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.registry import REGISTRY
from kafka.wire.message import Request


@total_ordering
class BrokerVersionData:
    """What one broker speaks. ``api_versions``: API key -> (lowest, highest version); ``broker_version``: the release
    that this looks like, as numbers, ``(4, 3)``. Ordered by release."""

    __slots__ = ("_ranges", "api_versions", "broker_version")

    def __init__(self, ranges: ApiRanges) -> None:
        self._ranges = ranges
        self.api_versions = ranges.ranges
        self.broker_version = tuple(int(part) for part in (ranges.release or "0").split("."))

    @property
    def broker_version_str(self) -> str:
        """The release as a text: "4.3"."""
        return ".".join(map(str, self.broker_version))

    def api_version(
        self,
        operation: Request[Any] | type[Request[Any]] | ApiKey | int,
        min_version: int = 0,
        max_version: float = inf,
    ) -> int:
        """The highest version of an API (its key, its request class, or a request) that the broker and this client
        speak, within these limits; IncompatibleBrokerVersion when there is none."""
        if min_version > max_version:
            raise IllegalArgumentError(f"min_version={min_version} is above max_version={max_version}")
        if isinstance(operation, int) and not isinstance(operation, bool):
            operation = ApiKey(operation)
            if operation not in REGISTRY:
                raise IncompatibleBrokerVersion(f"this client does not have the API {operation.name}")
            operation = REGISTRY[operation].request
        kind = operation if isinstance(operation, type) else type(operation)
        if not issubclass(kind, Request):
            raise IllegalArgumentError(f"operation={operation!r}: an ApiKey, its number, a request or its class")
        return self._ranges.choose(kind, min_version, int(min(max_version, kind.max_version)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BrokerVersionData):
            return NotImplemented
        return self.broker_version == other.broker_version and self.api_versions == other.api_versions

    def __lt__(self, other: BrokerVersionData) -> bool:
        return self.broker_version < other.broker_version

    def __hash__(self) -> int:
        return hash(self.broker_version)

    def __repr__(self) -> str:
        return f"<BrokerVersionData {self.broker_version_str}>"


def ask_for_ranges(
    target: Target, *, software: tuple[str, str], backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[ApiRanges]:
    """What a broker tells of itself. IncompatibleBrokerVersion before 0.10, where brokers tell nothing."""
    request = ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])
    answer = yield from retrying(
        lambda: send(target, request), what="asking for API versions", backoff=backoff, timeout_s=timeout_s
    )
    raise_first([(answer.error_code, None, "api_versions")])
    return ApiRanges.from_response(answer)
