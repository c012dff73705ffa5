"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka has them: no channel binding.

::

    client first    n,,n=USER,r=NONCE                        no password, no hash of one
    server first    r=NONCE+MORE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE+MORE,p=PROOF              PROOF = ClientKey xor HMAC(StoredKey, everything said)
    server final    v=SIGNATURE  or  e=ERROR                 SIGNATURE = HMAC(ServerKey, everything said)

    SaltedPassword = PBKDF2(password, salt, iterations)      ClientKey, ServerKey = HMAC(SaltedPassword, "... Key")
    StoredKey = H(ClientKey)                                 the server keeps salt, iterations, StoredKey, ServerKey

So neither side learns the password, and each proves that it knows it: a client that does not check ``v=`` could be
talking to anybody. Iterations are bounded at both ends: few make guessing cheap, many are an attack on the client's
time. Names and passwords are used as they are (Kafka has no SASLprep either); in names, ``,`` is sent as ``=2C`` and
``=`` as ``=3D``, and Kafka takes names in ASCII only.

Nonces come from the caller: random, printable, without a comma.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka.core.sasl.mechanism import SaslError, check_is_text

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""Mechanism -> its hash."""

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Of credentials in a broker, as in Kafka."""

MAX_CLIENT_ITERATIONS: Final = 100_000
"""The most that our client works for a server: below 0.1 s, and six times what Kafka's brokers can be set to."""

_SASL_NAME: Final = re.compile(r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_FIRST: Final = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,)"
    r"(?P<bare>(?:m=[^,]+,)?n=(?P<name>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]+)*))"
)
_FINAL: Final = re.compile(
    r"(?P<unproved>c=[A-Za-z0-9+/]+={0,2},r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]+)*),p=(?P<proof>[^,]+)"
)
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,10})(?:,.*)?"
)


class ScramCredential(NamedTuple):
    """What a server keeps of a password. Nothing of it is shown by ``repr``."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<ScramCredential with {self.iterations} iterations>"

    def __str__(self) -> str:
        return repr(self)

    def encode(self) -> str:
        """As text to be kept, in Kafka's own form."""
        salt, stored, server = (_to_text(part) for part in self[:3])
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """From that text; ValueError."""
        found = dict(part.split("=", 1) for part in text.split(","))
        try:
            salt, stored, server = (_from_text(found[name]) for name in ("salt", "stored_key", "server_key"))
            return cls(salt, stored, server, int(found["iterations"]))
        except KeyError as error:
            raise ValueError(f"a SCRAM credential without {error}") from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The dear part: about 1 ms for 4096 iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What a server keeps, made of the salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(salt, _hash(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"), iterations)


def new_credential(mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """What a server keeps of a password."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


class ScramClient:
    """``nonce``: random text of the caller's. ValueError for a name that cannot be, or no password."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, max_iterations: int = MAX_CLIENT_ITERATIONS
    ) -> None:
        """Also ValueError for a mechanism other than SCRAM-SHA-256 and -512 and for a nonce with other than printable
        ASCII characters. "=" and "," of the name are escaped (RFC 5802, 5.1)."""
        if mechanism not in HASHES:
            raise ValueError(f"there is no SASL mechanism {mechanism} here")
        name = user.replace("=", "=3D").replace(",", "=2C")
        if not _SASL_NAME.fullmatch(name):
            raise ValueError(f"the user name of {mechanism} has to be of ASCII characters, at least one")
        if not password:
            raise ValueError(f"{mechanism} needs a password")
        check_is_text("password", password)
        if not _NONCE.fullmatch(nonce):
            raise ValueError("a nonce is of printable ASCII characters without a comma")
        self.name = mechanism
        self.is_complete = False
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={name},r={nonce}"
        self._max_iterations = max_iterations
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        if self.is_complete:
            raise _broken("the server goes on after the end")
        if self._signature is None:
            return self._prove(token)
        self._check(token)
        return None

    def _prove(self, token: bytes) -> bytes:
        """Answer the server's first message."""
        text = _ascii(token)
        if text.startswith("e="):
            raise SaslError(f"the server refuses {self.name}: {text[2:].partition(',')[0]}")
        found = _SERVER_FIRST.fullmatch(text)
        if found is None:
            raise _broken("the server's first message cannot be read")
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise _broken("the server's nonce does not go on from ours")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= self._max_iterations:
            raise _broken(
                f"the server wants {iterations} iterations; {MIN_ITERATIONS} to {self._max_iterations} are allowed"
            )
        salt = _decoded(found["salt"])
        salted = salted_password(self.name, self._password, salt, iterations)
        client_key = _hmac(self.name, salted, b"Client Key")
        unproved = f"c=biws,r={found['nonce']}"  # biws: "n,,"
        said = ",".join((self._first_bare, text, unproved)).encode()
        proof = _xor(client_key, _hmac(self.name, _hash(self.name, client_key), said))
        self._signature = _hmac(self.name, _hmac(self.name, salted, b"Server Key"), said)
        return f"{unproved},p={_to_text(proof)}".encode()

    def _check(self, token: bytes) -> None:
        """The server's turn to prove that it knows the password."""
        text = _ascii(token).partition(",")[0]
        if text.startswith("e="):
            raise SaslError(f"the server refuses {self.name}: {text[2:]}")
        if not text.startswith("v="):
            raise _broken("the server's last message cannot be read")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(text[2:]), self._signature):
            raise _broken("the server's signature is wrong: it does not know the password")
        self.is_complete = True


class ScramServer:
    """``credential_of`` gives what is kept of a user's password, or None. ``nonce``: random text of the caller's.

    Every failure has the one text that Kafka gives. Who guesses names learns all the same which there are: as with
    Kafka (measured) an unknown name is refused at the first message, any other at the second.
    """

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential | None], nonce: str) -> None:
        self.name = mechanism
        self.user: str | None = None
        self.is_complete = False
        self._credential_of = credential_of
        self._own_nonce = nonce
        self._credential: ScramCredential | None = None
        self._claimed = ""
        self._nonce = ""
        self._auth_message_start = ""
        self._is_over = False

    def step(self, token: bytes) -> bytes:
        if self._is_over:
            raise self._refused()
        self._is_over = True  # unless it goes well
        answer = self._begin(token) if self._credential is None else self._end(token)
        self._is_over = self.is_complete
        return answer

    def _begin(self, token: bytes) -> bytes:
        found = _FIRST.fullmatch(self._text(token))
        if found is None or "tokenauth=true" in found["extensions"].split(","):  # delegation tokens: there are none
            raise self._refused()
        user = _unescaped(found["name"])
        if found["authzid"] and _unescaped(found["authzid"]) != user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = self._credential_of(user)
        if credential is None:
            raise self._refused()
        self._credential, self._claimed = credential, user
        self._nonce = found["nonce"] + self._own_nonce
        answer = f"r={self._nonce},s={_to_text(credential.salt)},i={credential.iterations}"
        self._auth_message_start = f"{found['bare']},{answer}"
        return answer.encode()

    def _end(self, token: bytes) -> bytes:
        credential = self._credential
        assert credential is not None
        found = _FINAL.fullmatch(self._text(token))
        # What `c=` says is not compared with the first message: Kafka 4.3.0 does not do so either, and without channel
        # binding there is nothing to protect.
        if found is None or found["nonce"] != self._nonce:
            raise self._refused()
        try:
            proof = _from_text(found["proof"])
        except ValueError:
            raise self._refused() from None
        said = f"{self._auth_message_start},{found['unproved']}".encode()
        signature = _hmac(self.name, credential.stored_key, said)
        if len(proof) != len(signature):
            raise self._refused()
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(_hash(self.name, client_key), credential.stored_key):
            raise self._refused()
        self.user = self._claimed
        self.is_complete = True
        return f"v={_to_text(_hmac(self.name, credential.server_key, said))}".encode()

    def _text(self, token: bytes) -> str:
        try:
            return token.decode("ascii")
        except UnicodeDecodeError:
            raise self._refused() from None

    def _refused(self) -> SaslError:
        return SaslError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self.name}"
        )


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _ascii(token: bytes) -> str:
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise _broken("the server's message is not text") from None


def _decoded(text: str) -> bytes:
    try:
        return _from_text(text)
    except ValueError:
        raise _broken("the server's message is not Base64 where that belongs") from None


def _broken(why: str) -> SaslError:
    return SaslError(f"SCRAM was broken off: {why}", is_protocol=True)


def _from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not Base64") from None


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
