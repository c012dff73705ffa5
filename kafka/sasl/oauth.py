"""The base class of token providers, where programs for kafka-python import it from.

Nothing here asks for it: any object with ``token()`` will do as ``sasl_oauth_token_provider``, and any function that
gives a token. ``client/security.py`` calls it, and says when.
"""

from __future__ import annotations

import abc
from typing import Any


class AbstractTokenProvider(abc.ABC):
    """Gives the tokens of OAUTHBEARER. It may block: each client calls it in a thread of its own, once at a time.

    It is called for each authentication, so it is to keep a token until shortly before that expires.
    """

    def __init__(self, **config: Any) -> None:  # noqa: B027  # subclasses hand theirs up
        pass

    @abc.abstractmethod
    def token(self) -> str:
        """A token that is good now. What it raises is tried again, unless that is one of our errors that is not."""

    def extensions(self) -> dict[str, str]:
        """SASL extensions, sent with the token (KIP-342)."""
        return {}
