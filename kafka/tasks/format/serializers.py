"""Formats of payloads by name: JSON, msgpack and pickle.

    name      media type (the header content-type)    carries
    json      application/json (left out)             plain values (:mod:`kafka.tasks.format.plain_values`); the default
    msgpack   application/vnd.msgpack                 the same, with bytes of its own; needs the package msgpack
    pickle    application/x-python-serialize          any object that Python pickles; reading one may run any code

A payload in pickle is read only where the app's ``accept_content`` has it. A new format is one more row of
:data:`SERIALIZERS`, and its media types in ``_MEDIA_TYPES``.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.plain_values import from_plain

_SURROGATE_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def _make_json_text() -> Callable[[Any], str]:
    """``json.JSONEncoder.encode``, which takes 0.7 us for each value to make its encoder in C, with one of these for
    all values, where Python has it."""
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    make_encoder = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        return encoder.encode
    pieces = make_encoder(None, encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)

    def json_text(value: Any) -> str:
        return "".join(pieces(value, 0))

    return json_text


_json_text = _make_json_text()
_json_string = json.encoder.encode_basestring
_json_value = json.JSONDecoder().raw_decode
_json_value_with_marks = json.JSONDecoder(object_hook=from_plain).raw_decode


class PayloadFormat:
    """One format. ``encode`` takes plain values (unless ``takes_objects``) and ``decode`` gives values; both raise an
    ``Exception`` for what they cannot take. ``label`` is for texts, ``package`` what must be installed.
    """

    __slots__ = ("decode", "encode", "has_bytes", "label", "media_type", "name", "package", "takes_objects")

    def __init__(
        self,
        name: str,
        label: str,
        media_type: str | None,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        has_bytes: bool = False,
        takes_objects: bool = False,
        package: str | None = None,
    ) -> None:
        self.name = name
        self.label = label
        self.media_type = media_type
        self.encode = encode
        self.decode = decode
        self.has_bytes = has_bytes
        self.takes_objects = takes_objects
        self.package = package

    @property
    def is_installed(self) -> bool:
        """Whether it can be used here."""
        if self.package is None:
            return True
        try:
            import_module(self.package)
        except ImportError:
            return False
        return True

    def __repr__(self) -> str:
        return f"<PayloadFormat {self.name}>"


def json_bytes(value: Any) -> bytes:
    """Plain values as JSON in UTF-8, in which no character takes more than its size; a lone surrogate becomes its
    escape."""
    try:
        text = _json_string(value) if type(value) is str else _json_text(value)
    except ValueError:
        number = _non_finite(value)
        if number is None:
            raise
        raise ValueError(f"{number!r} is not allowed in JSON") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        if _SURROGATE_PAIR.search(text):
            raise ValueError("a str has a surrogate pair, which JSON joins to one character") from None
        return text.encode("utf-8", "backslashreplace")


def _non_finite(value: Any) -> float | None:
    """The first NaN or infinity in plain values."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((found for each in inner if (found := _non_finite(each)) is not None), None)


def json_value(data: bytes) -> Any:
    """The value in JSON. ``json.loads`` without its 3 us of preparation, for what nearly all payloads are: UTF-8, no
    blanks around."""
    try:
        text = str(data, "utf-8")
        # Quick to see: no member is named "$type", as such or with an escape.
        value, end = _json_value_with_marks(text) if "$" in text or "\\" in text else _json_value(text)
        if end == len(text):
            return value
    except ValueError:
        pass
    return json.loads(data, object_hook=from_plain)  # another encoding, blanks, or no JSON: the library says which


def _msgpack_bytes(value: Any) -> bytes:
    data: bytes = import_module("msgpack").packb(value, unicode_errors="surrogatepass")
    return data


def _msgpack_value(data: bytes) -> Any:
    unpack = import_module("msgpack").unpackb
    return unpack(data, object_hook=from_plain, strict_map_key=False, unicode_errors="surrogatepass", timestamp=3)


class PickleWarning:
    """Warns once in a process that a job is enqueued in pickle."""

    __slots__ = ("is_given",)

    def __init__(self) -> None:
        self.is_given = False

    def give(self) -> None:
        """Warn, if that was not done before."""
        if not self.is_given:
            self.is_given = True
            warnings.warn(
                "a job is enqueued with serializer='pickle': every client that can write to its topic can run any "
                "code in the workers that accept pickle",
                stacklevel=2,
            )


pickle_warning = PickleWarning()


def _pickle_bytes(value: Any) -> bytes:
    data: bytes = import_module("pickle").dumps(value, protocol=5)
    return data


def _pickle_value(data: bytes) -> Any:
    return import_module("pickle").loads(data)


JSON: Final = PayloadFormat("json", "JSON", None, json_bytes, json_value)
SERIALIZERS: Final[Mapping[str, PayloadFormat]] = {
    "json": JSON,
    "msgpack": PayloadFormat(
        "msgpack", "msgpack", "application/vnd.msgpack", _msgpack_bytes, _msgpack_value, True, False, "msgpack"
    ),
    "pickle": PayloadFormat(
        "pickle", "pickle", "application/x-python-serialize", _pickle_bytes, _pickle_value, True, True
    ),
}
"""By the name of the option ``serializer``."""

SAFE: Final = frozenset({"json", "msgpack"})
"""Names of formats whose reading runs no code."""

_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "application/json": "json",
    "application/vnd.msgpack": "msgpack",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/x-python-serialize": "pickle",
}


def serializer_of(content_type: str | None) -> PayloadFormat | None:
    """The format of a payload with this header; None: an unknown one."""
    if content_type is None:
        return JSON
    media_type = content_type.partition(";")[0].strip().lower()
    name = _MEDIA_TYPES.get(media_type)
    return None if name is None else SERIALIZERS[name]


def unreadable(content_type: str | None, accepted: frozenset[str]) -> str | None:
    """Why a payload with this header is not read where the formats ``accepted`` are; None: it is read."""
    if content_type is None:
        return None
    serializer = serializer_of(content_type)
    if serializer is None:
        return f"unknown content type {content_type!r}"
    if serializer.name not in accepted:
        return f"the content type {content_type} ({serializer.name}) is not in accept_content"
    if not serializer.is_installed:
        return f"the content type {content_type} needs the package {serializer.package}, which is not installed"
    return None


def reader_of(content_type: str | None, accepted: frozenset[str], cause: str) -> PayloadFormat:
    """The format to read a payload with; :class:`BadRecord` of ``cause`` where :func:`unreadable` says why not."""
    reason = unreadable(content_type, accepted)
    if reason is not None:
        raise BadRecord(cause, reason)
    serializer = serializer_of(content_type)
    assert serializer is not None  # unreadable() has said so
    return serializer


def check_serializer(option: str, value: Any) -> str:
    """``value`` itself when it is the name of a format that can be used here; an error that says what to do else."""
    serializer = SERIALIZERS.get(value) if isinstance(value, str) else None
    if serializer is None:
        raise IllegalArgumentError(f"{option} must be one of {', '.join(map(repr, SERIALIZERS))}, not {value!r}")
    if not serializer.is_installed:
        raise IllegalArgumentError(
            f"{option}={value!r} needs the package {serializer.package}: pip install kafka-taskloop[{value}]"
        )
    return serializer.name
