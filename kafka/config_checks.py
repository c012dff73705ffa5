"""What a setting may be: the checks of :mod:`kafka.config`'s table, and the form in which secrets are kept.

A check takes what the user gave and returns the value to use; ValueError or TypeError says what would be right, and
never quotes what was given. A new kind of value is a function here; which setting has it, the table says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import inf
from typing import Any, Final

import six

from kafka.errors import KafkaConfigurationError
from kafka.structs import IsolationLevel

Check = Callable[[Any], Any]
"""Takes what the user gave, returns the value to use; ValueError or TypeError with what would be right."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
FOREIGN_MECHANISMS: Final[Mapping[Any, str]] = {
    "GSSAPI": "GSSAPI (Kerberos): brokers can have SCRAM or OAUTHBEARER beside it",
    "AWS_MSK_IAM": "AWS_MSK_IAM: Amazon's brokers take the same credentials by OAUTHBEARER, with its signer's token",
}
"""Mechanisms that people ask for -> what to say to them."""


class Secret:
    """A password as a setting: only :meth:`reveal` shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str | Callable[[], str]) -> None:
        self._value = value

    def reveal(self) -> str:
        """The password; errors of a function that gives it pass through."""
        if not callable(self._value):
            return self._value
        found = self._value()
        if not isinstance(found, (six.text_type, six.binary_type)):
            raise KafkaConfigurationError(f"a function that gives a password gave {type(found).__name__}, not a text")
        return six.ensure_text(found)

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
    wanted = f"a whole number of at least {least}" + ("" if most == inf else f" and at most {most:.0f}")

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
            raise ValueError(wanted)
        if not least <= value <= most:
            raise ValueError(wanted)
        return int(value)

    return check


def number(least: float = 0) -> Check:
    """A number of at least ``least``, perhaps with a fraction."""
    wanted = f"a number of at least {least:g}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < inf:
            raise ValueError(wanted)
        return value

    return check


FOREVER_MS: Final = 10 * 366 * 24 * 3_600_000
"""Ten years, for ``float("inf")`` where something waits: locks and selectors take no infinity."""


def integer_or_inf(least: int = 0) -> Check:
    """A whole number of milliseconds; ``float("inf")`` means without limit, and becomes :data:`FOREVER_MS`."""
    whole = integer(least)
    return lambda value: FOREVER_MS if value == inf else whole(value)


def number_or_inf(least: float = 0) -> Check:
    """A number of at least ``least``; ``float("inf")`` means without limit."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise ValueError(f"a number of at least {least:g}, or float('inf')")
        return value

    return check


def iteration_limit(value: Any) -> float:
    """A number of milliseconds; ``float("inf")`` and -1 mean without limit."""
    found: float = inf if value == -1 else number_or_inf()(value)
    return found


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
    """A text with something in it."""
    found = text(value)
    if not found:
        raise ValueError("a text that is not empty")
    return found


def secret(value: Any) -> Secret:
    """A password: a text that is not empty."""
    return value if isinstance(value, Secret) else Secret(name_text(value))


def secret_or_function(value: Any) -> Secret:
    """The same, or a function without arguments that gives it when it is needed."""
    return Secret(value) if callable(value) and not isinstance(value, Secret) else secret(value)


def path(value: Any) -> str:
    """A path."""
    try:
        found = os.fsdecode(value)
    except TypeError:
        raise ValueError("a path") from None
    if not found:
        raise ValueError("a path that is not empty")
    if "-----BEGIN" in found:
        raise ValueError("the path of a PEM file, not its text")
    return found


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
    """A SASL mechanism that is spoken here, in upper or lower case."""
    wanted = "one of " + ", ".join(repr(name) for name in SASL_MECHANISMS)
    value = value.upper() if isinstance(value, str) else value
    if value in FOREIGN_MECHANISMS:
        raise ValueError(f"{wanted}; this package does not have {FOREIGN_MECHANISMS[value]}")
    if value not in SASL_MECHANISMS:
        raise ValueError(wanted)
    return str(value)


def servers(value: Any) -> tuple[str, ...]:
    """One text of servers separated by commas, or an iterable of such texts. As in Java's and kafka-python's clients,
    a protocol in front (``SSL://host:port``, copied from a broker's settings) is passed over."""
    wanted = "HOST[:PORT], several in a list or separated by commas"
    if isinstance(value, (six.text_type, six.binary_type)):
        value = [value]
    try:
        parts = [part.strip() for entry in value for part in text(entry).split(",")]
    except TypeError:
        raise ValueError(wanted) from None
    if not any(parts):
        raise ValueError(wanted)
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
    wanted = "'latest', 'earliest', 'none' or 'by_duration:' with an ISO 8601 duration (PnDTnHnMn.nS), not negative"
    found = _FORMER_RESETS.get(text(value), text(value))
    if found in ("latest", "earliest", "none"):
        return found
    kind, _, duration = found.partition(":")
    parts = _DURATION.fullmatch(duration)
    if kind != "by_duration" or parts is None or not any(parts.groups()[1:]):
        raise ValueError(wanted)
    sign, days, hours, minutes, seconds, fraction = parts.groups()
    total = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    part = Decimal(f"0.{fraction or 0}")
    exact = (total - part if (seconds or "").startswith("-") else total + part) * (-1 if sign == "-" else 1)
    if exact < 0:
        raise ValueError(wanted)
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
    """None, or what ``check`` takes."""
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
    """Objects, or classes of them, with at least one of the methods that are called."""
    wanted = (
        "a list of objects with on_send(record) or on_acknowledgement(metadata, error), for a consumer "
        "on_consume(records) or on_commit(offsets)"
    )
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(wanted)
    found = tuple(value)
    if not all(any(callable(getattr(one, name, None)) for name in INTERCEPTOR_METHODS) for one in found):
        raise ValueError(wanted)
    return found


def instance_id(value: Any) -> str:
    """The name of a static member: what brokers take as one."""
    found = text(value)
    legal = found.replace(".", "a").replace("_", "a").replace("-", "a")
    if not (legal.isascii() and legal.isalnum()) or found in (".", "..") or len(found) > 249:
        raise ValueError("1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither '.' nor '..'")
    return found


def assignors(value: Any) -> tuple[Any, ...]:
    """Assignors of a classic group: names, classes or objects, the most wanted first; one is taken as a list of one."""
    wanted = "a list of assignors: names such as 'range', classes of kafka.coordinator.assignors, or of your own"
    if isinstance(value, (str, bytes)):
        return tuple(name.strip() for name in text(value).split(","))
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if not found or any(one is None for one in found):
        raise ValueError(wanted)
    return found


def function(value: Any) -> Any:
    """Something to call."""
    if not callable(value):
        raise ValueError("a function")
    return value


REPORTER_METHODS: Final = ("configure", "init", "metric_change", "metric_removal", "close")


def reporters(value: Any) -> tuple[Any, ...]:
    """Metrics reporters, or classes of them."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError("a list of metrics reporters, or of their classes")
    found = tuple(value)
    for each in found:
        if not any(callable(getattr(each, name, None)) for name in REPORTER_METHODS):
            raise ValueError(f"metrics reporters, which have some of {', '.join(REPORTER_METHODS)}")
    return found


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
    """What brokers take for the name and version of software (KIP-511); they refuse the connection for another."""
    found = text(value)
    inner = found.replace("-", "a").replace(".", "a")
    if not (inner.isascii() and inner.isalnum() and found[0].isalnum() and found[-1].isalnum()):
        raise ValueError("letters, digits, '-' and '.', with a letter or digit at both ends")
    return found


def socket_options(value: Any) -> tuple[tuple[Any, ...], ...]:
    """A list of (level, name, value) as ``socket.setsockopt`` takes them."""
    wanted = "a list of (level, name, value) for socket.setsockopt()"
    try:
        found = tuple(tuple(option) for option in value)
    except TypeError:
        raise ValueError(wanted) from None
    for option in found:
        if len(option) not in (3, 4) or not all(isinstance(part, int) for part in option[:2]):
            raise ValueError(wanted)
    return found


def topic_names(value: Any) -> tuple[str, ...]:
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
    wanted = "a release such as '0.10.2' or (0, 10, 2)"
    parts = value.split(".") if isinstance(value, str) else value
    try:
        found = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise ValueError(wanted) from None
    if not 2 <= len(found) <= 4 or found < (0, 8):
        raise ValueError(wanted)
    return found
