"""KafkaAdminClient: topics, settings, the cluster. Each call runs a dialogue of ``core/admin`` and waits for it.

Calls about groups are in ``group_calls.py`` and, by kafka-python 2's names, ``older_calls.py``; about replicas,
directories and controllers in ``cluster_calls.py``; about access rules and users in ``security_calls.py``, about
producers and transactions in ``transaction_calls.py``, about features and versions in ``version_calls.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final
from uuid import UUID

from kafka.admin import dialogues
from kafka.admin.cluster_calls import ClusterCalls
from kafka.admin.older_calls import OlderCalls
from kafka.admin.running import limit_s
from kafka.admin.security_calls import SecurityCalls
from kafka.admin.transaction_calls import TransactionCalls
from kafka.admin.version_calls import VersionCalls
from kafka.client import Host, KafkaClient, make_host
from kafka.client.metrics import ClientMetrics
from kafka.client.telemetry import HasTelemetry
from kafka.config import as_given, defaults, resolve
from kafka.core.admin.configs import Described, as_texts
from kafka.core.admin.topics import MorePartitions, NewTopics
from kafka.core.admin.values import ConfigFilterType, ConfigResource
from kafka.net.loop import Loop
from kafka.structs import TopicPartition


class KafkaAdminClient(OlderCalls, ClusterCalls, SecurityCalls, TransactionCalls, VersionCalls, HasTelemetry):
    """Administers a cluster. Any thread. ``configs``: see the reference of settings.

    Results are plain dictionaries with the field names of Kafka's messages. Errors in answers are raised as the class
    of their code. No call creates a topic but :meth:`create_topics`. With ``loop`` or ``client`` it lives there; on
    that loop's own thread the calls below are refused with IllegalStateError, and :meth:`run` takes the same dialogues
    (``kafka.admin.dialogues``) without waiting.
    """

    DEFAULT_CONFIG: Final = defaults("admin")
    """All settings with their defaults."""

    def __init__(self, *, loop: Loop | None = None, client: KafkaClient | None = None, **configs: Any) -> None:
        settings = {**resolve("admin", configs), "allow_auto_create_topics": False}
        self._config = as_given(settings, configs)
        self._timeout_s: float = settings["request_timeout_ms"] / 1000
        self._is_closed = False
        self._host: Host = make_host("admin client", settings, loop, client)
        self._metrics = (
            ClientMetrics(self._host.client, settings, "admin-client") if settings["metrics_enabled"] else None
        )
        metrics = self._metrics
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict)

    # -- topics --------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: NewTopics,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: NewTopic, names, or ``{name: {"num_partitions", "replication_factor", "assignments",
        "configs"}}``. Returns ``{"topics": [{"name", "topic_id", "error_code", ...}]}``; raises the first error unless
        ``raise_errors`` is False. ``wait_for_metadata``: until every partition has a leader."""
        result = self._run(
            dialogues.create_topics(
                new_topics,
                **self._limits_within(timeout_ms),
                validate_only=validate_only,
                raise_errors=raise_errors,
            )
        )
        if wait_for_metadata and not validate_only:
            self.wait_for_topics([topic["name"] for topic in result["topics"] if not topic["error_code"]])
        return result

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10000) -> None:
        """Until each partition of the topics has a leader; KafkaTimeoutError after ``timeout_ms``, with what was
        missing."""
        self._run(dialogues.wait_for_topics(topic_names, timeout_s=limit_s(timeout_ms, self._timeout_s)))

    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name or id (2.8): ``{"topics": [{"name", "topic_id", "error_code", ...}]}``. Raises the
        first error (UnknownTopicOrPartitionError, ...) unless ``raise_errors`` is False; KafkaTimeoutError after
        ``timeout_ms`` (None: ``request_timeout_ms``)."""
        return self._run(
            dialogues.delete_topics(
                topics, **self._limits_within(timeout_ms), raise_errors=raise_errors
            )
        )

    def create_partitions(
        self,
        topic_partitions: MorePartitions,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Give topics more partitions: ``{topic: total count}``, or for brokers of one's choice NewPartitions or
        ``{"count": total, "assignments": [[broker id], ...]}``, a list for each new partition. Returns ``{"results":
        [{"name", "error_code", "error_message"}]}``; raises the first error (InvalidPartitionsError, ...) unless
        ``raise_errors`` is False, and KafkaTimeoutError after ``timeout_ms`` (None: ``request_timeout_ms``)."""
        return self._run(
            dialogues.create_partitions(
                topic_partitions,
                **self._limits_within(timeout_ms),
                validate_only=validate_only,
                raise_errors=raise_errors,
            )
        )

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete what lies before an offset (-1: all): ``{partition: {"low_watermark", ...}}``.
        UnknownTopicOrPartitionError, before anything is deleted, when one is not there. ``partition_leader_id`` means
        nothing: each request goes to the partition's leader."""
        return self._run(
            dialogues.delete_records(records_to_delete, **self._limits_within(timeout_ms))
        )

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        return self._run(dialogues.list_topics(**self._limits))

    def describe_topics(self, topics: Sequence[str | UUID] | None = None) -> list[dict[str, Any]]:
        """Topics with their partitions; all of them for None: ``[{"name", "topic_id", "error_code", "is_internal",
        "partitions", "authorized_operations"}]``. ``topic_id`` is a text; None where there is none (before 2.8). A
        missing one has ``error_code`` 3."""
        return self._run(dialogues.describe_topics(topics, **self._limits))

    # -- settings ------------------------------------------------------------------------------------------------------

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = ConfigFilterType.MODIFIED,
    ) -> Described:
        """Settings as ``{"topic": {NAME: {SETTING: {"value", "config_source", ...}}}}``. By default only those that
        somebody set: "all" for the others, too."""
        return self._run(
            dialogues.describe_configs(
                config_resources,
                **self._limits,
                include_synonyms=include_synonyms,
                config_filter=config_filter,
            )
        )

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change the settings that are named: ``{name: value}``, where None deletes, and ``(operation, value)`` is for
        an AlterConfigOp. ``incremental`` False, and before 2.3: everything is replaced by what was set with these, and
        an operation other than SET is IllegalArgumentError.

        Returns ``{"topic": {NAME: "OK"}}``; raises the first error. Without ``raise_on_unknown`` a setting that the
        broker refuses is no exception, but the error's text in place of "OK".
        """
        return as_texts(
            self._run(
                dialogues.alter_configs(
                    config_resources,
                    **self._limits,
                    validate_only=validate_only,
                    raise_on_unknown=raise_on_unknown,
                    incremental=incremental,
                )
            )
        )

    # -- cluster -------------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> dict[str, Any]:
        """``{"cluster_id", "controller_id", "brokers": [{"broker_id", "host", "port", "rack", "is_fenced"}],
        "authorized_operations"}``."""
        return self._run(dialogues.describe_cluster(**self._limits))

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """All settings as they are in force, by name: a copy. ``bootstrap_servers`` as they were given."""
        return dict(self._config)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What was measured, as ``{group: {name: number}}``; ``raw``: the metrics themselves, as ``{MetricName:
        KafkaMetric}``. Empty with ``metrics_enabled=False``. See ``kafka/client/metrics.py``."""
        if self._metrics is None:
            return {}
        return self._metrics.raw() if raw else self._metrics.by_group()

    def close(self) -> None:
        """Let go of the connections. Any number of times."""
        if not self._is_closed:
            self._is_closed = True
            self._end_telemetry()
            if self._metrics is not None:
                self._metrics.close()
            self._host.close()

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
