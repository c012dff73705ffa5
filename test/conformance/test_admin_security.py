"""Access rules, SCRAM users, features and versions, as an administrator asks for them, on both brokers.

Rules that have an effect are on Apache Kafka alone: the embedded broker has no authorizer, and says so as one without
does there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UpdateFeatureType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
    dialogues,
)
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NoError,
    SaslAuthenticationFailedError,
    SecurityDisabledError,
    UnknownBrokerIdError,
)
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import MetadataRequest
from kafka.testing import EmbeddedBroker
from test.support.apache_kafka import LATEST, ApacheKafka, require_apache_kafka
from test.support.certificates import Certificates
from test.support.either_broker import every_release
from test.support.secure_listeners import Places, secure_broker
from test.support.waiting import eventually, look_until, until

pytestmark = pytest.mark.timeout(120)

AUTHORIZERS = {
    LATEST: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "2.8.2": "kafka.security.authorizer.AclAuthorizer",
}
ANY_RESOURCE = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)


@pytest.fixture(scope="module")
def authorized(request: pytest.FixtureRequest) -> Iterator[KafkaAdminClient]:
    """Of an Apache Kafka with an authorizer, the latest unless a test names another release."""
    release = getattr(request, "param", LATEST)
    settings = {
        "authorizer.class.name": AUTHORIZERS[release],
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    require_apache_kafka(release)
    with ApacheKafka(release, settings) as apache, KafkaAdminClient(bootstrap_servers=apache.bootstrap) as client:
        yield client


@pytest.fixture(scope="module", params=["embedded", "apache"])
def places(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Places]:
    """A broker of this module's own, with a listener for passwords."""
    with secure_broker(request.param, certificates) as found:
        yield found


@pytest.fixture
def own(places: Places) -> Iterator[KafkaAdminClient]:
    """Of that broker."""
    with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{places.ports['PLAINTEXT']}") as client:
        yield client


# -- access rules ----------------------------------------------------------------------------------------------------


def rule(name: str, operation: ACLOperation = ACLOperation.READ, **pattern: Any) -> ACL:
    return ACL(
        "User:alice", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, name, **pattern)
    )


def matching(pattern: ResourcePatternFilter = ANY_RESOURCE, principal: str | None = None) -> ACLFilter:
    return ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)


@every_release
def test_a_broker_without_authorizer_has_no_rules(admin: KafkaAdminClient) -> None:
    assert admin.create_acls([rule("a"), rule("b")]) == {"succeeded": [], "failed": [SecurityDisabledError] * 2}
    with pytest.raises(SecurityDisabledError, match="No Authorizer"):
        admin.describe_acls(matching())
    assert admin.delete_acls([matching(), rule("a")]) == [
        (matching(), [], SecurityDisabledError),
        (rule("a"), [], SecurityDisabledError),
    ]


@pytest.mark.deep("authorizers of Apache Kafka, each on a broker of its own; kept by test/core/admin/test_acls.py")
@pytest.mark.parametrize("authorized", AUTHORIZERS, indirect=True, scope="module")
def test_rules_are_made_found_by_pattern_and_deleted(authorized: KafkaAdminClient) -> None:
    prefixed = ACLResourcePatternType.PREFIXED
    rules = [rule("shop.jobs"), rule("shop.", ACLOperation.WRITE, pattern_type=prefixed), rule("*"), rule("other")]
    assert authorized.create_acls(rules) == {"succeeded": rules, "failed": []}
    assert authorized.create_acls(rules[:1]) == {"succeeded": rules[:1], "failed": []}

    def found(kind: ACLResourcePatternType, name: str | None) -> set[ACL]:
        acls, error = authorized.describe_acls(matching(ResourcePatternFilter(ResourceType.TOPIC, name, kind)))
        assert error is NoError
        return set(acls)

    eventually(lambda: found(ACLResourcePatternType.ANY, None), set(rules))  # brokers learn of it a little later
    assert found(ACLResourcePatternType.MATCH, "shop.jobs") == set(rules[:3])
    assert found(ACLResourcePatternType.LITERAL, "shop.jobs") == {rules[0]}
    assert found(prefixed, "shop.") == {rules[1]}
    assert found(prefixed, None) == {rules[1]}
    assert authorized.describe_acls(matching(principal="User:bob")) == ([], NoError)
    ((by, deleted, error), (_, nothing, no_error)) = authorized.delete_acls([rules[3], matching(principal="User:bob")])
    assert (by, deleted, error) == (rules[3], [rules[3]], NoError)
    assert (nothing, no_error) == ([], NoError)
    ((_, rest, _),) = authorized.delete_acls([matching(ANY_RESOURCE)])
    assert set(rest) == set(rules[:3])
    eventually(lambda: authorized.describe_acls(matching())[0], [])


@pytest.mark.deep("authorizers of Apache Kafka, each on a broker of its own; kept by test/core/admin/test_acls.py")
def test_every_kind_of_rule_is_reported_as_it_was_made(authorized: KafkaAdminClient) -> None:
    kinds = {
        ResourceType.TOPIC: ("t", ACLOperation.ALTER_CONFIGS),
        ResourceType.GROUP: ("g", ACLOperation.READ),
        ResourceType.CLUSTER: ("kafka-cluster", ACLOperation.CLUSTER_ACTION),
        ResourceType.TRANSACTIONAL_ID: ("x", ACLOperation.TWO_PHASE_COMMIT),
        ResourceType.DELEGATION_TOKEN: ("d", ACLOperation.DESCRIBE),
        ResourceType.USER: ("User:bob", ACLOperation.CREATE_TOKENS),
    }
    rules = [
        ACL("User:kind", "10.1.2.3", operation, ACLPermissionType.DENY, ResourcePattern(kind, name))
        for kind, (name, operation) in kinds.items()
    ]
    assert authorized.create_acls(rules)["succeeded"] == rules
    mine = matching(principal="User:kind")
    eventually(lambda: set(authorized.describe_acls(mine)[0]), set(rules))
    assert authorized.delete_acls([mine])[0][2] is NoError


@pytest.mark.deep("authorizers of Apache Kafka, each on a broker of its own; kept by test/core/admin/test_acls.py")
def test_one_rule_that_cannot_be_does_not_hinder_the_others(authorized: KafkaAdminClient) -> None:
    good = rule("fine")
    nobody = ACL("alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t"))
    cluster = ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.CLUSTER, "c"))
    made = authorized.create_acls([nobody, good, cluster])
    assert made == {"succeeded": [good], "failed": [InvalidRequestError, InvalidRequestError]}
    limits = {"backoff": authorized._host.client.retry_backoff}
    ((acl, error),) = authorized._run(dialogues.create_acls([nobody], **limits))
    assert acl is nobody and "alice" in str(error)
    eventually(lambda: authorized.describe_acls(good)[0], [good])
    assert authorized.delete_acls([good]) == [(good, [good], NoError)]


# -- users of SCRAM --------------------------------------------------------------------------------------------------


@every_release
def test_users_of_scram_are_made_described_and_removed(admin: KafkaAdminClient, unique: Callable[[str], str]) -> None:
    alice, bob, nobody = unique("alice"), unique("bob"), unique("nobody")
    assert admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(alice, "SCRAM-SHA-256", "a password", iterations=5000),
            UserScramCredentialUpsertion(bob, ScramMechanism.SCRAM_SHA_512, b"bytes"),
            UserScramCredentialDeletion(nobody, 1),
        ]
    ) == {alice: None, bob: None, nobody: "Attempt to delete a user credential that does not exist"}
    expected = {
        alice: {
            "error": None,
            "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 5000}],
        },
        bob: {"error": None, "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_512, "iterations": 4096}]},
    }
    both: set[str] = {alice, bob}
    found = look_until(admin.describe_user_scram_credentials, lambda users: both <= set(users))
    assert {user: found[user] for user in both} == expected
    missing = admin.describe_user_scram_credentials([alice, nobody])
    assert missing[alice] == expected[alice]
    assert missing[nobody]["credential_infos"] == [] and nobody in missing[nobody]["error"]
    assert admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(alice, "scram-sha-256"), UserScramCredentialDeletion(bob, 2)]
    ) == {alice: None, bob: None}
    look_until(admin.describe_user_scram_credentials, lambda users: not both & set(users))


def test_what_is_wrong_with_one_user_does_not_hinder_another(
    admin: KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    few, twice, good = unique("few"), unique("twice"), unique("good")
    weak = UserScramCredentialUpsertion(few, 1, "password")
    weak.iterations = 100  # which it refuses to be made with
    assert admin.alter_user_scram_credentials(
        [
            weak,
            UserScramCredentialUpsertion(twice, 1, "password"),
            UserScramCredentialUpsertion(twice, 2, "password"),
            UserScramCredentialUpsertion(good, 1, "password"),
        ]
    ) == {
        few: "Too few iterations",
        twice: "A user credential cannot be altered twice in the same request",
        good: None,
    }
    eventually(lambda: admin.describe_user_scram_credentials([good])[good]["error"], None)
    assert admin.alter_user_scram_credentials([UserScramCredentialDeletion(good, 1)]) == {good: None}


def test_who_was_given_a_password_is_let_in_until_it_is_taken(
    places: Places, own: KafkaAdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    password = "the pass, wörd=1"
    made = UserScramCredentialUpsertion("carla", "SCRAM-SHA-512", password)
    assert own.alter_user_scram_credentials([made]) == {"carla": None}
    eventually(lambda: own.describe_user_scram_credentials(["carla"])["carla"]["error"], None)
    settings = {
        "bootstrap_servers": f"localhost:{places.ports['SASL']}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "carla",
        "sasl_plain_password": password,
    }

    def is_let_in() -> bool:
        try:
            with KafkaAdminClient(**settings) as carla:
                return isinstance(carla.list_topics(), list)
        except SaslAuthenticationFailedError:
            return False

    eventually(is_let_in, True)
    assert own.alter_user_scram_credentials([UserScramCredentialDeletion("carla", 2)]) == {"carla": None}
    until(lambda: own.describe_user_scram_credentials(["carla"])["carla"]["error"], "no user any more")
    eventually(is_let_in, False)
    for secret in (password, repr(made.salted_password), repr(made.salt)):
        assert secret not in caplog.text


# -- features and versions -------------------------------------------------------------------------------------------


def test_features_are_reported_with_their_levels(admin: KafkaAdminClient) -> None:
    for found in (admin.describe_features(), admin.describe_features(send_request_to_controller=True)):
        assert found["share.version"]["supported"] == (0, 1)
        assert found["metadata.version"]["finalized"] == (30, 30)
        assert found["metadata.version"]["finalized_epoch"] >= 1
        assert found["kraft.version"] == {"supported": (0, 1)}


def test_a_level_goes_down_and_up_again(own: KafkaAdminClient) -> None:
    name = "eligible.leader.replicas.version"
    down = {name: (UpdateFeatureType.SAFE_DOWNGRADE, 0)}
    assert own.update_features(down, validate_only=True) == {name: "OK"}
    before = own.describe_features()[name]
    assert before["finalized"] == (1, 1)
    assert own.update_features(down) == {name: "OK"}
    eventually(lambda: own.describe_features()[name], {"supported": (0, 1)})
    assert own.update_features({name: 1}) == {name: "OK"}
    after = look_until(lambda: own.describe_features()[name], lambda told: "finalized" in told)
    assert after["finalized"] == (1, 1) and after["finalized_epoch"] > before["finalized_epoch"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_levels_that_cannot_be_are_an_error_and_none_changes(admin: KafkaAdminClient, validate_only: bool) -> None:
    for wanted, text in (
        ({"share.version": 1, "nonsense": 1}, "nonsense"),
        ({"metadata.version": ("unsafe-downgrade", 99)}, "only supports versions 7-30"),
        ({"share.version": 0}, "Can't downgrade"),
    ):
        with pytest.raises(InvalidUpdateVersionError, match=text):
            admin.update_features(wanted, validate_only=validate_only)
    assert admin.describe_features()["share.version"]["finalized"] == (1, 1)


@every_release
def test_what_a_broker_speaks_is_reported_of_any_and_of_each(admin: KafkaAdminClient) -> None:
    (broker,) = admin.describe_cluster()["brokers"]
    told, found = admin.api_versions(), admin.get_broker_version_data(broker["broker_id"])
    assert told == found.api_versions
    assert all(isinstance(key, ApiKey) for key in told)
    assert told[ApiKey.Metadata][1] == found.api_versions[3][1] >= found.api_version(MetadataRequest)
    assert found.broker_version_str in ("4.3", "3.9", "2.8")
    for none in (None, True, "1"):
        with pytest.raises(IllegalArgumentError, match="broker_id="):
            admin.get_broker_version_data(none)  # type: ignore[arg-type]
    with pytest.raises(UnknownBrokerIdError, match="77"):
        admin.get_broker_version_data(77)


@pytest.mark.parametrize("kind", ["embedded", "apache"])
def test_a_broker_that_reports_nothing_has_the_versions_of_its_release(kind: str) -> None:
    if kind == "embedded":
        with EmbeddedBroker(emulate="0.9") as broker:
            _look_at_0_9(broker.bootstrap, broker_id=1)
    else:
        require_apache_kafka("0.9.0.1")
        with ApacheKafka("0.9.0.1") as apache:
            _look_at_0_9(apache.bootstrap, broker_id=0)


def _look_at_0_9(bootstrap: str, broker_id: int) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.api_versions()[ApiKey.Fetch] == (0, 1)
        assert admin.get_broker_version_data(broker_id).broker_version == (0, 9)
        for call, release in (
            (admin.describe_features, "2.4"),
            (lambda: admin.describe_acls(matching()), "0.11"),
        ):
            with pytest.raises(IncompatibleBrokerVersion, match=f"since release {release}"):
                call()
