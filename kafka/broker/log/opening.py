"""Opening a log: what its directory holds, believed where a seal describes it and scanned where none does.

    each segment   its seal fits    its facts, the producers and the epochs at its end
                   then             what lies behind the seal, or all of it, is scanned: scan.py

What is left are the decisions about what is bad: a torn tail of the last segment is cut, everything else is kept and
named. Seals hold the state of the whole log at their segment's end, so segments are opened in their order.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from kafka.broker.log.epochs import LeaderEpochs
from kafka.broker.log.files import FilePool, remove_file, storage_error
from kafka.broker.log.producer_state import ABORTED_ROW, ProducerStates
from kafka.broker.log.scan import ScanResult, scan_segment
from kafka.broker.log.segment import Seal, Segment
from kafka.broker.log.swap import DELETED, finish_swaps
from kafka.broker.private_files import open_private
from kafka.errors import KafkaStorageError
from kafka.records import ABORT, COMMIT, BatchHeader, decode_control, decode_raw, parse_header

log = logging.getLogger(__name__)

START_OFFSET_NAME = "start-offset"


class Opener:
    """Opens the log in ``directory``; ``producers`` and ``epochs`` are filled. ``now_ms``: when its segments count as
    begun."""

    def __init__(
        self,
        directory: str,
        name: str,
        pool: FilePool,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.name = name
        self.recovered_bytes = 0
        """How many had to be scanned."""
        self.scanned: list[Segment] = []
        """Where they lie: whether they are on the disk, nobody knows."""
        self._pool = pool
        self._producers = producers
        self._epochs = epochs
        self._now_ms = now_ms

    def saved_start(self) -> int:
        """The start offset that somebody has asked for, or 0."""
        path = os.path.join(self.directory, START_OFFSET_NAME)
        try:
            with open(path, "rb", opener=open_private) as file:
                text = file.read()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error("read", path, error) from error
        if not text.endswith(b"\n") or not text.strip().isdigit():
            log.warning("%s: %s says %r, which is no start offset: all that is there is served", self.name, path, text)
            return 0
        return int(text)

    def tidy(self) -> list[str]:
        """Finish what a crash has interrupted; the paths of files that are done with."""
        try:
            finish_swaps(self.directory, os.listdir(self.directory))
            names = os.listdir(self.directory)
        except OSError as error:
            raise storage_error("read the directory", self.directory, error) from error
        return [os.path.join(self.directory, name) for name in names if name.endswith(DELETED)]

    def segments(self) -> Iterator[Segment]:
        """Oldest first."""
        try:
            names = sorted(name for name in os.listdir(self.directory) if name.endswith(".log"))
        except OSError as error:
            raise storage_error("read the directory", self.directory, error) from error
        for name in names:
            path = os.path.join(self.directory, name)
            stem = name[: -len(".log")]
            if not stem.isdigit():
                raise KafkaStorageError(f"{path} is no segment of a log")
            segment = Segment(self._pool, path, int(stem))
            segment.created_ms = self._now_ms
            try:
                self._load(segment, is_last=name == names[-1])
            except OSError as error:
                raise storage_error("read", path, error) from error
            yield segment

    def _load(self, segment: Segment, *, is_last: bool) -> None:
        status = os.stat(segment.path)
        size = status.st_size
        segment.modified_ms = int(status.st_mtime * 1000)
        state = segment.load_seal(size)
        if state is None or not self._restore(state, segment):
            remove_file(segment.seal_path)
            segment.unseal()
        if segment.size == size:
            return
        self.recovered_bytes += size - segment.size
        self.scanned.append(segment)

        def on_batch(header: BatchHeader, after_damage: bool) -> None:
            segment.note(
                header.base_offset, header.next_offset, header.start, header.length, header.max_timestamp, after_damage
            )
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            self._producers.update(header, header.base_offset, header.max_timestamp)
            if header.is_control and header.producer_id >= 0:
                self._note_marker(header, self._pool.read(segment.path, header.start, header.length))

        self._judge(segment, scan_segment(segment.path, segment.next_offset, on_batch, segment.size), is_last)

    def _judge(self, segment: Segment, result: ScanResult, is_last: bool) -> None:
        """Cut what was torn, name what is bad, seal what is good."""
        segment.damages = result.damages
        for damage in result.damages:
            log.error(
                "%s: %d bytes at byte %d of %s are damaged, offsets %d to %d: %s; they are kept and not served",
                self.name, damage.end - damage.start, damage.start, segment.path, damage.first_offset,
                damage.next_offset - 1, damage.cause,
            )  # fmt: skip
        torn = result.size - result.end
        if torn and is_last:
            self._pool.truncate(segment.path, result.end)
            log.warning(
                "%s: cut a torn tail of %d bytes off %s, which now ends at byte %d and offset %d: %s",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip
        elif torn:
            log.error(
                "%s: the last %d bytes of %s are damaged, from byte %d and offset %d on: %s; they are kept, not served",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip
            segment.torn_bytes = torn
        elif not is_last:
            state = seal_state(self._producers, self._epochs, segment)
            write_seal(self.name, segment, segment.make_seal(state, is_on_disk=False))

    def _restore(self, state: dict[str, Any], segment: Segment) -> bool:
        """Take up what a seal keeps; whether that can be read."""
        try:
            self._epochs.restore(state["epochs"])
            self._producers.restore(state["producers"])
        except (TypeError, ValueError, KeyError, AttributeError):
            log.warning("%s: the producers or epochs in %s cannot be read", self.name, segment.seal_path)
            return False
        return True

    def _note_marker(self, header: BatchHeader, data: bytes) -> None:
        """Take a control batch that a scan has met into the producers."""
        found = parse_header(data)
        for record in decode_raw(data, found) if found is not None else ():
            marker = decode_control(record[2], record[3])
            if marker.kind in (ABORT, COMMIT):
                self._producers.end_transaction(
                    header.producer_id,
                    header.producer_epoch,
                    record[0],
                    committed=marker.kind == COMMIT,
                    coordinator_epoch=marker.coordinator_epoch,
                    now_ms=max(0, header.max_timestamp),
                )


def seal_state(producers: ProducerStates, epochs: LeaderEpochs, segment: Segment) -> dict[str, Any]:
    """What a seal keeps beside the segment's own facts: as it is now, which is the segment's end."""
    return {"producers": producers.snapshot(segment.base_offset), "epochs": epochs.snapshot()}


def joined_state(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a segment that was made of several: the state at the end of the last, and what was aborted in any of them."""
    aborted = [row for state in states for row in state["producers"] if row[0] == ABORTED_ROW]
    producers = [row for row in states[-1]["producers"] if row[0] != ABORTED_ROW]
    return {"producers": producers + aborted, "epochs": states[-1]["epochs"]}


def write_seal(name: str, segment: Segment, seal: Seal | None) -> None:
    """Write the seal of a segment of the log ``name``, which does without: the next start takes longer then."""
    try:
        segment.write_seal(seal)
    except KafkaStorageError as error:
        log.warning("%s: the next start will be slower: %s", name, error)
