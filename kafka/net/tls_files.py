"""A client's TLS context from files, made anew when one of them was exchanged: certificates are renewed while we run.

Files are looked at (``stat``, by the system's path: a link that points elsewhere counts) for each new connection, and
read when something is different. What cannot be read then is an error of that connection, the same for each one until
the files are good again; connections that stand go on. Wanted by :class:`~kafka.net.tls.TlsNetwork` as its context.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import NamedTuple

from kafka.net.tls_context import Identity, Pem, client_context


class TlsFiles(NamedTuple):
    """Paths of PEM files. ``password``: for ``key``, or what gives it. None of ``ca``: whom the system trusts."""

    ca: str | None = None
    chain: str | None = None
    key: str | None = None
    password: Callable[[], str] | None = None
    revoked: str | None = None
    ciphers: str | None = None
    check_hostname: bool = True

    def __repr__(self) -> str:
        return f"TlsFiles(ca={self.ca!r}, chain={self.chain!r}, key={self.key!r})"

    def paths(self) -> list[str]:
        """Those that are given."""
        return [path for path in (self.ca, self.chain, self.key, self.revoked) if path is not None]

    def context(self) -> ssl.SSLContext:
        """Read them. TlsSettingError, which names the file."""
        identity = None
        if self.chain is not None:
            key = None if self.key is None else Pem(f"ssl_keyfile {self.key}", self.key)
            password = None if self.password is None else self.password()
            identity = Identity(Pem(f"ssl_certfile {self.chain}", self.chain), key, password)
        return client_context(
            None if self.ca is None else Pem(f"ssl_cafile {self.ca}", self.ca),
            identity,
            check_hostname=self.check_hostname,
            ciphers=self.ciphers,
            revoked=self.revoked,
        )


class FileContext:
    """Called for each connection; gives the context of the files as they are now. TlsSettingError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen: list[tuple[int, ...]] = []
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext:
        seen = [_look(path) for path in self._files.paths()]
        if self._context is None or seen != self._seen or () in seen:
            self._context = None
            self._context = self._files.context()
            self._seen = seen
        return self._context


def _look(path: str) -> tuple[int, ...]:
    """What tells one file from another; nothing for one that is not there: reading it says so, with its setting."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
