"""Listeners with TLS and passwords: ``confluent_secure.py SCENARIO BOOTSTRAP NAME SETTINGS``, the last in JSON."""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

DEADLINE_S = 30.0


def roundtrip(settings, name):
    """Make a topic, write a hundred records and read them."""
    admin = AdminClient(settings)  # held: without it what was asked is given up
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(DEADLINE_S)
    errors = []
    producer = Producer(settings)
    for number in range(100):
        producer.produce(name, b"value-%d" % number, on_delivery=lambda error, _: errors.append(str(error)))
    producer.flush(DEADLINE_S)
    consumer = Consumer({**settings, "group.id": name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    values = []
    give_up_at = time.monotonic() + DEADLINE_S
    while len(values) < 100 and time.monotonic() < give_up_at:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return {"delivered": errors.count("None"), "read": len(set(values))}


def group(settings, name):
    """A hundred records for a group: one member reads and commits, then a second one reads on where it was."""
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(DEADLINE_S)
    plain = {key: value for key, value in settings.items() if key != "group.protocol"}
    producer = Producer(plain)
    for number in range(100):
        producer.produce(name, b"value-%d" % number, partition=number % 2)
    producer.flush(DEADLINE_S)
    found = []
    for wanted in (60, 40):
        consumer = Consumer(
            {**settings, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([name])
        values = set()
        give_up_at = time.monotonic() + DEADLINE_S
        while len(values) < wanted and time.monotonic() < give_up_at:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.add(message.value())
                consumer.commit(message=message, asynchronous=False)
        consumer.close()
        found.append(values)
    return {"read": [len(values) for values in found], "twice": len(found[0] & found[1])}


def refused(settings, name):
    """Whether a client that is not let in hears why: the error that ``wanted`` names. librdkafka may tell first that a
    connection has gone."""
    wanted, heard = settings.pop("wanted"), []
    producer = Producer({**settings, "error_cb": lambda error: heard.append(error.name())})
    producer.produce(name, b"x")
    give_up_at = time.monotonic() + DEADLINE_S
    while wanted not in heard and time.monotonic() < give_up_at:
        producer.poll(0.1)
    producer.purge()
    return {"name": wanted if wanted in heard else sorted(set(heard))}


def long_session(settings, name):
    """Write for longer than two sessions last."""
    failed, sent = [], 0
    producer = Producer(settings)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        producer.produce(name, b"x", on_delivery=lambda error, _: failed.append(str(error)) if error else None)
        sent += 1
        producer.poll(0.05)
    left = producer.flush(DEADLINE_S)
    return {"failed": failed, "left": left, "some": sent > 50}


def make_user(settings, name):
    """A user of both SCRAM mechanisms."""
    client = AdminClient(settings)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 8192), b"scram-secret")
        for future in client.alter_user_scram_credentials([change]).values():
            future.result(DEADLINE_S)
    described = client.describe_user_scram_credentials([name])[name].result(DEADLINE_S)
    return sorted([info.mechanism.name, info.iterations] for info in described.scram_credential_infos)


SCENARIOS = {one.__name__: one for one in (roundtrip, group, refused, long_session, make_user)}


if __name__ == "__main__":
    scenario, bootstrap, name, more = sys.argv[1:]
    fixed = {"bootstrap.servers": bootstrap, "log_level": 0, "broker.address.family": "v4"}
    print(json.dumps(SCENARIOS[scenario]({**fixed, **json.loads(more)}, name)))
