from __future__ import annotations

import traceback
from typing import Any

import pytest

from kafka.admin import UserScramCredentialUpsertion
from kafka.core.admin.scram import (
    ScramMechanism,
    UserScramCredentialDeletion,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
    text_of,
)
from kafka.core.dialogue import RefreshMetadata
from kafka.core.routing import Controller
from kafka.core.sasl.scram import ScramClient, ScramServer, credential_of
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NoError,
    NotControllerError,
    RequestTimedOutError,
    ResourceNotFoundError,
    UnknownError,
)
from kafka.protocol.sasl import AlterUserScramCredentialsResponse, DescribeUserScramCredentialsResponse
from test.core.admin.driving import BACKOFF, run
from test.core.test_retry import drive

NOT_CONTROLLER, CLUSTER_REFUSED, NOT_FOUND = 41, 31, 91
PASSWORD = "o pén sesame"



def altered(**codes: int) -> AlterUserScramCredentialsResponse:
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            result(user=user, error_code=code, error_message="why" if code > 0 else None)
            for user, code in codes.items()
        ],
    )


def described(code: int = 0, **users: tuple[int, int]) -> DescribeUserScramCredentialsResponse:
    """Mechanism and iterations of each; an error for those without."""
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=None,
        results=[
            result(
                user=user,
                error_code=0 if count else NOT_FOUND,
                error_message=None if count else "nobody",
                credential_infos=[result.CredentialInfo(mechanism=number, iterations=count)] if count else [],
            )
            for user, (number, count) in users.items()
        ],
    )


def test_credentials_are_given_and_taken_at_the_controller() -> None:
    changes = [
        UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", PASSWORD, 5000, b"salt"),
        UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256),
    ]
    found, (send,) = run(alter_user_scram_credentials(changes, backoff=BACKOFF), altered(alice=0, bob=NOT_FOUND))
    assert found == {"alice": NoError(""), "bob": ResourceNotFoundError("why")}
    assert send.target == Controller()
    (made,), (taken,) = send.request.upsertions, send.request.deletions
    assert (made.name, made.mechanism, made.iterations, made.salt) == ("alice", 2, 5000, b"salt")
    assert (taken.name, taken.mechanism) == ("bob", 1)


def test_the_controller_is_looked_for_when_it_has_moved() -> None:
    change = UserScramCredentialDeletion("bob", 1)
    found, steps = run(
        alter_user_scram_credentials([change], backoff=BACKOFF), altered(bob=NOT_CONTROLLER), altered(bob=0)
    )
    assert isinstance(found["bob"], NoError)
    assert sum(isinstance(step, RefreshMetadata) for step in steps) == 1
    found, steps = run(describe_user_scram_credentials(backoff=BACKOFF), described(NOT_CONTROLLER), described())
    assert found == {} and sum(isinstance(step, RefreshMetadata) for step in steps) == 1


@pytest.mark.parametrize("lost", [KafkaConnectionError("lost"), RequestTimedOutError("no answer")])
def test_a_deletion_whose_answer_was_lost_is_done_when_nothing_is_left_to_delete(lost: Exception) -> None:
    changes = [UserScramCredentialDeletion("bob", 1), UserScramCredentialUpsertion("alice", 1, PASSWORD)]
    answer = altered(bob=NOT_FOUND, alice=NOT_FOUND)
    found, _ = run(alter_user_scram_credentials(changes, backoff=BACKOFF), lost, answer)
    assert isinstance(found["bob"], NoError) and isinstance(found["alice"], ResourceNotFoundError)
    found, _ = run(alter_user_scram_credentials(changes, backoff=BACKOFF), altered(bob=NOT_CONTROLLER), answer)
    assert isinstance(found["bob"], ResourceNotFoundError)


@pytest.mark.parametrize("iterations", [0, 4095, 16385])
def test_iterations_that_no_broker_takes_are_refused_with_the_range(iterations: int) -> None:
    with pytest.raises(IllegalArgumentError, match=f"iterations={iterations}: a whole number from 4096 to 16384"):
        UserScramCredentialUpsertion("alice", 1, PASSWORD, iterations=iterations)


def test_the_most_and_the_least_iterations_are_taken() -> None:
    """The least is ``ScramMechanism.minIterations()``, the most ``ScramControlManager.MAX_ITERATIONS``."""
    made = [UserScramCredentialUpsertion("alice", 1, PASSWORD, iterations=count).iterations for count in (4096, 16384)]
    assert made == [4096, 16384]


@pytest.mark.parametrize("mechanism", [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
@pytest.mark.parametrize("password", [PASSWORD, PASSWORD.encode()])
def test_who_knows_the_password_is_let_in_by_what_is_sent(mechanism: ScramMechanism, password: str | bytes) -> None:
    made = UserScramCredentialUpsertion("alice", mechanism, password)
    name = mechanism.name.replace("_", "-")
    kept = credential_of(name, made.salted_password, made.salt, made.iterations)
    client, server = ScramClient(name, "alice", PASSWORD, "n1"), ScramServer(name, lambda user: kept, "n2")
    final = client.step(server.step(client.first()))
    assert final is not None
    assert client.step(server.step(final)) is None
    assert client.is_complete and server.user == "alice"


def test_each_credential_has_a_salt_of_its_own_and_4096_iterations_unless_given() -> None:
    one, other = (UserScramCredentialUpsertion("alice", 1, PASSWORD) for _ in range(2))
    assert one.salt != other.salt and len(one.salt) == 24
    assert one.salted_password != other.salted_password
    assert one.iterations == UserScramCredentialUpsertion.DEFAULT_ITERATIONS == 4096


def test_nothing_of_the_password_is_shown() -> None:
    made = UserScramCredentialUpsertion("alice", "scram-sha-256", PASSWORD, salt=b"a salt")
    _, (send,) = run(alter_user_scram_credentials([made], backoff=BACKOFF), altered(alice=0))
    shown = f"{made} {made!r} {[made]} {send!r} {send.request!r}"
    for secret in (PASSWORD, repr(made.salted_password), made.salted_password.hex(), "a salt"):
        assert secret not in shown
    assert repr(made) == "UserScramCredentialUpsertion('alice', SCRAM_SHA_256, iterations=4096)"
    assert not [value for value in vars(made).values() if value in (PASSWORD, PASSWORD.encode())]


@pytest.mark.parametrize("password", ["", b"", None, 5, "secret\udc80word"])
def test_a_password_that_cannot_be_is_refused_without_being_quoted(password: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="password") as caught:
        UserScramCredentialUpsertion("alice", 1, password)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserScramCredentialUpsertion("alice", ScramMechanism.UNKNOWN, PASSWORD),
        lambda: UserScramCredentialUpsertion("alice", "SCRAM-MD5", PASSWORD),
        lambda: UserScramCredentialUpsertion("alice", True, PASSWORD),
        lambda: UserScramCredentialUpsertion("alice", 1, PASSWORD, iterations=True),
        lambda: UserScramCredentialUpsertion("alice", 1, PASSWORD, salt=b""),
        lambda: UserScramCredentialUpsertion("alice", 1, PASSWORD, salt="salt"),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("alice", 1, PASSWORD, iterations="4096"),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion(None, 1, PASSWORD),  # type: ignore[arg-type]
        lambda: UserScramCredentialDeletion("alice", 3),
        lambda: UserScramCredentialDeletion("alice", []),  # type: ignore[arg-type]
        lambda: next(describe_user_scram_credentials(5, backoff=BACKOFF)),  # type: ignore[arg-type]
        lambda: next(alter_user_scram_credentials(None, backoff=BACKOFF)),  # type: ignore[arg-type]
        lambda: next(describe_user_scram_credentials("alice", backoff=BACKOFF)),
        lambda: next(describe_user_scram_credentials(b"alice", backoff=BACKOFF)),  # type: ignore[arg-type]
        lambda: next(alter_user_scram_credentials(["alice"], backoff=BACKOFF)),  # type: ignore[list-item]
        lambda: next(alter_user_scram_credentials(UserScramCredentialDeletion("a", 1), backoff=BACKOFF)),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(make: Any) -> None:
    with pytest.raises(IllegalArgumentError):
        make()


def test_users_are_described_one_by_one() -> None:
    answer = described(alice=(2, 5000), bob=(0, 0), carol=(9, 4096))
    found, (send,) = run(describe_user_scram_credentials(["alice", "bob"], backoff=BACKOFF), answer)
    assert found == {
        "alice": {
            "error": None,
            "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_512, "iterations": 5000}],
        },
        "bob": {"error": "nobody", "credential_infos": []},
        "carol": {"error": None, "credential_infos": [{"mechanism": ScramMechanism.UNKNOWN, "iterations": 4096}]},
    }
    assert [user.name for user in send.request.users] == ["alice", "bob"]
    _, (send,) = run(describe_user_scram_credentials(backoff=BACKOFF), described())
    assert send.request.users is None


def test_an_error_without_a_text_is_no_success() -> None:
    found, _ = run(
        alter_user_scram_credentials([UserScramCredentialDeletion("bob", 1)], backoff=BACKOFF), altered(bob=-1)
    )
    assert isinstance(found["bob"], UnknownError)
    assert text_of(found["bob"]) == "[Error -1] UnknownError"
    assert text_of(NoError("")) is None and text_of(NotControllerError("why")) == "why"


def test_the_error_of_an_old_broker_names_the_release_that_is_needed() -> None:
    def refuse(step: Any) -> Any:
        raise IncompatibleBrokerVersion("node 1 is old")

    for dialogue in (
        describe_user_scram_credentials(backoff=BACKOFF),
        alter_user_scram_credentials([UserScramCredentialDeletion("bob", 1)], backoff=BACKOFF),
    ):
        with pytest.raises(IncompatibleBrokerVersion, match=r"since release 2\.7$"):
            drive(dialogue, refuse)


def test_mechanisms_have_javas_codes() -> None:
    """``org.apache.kafka.clients.admin.ScramMechanism``."""
    numbers = {"UNKNOWN": 0, "SCRAM_SHA_256": 1, "SCRAM_SHA_512": 2}
    assert {mechanism.name: mechanism.value for mechanism in ScramMechanism} == numbers


def test_mechanisms_know_their_hashes() -> None:
    assert [each.hash_name for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)] == [
        "sha256",
        "sha512",
    ]
