"""ApiVersions (KIP-35, KIP-511, KIP-584): which requests, in which versions, and which features.

The list is the registry's, so it names what is served and nothing else. Of the finalized features only those are shown
whose APIs are here: ``metadata.version`` and ``share.version``. A version that we lack is answered with error 35 in
version 0, as by Apache Kafka 4.3.0.

Different from Apache Kafka 4.3.0: fewer APIs; the features of groups, transactions and streams are left out; the name
and version of the client's software are not checked (error 42 there).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafka.broker.registry import HANDLERS, Call, handles
from kafka.errors import InvalidRequestError, UnsupportedVersionError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

SUPPORTED_FEATURES: Final = {"metadata.version": (7, 30), "share.version": (0, 1)}
FINALIZED_FEATURES: Final = {"metadata.version": 30, "share.version": 1}
"""As a cluster has them that was made by release 4.3.0."""

FEATURES_EPOCH: Final = 1

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions=(0, 4))
def api_versions(broker: Broker, call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    if call.version >= 3:
        for text in (call.request.client_software_name, call.request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=int(InvalidRequestError.errno or 0), api_keys=[])
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=row.listed_from, max_version=row.max_version)
            for key, row in sorted(HANDLERS.items())
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low or call.version >= 4  # a minimum of 0 broke clients before version 4 (KAFKA-17011)
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FINALIZED_FEATURES.items()
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """For a version of ApiVersions that is not served; to be sent in version 0."""
    row = HANDLERS[ApiVersionsRequest.api_key]
    own = ApiVersionsResponse.ApiVersion(
        api_key=row.key, min_version=row.listed_from, max_version=row.max_version
    )
    return ApiVersionsResponse(error_code=int(UnsupportedVersionError.errno or 0), api_keys=[own])
