"""The calls by which a test says what is to go wrong. What they mean together is told in the package's docstring.

:class:`Vocabulary` makes rules of the calls and hands them to :meth:`Vocabulary.add`, which the broker's own
:class:`~kafka.broker.faults.machine.Faults` and the remote control of ``kafka.testing`` each have.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from kafka.broker.faults.rule import ApiName, Error, Rule, make_rule
from kafka.errors import IllegalArgumentError
from kafka.wire.message import Response

H = TypeVar("H")
Api = ApiName | Sequence[ApiName]


class Vocabulary(abc.ABC, Generic[H]):
    """``**match`` of every call: ``version topic partition client_id peer connection``, and one of ``nth first every
    probability`` (with ``seed``)."""

    @abc.abstractmethod
    def add(self, rule: Rule) -> H:
        """Put a rule in force; its handle."""

    def answer(self, api: Api, answer: Error | Response, *, when: str | None = None, **match: Any) -> H:
        """Answer with an error (code, class or Kafka's name) or with a response, instead of handling the request
        (``when="before"``, the default) or although it was handled (``"after"``). Produce with acks=0 has no answer:
        its connection ends, as Kafka's does."""
        if isinstance(answer, Response):
            return self.add(make_rule("answer", api, when=when, response=answer, **match))
        return self.add(make_rule("answer", api, when=when, error=answer, **match))

    def delay(self, api: Api, seconds: float, *, when: str | None = None, **match: Any) -> H:
        """Let the answer be late (``when="after"``, the default), or the request itself (``"before"``: it is handled
        later, and even when its connection has ended meanwhile). Seconds of the broker's clock."""
        return self.add(make_rule("delay", api, when=when, seconds=seconds, **match))

    def drop(self, api: Api, *, when: str | None = None, **match: Any) -> H:
        """Never answer: ``"before"`` handling (default) or ``"after"``. The connection stays, but what comes on it
        later waits behind the request, as it does at a broker that hangs."""
        return self.add(make_rule("drop", api, when=when, **match))

    def close(
        self, api: Api, *, when: str | None = None, reset: bool = False, keep: float | None = None, **match: Any
    ) -> H:
        """End the connection: ``"before"`` handling (default); ``"after"``, when the acknowledgement is lost; or
        ``"during"`` the writing of the answer, of which ``keep`` arrives (bytes, or a part; the half by default).
        ``reset``: by a reset instead of an orderly end."""
        if keep is not None and when != "during":
            raise IllegalArgumentError("close: keep needs when='during'")
        return self.add(make_rule("close", api, when=when, reset=reset, keep=keep, **match))

    def kill(self, api: Api, *, when: str | None = None, keep: float | None = None, **match: Any) -> H:
        """End the broker's process as ``kill -9`` does: at the same moments as :meth:`close`."""
        if keep is not None and when != "during":
            raise IllegalArgumentError("kill: keep needs when='during'")
        return self.add(make_rule("kill", api, when=when, keep=keep, **match))

    def corrupt(self, api: Api, *, what: str = "records", count: int = 1, **match: Any) -> H:
        """Change ``count`` bytes, at places that ``seed`` decides: in each record batch under its CRC (of an answer; of
        a Produce request, as it arrives), or anywhere in the answer (``what="answer"``)."""
        if what not in ("records", "answer"):
            raise IllegalArgumentError(f"corrupt: what is 'records' or 'answer', not {what!r}")
        return self.add(make_rule("corrupt", api, records=what == "records", count=count, **match))

    def truncate(self, api: Api, *, keep: float = 0.5, **match: Any) -> H:
        """Send a whole frame that has only the beginning of the answer in it: ``keep`` bytes (an int) or a part."""
        return self.add(make_rule("truncate", api, keep=keep, **match))

    def throttle(self, api: Api, seconds: float, *, mute: bool = True, **match: Any) -> H:
        """Say ``throttle_time_ms`` in the answer, and handle nothing more of the connection until then (KIP-219), or
        only say it (``mute=False``)."""
        return self.add(make_rule("throttle", api, seconds=seconds, mute=mute, **match))
