"""Log recovery at the opening of a log: what its directory holds, trusted where a seal describes it, else scanned.

    each segment   its seal is valid   take its facts, and the producers and leader epochs at its end
                   then                scan what lies behind the seal, or all of it (``segment.scan_segment``)

A torn tail of the last segment is truncated; all other corrupt bytes are kept and logged. Seals hold the state of the
whole log at their segment's end, so segments are opened in their order.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafka.broker.log.files import DELETED, finish_swaps, read_number, storage_errors
from kafka.broker.log.leader_epochs import LeaderEpochs
from kafka.broker.log.producer_state import ABORTED_ROW, ProducerStates, TransactionMarker
from kafka.broker.log.segment import ScanResult, Seal, Segment, scan_segment
from kafka.errors import KafkaStorageError
from kafka.records import ABORT, COMMIT, BatchHeader, decode_control, decode_raw, parse_header

if TYPE_CHECKING:
    from kafka.broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

START_OFFSET_NAME = "start-offset"


class LogRecovery:
    """Reads a log's directory, and fills its producers and leader epochs. ``now_ms``: the segments' creation time."""

    def __init__(self, partition: PartitionLog, now_ms: int) -> None:
        self.directory = partition.directory
        self.name = partition.name
        self.recovered_bytes = 0
        """How many bytes had to be scanned."""
        self.scanned: list[Segment] = []
        """Segments with scanned bytes, which may not be on the disk yet."""
        self._pool = partition.pool
        self._producers = partition.producers
        self._epochs = partition.epochs
        self._now_ms = now_ms

    def load_start_offset(self) -> int:
        """The log start offset that was stored by DeleteRecords or retention, or 0."""
        path = os.path.join(self.directory, START_OFFSET_NAME)
        try:
            with storage_errors("read", path):
                return read_number(path) or 0
        except ValueError as error:
            log.warning(
                "%s: ignoring %s: %s is no log start offset; serving all records in the directory",
                self.name, path, error,
            )  # fmt: skip
            return 0

    def finish_interrupted_swaps(self) -> list[str]:
        """Finish the segment swaps that a crash interrupted; the paths of files to delete."""
        with storage_errors("read the directory", self.directory):
            finish_swaps(self.directory, os.listdir(self.directory))
            names = os.listdir(self.directory)
        return [os.path.join(self.directory, name) for name in names if name.endswith(DELETED)]

    def segments(self) -> Iterator[Segment]:
        """Oldest first."""
        with storage_errors("read the directory", self.directory):
            names = sorted(name for name in os.listdir(self.directory) if name.endswith(".log"))
        for name in names:
            path = os.path.join(self.directory, name)
            stem = name[: -len(".log")]
            if not stem.isdigit():
                raise KafkaStorageError(f"unexpected file {path}: a segment is named by its base offset")
            with storage_errors("read", path):
                segment = self._load(path, int(stem), is_last=name == names[-1])
            yield segment

    def _load(self, path: str, base_offset: int, *, is_last: bool) -> Segment:
        """Open one segment by its seal, and scan what the seal does not describe."""
        status = os.stat(path)
        size = status.st_size
        segment = Segment(self._pool, path, base_offset, self._now_ms, int(status.st_mtime * 1000))
        state = segment.load_seal(size)
        if state is None or not self._restore(state, segment):
            with storage_errors("delete", segment.seal_path), contextlib.suppress(FileNotFoundError):
                os.unlink(segment.seal_path)
            segment.discard_seal()
        if segment.size == size:
            return segment
        self.recovered_bytes += size - segment.size
        self.scanned.append(segment)

        def on_batch(header: BatchHeader, after_corruption: bool) -> None:
            segment.add_batch(
                header.base_offset, header.next_offset, header.start, header.length, header.max_timestamp,
                after_corruption,
            )  # fmt: skip
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            self._producers.update(header, header.base_offset, header.max_timestamp)
            if header.is_control and header.producer_id >= 0:
                self._apply_marker(header, self._pool.read(segment.path, header.start, header.length))

        self._handle_scan(segment, scan_segment(segment.path, segment.next_offset, on_batch, segment.size), is_last)
        return segment

    def _handle_scan(self, segment: Segment, result: ScanResult, is_last: bool) -> None:
        """Truncate a torn tail, log corrupt bytes, and seal a segment without any."""
        torn = result.size - result.end
        segment.set_corruption(result.corrupt_ranges, 0 if is_last else torn)
        for corrupt in result.corrupt_ranges:
            log.error(
                "%s: %d bytes at position %d of %s are corrupt, offsets %d to %d: %s; they are kept and not served",
                self.name, corrupt.end - corrupt.start, corrupt.start, segment.path, corrupt.first_offset,
                corrupt.next_offset - 1, corrupt.cause,
            )  # fmt: skip
        if torn and is_last:
            self._pool.truncate(segment.path, result.end)
            log.warning(
                "%s: truncated %d torn bytes from %s at position %d, offset %d: %s",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip
        elif torn:
            log.error(
                "%s: the last %d bytes of %s are corrupt, from position %d offset %d: %s; kept, not served",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip
        elif not is_last:
            state = seal_state(self._producers, self._epochs, segment)
            write_seal(self.name, segment, segment.make_seal(state, is_on_disk=False))

    def _restore(self, state: dict[str, Any], segment: Segment) -> bool:
        """Restore the producers and leader epochs from a seal; False if they cannot be read."""
        try:
            self._epochs.restore(state["epochs"])
            self._producers.restore(state["producers"])
        except (TypeError, ValueError, KeyError, AttributeError):
            log.warning(
                "%s: cannot read the producers or leader epochs in %s: scanning the segment",
                self.name,
                segment.seal_path,
            )
            return False
        return True

    def _apply_marker(self, header: BatchHeader, data: bytes) -> None:
        """End the producer's transaction with a control batch found by the scan."""
        found = parse_header(data)
        for record in decode_raw(data, found) if found is not None else ():
            control = decode_control(record[2], record[3])
            if control.kind in (ABORT, COMMIT):
                marker = TransactionMarker(
                    header.producer_id, header.producer_epoch, control.kind == COMMIT, control.coordinator_epoch
                )
                self._producers.end_transaction(marker, record[0], max(0, header.max_timestamp))


def seal_state(producers: ProducerStates, epochs: LeaderEpochs, segment: Segment) -> dict[str, Any]:
    """The state for a seal: as it is now, which is the segment's end."""
    return {"producers": producers.snapshot(segment.base_offset), "epochs": epochs.snapshot()}


def merged_seal_state(states: list[dict[str, Any]]) -> dict[str, Any]:
    """The state of a segment compacted from several: that of the last, and the aborted transactions of all."""
    aborted = [row for state in states for row in state["producers"] if row[0] == ABORTED_ROW]
    producers = [row for row in states[-1]["producers"] if row[0] != ABORTED_ROW]
    return {"producers": producers + aborted, "epochs": states[-1]["epochs"]}


def write_seal(name: str, segment: Segment, seal: Seal | None) -> None:
    """Write the seal of a segment of the log ``name``; a failure is only logged, as the next start scans then."""
    try:
        segment.write_seal(seal)
    except KafkaStorageError as error:
        log.warning("%s: cannot write a seal, so the next start scans the segment: %s", name, error)
