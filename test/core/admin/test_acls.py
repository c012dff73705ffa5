from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from kafka.core.admin.acls import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    create_acls,
    delete_acls,
    describe_acls,
)
from kafka.core.routing import AnyNode
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidRequestError,
    KafkaConnectionError,
    KafkaProtocolError,
    NoError,
    RequestTimedOutError,
    SecurityDisabledError,
)
from kafka.protocol.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from test.core.admin.driving import BACKOFF, asked
from test.core.test_retry import drive

NOT_CONTROLLER, INVALID_REQUEST, SECURITY_DISABLED = 41, 42, 54
TOPIC = ResourcePattern(ResourceType.TOPIC, "t")


def rule(pattern: ResourcePattern = TOPIC, operation: ACLOperation = ACLOperation.READ) -> ACL:
    return ACL("User:alice", "*", operation, ACLPermissionType.ALLOW, pattern)


def matching(
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.ANY, kind: ResourceType = ResourceType.ANY
) -> ACLFilter:
    pattern = ResourcePatternFilter(kind, None, pattern_type)
    return ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)



def created(*codes: int) -> CreateAclsResponse:
    result = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(
        throttle_time_ms=0, results=[result(error_code=code, error_message="why" if code else None) for code in codes]
    )


def described(*acls: tuple[int, int], code: int = 0) -> DescribeAclsResponse:
    """A rule of each (resource type, operation)."""
    resource = DescribeAclsResponse.DescribeAclsResource
    rules = [
        resource(
            resource_type=kind,
            resource_name="t",
            pattern_type=4,
            acls=[
                DescribeAclsResponse.AclDescription(
                    principal="User:alice", host="*", operation=operation, permission_type=3
                )
            ],
        )
        for kind, operation in acls
    ]
    text = "No Authorizer is configured on the broker" if code else None
    return DescribeAclsResponse(throttle_time_ms=0, error_code=code, error_message=text, resources=rules)


def deleted(code: int, *matches: int) -> DeleteAclsResponse:
    """A filter's outcome, and that of each rule that it matches."""
    match = DeleteAclsResponse.DeleteAclsMatchingAcl
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=code,
                error_message=None,
                matching_acls=[
                    match(
                        error_code=each,
                        error_message=None,
                        resource_type=2,
                        resource_name=f"t{number}",
                        principal="User:alice",
                        host="*",
                        operation=3,
                        permission_type=3,
                    )
                    for number, each in enumerate(matches)
                ],
            )
        ],
    )


def test_each_rule_has_its_own_error() -> None:
    rules = [rule(), rule(operation=ACLOperation.CREATE_TOKENS)]
    found, (send,) = asked(create_acls(rules, backoff=BACKOFF), created(0, INVALID_REQUEST))
    assert found == [(rules[0], NoError("")), (rules[1], InvalidRequestError("why"))]
    assert send.target == AnyNode()
    (first, _) = send.request.creations
    assert (first.resource_type, first.resource_name, first.resource_pattern_type) == (2, "t", 3)
    assert (first.principal, first.host, first.operation, first.permission_type) == ("User:alice", "*", 3, 3)


def test_rules_are_asked_for_again_while_the_controller_moves() -> None:
    found, sends = asked(create_acls([rule()], backoff=BACKOFF), created(NOT_CONTROLLER), created(0))
    assert len(sends) == 2 and isinstance(found[0][1], NoError)
    found, sends = asked(delete_acls([matching()], backoff=BACKOFF), deleted(NOT_CONTROLLER), deleted(0, 0))
    assert len(sends) == 2 and len(found[0][1]) == 1
    found, sends = asked(describe_acls(matching(), backoff=BACKOFF), described(code=NOT_CONTROLLER), described((2, 3)))
    assert len(sends) == 2 and len(found) == 1


def test_rules_are_reported_as_they_were_made_and_what_is_not_known_is_unknown() -> None:
    found, _ = asked(describe_acls(matching(), backoff=BACKOFF), described((2, 3), (99, 98)))
    prefixed = ACLResourcePatternType.PREFIXED
    assert found[0] == rule(ResourcePattern(ResourceType.TOPIC, "t", prefixed))
    assert found[1] == rule(ResourcePattern(ResourceType.UNKNOWN, "t", prefixed), ACLOperation.UNKNOWN)


def test_a_cluster_without_authorizer_says_so() -> None:
    with pytest.raises(SecurityDisabledError, match="No Authorizer"):
        asked(describe_acls(matching(), backoff=BACKOFF), described(code=SECURITY_DISABLED))


def test_a_rule_that_could_not_be_deleted_is_not_among_the_deleted_and_its_error_is_reported() -> None:
    wanted = matching()
    ((each, removed, error),), _ = asked(delete_acls([wanted], backoff=BACKOFF), deleted(0, 0, INVALID_REQUEST))
    assert each is wanted
    assert [acl.resource_pattern.resource_name for acl in removed] == ["t0"]
    assert isinstance(error, InvalidRequestError)


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (KafkaConnectionError("gone"), "gone"),
        (RequestTimedOutError("no answer"), "no answer"),
        (KafkaConnectionError(), "KafkaConnectionError"),
    ],
)
def test_deleting_is_not_tried_again_when_the_answer_was_lost(lost: Exception, text: str) -> None:
    with pytest.raises(type(lost)) as caught:
        asked(delete_acls([matching()], backoff=BACKOFF), lost)  # a second request would find no answer
    assert caught.value.args == (f"{text}; the rules may have been removed: describe_acls tells what is left",)
    assert caught.value.__cause__ is lost


def test_filters_say_what_the_version_can_say() -> None:
    any_, match = matching(), matching(ACLResourcePatternType.MATCH)
    _, (send,) = asked(describe_acls(any_, backoff=BACKOFF), described())
    assert [send.request.build(version).pattern_type_filter for version in (0, 1)] == [3, 1]
    assert not send.min_version
    _, (send,) = asked(delete_acls([any_, match], backoff=BACKOFF), _twice(deleted(0)))
    assert send.min_version == 1
    assert [each.pattern_type_filter for each in send.request.build(1).filters] == [1, 2]
    _, (send,) = asked(create_acls([rule(ResourcePattern(ResourceType.USER, "al"))], backoff=BACKOFF), created(0))
    assert send.min_version == 3


@pytest.mark.parametrize(
    ("wanted", "release"),
    [
        (matching(), "0.11"),
        (matching(ACLResourcePatternType.PREFIXED), "2.0"),
        (matching(kind=ResourceType.USER), "3.3"),
    ],
)
def test_the_error_of_an_old_broker_names_the_release_that_is_needed(wanted: ACLFilter, release: str) -> None:
    def refuse(step: Any) -> Any:
        raise IncompatibleBrokerVersion("node 1 is old")

    for dialogue in (describe_acls(wanted, backoff=BACKOFF), delete_acls([wanted], backoff=BACKOFF)):
        with pytest.raises(IncompatibleBrokerVersion, match=f"node 1 is old.*since release {release}$"):
            drive(dialogue, refuse)


def test_an_answer_that_leaves_something_out_is_none() -> None:
    with pytest.raises(KafkaProtocolError, match="1 of 2"):
        asked(create_acls([rule(), rule()], backoff=BACKOFF), created(0))


UNKNOWN = ACLFilter(None, None, ACLOperation.UNKNOWN, ACLPermissionType.ANY, matching().resource_pattern)


@pytest.mark.parametrize(
    "dialogue",
    [
        lambda: create_acls([matching()], backoff=BACKOFF),  # type: ignore[list-item]
        lambda: create_acls(rule(), backoff=BACKOFF),  # type: ignore[arg-type]
        lambda: create_acls(None, backoff=BACKOFF),  # type: ignore[arg-type]
        lambda: delete_acls(5, backoff=BACKOFF),  # type: ignore[arg-type]
        lambda: create_acls(["User:alice"], backoff=BACKOFF),  # type: ignore[list-item]
        lambda: delete_acls([TOPIC], backoff=BACKOFF),  # type: ignore[list-item]
        lambda: delete_acls([UNKNOWN], backoff=BACKOFF),
        lambda: describe_acls(UNKNOWN, backoff=BACKOFF),
        lambda: describe_acls("t", backoff=BACKOFF),  # type: ignore[arg-type]
    ],
)
def test_what_no_broker_takes_is_refused_before_anything_is_sent(dialogue: Any) -> None:
    with pytest.raises(IllegalArgumentError):
        next(dialogue())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResourcePattern(ResourceType.ANY, "t"),
        lambda: ResourcePattern(ResourceType.TOPIC, None),  # type: ignore[arg-type]
        lambda: ResourcePattern("topic", "t"),  # type: ignore[arg-type]
        lambda: ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.ANY),
        lambda: ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.MATCH),
        lambda: ResourcePatternFilter(ResourceType.TOPIC, "t", 3),  # type: ignore[arg-type]
        lambda: rule(operation=ACLOperation.ANY),
        lambda: rule(operation="READ"),  # type: ignore[arg-type]
        lambda: rule(matching().resource_pattern),  # type: ignore[arg-type]
        lambda: ACL(None, "*", ACLOperation.READ, ACLPermissionType.ALLOW, TOPIC),  # type: ignore[arg-type]
        lambda: ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ANY, TOPIC),
        lambda: ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, "t"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_cannot_be_is_refused_when_it_is_made(make: Any) -> None:
    with pytest.raises(IllegalArgumentError):
        make()


def test_rules_and_filters_of_the_same_facts_are_equal_and_one_in_a_set() -> None:
    same = ACLFilter("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, TOPIC)
    assert rule() == rule() == same == rule()
    assert len({rule(), rule(), same}) == 1
    assert rule() != rule(operation=ACLOperation.WRITE)
    assert rule() != TOPIC and TOPIC != "t"
    assert ResourcePatternFilter(ResourceType.TOPIC, "t", ACLResourcePatternType.LITERAL) == TOPIC
    assert isinstance(rule(), ACLFilter) and isinstance(TOPIC, ResourcePatternFilter)
    assert repr(TOPIC) == "ResourcePattern(resource_type=TOPIC, resource_name='t', pattern_type=LITERAL)"


def _twice(answer: DeleteAclsResponse) -> DeleteAclsResponse:
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=answer.filter_results * 2)


# -- codes of the enumerations: those of ``org.apache.kafka.common.acl`` and ``...common.resource`` --------------------


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (
            ResourceType,
            {
                "UNKNOWN": 0, "ANY": 1, "TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5,
                "DELEGATION_TOKEN": 6, "USER": 7,
            },
        ),
        (
            ACLOperation,
            {
                "UNKNOWN": 0, "ANY": 1, "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7,
                "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11,
                "IDEMPOTENT_WRITE": 12, "CREATE_TOKENS": 13, "DESCRIBE_TOKENS": 14, "TWO_PHASE_COMMIT": 15,
            },
        ),
        (ACLPermissionType, {"UNKNOWN": 0, "ANY": 1, "DENY": 2, "ALLOW": 3}),
        (ACLResourcePatternType, {"UNKNOWN": 0, "ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}),
    ],
)  # fmt: skip
def test_members_have_javas_codes(kind: type[IntEnum], numbers: dict[str, int]) -> None:
    assert {member.name: member.value for member in kind} == numbers
