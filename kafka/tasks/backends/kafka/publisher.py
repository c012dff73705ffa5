"""The worker's way to write: groups of records in, one answer for each group out.

Two producers over one client; a record's kind says which it goes to. Job records (retries, suspects) and commands to
the schedule go in small batches like those of an app's own producer, since a broker sends the whole batch again for
each part of it that is acquired; state records and dead ones are read in order by plain consumers and go in large ones.
Of these one request is in flight to each node: records published meanwhile share a batch, and where jobs are short
there are less than half as many requests. A result waits for two answers at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.client import KafkaClient
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.producer import FutureRecordMetadata, KafkaProducer, when_all_done
from kafka.tasks.backends.kafka.connection import producer_configs
from kafka.tasks.delivery.base import Appended, OutgoingRecord, PublishCallback, RecordKind
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.records import CLOCK_HEADERS
from kafka.tasks.settings import Settings
from kafka.tasks.worker.runtime_estimate import PRODUCER_BATCH_RECORDS

STATE_BATCH_BYTES = 65_536


class KafkaPublisher:
    """See :class:`kafka.tasks.delivery.base.Publisher`. On the loop's thread. ``clock`` learns from the answers.
    ``results``: the topic of states."""

    def __init__(self, client: KafkaClient, settings: Settings, clock: BrokerTimeEstimate, results: str) -> None:
        self._clock = clock
        self._results = results
        self._learning: Future[None] = Future()
        self._learning.success(None)
        self._jobs = KafkaProducer(
            client=client,
            **producer_configs(
                settings, linger_s=0, batch_bytes=settings.batch_bytes, batch_records=PRODUCER_BATCH_RECORDS
            ),
        )
        self._states = KafkaProducer(
            client=client,
            max_in_flight_requests_per_connection=1,
            **producer_configs(settings, linger_s=0, batch_bytes=STATE_BATCH_BYTES, batch_records=0),
        )

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.Publisher`."""
        sent_ms = self._clock.local_ms()
        sent: list[FutureRecordMetadata | KafkaError] = []
        for kind, topic, value, key, headers, partition in records:
            producer = self._states if kind in (RecordKind.STATE, RecordKind.DEAD) else self._jobs
            try:
                sent.append(producer.send(topic, value, key, headers, partition))
            except KafkaError as error:
                sent.append(error)

        def on_all_done() -> None:
            answers: list[Appended | BaseException] = []
            appended_ms = -1
            for each in sent:
                answer = each if isinstance(each, KafkaError) else each.appended
                if isinstance(answer, BaseException):
                    answers.append(answer)
                else:
                    appended_ms = answer[0] if appended_ms < 0 else appended_ms
                    answers.append(Appended(*answer))
            if appended_ms >= 0:
                self._clock.observe(sent_ms, self._clock.local_ms(), appended_ms)
            done(answers)

        when_all_done([each for each in sent if isinstance(each, FutureRecordMetadata)], on_all_done)

    def learn_time(self) -> Future[None]:
        """Learn the broker's time from a record that no reader takes for a state. Done when that has succeeded or
        failed; the next record that is written tells it, too."""
        if self._learning.is_done:
            learning = self._learning = Future()

            def on_answer(_: object) -> None:
                learning.success(None)

            self.publish([OutgoingRecord(RecordKind.STATE, self._results, None, None, [*CLOCK_HEADERS], 0)], on_answer)
        return self._learning

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.Publisher`."""
        self._jobs.close(timeout=0)
        self._states.close(timeout=0)
