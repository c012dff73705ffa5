"""What the broker is set to: static settings from its start, dynamic ones from IncrementalAlterConfigs over them.

A value comes from the first of: this broker's dynamic setting, the cluster-wide dynamic one, the static one, Kafka's
default. Topics have their own on top (``topics.py``). Everything is text, as in the protocol; names and checks are in
``settings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka.broker.settings import (
    BROKER_SETTINGS,
    COARSER_SETTINGS,
    Setting,
    check_broker_settings,
    share_setting_name,
    shared_name,
)
from kafka.broker.share.group_configs import BrokerLimits, check_broker_limits
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError

# Where a value comes from, as DescribeConfigs numbers it.
FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_STATIC, FROM_DEFAULT = 1, 2, 3, 4, 5
FROM_CLIENT_METRICS, FROM_GROUP = 7, 8


class Sourced(NamedTuple):
    """A value of the setting ``name``, and where it comes from."""

    name: str
    value: str
    source: int


class BrokerConfig:
    """``static``: name -> value, as given at the start. KafkaConfigurationError for what cannot be.

    ``dynamic``: resource name (the node id as text, or "" for all brokers) -> name -> value; unknown names are kept, as
    in Kafka.
    """

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        self.static = dict(static or {})
        check_broker_settings(self.static)
        self.dynamic: dict[str, dict[str, str]] = {}
        self.node_id = int(self.static.get("node.id", BROKER_SETTINGS["node.id"].default))
        self._resources = (str(self.node_id), "")
        self.limits = BrokerLimits(
            **{field: self.number(share_setting_name(field)) for field in BrokerLimits._field_defaults}
        )
        try:
            check_broker_limits(self.limits)
        except InvalidConfigurationError as error:
            raise KafkaConfigurationError(str(error.args[0])) from None

    def sources(self, name: str) -> list[Sourced]:
        """Every value that the setting has, the one in force first."""
        found = []
        for resource, source in zip(self._resources, (FROM_THIS_BROKER, FROM_ALL_BROKERS), strict=True):
            value = self.dynamic.get(resource, {}).get(name)
            if value is not None:
                found.append(Sourced(name, value, source))
        if name in self.static:
            found.append(Sourced(name, self.static[name], FROM_STATIC))
        setting = BROKER_SETTINGS.get(name)
        if setting is not None:
            found.append(Sourced(name, setting.default, FROM_DEFAULT))
        elif (shared := shared_name(name)) is not None:  # one listener's own: what holds for all comes behind it
            found += [one for one in self.sources(shared) if not BROKER_SETTINGS[shared].is_null]
        return found

    def value(self, name: str) -> str:
        """The value in force of a known setting."""
        for resource in self._resources:
            given = self.dynamic.get(resource, {}).get(name)
            if given is not None:
                return given
        given = self.static.get(name)
        return BROKER_SETTINGS[name].default if given is None else given

    def topic_default(self, setting: Setting) -> str:
        """What the broker's settings make a topic's be, where the topic has none of its own."""
        if setting.broker_name is None:
            return setting.default
        if self.is_set(setting.broker_name):
            return self.value(setting.broker_name)
        for name, unit_ms in COARSER_SETTINGS.get(setting.broker_name, {}).items():
            if self.is_set(name):
                return str(self.number(name) * unit_ms if self.number(name) >= 0 else -1)
        return self.value(setting.broker_name)

    def is_set(self, name: str) -> bool:
        """Whether somebody gave the setting a value."""
        return name in self.static or any(name in values for values in self.dynamic.values())

    def number(self, name: str) -> int:
        return int(self.value(name))

    def flag(self, name: str) -> bool:
        return self.value(name).lower() == "true"
