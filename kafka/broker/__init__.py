"""The embedded broker: one node on a data directory. ``broker.py`` is the machine, ``server.py`` serves it.

The names here are imported when first used, so that ``kafka.broker.embedded``, which clients load, costs next to
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.broker.config import BROKER_SETTINGS, TOPIC_SETTINGS
    from kafka.broker.emulation import LATEST, RELEASES, find_release
    from kafka.broker.faults import ApiName, FaultRuleBuilder, Rule, SeenRequest, api_name
    from kafka.broker.listeners import BrokerSecurity, read_properties, read_users, tls_settings, write_properties
    from kafka.broker.log import DirectoryLockedError
    from kafka.broker.private_files import has_data, open_private, prepare_directory
    from kafka.broker.process import BrokerOptions, RunningBroker, raise_descriptor_limit
    from kafka.broker.server import BrokerServer
    from kafka.broker.telemetry import TelemetryPush

_HOME = {
    "BROKER_SETTINGS": "kafka.broker.config",
    "TOPIC_SETTINGS": "kafka.broker.config",
    "ApiName": "kafka.broker.faults",
    "Broker": "kafka.broker.broker",
    "BrokerOptions": "kafka.broker.process",
    "BrokerSecurity": "kafka.broker.listeners",
    "BrokerServer": "kafka.broker.server",
    "DirectoryLockedError": "kafka.broker.log",
    "LATEST": "kafka.broker.emulation",
    "RELEASES": "kafka.broker.emulation",
    "Rule": "kafka.broker.faults",
    "RunningBroker": "kafka.broker.process",
    "SeenRequest": "kafka.broker.faults",
    "TelemetryPush": "kafka.broker.telemetry",
    "FaultRuleBuilder": "kafka.broker.faults",
    "api_name": "kafka.broker.faults",
    "find_release": "kafka.broker.emulation",
    "has_data": "kafka.broker.private_files",
    "open_private": "kafka.broker.private_files",
    "prepare_directory": "kafka.broker.private_files",
    "raise_descriptor_limit": "kafka.broker.process",
    "read_properties": "kafka.broker.listeners",
    "read_users": "kafka.broker.listeners",
    "tls_settings": "kafka.broker.listeners",
    "write_properties": "kafka.broker.listeners",
}

__all__ = [
    "BROKER_SETTINGS",
    "LATEST",
    "RELEASES",
    "TOPIC_SETTINGS",
    "ApiName",
    "Broker",
    "BrokerOptions",
    "BrokerSecurity",
    "BrokerServer",
    "DirectoryLockedError",
    "FaultRuleBuilder",
    "Rule",
    "RunningBroker",
    "SeenRequest",
    "TelemetryPush",
    "api_name",
    "find_release",
    "has_data",
    "open_private",
    "prepare_directory",
    "raise_descriptor_limit",
    "read_properties",
    "read_users",
    "tls_settings",
    "write_properties",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
