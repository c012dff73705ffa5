"""OffsetCommit and OffsetFetch in the fields of each version, and what is read from their answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.core.group.offsets import (
    commit_errors,
    commit_request,
    fetch_request,
    ids_of,
    most_version,
    read_offsets,
)
from kafka.errors import CoordinatorNotAvailableError, KafkaError, NotCoordinatorError, UnstableOffsetCommitError
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
T, U, NOBODYS = UUID(int=1), UUID(int=2), UUID(int=3)
IDS = {"t": T, "u": U}
ME = ConsumerGroupMetadata("g", 5, "me", "one")


def kinds(errors: dict[TopicPartition, KafkaError]) -> dict[TopicPartition, type[KafkaError]]:
    return {where: type(error) for where, error in errors.items()}


@pytest.mark.parametrize(
    ("known", "ids", "most"),
    [
        ({"t": T, "u": U}, {"t": T, "u": U}, None),
        ({"t": T}, {"t": T, "u": UUID(int=0)}, 9),  # KIP-848: from version 10 on both requests name topics by ids alone
    ],
)
def test_topics_go_by_ids_only_when_all_are_known(
    known: dict[str, UUID], ids: dict[str, UUID], most: int | None
) -> None:
    assert ids_of([C, A, B], known.get) == ids
    assert most_version(ids) == most


@pytest.mark.parametrize(("version", "instance"), [(1, None), (6, None), (7, "one"), (10, "one")])
def test_a_commit_names_the_instance_since_version_7(version: int, instance: str | None) -> None:
    """KIP-345."""
    offsets = {A: OffsetAndMetadata(7, "half", 3), C: OffsetAndMetadata(0)}
    assert commit_request(offsets, ME, IDS, version) == OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=5,
        member_id="me",
        group_instance_id=instance,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                ],
            )
            for name, topic_id, offset, epoch, metadata in [("t", T, 7, 3, "half"), ("u", U, 0, -1, "")]
        ],
    )


@pytest.mark.parametrize(("version", "is_stable"), [(1, False), (6, False), (7, True)])
def test_a_fetch_of_one_group_wants_stable_offsets_since_version_7(version: int, is_stable: bool) -> None:
    """KIP-447."""
    assert fetch_request([A, B, C], ME, True, IDS, version) == OffsetFetchRequest(
        group_id="g",
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1]),
            OffsetFetchRequest.OffsetFetchRequestTopic(name="u", partition_indexes=[0]),
        ],
        require_stable=is_stable,
    )


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize(("as_member", "member"), [(True, ("me", 5)), (False, (None, -1))])
def test_a_fetch_of_several_groups_has_one(version: int, as_member: bool, member: tuple[str | None, int]) -> None:
    """KIP-709; the member and its epoch are KIP-848's, null and -1 for who is none."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g",
        member_id=member[0],
        member_epoch=member[1],
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=T, partition_indexes=[0, 1]),
            OffsetFetchRequest.OffsetFetchRequestTopics(name="u", topic_id=U, partition_indexes=[0]),
        ],
    )
    found = fetch_request([A, B, C], ME, as_member, IDS, version)
    assert found == OffsetFetchRequest(groups=[group], require_stable=True)


def committed(*codes: tuple[str, UUID, int, int]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=number, error_code=code)
                ],
            )
            for name, topic_id, number, code in codes
        ]
    )


@pytest.mark.parametrize("by_id", [False, True])
def test_a_commit_has_the_errors_of_what_was_asked_for_and_of_what_the_answer_leaves_out(by_id: bool) -> None:
    def topic(name: str, topic_id: UUID) -> tuple[str, UUID]:
        return ("", topic_id) if by_id else (name, UUID(int=0))

    answer = committed((*topic("t", T), 0, 0), (*topic("t", T), 1, 16), (*topic("v", NOBODYS), 0, 16))
    errors = commit_errors(answer, [A, B, C], IDS)
    assert kinds(errors) == {B: NotCoordinatorError, C: CoordinatorNotAvailableError}
    assert "t-1" in str(errors[B])


FIELDS = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
ENTRIES: list[dict[str, Any]] = [
    dict(zip(FIELDS, values, strict=True))
    for values in [(0, 0, 4, None, 0), (1, -1, -1, "", 88), (2, -1, -1, "", 0), (3, 12, -1, "half", 0)]
]
WANTED = [TopicPartition("t", number) for number in range(5)]
FOUND = {WANTED[0]: OffsetAndMetadata(0, "", 4), WANTED[3]: OffsetAndMetadata(12, "half", -1)}
ERRORS = {WANTED[1]: UnstableOffsetCommitError, WANTED[4]: CoordinatorNotAvailableError}


def found_before_8(code: int = 0) -> OffsetFetchResponse:
    kind = OffsetFetchResponse.OffsetFetchResponsePartition
    topic = OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[kind(**each) for each in ENTRIES])
    return OffsetFetchResponse(topics=[topic], error_code=code)


def found_since_8(name: str, topic_id: UUID, code: int = 0) -> OffsetFetchResponse:
    kind = OffsetFetchResponse.OffsetFetchResponsePartitions
    topic = OffsetFetchResponse.OffsetFetchResponseTopics(
        name=name, topic_id=topic_id, partitions=[kind(**each) for each in ENTRIES]
    )
    return OffsetFetchResponse(
        groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=code)]
    )


@pytest.mark.parametrize(
    "answer",
    [found_before_8(), found_since_8("t", UUID(int=0)), found_since_8("", T)],
    ids=["before 8", "8 and 9", "10"],
)
def test_an_offset_of_minus_1_is_none_and_who_is_left_out_is_asked_for_again(answer: OffsetFetchResponse) -> None:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    assert kinds(read_offsets(answer, WANTED, IDS, found)) == ERRORS
    assert found == FOUND


@pytest.mark.parametrize("answer", [found_before_8(16), found_since_8("t", T, 16)], ids=["before 8", "8 and later"])
def test_an_error_of_the_group_is_that_of_each_partition_and_no_offset_counts(answer: OffsetFetchResponse) -> None:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    assert kinds(read_offsets(answer, [A, B], IDS, found)) == {A: NotCoordinatorError, B: NotCoordinatorError}
    assert found == {}
