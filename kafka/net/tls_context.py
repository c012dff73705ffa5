"""Contexts for ``tls.py`` from files or PEM text: who we are, whom we trust, which versions.

Text is what Kafka's settings may have instead of files; the ``ssl`` module reads keys from files only, so it passes
through a file of our own (mode 0600, gone at once). A passphrase is never asked for on a terminal, and neither it nor a
key is ever part of an error or a ``repr``.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from typing import NamedTuple

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
"""What a server wants of its clients' certificates (Kafka's ``ssl.client.auth``). Requested: one that is shown has to
be good, as for Kafka."""

_AUTH = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsSettingError(ValueError):
    """Certificates or keys that cannot be used: one line that says which and why."""


class Pem(NamedTuple):
    """PEM in a file or as text. ``name``: what to call it in errors, such as the setting that it comes from."""

    name: str
    path: str | None = None
    text: str | None = None

    def __repr__(self) -> str:
        return f"Pem({self.name!r}, {self.path!r})" if self.path else f"Pem({self.name!r}, text=...)"


class Identity(NamedTuple):
    """A certificate chain and its key; ``key`` None: in the same file or text."""

    chain: Pem
    key: Pem | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Identity({self.chain!r}, {self.key!r})"


def server_context(
    identity: Identity,
    trusted: Pem | None = None,
    *,
    client_auth: str = NONE,
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
) -> ssl.SSLContext:
    """A server that shows ``identity`` and trusts clients' certificates signed by ``trusted``. TlsSettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _limit_versions(context, versions)
    _load_identity(context, identity)
    if client_auth != NONE:
        if trusted is None:
            raise TlsSettingError("to check clients' certificates, the ones that are trusted have to be given")
        _load_trusted(context, trusted)
    context.verify_mode = _AUTH[client_auth]
    return context


def client_context(
    trusted: Pem | None = None,
    identity: Identity | None = None,
    *,
    check_hostname: bool = True,
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
    ciphers: str | None = None,
    revoked: str | None = None,
) -> ssl.SSLContext:
    """A client that trusts ``trusted`` (None: whom the system trusts) and shows ``identity``. TlsSettingError.

    ``ciphers``: OpenSSL's list, for TLS 1.2. ``revoked``: a file of PEM revocation lists; the server's certificate is
    looked up there, and is refused when the list of its issuer is not in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = check_hostname
    _limit_versions(context, versions)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trusted(context, trusted)
    if identity is not None:
        _load_identity(context, identity)
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise TlsSettingError(f"no cipher of {ciphers!r} can be had here") from None
    if revoked is not None:
        _load_revoked(context, revoked)
    return context


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            if "-----BEGIN X509 CRL-----" not in file.read():
                raise ValueError("there is no revocation list in it (PEM is needed)")
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        word = _word(error) if isinstance(error, ssl.SSLError) else _plain(error)
        raise TlsSettingError(f"the revocation lists of {path} cannot be read: {word}") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _limit_versions(context: ssl.SSLContext, versions: tuple[str, ...]) -> None:
    unknown = [version for version in versions if version not in VERSIONS]
    if unknown or not versions:
        raise TlsSettingError(f"there is no TLS version {', '.join(unknown)}; known are {', '.join(VERSIONS)}")
    allowed = sorted(VERSIONS[version] for version in versions)
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]


def _load_trusted(context: ssl.SSLContext, trusted: Pem) -> None:
    try:
        if trusted.path is not None:
            with open(trusted.path, encoding="ascii", errors="replace") as file:
                text = file.read()
        else:
            text = trusted.text or ""
        context.load_verify_locations(cadata=_certificates(text))
    except ssl.SSLError as error:
        raise TlsSettingError(f"{trusted.name} has no certificate that can be read ({_word(error)})") from None
    except (OSError, ValueError) as error:
        raise TlsSettingError(f"{trusted.name} cannot be read: {_plain(error)}") from None


def _certificates(text: str) -> str:
    """Only the certificates: text may stand around them, in any encoding."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    parts = [part.partition(end)[0] for part in text.split(begin)[1:]]
    if not parts:
        raise ValueError("there is no certificate in it (PEM is needed)")
    return "\n".join(f"{begin}{part}{end}" for part in parts)


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    chain, key = identity.chain, identity.key
    with tempfile.TemporaryDirectory(prefix="kafka-pem-") if _has_text(chain, key) else _Nothing() as directory:
        try:
            certfile = _file(chain, directory, "chain.pem")
            keyfile = _file(key, directory, "key.pem") if key is not None else None
            # Always a password, if an empty one: without, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(certfile, keyfile, lambda: identity.password or "")
        except ssl.SSLError as error:
            raise TlsSettingError(_why_not(identity, _word(error))) from None
        except TlsSettingError:
            raise
        except (OSError, ValueError) as error:
            raise TlsSettingError(f"{chain.name} cannot be read: {_plain(error)}") from None


def _why_not(identity: Identity, word: str) -> str:
    """OpenSSL says "PEM lib" to everything, so what is there is looked at."""
    chain, key = identity.chain, identity.key or identity.chain
    if "mismatch" in word:
        return f"the key of {key.name} does not belong to the certificate of {chain.name}"
    if b"BEGIN CERTIFICATE" not in _bytes(chain):
        return f"there is no certificate in {chain.name} (PEM is needed)"
    text = _bytes(key)
    if b"PRIVATE KEY" not in text:
        return f"there is no private key in {key.name} (PEM is needed)"
    if b"ENCRYPTED" in text:
        return f"the key of {key.name} is encrypted, and " + (
            "no password is given" if identity.password is None else "the password for it is wrong"
        )
    return f"the certificate of {chain.name} with the key of {key.name} cannot be read ({word})"


def _bytes(pem: Pem) -> bytes:
    if pem.path is None:
        return (pem.text or "").encode()
    with open(pem.path, "rb") as file:
        return file.read()


def _has_text(*pems: Pem | None) -> bool:
    return any(pem is not None and pem.path is None for pem in pems)


def _file(pem: Pem, directory: str | None, name: str) -> str:
    if pem.path is not None:
        try:
            with open(pem.path, "rb"):
                return pem.path
        except OSError as error:  # of OpenSSL's it could not be said which file it is about
            raise TlsSettingError(f"{pem.name} cannot be read: {_plain(error)}") from None
    assert directory is not None
    path = os.path.join(directory, name)  # the directory is ours alone (mode 0700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(pem.text or "")
    return path


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _word(error: ssl.SSLError) -> str:
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


def _plain(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return str(error)
