"""SCRAM users of the brokers (KIP-554, brokers since 2.7): who there is, giving and taking credentials.

No password leaves the process, and none is kept here: what is sent is what PBKDF2 makes of it (RFC 5802), and neither
that nor the salt is shown by a ``repr``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, ClassVar, Final

from kafka.core.admin.responses import AdminApi, in_all, in_each, request_api, result_of
from kafka.core.admin.values import known
from kafka.core.dialogue import Dialogue
from kafka.core.retry import Backoff
from kafka.errors import BrokerResponseError, IllegalArgumentError, KafkaError, NoError, ResourceNotFoundError
from kafka.protocol.sasl import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from kafka.validation import is_integer

_DESCRIBE: Final = AdminApi("describing SCRAM credentials", in_all("describe_user_scram_credentials"), release="2.7")
_ALTER: Final = AdminApi("altering SCRAM credentials", in_each("results", "user {0.user}"), release="2.7")
_NOT_THERE: Final = ResourceNotFoundError.errno


class ScramMechanism(IntEnum):
    """How a user proves to know the password. UNKNOWN: one that this client does not know, in answers."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """What :mod:`hashlib` calls its hash."""
        return _HASHES[self]

    @classmethod
    def of(cls, given: ScramMechanism | int | str) -> ScramMechanism:
        """The mechanism of that number or name ("SCRAM-SHA-256"); IllegalArgumentError for any other."""
        found = cls.__members__.get(given.upper().replace("-", "_")) if isinstance(given, str) else given
        if is_integer(found) and found in _HASHES:
            return cls(found)
        names = ", ".join(each.name.replace("_", "-") for each in _HASHES)
        raise IllegalArgumentError(f"mechanism={given!r}: one of {names}")


_MOST_ITERATIONS: Final = 16384
_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class UserScramCredentialDeletion:
    """Take a user's credential for one mechanism, given as a member, a number or a name."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = _user(user)
        self.mechanism = ScramMechanism.of(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user!r}, {self.mechanism.name})"


class SaltedCredential:
    """What becomes of a user's password for one mechanism. ``iterations``: 4096 to 16384: brokers take no other."""

    DEFAULT_ITERATIONS: ClassVar = 4096
    """And the least."""

    def __init__(
        self, user: str, mechanism: ScramMechanism | int | str, password: str | bytes, iterations: int, salt: bytes
    ) -> None:
        self.user = _user(user)
        self.mechanism = ScramMechanism.of(mechanism)
        if not isinstance(password, (str, bytes)) or not password:
            raise IllegalArgumentError(f"password of {user}: text or bytes, and not empty")
        least, most = self.DEFAULT_ITERATIONS, _MOST_ITERATIONS
        if not is_integer(iterations) or not least <= iterations <= most:
            raise IllegalArgumentError(f"iterations={iterations!r}: a whole number from {least} to {most}")
        if not isinstance(salt, bytes) or not salt:
            raise IllegalArgumentError("salt: bytes, and not empty")
        self.iterations = iterations
        self.salt = salt
        self.salted_password = hashlib.pbkdf2_hmac(self.mechanism.hash_name, _bytes(password), salt, iterations)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.user!r}, {self.mechanism.name}, iterations={self.iterations})"


def describe_user_scram_credentials(
    users: Iterable[str] | None = None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, dict[str, Any]]]:
    """``{user: {"error": None or a text, "credential_infos": [{"mechanism": ScramMechanism, "iterations"}]}}``, of all
    users when none is named; never their credentials. A user without any has an ``error``. Brokers since 2.7."""
    if users is not None and (isinstance(users, (str, bytes)) or not isinstance(users, Iterable)):
        raise IllegalArgumentError(f"users={users!r}: a list of names")
    message = DescribeUserScramCredentialsRequest
    request = message(users=None if users is None else [message.UserName(name=_user(user)) for user in users])
    answer = yield from request_api(_DESCRIBE, request, backoff, timeout_s)
    return {
        result.user: {
            "error": text_of(result_of(result.error_code, result.error_message)),
            "credential_infos": [
                {"mechanism": known(ScramMechanism, info.mechanism), "iterations": info.iterations}
                for info in result.credential_infos
            ],
        }
        for result in answer.results
    }


def alter_user_scram_credentials(
    alterations: Iterable[UserScramCredentialDeletion | SaltedCredential], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, BrokerResponseError]]:
    """Give users credentials, in the place of those they have, and take some: the error of each user, NoError where it
    went well. A user may be named once in a call.

    Where the answer of an attempt was lost, a credential that the next one does not find was taken by the first.
    """
    message = AlterUserScramCredentialsRequest
    request = message(deletions=[], upsertions=[])
    if not isinstance(alterations, Iterable):
        raise IllegalArgumentError(f"alterations: a list is expected, not {type(alterations).__name__}")
    for each in alterations:
        if isinstance(each, UserScramCredentialDeletion):
            request.deletions.append(message.ScramCredentialDeletion(name=each.user, mechanism=each.mechanism))
        elif isinstance(each, SaltedCredential):
            same = {name: getattr(each, name) for name in ("mechanism", "iterations", "salt", "salted_password")}
            request.upsertions.append(message.ScramCredentialUpsertion(name=each.user, **same))
        else:
            raise IllegalArgumentError(
                f"alterations: UserScramCredentialUpsertion or UserScramCredentialDeletion, not {type(each).__name__}"
            )

    lost: list[KafkaError] = []
    answer = yield from request_api(_ALTER, request, backoff, timeout_s, raise_errors=False, lost=lost)
    deleted = {each.name for each in request.deletions} if lost else set()
    return {
        result.user: NoError()
        if result.user in deleted and result.error_code == _NOT_THERE
        else result_of(result.error_code, result.error_message)
        for result in answer.results
    }


def text_of(error: BrokerResponseError) -> str | None:
    """What the broker said, or else the error's name; None for NoError."""
    if isinstance(error, NoError):
        return None
    return str(error.args[0]) if error.args and error.args[0] else str(error)


def _bytes(password: str | bytes) -> bytes:
    if isinstance(password, bytes):
        return password
    try:
        return password.encode()
    except UnicodeEncodeError:  # which has the password in it
        raise IllegalArgumentError("password: it has characters that are none (lone surrogates)") from None


def _user(given: str) -> str:
    if not isinstance(given, str):
        raise IllegalArgumentError(f"user={given!r}: a text")
    return given
