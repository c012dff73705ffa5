"""Every class of a state record says what the schemas in Apache Kafka's coordinators say, and reads what they wrote."""

from __future__ import annotations

import pathlib
import zipfile
from typing import Any

import pytest

from kafka.broker.share.state_store import ShareKey, ShareStateStore
from kafka.broker.share.states import ACKNOWLEDGED, AVAILABLE, StateRange
from kafka.broker.state import records
from kafka.broker.state.records import (
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_value,
    encode_key,
    encode_value,
)
from kafka.errors import KafkaStorageError
from kafka.wire.message import Message
from kafka.wire.types import ZERO_UUID
from test.broker.share.memory_journal import MemoryJournal
from test.broker.state.keys import CLASSES, GROUP_KEYS, KEYS, SHARE_KEYS
from test.support import jars
from test.support.apache_kafka import LATEST, require_apache_kafka
from test.support.schema_views import class_view, parse_range, schema_view
from test.support.schemas import parse_schema


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    require_apache_kafka()
    folder = pathlib.Path(jars.broker_classpath(LATEST).removesuffix("*"))
    found: dict[str, dict[str, Any]] = {}
    for jar in sorted({jar for jar, _ in CLASSES}):
        with zipfile.ZipFile(folder / f"{jar}-{LATEST}.jar") as archive:
            for path in archive.namelist():
                if path.startswith("common/message/") and path.endswith(".json"):
                    schema = with_ranges(parse_schema(archive.read(path).decode()))
                    found[schema["name"]] = schema
    return found


def with_ranges(schema: dict[str, Any]) -> dict[str, Any]:
    """A field that is tagged and says no more has the versions in which it is tagged."""

    def fill(fields: list[dict[str, Any]]) -> None:
        for each in fields:
            each.setdefault("versions", each.get("taggedVersions"))
            fill(each.get("fields", []))

    fill(schema["fields"])
    return schema


@pytest.mark.parametrize(("jar", "cls"), CLASSES, ids=lambda value: getattr(value, "__name__", value))
def test_a_record_says_what_kafkas_schema_says(
    jar: str, cls: type[Message], schemas: dict[str, dict[str, Any]]
) -> None:
    schema = schemas[cls.__name__]
    assert schema["type"] == ("coordinator-key" if cls.__name__.endswith("Key") else "coordinator-value")
    assert schema["apiKey"] == cls.api_key
    first, last = parse_range(schema["validVersions"]) or (0, -1)
    assert (cls.min_version, cls.max_version) == (first, last)
    flexible = parse_range(schema["flexibleVersions"])
    for version in range(first, last + 1):
        assert class_view(cls, version) == schema_view(schema, version), f"version {version}"
        assert cls.flexible(version) == (flexible is not None and flexible[0] <= version), f"version {version}"


def test_every_key_has_its_value_and_is_decoded() -> None:
    for jar, cls in CLASSES:
        if cls.__name__.endswith("Key"):
            keys = KEYS[jar]
            empty = cls(**{name: 0 if name == "partition" else "x" for name in cls.fields if name != "topic_id"}
                        | ({"topic_id": ZERO_UUID} if "topic_id" in cls.fields else {}))  # fmt: skip
            assert keys.decode(encode_key(empty)) == empty
            assert getattr(records, cls.__name__.removesuffix("Key") + "Value").api_key == cls.api_key


def test_a_kind_that_is_not_known_is_passed_over_and_nonsense_is_an_error() -> None:
    assert GROUP_KEYS.decode(b"\0\x63whatever") is None
    for data in (b"", b"\0", encode_key(OffsetCommitKey(group="g", topic="t", partition=0))[:-1]):
        with pytest.raises(KafkaStorageError):
            GROUP_KEYS.decode(data)


def test_a_structure_that_is_null_in_a_tagged_field_is_written_as_apache_kafka_writes_it() -> None:
    recorded = bytes.fromhex(
        "0000" "0000" "0872646b61666b61" "0b2f3132372e302e302e31" "02" "0274" "01" "000493e0" "00" "01" "00" "01" "00"
    )
    found = decode_value(ConsumerGroupMemberMetadataValue, recorded)
    assert found.classic_member_metadata is None
    assert encode_value(found, 0) == recorded


@pytest.mark.parametrize("count", [0, 1, 2, 160])
def test_the_update_that_is_packed_by_hand_is_the_codecs(count: int) -> None:
    topic = MemoryJournal()
    store = ShareStateStore(topic, topic)
    key = ShareKey("g", ZERO_UUID, 3)

    class Live:
        start_offset = 5

        def state_ranges(self) -> list[StateRange]:
            return []

    store.attach(key, Live())
    changes = ([StateRange(5, 9, ACKNOWLEDGED, 1), StateRange(12, 2**40, AVAILABLE, 300)] * 80)[:count]
    store.write(key, 5, changes)
    store.write(key, 6, changes)
    name, value = topic.entries[-1]
    assert value is not None
    assert SHARE_KEYS.decode(name) == ShareUpdateKey(group_id="g", topic_id=ZERO_UUID, partition=3)
    found = decode_value(ShareUpdateValue, value)
    assert found.start_offset == 6
    assert [
        StateRange(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in found.state_batches
    ] == changes
    assert encode_value(found, 0) == value
