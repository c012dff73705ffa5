from __future__ import annotations

import random
from typing import Any

import pytest

from kafka.core.admin.configs import alter_configs, describe_configs
from kafka.core.admin.values import AlterConfigOp, ConfigResource
from kafka.core.dialogue import Send
from kafka.core.retry import Backoff
from kafka.core.routing import AnyNode
from kafka.errors import InvalidConfigurationError, NoError
from kafka.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from test.core.test_retry import drive

BACKOFF = Backoff(0.1, 0.1, random.Random(0), jitter=0)
INVALID_CONFIG = 40


def run(dialogue: Any, *answers: Any) -> tuple[Any, list[Send]]:
    left = list(answers)
    result, steps = drive(dialogue, lambda step: left.pop(0) if isinstance(step, Send) else None)
    return result, [step for step in steps if isinstance(step, Send)]


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
def test_the_filter_says_which_settings_are_told(wanted: str, told: set[str]) -> None:
    found, _ = run(
        describe_configs([ConfigResource("topic", "t")], backoff=BACKOFF, config_filter=wanted), described(1, 3, 4, 5)
    )
    assert set(found["topic"]["t"]) == told
    assert {name for name, entry in found["topic"]["t"].items() if entry["is_default"]} == told & {"c5"}


def test_a_broker_answers_for_itself_and_any_for_the_rest() -> None:
    resources = [ConfigResource("broker", "7"), ConfigResource("topic", "t"), ConfigResource("group", "g")]
    _, sends = run(describe_configs(resources, backoff=BACKOFF), described(), described())
    assert [send.target for send in sends] == [7, AnyNode()]


def altered(code: int = 0) -> IncrementalAlterConfigsResponse:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code, error_message=None, resource_type=2, resource_name="t"
    )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[result])


def test_values_say_what_is_done_to_a_setting() -> None:
    configs = {"a": 1, "b": None, "c": (AlterConfigOp.APPEND, "x"), "d": True, "e": ("set", "y"), "f": (3, "z")}
    found, (send,) = run(alter_configs([ConfigResource("topic", "t", configs)], backoff=BACKOFF), altered())
    assert [(c.name, c.config_operation, c.value) for c in send.request.resources[0].configs] == [  # type: ignore[union-attr]
        ("a", 0, "1"),
        ("b", 1, None),
        ("c", 2, "x"),
        ("d", 0, "true"),
        ("e", 0, "y"),
        ("f", 3, "z"),
    ]
    assert isinstance(found["topic"]["t"], NoError)


def test_the_old_call_replaces_everything() -> None:
    result = AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=0, error_message=None, resource_type=2, resource_name="t"
    )
    answer = AlterConfigsResponse(throttle_time_ms=0, responses=[result])
    resource = ConfigResource("topic", "t", {"a": 1, "b": None})
    _, (send,) = run(alter_configs([resource], backoff=BACKOFF, incremental=False), answer)
    assert isinstance(send.request, AlterConfigsRequest)
    assert [(c.name, c.value) for c in send.request.resources[0].configs] == [("a", "1")]


def test_an_unknown_setting_is_raised_unless_told_not_to() -> None:
    resource = ConfigResource("topic", "t", {"a": 1})
    with pytest.raises(InvalidConfigurationError):
        run(alter_configs([resource], backoff=BACKOFF), altered(INVALID_CONFIG))
    found, _ = run(alter_configs([resource], backoff=BACKOFF, raise_on_unknown=False), altered(INVALID_CONFIG))
    assert isinstance(found["topic"]["t"], InvalidConfigurationError)
