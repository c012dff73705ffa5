"""Fault rules as values, and the calls that make them.

:class:`FaultRuleBuilder` has the calls; their meaning is documented in the package's docstring. :func:`make_rule`
checks everything that can be known beforehand and raises IllegalArgumentError; a :class:`Rule` can be carried out,
which is ``injector.py``'s job. Rules are sent as JSON to a broker in another process, with response messages as::

    {"struct": "FetchResponse.PartitionData", "fields": {"error_code": 0, "records": {"bytes": "AAA="}, ...}}

Fields with their default are left out. Only classes of the expected message's module are made from JSON.
"""

from __future__ import annotations

import abc
import base64
import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from kafka.broker.faults.faulty_responses import has_error, is_answerable, names_partitions, names_topics
from kafka.errors import ERRORS_BY_CODE, BrokerResponseError, IllegalArgumentError
from kafka.protocol.registry import NAMES, REGISTRY
from kafka.wire.message import Message, Request, Response, Struct, fields_of

M = TypeVar("M", bound=Message)


def message_to_json(value: Struct) -> dict[str, Any]:
    """A structure as dictionaries, lists, texts and numbers for ``json``."""
    return {
        "struct": type(value).__qualname__,
        "fields": {name: _value_to_json(getattr(value, name)) for name in value.fields},
    }


def message_from_json(expected: type[M], plain: Mapping[str, Any]) -> M:
    """The inverse of :func:`message_to_json`; IllegalArgumentError for another message."""
    made = _struct_from_json(expected, plain)
    if not isinstance(made, expected):
        raise IllegalArgumentError(f"{type(made).__name__} is not a {expected.__name__}")
    return made


def _value_to_json(value: Any) -> Any:
    if isinstance(value, Struct):
        return message_to_json(value)
    if isinstance(value, list):
        if value and isinstance(value[0], (bytes, bytearray, memoryview)):
            return {"bytes": base64.b64encode(b"".join(value)).decode()}
        return [_value_to_json(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    return value


def _struct_from_json(root: type[Message], plain: Mapping[str, Any]) -> Struct:
    found: Any = sys.modules[root.__module__]
    for part in str(plain["struct"]).split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Struct) and found.__module__ == root.__module__):
        raise IllegalArgumentError(f"{plain['struct']} is not a structure of {root.__name__}")
    return found(**{name: _value_from_json(root, value) for name, value in plain["fields"].items()})


def _value_from_json(root: type[Message], plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value_from_json(root, each) for each in plain]
    if isinstance(plain, dict):
        if "struct" in plain:
            return _struct_from_json(root, plain)
        if "bytes" in plain:
            return base64.b64decode(plain["bytes"])
        if "uuid" in plain:
            return UUID(plain["uuid"])
    return plain


ANY: Final = "*"
PRODUCE_KEY: Final = 0

ApiName = str | int | type[Request[Any]]
Error = int | str | type[BrokerResponseError]


class Action(NamedTuple):
    """An action of rules. ``whens``: the moments at which it can happen; the first is the default."""

    whens: tuple[str, ...]
    doc: str


ACTIONS: Final[dict[str, Action]] = {
    "answer": Action(("before", "after"), "an error code, or a response of one's own, instead of the broker's answer"),
    "delay": Action(("after", "before"), "the answer (or the request) is late; seconds of the broker's clock"),
    "drop": Action(("before", "after"), "no answer, ever; the connection stays, and nothing more on it is answered"),
    "close": Action(("before", "after", "during"), "the connection ends"),
    "corrupt": Action(("after",), "bytes of the record batches, or of the answer, are others"),
    "truncate": Action(("after",), "a whole frame with only a part of the answer in it"),
    "throttle": Action(("after",), "throttle_time_ms in the answer, and the connection is muted for so long (KIP-219)"),
    "kill": Action(("before", "after", "during"), "the broker's process ends as by kill -9"),
}
"""All actions, for checks and for the documentation."""


@dataclass(frozen=True)
class Rule:
    """One fault. Empty ``apis``, and None elsewhere: no condition. Make it with :func:`make_rule`."""

    action: str
    when: str
    apis: tuple[int, ...] = ()
    versions: tuple[int, int] | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    peer: str | None = None
    connection: int | None = None
    nth: int | None = None
    first: int | None = None
    every: int | None = None
    probability: float | None = None
    seed: int = 0
    error: int = 0
    """``answer``: the code, unless there is a response."""
    response: Response | None = None
    seconds: float = 0.0
    """``delay``, ``throttle``."""
    keep: float | None = None
    """``truncate`` and what happens ``during``: bytes (an int), or a part of the whole (a float below 1)."""
    records: bool = True
    """``corrupt``: record batches, not the whole answer."""
    count: int = 1
    """``corrupt``: bytes to change."""
    reset: bool = False
    """``close``: with a reset."""
    mute: bool = True
    """``throttle``: mute the connection, too."""

    def __str__(self) -> str:
        shown = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in dataclasses.fields(self)[3:]
            if getattr(self, each.name) != each.default
        ]
        names = ", ".join(NAMES.get(key, str(key)) for key in self.apis) or ANY
        return f"{self.action}({', '.join([names, f'when={self.when!r}', *shown])})"

    def to_json(self) -> dict[str, Any]:
        """As what ``json`` takes."""
        plain = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.default is dataclasses.MISSING or getattr(self, each.name) != each.default
        }
        if self.response is not None:
            plain["response"] = {"api": self.response.api_key, **message_to_json(self.response)}
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Rule:
        """The inverse of :meth:`to_json`."""
        values = dict(plain)
        values["apis"] = tuple(values.get("apis", ()))
        if values.get("versions") is not None:
            values["versions"] = tuple(values["versions"])
        response = values.get("response")
        if response is not None:
            values["response"] = message_from_json(REGISTRY[response["api"]].response, response)
        return cls(**values)


def make_rule(action: str, api: ApiName | Sequence[ApiName], *, when: str | None = None, **values: Any) -> Rule:
    """A valid rule. IllegalArgumentError."""
    known = ACTIONS[action]
    when = known.whens[0] if when is None else when
    if when not in known.whens:
        raise IllegalArgumentError(f"{action}: when is {' or '.join(map(repr, known.whens))}, not {when!r}")
    apis = _api_keys(api)
    version = values.pop("version", None)
    if version is not None:
        values["versions"] = _versions(version)
    peer = values.get("peer")
    if peer is not None:
        values["peer"] = str(peer)
    if "error" in values:
        values["error"] = _error_code(values["error"])
    names = {each.name for each in dataclasses.fields(Rule)}
    for name in values:
        if name not in names:
            raise IllegalArgumentError(f"{action}: there is no condition {name!r}{_did_you_mean(name, names)}")
    rule = Rule(action, when, apis, **values)
    _check(rule)
    return rule


def _check(rule: Rule) -> None:
    """Check the conditions and parameters that do not depend on the API. IllegalArgumentError."""
    chosen = [name for name in ("nth", "first", "every", "probability") if getattr(rule, name) is not None]
    if len(chosen) > 1:
        raise IllegalArgumentError(f"{rule.action}: {' and '.join(chosen)} exclude one another")
    for name in ("nth", "first", "every", "count"):
        _check_integer(rule, name, 1)
    for name in ("topic", "client_id"):
        if not isinstance(getattr(rule, name), (str, type(None))):
            raise IllegalArgumentError(f"{rule.action}: {name} is a text, not {getattr(rule, name)!r}")
    if isinstance(rule.seed, bool) or not isinstance(rule.seed, int):
        raise IllegalArgumentError(f"{rule.action}: a seed is a whole number, not {rule.seed!r}")
    for name in ("partition", "connection"):
        _check_integer(rule, name, 0)
    if rule.probability is not None and not 0 <= rule.probability <= 1:
        raise IllegalArgumentError(f"{rule.action}: a probability is from 0 to 1, not {rule.probability!r}")
    if not isinstance(rule.seconds, (int, float)) or not 0 <= rule.seconds < 10**9:
        raise IllegalArgumentError(f"{rule.action}: seconds are a number from 0 on, not {rule.seconds!r}")
    if rule.keep is not None:
        is_number = isinstance(rule.keep, (int, float)) and not isinstance(rule.keep, bool)
        if not is_number or rule.keep < 0 or (isinstance(rule.keep, float) and rule.keep >= 1):
            raise IllegalArgumentError(
                f"{rule.action}: keep is a number of bytes, or a part of the whole below 1, not {rule.keep!r}"
            )
    for key in rule.apis:
        _check_api(rule, key)


def _check_api(rule: Rule, key: int) -> None:
    """Check that the rule can apply to this API. IllegalArgumentError."""
    name = NAMES[key]
    if key not in REGISTRY:
        if rule.action in ("answer", "corrupt", "throttle") or rule.topic is not None or rule.partition is not None:
            raise IllegalArgumentError(f"{rule.action}: the broker does not know what is in {name}; drop it or close")
        return
    api = REGISTRY[key]
    if rule.versions is not None and not (
        rule.versions[0] <= api.max_version and rule.versions[1] >= api.min_version
    ):
        raise IllegalArgumentError(
            f"{name} has versions {api.min_version} to {api.max_version}, not {_version_range(rule.versions)}"
        )
    if rule.topic is not None and not names_topics(api.request):
        raise IllegalArgumentError(f"{rule.action}: {name} names no topics")
    if rule.partition is not None and not names_partitions(api.request):
        raise IllegalArgumentError(f"{rule.action}: {name} names no partitions")
    if rule.action == "answer":
        _check_answer(rule, key)
    if rule.action == "throttle" and "throttle_time_ms" not in api.response.fields:
        raise IllegalArgumentError(f"throttle: the answer to {name} has no throttle_time_ms")
    if rule.action == "corrupt" and rule.records and key != PRODUCE_KEY and not has_records(api.response):
        raise IllegalArgumentError(f"corrupt: {name} carries no records; say what='answer'")


def _check_answer(rule: Rule, key: int) -> None:
    api = REGISTRY[key]
    if rule.response is not None:
        if type(rule.response) is not api.response:
            raise IllegalArgumentError(
                f"answer: {api.name} is answered with {api.response.__name__}, not {type(rule.response).__name__}"
            )
        if rule.topic is not None or rule.partition is not None:
            return
    elif not has_error(api.response):
        raise IllegalArgumentError(f"answer: the answer to {api.name} has no error code; give a response")
    elif not is_answerable(api.response, partition=rule.partition is not None, topic=rule.topic is not None):
        raise IllegalArgumentError(f"answer: the answer to {api.name} has no error code for each partition")


def has_records(response: type[Response]) -> bool:
    """Whether the response has record batches."""
    return any(
        inner.type.kind == "records"
        for outer in fields_of(response)
        if outer.type.cls is not None
        for middle in fields_of(outer.type.cls)
        if middle.type.cls is not None
        for inner in fields_of(middle.type.cls)
    )


def _check_integer(rule: Rule, name: str, least: int) -> None:
    value = getattr(rule, name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise IllegalArgumentError(f"{rule.action}: {name} is a whole number from {least} on, not {value!r}")


def api_name(api: ApiName) -> str:
    """Kafka's name of an API; IllegalArgumentError."""
    return NAMES[_api_key(api)]


def _api_keys(api: ApiName | Sequence[ApiName]) -> tuple[int, ...]:
    if api == ANY:
        return ()
    if isinstance(api, (list, tuple, set, frozenset)):
        if not api:
            raise IllegalArgumentError("an empty list of APIs matches nothing; '*' is any")
        return tuple(dict.fromkeys(_api_key(each) for each in api))
    return (_api_key(api),)


def _api_key(api: Any) -> int:
    if isinstance(api, type) and issubclass(api, Request):
        return api.api_key
    if isinstance(api, int) and not isinstance(api, bool):
        if api in NAMES:
            return api
        raise IllegalArgumentError(f"no API has the key {api}")
    if isinstance(api, str):
        wanted = api.removesuffix("Request").lower()
        for key, name in NAMES.items():
            if name.lower() == wanted:
                return key
        raise IllegalArgumentError(f"no API is called {api!r}{_did_you_mean(api, NAMES.values())}")
    raise IllegalArgumentError(f"an API is a name, a key or a class of requests, not {api!r}")


def _versions(version: Any) -> tuple[int, int]:
    if isinstance(version, int) and not isinstance(version, bool):
        return version, version
    if isinstance(version, (tuple, list)) and len(version) == 2 and all(isinstance(one, int) for one in version):
        low, high = version
        if low <= high:
            return low, high
    raise IllegalArgumentError(f"version is a number, or two of them (from, to), not {version!r}")


def _error_code(error: Any) -> int:
    if isinstance(error, type) and issubclass(error, BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    if isinstance(error, int) and not isinstance(error, bool) and -1 <= error < 1 << 15:
        return error
    if isinstance(error, str):
        codes = {each.message: code for code, each in ERRORS_BY_CODE.items()}
        if error in codes:
            return codes[error]
        raise IllegalArgumentError(f"no error of Kafka's is called {error!r}{_did_you_mean(error, codes)}")
    raise IllegalArgumentError(f"an error is a code, Kafka's name of it or its class, not {error!r}")


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(words), 1, 0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _version_range(versions: tuple[int, int]) -> str:
    return str(versions[0]) if versions[0] == versions[1] else f"{versions[0]} to {versions[1]}"


H = TypeVar("H")
Api = ApiName | Sequence[ApiName]


class FaultRuleBuilder(abc.ABC, Generic[H]):
    """``**match`` of every call: ``version topic partition client_id peer connection``, and one of ``nth first every
    probability`` (with ``seed``)."""

    @abc.abstractmethod
    def add(self, rule: Rule) -> H:
        """Activate a rule and return its handle."""

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
