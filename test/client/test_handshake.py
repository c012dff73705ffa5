"""SASL on a client's connections: letting in, refusing, renewing (KIP-368). By KafkaClient, on a simulated loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.client import security
from kafka.client.kafka_client import KafkaClient
from kafka.core.routing import AnyNode
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    IllegalSaslStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka.sasl.oauth import AbstractTokenProvider
from test.client.support import World
from test.support.scripted import ScriptedBroker
from test.support.secured import SASL_RANGES, SecuredBroker

LIST = ListGroupsRequest()
ANY = AnyNode()
ALICE = {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OLD_RANGES = {0: (0, 2), 1: (0, 3), 3: (0, 2), 16: (0, 0), 17: (0, 0), 18: (0, 0)}
"""About what 0.10.2 tells: SaslHandshake v0, no SaslAuthenticate."""


def client_of(world: World, mechanism: str = "PLAIN", **configs: Any) -> KafkaClient:
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **configs}
    if mechanism != "OAUTHBEARER":
        settings = {**ALICE, **settings}
    return world.client(**settings)


def run_until(world: World, condition: Callable[[], object]) -> None:
    assert world.loop.run_until(condition, 1000)


# -- letting in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_lets_every_connection_in(world: World, mechanism: str) -> None:
    broker = SecuredBroker(world.network)
    client = world.settled(client_of(world, mechanism))
    assert world.wait(client.request(1, LIST)).error_code == 0
    assert broker.authentications == broker.accepted == 2  # the bootstrap connection and node 1
    assert broker.hung_up_on == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_brokers_before_1_0_are_sent_tokens_without_headers(world: World, mechanism: str) -> None:
    broker = SecuredBroker(world.network, ranges=OLD_RANGES)
    client = world.settled(client_of(world, mechanism))
    assert world.wait(client.request(1, LIST)).error_code == 0
    assert broker.hung_up_on == []


def test_a_token_from_a_function_lets_in(world: World, threads: Threads) -> None:
    broker = SecuredBroker(world.network)
    client = world.settled(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "good"))
    assert world.wait(client.request(1, LIST)).error_code == 0
    assert broker.shown[-1] == "n,,\x01auth=Bearer good\x01\x01"


def test_a_token_provider_of_kafka_python_provides_its_extensions_too(world: World, threads: Threads) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return "good"

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc-1"}

    broker = SecuredBroker(world.network)
    world.settled(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=Provider()))
    assert broker.shown[-1] == "n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01\x01"


# -- refusing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"sasl_plain_username": "mallory"}, {"sasl_plain_password": "no"}])
def test_a_wrong_name_or_password_fails_what_waits_at_once_and_for_good(
    world: World, mechanism: str, wrong: dict[str, str]
) -> None:
    SecuredBroker(world.network)
    client = client_of(world, mechanism, **wrong)
    began = world.now
    error = world.failure(client.request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and not error.retriable
    assert "kafka:9092" in str(error) and mechanism in str(error)
    assert world.now - began < 0.5
    again = world.failure(client.refresh_metadata())
    assert isinstance(again, SaslAuthenticationFailedError)
    assert world.now - began < 1.5


def test_who_waits_by_hand_for_a_node_hears_it_too(world: World) -> None:
    SecuredBroker(world.network)
    client = client_of(world, sasl_plain_password="no")
    with pytest.raises(SaslAuthenticationFailedError):
        for _ in range(100):
            assert not client.ready(1)
            client.poll(100)


def test_a_mechanism_that_the_broker_lacks_is_reported_with_those_that_it_has(world: World) -> None:
    SecuredBroker(world.network, mechanisms=("SCRAM-SHA-512", "OAUTHBEARER"))
    error = world.failure(client_of(world, "PLAIN").request(ANY, LIST))
    assert isinstance(error, UnsupportedSaslMechanismError) and not error.retriable
    assert "OAUTHBEARER, SCRAM-SHA-512" in str(error)


def test_a_token_that_is_refused_says_why(world: World, threads: Threads) -> None:
    SecuredBroker(world.network)
    error = world.failure(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "bad").request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError)
    assert "invalid token" in str(error) and "bad" not in str(error)


def test_a_server_that_does_not_know_the_password_either_is_not_believed(world: World) -> None:
    """It lets everybody in: with SCRAM it cannot show that it knows who we are."""
    from kafka.core.sasl.scram import ScramServer, new_credential

    class Impostor(ScramServer):
        def step(self, token: bytes) -> bytes:
            if self._credential is None:
                return super().step(token)
            self.user, self.is_complete = "alice", True
            return b"v=" + b"A" * 43 + b"="

    broker = SecuredBroker(world.network)
    broker.mechanism = lambda name: Impostor(  # type: ignore[method-assign]
        name, lambda user: new_credential(name, "made up", b"salt"), "server"
    )
    error = world.failure(client_of(world, "SCRAM-SHA-256").request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and "signature is wrong" in str(error)


def test_a_server_that_wants_too_many_iterations_is_left(world: World) -> None:
    from kafka.core.sasl.scram import ScramServer, new_credential

    broker = SecuredBroker(world.network)
    broker.mechanism = lambda name: ScramServer(  # type: ignore[method-assign]
        name, lambda user: new_credential(name, "alice-secret", b"salt", 4096)._replace(iterations=10**9), "server"
    )
    error = world.failure(client_of(world, "SCRAM-SHA-512").request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and "1000000000 iterations" in str(error)


def test_a_listener_without_authentication_is_distinguished_from_one_with_it(world: World) -> None:
    from kafka.protocol.sasl import SaslHandshakeResponse

    broker = ScriptedBroker(world.network, ranges=SASL_RANGES)
    broker.answers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(error_code=34, mechanisms=[])
    error = world.failure(client_of(world).request(ANY, LIST))
    assert isinstance(error, IllegalSaslStateError) and "asks for no authentication" in str(error)


def test_a_client_without_sasl_at_a_listener_with_it_gets_an_error_that_says_so(world: World) -> None:
    SecuredBroker(world.network)
    began = world.now
    error = world.failure(world.client().request(ANY, LIST))
    assert isinstance(error, IllegalSaslStateError) and not error.retriable
    assert "SASL_PLAINTEXT" in str(error) and "PLAINTEXT" in str(error)
    assert world.now - began < 1


def test_a_broker_that_hangs_up_during_authentication_is_tried_again(world: World) -> None:
    broker = SecuredBroker(world.network)
    answers = broker.mechanism
    cut: list[int] = []

    def mechanism(name: str) -> Any:
        if len(cut) < 3:
            cut.append(1)
            broker.open[-1].transport.abort()
        return answers(name)

    broker.mechanism = mechanism  # type: ignore[method-assign]
    client = client_of(world)
    assert world.wait(client.request(ANY, LIST)).error_code == 0
    assert len(cut) == 3


def test_a_broker_that_never_answers_sasl_fails_the_request_when_its_time_is_over(world: World) -> None:
    broker = SecuredBroker(world.network)
    broker.holds_authenticate = True
    client = client_of(world, request_timeout_ms=2000)
    error = world.failure(client.request(ANY, LIST))
    assert isinstance(error, KafkaTimeoutError) and error.retriable
    broker.holds_authenticate = False
    assert world.wait(client.request(ANY, LIST)).error_code == 0


def test_an_old_broker_that_hangs_up_on_a_token_three_times_means_the_password(world: World) -> None:
    SecuredBroker(world.network, ranges=OLD_RANGES)
    began = world.now
    error = world.failure(client_of(world, sasl_plain_password="no").request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and not error.retriable
    assert "password is wrong" in str(error) and world.now - began < 2


# -- token providers -------------------------------------------------------------------------------------------------


class Threads:
    """Threads whose work is done on the loop when the test lets it: a simulated clock waits for no thread."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_held = False
        self.held: list[Callable[[], object]] = []

    def __call__(self, *, target: Callable[..., object], args: tuple[Any, ...], **_: Any) -> Any:
        def start() -> None:
            if self.is_held:
                self.held.append(lambda: target(*args))
            else:
                self.world.loop.call_soon(target, *args)

        return SimpleNamespace(start=start)

    def let_go(self) -> None:
        self.is_held = False
        for work in self.held:
            work()
        self.held = []


@pytest.fixture
def threads(world: World, monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads(world)
    monkeypatch.setattr(security, "threading", SimpleNamespace(Thread=threads))
    return threads


def test_the_loop_does_not_wait_for_a_provider_that_blocks(world: World, threads: Threads) -> None:
    broker = SecuredBroker(world.network)
    threads.is_held = True
    client = client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "good")
    future = client.request(ANY, LIST)
    world.run(5)
    assert len(threads.held) == 1 and broker.accepted == 1 and not future.is_done
    threads.let_go()
    assert world.wait(future).error_code == 0


def test_a_provider_that_never_returns_is_reported(world: World, threads: Threads) -> None:
    SecuredBroker(world.network)
    threads.is_held = True
    client = client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "good", request_timeout_ms=3000)
    error = world.failure(client.request(ANY, LIST, 10))
    assert isinstance(error, KafkaTimeoutError) and "the token provider has not answered within 3 s" in str(error)
    assert len(threads.held) == 1, "it is called once at a time"


def test_a_provider_that_fails_is_asked_again(world: World, threads: Threads) -> None:
    SecuredBroker(world.network)
    calls: list[int] = []

    def provider() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("the secret of the failing provider")
        return "good"

    client = client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=provider)
    assert world.wait(client.request(ANY, LIST)).error_code == 0
    assert len(calls) >= 3


def test_a_provider_that_ends_its_thread_is_asked_again(world: World, threads: Threads) -> None:
    """As a library does that calls sys.exit() for want of a file: who comes later is not to wait for that call."""
    SecuredBroker(world.network)
    calls: list[int] = []

    def provider() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise SystemExit("the secret of the failing provider")
        return "good"

    client = client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=provider)
    assert world.wait(client.request(ANY, LIST)).error_code == 0


def test_a_thread_that_cannot_be_had_for_the_provider_is_tried_again(
    world: World, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    SecuredBroker(world.network)
    left = [1, 2]

    def none_or_one(**call: Any) -> Any:
        if left:
            left.pop()
            raise RuntimeError("can't start new thread")
        return threads(**call)

    monkeypatch.setattr(security, "threading", SimpleNamespace(Thread=none_or_one))
    client = client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "good")
    assert world.wait(client.request(ANY, LIST)).error_code == 0 and not left


@pytest.mark.parametrize("token", [None, 5, "", "with blanks in it", "b\u00e4d"])
def test_what_is_no_token_is_the_providers_fault_for_good(world: World, threads: Threads, token: Any) -> None:
    SecuredBroker(world.network)
    error = world.failure(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: token).request(ANY, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and "token" in str(error)


# -- sessions that end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
@pytest.mark.parametrize("lifetime_ms", [1000, 1500, 2000, 60_000])
def test_a_session_is_renewed_on_the_living_connection_and_every_answer_comes_in_order(
    world: World, threads: Threads, mechanism: str, lifetime_ms: int
) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=lifetime_ms)
    configs = {"sasl_oauth_token_provider": lambda: "good"} if mechanism == "OAUTHBEARER" else {}
    client = world.settled(client_of(world, mechanism, **configs))
    accepted, sessions = broker.accepted, 10
    order: list[int] = []
    sent = 0
    ends_at = world.now + sessions * lifetime_ms / 1000
    while world.now < ends_at:
        for _ in range(7):
            client.request(1, LIST).add_both(lambda outcome, n=sent: order.append(n if outcome.error_code == 0 else -1))
            sent += 1
        world.run(lifetime_ms / 1000 / 50)
    run_until(world, lambda: len(order) == sent)
    assert order == list(range(sent))
    assert broker.accepted == accepted, "the connection was lost"
    assert broker.hung_up_on == []
    assert broker.authentications - accepted >= sessions - 2


def test_an_idle_connection_is_renewed_and_still_retired_as_idle(world: World) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=2000)
    client = world.settled(client_of(world, connections_max_idle_ms=20_000))
    world.wait(client.request(1, LIST))
    before = broker.authentications
    world.run(10)
    assert broker.authentications > before + 3
    assert client.connected(1)
    world.run(30)
    assert not client.connected(1)


def test_a_password_that_was_changed_ends_the_connection_with_the_session(world: World) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=2000)
    client = world.settled(client_of(world))
    world.wait(client.request(1, LIST))
    broker.users["alice"] = "another"
    accepted = broker.accepted
    run_until(world, lambda: not client.connected(1))
    assert broker.accepted == accepted
    error = world.failure(client.request(1, LIST))
    assert isinstance(error, SaslAuthenticationFailedError) and not error.retriable


def test_a_token_that_is_late_holds_requests_and_loses_none(world: World, threads: Threads) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=10_000)
    client = world.settled(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=lambda: "good"))
    world.wait(client.request(1, LIST))
    before = broker.authentications
    threads.is_held = True
    world.run(9.7)  # the session's end is near
    assert broker.authentications == before
    futures = [client.request(1, LIST) for _ in range(3)]
    world.run(0.05)
    assert not any(future.is_done for future in futures)
    threads.let_go()
    world.wait(futures[-1])
    assert all(future.succeeded() for future in futures)
    assert broker.hung_up_on == []


def test_a_provider_that_fails_at_the_renewal_is_asked_again_in_time(world: World, threads: Threads) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=20_000)
    fails = False

    def provider() -> str:
        if fails:
            raise OSError("down")
        return "good"

    client = world.settled(client_of(world, "OAUTHBEARER", sasl_oauth_token_provider=provider))
    world.wait(client.request(1, LIST))
    before, accepted = broker.authentications, broker.accepted
    fails = True
    world.run(18.2)
    fails = False
    world.run(3)
    assert broker.authentications == before + 1 and broker.accepted == accepted
    assert world.wait(client.request(1, LIST)).error_code == 0


def test_closing_in_the_midst_of_a_renewal_cancels_what_waits(world: World) -> None:
    broker = SecuredBroker(world.network, lifetime_ms=2000)
    client = world.settled(client_of(world))
    world.wait(client.request(1, LIST))
    broker.holds_authenticate = True
    world.run(1.9)
    waiting = client.request(1, LIST, 30)
    world.run(0.1)
    assert not waiting.is_done
    client.close()
    assert isinstance(waiting.exception, Cancelled)


# -- settings that do not fit together -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security_protocol": "SASL_PLAINTEXT"}, "needs sasl_mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl_plain_username and sasl_plain_pass"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, "does not have GSSAPI"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **ALICE, "ssl_cafile": "ca.pem"},
            "ssl_cafile means nothing with security_protocol='SASL_PLAINTEXT'",
        ),
        ({"security_protocol": "SSL", **ALICE}, "means nothing"),
        ({"security_protocol": "SSL", "ssl_cafile": "/no/such/file"}, "ssl_cafile /no/such/file cannot be read"),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "ssl_certfile is not"),
        ({"security_protocol": "SSL", "ssl_ciphers": "none such"}, "none of the ciphers"),
        ({"security_protocol": "TLS"}, "one of 'PLAINTEXT', 'SSL'"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **ALICE,
             "sasl_plain_username": "b\u00e4r"},
            "ASCII",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_at_construction(
    world: World, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        world.client(**settings)
    assert words in str(caught.value) and "alice-secret" not in str(caught.value)


def test_what_is_left_over_besides_plaintext_is_one_warning_that_names_it_and_no_secret(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.client(sasl_mechanism="PLAIN", ssl_cafile="/no/such/file", **ALICE)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "kafka.client.security"]
    assert said.startswith("ssl_cafile, sasl_mechanism, sasl_plain_username, sasl_plain_password: not used with")
    assert "alice" not in said


def test_errors_of_authentication_are_a_family_that_is_not_retried() -> None:
    for error in (SaslAuthenticationFailedError, UnsupportedSaslMechanismError, IllegalSaslStateError):
        assert issubclass(error, AuthenticationError) and not issubclass(error, RetriableError)


def test_old_and_new_dialogues_send_what_the_protocol_says(world: World) -> None:
    broker = SecuredBroker(world.network)
    seen: list[tuple[str, int]] = []
    admit = broker.mechanism
    broker.mechanism = lambda name: seen.append((name, 1)) or admit(name)  # type: ignore[method-assign]
    world.settled(client_of(world))
    assert seen == [("PLAIN", 1)] * 2
    assert not broker.requests(SaslAuthenticateRequest)  # they are the dialogue's, no handler sees them
    assert MetadataRequest in {type(request) for request, _ in broker.received}
