"""Every message class says what Kafka's own schemas say; an API added to the registry is compared by itself."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.protocol.registry import NAMES, REGISTRY, RequestHeader, ResponseHeader
from kafka.wire.message import Message, Request, Response
from test.support.schema_views import class_view, parse_range, schema_view, without_names
from test.support.schemas import load_schemas

REFERENCE = "4.3.0"
WITH_DROPPED_VERSIONS = "2.8.2"

CLASSES: list[type[Message]] = [cls for api in REGISTRY.values() for cls in (api.request, api.response)]
CLASSES += [RequestHeader, ResponseHeader]


@pytest.fixture(scope="module")
def reference() -> dict[str, dict[str, Any]]:
    return load_schemas(REFERENCE)


@pytest.fixture(scope="module")
def older() -> dict[str, dict[str, Any]]:
    return load_schemas(WITH_DROPPED_VERSIONS)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_class_says_what_the_schema_of_the_reference_release_says(
    cls: type[Message], reference: dict[str, dict[str, Any]]
) -> None:
    schema = reference[cls.__name__]
    first, last = parse_range(schema["validVersions"]) or (0, -1)
    assert cls.max_version == last
    assert cls.min_version <= first
    for version in range(first, last + 1):
        assert class_view(cls, version) == schema_view(schema, version), f"version {version}"
        flexible = parse_range(schema["flexibleVersions"])
        assert cls.flexible(version) == (flexible is not None and flexible[0] <= version), f"version {version}"
    if issubclass(cls, (Request, Response)):
        assert cls.api_key == schema["apiKey"]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_dropped_version_has_the_types_and_positions_of_the_older_release(
    cls: type[Message], reference: dict[str, dict[str, Any]], older: dict[str, dict[str, Any]]
) -> None:
    """Names are not compared: many fields were renamed between 2.8.2 and 4.x."""
    first, _ = parse_range(reference[cls.__name__]["validVersions"]) or (0, -1)
    if cls.min_version == first:
        if cls.__name__ in older:
            then, _ = parse_range(older[cls.__name__]["validVersions"]) or (0, -1)
            assert then >= first or cls is RequestHeader, f"{cls.__name__} lacks versions {then} to {first - 1}"
        return
    schema = older[cls.__name__]
    oldest, _ = parse_range(schema["validVersions"]) or (0, -1)
    assert cls.min_version == oldest
    for version in range(oldest, first):
        assert without_names(class_view(cls, version)) == without_names(schema_view(schema, version)), version


def test_every_name_of_an_api_is_kafkas(reference: dict[str, dict[str, Any]]) -> None:
    theirs = {
        schema["apiKey"]: schema["name"].removesuffix("Request")
        for schema in reference.values()
        if schema["type"] == "request"
    }
    assert {key: name for key, name in NAMES.items() if key in theirs} == theirs


def test_a_request_and_its_response_are_a_pair() -> None:
    for api in REGISTRY.values():
        assert api.request.response_type() is api.response
        assert api.request.api_key == api.response.api_key == api.key
        for attribute in ("min_version", "max_version", "flexible_since"):
            assert getattr(api.request, attribute) == getattr(api.response, attribute)
