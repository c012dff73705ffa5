"""A state log read back: what its records and markers say, in order.

Of a compacted topic only the last plain record of each key is given, in the place of that record, just as after a
compaction that has come up to the log's end: so several readers cost one pass over the file, and what has to be held
meanwhile is what holds. Records of transactions are all given, as their outcome comes later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafka.broker.log import PartitionLog
from kafka.errors import CorruptRecordError, KafkaStorageError
from kafka.records import COMMIT, BatchHeader, decode_control, decode_raw, iter_batches
from kafka.records.reader import RawRecord

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20


class StateEvent(NamedTuple):
    """A record (``value`` None: a tombstone), or with ``key`` None the marker that ends ``producer``'s transaction.

    ``producer``: id and epoch, where a transaction has to do with it.
    """

    key: bytes | None
    value: bytes | None
    producer: tuple[int, int] | None
    is_committed: bool = False


def read_events(found: PartitionLog, *, is_compacted: bool) -> list[StateEvent]:
    """All that a log says. KafkaStorageError for what cannot be read."""
    if not is_compacted:
        return [_event(header, record) for header, record in _records(found)]
    kept: dict[bytes | int | None, tuple[BatchHeader, RawRecord]] = {}
    for pair in _records(found):
        header, record = pair
        if header.is_transactional:  # markers are, too
            kept[record[0]] = pair
        else:
            kept.pop(record[2], None)  # so that it goes to the end
            kept[record[2]] = pair
    return [_event(header, record) for header, record in kept.values()]


def _event(header: BatchHeader, record: RawRecord) -> StateEvent:
    producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
    if header.is_control:
        is_committed = decode_control(record[2], record[3]).kind == COMMIT
        return StateEvent(None, None, (header.producer_id, header.producer_epoch), is_committed)
    return StateEvent(record[2], record[3], producer)


def _records(found: PartitionLog) -> Iterator[tuple[BatchHeader, RawRecord]]:
    offset = found.start_offset
    while offset < found.end_offset:
        try:
            data = bytes(found.read(offset, _READ_BYTES))
            if not data:
                return
            for header in iter_batches(data):
                for record in decode_raw(data, header):
                    if record[0] < offset:
                        continue
                    if record[2] is None:
                        log.warning("%s: the record at offset %d has no key and is passed over", found.name, record[0])
                    else:
                        yield header, record
                offset = header.next_offset
        except CorruptRecordError as error:
            raise KafkaStorageError(
                f"{found.name} cannot be read from offset {offset} on: {error.args[0]}; put a copy of "
                f"{found.directory} in its place, or remove it, which loses the state that it holds"
            ) from error
