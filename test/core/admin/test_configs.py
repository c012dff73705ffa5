from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.configs import alter_configs, as_texts, describe_configs, list_config_resources, reset_configs
from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    kind_of,
)
from kafka.core.connection import ByVersion
from kafka.core.routing import AnyNode
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    KafkaConnectionError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnsupportedVersionError,
)
from kafka.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from test.core.admin.driving import BACKOFF, asked

DENIED, INVALID_CONFIG = 29, 40



def described(*sources: int) -> DescribeConfigsResponse:
    configs = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=f"c{source}", value="v", read_only=source == 4, config_source=source, is_sensitive=False
        )
        for source in sources
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=configs
    )
    return DescribeConfigsResponse(throttle_time_ms=0, results=[result])


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("all", {"c1", "c3", "c4", "c5"}),
        ("modified", {"c1"}),
        ("default", {"c3", "c4", "c5"}),
        ("static", {"c4"}),
        ("dynamic", {"c1", "c3", "c5"}),
    ],
)
def test_the_filter_says_which_settings_are_returned(wanted: str, told: set[str]) -> None:
    found, _ = asked(
        describe_configs([ConfigResource("topic", "t")], backoff=BACKOFF, config_filter=wanted), described(1, 3, 4, 5)
    )
    assert set(found["topic"]["t"]) == told
    assert {name for name, entry in found["topic"]["t"].items() if entry["is_default"]} == told & {"c5"}


def test_what_was_set_for_the_resource_itself_is_returned_by_default() -> None:
    for options in ({}, {"config_filter": ConfigFilterType.MODIFIED}):
        found, _ = asked(describe_configs([ConfigResource("topic", "t")], backoff=BACKOFF, **options), described(1, 5))
        assert list(found["topic"]["t"]) == ["c1"]


def test_settings_are_asked_for_by_name_and_with_synonyms_where_that_is_requested() -> None:
    names = [("topic", "t", ["a", "b"]), ("topic", "u", None), ("group", "g", [])]
    resources = [ConfigResource(*each) for each in names]
    _, (send,) = asked(describe_configs(resources, backoff=BACKOFF), described())
    request: Any = send.request
    assert [(each.resource_type, each.resource_name, each.configuration_keys) for each in request.resources] == [
        (2, "t", ["a", "b"]), (2, "u", None), (32, "g", []),
    ]  # fmt: skip
    assert request.include_synonyms is False
    answer = described(1)
    synonym = DescribeConfigsResponse.DescribeConfigsSynonym
    answer.results[0].configs[0].synonyms = [
        synonym(name="c1", value="v", source=1), synonym(name="log.c1", value="w", source=99),
    ]  # fmt: skip
    answer.results[0].configs[0].config_type = 7
    found, (send,) = asked(describe_configs(resources[1:2], backoff=BACKOFF, include_synonyms=True), answer)
    assert send.request.include_synonyms is True  # type: ignore[union-attr]
    entry = found["topic"]["t"]["c1"]
    assert [(each["name"], each["source"]) for each in entry["synonyms"]] == [
        ("c1", "DYNAMIC_TOPIC_CONFIG"), ("log.c1", "UNKNOWN"),
    ]  # fmt: skip
    assert entry["config_type"] == "LIST"


@pytest.mark.parametrize(
    ("kind", "is_default", "read_only", "source"),
    [
        (2, True, False, "DEFAULT_CONFIG"),
        (2, False, False, "DYNAMIC_TOPIC_CONFIG"),
        (2, False, True, "DYNAMIC_TOPIC_CONFIG"),
        (4, True, True, "DEFAULT_CONFIG"),
        (4, False, True, "STATIC_BROKER_CONFIG"),
        (0, False, True, "UNKNOWN"),
    ],
)
def test_a_broker_without_config_sources_reports_defaults_and_set_values(
    kind: int, is_default: bool, read_only: bool, source: str
) -> None:
    """Version 0, read as Java's DescribeConfigsResponse did while it had that version."""
    answer = described(-1)
    answer.results[0].resource_type = kind
    answer.results[0].configs[0].is_default, answer.results[0].configs[0].read_only = is_default, read_only
    found, _ = asked(describe_configs([ConfigResource("topic", "t")], backoff=BACKOFF, config_filter="all"), answer)
    ((resources),) = found.values()
    assert (resources["t"]["c-1"]["config_source"], resources["t"]["c-1"]["is_default"]) == (source, is_default)


def test_a_source_that_a_broker_calls_unknown_is_unknown() -> None:
    found, _ = asked(
        describe_configs([ConfigResource("topic", "t")], backoff=BACKOFF, config_filter="all"), described(0, 99)
    )
    assert [entry["config_source"] for entry in found["topic"]["t"].values()] == ["UNKNOWN", "UNKNOWN"]


def test_a_broker_answers_for_itself_and_its_loggers_and_any_for_the_rest() -> None:
    names = [("broker", "7"), ("topic", "1"), ("group", "2"), ("broker_logger", "8"), ("broker", "")]
    resources = [ConfigResource(kind, name) for kind, name in names]
    _, sends = asked(describe_configs(resources, backoff=BACKOFF), *[described()] * 3)
    assert [send.target for send in sends] == [7, AnyNode(), 8]
    assert [each.resource_name for each in sends[1].request.resources] == ["1", "2", ""]  # type: ignore[union-attr]
    with pytest.raises(IllegalArgumentError, match="the name of a broker is its number"):
        asked(describe_configs([ConfigResource("broker_logger", "seven")], backoff=BACKOFF))


def altered(code: int = 0) -> IncrementalAlterConfigsResponse:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code, error_message=None, resource_type=2, resource_name="t"
    )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[result])


@pytest.mark.parametrize(
    ("call", "answer"), [(describe_configs, described()), (alter_configs, altered())], ids=["describe", "alter"]
)
def test_a_broker_that_the_client_does_not_know_yet_is_looked_for(call: Any, answer: Any) -> None:
    resource = ConfigResource("broker", "7", {})
    _, sends = asked(call([resource], backoff=BACKOFF), UnknownBrokerIdError("node 7"), answer)
    assert [send.target for send in sends] == [7, 7]
    with pytest.raises(UnknownBrokerIdError):
        asked(call([resource], backoff=BACKOFF), *[UnknownBrokerIdError("node 7")] * 3)


def test_values_say_what_is_done_to_a_setting() -> None:
    configs = {"a": 1, "b": None, "c": (AlterConfigOp.APPEND, "x"), "d": True, "e": ("set", "y"), "f": (3, "z")}
    found, (send,) = asked(alter_configs([ConfigResource("topic", "t", configs)], backoff=BACKOFF), altered())
    assert [(c.name, c.config_operation, c.value) for c in send.request.resources[0].configs] == [  # type: ignore[union-attr]
        ("a", 0, "1"),
        ("b", 1, None),
        ("c", 2, "x"),
        ("d", 0, "true"),
        ("e", 0, "y"),
        ("f", 3, "z"),
    ]
    assert isinstance(found["topic"]["t"], NoError)


def test_an_unknown_setting_is_raised_by_default() -> None:
    resource = ConfigResource("topic", "t", {"a": 1})
    with pytest.raises(InvalidConfigurationError):
        asked(alter_configs([resource], backoff=BACKOFF), altered(INVALID_CONFIG))
    found, _ = asked(alter_configs([resource], backoff=BACKOFF, raise_on_unknown=False), altered(INVALID_CONFIG))
    assert isinstance(found["topic"]["t"], InvalidConfigurationError)


def test_settings_are_altered_and_errors_raised_by_default() -> None:
    resource = ConfigResource("topic", "t", {"a": 1})
    with pytest.raises(TopicAuthorizationFailedError):
        asked(alter_configs([resource], backoff=BACKOFF), altered(DENIED))
    found, (send,) = asked(alter_configs([resource], backoff=BACKOFF, raise_errors=False), altered(DENIED))
    assert isinstance(found["topic"]["t"], TopicAuthorizationFailedError)
    assert send.request.validate_only is False  # type: ignore[union-attr]
    with pytest.raises(TopicAuthorizationFailedError):
        asked(alter_configs([resource], backoff=BACKOFF, raise_on_unknown=False), altered(DENIED))
    _, (send,) = asked(alter_configs([resource], backoff=BACKOFF, validate_only=True), altered())
    assert send.request.validate_only is True  # type: ignore[union-attr]


def test_settings_are_reset_and_errors_raised_by_default() -> None:
    resource = ConfigResource("topic", "t", ["a"])
    with pytest.raises(TopicAuthorizationFailedError, match="t$"):
        asked(reset_configs([resource], backoff=BACKOFF), settings(**A_TOPIC), altered(DENIED))
    call = reset_configs([resource], backoff=BACKOFF, raise_errors=False)
    found, (_, send) = asked(call, settings(**A_TOPIC), altered(DENIED))
    assert isinstance(found["topic"]["t"], TopicAuthorizationFailedError)
    assert send.request.validate_only is False  # type: ignore[union-attr]
    call = reset_configs([resource], backoff=BACKOFF, validate_only=True)
    _, (_, send) = asked(call, settings(**A_TOPIC), altered())
    assert send.request.validate_only is True  # type: ignore[union-attr]


def test_errors_about_all_brokers_say_so() -> None:
    answer = altered(DENIED)
    answer.responses[0].resource_type, answer.responses[0].resource_name = 4, ""
    with pytest.raises(TopicAuthorizationFailedError, match="all brokers"):
        asked(alter_configs([ConfigResource("broker", "", {"a": 1})], backoff=BACKOFF), answer)


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        (None, "configs is a mapping of name to value"),
        (["a"], "configs is a mapping of name to value"),
        ({"a": ("sideways", 1)}, r"t: a=.*one of SET, DELETE, APPEND, SUBTRACT"),
        ({"a": (9, 1)}, r"t: a=.*one of SET, DELETE, APPEND, SUBTRACT"),
        ({"a": (1, 2, 3)}, r"t: a=.*one of SET, DELETE, APPEND, SUBTRACT"),
    ],
)
def test_what_alters_nothing_is_refused_before_anything_is_sent(configs: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        asked(alter_configs([ConfigResource("topic", "t", configs)], backoff=BACKOFF))


@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [("topic", "t", 1), ("broker", "7", 2), ("broker", "", 3), ("broker_logger", "7", 6), ("client_metrics", "m", 7),
     ("group", "g", 8)],
)  # fmt: skip
def test_what_was_set_for_a_resource_has_the_source_of_its_type(kind: str, name: str, source: int) -> None:
    """Codes of ``DescribeConfigsResponse.ConfigSource``: each type of resource has a dynamic source of its own."""
    number = {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}[kind]
    values: dict[str, tuple[str | None, int, bool]] = {f"c{code}": ("v", code, False) for code in range(9)}
    answer = altered()
    answer.responses[0].resource_type, answer.responses[0].resource_name = number, name
    call = reset_configs([ConfigResource(kind, name)], backoff=BACKOFF)
    _, (_, send) = asked(call, settings(number, name, **values), answer)
    assert [config.name for config in send.request.resources[0].configs] == [f"c{source}"]  # type: ignore[union-attr]


def settings(kind: int = 2, name: str = "t", /, **values: tuple[str | None, int, bool]) -> DescribeConfigsResponse:
    """``setting=(value, source, read only)``."""
    configs = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=setting, value=value, read_only=read_only, config_source=source, is_sensitive=value is None
        )
        for setting, (value, source, read_only) in values.items()
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=kind, resource_name=name, configs=configs
    )
    return DescribeConfigsResponse(throttle_time_ms=0, results=[result])


A_TOPIC = {"a": ("1", 1, False), "b": ("2", 1, False), "c": ("3", 5, False), "d": ("4", 4, False)}


def replaced() -> AlterConfigsResponse:
    result = AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=0, error_message=None, resource_type=2, resource_name="t"
    )
    return AlterConfigsResponse(throttle_time_ms=0, responses=[result])


@pytest.mark.parametrize("incremental", [None, False])
def test_the_old_call_replaces_everything_by_what_was_set_with_the_changes(incremental: bool | None) -> None:
    there = settings(**A_TOPIC, e=("5", 1, False))
    answers = [*([IncompatibleBrokerVersion()] if incremental is None else []), there, replaced()]
    configs = {"a": ("set", 7), "b": None, "c": True}
    resource = ConfigResource("topic", "t", configs)
    found, (*_, send) = asked(alter_configs([resource], backoff=BACKOFF, incremental=incremental), *answers)
    assert isinstance(send.request, AlterConfigsRequest)
    assert {c.name: c.value for c in send.request.resources[0].configs} == {"a": "7", "c": "true", "e": "5"}
    assert as_texts(found) == {"topic": {"t": "OK"}}
    assert resource.configs is configs


@pytest.mark.parametrize("operation", [AlterConfigOp.APPEND, "subtract", 1])
@pytest.mark.parametrize("incremental", [None, False])
def test_what_the_old_call_cannot_do_is_refused_before_anything_is_altered(
    incremental: bool | None, operation: Any
) -> None:
    resource = ConfigResource("topic", "t", {"b": 1, "cleanup.policy": (operation, "compact")})
    with pytest.raises(IllegalArgumentError, match=r"t: cleanup\.policy=.*can only be set, or deleted by None"):
        asked(alter_configs([resource], backoff=BACKOFF, incremental=incremental), IncompatibleBrokerVersion())


def test_the_release_that_can_alter_one_setting_is_named() -> None:
    resource = ConfigResource("topic", "t", {"a": 1})
    with pytest.raises(IncompatibleBrokerVersion, match=r"since release 2\.3"):
        asked(alter_configs([resource], backoff=BACKOFF, incremental=True), IncompatibleBrokerVersion("too old"))
    with pytest.raises(IncompatibleBrokerVersion, match=r"since release 0\.11"):
        asked(alter_configs([resource], backoff=BACKOFF), *[IncompatibleBrokerVersion("too old")] * 2)


def test_a_password_stays_when_it_is_given_too() -> None:
    described = settings(4, "7", own=("1", 2, False), password=(None, 2, False))
    with pytest.raises(IllegalArgumentError, match="password of broker 7 cannot be read and would be lost"):
        asked(
            alter_configs([ConfigResource("broker", "7", {"own": 2})], backoff=BACKOFF, incremental=False), described
        )
    answer = replaced()
    answer.responses[0].resource_type, answer.responses[0].resource_name = 4, "7"
    resource = ConfigResource("broker", "7", {"own": None, "password": "p"})
    _, (_, send) = asked(alter_configs([resource], backoff=BACKOFF, incremental=False), described, answer)
    assert isinstance(send.request, AlterConfigsRequest)
    assert [(c.name, c.value) for c in send.request.resources[0].configs] == [("password", "p")]


@pytest.mark.parametrize("call", [describe_configs, alter_configs, reset_configs])
def test_one_resource_is_no_list_of_them(call: Any) -> None:
    for wrong in (ConfigResource("topic", "t", {"a": 1}), "t", [("topic", "t")]):
        with pytest.raises(IllegalArgumentError, match="config_resources=.*: a list of ConfigResource"):
            asked(call(wrong, backoff=BACKOFF))


@pytest.mark.parametrize("wrong", ["retention.ms", b"retention.ms"])
def test_one_text_is_no_list_of_settings(wrong: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"configs=.*retention\.ms.*not one text"):
        ConfigResource("topic", "t", wrong)


@pytest.mark.parametrize("wrong", [True, False])
def test_what_is_true_or_false_is_no_kind(wrong: bool) -> None:
    for kinds in (ElectionType, ConfigResourceType):
        with pytest.raises(IllegalArgumentError, match=f"what {wrong}: one of"):
            kind_of(kinds, wrong, "what")


def test_all_that_a_call_asks_has_one_limit() -> None:
    """A broker that is not reached uses up the time, and the next has what is left of it."""
    resources = [ConfigResource("broker", name, {"a": 1}) for name in ("7", "8")]
    gone = KafkaConnectionError("gone")
    for call, answer in ((describe_configs, settings(4, "7")), (alter_configs, altered())):
        _, sent = asked(call(resources, backoff=BACKOFF, timeout_s=5.0), gone, answer, answer)
        assert [send.give_up_at for send in sent] == [5.0, 5.0, 5.0]
    reset = reset_configs([ConfigResource("topic", "t")], backoff=BACKOFF, timeout_s=5.0)
    _, sent = asked(reset, gone, settings(**A_TOPIC), altered())
    assert [send.give_up_at for send in sent] == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("names", [["a"], {"a": "ignored"}, ("a",)])
def test_settings_that_are_named_are_deleted(names: Any) -> None:
    resource = ConfigResource("topic", "t", names)
    found, (_, send) = asked(reset_configs([resource], backoff=BACKOFF), settings(**A_TOPIC), altered())
    assert isinstance(send.request, IncrementalAlterConfigsRequest)
    assert [(c.name, c.config_operation, c.value) for c in send.request.resources[0].configs] == [("a", 1, None)]
    assert as_texts(found) == {"topic": {"t": "OK"}}
    assert resource.configs is names


@pytest.mark.parametrize("nothing", [None, [], {}])
def test_without_names_all_that_were_set_for_it_are_deleted(nothing: Any) -> None:
    resource = ConfigResource("topic", "t", nothing)
    _, (_, send) = asked(reset_configs([resource], backoff=BACKOFF), settings(**A_TOPIC), altered())
    assert isinstance(send.request, IncrementalAlterConfigsRequest)
    assert [c.name for c in send.request.resources[0].configs] == ["a", "b"]


@pytest.mark.parametrize(("name", "deleted"), [("7", ["own"]), ("", ["everybodys"])])
def test_of_all_brokers_and_of_one_what_was_set_is_not_the_same(name: str, deleted: list[str]) -> None:
    described = settings(4, name, own=("1", 2, False), everybodys=("2", 3, False), file=("3", 4, True))
    _, (_, send) = asked(reset_configs([ConfigResource("broker", name)], backoff=BACKOFF), described, altered())
    assert send.target == (7 if name else AnyNode())
    assert isinstance(send.request, IncrementalAlterConfigsRequest)
    assert [c.name for c in send.request.resources[0].configs] == deleted


def test_what_cannot_be_reset_is_refused_before_anything_by_default() -> None:
    described = settings(4, "7", own=("1", 2, False), file=("3", 4, True), everybodys=("2", 3, False))
    resource = ConfigResource("broker", "7", ["own", "file", "everybodys", "typo"])
    with pytest.raises(IllegalArgumentError, match="broker 7: no setting that can be reset: file, typo"):
        asked(reset_configs([resource], backoff=BACKOFF), described)
    answer = altered(INVALID_CONFIG)
    answer.responses[0].resource_type, answer.responses[0].resource_name = 4, "7"
    found, _ = asked(reset_configs([resource], backoff=BACKOFF, raise_on_unknown=False), described, answer)
    assert as_texts(found) == {"broker": {"7": "[Error 40] InvalidConfigurationError"}}


@pytest.mark.parametrize(
    ("names", "left"), [(["a", "c"], [("b", "2")]), ([], [])], ids=["some are named", "none are named"]
)
@pytest.mark.parametrize("incremental", [None, False])
def test_old_brokers_get_the_remaining_settings(incremental: bool | None, names: list[str], left: Any) -> None:
    answers = [settings(**A_TOPIC), *([IncompatibleBrokerVersion()] if incremental is None else []), replaced()]
    resource = ConfigResource("topic", "t", names)
    found, (*_, send) = asked(reset_configs([resource], backoff=BACKOFF, incremental=incremental), *answers)
    assert isinstance(send.request, AlterConfigsRequest)
    assert [(c.name, c.value) for c in send.request.resources[0].configs] == left
    assert as_texts(found) == {"topic": {"t": "OK"}}


def test_old_brokers_are_left_alone_when_nothing_else_may_change() -> None:
    resource = ConfigResource("topic", "t", ["a"])
    with pytest.raises(IncompatibleBrokerVersion):
        asked(
            reset_configs([resource], backoff=BACKOFF, incremental=True),
            settings(**A_TOPIC),
            IncompatibleBrokerVersion(),
        )


def test_a_password_that_would_be_lost_is_an_error() -> None:
    described = settings(4, "7", own=("1", 2, False), password=(None, 2, False))
    resource = ConfigResource("broker", "7", ["own"])
    with pytest.raises(IllegalArgumentError, match="password of broker 7 cannot be read"):
        asked(reset_configs([resource], backoff=BACKOFF, incremental=False), described)


def listed(*resources: tuple[int, str], code: int = 0) -> ListConfigResourcesResponse:
    found = [
        ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind) for kind, name in resources
    ]
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=code, config_resources=found)


@pytest.mark.parametrize(
    ("kinds", "least", "in_version_1"),
    [
        (None, None, []),
        (["topic", ConfigResourceType.GROUP, 8], 1, [2, 32, 8]),
        (["client-metrics"], None, [16]),
        (["CLIENT_METRICS", "group"], 1, [16, 32]),
    ],
)
def test_what_has_settings_is_listed_by_type(kinds: Any, least: int | None, in_version_1: list[int]) -> None:
    answer = listed((2, "t"), (32, "g"), (2, "u"), (99, "x"))
    found, (send,) = asked(list_config_resources(kinds, backoff=BACKOFF), answer)
    assert found == {"topic": ["t", "u"], "group": ["g"], "unknown": ["x"]}
    assert (send.target, send.min_version) == (AnyNode(), least)
    assert isinstance(send.request, ByVersion)
    old: Any = send.request.build(0)
    new: Any = send.request.build(1)
    assert (old.resource_types, new.resource_types) == ([], in_version_1)


def test_types_that_are_none_are_refused_here_and_by_brokers() -> None:
    for wrong in ("topic", ["tpoic"], [3], [0], ["topic", "unknown"], ConfigResourceType.TOPIC):
        with pytest.raises(IllegalArgumentError, match="resource_types"):
            asked(list_config_resources(wrong, backoff=BACKOFF))
    with pytest.raises(UnsupportedVersionError, match="resources with settings"):
        asked(list_config_resources([8], backoff=BACKOFF), listed(code=35))
    with pytest.raises(IncompatibleBrokerVersion, match=r"since release 4\.1 for all types, 3\.7 for client metrics"):
        asked(list_config_resources(backoff=BACKOFF), IncompatibleBrokerVersion("too old"))
