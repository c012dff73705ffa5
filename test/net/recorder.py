"""A handler that writes down what happens to it, and an acceptor that keeps the connections it was given."""

from __future__ import annotations

from collections.abc import Callable

from kafka.net.transport import Transport, TransportHandler


class Recorder(TransportHandler):
    """``log`` has the names of the calls in order; ``pieces`` what each ``data_received`` brought."""

    def __init__(self, transport: Transport | None = None, on_data: Callable[[bytes], object] | None = None) -> None:
        self.transport = transport
        self.on_data = on_data
        self.log: list[str] = []
        self.pieces: list[bytes] = []
        self.error: BaseException | None = None

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def is_connected(self) -> bool:
        return "connected" in self.log

    @property
    def is_closed(self) -> bool:
        return "closed" in self.log

    def connected(self) -> None:
        self.log.append("connected")

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self.on_data is not None:
            self.on_data(data)

    def writable(self) -> None:
        self.log.append("writable")

    def closed(self, error: BaseException | None) -> None:
        self.log.append("closed")
        self.error = error


class Roomy(Recorder):
    """A handler with a place of its own for the next bytes: ``size`` of them, then again by ``data_received``, in turns
    of either."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.place = bytearray(size)
        self.counts: list[int] = []

    def get_buffer(self) -> memoryview | None:
        return memoryview(self.place) if len(self.counts) <= len(self.pieces) // 2 else None

    def buffer_updated(self, count: int) -> None:
        self.counts.append(count)
        self.pieces.append(bytes(self.place[:count]))

    def data_received(self, data: bytes) -> None:
        self.log.append("data_received")
        super().data_received(data)


class Acceptor:
    """For ``listen``: ``recorders`` has one for each connection."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.recorders: list[Recorder] = []

    def __call__(self, transport: Transport) -> Recorder:
        recorder = Recorder(transport, transport.write if self.echo else None)
        self.recorders.append(recorder)
        return recorder
