"""What can go wrong with TLS, in words that say whose fault it was: OpenSSL has codes for it, and few are clear.

To make another of its reasons clear, add it here; ``tls.py`` and ``tls_context.py`` only pass them on.
"""

from __future__ import annotations

import ssl
from typing import Final

from kafka.net.transport import Address

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})


class TlsError(ConnectionError):
    """TLS has failed: the handshake, or a record. ``reason``: OpenSSL's word for it, where there is one."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason


class TlsCertificateError(TlsError):
    """A certificate was refused, the peer's by us or ours by the peer: trying again will not help."""


def explained(error: ssl.SSLError, peer: Address | None, *, is_open: bool) -> TlsError:
    """OpenSSL's error as ours. ``is_open``: the handshake was over."""
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsCertificateError(f"the certificate of {peer} is refused: {error.verify_message}", reason)
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return TlsCertificateError(f"{peer} has shown no certificate, which is required here", reason)
    if not is_open and reason in _NOT_TLS:
        return TlsError(f"what {peer} sends is not TLS; does it speak plaintext?", reason)
    if "_ALERT_" in reason:
        said = reason.partition("_ALERT_")[2].replace("_", " ").lower()
        if "certificate" in said or said == "unknown ca":
            return TlsCertificateError(f"{peer} refuses our certificate, or lacks one: {said}", reason)
        return TlsError(f"{peer} ended TLS: {said}", reason)
    during = "" if is_open else " handshake"
    what = reason.replace("_", " ").lower() or str(error)
    return TlsError(f"the TLS{during} with {peer} failed: {what}", reason)
