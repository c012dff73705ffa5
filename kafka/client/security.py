"""The security of one client's connections: TLS, a SASL mechanism for each authentication, and OAUTHBEARER's tokens.

Made once from a client's resolved settings (:meth:`ClientSecurity.of`, which refuses what does not fit together) and
shared by all its connections, in ``ConnectionSettings``. The handshakes are ``handshake.py``'s. To add a mechanism: a
row in :data:`_MECHANISMS`, and in ``kafka.config``.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafka.core.sasl import ClientMechanism
from kafka.core.sasl.mechanism import OauthBearerClient, PlainClient
from kafka.core.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient
from kafka.errors import KafkaConfigurationError, KafkaConnectionError, KafkaError, SaslAuthenticationFailedError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.transport import Network

if TYPE_CHECKING:
    from kafka.net.tls import TlsNetwork

log = logging.getLogger(__name__)

NONCE_BYTES: Final = 24

WITH_TLS: Final = frozenset({"SSL", "SASL_SSL"})
WITH_SASL: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})

_FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile", "ssl_ciphers")
_NAMED: Final = ("sasl_plain_username", "sasl_plain_password")
_TOKEN: Final = ("sasl_oauth_token_provider",)

NewMechanism = Callable[[Loop], "Future[ClientMechanism]"]
"""Gives the mechanism of one authentication, on the loop; it may take its time."""


class ClientSecurity:
    """How the connections of one client are secured."""

    def __init__(
        self, protocol: str = "PLAINTEXT", context: Any = None, handshake_timeout_s: float = 10.0,
        new_mechanism: NewMechanism | None = None,
    ) -> None:  # fmt: skip
        self.protocol = protocol
        self.is_proven = False
        """One of the client's connections was ready: the security settings fit the cluster."""
        self.token_losses = 0
        """How often a broker closed the connection on a token without headers, which is an old broker's only answer
        to a wrong one."""
        self._context = context
        self._handshake_timeout_s = handshake_timeout_s
        self._new_mechanism = new_mechanism
        self._tls: TlsNetwork | None = None

    def __repr__(self) -> str:
        return f"<ClientSecurity {self.protocol}>"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ClientSecurity:
        """From resolved settings. KafkaConfigurationError, also for files that cannot be read.

        What is given besides ``PLAINTEXT`` is a warning only, once for each client: programs take their settings from
        an environment that has all of them, and kafka-python says nothing. Besides another protocol it is an error,
        since a password would go over the network in the clear where a CA was given to keep it secret.
        """
        protocol = settings["security_protocol"]
        unused = [] if protocol in WITH_TLS else ["ssl_context", *_FILES]
        unused += [] if protocol in WITH_SASL else ["sasl_mechanism", *_NAMED, *_TOKEN]
        given = [name for name in unused if settings[name] is not None]
        if given and protocol != "PLAINTEXT":
            raise KafkaConfigurationError(f"{given[0]} means nothing with security_protocol={protocol!r}")
        if given:
            log.warning(
                "%s: not used with security_protocol='PLAINTEXT', which neither encrypts nor authenticates; "
                "set security_protocol, or leave them out", ", ".join(given),
            )  # fmt: skip
        return cls(
            protocol,
            _context(settings) if protocol in WITH_TLS else None,
            settings["socket_connection_setup_timeout_ms"] / 1000,
            _mechanism(settings) if protocol in WITH_SASL else None,
        )

    def note_success(self) -> None:
        """A connection is ready."""
        self.is_proven = True

    def count_token_loss(self) -> None:
        """A broker closed the connection on a token."""
        self.token_losses += 1

    @property
    def with_tls(self) -> bool:
        return self.protocol in WITH_TLS

    @property
    def with_sasl(self) -> bool:
        return self.protocol in WITH_SASL

    def network_for(self, network: Network, host: str) -> Network:
        """``network`` with what belongs around a connection to ``host``."""
        if not self.with_tls:
            return network
        if self._tls is None or self._tls.network is not network:
            from kafka.net.tls import TlsNetwork  # `ssl` costs 10 ms, which clients without TLS save

            self._tls = TlsNetwork(network, self._context, handshake_timeout_s=self._handshake_timeout_s)
        # The dot of a fully qualified name, and a zone such as %eth0, are the resolver's: no certificate has them.
        return self._tls.for_host(host.partition("%")[0].removesuffix("."))

    def new_mechanism(self, loop: Loop) -> Future[ClientMechanism]:
        """For one authentication. Completed on the loop, at once unless a token provider or KDC has to be asked.

        Errors: AuthenticationError; KafkaConnectionError when a token cannot be had just now.
        """
        assert self._new_mechanism is not None
        return self._new_mechanism(loop)


PLAINTEXT: Final = ClientSecurity()
"""No security at all."""


def _context(settings: Mapping[str, Any]) -> Any:
    """An ``ssl.SSLContext``, or what gives one for each connection."""
    from kafka.net.tls import FileContext, TlsFiles, TlsSettingError

    given = [name for name in _FILES if settings[name] is not None]
    if settings["ssl_context"] is not None:
        if given:
            raise KafkaConfigurationError(f"ssl_context and {given[0]} exclude one another: the context has all of it")
        return settings["ssl_context"]
    for name in ("ssl_keyfile", "ssl_password"):
        if settings[name] is not None and settings["ssl_certfile"] is None:
            raise KafkaConfigurationError(f"{name} is given, and ssl_certfile is not")
    password = settings["ssl_password"]
    context = FileContext(
        TlsFiles(
            ca=settings["ssl_cafile"],
            chain=settings["ssl_certfile"],
            key=settings["ssl_keyfile"],
            password=None if password is None else password.reveal,
            revoked=settings["ssl_crlfile"],
            ciphers=settings["ssl_ciphers"],
            check_hostname=settings["ssl_check_hostname"],
        )
    )
    try:
        context()
    except TlsSettingError as error:
        raise KafkaConfigurationError(str(error)) from None
    return context


def _mechanism(settings: Mapping[str, Any]) -> NewMechanism:
    name = settings["sasl_mechanism"]
    if name is None:
        raise KafkaConfigurationError(
            f"security_protocol={settings['security_protocol']!r} needs sasl_mechanism: {', '.join(_MECHANISMS)}"
        )
    make, needed = _MECHANISMS[name]
    missing = [setting for setting in needed if settings[setting] is None]
    if missing:
        raise KafkaConfigurationError(f"sasl_mechanism={name!r} needs {' and '.join(missing)}")
    foreign = [one for one in (*_NAMED, *_TOKEN) if one not in needed and settings[one] is not None]
    if foreign:
        raise KafkaConfigurationError(f"{foreign[0]} means nothing with sasl_mechanism={name!r}")
    return make(settings)


def _plain(settings: Mapping[str, Any]) -> NewMechanism:
    user, password = _user(settings)
    return _at_once(lambda: PlainClient(user, password()))


def _scram(settings: Mapping[str, Any]) -> NewMechanism:
    name = settings["sasl_mechanism"]
    user, password = _user(settings)
    return _at_once(lambda: ScramClient(name, user, password(), secrets.token_urlsafe(NONCE_BYTES)))


def _oauthbearer(settings: Mapping[str, Any]) -> NewMechanism:
    return TokenSource(settings["sasl_oauth_token_provider"]).new_mechanism


def _user(settings: Mapping[str, Any]) -> tuple[str, Callable[[], str]]:
    return settings["sasl_plain_username"], settings["sasl_plain_password"].reveal


def _at_once(make: Callable[[], ClientMechanism]) -> NewMechanism:
    try:
        make()
    except ValueError as error:  # a name or password that the mechanism cannot have
        raise KafkaConfigurationError(str(error)) from None
    return lambda loop: Future[ClientMechanism]().success(make())


_MECHANISMS: Final[Mapping[str, tuple[Callable[[Mapping[str, Any]], NewMechanism], tuple[str, ...]]]] = {
    "PLAIN": (_plain, _NAMED),
    SCRAM_SHA_256: (_scram, _NAMED),
    SCRAM_SHA_512: (_scram, _NAMED),
    "OAUTHBEARER": (_oauthbearer, _TOKEN),
}
"""Mechanism -> what makes it, and the settings that it needs."""


class TokenSource:
    """OAUTHBEARER tokens from a user's provider, which may block, and may fail. All methods on the loop's thread.

    The provider is called in a thread of its own, for each authentication: of a new connection, and of a session that
    is renewed. One call at a time: authentications that begin meanwhile share the token. Caching a token until it
    expires is the provider's business, since it alone knows when that is.

        it raises                    KafkaConnectionError, which is retriable: the connection is made again after its
                                     back-off, since a token server may be down for a while
        it gives an invalid token    SaslAuthenticationFailedError: the provider is wrong, and stays so
        it does not return           the authentication times out; the next one waits for the same call

    Source: KIP-255, KIP-342; the provider's shape is kafka-python's (``token()``, ``extensions()``), or any function
    that gives a token.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._waiting: list[Future[ClientMechanism]] | None = None

    def __repr__(self) -> str:
        return f"<TokenSource {type(self._provider).__name__}>"

    def new_mechanism(self, loop: Loop) -> Future[ClientMechanism]:
        """The mechanism with a token from a provider call that begins now, or is under way."""
        future: Future[ClientMechanism] = Future()
        if self._waiting is not None:
            self._waiting.append(future)
            return future
        self._waiting = [future]
        try:
            threading.Thread(target=self._fetch, args=(loop,), name="kafka-token", daemon=True).start()
        except RuntimeError as error:  # no more threads available
            self._fetched(KafkaConnectionError(f"the token provider cannot be called: {error}"))
        return future

    def _fetch(self, loop: Loop) -> None:
        """Call the provider. Runs in the thread."""
        outcome: tuple[str, dict[str, str]] | KafkaError
        try:
            outcome = _call_provider(self._provider)
        except KafkaError as error:
            outcome = error
        except BaseException as error:  # SystemExit, too: the waiting authentications have to fail
            # Its class alone: the text of the provider's error may contain the token, or its credentials.
            log.warning("the token provider failed: %s", type(error).__name__)
            outcome = KafkaConnectionError(f"the token provider failed: {type(error).__name__}")
            outcome.__cause__ = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._fetched, outcome)

    def _fetched(self, outcome: tuple[str, dict[str, str]] | KafkaError) -> None:
        waiting, self._waiting = self._waiting or [], None
        for future in waiting:
            if isinstance(outcome, KafkaError):
                future.failure(outcome)
            else:
                future.success(OauthBearerClient(*outcome))


def _call_provider(provider: Any) -> tuple[str, dict[str, str]]:
    """Token and extensions; SaslAuthenticationFailedError for what cannot be sent."""
    token = provider.token() if callable(getattr(provider, "token", None)) else provider()
    extensions = getattr(provider, "extensions", None)
    more = extensions() if callable(extensions) else None
    if isinstance(token, bytes):
        token = token.decode("ascii", "replace")
    if not isinstance(token, str):
        raise SaslAuthenticationFailedError(f"the token provider gave {type(token).__name__}, and a token is a text")
    if more is not None and not isinstance(more, Mapping):
        raise SaslAuthenticationFailedError("the token provider's extensions() gave no mapping of names to texts")
    found = {str(name): str(value) for name, value in (more or {}).items()}
    try:
        OauthBearerClient(token, found)
    except ValueError as error:
        raise SaslAuthenticationFailedError(f"the token provider: {error}") from None
    return token, found
