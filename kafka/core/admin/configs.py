"""Dialogues about settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.core.admin.plain import Entry, raise_first, raise_transient, to_dict
from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
)
from kafka.core.dialogue import Dialogue, Send, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, Target
from kafka.errors import BrokerResponseError, IllegalArgumentError, InvalidConfigurationError, NoError, for_code
from kafka.protocol.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)

_OF_A_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_NOT_MODIFIED = (
    ConfigSourceType.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSourceType.STATIC_BROKER_CONFIG,
    ConfigSourceType.DEFAULT_CONFIG,
)
_DYNAMIC_SOURCE = {
    ConfigResourceType.TOPIC: ConfigSourceType.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSourceType.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: ConfigSourceType.DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSourceType.DYNAMIC_CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSourceType.DYNAMIC_GROUP_CONFIG,
}

Described = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""``{"topic": {NAME: {SETTING: {"value", "config_source", ...}}}}``"""

Altered = dict[str, dict[str, BrokerResponseError]]
"""``{"topic": {NAME: error}}``, NoError where it went well."""


def describe_configs(
    config_resources: Iterable[ConfigResource],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    include_synonyms: bool = False,
    config_filter: ConfigFilterType | str = ConfigFilterType.MODIFIED,
) -> Dialogue[Described]:
    """Settings by type, resource and name. Raises the first error."""
    wanted = _filter(config_filter)
    found: Described = {}
    for target, resources in _by_target(config_resources).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                    configuration_keys=None if resource.configs is None else list(resource.configs),
                )
                for resource in resources
            ],
            include_synonyms=include_synonyms,
        )

        def attempt(
            target: Target = target, request: DescribeConfigsRequest = request
        ) -> Dialogue[DescribeConfigsResponse]:
            answer = yield from send(target, request)
            raise_transient(_entries(answer.results))
            return answer

        answer = yield from retrying(attempt, what="describing settings", backoff=backoff, timeout_s=timeout_s)
        raise_first(_entries(answer.results))
        for result in answer.results:
            kind = ConfigResourceType(result.resource_type)
            described = {}
            for config in result.configs:
                entry = to_dict(config)
                source = _source(entry, kind)
                if _is_told(source, entry["read_only"], wanted):
                    entry["config_source"] = source.name
                    entry["is_default"] = source is ConfigSourceType.DEFAULT_CONFIG
                    entry["config_type"] = ConfigType(entry["config_type"]).name
                    for synonym in entry["synonyms"]:
                        synonym["source"] = ConfigSourceType.of(synonym["source"]).name
                    described[entry.pop("name")] = entry
            found.setdefault(kind.name.lower(), {})[result.resource_name] = described
    return found


def alter_configs(
    config_resources: Iterable[ConfigResource],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    validate_only: bool = False,
    raise_on_unknown: bool = True,
    incremental: bool | None = None,
    raise_errors: bool = True,
) -> Dialogue[Altered]:
    """Change settings. ``incremental`` (default, brokers since 2.3): those that are named and no others; False: what is
    not named falls back to its default. With ``raise_errors`` the first error is raised; without ``raise_on_unknown``,
    InvalidConfigurationError is not."""
    found: Altered = {}
    for target, resources in _by_target(config_resources).items():
        request = _replacing(resources, validate_only) if incremental is False else _changing(resources, validate_only)

        def attempt(
            target: Target = target, request: AlterConfigsRequest | IncrementalAlterConfigsRequest = request
        ) -> Dialogue[Any]:
            answer: Any = yield Send(target, request)
            raise_transient(_entries(answer.responses))
            return answer

        answer = yield from retrying(attempt, what="altering settings", backoff=backoff, timeout_s=timeout_s)
        if raise_errors:
            hidden = () if raise_on_unknown else (InvalidConfigurationError.errno,)
            raise_first(entry for entry in _entries(answer.responses) if entry[0] not in hidden)
        for result in answer.responses:
            error = for_code(result.error_code) if result.error_code else NoError
            kind = ConfigResourceType(result.resource_type).name.lower()
            found.setdefault(kind, {})[result.resource_name] = error(result.error_message or "")
    return found


def _entries(results: Iterable[Any]) -> list[Entry]:
    return [(result.error_code, result.error_message, result.resource_name) for result in results]


def _changing(resources: Iterable[ConfigResource], validate_only: bool) -> IncrementalAlterConfigsRequest:
    message = IncrementalAlterConfigsRequest
    return message(
        resources=[
            message.AlterConfigsResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                configs=[
                    message.AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in _operations(resource)
                ],
            )
            for resource in resources
        ],
        validate_only=validate_only,
    )


def _replacing(resources: Iterable[ConfigResource], validate_only: bool) -> AlterConfigsRequest:
    message = AlterConfigsRequest
    return message(
        resources=[
            message.AlterConfigsResource(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                configs=[
                    message.AlterableConfig(name=name, value=value)
                    for name, operation, value in _operations(resource)
                    if operation is AlterConfigOp.SET
                ],
            )
            for resource in resources
        ],
        validate_only=validate_only,
    )


def _operations(resource: ConfigResource) -> list[tuple[str, AlterConfigOp, str | None]]:
    if not isinstance(resource.configs, Mapping):
        raise IllegalArgumentError(f"{resource!r}: to alter settings, configs is a mapping of name to value")
    found = []
    for name, value in resource.configs.items():
        operation = AlterConfigOp.SET
        if isinstance(value, tuple):
            operation, value = _operation(resource, name, value)
        elif value is None:
            operation = AlterConfigOp.DELETE
        if isinstance(value, bool):
            value = str(value).lower()
        found.append((name, operation, None if value is None else str(value)))
    return found


def _operation(resource: ConfigResource, name: str, given: tuple[Any, ...]) -> tuple[AlterConfigOp, Any]:
    try:
        kind, value = given
        return AlterConfigOp[kind.upper()] if isinstance(kind, str) else AlterConfigOp(kind), value
    except (KeyError, ValueError):
        known = ", ".join(kind.name for kind in AlterConfigOp)
        raise IllegalArgumentError(
            f"{resource.name}: {name}={given!r}: a value, or (operation, value) with one of {known}"
        ) from None


def _by_target(resources: Iterable[ConfigResource]) -> dict[Target, list[ConfigResource]]:
    """A broker answers for its own settings; for all others, any."""
    found: dict[Target, list[ConfigResource]] = {}
    for resource in resources:
        target: Target = AnyNode()
        if resource.resource_type in _OF_A_BROKER and resource.name:
            try:
                target = int(resource.name)
            except ValueError:
                raise IllegalArgumentError(f"{resource!r}: the name of a broker is its number") from None
        found.setdefault(target, []).append(resource)
    return found


def _filter(given: ConfigFilterType | str) -> ConfigFilterType:
    if isinstance(given, ConfigFilterType):
        return given
    try:
        return ConfigFilterType[given.upper()]
    except KeyError:
        known = ", ".join(kind.name.lower() for kind in ConfigFilterType)
        raise IllegalArgumentError(f"config_filter {given!r}: one of {known}") from None


def _source(entry: dict[str, Any], kind: ConfigResourceType) -> ConfigSourceType:
    if entry["config_source"] >= 0:
        return ConfigSourceType.of(entry["config_source"])
    if entry["is_default"]:  # version 0 tells no source
        return ConfigSourceType.DEFAULT_CONFIG
    if entry["read_only"] and kind is ConfigResourceType.BROKER:
        return ConfigSourceType.STATIC_BROKER_CONFIG
    return _DYNAMIC_SOURCE.get(kind, ConfigSourceType.UNKNOWN)


def _is_told(source: ConfigSourceType, read_only: bool, wanted: ConfigFilterType) -> bool:
    if wanted is ConfigFilterType.DYNAMIC:
        return not read_only
    if wanted is ConfigFilterType.MODIFIED:
        return source not in _NOT_MODIFIED
    if wanted is ConfigFilterType.DEFAULT:
        return source in _NOT_MODIFIED
    return wanted is ConfigFilterType.ALL or source is ConfigSourceType.STATIC_BROKER_CONFIG
