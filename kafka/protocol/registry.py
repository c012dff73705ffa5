"""API key -> name, request and response class; and the headers of all messages (protocol guide, "Request and Response
Headers"). Modules of message families are imported on first use.

``NAMES`` lists every API of Apache Kafka 4.3.0; ``FAMILIES`` the ones that have classes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from kafka.protocol.api_key import ApiKey
from kafka.wire.message import Message, Request, Response, field
from kafka.wire.types import Int16, Int32, String


class RequestHeader(Message, versions=(0, 2), flexible=2):
    """The header of every request. Version 0 is only for ControlledShutdown v0; 2 has tagged fields."""

    is_counted = True

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(default="", since=1, null_since=1, flexible=False)


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    """The header of every response. Version 1 has tagged fields. ``framing.py`` chooses the versions of both
    headers."""

    correlation_id: Int32


NAMES: Final[dict[int, str]] = {key.value: key.name for key in ApiKey}
"""Every API key of release 4.3.0, with the name that Kafka gives it."""

FAMILIES: Final[dict[str, tuple[int, ...]]] = {
    "produce": (0,),
    "fetch": (1,),
    "list_offsets": (2,),
    "metadata": (3, 60),
    "offsets": (8, 9, 23, 47),
    "coordinator": (10,),
    "groups": (11, 12, 13, 14, 15, 16, 42, 68, 69),
    "sasl": (17, 36, 50, 51),
    "api_versions": (18,),
    "topics": (19, 20, 21, 37, 75),
    "transactions": (22, 24, 25, 26, 27, 28, 61, 65, 66),
    "configs": (32, 33, 44, 74),
    "acls": (29, 30, 31),
    "log_dirs": (34, 35),
    "delegation_tokens": (38, 39, 40, 41),
    "reassignments": (43, 45, 46),
    "quotas": (48, 49),
    "quorum": (55, 57, 64, 80, 81),
    "telemetry": (71, 72),
    "share": (76, 77, 78, 79, 90, 91, 92),
}
"""Module of this package -> the API keys whose messages it declares."""


class Api(NamedTuple):
    """One API: its key, its name, and its two classes."""

    key: int
    name: str
    request: type[Request[Any]]
    response: type[Response]

    @property
    def min_version(self) -> int:
        """The oldest version that our classes speak."""
        return self.request.min_version

    @property
    def max_version(self) -> int:
        """The newest version that our classes speak."""
        return self.request.max_version


class Registry(Mapping[int, Api]):
    """Read-only mapping of API key to :class:`Api`."""

    def __init__(self) -> None:
        self._modules = {key: module for module, keys in FAMILIES.items() for key in keys}
        self._loaded: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        api = self._loaded.get(key)
        if api is None:
            module = import_module(f"kafka.protocol.{self._modules[key]}")
            name = NAMES[key]
            request = cast("type[Request[Any]]", getattr(module, name + "Request"))
            response = cast("type[Response]", getattr(module, name + "Response"))
            api = self._loaded[key] = Api(key, name, request, response)
        return api

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules


REGISTRY: Final = Registry()
