"""A worker's half of the back end, put together on its loop: everything is ready, and seen to be, before it leases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafka import admin
from kafka.client import KafkaClient
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import BacklogCallback, DeclaredJobs, ScheduleMember, WorkerBackend
from kafka.tasks.backends.kafka.admin import Administration, ensure_app_topics
from kafka.tasks.backends.kafka.backlogs import measure_backlogs
from kafka.tasks.backends.kafka.cancelled import CancelledReader
from kafka.tasks.backends.kafka.connection import BACKGROUND, connect, last_connect_error
from kafka.tasks.backends.kafka.control import ControlReader
from kafka.tasks.backends.kafka.delivery_choice import (
    choose_deliveries,
    choose_protocol,
    fences_by_generation,
)
from kafka.tasks.backends.kafka.in_use import DeliveryKind, check_not_migrated
from kafka.tasks.backends.kafka.publisher import KafkaPublisher
from kafka.tasks.backends.kafka.schedule_owners import ScheduleOwners
from kafka.tasks.backends.kafka.schedule_watch import ScheduleWatch
from kafka.tasks.backends.kafka.snapshot_publisher import KafkaSnapshotPublisher
from kafka.tasks.backends.kafka.transactions import check_transactions
from kafka.tasks.delivery.base import (
    DeliveryEvents,
    JobDelivery,
    sources_of,
)
from kafka.tasks.delivery.combined import CombinedDelivery
from kafka.tasks.delivery.consumer_group.delivery import GroupDelivery
from kafka.tasks.delivery.share_group.delivery import ShareDelivery
from kafka.tasks.delivery.share_group.groups import begin_groups, prepare_groups, with_records
from kafka.tasks.delivery.share_group.trimmer import CommittedTrimmer, QueueTrimmer
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.topics import (
    ExistingTopic,
    TopicDefaults,
    TopicNames,
    cancelled_kept_s,
    cancelled_plan,
    group_configs,
    payload_limit,
    queue_plans,
    results_plans,
    schedule_partitions,
    schedule_plans,
    workers_plan,
)
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)


def open_worker_backend(
    names: TopicNames,
    settings: Settings,
    shape: TopicDefaults,
    clock: BrokerTimeEstimate,
    loop: Any,
    queues: Sequence[str],
    schedule: bool = False,
    declared: DeclaredJobs | None = None,
    ordered: Collection[str] = (),
) -> tuple[WorkerBackend, KafkaClient]:
    """Connect, see to topics and groups, and look which queues are paused. Blocks, driving ``loop``. With ``schedule``
    the worker owns partitions of the schedule. Jobs of the queues that are ``ordered`` run in the order of their keys.

    The client is handed back for its owner to close. Errors are the clients' own, and those of
    :func:`choose_deliveries`.
    """
    with _connected(names, settings, loop) as (client, administration):
        kinds = choose_deliveries(client, administration, names, settings.delivery, queues, ordered)
        shared = [queue for queue in queues if kinds[queue] is DeliveryKind.SHARE]
        owned = [queue for queue in queues if kinds[queue] is DeliveryKind.GROUP]
        sources = sources_of(names, shared)
        declared_queues = declared.queues if schedule and declared is not None else set()
        topics = _ensure_topics(administration, names, settings, shape, {*queues, *declared_queues})
        of_schedule = schedule_partitions(names, topics)
        read = [topic for queue in queues for topic in names.job_topics(queue)]
        written = [topic for queue in queues for topic in (names.due(queue), names.suspect(queue), names.dead(queue))]
        administration.check_rights({"READ": read, "WRITE": [names.results, *written]})
        for queue in queues:
            of_queue = [topics[plan.name] for plan in queue_plans(names, queue, shape)]
            payload_limit(of_queue, settings.max_payload_bytes, log.warning)
        if schedule or owned:
            needed_by = "the schedule" if schedule else f"the queue {owned[0]}"
            check_transactions(client, names, settings, needed_by)
        protocol = choose_protocol(client, administration, [names.group(queue) for queue in owned]) if owned else ""
        groups = {
            source.topic: [TopicPartition(source.topic, number) for number in range(topics[source.topic].partitions)]
            for source in sources
        }

        def pause(seconds: float) -> None:
            loop.run_until(lambda: False, seconds)

        limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": settings.request_timeout}

        def find_suspects(topics: list[str], found: Callable[[set[str]], object]) -> None:
            future = client.run(
                admin.dialogues.share_group_offsets({topic: groups[topic] for topic in topics}, **limits),
                BACKGROUND,
            )
            future.add_callback(lambda offsets: found(with_records(offsets)))

        def check(done: Callable[[Any], object]) -> None:
            client.run(
                check_not_migrated(client, names, shared, DeliveryKind.SHARE, **limits), BACKGROUND
            ).add_both(done)

        committed = {names.due(queue) for queue in shared}
        if shared:
            prepare_groups(administration, list(groups), lambda group: group_configs(group in committed), pause)
            begin_groups(administration, groups, pause, loop.time)
        publisher = KafkaPublisher(client, settings, clock, names.results)
        # A worker that started with a wrong clock revoked its first jobs: it compares their ``expires`` with this.
        loop.run_until(publisher.learn_time(), settings.request_timeout)
        if shared:
            QueueTrimmer(client, groups).start()  # the client closes it
        control = ControlReader(client, names.control, queues, settings.request_timeout)
        control.start()  # the same
        cancelled = CancelledReader(client, names.cancelled, cancelled_kept_s(shape), settings.request_timeout)
        cancelled.start()
        snapshots = KafkaSnapshotPublisher(client, workers_plan(names, shape), settings)
        of_results = topics[names.results].partitions

        def backlogs(done: BacklogCallback) -> None:
            client.run(measure_backlogs(client, names, queues, settings.request_timeout), BACKGROUND).add_both(done)

        def open_delivery(events: DeliveryEvents) -> JobDelivery:
            opens: list[Callable[[DeliveryEvents], JobDelivery]] = []
            if shared:
                opens.append(lambda each: ShareDelivery(client, sources, each, publisher, names, find_suspects, check))
            if owned:
                opens.append(open_group_delivery)
            return opens[0](events) if len(opens) == 1 else CombinedDelivery(events, opens)

        def open_group_delivery(events: DeliveryEvents) -> JobDelivery:
            of_groups = sources_of(names, owned, ordered)
            delivery = GroupDelivery(
                client, of_groups, events, publisher, names, settings, clock, fences_by_generation(client), protocol
            )
            topics = dict.fromkeys(source.topic for source in of_groups)
            CommittedTrimmer(client, topics, "settled jobs", delivery.committed).start()  # the client closes it
            return delivery

        connect_error = partial(last_connect_error, client)
        member: ScheduleOwners | None = None
        if schedule:
            commands = [] if declared is None else declared.commands(of_schedule)
            member = ScheduleOwners(client, names, settings, clock, of_results, publisher.learn_time, commands)
        else:
            ScheduleWatch(client, names.commands).start()  # the client closes it
        side = WorkerBackend(
            open_delivery,
            of_results,
            of_schedule,
            control.watch,
            snapshots,
            connect_error,
            backlogs,
            member,
            cancelled.watch,
        )
        return side, client


def open_schedule_member(
    names: TopicNames,
    settings: Settings,
    shape: TopicDefaults,
    clock: BrokerTimeEstimate,
    loop: Any,
    declared: DeclaredJobs,
) -> tuple[ScheduleMember, KafkaClient]:
    """Connect, see to the topics of the schedule, and that transactions work. Blocks, driving ``loop``. The client is
    handed back for its owner to close. Errors are the clients' own."""
    with _connected(names, settings, loop) as (client, administration):
        topics = _ensure_topics(administration, names, settings, shape, declared.queues)
        commands = declared.commands(schedule_partitions(names, topics))
        of_schedule = [names.commands, names.schedule]
        administration.check_rights({"READ": of_schedule, "WRITE": of_schedule})
        check_transactions(client, names, settings, "the schedule")
        publisher = KafkaPublisher(client, settings, clock, names.results)
        loop.run_until(publisher.learn_time(), settings.request_timeout)
        of_results = topics[names.results].partitions
        return ScheduleOwners(client, names, settings, clock, of_results, publisher.learn_time, commands), client


@contextmanager
def _connected(names: TopicNames, settings: Settings, loop: Any) -> Iterator[tuple[KafkaClient, Administration]]:
    """A client and its administration, which drives ``loop`` while it waits. An error closes the client."""
    client = connect(settings, loop)

    def wait(dialogue: Any) -> Any:
        future = client.run(dialogue)
        loop.run_until(future)
        return future.result()

    try:
        yield client, Administration(client, wait, settings.request_timeout, names.app)
    except BaseException:
        client.close()
        raise


def _ensure_topics(
    administration: Administration, names: TopicNames, settings: Settings, shape: TopicDefaults, queues: Iterable[str]
) -> dict[str, ExistingTopic]:
    """The topics of the app and of these queues, by name; creates those that are missing."""
    plans = [*results_plans(names, shape), *schedule_plans(names, shape), cancelled_plan(names, shape)]
    for queue in queues:
        plans += queue_plans(names, queue, shape)
    return ensure_app_topics(administration, names.app, plans, settings.create_topics)
