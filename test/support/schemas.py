"""The schemas of Kafka's messages, as the ``kafka-clients`` jar of a release holds them.

They are JSON with ``//`` comments, one file for each message, under ``common/message`` in the jar. This only reads
them; what they mean, and how our classes are compared with them, is the protocol tests' matter.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
import zipfile
from typing import Any

from test.support import jars
from test.support.apache_kafka import refuse

_FOLDER = "common/message/"
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def schema_jar(version: str) -> pathlib.Path:
    """The jar of ``version``; where it cannot be had, the calling test is skipped, or fails in CI."""
    try:
        return jars.schema_jar(version)
    except jars.Unavailable as reason:
        refuse(f"needs the message schemas of Apache Kafka {version}: {reason}")


def load_schemas(version: str) -> dict[str, dict[str, Any]]:
    """Message name (``"FetchRequest"``) -> its schema, for every request, response, header and data record."""
    return _read(schema_jar(version))


@functools.cache
def _read(jar: pathlib.Path) -> dict[str, dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(_FOLDER) and name.endswith(".json"):
                schema = parse_schema(archive.read(name).decode())
                schemas[schema["name"]] = schema
    return schemas


def parse_schema(text: str) -> dict[str, Any]:
    """One schema file: JSON in which whole lines may be comments.

    Only the first value counts, as with Kafka's own reader: DescribeProducersRequest of 2.8.2 closes two brackets too
    many.
    """
    schema: dict[str, Any]
    schema, _ = json.JSONDecoder().raw_decode(_COMMENT.sub("", text).lstrip())
    return schema
