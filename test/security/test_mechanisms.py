"""Every client gets in by every protocol and mechanism, and does its work there."""

from __future__ import annotations

import ssl
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka import KafkaAdminClient, KafkaClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.cli import main
from kafka.core.routing import AnyNode
from kafka.net.loop import Loop
from kafka.protocol.metadata import MetadataRequest
from kafka.tasks import App, run_worker
from kafka.tasks.pools import make_loop
from test.security.support import SOON_S, WAYS, Secured, Way, produce, read, share, token_for
from test.support.waiting import polled

pytestmark = pytest.mark.timeout(180)

each_way = pytest.mark.parametrize("way", WAYS, ids=str)
COUNT = 200


@each_way
def test_topics_are_made_written_to_and_read(secured: Secured, way: Way) -> None:
    settings = secured.settings(way)
    topic = f"secured-{uuid.uuid4().hex[:8]}"
    with KafkaAdminClient(**settings) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True)
    produce(settings, topic, COUNT)
    assert read(settings, topic, COUNT) == list(range(COUNT))
    assert sorted(share(settings, topic, COUNT)) == list(range(COUNT))


@each_way
def test_a_bare_client_finds_out_the_release(secured: Secured, way: Way) -> None:
    with KafkaClient(**secured.settings(way)) as client:
        assert client.check_version() == "4.3"
        found = client.api_ranges().features
        assert found.get("share.version", (0, 0))[1] == 1, "features are told behind authentication"


@pytest.mark.parametrize("way", [Way("MUTUAL"), Way("BOTH", "SCRAM-SHA-512"), Way("TOKEN", "OAUTHBEARER")], ids=str)
def test_jobs_are_enqueued_run_and_their_results_found(secured: Secured, way: Way) -> None:
    settings = secured.settings(way)
    app = App(f"secured{uuid.uuid4().hex[:8]}", partitions=2, **settings)

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    job = double.delay(21)
    loop = make_loop()
    started = threading.Event()
    workers = []

    def note(worker: object) -> None:
        workers.append(worker)
        started.set()

    thread = threading.Thread(target=run_worker, args=(app, (), "threads", 1, loop, note), daemon=True)
    thread.start()
    try:
        assert started.wait(SOON_S)
        assert job.result(timeout=SOON_S) == 42
    finally:
        if workers:
            loop.call_soon_threadsafe(workers[0].stop)  # type: ignore[attr-defined]
        thread.join(SOON_S)
        loop.close()
    assert not thread.is_alive()
    assert "secret" not in repr(app.settings) + repr(app.settings.client)


def test_a_context_of_the_users_own_does(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.certificates.ca)
    topic = secured.new_topic()
    settings = secured.settings("SSL", ssl_cafile=None, ssl_context=context)
    produce(settings, topic, 10)
    assert read(settings, topic, 10) == list(range(10))


def test_a_key_with_a_password_is_opened(secured: Secured) -> None:
    from test.support.certificates import PASSWORD

    made = secured.certificates
    topic = secured.new_topic()
    for password in (PASSWORD, lambda: PASSWORD):
        produce(secured.settings("MUTUAL", ssl_keyfile=made.client_locked_key, ssl_password=password), topic, 1)
    assert read(secured.plain(), topic, 2) == [0, 0]


def test_revocation_lists_are_looked_into(secured: Secured) -> None:
    produce(secured.settings("SSL", ssl_crlfile=secured.certificates.crl), secured.new_topic(), 1)


def test_a_certificate_for_another_name_does_when_names_are_not_checked(secured: Secured) -> None:
    produce(secured.settings("OTHER", ssl_check_hostname=False), secured.new_topic(), 1)


def test_two_clients_on_one_loop_do_not_wait_for_ones_token(secured: Secured) -> None:
    """The provider blocks until the other client has been served, by the same loop."""
    served = threading.Event()

    def slow() -> str:
        assert served.wait(SOON_S), "the loop stands still while a token is fetched"
        return token_for()

    settings = secured.settings(Way("TOKEN", "OAUTHBEARER"), sasl_oauth_token_provider=slow)
    loop = Loop()
    with KafkaClient(loop=loop, **settings) as held, KafkaClient(loop=loop, **secured.plain()) as other:
        waiting = held.request(AnyNode(), MetadataRequest(topics=[]))
        answer = other.request(AnyNode(), MetadataRequest(topics=[]))
        assert loop.run_until(answer, SOON_S) and answer.succeeded() and not waiting.is_done
        served.set()
        assert loop.run_until(waiting, SOON_S) and waiting.succeeded()
    loop.close()


@pytest.mark.parametrize("way", [Way("BOTH", "SCRAM-SHA-512"), Way("MUTUAL")], ids=str)
def test_commands_take_their_settings_from_a_file(secured: Secured, way: Way, tmp_path, capsys, monkeypatch) -> None:
    settings = secured.settings(way)
    address = settings.pop("bootstrap_servers")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name.replace('_', '.', 1)}={value}\n" for name, value in settings.items()))
    assert main(["check-version", address, "--config", str(file)]) == 0
    assert capsys.readouterr().out.startswith("4.3")
    monkeypatch.setenv("KAFKA_CLIENT_CONFIG", str(file))
    assert main(["check-version", address]) == 0
    capsys.readouterr()
    assert main(["check-version", address, "-X", "security_protocol=PLAINTEXT", "-X", "sasl_plain_password=x"]) == 2
    assert "use --config" in capsys.readouterr().err


# -- sessions that end under load ------------------------------------------------------------------------------------


RENEWED = [
    Way("SHORT", "PLAIN"), Way("SHORT", "SCRAM-SHA-256"), Way("BRIEF", "PLAIN"), Way("BRIEF", "SCRAM-SHA-512"),
    Way("TOKEN", "OAUTHBEARER"),
]  # fmt: skip
SESSIONS_S = 6.5
"""Two and a half of the short sessions, or six of the brief ones."""


def test_every_record_comes_once_and_in_order_while_sessions_are_renewed(secured: Secured) -> None:
    """Every way at the same time, since each takes as long."""
    ways = [way for way in RENEWED if secured.offers(way)]
    with ThreadPoolExecutor(len(ways)) as threads:
        outcomes = dict(zip(map(str, ways), threads.map(lambda way: write_and_read(secured, way), ways), strict=True))
    assert outcomes == dict.fromkeys(outcomes, "each once and in order")


def write_and_read(secured: Secured, way: Way) -> str:
    settings = secured.settings(way)
    topic = secured.new_topic()
    lost: list[object] = []
    sent, read_back = 0, []
    with (
        KafkaProducer(**settings) as producer,
        KafkaConsumer(topic, auto_offset_reset="earliest", **settings) as reader,
    ):
        until = time.monotonic() + SESSIONS_S
        while time.monotonic() < until:
            for _ in range(20):
                producer.send(topic, b"%d" % sent).add_errback(lost.append)
                sent += 1
            for records in reader.poll(5).values():
                read_back += [int(record.value) for record in records]
        producer.flush(SOON_S)
        read_back += [int(record.value) for record in polled(reader, sent - len(read_back), within_s=SOON_S)]
    if lost:
        return f"{len(lost)} of {sent} failed: {lost[0]!r}"
    return "each once and in order" if read_back == list(range(sent)) else f"{sent} sent, read {read_back[-20:]}"
