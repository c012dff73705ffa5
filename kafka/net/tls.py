"""TLS between a transport and its handler: bytes of records on one side, plain bytes on the other; both roles.

::

    TcpTransport <-> TlsTransport <-> handler          the same over memory.py: any Transport will do
       records        MemoryBIOs      plain bytes

A :class:`TlsTransport` is a handler to the transport under it and a transport to the handler above it, and keeps the
promises of ``transport.py`` to both. The handler hears ``connected()`` when the handshake is over, and nothing but
``closed()`` when it fails. :class:`TlsNetwork` is the way in: a :class:`~kafka.net.transport.Network` over another.
Whether to try again after a :class:`~kafka.net.transport.TlsError` is decided above.

    handshaking --do_handshake()--> open --close(), close_notify, error--> closing --closed() of the transport under it
         |------- no end within the limit, bytes that are not TLS, refused certificate ---^

Each end sends close_notify where it can. A peer that goes without it (most do) ends as :class:`PeerClosed` like any
other: Kafka's frames have lengths, so nothing cut short passes for whole.

Contexts (:func:`server_context`, :func:`client_context`) are made from files or PEM text. Text is what Kafka's settings
may have instead of files; the ``ssl`` module reads keys from files only, so it passes through a file of our own (mode
0600, removed at once). OpenSSL is never allowed to ask for a passphrase on a terminal, and neither a passphrase nor a
key is part of an error or a ``repr``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafka.future import Future
from kafka.net.loop import DeadlineTimer, Loop
from kafka.net.transport import (
    DEFAULT_OPTIONS,
    Accept,
    Address,
    BytesLike,
    ConnectionOptions,
    Listener,
    Network,
    PeerClosed,
    TlsCertificateError,
    TlsCutOff,
    TlsError,
    Transport,
    TransportHandler,
)

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0

READ_BYTES: Final = 256 * 1024
"""Maximum number of bytes that are decrypted for one call of the handler."""

RECORD_BYTES: Final = 16384
"""Maximum plaintext of one record."""

NO_TLS_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x50"
"""The server's alert for bytes that are not TLS, as Java's: fatal, "internal error". A client that uses plaintext by
mistake can detect TLS by it."""

FLUSH_BYTES: Final = 256 * 1024
"""Number of bytes that are encrypted before they are passed to the transport below."""


class TlsNetwork:
    """TLS on top of ``network``: what connects is a TLS client, what listens a TLS server.

    ``context``: an ``ssl.SSLContext``, or what gives one for each connection (so that files that were exchanged count
    from the next connection on; its OSError ends the connection). ``server_hostname``: whom a client expects, for SNI
    and the check of the name.
    """

    def __init__(
        self,
        network: Network,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext],
        *,
        server_hostname: str | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        self.loop: Loop = network.loop
        self.server_hostname = server_hostname
        self.handshake_timeout_s = handshake_timeout_s
        self.network = network
        self._context = context
        self.read_buffer = memoryview(bytearray(READ_BYTES))  # shared by all connections: each empties it at once

    def for_host(self, server_hostname: str | None) -> TlsNetwork:
        """The same, for connections to another server."""
        other = TlsNetwork(
            self.network, self._context, server_hostname=server_hostname, handshake_timeout_s=self.handshake_timeout_s
        )
        other.read_buffer = self.read_buffer
        return other

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        return self.network.resolve(host, port)

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> TlsTransport:
        tls = TlsTransport(self, handler, is_server=False)
        tls.attach(self.network.connect(addresses, tls, options))
        return tls

    def listen(self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS) -> Listener:
        def welcome(under: Transport) -> TransportHandler:
            tls = TlsTransport(self, None, is_server=True)
            tls.attach(under)
            tls.handler = accept(tls)
            return tls

        return self.network.listen(host, port, welcome, options)

    def close(self) -> None:
        """End all that the network below has, with and without TLS."""
        self.network.close()

    def new_context(self) -> ssl.SSLContext:
        """The context for a connection that begins now."""
        return self._context if isinstance(self._context, ssl.SSLContext) else self._context()


class TlsTransport(Transport, TransportHandler):
    """One connection: made by :class:`TlsNetwork`, or by hand with :meth:`attach` over any transport."""

    def __init__(self, network: TlsNetwork, handler: TransportHandler | None, *, is_server: bool) -> None:
        """``handler``: None until a server's ``accept`` has given it."""
        self.handler = handler
        self.is_server = is_server
        self.is_open = False
        """Whether the handshake is complete."""
        self._network = network
        self._loop = network.loop
        self._under: Transport | None = None
        # TLS runs over buffers in memory, not over the socket, so that it works over any transport (a proxy's, a
        # test's).
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None
        self._early: list[BytesLike] = []
        """Chunks written before the end of the handshake."""
        self._early_bytes = 0
        self._handshake_timer = DeadlineTimer(network.loop, self._on_handshake_timeout)
        self._error: BaseException | None = None
        """Why this side ended the connection."""
        self._writable_is_due = False
        self._is_paused = False
        self._is_ended = False

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else "closing" if self.is_closing else "open" if self.is_open else "beginning"
        return f"<TlsTransport {'server' if self.is_server else 'client'} {self.local} -> {self.peer} {state}>"

    def attach(self, under: Transport) -> None:
        """Use ``under``, whose handler this is."""
        self._under = under
        self.peer, self.local = under.peer, under.local

    @property
    def version(self) -> str | None:
        """``TLSv1.3`` or ``TLSv1.2``, once open."""
        return self._ssl.version() if self._ssl is not None else None

    def peer_certificate(self) -> dict[str, Any] | None:
        """What the ``ssl`` module returns for the peer's verified certificate; None when there is none."""
        certificate: dict[str, Any] | None = self._ssl.getpeercert() if self._ssl is not None else None
        return certificate or None

    # -- out: the transport of the handler above -----------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:  # type: ignore[override]  # an attribute elsewhere; here the other transport knows
        return self._early_bytes + (self._under.pending_bytes if self._under is not None else 0)

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        if self.is_closing:
            return
        chunks = (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data
        if not self.is_open:
            self._early.extend(chunks)
            self._early_bytes += sum(map(len, chunks))
            self._writable_is_due = True
            return
        self._encrypt(chunks)
        if self.pending_bytes:
            self._writable_is_due = True

    def _encrypt(self, chunks: Sequence[BytesLike]) -> None:
        tls, outgoing = self._ssl, self._outgoing
        assert tls is not None
        try:
            for piece in _in_records(chunks):
                view, sent = memoryview(piece), 0
                while sent < len(view):
                    sent += tls.write(view[sent:] if sent else view)  # one record for each call
                    if outgoing.pending >= FLUSH_BYTES:
                        self._flush()
        except ssl.SSLError as error:
            # On the loop: the handler, whose call this is, must not be called inside it.
            self._loop.call_soon(self._fail, tls_error(error, self.peer, is_open=self.is_open))
            return
        self._flush()

    def _flush(self) -> None:
        """Pass encrypted bytes to the transport below."""
        if self._outgoing.pending and self._under is not None:
            self._under.write(self._outgoing.read())

    def close(self) -> None:
        if not self.is_closing:
            self.is_closing = True
            self._send_close_notify()
            if self._under is not None:
                self._under.close()

    def abort(self, error: BaseException | None = None) -> None:
        if not self._is_ended:
            self.is_closing = True
            self._error = self._error or error
            if self._under is not None:
                self._under.abort(error)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self.is_open and self._under is not None and not self.is_closing:  # a handshake goes on to its end
            self._under.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self.is_open and self._under is not None and not self.is_closing:
            self._under.resume_reading()
            if self._incoming.pending or (self._ssl is not None and self._ssl.pending()):
                self._loop.call_soon(self._resume_delivery)

    # -- in: the handler of the transport below ------------------------------------------------------------------------

    def connected(self) -> None:
        under = self._under
        assert under is not None
        self.peer, self.local = under.peer, under.local
        self._handshake_timer.set(self._loop.time() + self._network.handshake_timeout_s)
        name = None if self.is_server else self._network.server_hostname
        try:
            context = self._network.new_context()
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, self.is_server, name)
        except (OSError, ValueError) as error:  # files that cannot be read, a name that cannot be one
            self._fail(TlsError(f"TLS cannot begin: {error}", is_final=True))
            return
        self._handshake()

    def data_received(self, data: bytes) -> None:
        if self.is_closing or self._ssl is None:
            return
        self._incoming.write(data)
        if not self.is_open:
            self._handshake()
        if self.is_open:
            self._deliver()

    def writable(self) -> None:
        if self.is_open and self._writable_is_due and not self.pending_bytes and not self.is_closing:
            self._writable_is_due = False
            if self.handler is not None:
                self.handler.writable()

    def closed(self, error: BaseException | None) -> None:
        self._handshake_timer.set(float("inf"))
        was_open, self._is_ended, self.is_closing = self.is_open, True, True
        self._early.clear()
        self._early_bytes = 0
        if self._error is not None:
            error = self._error
        elif not was_open and self._ssl is not None and isinstance(error, (PeerClosed, ConnectionResetError)):
            error = TlsCutOff(f"{self.peer} ended the connection during the TLS handshake; does it speak TLS there?")
            self._log_failure(error)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed(error)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _handshake(self) -> None:
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            if self.is_server and not self._outgoing.pending and self._under is not None:
                self._under.write(NO_TLS_ALERT)  # OpenSSL says nothing to bytes that are not TLS
            self._fail(tls_error(error, self.peer, is_open=self.is_open))
            return
        except ValueError as error:  # a host name that no certificate can have
            self._fail(TlsError(f"TLS cannot begin: {error}", is_final=True))
            return
        self._flush()
        self._handshake_timer.set(float("inf"))
        self.is_open = True
        early, self._early, self._early_bytes = self._early, [], 0
        if early:
            self._encrypt(early)
        if self._is_paused and self._under is not None:
            self._under.pause_reading()
        if self.handler is not None:
            self.handler.connected()
        if self._writable_is_due and not self.pending_bytes:
            self._loop.call_soon(self._call_writable)

    def _call_writable(self) -> None:
        self._guarded(self.writable)

    def _resume_delivery(self) -> None:
        self._guarded(self._deliver)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Below a transport its own calls are guarded; ours from the loop are here."""
        if self._is_ended:
            return
        try:
            call()
        except Exception as error:
            log.error("%r: closing the connection after an error in its handler", self, exc_info=error)
            self.abort(error)

    def _deliver(self) -> None:
        """Decrypt bytes and pass them to the handler, until it pauses."""
        tls = self._ssl
        assert tls is not None
        ending: BaseException | None = None
        while ending is None and not self._is_paused and not self.is_closing and self.handler is not None:
            count = 0
            room = self.handler.get_buffer()
            buffer = self._network.read_buffer if room is None else room
            size = len(buffer)
            try:
                while count < size:
                    more: Any = tls.read(size, buffer[count:])  # into a buffer: a number
                    if not more:
                        ending = PeerClosed(f"{self.peer} closed the connection")
                        break
                    count += more
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                ending = tls_error(error, self.peer, is_open=self.is_open)
            self._flush()  # an answer to a change of keys, an alert
            if count and self.handler is not None:
                if room is None:
                    self.handler.data_received(bytes(buffer[:count]))
                else:
                    self.handler.buffer_updated(count)
            if not count:
                break
        if ending is not None and not self.is_closing:
            self._fail(ending)

    def _send_close_notify(self) -> None:
        """Send close_notify after the written bytes."""
        if not self.is_open or self._ssl is None:
            return
        with contextlib.suppress(OSError, ValueError):  # unwrap() waits for the peer's close_notify; we do not
            self._ssl.unwrap()
        self._flush()

    def _fail(self, error: BaseException) -> None:
        """End it for ``error``, after the TLS alert to the peer, if that gets through."""
        if self.is_closing or self._under is None:
            return
        self.is_closing = True
        self._error = error
        if not isinstance(error, PeerClosed):
            self._log_failure(error)
        elif not self._under.pending_bytes:
            self._send_close_notify()
        self._flush()
        if self._under.pending_bytes:  # it may never take that
            self._under.abort(error)
        else:
            self._under.close()

    def _on_handshake_timeout(self) -> None:
        self._fail(TlsError(f"no end of the TLS handshake within {self._network.handshake_timeout_s:g} s"))

    def _log_failure(self, error: BaseException) -> None:
        """A server logs it: nothing above a server's transport reports the error, as a client's caller does."""
        if self.is_server:
            log.warning("closing the TLS connection from %s: %s", self.peer, error)


def _in_records(chunks: Sequence[BytesLike]) -> Iterator[BytesLike]:
    """The same bytes, small chunks joined: each piece costs a record of its own, with 22 bytes around it and a call."""
    run: list[BytesLike] = []
    held = 0
    for chunk in chunks:
        size = len(chunk)
        if held + size > RECORD_BYTES and run:
            yield run[0] if len(run) == 1 else b"".join(run)
            run, held = [], 0
        if size > RECORD_BYTES:
            yield chunk
        elif size:
            run.append(chunk)
            held += size
    if run:
        yield run[0] if len(run) == 1 else b"".join(run)


_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})

_PASSING: Final = frozenset({"internal error", "user canceled", "user cancelled", "no renegotiation"})
"""Alerts that do not point to wrong settings."""


def tls_error(error: ssl.SSLError, peer: Address | None, *, is_open: bool) -> TlsError:
    """A TlsError that says whose fault it was, from OpenSSL's error. ``is_open``: the handshake was over.

    To make another of OpenSSL's reasons clear, add it here.
    """
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsCertificateError(f"the certificate of {peer} is refused: {error.verify_message}", reason)
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return TlsCertificateError(f"{peer} has shown no certificate, which is required here", reason)
    if not is_open and reason in _NOT_TLS:
        return TlsError(f"what {peer} sends is not TLS; does it speak plaintext?", reason, is_final=True)
    if "_ALERT_" in reason:
        alert = reason.partition("_ALERT_")[2].replace("_", " ").lower()
        if "certificate" in alert or alert == "unknown ca":
            return TlsCertificateError(f"{peer} refuses our certificate, or lacks one: {alert}", reason)
        is_final = not is_open and alert not in _PASSING
        return TlsError(f"{peer} ended TLS: {alert}", reason, is_final=is_final)
    during = "" if is_open else " handshake"
    what = reason.replace("_", " ").lower() or str(error)
    is_final = not is_open and "EOF" not in reason
    return TlsError(f"the TLS{during} with {peer} failed: {what}", reason, is_final=is_final)


# -- contexts --------------------------------------------------------------------------------------------------------

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
"""Whether a server requires client certificates (Kafka's ``ssl.client.auth``). Requested: a presented one must be
valid, as in Kafka."""

_AUTH = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsSettingError(ValueError):
    """Unusable certificates or keys: one line says which and why."""


class Pem(NamedTuple):
    """PEM in a file or as text. ``name``: what to call it in errors, such as the setting that it comes from."""

    name: str
    path: str | None = None
    text: str | None = None

    def __repr__(self) -> str:
        return f"Pem({self.name!r}, {self.path!r})" if self.path else f"Pem({self.name!r}, text=...)"


class CertificateWithKey(NamedTuple):
    """A certificate chain and its key; ``key`` None: in the same file or text."""

    chain: Pem
    key: Pem | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"CertificateWithKey({self.chain!r}, {self.key!r})"


def server_context(
    identity: CertificateWithKey,
    trusted: Pem | None = None,
    *,
    client_auth: str = NONE,
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
) -> ssl.SSLContext:
    """A server that shows ``identity`` and trusts clients' certificates signed by ``trusted``. TlsSettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _limit_versions(context, versions)
    _load_certificate(context, identity)
    if client_auth != NONE:
        if trusted is None:
            raise TlsSettingError("checking clients' certificates needs the trusted authorities")
        _load_trusted(context, trusted)
    context.verify_mode = _AUTH[client_auth]
    return context


def client_context(
    trusted: Pem | None = None,
    identity: CertificateWithKey | None = None,
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
        _load_certificate(context, identity)
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise TlsSettingError(f"none of the ciphers {ciphers!r} is available") from None
    if revoked is not None:
        _load_revoked(context, revoked)
    return context


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            if "-----BEGIN X509 CRL-----" not in file.read():
                raise ValueError("it contains no revocation list (expected PEM)")
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        word = _openssl_reason(error) if isinstance(error, ssl.SSLError) else _os_error_text(error)
        raise TlsSettingError(f"the revocation lists of {path} cannot be read: {word}") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _limit_versions(context: ssl.SSLContext, versions: tuple[str, ...]) -> None:
    unknown = [version for version in versions if version not in VERSIONS]
    if unknown or not versions:
        raise TlsSettingError(f"unknown TLS version {', '.join(unknown)}: use {', '.join(VERSIONS)}")
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
        raise TlsSettingError(
            f"{trusted.name} has no certificate that can be read ({_openssl_reason(error)})"
        ) from None
    except (OSError, ValueError) as error:
        raise TlsSettingError(f"{trusted.name} cannot be read: {_os_error_text(error)}") from None


def _certificates(text: str) -> str:
    """Only the certificates: text may stand around them, in any encoding."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    parts = [part.partition(end)[0] for part in text.split(begin)[1:]]
    if not parts:
        raise ValueError("it contains no certificate (expected PEM)")
    return "\n".join(f"{begin}{part}{end}" for part in parts)


def _load_certificate(context: ssl.SSLContext, identity: CertificateWithKey) -> None:
    chain, key = identity.chain, identity.key
    with (
        tempfile.TemporaryDirectory(prefix="kafka-pem-")
        if _has_text(chain, key)
        else contextlib.nullcontext() as directory
    ):
        try:
            certfile = _file(chain, directory, "chain.pem")
            keyfile = _file(key, directory, "key.pem") if key is not None else None
            # Always a password, if an empty one: without, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(certfile, keyfile, lambda: identity.password or "")
        except ssl.SSLError as error:
            raise TlsSettingError(_load_failure(identity, _openssl_reason(error))) from None
        except TlsSettingError:
            raise
        except (OSError, ValueError) as error:
            raise TlsSettingError(f"{chain.name} cannot be read: {_os_error_text(error)}") from None


def _load_failure(identity: CertificateWithKey, word: str) -> str:
    """OpenSSL says "PEM lib" to everything, so what is there is looked at."""
    chain, key = identity.chain, identity.key or identity.chain
    if "mismatch" in word:
        return f"the key of {key.name} does not belong to the certificate of {chain.name}"
    if b"BEGIN CERTIFICATE" not in _bytes(chain):
        return f"{chain.name} contains no certificate (expected PEM)"
    text = _bytes(key)
    if b"PRIVATE KEY" not in text:
        return f"{key.name} contains no private key (expected PEM)"
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
            raise TlsSettingError(f"{pem.name} cannot be read: {_os_error_text(error)}") from None
    assert directory is not None
    path = os.path.join(directory, name)  # the directory is ours alone (mode 0700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(pem.text or "")
    return path


def _openssl_reason(error: ssl.SSLError) -> str:
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


def _os_error_text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return str(error)


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
        """The paths that are set."""
        return [path for path in (self.ca, self.chain, self.key, self.revoked) if path is not None]

    def context(self) -> ssl.SSLContext:
        """Read them. TlsSettingError, which names the file."""
        identity = None
        if self.chain is not None:
            key = None if self.key is None else Pem(f"ssl_keyfile {self.key}", self.key)
            password = None if self.password is None else self.password()
            identity = CertificateWithKey(Pem(f"ssl_certfile {self.chain}", self.chain), key, password)
        return client_context(
            None if self.ca is None else Pem(f"ssl_cafile {self.ca}", self.ca),
            identity,
            check_hostname=self.check_hostname,
            ciphers=self.ciphers,
            revoked=self.revoked,
        )


class FileContext:
    """A TLS context from files, called for each connection: certificates are renewed while we run.

    The files are compared by ``stat`` (which follows links) for each new connection, and read again when one of them
    has changed. TlsSettingError when they cannot be read: that connection and all later ones fail until the
    files are good again; existing connections stay.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen: list[tuple[int, ...]] = []
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext:
        seen = [_file_identity(path) for path in self._files.paths()]
        if self._context is None or seen != self._seen or () in seen:
            self._context = None
            self._context = self._files.context()
            self._seen = seen
        return self._context


def _file_identity(path: str) -> tuple[int, ...]:
    """What identifies a file's content; () for a missing one: reading it raises the error that names its setting."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
