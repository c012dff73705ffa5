"""DescribeClientQuotas, AlterClientQuotas: quotas are checked, kept and told.

Different from Apache Kafka 4.3.0: nobody is throttled by them; of hosts, only addresses and ``localhost`` are valid
(there, whatever can be resolved).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka.broker.codes import error_code, error_text
from kafka.broker.quotas import Component, QuotaChange
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, InvalidRequestError
from kafka.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_Key = tuple[tuple[str, "str | None"], ...]


@handles(DescribeClientQuotasRequest, versions=(0, 1))
def describe_client_quotas(
    broker: Broker, call: Call[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    request = call.request
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        found = broker.quotas.find(components, request.strict)
    except BrokerResponseError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error_code(error), error_message=error_text(error), entries=None
        )
    kind = DescribeClientQuotasResponse
    return kind(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        entries=[
            kind.EntryData(
                entity=[kind.EntityData(entity_type=name, entity_name=value) for name, value in entity.items()],
                values=[kind.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


@handles(AlterClientQuotasRequest, versions=(0, 1))
def alter_client_quotas(broker: Broker, call: Call[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    request = call.request
    keys = [_key(entry) for entry in request.entries]
    count_of = Counter(keys)
    results: dict[_Key, tuple[int, str | None]] = {}
    for key, entry in zip(keys, request.entries, strict=True):
        changes = [QuotaChange(one.key, None if one.remove else one.value) for one in entry.ops]
        code, text = 0, None
        try:
            if count_of[key] > 1 or len({one.key for one in changes}) < len(changes):
                shown = ", ".join(f"{kind}={name}" for kind, name in key)
                raise InvalidRequestError(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
            broker.quotas.alter(dict(key), changes, request.validate_only)
        except BrokerResponseError as error:
            code, text = error_code(error), error_text(error)
        results[key] = code, text
    if not request.validate_only:
        broker.quotas.write_names()
        broker.sync_metadata()
    kind = AlterClientQuotasResponse
    return kind(
        throttle_time_ms=0,
        entries=[
            kind.EntryData(
                error_code=code,
                error_message=text,
                entity=[kind.EntityData(entity_type=name, entity_name=value) for name, value in key],
            )
            for key, (code, text) in results.items()
        ],
    )


def _key(entry: AlterClientQuotasRequest.EntryData) -> _Key:
    """The entity; of a kind that is named twice the last one counts, as in Kafka."""
    return tuple(sorted({one.entity_type: one.entity_name for one in entry.entity}.items()))
