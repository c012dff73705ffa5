"""The admin client's calls about access rules (ACLs) and SCRAM users, with kafka-python's names and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.admin import dialogues
from kafka.admin.credentials import UserScramCredentialUpsertion
from kafka.admin.running import Running
from kafka.core.admin.acl_values import ACL, ACLFilter
from kafka.core.admin.scram import UserScramCredentialDeletion, text_of
from kafka.errors import BrokerResponseError, NoError


class SecurityCalls(Running):
    """Who may do what, and who there is. IncompatibleBrokerVersion where a broker is too old."""

    def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """Make rules: ``{"succeeded": [ACL], "failed": [error class]}``, in the order of ``acls``; a rule that is there
        already succeeds. What failed is what ``succeeded`` lacks; ``run(dialogues.create_acls(acls,
        backoff=admin.retry_backoff))`` tells the error of each, with the broker's text. Brokers need an authorizer
        (SecurityDisabledError) and, for a while, do not know of a rule that was just made. Since 0.11; patterns 2.0,
        rules about users 3.3."""
        found = self._run(dialogues.create_acls(acls, **self._limits))
        return {
            "succeeded": [acl for acl, error in found if isinstance(error, NoError)],
            "failed": [type(error) for _, error in found if not isinstance(error, NoError)],
        }

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[NoError]]:
        """The rules that a filter matches, and NoError. Raises the broker's error: SecurityDisabledError,
        ClusterAuthorizationFailedError."""
        return self._run(dialogues.describe_acls(acl_filter, **self._limits)), NoError

    def delete_acls(
        self, acl_filters: Iterable[ACLFilter]
    ) -> list[tuple[ACLFilter, list[ACL], type[BrokerResponseError]]]:
        """Remove the rules that each filter matches: ``[(filter, [removed ACL], error class)]``, NoError where it went
        well; a rule that could not be removed is not in the list, and its error is the filter's. Not tried again when
        the answer was lost: KafkaConnectionError or RequestTimedOutError, and the rules may have been removed."""
        found = self._run(dialogues.delete_acls(acl_filters, **self._limits))
        return [(each, removed, type(error)) for each, removed, error in found]

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """SCRAM users: ``{user: {"error": None or a text, "credential_infos": [{"mechanism": ScramMechanism,
        "iterations"}]}}``, of all users when none is named; never their credentials. KIP-554, since 2.7."""
        return self._run(dialogues.describe_user_scram_credentials(users, **self._limits))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Give users credentials, and take some: ``{user: None, or the broker's text}``. A user may be named once in a
        call. No password is sent, but what is made of it lets in whoever reads it: use TLS. KIP-554, since 2.7."""
        found = self._run(dialogues.alter_user_scram_credentials(alterations, **self._limits))
        return {user: text_of(error) for user, error in found.items()}
