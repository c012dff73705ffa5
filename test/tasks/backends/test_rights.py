"""What is said of rights that are missing. On an authorizer: test/security/test_job_rights.py."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.client import ApiRanges
from kafka.errors import GroupAuthorizationFailedError, KafkaError, NoError, TopicAuthorizationFailedError
from kafka.tasks.backends.kafka.admin import Administration
from kafka.tasks.backends.kafka.delivery_choice import choose_protocol
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.backends.kafka.transactions import explain
from kafka.tasks.format.topics import TopicNames

NAMES = TopicNames("shop")
READ_GROUP = "--operation Read --group shop. --resource-pattern-type prefixed"


def administration(answer: Any) -> Administration:
    """One whose requests have this answer, or error."""
    client: Any = SimpleNamespace(cluster=None, retry_backoff=None)

    def wait(dialogue: Any) -> Any:
        dialogue.close()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Administration(client, wait, 1.0, "shop")


@pytest.mark.parametrize(
    ("kind", "resource"), [(GroupAuthorizationFailedError, "group"), (TopicAuthorizationFailedError, "topic")]
)
def test_an_error_about_a_right_names_it_and_the_command_that_grants_it(kind: type[KafkaError], resource: str) -> None:
    text = f"Read on {resource}s shop. is missing; .*--operation Read --{resource} shop. "
    with pytest.raises(kind, match=text), needing("shop", "topic", "Read"), needing("shop", "group", "Read"):
        raise kind("shop.mail")


def test_other_errors_stay_as_they_are() -> None:
    error = KafkaError("no broker")
    with pytest.raises(KafkaError) as caught, needing("shop", "group", "AlterConfigs"):
        raise error
    assert caught.value is error


def test_what_names_a_right_is_not_explained_again() -> None:
    with pytest.raises(TopicAuthorizationFailedError) as caught, needing("shop", "topic", "Create"):
        raise TopicAuthorizationFailedError("shop.mail")
    assert explain(caught.value, NAMES) == caught.value.args[0]


@pytest.mark.parametrize("args", [(), ("",)])
def test_an_error_without_text_is_explained_by_its_name(args: tuple[str, ...]) -> None:
    text = explain(GroupAuthorizationFailedError(*args), NAMES)
    assert "(GroupAuthorizationFailedError)" in text
    assert text.endswith(READ_GROUP)


@pytest.mark.parametrize(("permitted", "lacks"), [(["READ"], "Write"), (["WRITE"], "Read"), ([], "Read")])
def test_rights_are_looked_at_before_anything_is_leased(permitted: list[str], lacks: str) -> None:
    asked = administration([
        {"name": "shop.mail", "authorized_operations": ["READ", "WRITE"]},
        {"name": "shop.mail.due", "authorized_operations": permitted},
    ])  # fmt: skip
    topics = ["shop.mail", "shop.mail.due"]
    with pytest.raises(TopicAuthorizationFailedError, match=f"--operation {lacks} --topic shop. "):
        asked.check_rights({"READ": topics, "WRITE": topics})


@pytest.mark.parametrize("permitted", [None, ["READ", "WRITE"]])
def test_brokers_that_permit_all_or_do_not_say_are_taken(permitted: list[str] | None) -> None:
    described = [{"name": "shop.mail", "authorized_operations": permitted}]
    administration(described).check_rights({"READ": ["shop.mail"], "WRITE": ["shop.mail"]})


@pytest.mark.parametrize(
    ("error", "protocol"), [(NoError(), "consumer"), (GroupAuthorizationFailedError("no"), "classic")]
)
def test_without_the_right_to_set_their_sessions_groups_are_classic(
    error: KafkaError, protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    client: Any = SimpleNamespace(api_ranges=lambda: ApiRanges({68: (0, 1)}, {"group.version": (1, 1)}, "4.3"))
    asked = administration({"group": {"shop.mail.group": error}})
    monkeypatch.setattr(asked, "group_configs", lambda groups: {"shop.mail.group": {}})
    assert choose_protocol(client, asked, ["shop.mail.group"]) == protocol
    assert ("--operation AlterConfigs --group shop. " in caplog.text) == (protocol == "classic")
