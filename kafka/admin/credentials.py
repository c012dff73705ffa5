"""A new SCRAM credential, with a salt of chance. What sends it is ``core/admin/scram.py``."""

from __future__ import annotations

import os

from kafka.core.admin.scram import SaltedCredential, ScramMechanism


class UserScramCredentialUpsertion(SaltedCredential):
    """Give a user a credential for one mechanism (a member of ScramMechanism, a number, or a name such as
    "SCRAM-SHA-256"), in the place of the one that is there.

    Of the password only ``salted_password`` is kept. ``iterations``: 4096 to 16384, default 4096; ``salt``: bytes,
    default 24 random ones.
    """

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | int | str,
        password: str | bytes,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        super().__init__(
            user,
            mechanism,
            password,
            self.DEFAULT_ITERATIONS if iterations is None else iterations,
            os.urandom(24) if salt is None else salt,
        )
