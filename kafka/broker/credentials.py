"""Who may come in with which password: the users of SCRAM, and the authentication of one connection.

Users of SCRAM are in the metadata, as salt, keys and iterations, never as passwords; AlterUserScramCredentials changes
them. ``users`` (name -> password) are the broker's own, from its start: they can come in by every mechanism. For SCRAM
they are put into the metadata, where they stay when they are not given any more. Users of PLAIN out of a JAAS text
count for their listener alone, and are kept nowhere.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Final

from kafka.broker.listener_security import SaslSettings
from kafka.broker.log.metadata_store import MetadataStore
from kafka.core.sasl import ServerMechanism
from kafka.core.sasl.plain import NAME as PLAIN
from kafka.core.sasl.plain import PlainServer
from kafka.core.sasl.scram import HASHES, ScramCredential, ScramServer, new_credential
from kafka.core.sasl.server import SaslServer
from kafka.errors import KafkaConfigurationError, KafkaStorageError

KIND: Final = "user-scram"
"""Under which the metadata keeps them: user -> mechanism -> credential as text."""

SALT_BYTES: Final = 20
NONCE_BYTES: Final = 18


class Credentials:
    """The users of one broker. ``rng``: for salts and nonces, so it should not be one that can be guessed."""

    def __init__(self, metadata: MetadataStore, users: Mapping[str, str], rng: random.Random) -> None:
        self._metadata = metadata
        self._users = dict(users)
        self._rng = rng
        for name, password in self._users.items():
            if not name or not password or "\0" in name + password:
                raise KafkaConfigurationError("a user needs a name and a password")
            self._put_if_new(name, password)

    def __repr__(self) -> str:
        return f"<Credentials of {len(self.scram_users())} users>"

    # -- connections -------------------------------------------------------------------------------------------------

    def authentication(self, sasl: SaslSettings) -> SaslServer:
        """For a connection that has just come to a listener with these settings."""
        return SaslServer(sasl.mechanisms, lambda name: self._mechanism(sasl, name), sasl.lifetime_ms)

    def _mechanism(self, sasl: SaslSettings, name: str) -> ServerMechanism:
        if name == PLAIN:
            return PlainServer(lambda user: sasl.plain_users.get(user, self._users.get(user)))
        nonce = base64.b64encode(self._rng.randbytes(NONCE_BYTES)).decode()
        return ScramServer(name, lambda user: self.scram(user).get(name), nonce)

    # -- users of SCRAM ----------------------------------------------------------------------------------------------

    def scram_users(self) -> list[str]:
        """All names."""
        return list(self._metadata.configs(KIND))

    def scram(self, user: str) -> dict[str, ScramCredential]:
        """By mechanism what is kept of a user; empty for one that nobody knows."""
        kept = self._metadata.config(KIND, user)
        try:
            return {mechanism: ScramCredential.decode(text) for mechanism, text in kept.items()}
        except ValueError as error:
            raise KafkaStorageError(f"the credentials of a user cannot be read: {error}") from None

    def put(self, user: str, mechanism: str, credential: ScramCredential) -> None:
        """Make or change one."""
        kept = self._metadata.config(KIND, user)
        self._metadata.set_config(KIND, user, {**kept, mechanism: credential.encode()})

    def remove(self, user: str, mechanism: str) -> None:
        """Forget one."""
        kept = self._metadata.config(KIND, user)
        kept.pop(mechanism, None)
        self._metadata.set_config(KIND, user, kept)

    def _put_if_new(self, name: str, password: str) -> None:
        """So that a start writes nothing when nothing is new."""
        known = self.scram(name)
        for mechanism in HASHES:
            kept = known.get(mechanism)
            if kept is None or kept != new_credential(mechanism, password, kept.salt, kept.iterations):
                self.put(name, mechanism, new_credential(mechanism, password, self._rng.randbytes(SALT_BYTES)))
