"""What every mechanism has, in both roles. Tokens are the bytes of SaslAuthenticate, without any frame around them.

::

    client                                  server
    first()            ---- token ---->     step(token)
    step(token)        <--- token -----        ...
    is_complete                             is_complete, user
"""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """Authentication has failed. The text is for the peer's eyes, too: it says no more than Kafka's brokers say.

    ``is_protocol``: the peer broke the rules of the mechanism; otherwise name or password are wrong.
    """

    def __init__(self, text: str, *, is_protocol: bool = False) -> None:
        super().__init__(text)
        self.is_protocol = is_protocol


def check_is_text(what: str, text: str) -> None:
    """ValueError, which quotes nothing, when it has no UTF-8: ``os.environ`` gives such texts for bytes of any kind."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {what} has characters that are none (lone surrogates)") from None


class ClientMechanism(Protocol):
    """One authentication from the client's side."""

    name: str
    is_complete: bool
    """The server is convinced, and (where the mechanism can do that) has proved itself."""

    def first(self) -> bytes:
        """The token that begins it."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Answer the server's token; None: nothing more to say. :class:`SaslError`."""
        ...


class ServerMechanism(Protocol):
    """One authentication from the server's side."""

    name: str
    is_complete: bool
    user: str | None
    """Who it is; known when complete."""

    def step(self, token: bytes) -> bytes:
        """Answer the client's token, or raise :class:`SaslError`: then it is over."""
        ...
