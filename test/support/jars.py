"""Jars of Apache Kafka, through Maven, kept in one cache for all tests of a user.

The cache is ``$APACHE_KAFKA_CACHE``, or ``~/.cache/apache-kafka``::

    CACHE/4.3.0/lib/*.jar       the broker of a release and all it needs
    CACHE/4.3.0/complete        an empty file, made last: without it the folder is made anew
    CACHE/clients/kafka-clients-2.8.2.jar
    CACHE/tools/4.3.0/lib/*.jar the command line tools
    CACHE/2.8.2.lock            held while a process fetches, so that two test runs do not fetch the same

What starts the broker is in ``apache_kafka.py``; what reads the schemas is in ``schemas.py``. A new release of Kafka
is one more name in :data:`RELEASES`, and perhaps a line in :func:`_pom` for a jar that it needs and does not bring.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

RELEASES = (
    *("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2"),  # with ZooKeeper
    *("3.9.1", "4.1.1", "4.3.0"),
)
"""Releases of Apache Kafka that are known to start on Java 17."""

_SCALA = (("0.8.1", "2.9.2"), ("0.8", "2.10"), ("0.", "2.11"), ("1.", "2.12"), ("", "2.13"))
"""Release prefix -> the Scala build that Maven has of it; the first match counts."""

_FETCH_TIMEOUT_S = 540


class Unavailable(Exception):
    """Java, Maven or a jar is not to be had here; the text says which and why."""


def cache_directory() -> pathlib.Path:
    """Where the jars are kept."""
    return pathlib.Path(os.environ.get("APACHE_KAFKA_CACHE") or pathlib.Path.home() / ".cache" / "apache-kafka")


def broker_classpath(version: str) -> str:
    """The class path of a broker of ``version``, fetched when it is not in the cache."""
    home = cache_directory() / version
    with _locked(version):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            (home / "pom.xml").write_text(_pom(version))
            _maven("-f", str(home / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}")
            (home / "complete").touch()
    return str(home / "lib" / "*")


def tools_classpath(version: str = RELEASES[-1]) -> str:
    """The class path of Kafka's command line tools (``org.apache.kafka:kafka-tools``)."""
    home = cache_directory() / "tools" / version
    with _locked(f"tools-{version}"):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            (home / "pom.xml").write_text(_tools_pom(version))
            _maven("-f", str(home / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}")
            (home / "complete").touch()
    return str(home / "lib" / "*")


def schema_jar(version: str) -> pathlib.Path:
    """The ``kafka-clients`` jar of ``version``: it holds the schemas of all messages under ``common/message``."""
    name = f"kafka-clients-{version}.jar"
    beside_broker = cache_directory() / version / "lib" / name
    if (cache_directory() / version / "complete").exists() and beside_broker.exists():
        return beside_broker
    home = cache_directory() / "clients"
    with _locked(f"clients-{version}"):
        if not (home / name).exists():
            part = home / f"{version}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{version}"
            _maven("dependency:copy", artifact, f"-DoutputDirectory={part}", directory=part)
            (part / name).rename(home / name)
            shutil.rmtree(part)
    return home / name


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as lock, time_limit_stands_still():
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def time_limit_stands_still() -> Iterator[None]:
    """The first fetch of a release may take minutes, which the calling test's time limit must not count.

    pytest-timeout's limit is this timer.
    """
    remaining_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining_s)


def _maven(*arguments: str, directory: pathlib.Path | None = None) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven is not installed (no `mvn` on PATH)")
    try:
        done = subprocess.run(
            [maven, "-q", "-B", *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not end within {_FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).splitlines()[-15:]
        raise Unavailable("\n".join(["Maven could not fetch the jars:", *tail]))


def _dependency(group: str, artifact: str, version: str, inner: str = "") -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{inner}</dependency>"
    )


def _pom(version: str) -> str:
    """A project that depends on the broker, and on what the broker needs on a Java of today but does not bring."""
    major = version.partition(".")[0]
    scala = next(scala for prefix, scala in _SCALA if version.startswith(prefix))
    # Releases 0.8.0 and 0.8.1 name three jars that no repository has; the broker starts without them.
    missing = (("com.sun.jdmk", "jmxtools"), ("com.sun.jmx", "jmxri"), ("javax.jms", "jms")) if major == "0" else ()
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in missing
    )
    dependencies = [
        _dependency("org.apache.kafka", f"kafka_{scala}", version, f"<exclusions>{exclusions}</exclusions>")
    ]
    if major in ("0", "1"):  # Java 11 dropped JAXB
        dependencies.append(_dependency("javax.xml.bind", "jaxb-api", "2.3.1"))
    if major in ("1", "2", "3"):
        dependencies.append(_dependency("org.slf4j", "slf4j-reload4j", "1.7.36"))
    elif major != "0":
        dependencies.append(_dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"))
    return _project(dependencies)


def _tools_pom(version: str) -> str:
    """A project that depends on the command line tools, and on something that takes their log lines."""
    return _project(
        [
            _dependency("org.apache.kafka", "kafka-tools", version),
            _dependency("org.slf4j", "slf4j-nop", "1.7.36"),
        ]
    )


def _project(dependencies: list[str]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )
