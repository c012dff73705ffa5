"""Validation of what users pass: the values of settings and the arguments of methods.

The checks of :mod:`kafka.config`'s table come first: a check takes the user's value and returns the value to use;
ValueError or TypeError says what is expected, and never quotes the value, which may be a secret. A new kind of value
is a function here; the table says which setting has it. The checks of arguments follow: they raise TypeError or
IllegalArgumentError with the argument's name, at the call. Arguments of one client alone are checked in its
``arguments.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import inf
from typing import Any, Final, TypeGuard, TypeVar

import six

from kafka.errors import IllegalArgumentError, KafkaConfigurationError
from kafka.structs import IsolationLevel, TopicPartition

K = TypeVar("K")
T = TypeVar("T")

Check = Callable[[Any], Any]
"""Takes the user's value, returns the value to use; ValueError or TypeError with what is expected."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
FOREIGN_MECHANISMS: Final[Mapping[Any, str]] = {
    "GSSAPI": "GSSAPI (Kerberos): brokers can have SCRAM or OAUTHBEARER beside it",
    "AWS_MSK_IAM": "AWS_MSK_IAM: Amazon's brokers take the same credentials by OAUTHBEARER, with its signer's token",
}
"""Mechanisms of other clients -> the alternatives, for the error."""


MAX_TOPIC_LENGTH: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_name(name: str) -> bool:
    """Whether brokers accept the name for a topic or a static member (``Topic.validate``)."""
    return bool(_LEGAL_NAME.fullmatch(name)) and name not in (".", "..") and len(name) <= MAX_TOPIC_LENGTH


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether the value is a whole number; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether the value is a number, perhaps with a fraction; a bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- settings ----------------------------------------------------------------------------------------------------------


class Secret:
    """A password as a setting: only :meth:`reveal` returns it; logs and errors show ``<secret>``."""

    __slots__ = ("_value",)

    def __init__(self, value: str | Callable[[], str]) -> None:
        self._value = value

    def reveal(self) -> str:
        """The password; errors of a function that returns it pass through."""
        if not callable(self._value):
            return self._value
        password = self._value()
        if not isinstance(password, (six.text_type, six.binary_type)):
            raise KafkaConfigurationError(
                f"a function that gives a password gave {type(password).__name__}, not a text"
            )
        return six.ensure_text(password)

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(Secret)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def integer(least: int = 0, most: float = inf) -> Check:
    """A whole number from ``least`` to ``most``; a float without a fraction counts, a bool does not."""
    expected = f"a whole number of at least {least}" + ("" if most == inf else f" and at most {most:.0f}")

    def check(value: Any) -> int:
        if not is_number(value) or value != value // 1 or not least <= value <= most:
            raise ValueError(expected)
        return int(value)

    return check


def number(least: float = 0) -> Check:
    """A number of at least ``least``, perhaps with a fraction."""
    expected = f"a number of at least {least:g}"

    def check(value: Any) -> float:
        if not is_number(value) or not least <= value < inf:
            raise ValueError(expected)
        return value

    return check


FOREVER_MS: Final = 10 * 366 * 24 * 3_600_000
"""Ten years, for ``float("inf")`` as a time-out: locks and selectors accept no infinity."""


def integer_or_inf(least: int = 0) -> Check:
    """A whole number of milliseconds; ``float("inf")`` means without limit, and becomes :data:`FOREVER_MS`."""
    whole = integer(least)
    return lambda value: FOREVER_MS if value == inf else whole(value)


def number_or_inf(least: float = 0) -> Check:
    """A number of at least ``least``; ``float("inf")`` means without limit."""

    def check(value: Any) -> float:
        if not is_number(value) or not value >= least:
            raise ValueError(f"a number of at least {least:g}, or float('inf')")
        return value

    return check


def iteration_limit(value: Any) -> float:
    """A number of milliseconds; ``float("inf")`` and -1 mean without limit."""
    limit_ms: float = inf if value == -1 else number_or_inf()(value)
    return limit_ms


def boolean(value: Any) -> bool:
    """True or False; 1 and 0 count as such."""
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError("True or False")
    return bool(value)


def text(value: Any) -> str:
    """A text; bytes are taken as UTF-8."""
    if not isinstance(value, (six.text_type, six.binary_type)):
        raise ValueError("a text")
    return six.ensure_text(value)


def name_text(value: Any) -> str:
    """A text that is not empty."""
    name = text(value)
    if not name:
        raise ValueError("a text that is not empty")
    return name


def secret(value: Any) -> Secret:
    """A password: a text that is not empty."""
    return value if isinstance(value, Secret) else Secret(name_text(value))


def secret_or_function(value: Any) -> Secret:
    """A password, or a function without arguments that returns it when it is needed."""
    return Secret(value) if callable(value) and not isinstance(value, Secret) else secret(value)


def path(value: Any) -> str:
    """A path."""
    try:
        decoded = os.fsdecode(value)
    except TypeError:
        raise ValueError("a path") from None
    if not decoded:
        raise ValueError("a path that is not empty")
    if "-----BEGIN" in decoded:
        raise ValueError("the path of a PEM file, not its text")
    return decoded


def ssl_context(value: Any) -> Any:
    """An ``ssl.SSLContext``."""
    if not callable(getattr(value, "wrap_bio", None)):
        raise ValueError("an ssl.SSLContext")
    return value


def token_provider(value: Any) -> Any:
    """An object with ``token()``, and perhaps ``extensions()``; or a function that gives a token."""
    if not (callable(getattr(value, "token", None)) or callable(value)) or isinstance(value, type):
        raise ValueError("an object with token(), or a function that gives a token")
    return value


def mechanism(value: Any) -> str:
    """A supported SASL mechanism, in upper or lower case."""
    expected = "one of " + ", ".join(repr(name) for name in SASL_MECHANISMS)
    value = value.upper() if isinstance(value, str) else value
    if value in FOREIGN_MECHANISMS:
        raise ValueError(f"{expected}; this package does not have {FOREIGN_MECHANISMS[value]}")
    if value not in SASL_MECHANISMS:
        raise ValueError(expected)
    return str(value)


def servers(value: Any) -> tuple[str, ...]:
    """One text of servers separated by commas, or an iterable of such texts. As in Java's and kafka-python's clients,
    a protocol before a server (``SSL://host:port``, copied from a broker's settings) is ignored."""
    expected = "HOST[:PORT], several in a list or separated by commas"
    if isinstance(value, (six.text_type, six.binary_type)):
        value = [value]
    try:
        parts = [part.strip() for entry in value for part in text(entry).split(",")]
    except TypeError:
        raise ValueError(expected) from None
    if not any(parts):
        raise ValueError(expected)
    return tuple(_LISTENER.sub("", part) for part in parts if part)


_LISTENER: Final = re.compile(f"(?:{'|'.join(SECURITY_PROTOCOLS)})://")
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
"""ISO 8601 in the form that Java's ``Duration`` reads: days are 24 hours; no years, months or weeks."""
_FORMER_RESETS: Final = {"smallest": "earliest", "largest": "latest"}


def offset_reset(value: Any) -> str:
    """Where positions are reset to (KIP-1106). A duration is returned as its seconds: ``by_duration:PT90.5S``."""
    expected = "'latest', 'earliest', 'none' or 'by_duration:' with an ISO 8601 duration (PnDTnHnMn.nS), not negative"
    policy = _FORMER_RESETS.get(text(value), text(value))
    if policy in ("latest", "earliest", "none"):
        return policy
    kind, _, duration = policy.partition(":")
    parts = _DURATION.fullmatch(duration)
    if kind != "by_duration" or parts is None or not any(parts.groups()[1:]):
        raise ValueError(expected)
    sign, days, hours, minutes, seconds, fraction = parts.groups()
    total = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    part = Decimal(f"0.{fraction or 0}")
    exact = (total - part if (seconds or "").startswith("-") else total + part) * (-1 if sign == "-" else 1)
    if exact < 0:
        raise ValueError(expected)
    return f"by_duration:PT{exact:f}S"


def one_of(*allowed: Any) -> Check:
    """One of a few values."""

    def check(value: Any) -> Any:
        if value not in allowed or isinstance(value, bool) != any(a is value for a in allowed if isinstance(a, bool)):
            raise ValueError("one of " + ", ".join(repr(a) for a in allowed))
        return value

    return check


def word_of(*allowed: str) -> Check:
    """One of a few words, in upper or lower case."""
    exact = one_of(*allowed)
    by_lower = {word.lower(): word for word in allowed}
    return lambda value: exact(by_lower.get(value.lower(), value) if isinstance(value, str) else value)


def isolation_level(value: Any) -> str:
    """An IsolationLevel, its name or its number: as the name in small letters."""
    return IsolationLevel.of(value).name.lower()


def rack(value: Any) -> str:
    """A text; None is the empty one."""
    return "" if value is None else text(value)


def optional(check: Check) -> Check:
    """None, or a value that ``check`` accepts."""
    return lambda value: None if value is None else check(value)


def serializer(value: Any) -> Any:
    """A function of the value, or an object with ``serialize(topic, headers, data)``."""
    if not (callable(value) or callable(getattr(value, "serialize", None))):
        raise ValueError("a function of the value, or an object with serialize(topic, headers, data)")
    return value


def deserializer(value: Any) -> Any:
    """A function of the bytes, or an object with ``deserialize(topic, headers, data)``."""
    if not (callable(value) or callable(getattr(value, "deserialize", None))):
        raise ValueError("a function of the bytes, or an object with deserialize(topic, headers, data)")
    return value


def partitioner(value: Any) -> Any:
    """A name, a function ``(key, all_partitions, available_partitions)``, or an object with kafka-python 3's
    ``partition``; or a class of such objects."""
    if isinstance(value, str):
        if value in ("sticky", "round_robin"):
            return value
    elif callable(value) or callable(getattr(value, "partition", None)):
        return value
    raise ValueError(
        "'sticky', 'round_robin', a function (key, all partitions, available partitions), or an object with "
        "partition(topic, key, serialized_key, value, serialized_value, cluster)"
    )


INTERCEPTOR_METHODS: Final = ("on_send", "on_acknowledgement", "on_consume", "on_commit")


def interceptors(value: Any) -> tuple[Any, ...]:
    """Objects, or classes of them, with at least one of :data:`INTERCEPTOR_METHODS`."""
    expected = (
        "a list of objects with on_send(record) or on_acknowledgement(metadata, error), for a consumer "
        "on_consume(records) or on_commit(offsets)"
    )
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(expected)
    objects = tuple(value)
    if not all(any(callable(getattr(one, name, None)) for name in INTERCEPTOR_METHODS) for one in objects):
        raise ValueError(expected)
    return objects


def instance_id(value: Any) -> str:
    """The name of a static member, as brokers accept it."""
    name = text(value)
    if not is_legal_name(name):
        raise ValueError("1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither '.' nor '..'")
    return name


def assignors(value: Any) -> tuple[Any, ...]:
    """Assignors of a classic group: names, classes or objects, the preferred first; one alone is a list of one."""
    expected = "a list of assignors: names such as 'range', classes of kafka.coordinator.assignors, or of your own"
    if isinstance(value, (str, bytes)):
        return tuple(name.strip() for name in text(value).split(","))
    offered = tuple(value) if isinstance(value, Iterable) else (value,)
    if not offered or any(one is None for one in offered):
        raise ValueError(expected)
    return offered


def function(value: Any) -> Any:
    """A callable."""
    if not callable(value):
        raise ValueError("a function")
    return value


REPORTER_METHODS: Final = ("configure", "init", "metric_change", "metric_removal", "close")


def reporters(value: Any) -> tuple[Any, ...]:
    """Metrics reporters, or classes of them."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError("a list of metrics reporters, or of their classes")
    objects = tuple(value)
    for each in objects:
        if not any(callable(getattr(each, name, None)) for name in REPORTER_METHODS):
            raise ValueError(f"metrics reporters, which have some of {', '.join(REPORTER_METHODS)}")
    return objects


def acks(value: Any) -> int:
    """0, 1, -1 or "all"."""
    if value == "all":
        return -1
    if isinstance(value, bool) or value not in (0, 1, -1):
        raise ValueError("0, 1, -1 or 'all'")
    return int(value)


def compression_type(value: Any) -> str | None:
    """None, or the name of one of Kafka's codecs."""
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    if value is not None and value not in names:
        raise ValueError("None or one of " + ", ".join(repr(name) for name in names))
    return None if value == "none" else value


def software_text(value: Any) -> str:
    """A name or version of software as brokers accept it (KIP-511); they refuse the connection for another."""
    name = text(value)
    inner = name.replace("-", "a").replace(".", "a")
    if not (inner.isascii() and inner.isalnum() and name[0].isalnum() and name[-1].isalnum()):
        raise ValueError("letters, digits, '-' and '.', with a letter or digit at both ends")
    return name


def socket_options(value: Any) -> tuple[tuple[Any, ...], ...]:
    """A list of (level, name, value) as ``socket.setsockopt`` takes them."""
    expected = "a list of (level, name, value) for socket.setsockopt()"
    try:
        options = tuple(tuple(option) for option in value)
    except TypeError:
        raise ValueError(expected) from None
    for option in options:
        if len(option) not in (3, 4) or not all(isinstance(part, int) for part in option[:2]):
            raise ValueError(expected)
    return options


def topics(value: Any) -> tuple[str, ...]:
    """A list or set of topics' names."""
    if isinstance(value, (six.text_type, six.binary_type)):
        raise ValueError("a list of topics, not one text")
    try:
        return tuple(name_text(name) for name in value)
    except TypeError:
        raise ValueError("a list of topics") from None


def release(value: Any) -> tuple[int, ...] | None:
    """A broker's release as "0.10.2" or (0, 10, 2); None, or "auto", to find it out."""
    if value in (None, "auto"):
        return None
    expected = "a release such as '0.10.2' or (0, 10, 2)"
    parts = value.split(".") if isinstance(value, str) else value
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if not 2 <= len(numbers) <= 4 or numbers < (0, 8):
        raise ValueError(expected)
    return numbers


# -- arguments of methods ----------------------------------------------------------------------------------------------

def topic_name(topic: Any) -> str:
    """A topic's name as text; TypeError, or IllegalArgumentError for a name that every broker rejects."""
    if not isinstance(topic, (six.text_type, six.binary_type)):
        raise TypeError(f"topics: each has to be a text, not {type(topic).__name__}")
    name = six.ensure_text(topic)
    reason = invalid_topic_reason(name)
    if reason is not None:
        raise IllegalArgumentError(reason)
    return name


def invalid_topic_reason(name: str) -> str | None:
    """Why every broker rejects a topic of that name (``Topic.validate``); None for a valid one."""
    if is_legal_name(name):
        return None
    return (
        f"{name[:300]!r}: a topic's name has 1 to {MAX_TOPIC_LENGTH} of the characters a-z A-Z 0-9 . _ - "
        "and is neither '.' nor '..'"
    )


def topic_names(topics: Any) -> list[str]:
    """Topics' names as texts, each once."""
    if isinstance(topics, (six.text_type, six.binary_type)):
        raise TypeError("topics: a list of texts is needed, not one text")
    return list(dict.fromkeys(topic_name(topic) for topic in topics))


def max_records(value: Any, default: int) -> int:
    """The most records that a call returns; None is the default. TypeError or IllegalArgumentError."""
    if value is None:
        return default
    if not is_integer(value):
        raise TypeError(f"max_records: a whole number is needed, not {value!r}")
    if value < 1:
        raise IllegalArgumentError(f"max_records: at least 1, not {value}")
    return value


def timeout_s(timeout_ms: Any, default_s: float) -> float:
    """``timeout_ms`` in seconds; None is the default. IllegalArgumentError unless it is a number of at least 0."""
    if timeout_ms is None:
        return default_s
    if not is_number(timeout_ms) or not timeout_ms >= 0:
        raise IllegalArgumentError(f"timeout_ms: a number of at least 0 is needed, not {timeout_ms!r}")
    return timeout_ms / 1000


_MAX_DURATION_MS: Final = 2**62
"""Above every real duration."""


def mapping_of(value: Mapping[K, T], what: str, form: str) -> dict[K, T]:
    """A copy of a mapping; IllegalArgumentError for anything else. ``what`` names the argument, ``form`` what is
    expected."""
    if not isinstance(value, Mapping):
        raise IllegalArgumentError(f"{what}={value!r}: {form}")
    return dict(value)


def list_of(value: Iterable[T], what: str, form: str) -> list[T]:
    """A copy of an iterable; IllegalArgumentError for one text, or what cannot be iterated."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise IllegalArgumentError(f"{what}={value!r}: {form}")
    return list(value)


def numbers_of(value: Iterable[int], what: str, form: str) -> list[int]:
    """A copy of an iterable of whole numbers; IllegalArgumentError for anything else."""
    numbers = list_of(value, what, form)
    if not all(map(is_integer, numbers)):
        raise IllegalArgumentError(f"{what}={value!r}: {form}")
    return numbers


def partition_of(value: TopicPartition | tuple[str, int], what: str) -> TopicPartition:
    """A pair of a topic's name and a number, as TopicPartition; IllegalArgumentError for anything else."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and is_integer(number):
            return TopicPartition(topic, number)
    raise IllegalArgumentError(f"{what}: {value!r}: a TopicPartition is needed")


def partitions_of(value: Iterable[TopicPartition], what: str) -> list[TopicPartition]:
    """A copy of an iterable of such pairs; IllegalArgumentError for anything else, one pair included."""
    return [partition_of(each, what) for each in list_of(value, what, "a list of TopicPartition is needed")]


def node_ids(value: Iterable[int] | None) -> list[int] | None:
    """The ids in ``broker_ids``; None means all brokers."""
    return None if value is None else numbers_of(value, "broker_ids", "a list of node ids is needed")


def milliseconds(what: str, value: float) -> float:
    """A duration in ms, as a number; IllegalArgumentError for anything else."""
    if not is_number(value) or not -_MAX_DURATION_MS <= value <= _MAX_DURATION_MS:
        raise IllegalArgumentError(f"{what}={value!r}: a number of milliseconds is needed")
    return value


# -- deserializers -----------------------------------------------------------------------------------------------------

Deserialize = Callable[[str, Any, Any], Any]
"""``(topic, headers, bytes or None) -> value``."""


def deserializer_for(value: Any) -> Deserialize | None:
    """``value`` is a function of the bytes, an object with ``deserialize(topic, headers, data)`` (kafka-python 3) or
    one with ``deserialize(topic, data)`` (kafka-python 2); None leaves the bytes alone. It is called with None for
    a missing key or value, too."""
    if value is None:
        return None
    method = getattr(value, "deserialize", None)
    if method is None:
        return lambda _topic, _headers, data: value(data)
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is not None and code.co_argcount - (1 if hasattr(method, "__self__") else 0) == 2:
        return lambda topic, _headers, data: method(topic, data)
    run: Deserialize = method
    return run
