"""One suite, two brokers with listeners of every kind: the embedded broker and Apache Kafka 4.3.0, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from test.security.support import Secured, make_scram_user
from test.support.certificates import Certificates
from test.support.secure_listeners import secure_broker


@pytest.fixture(scope="session", params=["embedded", "apache"])
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Secured]:
    """The broker, and the settings of clients for its listeners."""
    with secure_broker(request.param, certificates) as places:
        make_scram_user(places)
        yield Secured(places)
