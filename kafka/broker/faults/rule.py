"""A fault as a value: which requests it is for, which of those it strikes, what it does. And its form on a pipe.

:func:`make_rule` checks all that can be known beforehand and raises IllegalArgumentError in one line; a :class:`Rule`
that came about can be carried out. Carrying out is ``machine.py``'s; the words for users are in ``vocabulary.py``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.broker.faults.answers import has_error, is_answerable
from kafka.broker.faults.plain import from_plain, to_plain
from kafka.broker.faults.targets import names_partitions, names_topics
from kafka.errors import ERRORS_BY_CODE, BrokerResponseError, IllegalArgumentError
from kafka.protocol.registry import NAMES, REGISTRY
from kafka.wire.message import Request, Response
from kafka.wire.schema import fields_of

ANY: Final = "*"
PRODUCE_KEY: Final = 0

ApiName = str | int | type[Request[Any]]
Error = int | str | type[BrokerResponseError]


class Action(NamedTuple):
    """What a rule may do. ``whens``: at which moments; the first is the default."""

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
"""Every action, for checks and for the documentation."""


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
    """``throttle``: not only said."""

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
            plain["response"] = {"api": self.response.api_key, **to_plain(self.response)}
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Rule:
        """The rule that :meth:`to_json` was asked of."""
        values = dict(plain)
        values["apis"] = tuple(values.get("apis", ()))
        if values.get("versions") is not None:
            values["versions"] = tuple(values["versions"])
        response = values.get("response")
        if response is not None:
            values["response"] = from_plain(REGISTRY[response["api"]].response, response)
        return cls(**values)


def make_rule(action: str, api: ApiName | Sequence[ApiName], *, when: str | None = None, **values: Any) -> Rule:
    """A rule that can be carried out; IllegalArgumentError says what is wrong with one that cannot."""
    known = ACTIONS[action]
    when = known.whens[0] if when is None else when
    if when not in known.whens:
        raise IllegalArgumentError(f"{action}: when is {' or '.join(map(repr, known.whens))}, not {when!r}")
    apis = _apis(api)
    version = values.pop("version", None)
    if version is not None:
        values["versions"] = _versions(version)
    peer = values.get("peer")
    if peer is not None:
        values["peer"] = str(peer)
    if "error" in values:
        values["error"] = _code(values["error"])
    names = {each.name for each in dataclasses.fields(Rule)}
    for name in values:
        if name not in names:
            raise IllegalArgumentError(f"{action}: there is no condition {name!r}{_did_you_mean(name, names)}")
    rule = Rule(action, when, apis, **values)
    _check(rule)
    return rule


def _check(rule: Rule) -> None:
    chosen = [name for name in ("nth", "first", "every", "probability") if getattr(rule, name) is not None]
    if len(chosen) > 1:
        raise IllegalArgumentError(f"{rule.action}: {' and '.join(chosen)} exclude one another")
    for name in ("nth", "first", "every", "count"):
        _whole(rule, name, 1)
    for name in ("topic", "client_id"):
        if not isinstance(getattr(rule, name), (str, type(None))):
            raise IllegalArgumentError(f"{rule.action}: {name} is a text, not {getattr(rule, name)!r}")
    if isinstance(rule.seed, bool) or not isinstance(rule.seed, int):
        raise IllegalArgumentError(f"{rule.action}: a seed is a whole number, not {rule.seed!r}")
    for name in ("partition", "connection"):
        _whole(rule, name, 0)
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
    """Whether the rule makes sense for this API."""
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
            f"{name} has versions {api.min_version} to {api.max_version}, not {_span(rule.versions)}"
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
    """Whether record batches are in the answer."""
    return any(
        inner.type.kind == "records"
        for outer in fields_of(response)
        if outer.type.cls is not None
        for middle in fields_of(outer.type.cls)
        if middle.type.cls is not None
        for inner in fields_of(middle.type.cls)
    )


def _whole(rule: Rule, name: str, least: int) -> None:
    value = getattr(rule, name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise IllegalArgumentError(f"{rule.action}: {name} is a whole number from {least} on, not {value!r}")


def api_name(api: ApiName) -> str:
    """Kafka's name of an API; IllegalArgumentError."""
    return NAMES[_key(api)]


def _apis(api: ApiName | Sequence[ApiName]) -> tuple[int, ...]:
    if api == ANY:
        return ()
    if isinstance(api, (list, tuple, set, frozenset)):
        if not api:
            raise IllegalArgumentError("an empty list of APIs matches nothing; '*' is any")
        return tuple(dict.fromkeys(_key(each) for each in api))
    return (_key(api),)


def _key(api: Any) -> int:
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


def _code(error: Any) -> int:
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


def _span(versions: tuple[int, int]) -> str:
    return str(versions[0]) if versions[0] == versions[1] else f"{versions[0]} to {versions[1]}"
