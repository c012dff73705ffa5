"""A process with one member of each of several groups, a thread for each. It notes what it reads and commits.

    python group_member.py '{"bootstrap": ..., "topic": ..., "groups": {group: {setting: value}},
                            "slot": number, "notes": directory}'

Each member appends one line of JSON for each event to a file of its own, ``group.pid``: so what was noted before a
``kill -9`` is there. Times are of the monotonic clock, which all processes of a machine share. Groups whose
``group_instance_id`` is SLOT have static members, named after the slot: who takes over a slot has the same names.
SIGTERM: leave, and end.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.consumer.listener import ConsumerRebalanceListener
from kafka.errors import FencedInstanceIdError, KafkaError, UnreleasedInstanceIdError
from kafka.structs import OffsetAndMetadata, TopicPartition

MAX_RECORDS = 20
SLOT = "SLOT"
WORK_S = 0.05
"""At most, between reading and committing: so that members are often killed or stopped in between."""

ended = threading.Event()


class Notes(ConsumerRebalanceListener):
    """The file of one member, and the listener that writes to it. ``offsets``: what this member has to commit."""

    def __init__(self, path: Path) -> None:
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, **more: Any) -> None:
        line = json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n"
        os.write(self._file, line.encode())

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.note("assigned", partitions=sorted(each.partition for each in partitions))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._gone("revoked", partitions)

    def on_partitions_lost(self, partitions: Any) -> None:
        self._gone("lost", partitions)

    def _gone(self, what: str, partitions: Any) -> None:
        self.note(what, partitions=sorted(each.partition for each in partitions))
        for each in partitions:
            self.offsets.pop(each, None)


def work(consumer: Any, notes: Notes, rng: random.Random) -> None:
    """Read a batch, take some time, commit it. What could not be committed is tried again after the next poll, as far
    as the partitions are still this member's."""
    offsets = notes.offsets
    batch = consumer.poll(timeout_ms=200, max_records=MAX_RECORDS)
    if batch:
        notes.note("read", values={tp.partition: [int(record.value) for record in batch[tp]] for tp in batch})
        time.sleep(rng.random() * WORK_S)
        offsets.update({tp: OffsetAndMetadata(records[-1].offset + 1, "", -1) for tp, records in batch.items()})
    if not offsets:
        return
    generation = consumer.group_metadata().generation_id
    began = time.monotonic()
    consumer.commit(dict(offsets))
    notes.note(
        "committed",
        began=began,
        generation=generation,
        offsets={tp.partition: what.offset for tp, what in offsets.items()},
    )
    offsets.clear()


def connect(bootstrap: str, topic: str, group: str, settings: dict[str, Any], notes: Notes) -> Any:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        retry_backoff_max_ms=200,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        **settings,
    )
    consumer.subscribe([topic], listener=notes)
    return consumer


def member(bootstrap: str, topic: str, group: str, settings: dict[str, Any], notes: Notes) -> None:
    """The life of one member."""
    rng = random.Random(os.getpid())
    consumer = connect(bootstrap, topic, group, settings, notes)
    notes.note("began")
    while not ended.is_set():
        try:
            work(consumer, notes, rng)
        except (FencedInstanceIdError, UnreleasedInstanceIdError) as error:
            notes.note("error", text=f"{type(error).__name__}: {error}"[:300])
            consumer.close()
            ended.wait(0.2)
            consumer = connect(bootstrap, topic, group, settings, notes)
            notes.offsets.clear()
        except KafkaError as error:
            notes.note("error", text=f"{type(error).__name__}: {error}"[:300])
            ended.wait(0.05)
    consumer.close()
    notes.note("ended")


def guarded(bootstrap: str, topic: str, group: str, settings: dict[str, Any], notes: Notes) -> None:
    """What no member may do is noted, and ends the process with an error."""
    try:
        member(bootstrap, topic, group, settings, notes)
    except BaseException as error:
        notes.note("crashed", text=repr(error))
        logging.exception("a member crashed")
        os._exit(3)


def main() -> None:
    order = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threads = [
        threading.Thread(
            target=guarded,
            args=(
                order["bootstrap"],
                order["topic"],
                group,
                {name: f"slot-{order['slot']}" if value == SLOT else value for name, value in settings.items()},
                Notes(Path(order["notes"], f"{group}.{os.getpid()}")),
            ),
        )
        for group, settings in order["groups"].items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # so that the main thread takes signals


if __name__ == "__main__":
    main()
