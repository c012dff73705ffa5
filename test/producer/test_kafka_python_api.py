"""``KafkaProducer`` beside kafka-python's, signature by signature, with what differs on purpose.

The tables are what ``inspect`` says of kafka-python 2.3.2 and 3.0.12; defaults of settings are compared with theirs in
``test_config.py``.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import kafka
from kafka.config import NOT_YET, SETTINGS
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner, murmur2
from kafka.producer import FutureRecordMetadata, KafkaProducer, RecordMetadata
from kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from kafka.testing import EmbeddedBroker
from test.producer.support import producer_in_memory, refuse

METHODS = {
    "abort_transaction": "(self)",
    "begin_transaction": "(self)",
    "bootstrap_connected": "(self)",
    "close": "(self, timeout=None, null_logger=False)",
    "commit_transaction": "(self)",
    "flush": "(self, timeout=None)",
    "init_transactions": "(self)",
    "max_usable_produce_magic": "(cls, api_version)",
    "metrics": "(self, raw=False)",
    "partitions_for": "(self, topic)",
    "send": "(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None)",
    "send_offsets_to_transaction": "(self, offsets, group_metadata)",
}
"""kafka-python 3.0.12; 2.3.2 has the same, but for the last, which is ``(self, offsets, consumer_group_id)`` there."""

DIFFERENT = {
    "close": "null_logger is for kafka-python's own __del__",
    "max_usable_produce_magic": "what a broker takes is found out by asking it, for each request",
    "send_offsets_to_transaction": "group_metadata may be left out for consumer_group_id, the name of 2.3",
}
"""On purpose. Besides, errors of ``send`` are raised, and never found in a future that is failed already."""

FUTURE = {
    "add_both": "(self, f, *args, **kwargs)",
    "add_callback": "(self, f, *args, **kwargs)",
    "add_errback": "(self, f, *args, **kwargs)",
    "chain": "(self, future)",
    "failed": "(self)",
    "get": "(self, timeout=None)",
    "retriable": "(self)",
    "succeeded": "(self)",
}
"""``failure``, ``success`` and ``rebind`` are for who completes a future, and not here: it is nobody's to complete."""

SETTINGS_2 = ("bootstrap_topics_filter", "api_version_auto_timeout_ms", "buffer_memory")
SETTINGS_3 = [
    "bootstrap_servers",
    "client_id",
    "key_serializer",
    "value_serializer",
    "enable_idempotence",
    "transactional_id",
    "transaction_timeout_ms",
    "delivery_timeout_ms",
    "acks",
    "compression_type",
    "retries",
    "batch_size",
    "linger_ms",
    "partitioner",
    "connections_max_idle_ms",
    "max_block_ms",
    "max_request_size",
    "allow_auto_create_topics",
    "metadata_max_age_ms",
    "client_dns_lookup",
    "retry_backoff_ms",
    "request_timeout_ms",
    "receive_message_max_bytes",
    "receive_buffer_bytes",
    "send_buffer_bytes",
    "socket_options",
    "reconnect_backoff_ms",
    "reconnect_backoff_max_ms",
    "max_in_flight_requests_per_connection",
    "security_protocol",
    "ssl_context",
    "ssl_check_hostname",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_crlfile",
    "ssl_password",
    "ssl_ciphers",
    "api_version",
    "bootstrap_timeout_ms",
    "metric_reporters",
    "metrics_enabled",
    "metrics_num_samples",
    "metrics_sample_window_ms",
    "selector",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_name",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
    "proxy_url",
    "socks5_proxy",
    "kafka_client",
]


def _plain(function: Any) -> str:
    """A signature without types, and without what may only be given by name. (That ``self`` may not be given by name is
    said of compiled methods alone.)"""
    signature = inspect.signature(function)
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    return str(inspect.Signature(kept)).replace("(self, /", "(self")


@pytest.mark.parametrize("name", METHODS)
def test_each_method_is_called_as_in_kafka_python(name: str) -> None:
    found = getattr(KafkaProducer, name, None)
    if name in DIFFERENT:
        assert found is None or _plain(found) != METHODS[name], f"{name} is not different any more"
    else:
        assert _plain(found) == METHODS[name]


def test_offsets_may_be_given_in_the_shapes_of_both_generations() -> None:
    signature = inspect.signature(KafkaProducer.send_offsets_to_transaction)
    assert list(signature.parameters) == ["self", "offsets", "group_metadata", "consumer_group_id"]


@pytest.mark.parametrize("name", FUTURE)
def test_each_method_of_a_future_is_called_as_in_kafka_python(name: str) -> None:
    assert _plain(getattr(FutureRecordMetadata, name)) == FUTURE[name]


def test_a_records_metadata_has_kafka_pythons_fields() -> None:
    assert RecordMetadata._fields == (
        "topic", "partition", "topic_partition", "offset", "timestamp", "checksum", "serialized_key_size",
        "serialized_value_size", "serialized_header_size",
    )  # fmt: skip


@pytest.mark.parametrize("name", [*SETTINGS_2, *SETTINGS_3])
def test_every_setting_of_kafka_python_is_one_of_ours_or_listed_as_missing(name: str) -> None:
    assert name in {setting.name for setting in SETTINGS if "producer" in setting.clients} | NOT_YET


def test_settings_are_seen_as_in_kafka_python() -> None:
    assert KafkaProducer.DEFAULT_CONFIG["linger_ms"] == 0
    assert KafkaProducer.DEFAULT_CONFIG["acks"] == -1
    with producer_in_memory(linger_ms=7, acks=1) as rig:
        assert rig.producer.config["linger_ms"] == 7
        assert rig.producer.config["acks"] == 1
        assert rig.producer.config["enable_idempotence"] is False
        rig.producer.config["linger_ms"] = 9
        assert rig.producer.config["linger_ms"] == 7, "it is a copy"
        assert rig.producer.bootstrap_connected() is False
        rig.producer.send("t", b"x")
        rig.flush()
        assert rig.producer.bootstrap_connected() is True


def test_a_future_can_be_awaited_and_asked_in_every_way() -> None:
    with producer_in_memory() as rig:
        future = rig.producer.send("t", b"x")
        assert (future.is_done, future.succeeded(), future.failed(), future.value) == (False, False, False, None)
        rig.flush()

        async def look() -> RecordMetadata:
            return await future

        assert asyncio.run(look()) == future.value == future.get(0)
        assert (future.is_done, future.succeeded(), future.failed(), future.exception) == (True, True, False, None)
        rig.cluster.faults = [refuse(29)]
        failed = rig.producer.send("t", b"x")
        rig.flush()
        assert (failed.is_done, failed.succeeded(), failed.failed(), failed.value) == (True, False, True, None)
        assert not failed.retriable()
        with pytest.raises(KafkaError) as raised:
            failed.get()
        assert raised.value is failed.exception


def test_an_error_in_a_callback_is_logged_and_stops_neither_the_others_nor_the_producer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with producer_in_memory() as rig:
        seen: list[Any] = []
        future = rig.producer.send("t", b"x")
        future.add_callback(lambda _: 1 / 0).add_callback(seen.append)
        rig.flush()
        assert seen == [future.value]
        assert "ZeroDivisionError" in caplog.text
        rig.producer.send("t", b"y")
        rig.flush()
        assert rig.cluster.logs[0] == [b"x", b"y"]


def test_a_callback_may_send_again() -> None:
    with producer_in_memory() as rig:
        rig.producer.send("t", b"x").add_callback(lambda _: rig.producer.send("t", b"y"))
        rig.flush()
        rig.flush()
        assert rig.cluster.logs[0] == [b"x", b"y"]


def _encoded(key: str | None) -> bytes | None:
    """As in kafka-python, a serializer is asked for None, too."""
    return None if key is None else key.encode()


class Text(Serializer):
    """kafka-python 3's base class."""

    def __init__(self) -> None:
        self.is_closed = False

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        return f"{topic} {headers} {data}".encode()

    def close(self) -> None:
        self.is_closed = True


def test_kafka_pythons_serializers_are_there_and_closed_with_the_producer() -> None:
    text = Text()
    with producer_in_memory(key_serializer=JsonSerializer(), value_serializer=text) as rig:
        rig.producer.send("t", 5, key={"a": 1}, headers=[("h", b"1")])
        rig.flush()
        assert rig.cluster.logs[0] == [b"t [('h', b'1')] 5"]
    assert text.is_closed
    assert DefaultSerializer().serialize("t", None, "ä") == "ä".encode()
    assert DefaultSerializer("latin-1").deserialize("t", None, b"\xe4") == "ä"
    assert JsonSerializer().deserialize("t", None, b'{"a": 1}') == {"a": 1}
    assert JsonSerializer().serialize("t", None, None) is None
    assert issubclass(JsonSerializer, Deserializer)
    for name in ("DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"):
        assert getattr(kafka, name).__name__ == name
    with pytest.raises(TypeError, match="text or bytes are needed, not int"):
        DefaultSerializer().serialize("t", None, 5)


class Stamps(Serializer):
    """Adds a header to each record, and takes one away."""

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        headers.append(("schema", b"7"))
        if ("secret", b"1") in headers:
            headers.remove(("secret", b"1"))
        return None if data is None else str(data).encode()


def test_what_a_serializer_adds_to_the_headers_is_sent() -> None:
    mine = [("trace", b"1"), ("secret", b"1")]
    with EmbeddedBroker(in_process=True) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap, value_serializer=Stamps()) as producer:
            sent = [producer.send("t", 1).get(30), producer.send("t", 2, headers=mine).get(30)]
        with KafkaProducer(bootstrap_servers=broker.bootstrap, value_serializer=JsonSerializer()) as producer:
            sent.append(producer.send("t", 3).get(30))
        assert [one.serialized_header_size for one in sent] == [7, 13, -1]
        assert mine == [("trace", b"1"), ("secret", b"1")], "the caller's list is the caller's"
        with kafka.KafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
            read = [next(consumer) for _ in sent]
        assert [record.headers for record in read] == [[("schema", b"7")], [("trace", b"1"), ("schema", b"7")], []]


def test_a_header_that_a_serializer_adds_and_that_cannot_be_is_an_error_at_the_call() -> None:
    class Wrong(Serializer):
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
            headers.append(("schema", 7))
            return b""

    with producer_in_memory(key_serializer=Wrong()) as rig:
        with pytest.raises(TypeError, match="the value of 'schema' is int, and not bytes"):
            rig.producer.send("t", b"x")
        rig.flush()
        assert not rig.cluster.logs[0]


class KnownCluster:
    """What kafka-python's partitioners ask of a cluster."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1, 2} if topic == "t" else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return {1}


def test_kafka_pythons_partitioners_are_there_and_stand_for_what_is_built_in() -> None:
    key = b"foobar"
    default = DefaultPartitioner()
    assert default(key, [0, 1, 2], [0, 1, 2]) == (murmur2(key) & 0x7FFFFFFF) % 3
    assert default.partition("t", "k", key, None, None, KnownCluster()) == (murmur2(key) & 0x7FFFFFFF) % 3
    assert default.partition("t", None, None, None, None, KnownCluster()) == 1
    with pytest.raises(ValueError, match="topic u is not known"):
        default.partition("u", None, None, None, None, KnownCluster())
    for given in (DefaultPartitioner, DefaultPartitioner(), StickyPartitioner, StickyPartitioner()):
        with producer_in_memory(4, partitioner=given) as rig:
            assert not rig.producer._accumulator.partitioning.asks_always
            rig.producer.send("t", b"x")
            rig.flush()


def test_a_users_partitioner_of_the_third_generation_sees_what_was_given_and_its_error_reaches_the_caller() -> None:
    seen: list[Any] = []

    class Mine(Partitioner):
        def partition(
            self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
        ) -> int:
            if value == "no":
                raise LookupError("not this one")
            partitions = sorted(cluster.partitions_for_topic(topic))
            seen.append((topic, key, serialized_key, value, serialized_value, partitions))
            return 3

    with producer_in_memory(4, partitioner=Mine(), value_serializer=str.encode, key_serializer=_encoded) as rig:
        unassigned = rig.producer.send("t", "a", key="k")
        rig.flush()
        sent = rig.producer.send("t", "b")
        with pytest.raises(LookupError, match="not this one"):
            rig.producer.send("t", "no")
        rig.flush()
        assert unassigned.value is not None
        assert sent.value is not None
        assert unassigned.value.partition == sent.value.partition == 3
        assert rig.cluster.logs[3] == [b"a", b"b"], "nothing else was sent"
    assert seen == [("t", "k", b"k", "a", b"a", [0, 1, 2, 3]), ("t", None, None, "b", b"b", [0, 1, 2, 3])]


def test_a_future_says_which_topic_did_not_answer_in_time() -> None:
    with EmbeddedBroker(in_process=True) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
        future = producer.send("t", b"y")
        with pytest.raises(KafkaTimeoutError, match=r"no answer for a record of topic t within 0\.01 s"):
            future.get(0.01)
        producer.close(timeout=0)
