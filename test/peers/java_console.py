"""Java's console producer and console consumer, of Kafka 0.8.2 to 4.3, as functions.

Their options were renamed again and again: each release that needs others is a branch in :class:`Console`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

TIMEOUT_S: Final = 90.0
DUMP_S: Final = 5.0
"""For the dump of threads of one that hangs."""


class ConsoleFailed(Exception):
    """A tool ended with an error, or took too long; the text has what it printed."""


class Console:
    """The tools of one release, on its ``classpath``. ``zookeeper``: where that of a broker before 0.9 is."""

    def __init__(self, classpath: str, version: str, bootstrap: str, zookeeper: str = "") -> None:
        self._classpath = classpath
        self._release = tuple(int(part) for part in version.split("."))
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper

    def produce(self, topic: str, count: int, codec: str) -> None:
        """Send ``key-N`` and ``value-N``."""
        lines = "".join(f"key-{n}:value-{n}\n" for n in range(count))
        old = self._release < (3,)
        server = ["--broker-list" if old else "--bootstrap-server", self._bootstrap]
        if old:  # they ask for no acknowledgement by default, and lose what was not sent when they end
            server += ["--request-required-acks", "1", "--request-timeout-ms", "30000"]
        option = "--property" if old else "--reader-property"
        self._run(
            "kafka.tools.ConsoleProducer" if old else "org.apache.kafka.tools.ConsoleProducer",
            [*server, "--topic", topic, "--compression-codec", codec, option, "parse.key=true", option,
             "key.separator=:"],
            lines,
        )  # fmt: skip

    def consume(self, topic: str, count: int) -> list[str]:
        """``key-N:value-N`` of so many records of partition 0 from the start on (of all partitions before 0.10)."""
        old = self._release < (3,)
        server = ["--bootstrap-server", self._bootstrap]
        if self._release < (0, 9):
            server = ["--zookeeper", self._zookeeper]
        elif self._release < (0, 10):
            server = ["--new-consumer", *server]
        option = "--property" if old else "--formatter-property"
        start = ["--from-beginning"] if self._release < (0, 10) else ["--partition", "0", "--offset", "earliest"]
        out = self._run(
            "kafka.tools.ConsoleConsumer" if old else "org.apache.kafka.tools.consumer.ConsoleConsumer",
            [*server, "--topic", topic, *start, "--max-messages", str(count), option, "print.key=true",
             option, "key.separator=:"],
        )  # fmt: skip
        return [line for line in out.splitlines() if line.startswith("key-")]

    def _run(self, tool: str, arguments: Sequence[str], text: str = "") -> str:
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self._classpath, tool, *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            out, err = process.communicate(text, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ConsoleFailed(f"{tool} did not end within {TIMEOUT_S:g} s\n{_last_words(process)}") from None
        finally:
            process.kill()
        if process.returncode:
            raise ConsoleFailed(f"{tool} ended with {process.returncode}\n{out[-2000:]}\n{err[-2000:]}")
        return out


def _last_words(process: subprocess.Popen[str]) -> str:
    """What a virtual machine that hangs has printed, and what its threads are doing; it is ended."""
    process.send_signal(signal.SIGQUIT)  # it prints a dump of its threads, and goes on
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=DUMP_S)
    process.kill()
    out, err = process.communicate()
    return f"{out[:20_000]}\n{err[-4000:]}"
