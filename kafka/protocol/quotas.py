"""Quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Float64, Int8, Int16, Int32, String


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"], api_key=48, versions=(0, 1), flexible=1):
    """Ask for quotas of users, clients and addresses (KIP-546). Match 0: this name, 1: the default, 2: any name."""

    class ComponentData(Struct):
        entity_type: String
        match_type: Int8
        match: String | None = field(null_since=0)

    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: Boolean


class DescribeClientQuotasResponse(Response, api_key=48, versions=(0, 1), flexible=1):
    """Entities with their quotas."""

    class EntityData(Struct):
        entity_type: String
        entity_name: String | None = field(null_since=0)

    class ValueData(Struct):
        key: String
        value: Float64

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    entries: list[DescribeClientQuotasResponse.EntryData] | None = field(null_since=0)


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], api_key=49, versions=(0, 1), flexible=1):
    """Set and remove quotas of entities; a name of None is the default."""

    class EntityData(Struct):
        entity_type: String
        entity_name: String | None = field(null_since=0)

    class OpData(Struct):
        key: String
        value: Float64
        remove: Boolean

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]

    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: Boolean


class AlterClientQuotasResponse(Response, api_key=49, versions=(0, 1), flexible=1):
    """An outcome for each entity."""

    class EntityData(Struct):
        entity_type: String
        entity_name: String | None = field(null_since=0)

    class EntryData(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        entity: list[AlterClientQuotasResponse.EntityData]

    throttle_time_ms: Int32 = field(default=0)
    entries: list[AlterClientQuotasResponse.EntryData]
