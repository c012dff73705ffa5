"""A worker with queues of both kinds has one delivery."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kafka.tasks.delivery.base import BrokerContact, Ending, JobLease, JobSource, MetadataUse
from kafka.tasks.delivery.combined import CombinedDelivery


class Part:
    """A delivery that notes what it is asked for."""

    def __init__(self, events: Any, queue: str, lock_s: float) -> None:
        self.events = events
        self.lock_s = lock_s
        self.sources = (JobSource(queue, f"shop.{queue}"),)
        self.asked: list[Any] = []
        self.drained: Callable[[], object] | None = None

    def request(self, source: JobSource, count: int) -> None:
        self.asked.append((source.queue, count))

    def drain(self, drained: Callable[[], object]) -> None:
        self.drained = drained

    def renew(self, leases: Sequence[JobLease]) -> None:
        self.asked.append(("renew", len(leases)))

    def accept(self, leases: Sequence[JobLease]) -> None:
        self.asked.append(("accept", len(leases)))

    def publish(self, records: Any, done: Any) -> None:
        self.asked.append("publish")

    def finish(self, endings: Sequence[Ending], done: Any) -> None:
        self.asked.append(("finish", len(endings)))

    def cancelled(self, ids: Collection[str]) -> None:
        self.asked.append(("cancelled", sorted(ids)))

    def contacts(self) -> list[BrokerContact]:
        return [BrokerContact(self.sources[0], 1.0, 2.0)]

    def metadata_use(self) -> list[MetadataUse]:
        return [MetadataUse(self.sources[0].queue, 0, 12)]

    def close(self) -> None:
        self.asked.append("close")


class Events:
    """A worker, as far as it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.heard.append(name)


def test_each_part_is_asked_for_its_own_queues_and_all_end_together() -> None:
    events: Any = Events()
    parts: list[Any] = []

    def opening(queue: str, lock_s: float) -> Callable[[Any], Any]:
        def open_part(of: Any) -> Any:
            parts.append(Part(of, queue, lock_s))
            return parts[-1]

        return open_part

    combined = CombinedDelivery(events, [opening("mail", 30.0), opening("ledger", 10.0)])
    mail, ledger = parts
    assert combined.lock_s == 10.0
    assert [source.queue for source in combined.sources] == ["mail", "ledger"]
    leases = [JobLease(part.sources[0], b"", [], 1) for part in (mail, ledger, ledger)]
    combined.request(ledger.sources[0], 3)
    combined.renew(leases)
    combined.finish([Ending(lease, None, []) for lease in leases[:1]], lambda _: None)
    combined.publish([], lambda _: None)
    assert mail.asked == [("renew", 1), ("finish", 1), "publish"]
    assert ledger.asked == [("ledger", 3), ("renew", 2)]
    assert len(combined.contacts()) == 2
    assert [use.queue for use in combined.metadata_use()] == ["mail", "ledger"]
    combined.cancelled(["an-id"])
    assert mail.asked[-1] == ledger.asked[-1] == ("cancelled", ["an-id"])

    drained: list[int] = []
    combined.drain(lambda: drained.append(1))
    mail.drained()
    assert drained == []
    ledger.drained()
    assert drained == [1]
    mail.events.leased([])
    ledger.events.returning([])
    combined.close()
    ledger.events.left()
    assert events.heard == ["leased", "returning"]
    mail.events.left()
    assert events.heard == ["leased", "returning", "left"]
