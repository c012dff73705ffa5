"""SASL without sockets, clocks or chance: mechanisms for both roles, and the server's dialogue around them.

    plain.py  scram.py      a mechanism in both roles: tokens in, tokens out (``mechanism.py`` says how)
    oauthbearer.py          a mechanism, the client's role only
    server.py               what a listener with SASL lets pass, and when (KIP-43, KIP-152, KIP-368)

A new mechanism is a module with a client and a server class, a row in ``kafka.broker.listener_security`` for the
broker, and one in ``kafka.client.security`` and in the setting ``sasl_mechanism`` for the clients. Nonces come from
the caller; no password is ever part of a ``repr`` or of an error.
"""

from __future__ import annotations

from kafka.core.sasl.mechanism import ClientMechanism, SaslError, ServerMechanism

__all__ = ["ClientMechanism", "SaslError", "ServerMechanism"]
