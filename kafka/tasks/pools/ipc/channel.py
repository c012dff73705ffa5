"""The channel between the worker and one child: made for the child, closed with it, used by no other process.

Four things, and each of two processes has its side of them::

                 parent (ParentChannel)                         child (ChildChannel)
    jobs         sends a packet for each job       ---->        receives them one by one
                 receives them, too: recall()
    messages     reads frames, never waits         <----        writes frames, waits for room
    lifeline     holds it open                     ---->        killed by the kernel when it closes (process_setup.py)
    page         reads the child's words, writes its own        the other way round (shared_page.py)

*Who receives a packet has the job*, and the kernel decides who: the parent keeps a duplicate of the child's end of
jobs, and to recall is to receive from it without waiting. So a recalled job cannot run and one that runs cannot be
recalled, with no question asked and whatever the child is doing. (With ACK and NACK messages a child inside a long C
call would keep all that it was sent.) What would not fit into a packet or a frame goes through a file
(``large_payloads.py``).

The kernel's buffer bounds how many jobs a child may have ahead; a dead child's undelivered jobs are still in it, and
come back by the same recall.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import NamedTuple

from kafka.tasks.pools.ipc import large_payloads
from kafka.tasks.pools.ipc.frames import HEAD_BYTES, IN_FILE, PipeFrameReader, encode
from kafka.tasks.pools.ipc.messages import (
    DONE,
    END,
    PACKET_BYTES,
    PROGRESS,
    STARTED,
    UP,
    Packet,
    decode_job,
    decode_message,
    encode_done,
    encode_job,
    encode_progress,
    encode_started,
    encode_up,
    seq_of,
)
from kafka.tasks.pools.ipc.processes import ChannelDamaged, ChildMessage, ChildUp, JobDone
from kafka.tasks.pools.ipc.shared_page import SharedPage, page_file
from kafka.tasks.pools.runner import Job


def _packet_kind() -> int:
    """Asked of the system: macOS knows the name SOCK_SEQPACKET, and refuses it for local sockets."""
    kind: int = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
    try:
        for sock in socket.socketpair(socket.AF_UNIX, kind):
            sock.close()
    except OSError:
        return socket.SOCK_DGRAM
    return kind


PACKET_KIND = _packet_kind()
"""Packets that keep their bounds, with an end. Where there are none for local sockets END is a packet."""

HAS_END = PACKET_KIND != socket.SOCK_DGRAM

BUFFER_BYTES = 1 << 20
"""Asked for, of the jobs' socket: some 800 small packets. The kernel gives what its own limit allows."""

READ_BYTES = 1 << 16
MOST_READS = 16
MAX_MESSAGES = 4096
"""Of one turn, about: a child that floods the parent must not keep it from the others."""

MOST_FILES = 4
"""Descriptors that have come without their frames. A child passes one with each large outcome, and the kernel keeps the
two together; other descriptors that user code passes would use up those of the parent."""

_TRUNCATED = int(socket.MSG_CTRUNC)  # a number: `&` with a member of an enumeration takes 1 us
_LARGEST_PACKET = PACKET_BYTES + large_payloads.FILE_FROM_BYTES
_PEER_GONE = frozenset(
    {errno.EPIPE, errno.ECONNRESET, errno.ECONNREFUSED, errno.ENOTCONN, errno.EBADF, errno.ESHUTDOWN}
)


class ChildFds(NamedTuple):
    """The child's ends as descriptors, as they are handed to a process. ``page`` -1: it is in shared memory already."""

    jobs: int
    messages: int
    lifeline: int
    page: int

    def close(self) -> None:
        """Close them here: the child has its own copies."""
        for fd in self:
            if fd >= 0:
                os.close(fd)


class ParentChannel:
    """The parent's side. No method waits, and none raises because the child is gone."""

    def __init__(
        self, generation: int, shared: bool = False, spare_descriptor: large_payloads.SpareDescriptor | None = None
    ) -> None:
        """Make a channel; :attr:`for_child` are the ends to hand over and to close. ``shared``: the child is forked
        from this process, and so has its memory. ``spare_descriptor``: for the file of a large result. OSError when the
        system has no more descriptors.
        """
        self.generation = generation
        self.messages_eof = False
        self._reader = PipeFrameReader(generation)
        self._received_fds: list[int] = []
        self._files_passed = 0
        self._spare_descriptor = spare_descriptor
        with contextlib.ExitStack() as undo:
            self._jobs, child_jobs = _pair(PACKET_KIND, undo)
            self._messages, child_messages = _pair(socket.SOCK_STREAM, undo)
            lifeline, self._lifeline = os.pipe()
            undo.callback(os.close, lifeline)
            undo.callback(os.close, self._lifeline)
            fd = -1 if shared else page_file()
            if fd >= 0:
                undo.callback(os.close, fd)
            self.page = SharedPage(None if shared else fd)
            self._recall_end = child_jobs.dup()
            undo.pop_all()
        self._jobs.setblocking(False)
        self._messages.setblocking(False)
        self._recall_end.settimeout(None)  # not socket.setdefaulttimeout()'s: to recall would wait for so long
        self._jobs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        if not HAS_END:  # macOS keeps datagrams in the receiver's buffer, which has 4 KiB by default
            self._recall_end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.messages_fd = self._messages.fileno()
        self.for_child = ChildFds(child_jobs.detach(), child_messages.detach(), lifeline, fd)

    def send(self, seq: int, job: Job) -> bool:
        """Send a job; False when the channel is full. Also True when the child has ended, which is detected elsewhere;
        :meth:`recall` returns the job.
        """
        head, names, payload = encode_job(seq, job)
        if len(names) + len(payload) > large_payloads.FILE_FROM_BYTES:
            return self._send_file(head, names, payload)
        try:
            self._jobs.send(head + names + payload)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:  # what a full buffer is called elsewhere
                return False
            if error.errno not in _PEER_GONE:
                raise
        return True

    def _send_file(self, head: bytes, names: bytes, payload: bytes) -> bool:
        fd = large_payloads.write_file(names, payload)
        try:
            self._jobs.sendmsg([head], large_payloads.pass_fd(fd))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ETOOMANYREFS):
                return False
            if error.errno not in _PEER_GONE:
                raise
        finally:
            os.close(fd)
        return True

    def recall(self, most: int | None = None) -> list[int]:
        """Take back jobs that the child has not received, those sent first first; their sequence numbers."""
        recalled: list[int] = []
        while most is None or len(recalled) < most:
            try:
                packet, ancillary, _, _ = self._recall_end.recvmsg(
                    PACKET_BYTES, large_payloads.ANCILLARY_BYTES, socket.MSG_DONTWAIT
                )
            except OSError:  # nothing more (or, on some systems, the child has reset its end)
                break
            if not packet:
                break
            large_payloads.close_all(large_payloads.received_fds(ancillary))
            if packet != END:
                recalled.append(seq_of(packet))
        return recalled

    def retire(self) -> None:
        """No more jobs: the child ends those that it was sent, and then itself."""
        with contextlib.suppress(OSError):
            if not HAS_END:
                self._jobs.send(END)
            self._jobs.shutdown(socket.SHUT_WR)

    def read_messages(self) -> list[ChildMessage]:
        """Read the complete messages. :attr:`messages_eof` is set at the stream's end.

        :class:`ChannelDamaged` for what cannot be understood, after what came before it; the descriptor is readable
        until that has been raised. That is the stream's end, too: nothing more is read.
        """
        reader = self._reader
        if reader.damage is not None:
            self.messages_eof = True
            raise ChannelDamaged(reader.damage)
        spare_descriptor = self._spare_descriptor
        if spare_descriptor is None or self.page.files_passed == self._files_passed:
            return self._read()
        spare_descriptor.release()
        try:
            return self._read()
        finally:
            spare_descriptor.reopen()

    def _read(self) -> list[ChildMessage]:
        reader = self._reader
        messages: list[ChildMessage] = []
        for _ in range(MOST_READS):
            try:
                data, ancillary, _, _ = self._messages.recvmsg(READ_BYTES, 4 * large_payloads.ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in _PEER_GONE:
                    raise
                data, ancillary = b"", []
            if ancillary:
                self._received_fds += large_payloads.received_fds(ancillary)
                self._files_passed += 1
            if not data:
                self.messages_eof = True
                break
            try:
                if len(self._received_fds) > MOST_FILES:
                    raise ChannelDamaged(f"received {len(self._received_fds)} descriptors without their frames")
                for frame in reader.feed(data):
                    body = self._from_file() if frame.flags & IN_FILE else frame.body
                    messages.append(decode_message(frame, body))
            except ChannelDamaged as error:
                reader.fail(str(error))
            if reader.damage is not None:
                if not messages:
                    self.messages_eof = True
                    raise ChannelDamaged(reader.damage)
                with contextlib.suppress(OSError):
                    self._messages.shutdown(socket.SHUT_RD)  # so it is readable, and the loop comes back for the rest
                break
            if (len(data) < READ_BYTES and not ancillary) or len(messages) >= MAX_MESSAGES:
                break
        return messages

    def _from_file(self) -> bytes:
        if not self._received_fds:
            raise ChannelDamaged("received a frame without the file of its body")
        try:
            most_bytes = None if self._spare_descriptor is None else self._spare_descriptor.most_bytes
            return large_payloads.read_file(self._received_fds.pop(0), most_bytes)
        except OSError as error:  # frames behind it are lost, too, so the channel cannot be used any more
            raise ChannelDamaged(f"could not read the file of a frame's body: {error}") from error

    def close(self) -> None:
        """Close everything, which kills a child that is still running."""
        for sock in (self._jobs, self._recall_end, self._messages):
            sock.close()
        large_payloads.close_all(self._received_fds)
        self._received_fds = []
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self.page.close()


class ChildChannel:
    """The child's side. ``page`` is given when parent and child share it by a fork."""

    def __init__(self, generation: int, fds: ChildFds, page: SharedPage | None = None) -> None:
        self.generation = generation
        self.lifeline = fds.lifeline
        self._jobs = socket.socket(fileno=fds.jobs)
        self._messages = socket.socket(fileno=fds.messages)
        for sock in (self._jobs, self._messages):
            sock.settimeout(None)  # not socket.setdefaulttimeout()'s: idle for so long, the channel would seem broken
        if page is None:
            self.page = SharedPage(fds.page)
            os.close(fds.page)
        else:
            self.page = page
        self._buffer = bytearray(_LARGEST_PACKET)
        self._buffers = [self._buffer]
        self._packet_view = memoryview(self._buffer)
        self._packet_bytes = 0
        self._payload_fd = -1

    def fds(self) -> tuple[int, int, int]:
        """Its descriptors."""
        return self._jobs.fileno(), self._messages.fileno(), self.lifeline

    def receive(self) -> Packet | None:
        """Wait for the next job; None at the end of the jobs. OSError when user code has closed the channel, or has
        left no descriptor for the file of a large job.
        """
        return self.packet() if self.take() else None

    def take(self) -> int:
        """Wait for the next job, and leave it as it came, for :meth:`packet`; its number, 0 at the end of the jobs. See
        :meth:`receive` for what it raises.
        """
        self._packet_bytes, ancillary, flags, _ = self._jobs.recvmsg_into(self._buffers, large_payloads.ANCILLARY_BYTES)
        if ancillary:
            (self._payload_fd,) = large_payloads.received_fds(ancillary) or (-1,)
        if flags & _TRUNCATED:
            self.discard_file()
            raise OSError(errno.EMFILE, "no descriptor is left for the file of a large job")
        return 0 if self._packet_bytes <= len(END) else seq_of(self._buffer)

    def packet(self) -> Packet:
        """The job that was taken last; may be called once for each."""
        rest = None
        if self._payload_fd >= 0:
            fd, self._payload_fd = self._payload_fd, -1
            rest = large_payloads.read_file(fd)
        return decode_job(self._packet_view[: self._packet_bytes], rest)

    def discard_file(self) -> None:
        """The job that was taken last is in another process."""
        if self._payload_fd >= 0:
            os.close(self._payload_fd)
            self._payload_fd = -1

    def send_up(self, up: ChildUp) -> None:
        """Report that this child takes jobs."""
        self._send(UP, encode_up(up))

    def send_progress(self, text: str) -> None:
        """Report the progress or the failure of the start."""
        self._send(PROGRESS, encode_progress(text))

    def send_started(self, seq: int, started_at: float) -> None:
        """Report that a job is about to run."""
        self._send(STARTED, encode_started(seq, started_at))

    def send_done(self, done: JobDone) -> None:
        """Write the outcome of a job; the parent has it when this returns."""
        self._send(DONE, encode_done(done.seq, done.outcome, done.ran_s, done.started_at))

    def _send(self, kind: int, body: bytes) -> None:
        if len(body) <= large_payloads.FILE_FROM_BYTES:
            self._messages.sendall(encode(self.generation, kind, body))
            return
        frame = encode(self.generation, kind, b"", IN_FILE)
        assert len(frame) == HEAD_BYTES  # goes in one piece, so the file cannot come apart from it
        fd = large_payloads.write_file(body)
        self.page.count_file()
        try:
            sent = self._messages.sendmsg([frame], large_payloads.pass_fd(fd))
            if sent < len(frame):
                self._messages.sendall(frame[sent:])
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close it in a process that does not use it; the parent's view of the channel does not change."""
        self._jobs.close()
        self._messages.close()
        with contextlib.suppress(OSError):
            os.close(self.lifeline)


def _pair(kind: int, undo: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    undo.callback(ours.close)
    undo.callback(theirs.close)
    return ours, theirs
