"""What the broker does with each request; one module for each family of APIs, listed in ``kafka.broker.registry``."""

from __future__ import annotations
