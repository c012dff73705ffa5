"""What ``import kafka`` promises: its names, their homes, its types, and that it costs next to nothing."""

from __future__ import annotations

import ast
import importlib
import os
import pathlib
import resource
import subprocess
import sys

import pytest

import kafka
from kafka import codec
from kafka._older_paths import PATHS
from kafka.records.compression import CODEC_NAMES, LZ4, SNAPPY, ZSTD, available_codecs

IMPORT_BUDGET_S = 0.050


def _imported_for_type_checkers() -> dict[str, str]:
    """Name -> module, as the ``if TYPE_CHECKING:`` block of ``kafka/__init__.py`` says."""
    assert kafka.__file__ is not None
    tree = ast.parse(pathlib.Path(kafka.__file__).read_text())
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    return {
        alias.asname or alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", sorted(kafka._HOME))
def test_each_public_name_resolves_at_its_home(name: str) -> None:
    value = getattr(kafka, name)
    assert value is getattr(importlib.import_module(kafka._HOME[name]), name)
    assert value.__doc__, f"{name} has no docstring"


def test_the_table_the_list_and_the_types_name_the_same() -> None:
    assert sorted(kafka.__all__) == sorted([*kafka._HOME, "__version__"])
    assert _imported_for_type_checkers() == kafka._HOME


def test_dir_lists_names_that_were_not_used_yet() -> None:
    assert set(kafka.__all__) <= set(dir(kafka))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkaConsumr'"):
        _ = kafka.KafkaConsumr


@pytest.mark.parametrize("name", sorted(kafka._MODULES))
def test_each_module_is_an_attribute_of_the_package(name: str) -> None:
    assert kafka.__getattr__(name) is sys.modules[f"kafka.{name}"]


def test_modules_are_there_after_a_plain_import() -> None:
    code = "import kafka; " + "; ".join(f"kafka.{name}" for name in sorted(kafka._MODULES))
    code += "; kafka.errors.KafkaError, kafka.structs.TopicPartition, kafka.admin.NewTopic, kafka.KafkaConsumer"
    subprocess.run([sys.executable, "-c", code], check=True)


KAFKA_PYTHON_PATHS = [
    "kafka.admin.acl_resource.ACL",
    "kafka.admin.acl_resource.ACLFilter",
    "kafka.admin.acl_resource.ACLOperation",
    "kafka.admin.acl_resource.ACLPermissionType",
    "kafka.admin.acl_resource.ACLResourcePatternType",
    "kafka.admin.acl_resource.ResourcePattern",
    "kafka.admin.acl_resource.ResourcePatternFilter",
    "kafka.admin.acl_resource.ResourceType",
    "kafka.admin.client.KafkaAdminClient",
    "kafka.admin.config_resource.ConfigResource",
    "kafka.admin.config_resource.ConfigResourceType",
    "kafka.admin.new_partitions.NewPartitions",
    "kafka.admin.new_topic.NewTopic",
    "kafka.client_async.KafkaClient",
    "kafka.cluster.ClusterMetadata",
    "kafka.codec.has_gzip",
    "kafka.codec.has_lz4",
    "kafka.codec.has_snappy",
    "kafka.codec.has_zstd",
    "kafka.conn.BrokerConnection",
    "kafka.consumer.fetcher.ConsumerRecord",
    "kafka.consumer.group.KafkaConsumer",
    "kafka.consumer.subscription_state.ConsumerRebalanceListener",
    "kafka.coordinator.assignors.abstract.AbstractPartitionAssignor",
    "kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor",
    "kafka.coordinator.assignors.range.RangePartitionAssignor",
    "kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
    "kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor",
    "kafka.errors.kafka_errors",
    "kafka.future.Future",
    "kafka.metrics.kafka_metric.KafkaMetric",
    "kafka.metrics.metric_name.MetricName",
    "kafka.metrics.metrics_reporter.AbstractMetricsReporter",
    "kafka.net.sasl.oauth.AbstractTokenProvider",
    "kafka.oauth.AbstractTokenProvider",
    "kafka.oauth.abstract.AbstractTokenProvider",
    "kafka.partitioner.default.DefaultPartitioner",
    "kafka.partitioner.default.murmur2",
    "kafka.producer.future.FutureRecordMetadata",
    "kafka.producer.future.RecordMetadata",
    "kafka.producer.kafka.KafkaProducer",
    "kafka.protocol.admin.ElectionType",
    "kafka.protocol.api_key.ApiKey",
    "kafka.protocol.consumer.IsolationLevel",
    "kafka.protocol.consumer.OffsetSpec",
    "kafka.sasl.oauth.AbstractTokenProvider",
    "kafka.serializer.abstract.Deserializer",
    "kafka.structs.TopicPartition",
    "kafka.version.__version__",
]
"""What programs for kafka-python 2 and 3 import: module, then name."""


@pytest.mark.parametrize("path", KAFKA_PYTHON_PATHS)
def test_names_are_found_at_kafka_pythons_paths(path: str) -> None:
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert found is getattr(kafka, name, found)


def test_a_path_of_kafka_python_is_imported_in_a_process_of_its_own() -> None:
    code = "".join(
        f"from {module} import {name}\n" for module, _, name in (path.rpartition(".") for path in KAFKA_PYTHON_PATHS)
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", sorted(PATHS))
def test_each_older_path_says_what_it_is_and_has_the_names_of_its_row(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__ and "\n" not in found.__doc__
    assert found.__all__ == list(PATHS[module])
    for name, home in PATHS[module].items():
        assert getattr(found, name) is getattr(importlib.import_module(home), name)


def test_an_older_path_hides_no_file() -> None:
    for module in PATHS:
        place = pathlib.Path(kafka.__path__[0], *module.split(".")[1:])
        assert not place.exists() and not place.with_suffix(".py").exists()


@pytest.mark.parametrize("module", ["kafka.nonsense", "kafka.producer.nonsense", "kafka.net.sasl.nonsense"])
def test_a_module_that_nobody_has_is_not_found(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{module}'"):
        importlib.import_module(module)


def test_codecs_are_available_when_they_work() -> None:
    assert codec.has_gzip() is True
    for number, has in ((SNAPPY, codec.has_snappy), (LZ4, codec.has_lz4), (ZSTD, codec.has_zstd)):
        assert has() is (CODEC_NAMES[number] in available_codecs().split(", "))


def test_a_plain_import_loads_no_other_module_of_ours() -> None:
    code = "import sys, kafka; print(*sorted(m for m in sys.modules if m.partition('.')[0] == 'kafka'))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["kafka", "kafka._name_clash", "kafka._version"]


def test_import_kafka_costs_at_most_fifty_milliseconds() -> None:
    """Of the processor, as the difference of whole processes, each the best of several: a busy machine is not to
    decide."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def best(code: str) -> float:
        times = []
        for _ in range(7):
            began = used()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            times.append(used() - began)
        return min(times)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(pathlib.Path(kafka.__path__[0]).parent)
    assert best("import kafka") - best("pass") <= IMPORT_BUDGET_S
