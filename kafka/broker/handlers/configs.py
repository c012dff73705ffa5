"""Configurations and client quotas: settings of topics (2), of the broker (4), of client metrics (16: what clients
push, KIP-714) and of groups (32); ListConfigResources (KIP-1000, KIP-1142) lists the resources, in version 0 those of
client metrics alone.

Topics have all of Kafka's settings; those that the broker acts on are in ``LogConfig`` (``log/partition_log.py``). Of
the broker's settings the ones in ``config.py`` are known; the dynamic ones may be changed, for this broker or (empty
name) for all. AlterConfigs replaces all that a resource has set, with the checks of IncrementalAlterConfigs, which
clients should use instead. Quotas are checked, stored and described.

Different from Apache Kafka 4.3.0: of groups the settings of share and consumer groups, none of streams groups; loggers
(8) are refused with INVALID_REQUEST (42); no documentation texts; changes show at once; of the broker's settings only
those that mean something here, and those of listeners and share groups are read-only; a resource that AlterConfigs
names twice gets INVALID_REQUEST (42; there, the request is never answered); quotas throttle no client; of hosts, only
addresses and ``localhost`` are valid in a quota (there, whatever can be resolved).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafka.broker.config import (
    BOOLEAN,
    BROKER_SETTINGS,
    FROM_ALL_BROKERS,
    FROM_CLIENT_METRICS,
    FROM_DEFAULT,
    FROM_GROUP,
    FROM_TOPIC,
    INT,
    LIST,
    PASSWORD,
    STRING,
    TOPIC_SETTINGS,
    SourcedValue,
    broker_setting,
    check_topic_combination,
    check_topic_settings,
    list_of,
)
from kafka.broker.emulation import ELIGIBLE_LEADERS, MIN_ISR
from kafka.broker.error_responses import answer_each, error_code, error_text, failed
from kafka.broker.group_settings import CONSUMER_SETTINGS, GROUP_SETTINGS, check_group_settings
from kafka.broker.quotas import QuotaChange, QuotaFilterComponent
from kafka.broker.registry import RequestContext, handles
from kafka.broker.telemetry import CLIENT_METRICS_SETTINGS, KIND, check_client_metrics
from kafka.broker.topics import check_topic_name
from kafka.errors import (
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidRequestError,
    UnknownError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafka.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.wire.message import Struct

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})
"""Resource types that Apache Kafka has, but not all of which are served: BROKER_LOGGER is refused."""

HIDDEN: Final = frozenset({"log.initial.task.delay.ms"})
"""Settings of the broker that Kafka does not show."""

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

_Described = DescribeConfigsResponse.DescribeConfigsResult
_Row = DescribeConfigsResponse.DescribeConfigsResourceResult


def topic_sources(broker: Broker, own: Mapping[str, str], name: str) -> list[SourcedValue]:
    """Every value that a topic's setting has, the one in force first; empty when only Kafka's default is there, under
    no name of the broker's. ``own``: what was set for the topic."""
    broker_name = TOPIC_SETTINGS[name].broker_name
    found = [SourcedValue(name, own[name], FROM_TOPIC)] if name in own else []
    if broker_name is not None:
        is_null = BROKER_SETTINGS[broker_name].is_null
        found += [one for one in broker.config.sources(broker_name) if not (is_null and one.source == FROM_DEFAULT)]
    return found


def topic_value(broker: Broker, own: Mapping[str, str], name: str) -> SourcedValue:
    """The value in force of a topic's setting."""
    found = topic_sources(broker, own, name)
    return found[0] if found else SourcedValue(name, TOPIC_SETTINGS[name].default, FROM_DEFAULT)


# -- describe --------------------------------------------------------------------------------------------------------


@handles(DescribeConfigsRequest)
def describe_configs(broker: Broker, call: RequestContext[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    request = call.request
    odd = [one.resource_type for one in request.resources if one.resource_type not in KINDS]
    # The row of a setting that a topic has not set: for all topics of a request the same object.
    row_of = functools.cache(lambda key: _topic_row(broker, {}, key, request.include_synonyms))
    # To a release before 1.1 (KIP-226) what the broker's file says of all topics is a default, too.
    is_before_sources = broker.release.facts.apis[DescribeConfigsRequest.api_key][1] == 0

    def describe(resource: DescribeConfigsRequest.DescribeConfigsResource) -> _Described:
        if odd:  # nothing of such a request is answered
            raise InvalidRequestError(f"Unexpected resource type {odd[0]}")
        rows = _describe(broker, resource, request.include_synonyms, row_of)
        if call.version == 0:  # it has no sources
            is_from_topic = resource.resource_type == TOPIC and is_before_sources
            for row in rows:
                source = row.config_source
                row.is_default = source != FROM_TOPIC if is_from_topic else source == FROM_DEFAULT
        return _Described(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name, configs=rows
        )

    return DescribeConfigsResponse(
        results=answer_each(
            request.resources,
            describe,
            lambda one, error: failed(
                _Described, error, resource_type=one.resource_type, resource_name=one.resource_name
            ),
        )
    )


def _topic_row(broker: Broker, own: Mapping[str, str], key: str, with_synonyms: bool) -> _Row:
    sources = topic_sources(broker, own, key) if with_synonyms else []
    return _row(key, topic_value(broker, own, key), sources, TOPIC_SETTINGS[key].type)


def _describe(
    broker: Broker,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    with_synonyms: bool,
    row_of: Callable[[str], _Row],
) -> list[_Row]:
    """The rows of one resource, by its type. Rows of topic settings that the topic does not override come from
    ``row_of``, which makes each once a request. UnknownTopicOrPartitionError for a missing topic, InvalidRequestError
    for an empty name or another type."""
    kind, name = resource.resource_type, resource.resource_name
    wanted = frozenset(resource.configuration_keys) if resource.configuration_keys else None
    if kind == TOPIC:
        check_topic_name(name)
        if broker.metadata.topic(name) is None:
            raise UnknownTopicOrPartitionError("")
        own = broker.metadata.config("topic", name)
        return [
            _topic_row(broker, own, key, with_synonyms) if key in own else row_of(key)
            for key in TOPIC_SETTINGS
            if wanted is None or key in wanted
        ]
    if kind not in _SETTINGS:
        raise InvalidRequestError(f"Unsupported resource type: {kind}")
    if not name and kind in _NOUNS:
        raise InvalidRequestError(f"{_NOUNS[kind]} name must not be empty")
    return [
        _row(*(one if with_synonyms else one._replace(synonyms=[])))
        for one in _SETTINGS[kind](broker, name)
        if wanted is None or one.key in wanted
    ]


class _Setting(NamedTuple):
    """A setting of a resource. ``synonyms``: every value that it has."""

    key: str
    in_force: SourcedValue
    synonyms: list[SourcedValue]
    type: int
    read_only: bool = False
    is_null: bool = False


def _broker_settings(broker: Broker, name: str) -> Iterator[_Setting]:
    if name == "":
        for key, value in broker.config.dynamic.get("", {}).items():
            known = broker_setting(key)
            one = SourcedValue(key, value, FROM_ALL_BROKERS)
            yield _Setting(key, one, [one], STRING if known is None else known.type)
        return
    _check_broker_name(broker, name, "Broker", " or empty string, but received")
    own = {key: known for key in broker.config.static if (known := broker_setting(key)) is not None}
    for key, setting in {**BROKER_SETTINGS, **own}.items():
        if key not in HIDDEN:
            sources = broker.config.sources(key)
            is_null = setting.is_null and sources[0].source == FROM_DEFAULT
            synonyms = [] if is_null else sources
            yield _Setting(key, sources[0], synonyms, setting.type, not setting.dynamic, is_null)


def _group_settings(broker: Broker, name: str) -> Iterator[_Setting]:
    """Settings of share groups, then of consumer groups, whose defaults are the broker's settings. A group that does
    not exist has them, too."""
    config = broker.share.config(name)
    set_for_it = broker.metadata.config("group", name)
    for key, setting in GROUP_SETTINGS.items():
        default = setting.default(broker.config.value)
        kind = INT if setting.is_number else BOOLEAN if default in ("true", "false") else STRING
        if key in CONSUMER_SETTINGS:
            sources = [SourcedValue(key, set_for_it[key], FROM_GROUP)] if key in set_for_it else []
            sources += broker.config.sources(setting.broker_name)
        else:
            sources = [SourcedValue(key, config.value(key), FROM_GROUP)] if key in config.own else []
            sources.append(SourcedValue(setting.broker_name if setting.is_number else key, default, FROM_DEFAULT))
        yield _Setting(key, sources[0], sources, kind)


def _client_metrics_settings(broker: Broker, name: str) -> Iterator[_Setting]:
    own = broker.metadata.config(KIND, name)
    for key, setting in CLIENT_METRICS_SETTINGS.items():
        sources = [SourcedValue(key, own[key], FROM_CLIENT_METRICS)] if key in own else []
        in_force = sources[0] if sources else SourcedValue(key, setting.default, FROM_DEFAULT)
        yield _Setting(key, in_force, sources, setting.type)


_SETTINGS: Final[Mapping[int, Callable[[Broker, str], Iterator[_Setting]]]] = {
    BROKER: _broker_settings,
    CLIENT_METRICS: _client_metrics_settings,
    GROUP: _group_settings,
}
_NOUNS: Final = {CLIENT_METRICS: "Client metrics subscription", GROUP: "Group"}
"""Resource type whose name may not be empty -> its noun."""


def _row(
    key: str,
    in_force: SourcedValue,
    synonyms: list[SourcedValue],
    kind: int,
    read_only: bool = False,
    is_null: bool = False,
) -> _Row:
    is_secret = kind == PASSWORD  # its value is returned as null, as by Kafka
    return _Row(
        name=key,
        value=None if is_secret or is_null else in_force.value,
        read_only=read_only,
        config_source=in_force.source,
        is_sensitive=is_secret,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=name, value=None if is_secret else value, source=source)
            for name, value, source in synonyms
        ],
        config_type=kind,
        documentation=None,
    )


def _check_broker_name(broker: Broker, name: str, noun: str, text: str) -> None:
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequestError(f"{noun} id must be an integer, but it is: {name}") from None
    if number != broker.config.node_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {broker.config.node_id}{text} {name}")


# -- alter -----------------------------------------------------------------------------------------------------------

C = TypeVar("C", IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource)
R = TypeVar("R", bound=Struct)


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    broker: Broker, call: RequestContext[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Each resource by itself, all of its changes or none (KIP-339); one that the request names twice is refused. One
    unknown operation on a resource that the controller alters fails all resources (see :func:`_survive`)."""
    request = call.request
    is_lost = any(
        one.resource_type in (TOPIC, CLIENT_METRICS, GROUP) and _odd_operations(one.configs)
        for one in request.resources
    )

    def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        if is_lost:
            _survive(broker, resource)
        alter_resource(broker, resource, request.validate_only)

    responses = _alter_each(request.resources, alter, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter_each(resources: Sequence[C], alter: Callable[[C], None], response: Callable[..., R]) -> list[R]:
    """Have ``alter`` change each resource, or raise its error; a ``response`` for each. A resource that the request
    names twice is refused."""
    count_of = Counter((one.resource_type, one.resource_name) for one in resources)

    def result(resource: C, error: BrokerResponseError | None = None) -> R:
        return response(
            error_code=error_code(error),
            error_message=None if error is None else error_text(error) or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def alter_once(resource: C) -> R:
        if count_of[resource.resource_type, resource.resource_name] > 1:
            raise InvalidRequestError("Each resource must appear at most once.")
        alter(resource)
        return result(resource)

    return answer_each(resources, alter_once, result)


def _odd_operations(changes: _Changes) -> list[int]:
    return [one.config_operation for one in changes if one.config_operation not in (SET, DELETE, APPEND, SUBTRACT)]


def _survive(broker: Broker, resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
    """Raise what is said of a resource when another one, or itself, has an operation that does not exist: Apache
    Kafka's controller then does none of them (-1), and its broker has found the plain faults before."""
    if resource.resource_type == BROKER:
        alter_resource(broker, resource, validate_only=True)
    else:
        _check_shape(resource)
    raise UnknownError("")


def _check_shape(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
    if resource.resource_type not in STORED_KINDS:
        raise InvalidRequestError(f"Unknown resource type {resource.resource_type}")
    names = [change.name for change in resource.configs]
    if len(set(names)) != len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    nulls = [change.name for change in resource.configs if change.config_operation != DELETE and change.value is None]
    if nulls:
        raise InvalidRequestError(f"Null value not supported for : {','.join(nulls)}")


def alter_resource(
    broker: Broker, resource: IncrementalAlterConfigsRequest.AlterConfigsResource, validate_only: bool
) -> None:
    """Check and make the changes of one resource, all or none; raises the error for the response."""
    kind, name = resource.resource_type, resource.resource_name
    _check_shape(resource)
    changed, apply = _ALTERATIONS[kind](broker, name, resource.configs)
    if not validate_only:
        broker.metadata.set_config(STORED_KINDS[kind], name, changed)
        broker.flush_metadata()
        apply()


_Change = IncrementalAlterConfigsRequest.AlterableConfig
_Changes = list[_Change]
_Alteration = tuple[dict[str, str], Callable[[], object]]
"""What is set after the changes, which were checked; and what puts it in force, when it is stored."""


def _alter_topic(broker: Broker, name: str, changes: _Changes) -> _Alteration:
    """Only settings that change are checked: a value that was valid when it was set stays. The checks come in Kafka's
    order, and the topic's existence last. The log's new configuration is in force at once."""
    if not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    own = broker.metadata.config("topic", name)
    lists = {
        key: own.get(key, broker.logs.defaults.get(key, setting.default))
        for key, setting in TOPIC_SETTINGS.items()
        if setting.type == LIST
    }
    changed = _changed(own, changes, lists)
    check_topic_name(name)
    check_topic_settings({key: value for key, value in changed.items() if key not in own or own[key] != value})
    check_topic_combination(changed)
    topic = broker.metadata.topic(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
    return changed, partial(broker.logs.configure_topic, topic)


def _alter_broker(broker: Broker, name: str, changes: _Changes) -> _Alteration:
    """For one broker, or (empty name) for all. Only dynamic settings; a wrong value is InvalidRequestError here, where
    topics get InvalidConfigurationError, as in Kafka. Topics without the setting of their own have the new default at
    once."""
    if name:
        _check_broker_name(broker, name, "Node", ", but received")
    odd = _odd_operations(changes)
    if odd:
        raise InvalidRequestError(f"Unknown operations type {odd[0]}")
    fixed = [
        change.name for change in changes if change.name in BROKER_SETTINGS and not BROKER_SETTINGS[change.name].dynamic
    ]
    if fixed:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    own = broker.config.dynamic.get(name, {})
    lists = {key: broker.config.value(key) for key, setting in BROKER_SETTINGS.items() if setting.type == LIST}
    changed = _changed(own, changes, lists)
    for key, value in changed.items():
        if key in BROKER_SETTINGS:
            try:
                BROKER_SETTINGS[key].check(value)
            except InvalidConfigurationError as error:
                raise InvalidRequestError(error_text(error)) from None
    _check_min_isr(broker, name, changes)

    def apply() -> None:
        broker.config.dynamic[name] = changed
        broker.apply_topic_defaults()

    return changed, apply


def _check_min_isr(broker: Broker, name: str, changes: _Changes) -> None:
    """While there are eligible leader replicas, it is set for all brokers alike, and always."""
    if ELIGIBLE_LEADERS not in broker.features.finalized():
        return
    for change in changes:
        if change.name == MIN_ISR and name:
            raise InvalidConfigurationError(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if change.name == MIN_ISR and change.config_operation == DELETE:
            raise InvalidConfigurationError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def _alter_group(broker: Broker, name: str, changes: _Changes) -> _Alteration:
    if not name:
        raise InvalidRequestError("Default group resources are not allowed.")
    changed = _changed(broker.metadata.config("group", name), changes, {})
    check_group_settings(broker.config.value, changed)
    return changed, partial(broker.share.configure, name, changed)


def _alter_client_metrics(broker: Broker, name: str, changes: _Changes) -> _Alteration:
    changed = check_client_metrics(name, _changed(broker.metadata.config(KIND, name), changes, {}))

    def apply() -> None:
        if broker.telemetry is not None:
            broker.telemetry.subscriptions_changed()

    return changed, apply


_ALTERATIONS: Final[Mapping[int, Callable[[Broker, str, _Changes], _Alteration]]] = {
    TOPIC: _alter_topic,
    BROKER: _alter_broker,
    CLIENT_METRICS: _alter_client_metrics,
    GROUP: _alter_group,
}
STORED_KINDS: Final = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: KIND, GROUP: "group"}
"""Resource type -> the name under which the metadata has it."""


def _changed(own: Mapping[str, str], changes: _Changes, lists: Mapping[str, str]) -> dict[str, str]:
    """What is set after the changes. ``lists``: the values in force of the settings that are lists."""
    changed = dict(own)
    for change in changes:
        value = change.value or ""
        operation = change.config_operation
        if operation == DELETE:
            changed.pop(change.name, None)
        elif operation == SET:
            changed[change.name] = value
        elif operation in (APPEND, SUBTRACT):
            word = "APPEND" if operation == APPEND else "SUBTRACT"
            if change.name not in lists:
                raise InvalidConfigurationError(f"Can't {word} to key {change.name} because its type is not LIST.")
            parts = list_of(changed.get(change.name, lists[change.name]))
            given = list_of(value)
            if operation == APPEND:
                parts += [part for part in given if part not in parts]
            else:
                parts = [part for part in parts if part not in given]
            changed[change.name] = ",".join(parts)
        else:
            raise UnknownError(f"there is no operation {operation}")
    return changed


# -- AlterConfigs -----------------------------------------------------------------------------------------------------


@handles(AlterConfigsRequest)
def alter_configs(broker: Broker, call: RequestContext[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Each resource by itself; one that the request names twice is refused."""
    request = call.request

    responses = _alter_each(
        request.resources,
        lambda resource: _replace(broker, resource, request.validate_only),
        AlterConfigsResponse.AlterConfigsResourceResponse,
    )
    return AlterConfigsResponse(responses=responses)


def _replace(broker: Broker, resource: AlterConfigsRequest.AlterConfigsResource, validate_only: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC and not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    given = {one.name for one in resource.configs}
    own = broker.metadata.config(STORED_KINDS[kind], name) if kind in STORED_KINDS else {}
    changes = [_Change(name=one.name, config_operation=SET, value=one.value) for one in resource.configs]
    changes += [_Change(name=key, config_operation=DELETE, value=None) for key in own if key not in given]
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changes
    )
    alter_resource(broker, wanted, validate_only)


# -- ListConfigResources ----------------------------------------------------------------------------------------------


@handles(ListConfigResourcesRequest)
def list_config_resources(
    broker: Broker, call: RequestContext[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    """No types: all. An unknown type fails the whole request with UNSUPPORTED_VERSION (35), and version 0
    (ListClientMetricsResources) knows client metrics alone."""
    wanted = set(call.request.resource_types) if call.version else {CLIENT_METRICS}
    if not wanted <= KINDS:
        raise UnsupportedVersionError("an unknown type of resource")
    node = str(broker.config.node_id)
    names = {
        CLIENT_METRICS: list(broker.metadata.configs(KIND)),
        GROUP: list(broker.metadata.configs("group")),
        BROKER_LOGGER: [node],
        BROKER: [node],
        TOPIC: [topic.name for topic in broker.metadata],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            for name in found
            if not wanted or kind in wanted
        ],
    )


# -- client quotas ----------------------------------------------------------------------------------------------------


_Entity = tuple[tuple[str, "str | None"], ...]


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    broker: Broker, call: RequestContext[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """A wrong filter fails the whole request (KIP-546)."""
    request = call.request
    components = [QuotaFilterComponent(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        found = broker.quotas.find(components, request.strict)
    except BrokerResponseError as error:
        return failed(DescribeClientQuotasResponse, error, entries=None)
    kind = DescribeClientQuotasResponse
    return kind(
        error_message="",
        entries=[
            kind.EntryData(
                entity=[kind.EntityData(entity_type=name, entity_name=value) for name, value in entity.items()],
                values=[kind.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


@handles(AlterClientQuotasRequest)
def alter_client_quotas(broker: Broker, call: RequestContext[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    """Each entity by itself (KIP-546); one that the request names twice, or with a key twice, gets
    InvalidRequestError. All that was altered is written with one flush."""
    request = call.request
    keys = [_entity(entry) for entry in request.entries]
    count_of = Counter(keys)

    def alter(pair: tuple[_Entity, AlterClientQuotasRequest.EntryData]) -> _QuotaResult:
        key, entry = pair
        changes = [QuotaChange(one.key, None if one.remove else one.value) for one in entry.ops]
        if count_of[key] > 1 or len({one.key for one in changes}) < len(changes):
            shown = ", ".join(f"{kind}={name}" for kind, name in key)
            raise InvalidRequestError(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
        broker.quotas.alter(dict(key), changes, request.validate_only)
        return _QuotaResult(error_message=None, entity=_entity_data(key))

    entries = answer_each(
        dict(zip(keys, request.entries, strict=True)).items(),
        alter,
        lambda pair, error: failed(_QuotaResult, error, entity=_entity_data(pair[0])),
    )
    if not request.validate_only:
        broker.quotas.write_names()
        broker.flush_metadata()
    return AlterClientQuotasResponse(entries=entries)


_QuotaResult = AlterClientQuotasResponse.EntryData


def _entity_data(key: _Entity) -> list[AlterClientQuotasResponse.EntityData]:
    return [AlterClientQuotasResponse.EntityData(entity_type=name, entity_name=value) for name, value in key]


def _entity(entry: AlterClientQuotasRequest.EntryData) -> _Entity:
    """The entity; of a kind that is named twice the last one counts, as in Kafka."""
    return tuple(sorted({one.entity_type: one.entity_name for one in entry.entity}.items()))
