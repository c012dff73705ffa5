"""A plug-in for Apache Kafka that takes what clients push (KIP-714), and puts it into files.

Without one, a broker does not offer telemetry at all. :func:`compiled` gives the directory with its class, compiled by
``javac`` against the broker's own jars and kept in the cache; :func:`settings` what the broker is to be set to;
:func:`pushes` reads what came: a file for each push, whose name is ``NUMBER_INSTANCE_TERMINATING``.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib
import shutil
import subprocess
import tempfile
from typing import NamedTuple
from uuid import UUID

from test.support import jars

NAME = "FileTelemetry"
DIRECTORY_SETTING = "file.telemetry.directory"

SOURCE = """
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.*;

public class FileTelemetry implements MetricsReporter, ClientTelemetry {
    private static final AtomicInteger NUMBER = new AtomicInteger();
    private Path directory;

    public void configure(Map<String, ?> configs) { directory = Paths.get((String) configs.get("DIRECTORY")); }
    public void init(List<KafkaMetric> metrics) { }
    public void metricChange(KafkaMetric metric) { }
    public void metricRemoval(KafkaMetric metric) { }
    public void close() { }

    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            String name = String.format("%06d_%s_%s", NUMBER.incrementAndGet(), payload.clientInstanceId(),
                payload.isTerminating());
            try {
                Path part = directory.resolve("." + name);
                Files.write(part, bytes);
                Files.move(part, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE);
            } catch (java.io.IOException error) {
                throw new RuntimeException(error);
            }
        };
    }
}
""".replace("DIRECTORY", DIRECTORY_SETTING)


class Pushed(NamedTuple):
    """One push, as the broker's plug-in was given it. ``metrics``: not compressed any more."""

    client_instance_id: UUID
    is_terminating: bool
    metrics: bytes


def compiled(version: str) -> pathlib.Path:
    """The directory with the class. :class:`jars.Unavailable` where there is no compiler."""
    classpath = jars.broker_classpath(version)
    home = jars.cache_directory() / f"telemetry-{version}-{hashlib.sha256(SOURCE.encode()).hexdigest()[:12]}"
    if not (home / f"{NAME}.class").exists():
        javac = shutil.which("javac")
        if javac is None:
            raise jars.Unavailable("there is no Java compiler (no `javac` on PATH)")
        with tempfile.TemporaryDirectory() as part:
            source = pathlib.Path(part, f"{NAME}.java")
            source.write_text(SOURCE)
            done = subprocess.run(
                [javac, "-nowarn", "-proc:none", "-cp", classpath, "-d", part, str(source)],
                capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            if done.returncode != 0:
                raise jars.Unavailable(f"the plug-in does not compile:\n{done.stderr}")
            home.mkdir(parents=True, exist_ok=True)
            for made in pathlib.Path(part).glob("*.class"):
                shutil.copy(made, home)
    return home


def settings(directory: pathlib.Path) -> dict[str, object]:
    """Of a broker that puts pushes into ``directory``."""
    return {"metric.reporters": NAME, DIRECTORY_SETTING: directory}


def pushes(directory: pathlib.Path) -> list[Pushed]:
    """What has come, in its order."""
    found = []
    for path in sorted(directory.glob("[0-9]*")):
        instance, terminating = path.name.partition("_")[2].rsplit("_", 1)  # which may have that character, too
        client_instance_id = UUID(bytes=base64.urlsafe_b64decode(instance + "=="))
        found.append(Pushed(client_instance_id, terminating == "true", path.read_bytes()))
    return found
