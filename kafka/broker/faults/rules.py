"""Fault rules as values, and the calls that make them.

:class:`FaultRuleBuilder` has the calls; their meaning is documented in the package's docstring. :func:`make_rule`
checks everything that can be known beforehand and raises IllegalArgumentError; a :class:`Rule` can be carried out,
which is ``injector.py``'s job. Rules are sent as JSON to a broker in another process; of a response in a rule the
schema says what is bytes (base64 in JSON), an id, or a structure.
"""

from __future__ import annotations

import abc
import base64
import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from kafka.broker.error_places import error_levels, names_partitions, names_topics
from kafka.errors import ERRORS_BY_CODE, BrokerResponseError, IllegalArgumentError
from kafka.protocol.registry import NAMES, REGISTRY
from kafka.wire.message import FieldType, Request, Response, Struct, fields_of

ANY: Final = "*"
PRODUCE_KEY: Final = 0
WITH_RECORDS: Final = frozenset({PRODUCE_KEY, 1, 78})
"""Produce, and the APIs whose responses have record batches: Fetch, ShareFetch."""

ApiName = str | int | type[Request[Any]]
Api = ApiName | Sequence[ApiName]
Error = int | str | type[BrokerResponseError]


ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "answer": ("before", "after"),
    "delay": ("after", "before"),
    "drop": ("before", "after"),
    "close": ("before", "after", "during"),
    "corrupt": ("after",),
    "truncate": ("after",),
    "throttle": ("after",),
    "kill": ("before", "after", "during"),
}
"""Action -> the moments at which it can happen; the first is the default."""


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
        response = self.response
        return {**vars(self), "response": response and [response.api_key, _value_to_json(response)]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Rule:
        """The inverse of :meth:`to_json`."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        if values["response"] is not None:
            api_key, response = values["response"]
            values["response"] = _value_from_json(FieldType("struct", REGISTRY[api_key].response, False), response)
        return cls(**values)


def _value_to_json(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _value_to_json(getattr(value, name)) for name in value.fields}
    if isinstance(value, list) and not (value and isinstance(value[0], (bytes, bytearray, memoryview))):
        return [_value_to_json(each) for each in value]
    if isinstance(value, (list, bytes, bytearray, memoryview)):  # records may be a list of chunks
        return base64.b64encode(b"".join(value) if isinstance(value, list) else value).decode()
    return str(value) if isinstance(value, UUID) else value


def _value_from_json(expected: FieldType, plain: Any) -> Any:
    if plain is None:
        return None
    if isinstance(plain, list):
        return [_value_from_json(expected, each) for each in plain]
    if expected.cls is not None:
        return expected.cls(
            **{field.name: _value_from_json(field.type, plain[field.name]) for field in fields_of(expected.cls)}
        )
    if expected.kind in ("bytes", "records"):
        return base64.b64decode(plain)
    return UUID(plain) if expected.kind == "uuid" else plain


# -- checks ----------------------------------------------------------------------------------------------------------


def make_rule(action: str, api: Api, *, when: str | None = None, **given: Any) -> Rule:
    """A valid rule. IllegalArgumentError."""
    whens = ACTIONS[action]
    when = whens[0] if when is None else when
    if when not in whens:
        raise IllegalArgumentError(f"{action}: when is {' or '.join(map(repr, whens))}, not {when!r}")
    apis = _api_keys(api)
    names = {each.name for each in dataclasses.fields(Rule)[3:]} - {"versions"} | {"version"}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names:
            raise IllegalArgumentError(f"{action}: there is no condition {name!r}{_did_you_mean(name, names)}")
        name, convert = _CONVERSIONS.get(name, (name, lambda same: same))
        values[name] = convert(value)
    rule = Rule(action, when, apis, **values)
    for field in dataclasses.fields(Rule):
        value = getattr(rule, field.name)
        text, is_valid = _CHECKS.get(field.name, ("", lambda _: True))
        if value != field.default and not is_valid(value):
            raise IllegalArgumentError(f"{action}: {text.format(field.name)}, not {value!r}")
    chosen = [name for name in ("nth", "first", "every", "probability") if getattr(rule, name) is not None]
    if len(chosen) > 1:
        raise IllegalArgumentError(f"{action}: {' and '.join(chosen)} exclude one another")
    if rule.keep is not None and action != "truncate" and when != "during":
        raise IllegalArgumentError(f"{action}: keep needs when='during'")
    for key in apis:
        _check_api(rule, key)
    return rule


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, (int, *kinds)) and not isinstance(value, bool)


def _versions(version: Any) -> tuple[int, int] | None:
    if version is None:
        return None
    if _is_number(version):
        return version, version
    if isinstance(version, (tuple, list)) and len(version) == 2 and all(isinstance(one, int) for one in version):
        low, high = version
        if low <= high:
            return low, high
    raise IllegalArgumentError(f"version is a number, or two of them (from, to), not {version!r}")


def _error_code(error: Any) -> int:
    if isinstance(error, type) and issubclass(error, BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    if _is_number(error) and -1 <= error < 1 << 15:
        return int(error)
    if isinstance(error, str):
        codes = {each.message: code for code, each in ERRORS_BY_CODE.items()}
        if error in codes:
            return codes[error]
        raise IllegalArgumentError(f"no error of Kafka's is called {error!r}{_did_you_mean(error, codes)}")
    raise IllegalArgumentError(f"an error is a code, Kafka's name of it or its class, not {error!r}")


_CONVERSIONS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "version": ("versions", _versions),
    "peer": ("peer", lambda peer: None if peer is None else str(peer)),
    "error": ("error", _error_code),
}
"""Argument -> field of the rule, and the function that makes the one of the other."""

_FROM_1: Final = ("{} is a whole number from 1 on", lambda value: _is_number(value) and value >= 1)
_FROM_0: Final = ("{} is a whole number from 0 on", lambda value: _is_number(value) and value >= 0)
_TEXT: Final = ("{} is a text", lambda value: isinstance(value, str))

_CHECKS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "nth": _FROM_1,
    "first": _FROM_1,
    "every": _FROM_1,
    "count": _FROM_1,
    "partition": _FROM_0,
    "connection": _FROM_0,
    "topic": _TEXT,
    "client_id": _TEXT,
    "seed": ("a seed is a whole number", _is_number),
    "probability": ("a probability is from 0 to 1", lambda value: _is_number(value, float) and 0 <= value <= 1),
    "seconds": ("seconds are a number from 0 on", lambda value: _is_number(value, float) and 0 <= value < 10**9),
    "keep": (
        "keep is a number of bytes, or a part of the whole below 1",
        lambda value: _is_number(value, float) and value >= 0 and not (isinstance(value, float) and value >= 1),
    ),
}
"""Field of a rule -> what its values are, and a function that says whether one is that."""


def _check_api(rule: Rule, key: int) -> None:
    """Check that the rule can apply to this API. IllegalArgumentError."""
    action, name = rule.action, NAMES[key]
    if key not in REGISTRY:
        if action in ("answer", "corrupt", "throttle") or rule.topic is not None or rule.partition is not None:
            raise IllegalArgumentError(f"{action}: the broker does not know what is in {name}; drop it or close")
        return
    api, response = REGISTRY[key], rule.response
    low, high = rule.versions or (api.min_version, api.max_version)
    wanted = low if low == high else f"{low} to {high}"
    of_topic, of_partition = rule.topic is not None, rule.partition is not None
    is_error = action == "answer" and response is None
    levels = error_levels(api.response)
    refuses_topics = any(level.path for level in levels)
    refuses_partitions = any("partition" in level.subjects for level in levels)
    is_refusable = refuses_partitions if of_partition else refuses_topics or not of_topic
    is_other = response is not None and type(response) is not api.response
    types = f"{api.response.__name__}, not {type(response).__name__}"
    its_answer = f"{action}: the answer to {name}"
    has_throttle = "throttle_time_ms" in api.response.fields
    has_records = key in WITH_RECORDS or not rule.records
    objections = (
        (
            low > api.max_version or high < api.min_version,
            f"{name} has versions {api.min_version} to {api.max_version}, not {wanted}",
        ),
        (of_topic and not names_topics(api.request), f"{action}: {name} names no topics"),
        (of_partition and not names_partitions(api.request), f"{action}: {name} names no partitions"),
        (is_other, f"{action}: {name} is answered with {types}"),
        (is_error and not levels, f"{its_answer} has no error code; give a response"),
        (is_error and not is_refusable, f"{its_answer} has no error code for each partition"),
        (action == "throttle" and not has_throttle, f"{its_answer} has no throttle_time_ms"),
        (action == "corrupt" and not has_records, f"{action}: {name} carries no records; say what='answer'"),
    )
    for is_wrong, text in objections:
        if is_wrong:
            raise IllegalArgumentError(text)


def api_name(api: ApiName) -> str:
    """Kafka's name of an API; IllegalArgumentError."""
    return NAMES[_api_key(api)]


def _api_keys(api: Api) -> tuple[int, ...]:
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
    if _is_number(api):
        if api in NAMES:
            return int(api)
        raise IllegalArgumentError(f"no API has the key {api}")
    if isinstance(api, str):
        wanted = api.removesuffix("Request").lower()
        for key, name in NAMES.items():
            if name.lower() == wanted:
                return key
        raise IllegalArgumentError(f"no API is called {api!r}{_did_you_mean(api, NAMES.values())}")
    raise IllegalArgumentError(f"an API is a name, a key or a class of requests, not {api!r}")


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(words), 1, 0.5)
    return f"; did you mean {found[0]}?" if found else ""


# -- calls -----------------------------------------------------------------------------------------------------------

H = TypeVar("H")


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
        match["response" if isinstance(answer, Response) else "error"] = answer
        return self.add(make_rule("answer", api, when=when, **match))

    def delay(self, api: Api, seconds: float, *, when: str | None = None, **match: Any) -> H:
        """Let the answer be late (``when="after"``, the default), or the request itself (``"before"``: it is handled
        later, and even when its connection has ended meanwhile). Seconds of the broker's clock."""
        return self.add(make_rule("delay", api, when=when, seconds=seconds, **match))

    def drop(self, api: Api, *, when: str | None = None, **match: Any) -> H:
        """Never answer, ``"before"`` handling (default) or ``"after"``: the connection stays, but what comes on it
        later waits behind the request, as it does at a broker that hangs."""
        return self.add(make_rule("drop", api, when=when, **match))

    def close(
        self, api: Api, *, when: str | None = None, reset: bool = False, keep: float | None = None, **match: Any
    ) -> H:
        """End the connection: ``"before"`` handling (default); ``"after"``, when the acknowledgement is lost; or
        ``"during"`` the writing of the answer, of which ``keep`` arrives (bytes, or a part; the half by default).
        ``reset``: by a reset instead of an orderly end."""
        return self.add(make_rule("close", api, when=when, reset=reset, keep=keep, **match))

    def kill(self, api: Api, *, when: str | None = None, keep: float | None = None, **match: Any) -> H:
        """End the broker's process as ``kill -9`` does: at the same moments as :meth:`close`."""
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
