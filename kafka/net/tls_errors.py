"""What can go wrong with TLS, in words that say whose fault it was: OpenSSL has codes for it, and few are clear.

To make another of its reasons clear, add it here; ``tls.py`` and ``tls_context.py`` only pass them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.net.transport import Address

if TYPE_CHECKING:
    import ssl

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})

_PASSING: Final = frozenset({"internal error", "user canceled", "user cancelled", "no renegotiation"})
"""Alerts that say nothing against either side's settings."""


class TlsError(ConnectionError):
    """TLS has failed: the handshake, or a record. ``reason``: OpenSSL's word for it, where there is one.

    ``is_final``: somebody has to change something, a certificate, a file, a setting; trying again will not help.
    """

    def __init__(self, text: str, reason: str | None = None, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_final = is_final


class TlsCertificateError(TlsError):
    """A certificate was refused, the peer's by us or ours by the peer."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text, reason, is_final=True)


class TlsCutOff(TlsError):
    """The peer ended the connection during the handshake, without an alert."""


def explained(error: ssl.SSLError, peer: Address | None, *, is_open: bool) -> TlsError:
    """OpenSSL's error as ours. ``is_open``: the handshake was over."""
    import ssl  # here, since clients without TLS know these classes, too, and are spared its 10 ms

    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsCertificateError(f"the certificate of {peer} is refused: {error.verify_message}", reason)
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return TlsCertificateError(f"{peer} has shown no certificate, which is required here", reason)
    if not is_open and reason in _NOT_TLS:
        return TlsError(f"what {peer} sends is not TLS; does it speak plaintext?", reason, is_final=True)
    if "_ALERT_" in reason:
        said = reason.partition("_ALERT_")[2].replace("_", " ").lower()
        if "certificate" in said or said == "unknown ca":
            return TlsCertificateError(f"{peer} refuses our certificate, or lacks one: {said}", reason)
        is_final = not is_open and said not in _PASSING
        return TlsError(f"{peer} ended TLS: {said}", reason, is_final=is_final)
    during = "" if is_open else " handshake"
    what = reason.replace("_", " ").lower() or str(error)
    is_final = not is_open and "EOF" not in reason
    return TlsError(f"the TLS{during} with {peer} failed: {what}", reason, is_final=is_final)
