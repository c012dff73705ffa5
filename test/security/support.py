"""What tests of secured clients share: settings for each way in, a round of all clients, tokens that nobody signed."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from typing import Any, NamedTuple

import pytest

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.core.sasl.scram import HASHES
from kafka.protocol.sasl import AlterUserScramCredentialsRequest
from test.support.secure_listeners import MECHANISMS, PROTOCOLS, Places
from test.support.waiting import eventually, polled

SOON_S = 20.0
SCRAM_USER, SCRAM_PASSWORD = "sam", "scram-secret"
ALICE, ALICE_PASSWORD = "alice", "alice-secret"


class Way(NamedTuple):
    """A listener, and how to be let in there."""

    listener: str
    mechanism: str | None = None

    def __str__(self) -> str:
        return self.listener if self.mechanism is None else f"{self.listener}-{self.mechanism}"


WAYS = (
    Way("SSL"), Way("MUTUAL"), *(Way("SASL", each) for each in MECHANISMS), *(Way("BOTH", each) for each in MECHANISMS),
    Way("TOKEN", "OAUTHBEARER"),
)  # fmt: skip


class Secured:
    """A broker with listeners of every kind."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.certificates = places.certificates

    def offers(self, way: Way) -> bool:
        """Whether the broker has the way's listener."""
        return way.listener in self.places.ports

    def settings(self, way: Way | str, **changes: Any) -> dict[str, Any]:
        """Of any client, to be let in; ``changes`` of None take a setting away. Skips for what the broker has not."""
        listener, mechanism = (way, None) if isinstance(way, str) else way
        if listener not in self.places.ports:
            pytest.skip(f"the embedded broker has no listener with {mechanism}")
        protocol = PROTOCOLS[listener]
        made: dict[str, Any] = {
            "bootstrap_servers": f"localhost:{self.places.ports[listener]}",
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            made["ssl_cafile"] = self.certificates.ca
        if listener == "MUTUAL":
            made |= {"ssl_certfile": self.certificates.client, "ssl_keyfile": self.certificates.client_key}
        if protocol.startswith("SASL"):
            mechanism = mechanism or "PLAIN"
            made["sasl_mechanism"] = mechanism
            if mechanism == "OAUTHBEARER":
                made["sasl_oauth_token_provider"] = token_for
            elif mechanism == "PLAIN":
                made |= {"sasl_plain_username": ALICE, "sasl_plain_password": ALICE_PASSWORD}
            else:
                made |= {"sasl_plain_username": SCRAM_USER, "sasl_plain_password": SCRAM_PASSWORD}
        return {name: value for name, value in {**made, **changes}.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """Of a client that comes in by the back door."""
        return {"bootstrap_servers": f"127.0.0.1:{self.places.ports['PLAINTEXT']}"}

    def new_topic(self, partitions: int = 1) -> str:
        """A topic's name; it exists."""
        name = f"secured-{uuid.uuid4().hex[:8]}"
        with KafkaAdminClient(**self.plain()) as admin:
            admin.create_topics([NewTopic(name, partitions, 1)], wait_for_metadata=True)
        return name


def token_for(user: str = "alice", lifetime_s: float = 60.0) -> str:
    """An unsigned token, as Kafka's brokers take them where nobody has set another validator."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + lifetime_s}
    return ".".join([_encoded({"alg": "none"}), _encoded(claims), ""])


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def make_scram_user(places: Places) -> None:
    """One that both mechanisms of SCRAM let in."""
    salt = b"a salt of the test's"
    upsertions = [
        AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=SCRAM_USER,
            mechanism=number,
            iterations=4096,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(HASHES[name], SCRAM_PASSWORD.encode(), salt, 4096),
        )
        for number, name in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512"))
    ]
    with places.connect("PLAINTEXT") as client:
        for one in upsertions:  # a user may be altered once in a request
            answer = client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[one]), 0)
            assert [row.error_code for row in answer.results] == [0]


def produce(settings: dict[str, Any], topic: str, count: int) -> None:
    with KafkaProducer(**settings) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(count)]
        producer.flush(SOON_S)
        assert all(future.succeeded() for future in futures)


def read(settings: dict[str, Any], topic: str, count: int) -> list[int]:
    """The numbers in the first ``count`` records of the topic."""
    with KafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        return [int(record.value) for record in polled(consumer, count, within_s=SOON_S)]


def share(settings: dict[str, Any], topic: str, count: int) -> list[int]:
    """The same by a share group of its own."""
    group = f"share-{uuid.uuid4().hex[:8]}"
    wanted = {"share.auto.offset.reset": "earliest"}
    resource = ConfigResource(ConfigResourceType.GROUP, group, wanted)
    with KafkaAdminClient(**settings) as admin:
        admin.alter_configs([resource])

        def reset() -> str | None:
            seen = admin.describe_configs([ConfigResource(ConfigResourceType.GROUP, group)])["group"].get(group, {})
            return seen.get("share.auto.offset.reset", {}).get("value")

        eventually(reset, "earliest", within_s=SOON_S)
    with KafkaShareConsumer(topic, group_id=group, **settings) as consumer:
        return [int(record.value) for record in polled(consumer, count, within_s=SOON_S)]
