"""ApiVersions (KIP-35, KIP-511, KIP-584): which requests, in which versions, and which features.

The list is that of the release which is played, as far as there are handlers, so it names what is served and nothing
else. The features are that release's, too, but for those whose APIs are not here. A version that the release lacks
never comes this far (:mod:`kafka.broker.release`).

Different from Apache Kafka 4.3.0: no APIs of streams groups (88, 89) and of brokers' share state (83 to 87), and no
``streams.version`` while those of streams are missing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import InvalidRequestError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions=(0, 4))
def api_versions(broker: Broker, call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    if call.version >= 3:
        for text in (call.request.client_software_name, call.request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=error_code(InvalidRequestError), api_keys=[])
        call.connection.software = (call.request.client_software_name, call.request.client_software_version)
    release = broker.release
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=row.key, min_version=row.least, max_version=row.most)
            for row in release.apis()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, least, most in release.supported_features()
            if least or call.version >= 4  # a minimum of 0 broke clients before version 4 (KAFKA-17011)
        ],
        finalized_features_epoch=broker.features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in broker.features.finalized().items()
        ],
    )
