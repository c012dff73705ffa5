"""A client in a process of its own, as the workloads start it: it goes on until SIGTERM, and notes what comes of it.

    python -m test.faults.clusters.client ROLE '{"bootstrap": ..., "notes": file, "settings": {...}, ...}'

Roles are the functions in :data:`ROLES`. Notes are lines of words, the first of which is what happened; they are there
when the process is killed. What it logs goes where ``troubles.py`` says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.consumer.listener import ConsumerRebalanceListener
from kafka.errors import KafkaError
from kafka.tasks import JobFailed, JobHandle, JobTimeout
from test.faults.counted_jobs import make_app
from test.support.troubles import note_troubles

END_S: Final = 60.0
"""How long a client that is asked to end waits for what is under way."""

ended = threading.Event()


class Notes:
    """The file of one process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(str(word).replace("\n", " ") for word in words) + "\n").encode())


def produce(order: Mapping[str, Any], notes: Notes) -> None:
    """Records 0, 1, ... to the partitions in turn: ``acked NUMBER PARTITION OFFSET SECONDS``, or ``failed NUMBER WHY``;
    in the end ``ended COUNT``."""
    producer = KafkaProducer(bootstrap_servers=order["bootstrap"], **order["settings"])
    number = 0

    def send(number: int) -> None:
        sent_at = time.monotonic()
        future = producer.send(order["topic"], b"%d" % number, partition=number % order["partitions"])
        future.add_callback(
            lambda done: notes.note("acked", number, done.partition, done.offset, time.monotonic() - sent_at)
        )
        future.add_errback(lambda error: notes.note("failed", number, repr(error)))

    while not ended.wait(order["pause_s"]):
        send(number)
        number += 1
    producer.flush(END_S)
    producer.close()
    notes.note("ended", number)


class _Assigned(ConsumerRebalanceListener):
    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def on_partitions_assigned(self, partitions: Any) -> None:
        for each in partitions:
            self._notes.note("assigned", each.partition)

    def on_partitions_revoked(self, partitions: Any) -> None:
        pass


def consume(order: Mapping[str, Any], notes: Notes) -> None:
    """A member of a group that commits what it has read: ``assigned PARTITION``, ``read NUMBER PARTITION OFFSET``,
    ``refused WHY`` when a commit was."""
    consumer = KafkaConsumer(
        bootstrap_servers=order["bootstrap"],
        group_id=order["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **order["settings"],
    )
    consumer.subscribe([order["topic"]], listener=_Assigned(notes))
    while not ended.is_set():
        read = consumer.poll(timeout_ms=200)
        for records in read.values():
            for record in records:
                notes.note("read", int(record.value or b""), record.partition, record.offset)
        if read:
            try:
                consumer.commit()
            except KafkaError as error:
                notes.note("refused", repr(error))
    consumer.close()
    notes.note("ended")


def share(order: Mapping[str, Any], notes: Notes) -> None:
    """A member of a share group that accepts what it gets: ``read NUMBER PARTITION OFFSET``, ``refused WHY`` when an
    acknowledgement was."""
    consumer = KafkaShareConsumer(
        order["topic"],
        bootstrap_servers=order["bootstrap"],
        group_id=order["group"],
        share_acknowledgement_mode="explicit",
        **order["settings"],
    )
    while not ended.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                notes.note("read", int(record.value or b""), record.partition, record.offset)
                consumer.acknowledge(record)
        for error in consumer.commit().values():
            if error is not None:
                notes.note("refused", repr(error))
    consumer.close()
    notes.note("ended")


def enqueue(order: Mapping[str, Any], notes: Notes) -> None:
    """Jobs, each due ``delays_s`` seconds later, in turn: ``enqueued ID TIME DUE``; in the end ``done ID NUMBER`` of
    each, as its handle says it, or ``failed ID WHY``."""
    app = make_app(order["app"], order["bootstrap"], order["partitions"], **order["settings"])
    work, delays_s = app.tasks["work"], order["delays_s"]
    handles: list[JobHandle[int]] = []
    while not ended.wait(order["pause_s"]):
        delay_s = delays_s[len(handles) % len(delays_s)]
        at = time.time()
        handles.append((work.using(delay=delay_s) if delay_s else work).delay(len(handles), order["job_s"]))
        notes.note("enqueued", handles[-1].id, at, at + delay_s)
    app.flush(END_S)
    for handle in handles:
        try:
            notes.note("done", handle.id, handle.result(END_S))
        except (JobFailed, JobTimeout, KafkaError) as error:
            notes.note("failed", handle.id, repr(error))
    app.close()
    notes.note("ended", len(handles))


ROLES: Final[Mapping[str, Callable[[Mapping[str, Any], Notes], None]]] = {
    "produce": produce,
    "consume": consume,
    "share": share,
    "enqueue": enqueue,
}


def end_by_sigterm() -> None:
    signal.sigwait({signal.SIGTERM})
    ended.set()


def main() -> None:
    # A thread and no handler, which would wait forever when it interrupts `ended.wait` while that has the event's lock.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=end_by_sigterm, daemon=True).start()
    note_troubles()
    order = json.loads(sys.argv[2])
    ROLES[sys.argv[1]](order, Notes(order["notes"]))


if __name__ == "__main__":
    main()
