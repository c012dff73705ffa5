"""Dialogues about settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka.core.admin.responses import (
    AdminApi,
    ResponseEntry,
    in_all,
    raise_first,
    request_api,
    requiring_release,
    result_of,
    time_left,
    to_dict,
)
from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    kind_of,
    known,
)
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, now
from kafka.core.retry import Backoff
from kafka.core.routing import AnyNode, Target
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    NoError,
)
from kafka.protocol.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kafka.validation import list_of

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

_DESCRIBE: Final = AdminApi("describing settings", lambda answer: _config_entries(answer.results))
_ALTER: Final = AdminApi("altering settings", lambda answer: _config_entries(answer.responses))
_LIST: Final = AdminApi(
    "listing resources with settings",
    in_all("resources with settings"),
    AnyNode(),
    "4.1 for all types, 3.7 for client metrics",
)

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
    """Settings as ``{"topic": {NAME: {SETTING: {"value", "config_source", ...}}}}``. By default only those that were
    set explicitly; "all": the defaults, too. Raises the first error."""
    wanted = kind_of(ConfigFilterType, config_filter, "config_filter")
    by_target = _by_target(_checked_resources(config_resources))
    give_up_at = (yield from now()) + timeout_s
    found: Described = {}
    for target, resources in by_target.items():
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
        left_s = yield from time_left(give_up_at)
        answer = yield from request_api(_DESCRIBE._replace(target=target), request, backoff, left_s)
        for result in answer.results:
            kind = ConfigResourceType(result.resource_type)
            described = {}
            for config in result.configs:
                entry = to_dict(config)
                source = _source(entry, kind)
                if _is_listed(source, entry["read_only"], wanted):
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
    """Change the settings that are named, and no others. With ``raise_errors`` the first error is raised; without
    ``raise_on_unknown``, InvalidConfigurationError is not.

    ``incremental`` (default, brokers since 2.3): nothing but these is sent; False, and brokers before (0.11):
    everything is replaced by what was set before with these. What another client sets meanwhile is lost then;
    IllegalArgumentError for APPEND, SUBTRACT and DELETE (None deletes), and if a password is among what has to stay,
    because it cannot be read.
    """
    wanted = _checked_resources(config_resources)
    for resource in wanted:
        _operations(resource)
    return (
        yield from _change(
            wanted,
            None,
            incremental,
            backoff=backoff,
            give_up_at=(yield from now()) + timeout_s,
            validate_only=validate_only,
            raise_on_unknown=raise_on_unknown,
            raise_errors=raise_errors,
        )
    )


def reset_configs(
    config_resources: Iterable[ConfigResource],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    validate_only: bool = False,
    raise_on_unknown: bool = True,
    incremental: bool | None = None,
    raise_errors: bool = True,
) -> Dialogue[Altered]:
    """Let settings fall back to their defaults: those whose names (or keys) a resource has as ``configs``; without any,
    all that were set for it. The first error is raised as by :func:`alter_configs`.

    With ``raise_on_unknown``, IllegalArgumentError for a name that the resource has no such setting by, or none that
    may be altered, before anything is reset. ``incremental`` (default, brokers since 2.3): nothing but these; False,
    and brokers before: everything is replaced by what was set before without these. What another client sets meanwhile
    is lost then; IllegalArgumentError if a password is among what has to stay, because it cannot be read.
    """
    wanted = _checked_resources(config_resources)
    give_up_at = (yield from now()) + timeout_s
    found = yield from requiring_release("0.11", _alterable(wanted, backoff, timeout_s))
    deleted = []
    for resource in wanted:
        kind = resource.resource_type.name.lower()
        names = list(resource.configs or _was_set(resource, found))
        unknown = [name for name in names if name not in found[kind][resource.name]]
        if unknown and raise_on_unknown:
            raise IllegalArgumentError(f"{kind} {resource.name}: no setting that can be reset: {', '.join(unknown)}")
        deleted.append(ConfigResource(resource.resource_type, resource.name, dict.fromkeys(names)))
    return (
        yield from _change(
            deleted,
            found,
            incremental,
            backoff=backoff,
            give_up_at=give_up_at,
            validate_only=validate_only,
            raise_on_unknown=raise_on_unknown,
            raise_errors=raise_errors,
        )
    )


def _change(
    wanted: Iterable[ConfigResource],
    described: Described | None,
    incremental: bool | None,
    *,
    backoff: Backoff,
    give_up_at: float,
    **options: bool,
) -> Dialogue[Altered]:
    """Incremental changes, or where these are not wanted, or not there, new contents with what is ``described`` (None:
    still to be asked for) and not changed. ``options``: as of :func:`_alter`."""
    if incremental is not False:
        try:
            altering = _alter(IncrementalAlterConfigsRequest, wanted, backoff, give_up_at, **options)
            return (yield from requiring_release("2.3", altering))
        except IncompatibleBrokerVersion:
            if incremental:
                raise
    changes = [(resource, _only_set(resource)) for resource in wanted]
    if described is None:
        left_s = yield from time_left(give_up_at)
        described = yield from requiring_release("0.11", _alterable(wanted, backoff, timeout_s=left_s))
    left, unread = [], []
    for resource, changed in changes:
        kept = {name: value for name, value in _was_set(resource, described).items() if name not in changed}
        kind = resource.resource_type.name.lower()
        unread += [f"{name} of {kind} {resource.name}" for name, value in kept.items() if value is None]
        set_now = {name: value for name, value in changed.items() if value is not None}
        left.append(ConfigResource(resource.resource_type, resource.name, {**kept, **set_now}))
    if unread:
        raise IllegalArgumentError(
            f"{', '.join(unread)} cannot be read and would be lost: give it, too, to alter_configs, with its value"
        )
    return (yield from _alter(AlterConfigsRequest, left, backoff, give_up_at, **options))


def list_config_resources(
    resource_types: Iterable[ConfigResourceType | str | int] | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[str, list[str]]]:
    """What has settings, of these types (None or none: of all that the broker can list): ``{"topic": [NAME]}``. Groups
    and subscriptions to client metrics are there when something was set for them.

    Source: KIP-1142, brokers since 4.1; client metrics alone since 3.7 (KIP-1000).
    """
    what = "resource_types"
    given = [] if resource_types is None else list_of(resource_types, what, "a list of types, not one")
    kinds = [kind_of(ConfigResourceType, kind, what) for kind in given]
    if ConfigResourceType.UNKNOWN in kinds:
        names = ", ".join(kind.name.lower() for kind in ConfigResourceType if kind)
        raise IllegalArgumentError(f"{what}={given!r}: of {names}")
    has_others = set(kinds) - {ConfigResourceType.CLIENT_METRICS}

    def build(version: int) -> ListConfigResourcesRequest:
        return ListConfigResourcesRequest(resource_types=[*kinds] if version else [])

    request = ByVersion(ListConfigResourcesRequest, build)
    answer = yield from request_api(_LIST, request, backoff, timeout_s, min_version=1 if has_others else None)
    found: dict[str, list[str]] = {}
    for resource in answer.config_resources:
        kind = known(ConfigResourceType, resource.resource_type).name.lower()
        found.setdefault(kind, []).append(resource.resource_name)
    return found


def as_texts(altered: Altered) -> dict[str, dict[str, str]]:
    """The same for people: ``{"topic": {NAME: "OK"}}``, or the error's text."""
    return {
        kind: {name: "OK" if isinstance(error, NoError) else str(error) for name, error in named.items()}
        for kind, named in altered.items()
    }


def _checked_resources(given: Iterable[ConfigResource]) -> list[ConfigResource]:
    what, form = "config_resources", "a list of ConfigResource"
    resources = list_of(given, what, form)
    if not all(isinstance(resource, ConfigResource) for resource in resources):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return resources


def _alterable(resources: Iterable[ConfigResource], backoff: Backoff, timeout_s: float) -> Dialogue[Described]:
    """All their settings that may be altered."""
    plain = [ConfigResource(resource.resource_type, resource.name) for resource in resources]
    return describe_configs(plain, backoff=backoff, timeout_s=timeout_s, config_filter=ConfigFilterType.DYNAMIC)


def _was_set(resource: ConfigResource, described: Described) -> dict[str, str | None]:
    """What was set for this very resource; None for what cannot be read."""
    there = described[resource.resource_type.name.lower()][resource.name]
    return {name: entry["value"] for name, entry in there.items() if _is_own(resource, entry)}


def _alter(
    message: Any,
    resources: Iterable[ConfigResource],
    backoff: Backoff,
    give_up_at: float,
    *,
    validate_only: bool,
    raise_on_unknown: bool,
    raise_errors: bool,
) -> Dialogue[Altered]:
    """One request, ``message``, to each target (a broker, or any node), each with its own retries and all before
    ``give_up_at`` (monotonic s). The error of each resource, NoError for those that were altered. ``raise_errors``:
    raise the first one instead; InvalidConfigurationError is exempt unless ``raise_on_unknown``."""
    found: Altered = {}
    for target, some in _by_target(resources).items():
        altered = []
        for resource in some:
            configs = []
            for name, operation, value in _operations(resource):
                what = {"config_operation": operation} if message is IncrementalAlterConfigsRequest else {}
                configs.append(message.AlterableConfig(name=name, value=value, **what))
            altered.append(
                message.AlterConfigsResource(
                    resource_type=resource.resource_type, resource_name=resource.name, configs=configs
                )
            )
        request = message(resources=altered, validate_only=validate_only)
        left_s = yield from time_left(give_up_at)
        answer: Any = yield from request_api(
            _ALTER._replace(target=target), request, backoff, left_s, raise_errors=False
        )
        if raise_errors:
            hidden = () if raise_on_unknown else (InvalidConfigurationError.errno,)
            raise_first(entry for entry in _ALTER.entries(answer) if entry[0] not in hidden)
        for result in answer.responses:
            kind = ConfigResourceType(result.resource_type).name.lower()
            error = result_of(result.error_code, result.error_message)
            found.setdefault(kind, {})[result.resource_name] = error
    return found


def _is_own(resource: ConfigResource, entry: Mapping[str, Any]) -> bool:
    """Whether it was set for this very resource. A broker without a name stands for all brokers."""
    kind = resource.resource_type
    if kind is ConfigResourceType.BROKER and not resource.name:
        source: ConfigSourceType | None = ConfigSourceType.DYNAMIC_DEFAULT_BROKER_CONFIG
    else:
        source = _DYNAMIC_SOURCE.get(kind)
    return source is not None and entry["config_source"] == source.name


def _config_entries(results: Iterable[Any]) -> list[ResponseEntry]:
    return [(result.error_code, result.error_message, result.resource_name or "all brokers") for result in results]


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


def _only_set(resource: ConfigResource) -> dict[str, str | None]:
    """Names with their new values, None for those that are deleted: all that can be said to brokers before 2.3."""
    assert isinstance(resource.configs, Mapping)
    for name, given in resource.configs.items():
        if isinstance(given, tuple) and _operation(resource, name, given)[0] is not AlterConfigOp.SET:
            raise IllegalArgumentError(
                f"{resource.name}: {name}={given!r}: without incremental, and before 2.3, a value can only be set, or"
                " deleted by None"
            )
    return {name: value for name, _, value in _operations(resource)}


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


def _source(entry: dict[str, Any], kind: ConfigResourceType) -> ConfigSourceType:
    if entry["config_source"] >= 0:
        return ConfigSourceType.of(entry["config_source"])
    if entry["is_default"]:  # version 0 has no source
        return ConfigSourceType.DEFAULT_CONFIG
    if entry["read_only"] and kind is ConfigResourceType.BROKER:
        return ConfigSourceType.STATIC_BROKER_CONFIG
    return _DYNAMIC_SOURCE.get(kind, ConfigSourceType.UNKNOWN)


def _is_listed(source: ConfigSourceType, read_only: bool, wanted: ConfigFilterType) -> bool:
    if wanted is ConfigFilterType.DYNAMIC:
        return not read_only
    if wanted is ConfigFilterType.MODIFIED:
        return source not in _NOT_MODIFIED
    if wanted is ConfigFilterType.DEFAULT:
        return source in _NOT_MODIFIED
    return wanted is ConfigFilterType.ALL or source is ConfigSourceType.STATIC_BROKER_CONFIG
