"""What assignors written for kafka-python make and return."""

from __future__ import annotations

from kafka.core.group.assignors.strategy import ConsumerProtocolMemberAssignment as ConsumerProtocolMemberAssignment
from kafka.core.group.assignors.strategy import ConsumerProtocolMemberMetadata as ConsumerProtocolMemberMetadata

ConsumerProtocolMemberMetadata_v0 = ConsumerProtocolMemberMetadata
ConsumerProtocolMemberAssignment_v0 = ConsumerProtocolMemberAssignment


class ConsumerProtocol_v0:
    """The consumers' protocol by kafka-python 2's name."""

    PROTOCOL_TYPE = "consumer"
    METADATA = ConsumerProtocolMemberMetadata
    ASSIGNMENT = ConsumerProtocolMemberAssignment


ConsumerProtocol = [ConsumerProtocol_v0]
