"""DescribeLogDirs, AlterReplicaLogDirs: the data directory, and how much of it each partition takes.

Different from Apache Kafka 4.3.0: there is one directory, and its path is the one of ``--data-dir``; it is never
cordoned.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.log import Topic
from kafka.broker.registry import Call, handles
from kafka.errors import LogDirNotFoundError, UnknownTopicOrPartitionError
from kafka.protocol.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_VOLUME_SINCE: Final = 4


@handles(DescribeLogDirsRequest, versions=(0, 5))
def describe_log_dirs(broker: Broker, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    wanted: list[tuple[Topic, list[int]]] = []
    if call.request.topics is None:
        wanted = [(topic, list(range(topic.partitions))) for topic in broker.metadata]
    else:
        numbers_of: dict[str, dict[int, None]] = {}
        for asked in call.request.topics:
            numbers_of.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
        for name, numbers in numbers_of.items():
            topic = broker.metadata.topic(name)
            if topic is not None:
                wanted.append((topic, [one for one in numbers if 0 <= one < topic.partitions]))
    result = DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=0,
        log_dir=broker.logs.path,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic.name,
                partitions=[
                    DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=broker.logs.size_of(topic, number),
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for number in found
                ],
            )
            for topic, found in wanted
            if found
        ],
    )
    if call.version >= _VOLUME_SINCE:
        with contextlib.suppress(OSError):
            volume = shutil.disk_usage(broker.logs.path)
            result.total_bytes, result.usable_bytes = volume.total, volume.free
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])


@handles(AlterReplicaLogDirsRequest, versions=(0, 2))
def alter_replica_log_dirs(broker: Broker, call: Call[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    codes: dict[str, dict[int, int]] = {}
    for directory in call.request.dirs:
        is_ours = directory.path == broker.logs.path
        for asked in directory.topics:
            topic = broker.metadata.topic(asked.name)
            for number in asked.partitions:
                code = 0
                if not is_ours:
                    code = error_code(LogDirNotFoundError)
                elif topic is None or not 0 <= number < topic.partitions:
                    code = error_code(UnknownTopicOrPartitionError)
                codes.setdefault(asked.name, {})[number] = code
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=code
                    )
                    for number, code in found.items()
                ],
            )
            for name, found in codes.items()
        ],
    )
