"""SASL without sockets, clocks or chance: mechanisms for both roles, and the server's dialogue around them.

    mechanism.py    what a mechanism is, in both roles: tokens in, tokens out; PLAIN; OAUTHBEARER, the client's role
    scram.py        SCRAM-SHA-256, SCRAM-SHA-512
    server.py       which requests a listener with SASL admits, and when (KIP-43, KIP-152, KIP-368)

A new mechanism is a client and a server class, a row in ``kafka.broker.listener_security`` for the broker, and one in
``kafka.client.security`` and in the setting ``sasl_mechanism`` for the clients. Nonces come from the caller; no
password is ever part of a ``repr`` or of an error.
"""

from __future__ import annotations

from kafka.core.sasl.mechanism import ClientMechanism, SaslError, ServerMechanism

__all__ = ["ClientMechanism", "SaslError", "ServerMechanism"]
