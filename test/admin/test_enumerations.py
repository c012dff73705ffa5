"""Enumerations that kafka-python's users know take what those take."""

from __future__ import annotations

from typing import Any

import pytest

from kafka import IsolationLevel, OffsetSpec
from kafka.admin import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    GroupState,
    GroupType,
    TransactionState,
    UpdateFeatureType,
)

KINDS: list[Any] = [
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    GroupState,
    GroupType,
    IsolationLevel,
    OffsetSpec,
    TransactionState,
    UpdateFeatureType,
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_is_built_from_itself_its_value_and_its_name(kind: Any) -> None:
    for member in kind:
        for given in (member, member.value, member.name, f" {member.name.lower().replace('_', '-')} "):
            assert kind.build_from(given) is member
            assert kind.value_for(given) == member.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [None, "sideways", 99, True, []])
def test_what_is_no_member_is_a_value_error_that_names_those_there_are(kind: Any, given: Any) -> None:
    for build in (kind.build_from, kind.value_for):
        with pytest.raises(ValueError, match=f"{kind.__name__} .*: one of "):
            build(given)
